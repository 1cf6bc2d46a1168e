"""The pipe of tcgen05 operations while code for them is written: issue, pairs of blocks, allocated columns.

tcgen05.mma, cp, shift and commit are asynchronous operations of one pipe of their block: they take effect in
the order in which they were issued (`pending_operations.py`), by default at once.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u64
from lanewise.machine.abi import BlockAnswer, BlockRecord, FaultKind, LaunchRecord, MemberRow
from lanewise.machine.async_records import TENSOR_PIPE, AsyncOperation
from lanewise.machine.codegen.cluster_scheduler import member_row
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record
from lanewise.machine.codegen.pending_operations import address_of, issue
from lanewise.machine.tensor_memory_records import (
    FREED_COLUMN,
    LANE_BYTES,
    LANE_SHIFT,
    TENSOR_COLUMNS,
    UNIT,
    TensorAllocator,
)

#: Arguments after the frame of a function that issues operations of the pipe.
ISSUER = ("site", "lane")


class PipeOperation:
    """An operation of one lane while the function that issues it is written."""

    def __init__(self, code: BlockCode) -> None:
        self.code, self.block = code, code.block
        self.record = blank_operation(code, code["site"], code["lane"])
        self.record.set(AsyncOperation.pipe, TENSOR_PIPE)

    def operand(self, number: int, value: Value | int) -> None:
        """Put an operand on record: a 64-bit number that `operand_of` reads when the operation executes."""
        self.record.set(AsyncOperation.tensor_operands + 8 * number, value)

    def give(self, execute: ir.Function) -> None:
        """Issue the operation, and return the answer (0, or BlockAnswer.STOPPING) from the function."""
        self.record.set(AsyncOperation.execute, address_of(self.code, execute))
        self.code.give(self.code.invoke(issue(self.code.module), self.code["frame"], self.record.address))


def blank_operation(code: FunctionCode, site: Value, lane: Value) -> Record:
    """Return an operation on the stack whose fields are those of one without an mbarrier and a group."""
    record = code.stack_record(AsyncOperation.BYTES, layout=AsyncOperation)
    for field in (
        AsyncOperation.barrier,
        AsyncOperation.target_block,
        AsyncOperation.combine,
        AsyncOperation.source,
        AsyncOperation.element_bytes,
        AsyncOperation.group,
    ):
        record.set(field, 0)
    record.set(AsyncOperation.site, site)
    record.set(AsyncOperation.lane, lane)
    return record


def operand_of(operation: Record, number: int) -> Value:
    """Return an operand of an operation that is carried out."""
    return operation.get(AsyncOperation.tensor_operands + 8 * number)


def fault_in(
    code: FunctionCode, operation: Record, kind: FaultKind, address: Value | int, size: Value | int
) -> None:
    """Record a fault of an operation that is carried out, and return from the function."""
    block = operation.at(AsyncOperation.block)
    site, lane = operation.get(AsyncOperation.site), operation.get(AsyncOperation.lane)
    code.record_fault(block, kind, site, lane, address, size)
    block.set(BlockRecord.fault_warp, operation.get(AsyncOperation.warp))
    code.give(BlockAnswer.STOPPING)


def tell_barrier(code: FunctionCode, operation: Record, wrong: Value) -> None:
    """Stop the launch if what an operation told its mbarrier was wrong: a number from 1 on says why."""
    with code.when(wrong.differs(0)):
        address = operation.get(AsyncOperation.barrier_address)
        fault_in(code, operation, FaultKind.MBARRIER, address, wrong.to(u64).to(i64) - 1)


def is_paired(block: Record) -> Value:
    """Return whether a block has another one with which it is a pair: its cluster has 2, 4, 6, … blocks."""
    return (block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks) & 1).equals(0)


def other_row(code: FunctionCode, block: Record) -> Record:
    """Return the MemberRow of the other block of a pair, whose rank differs in the last bit.

    Its `block` is that block's record, its `shared` the host address of its shared memory, and its `bytes`
    are 0 once it has exited. There is one only if `is_paired`.
    """
    return member_row(code, block, block.get(BlockRecord.rank) ^ 1)


def other_block(code: FunctionCode, block: Record) -> Record:
    """Return the record of the other block of a pair; there is one only if `is_paired`."""
    return Record(code, other_row(code, block).get(MemberRow.block), BlockRecord)


def columns_are_allocated(code: FunctionCode, block: Record, first: Value, count: Value) -> Value:
    """Return whether some columns (at least 1) of a block's tensor memory exist and are allocated."""
    last = first + count - 1
    inside = ~(first < 0) & (last < TENSOR_COLUMNS)
    units = (code.number(2) << _bounded(last, UNIT)) - (code.number(1) << _bounded(first, UNIT))
    allocated = Record(code, block.get(BlockRecord.tensor_allocator)).get(TensorAllocator.allocated)
    return inside & (units & ~allocated).equals(0)


def missing_column(code: FunctionCode, block: Record, column: Value) -> Value:
    """Return a column that is not allocated as faults name it: with FREED_COLUMN if it was freed."""
    freed = Record(code, block.get(BlockRecord.tensor_allocator)).get(TensorAllocator.freed)
    return column | (((freed >> _bounded(column, UNIT)) & 1) * FREED_COLUMN)


def _bounded(column: Value, unit: int) -> Value:
    """Return the unit of a column as a number that may be shifted by, whatever the column is."""
    return (column >> (unit.bit_length() - 1)) & 31


def tensor_word(block: Record, lane: Value, column: Value) -> Value:
    """Return the host address of the word at a lane and column of a block's tensor memory."""
    return block.get(BlockRecord.tensor_memory) + lane * LANE_BYTES + column * 4


def lane_and_column(address: Value) -> tuple[Value, Value]:
    """Return the lane and the column of a 64-bit number that is a device address of tensor memory."""
    return (address >> LANE_SHIFT) & 0xFFFF, address & 0xFFFF
