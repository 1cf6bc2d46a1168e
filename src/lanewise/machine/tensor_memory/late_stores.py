"""tcgen05.st that a schedule keeps: its registers are copied, and it takes effect later.

That is at tcgen05.wait::st at the latest. The stores of a warp keep their order: they are operations of a
pipe of their own.
"""

from collections.abc import Callable
from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.simd import Value, u32
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, BlockRecord, WarpFrame
from lanewise.machine.async_records import STAGE_BYTES, TENSOR_PIPE, AsyncOperation, PendingOperations
from lanewise.machine.codegen.function_code import BlockCode, Kernel, Record, call, shared_code
from lanewise.machine.codegen.pending_operations import address_of, complete_pipe, issue, tell_piped
from lanewise.machine.codegen.tensor_pipe import blank_operation, operand_of
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.ops import Op

#: Bytes of a register of all lanes.
REGISTER_BYTES = 4 * abi.LANES
#: Operands of a store that is kept, beside its source.
START, HALF_SPLIT, CHUNKS = range(3)


class Move(NamedTuple):
    """What a load or store moves: chunks from a first word on, in one half or two."""

    #: The host address of the first word of tensor memory.
    start: Value
    #: The columns from the first half to the second.
    half_split: Value
    chunks: Value
    #: Registers of a chunk.
    together: int


def pipe_of(warp: Value) -> Value:
    """Return the pipe of the stores of a warp."""
    return warp + TENSOR_PIPE + 1


def keep(
    code: BlockCode, site: Value, move: Move, register: Callable[[Value], Record], execute: ir.Function
) -> None:
    """Write that a store is kept if the launch has a schedule, and there is room for its registers.

    Then it returns from the function. `execute` is the function that carries it out.
    """
    pending = code.block.get(BlockRecord.pending)
    size = move.chunks * (move.together * REGISTER_BYTES)
    with code.when(pending.differs(0)):
        queue = Record(code, pending)
        used = queue.get(PendingOperations.staged_bytes)
        with code.when(~(used + size > STAGE_BYTES)):
            place = queue.get(PendingOperations.stage) + used
            queue.set(PendingOperations.staged_bytes, used + size)
            with code.loop(move.chunks * move.together) as number:
                values = register(number).get(0, u32, abi.LANES)
                Record(code, place + number * REGISTER_BYTES).pointer(0, u32).store(values)
            operation = _store_of(code, site, move)
            operation.set(AsyncOperation.source, place)
            operation.set(AsyncOperation.execute, address_of(code, execute))
            code.give(call(code, issue(code.module), [code["frame"], operation.address]))


def _store_of(code: BlockCode, site: Value, move: Move) -> Record:
    """Return a store of the running warp as an operation of its pipe, without its values."""
    operation = blank_operation(code, site, code.number(0))
    operation.set(AsyncOperation.pipe, pipe_of(code.frame.get(WarpFrame.index)))
    for operand, value in enumerate((move.start, move.half_split, move.chunks)):
        operation.set(AsyncOperation.tensor_operands + 8 * operand, value)
    return operation


def tell_store(code: BlockCode, site: Value, move: Move) -> None:
    """Write code that tells a trace, if there is one, of a store that took effect at once."""
    with code.when(code.block.get(BlockRecord.piped_hook).differs(0)):
        operation = _store_of(code, site, move)
        operation.set(AsyncOperation.block, code.block.address)
        operation.set(AsyncOperation.warp, code.frame.get(WarpFrame.index))
        operation.set(AsyncOperation.issue_entry, code.block.get(BlockRecord.log_entry))
        tell_piped(code, operation)


def kept_move(operation: Record, together: int) -> tuple[Move, Callable[[Value], Value]]:
    """Return what a kept store moves, and where its copied registers are, by their number."""
    start, half_split, chunks = (operand_of(operation, field) for field in (START, HALF_SPLIT, CHUNKS))
    source = operation.get(AsyncOperation.source)
    return Move(start, half_split, chunks, together), lambda number: source + number * REGISTER_BYTES


def wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.wait::st as a shared step: the kept stores of the warp take effect."""
    return Step(shared_code(module, "tcgen05.wait::st", STEP_ARGUMENTS, _write_wait, quickly=True), [])


def load_wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.wait::ld as a shared step that does nothing: loads are done; a check sees the wait."""
    return Step(shared_code(module, "tcgen05.wait::ld", STEP_ARGUMENTS, _write_nothing, quickly=True), [])


def _write_nothing(code: BlockCode) -> None:
    code.give(0)


def _write_wait(code: BlockCode) -> None:
    with code.when((code["active"].equals(0)) | code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    answer = complete_pipe(code, code.block, pipe_of(code.frame.get(WarpFrame.index)))
    with code.when(answer.differs(0)):
        code.give(BlockAnswer.STOPPING)
