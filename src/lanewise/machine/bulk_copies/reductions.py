"""Functions that reduce bytes in memory, element by element: for cp.reduce.async.bulk and red.async.

Each element changes in one indivisible step, since other blocks may reduce into the same memory.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine.codegen.function_code import FunctionCode, Record, shared
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.machine.warp_ops.atomics import atomic_update

#: Operations of reductions.
OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def operation_of(op: Op) -> str:
    """Return the operation that an instruction names; raise an error if it names none."""
    name = next((modifier for modifier in op.modifiers if modifier in OPERATIONS), "")
    if not name:
        raise op.unsupported("it names no operation")
    return name


def reduction(module: ir.Module, op: Op, name: str, fmt: str, space: str) -> ir.Function:
    """Return `reduce(target, source, bytes)` for an operation and a type of elements in a state space."""
    kind = ir.FunctionType(ir.WORD, [ir.LONG] * 3)

    def write(module: ir.Module, title: str) -> None:
        code = FunctionCode(module, title, ("target", "source", "bytes"), ir.WORD, "")
        word = Type("u", TYPE_BITS[fmt])
        size = word.bits // 8
        with code.loop(code["bytes"] >> (size.bit_length() - 1)) as number:
            source = Record(code, code["source"] + number * size).pointer(0, word)
            operand = Value(code, word, code.builder.load(source._typed(word), align=1))
            target = Record(code, code["target"] + number * size).pointer(0, word)._typed(word)
            atomic_update(code, op, name, fmt, target, operand, space)
        code.give(0)

    title = f"reduce {name} {fmt} in {space}"
    if module.functions.get(title) is None:
        write(ir.Module(), title)  # errors are raised here, where the line is known
    return shared(module, title, kind, write)


def copier(code: FunctionCode, target: Value, source: Value, size: Value) -> None:
    """Write code that copies bytes, which may overlap."""
    pointer = ir.IntType(8).as_pointer()
    types = [pointer, pointer, ir.IntType(64), ir.IntType(1)]
    function = code.external("llvm.memmove.p0.p0.i64", ir.VoidType(), types)
    handles = [code.builder.inttoptr(address.to(i64).handle, pointer) for address in (target, source)]
    code.builder.call(function, [*handles, size.handle, ir.Constant(ir.IntType(1), 0)])
