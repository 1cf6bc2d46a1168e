"""Lowerings of atom and red of every operation and type, on shared and global memory."""

from lanewise.jit import ir
from lanewise.jit.simd import Code, Type, Value, f32, f64
from lanewise.machine import abi
from lanewise.machine.arithmetic import integer
from lanewise.machine.arithmetic.float_bits import pick
from lanewise.machine.arithmetic.floating import small_operate
from lanewise.machine.arithmetic.rounding import quiet
from lanewise.machine.arithmetic.small_floats import flush, is_nan, round_to, widen
from lanewise.machine.codegen.function_code import BlockCode
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, ResolvedOperand, Sink, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.machine.warp_ops.addresses import WRITE, Access, reached_space

OPERATIONS = ("add", "and", "or", "xor", "min", "max", "inc", "dec", "exch", "cas")
#: The state space of reductions by bulk copies: global memory, but f32 keeps subnormal numbers (an H200).
BULK = "bulk"
_NATIVE = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg"}


def combine(op: Op, name: str, fmt: str, old: Value, new: Value, space: str) -> Value:
    """Return the word that is stored in a state space for an old word and an operand."""
    bits = old.type.bits
    if fmt in ("f16x2", "bf16x2"):
        element = fmt.removesuffix("x2")
        pairs = integer.halves(old), integer.halves(new)
        return integer.joined(
            *(_small(op, name, element, [pairs[0][side], pairs[1][side]]) for side in (0, 1))
        )
    if fmt in ("f16", "bf16"):
        return _small(op, name, fmt, [old, new])
    if fmt in ("f32", "f64"):
        type = f32 if fmt == "f32" else f64
        a, b = old.view(type), new.view(type)
        if name != "add":
            raise op.unsupported("of floats")
        if space == "shared":
            return quiet(a + b, a, b).view(Type("u", bits))
        if type is f32 and space == BULK:
            return quiet(a + b).view(Type("u", bits))
        if type is f32:  # subnormal numbers are flushed, in global memory alone (PTX ISA)
            return flush(quiet(flush(a) + flush(b))).view(Type("u", bits))
        # Seen on an H200: in global memory a NaN stays as it is, signalling too; the operand comes first.
        result = quiet(a + b).view(Type("u", bits))
        return is_nan(b).select(new, is_nan(a).select(old, result))
    signed = Type("i" if fmt.startswith("s") else "u", bits)
    a, b = old.view(signed), new.view(signed)
    match name:
        case "add":
            result = a + b
        case "and":
            result = a & b
        case "or":
            result = a | b
        case "xor":
            result = a ^ b
        case "min":
            result = (a > b).select(b, a)
        case "max":
            result = (a > b).select(a, b)
        case "inc":
            result = (a < b).select(a + 1, 0)
        case "dec":
            result = (a.equals(0) | (a > b)).select(b, a - 1)
        case _:
            result = b
    return result.view(Type("u", bits))


def _small(op: Op, name: str, fmt: str, words: list[Value]) -> Value:
    """Return the result for f16 or bf16 words."""
    if name == "add":
        return small_operate("add", fmt, words)
    a, b = (widen(word, fmt) for word in words)
    return round_to(pick(op, name == "max", a, b), fmt)


def lower(code: BlockCode, op: Op) -> None:
    """Lower atom and red, lane after lane."""
    name = op.one_of(OPERATIONS, "it names no operation")
    (located,) = accesses(op)
    fmt = op.types[-1]
    destination: ResolvedOperand = op.operands[0] if op.record.role(0) is Role.DEFINED else Sink()
    sources = op.operands[located.access.data :]
    width = TYPE_BITS[fmt]
    if width not in (16, 32, 64, 128):
        raise op.unsupported(f"of {width} bits")
    elements = elements_of(sources[0])
    if any(isinstance(element, Register) and element.is_predicate for element in (*elements, *sources[1:])):
        raise op.unsupported("its operands are numbers, and not predicates")
    word = Type("u", width)
    size = width // 8
    whole = size * len(elements)
    access = Access(code, op.site, reached_space(op, located), whole, whole, WRITE)
    targets = (
        elements_of(destination)
        if len(elements) > 1 and not isinstance(destination, Sink)
        else (destination,) * len(elements)
    )
    with code.each_lane(code.bits(code.active(op))) as lane:
        device_address = code.address_of(located.address, lane)
        host = access.host(device_address, lane)
        for number, element in enumerate(elements):
            address = code.builder.gep(host, [ir.Constant(ir.IntType(64), number * size)])
            pointer = code.builder.bitcast(address, word.ir.as_pointer())
            operand = code.lane_read(element, word, lane)
            if name == "cas":
                other = code.lane_read(sources[1], word, lane)
                pair = code.builder.cmpxchg(pointer, operand.handle, other.handle, "seq_cst", "seq_cst")
                old = Value(code, word, code.builder.extract_value(pair, 0))
            elif located.space == "generic" and fmt in ("f32", "f64"):
                old = _by_address(code, op, name, fmt, pointer, operand, device_address)
            else:
                old = atomic_update(code, op, name, fmt, pointer, operand, located.space)
            code.lane_write(targets[number], old, lane)


def _by_address(
    code: BlockCode, op: Op, name: str, fmt: str, pointer: ir.Operand, operand: Value, address: Value
) -> Value:
    """Write an operation on floats at a generic address: sums in shared and in global memory differ."""
    old = code.variable(operand)
    in_shared = (address - abi.SHARED_WINDOW) < abi.WINDOW_BYTES
    with code.builder.if_else(in_shared.handle) as (shared, elsewhere):
        with shared:
            old.set(atomic_update(code, op, name, fmt, pointer, operand, "shared"))
        with elsewhere:
            old.set(atomic_update(code, op, name, fmt, pointer, operand, "global"))
    return old.get()


def atomic_update(
    code: Code, op: Op, name: str, fmt: str, pointer: ir.Operand, operand: Value, space: str
) -> Value:
    """Write an operation on a word of memory as one indivisible step; return the old word."""
    if name in _NATIVE or (name in ("add", "min", "max") and "f" not in fmt):
        kind = _NATIVE.get(name) or (name if name == "add" or fmt[0] == "s" else f"u{name}")
        return Value(code, operand.type, code.builder.atomic_rmw(kind, pointer, operand.handle, "seq_cst"))
    return _exchange_loop(code, op, name, fmt, pointer, operand, space)


def _exchange_loop(
    code: Code, op: Op, name: str, fmt: str, pointer: ir.Operand, operand: Value, space: str
) -> Value:
    """Write a loop of compare-and-swap until no other thread came between; return the old word."""
    builder, word = code.builder, operand.type
    first = builder.load_atomic(pointer, "monotonic", word.bits // 8)
    seen = code.variable(Value(code, word, first))
    head, after = (code.function.append_basic_block(name) for name in ("swap", "swapped"))
    builder.branch(head)
    builder.position_at_end(head)
    old = seen.get()
    wanted = combine(op, name, fmt, old, operand, space)
    pair = builder.cmpxchg(pointer, old.handle, wanted.handle, "seq_cst", "seq_cst")
    seen.set(Value(code, word, builder.extract_value(pair, 0)))
    builder.cbranch(builder.extract_value(pair, 1), after, head)
    builder.position_at_end(after)
    return old
