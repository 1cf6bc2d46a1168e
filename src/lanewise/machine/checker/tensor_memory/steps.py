"""The checker's steps before instructions of tcgen05: what they do to tensor memory, what they wait for."""

from collections.abc import Callable
from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Library, Reference
from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker.tensor_memory.records import TensorWait
from lanewise.machine.checker.watch_code.tensor.pipe_operations import (
    Hook,
    commit_issued,
    copy_hooks,
    product_issued,
    shift_issued,
)
from lanewise.machine.checker.watch_code.tensor.warp_accesses import (
    allocate_columns,
    fence_after_sync,
    free_columns,
    move_words,
    wait_for_moves,
)
from lanewise.machine.codegen.function_code import BlockCode, Record
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: What is called when an operation of the pipe is issued, by the second word of the instruction, and for a
#: copy by its shape.
_HOOKS: dict[str, Hook] = {"mma": product_issued, "shift": shift_issued, "commit": commit_issued} | {
    f"cp {name}": hook for name, hook in copy_hooks.items()
}
#: Lanes that a shape of tcgen05.ld and st reaches, but for those of 16 lanes.
_WHOLE_WARP = "32x32b"
_HALVES = "16x32bx2"


_WAITS = {
    "wait::ld": TensorWait.LOADS,
    "wait::st": TensorWait.STORES,
    "fence::before_thread_sync": TensorWait.FENCE,
}


class TensorStep(NamedTuple):
    """A step by the name of its function, and its operands."""

    name: str
    operands: list[int]


def tensor_step(op: Op) -> TensorStep | None:
    """Return the step before an instruction of tcgen05; None if it has none."""
    row, verb = MOST_ROWS * op.site, op.source.head.split(".")[1]
    if verb == "cp":
        shape = next(name for name in copy_hooks if set(name.split(".")) <= set(op.modifiers))
        return TensorStep(_hook_step(f"cp {shape}"), [])
    if verb in _HOOKS:
        return TensorStep(_hook_step(verb), [])
    match verb:
        case "ld" | "st":
            return TensorStep("check_tensor_move", [row, *_move(op, verb == "st")])
        case "wait::ld" | "wait::st" | "fence::before_thread_sync":
            return TensorStep("check_tensor_wait", [_WAITS[verb]])
        case "fence::after_thread_sync":
            return TensorStep("check_tensor_fence", [])
        case "alloc":
            return TensorStep("check_tensor_alloc", [row, *_operand(op.operands[-1])])
        case "dealloc":
            address, count = op.operands
            return TensorStep("check_tensor_dealloc", [row, *_operand(address), *_operand(count)])
    return None


def _hook_step(verb: str) -> str:
    """Return the name of the step that sets a hook."""
    return f"set tensor hook of {verb}"


def _operand(operand: ResolvedOperand) -> list[int]:
    """Return a 32-bit operand as a register's offset (0: none) and a number."""
    if isinstance(operand, MemoryOperand):
        register, number = _operand(operand.base)
        return [register, number + operand.offset]
    if isinstance(operand, Register):
        return [operand.offset, 0]
    return [0, operand.bits & 0xFFFFFFFF if isinstance(operand, Immediate) else 0]


def _move(op: Op, stores: bool) -> list[int]:
    """Return the operands of a load or store: address, lanes, columns, columns to the second half."""
    operands = list(op.operands)
    (address,) = (operand for operand in operands if isinstance(operand, MemoryOperand))
    vector = operands[operands.index(address) + 1 if stores and not op.has(_HALVES) else -1 if stores else 0]
    lanes = 32 if op.has(_WHOLE_WARP) else 16
    words = len(elements_of(vector)) * 32
    is_packed = op.has("pack::16b") or op.has("unpack::16b")
    halves = 2 if op.has(_HALVES) else 1
    columns = words // (lanes * halves) * (2 if is_packed else 1)
    split = operands[operands.index(address) + 1] if op.has(_HALVES) else None
    distance = split.bits if isinstance(split, Immediate) else 0
    return [*_operand(address), lanes, columns, distance, int(stores)]


# the functions ----------------------------------------------------------------------------------------------


def _frame(code: BlockCode) -> Reference:
    return Reference(WarpFrame, code["frame"])


def _set_hook(hook: Hook) -> Callable[[BlockCode, Record], None]:
    """Return the writer of a step that has a function called when the next operation is issued."""

    def write(code: BlockCode, operands: Record) -> None:
        function = code.builder.ptrtoint(Library.of(code.module).declared(hook), ir.LONG)
        code.block.set(BlockRecord.issued_hook, Value(code, i64, function))

    return write


def _check_move(code: BlockCode, operands: Record) -> None:
    """Operands: row, address, lanes, columns, columns to the second half, whether it stores."""
    row, *rest = (operands.get(8 * number) for number in range(7))
    names = ("register", "number", "lanes", "columns", "split", "stores")
    given = dict(zip(names, rest, strict=True))
    move_words.call(code, frame=_frame(code), row=row, active=code["active"], **given)
    code.block.set(BlockRecord.issued_hook, 0)  # a store that is kept has been looked at


def _check_wait(code: BlockCode, operands: Record) -> None:
    """Operands: a TensorWait."""
    wait_for_moves.call(code, frame=_frame(code), active=code["active"], kind=operands.get(0))


def _check_fence(code: BlockCode, operands: Record) -> None:
    """There are no operands."""
    fence_after_sync.call(code, frame=_frame(code), active=code["active"])


def _check_alloc(code: BlockCode, operands: Record) -> None:
    """Operands: row, columns."""
    row, register, count = (operands.get(8 * number) for number in range(3))
    frame, active = _frame(code), code["active"]
    allocate_columns.call(code, frame=frame, row=row, active=active, count_register=register, count=count)


def _check_dealloc(code: BlockCode, operands: Record) -> None:
    """Operands: row, address, columns."""
    row, *rest = (operands.get(8 * number) for number in range(5))
    given = dict(zip(("register", "number", "count_register", "count"), rest, strict=True))
    free_columns.call(code, frame=_frame(code), row=row, active=code["active"], **given)


#: The functions of the steps by name.
TENSOR_STEPS: dict[str, Callable[[BlockCode, Record], None]] = {
    "check_tensor_move": _check_move,
    "check_tensor_wait": _check_wait,
    "check_tensor_fence": _check_fence,
    "check_tensor_alloc": _check_alloc,
    "check_tensor_dealloc": _check_dealloc,
} | {_hook_step(verb): _set_hook(hook) for verb, hook in _HOOKS.items()}
