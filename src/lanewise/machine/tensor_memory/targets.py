"""What tcgen05.cp and shift write: lanes and columns of a block or a pair, checked when they are issued."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockAnswer, BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.function_code import U64, BlockCode, FunctionCode, Record, call, shared_code
from lanewise.machine.codegen.tensor_pipe import (
    ISSUER,
    columns_are_allocated,
    is_paired,
    lane_and_column,
    missing_column,
    operand_of,
    other_block,
)
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.allocation import is_for_pair
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, TENSOR_LANES

#: Arguments of a function that issues an operation with a target, and the first two of its operands.
TARGET_ARGUMENTS = (*ISSUER, "address", "paired")
ADDRESS, PAIRED = range(2)


class Target(NamedTuple):
    """The lanes and columns that an operation reaches from its address on."""

    #: What the lane of the address is a multiple of, and the last lane from there on.
    first_lane: int
    last_lane: int
    columns: int


def issue_each(code: BlockCode, op: Op, name: str, write: Callable[[BlockCode], None]) -> None:
    """Write a call of the function that issues an operation, for each active lane.

    `write` writes that function, whose arguments are TARGET_ARGUMENTS, and "descriptor" if there is one.
    """
    paired, rest = int(is_for_pair(op)), op.operands[1:]
    arguments = (*TARGET_ARGUMENTS, "descriptor") if rest else TARGET_ARGUMENTS
    function = shared_code(code.module, name, arguments, write, quickly=True)
    with code.each_lane(code.bits(code.active(op))) as lane:
        address = (code.address_of(op.address(0), lane) & 0xFFFFFFFF).to(i64)
        given: list[Value | int] = [code["frame"], op.site, lane, address, paired]
        given += [code.lane_read(operand, U64, lane) for operand in rest]
        answer = call(code, function, given)
        with code.when(answer.differs(0)):
            code.give(BlockAnswer.STOPPING)


def demand_target(code: BlockCode, target: Target) -> None:
    """Stop the launch unless the target exists and is allocated, in both blocks if it is one of a pair."""
    lane, column = lane_and_column(code["address"])
    last_lane, last = lane + target.last_lane, column + target.columns - 1
    paired = code["paired"].differs(0)
    _demand(code, (lane & (target.first_lane - 1)).equals(0), Wrong.FIRST_LANE, lane)
    _demand(code, last_lane < TENSOR_LANES, Wrong.BEYOND_LANES, last_lane)
    _demand(code, last < TENSOR_COLUMNS, Wrong.BEYOND_COLUMNS, last)
    blocks, rank = code.launch.get(LaunchRecord.cluster_blocks), code.block.get(BlockRecord.rank)
    _demand(code, ~paired | is_paired(code.block), Wrong.NO_PAIR, blocks)
    count = code.number(target.columns)
    _demand_columns(code, code.block, column, count)
    with code.when(paired):
        other = other_block(code, code.block)
        _demand(code, other.get(BlockRecord.ended).equals(0), Wrong.PAIR_EXITED, rank ^ 1)
        _demand_columns(code, other, column, count)


def _demand_columns(code: BlockCode, block: Record, column: Value, count: Value) -> None:
    missing = missing_column(code, block, column)
    _demand(code, columns_are_allocated(code, block, column, count), Wrong.NOT_ALLOCATED, missing)


def _demand(code: BlockCode, holds: Value, why: Wrong, number: Value) -> None:
    with code.when(~holds):
        code.fault(FaultKind.TENSOR_MEMORY, code["site"], code["lane"], number, int(why))


@contextmanager
def each_block(code: FunctionCode, operation: Record) -> Iterator[Record]:
    """Run the body for the block of an operation that is carried out, and for the other one of its pair."""
    own = operation.at(AsyncOperation.block)
    paired = operand_of(operation, PAIRED)
    with code.loop(paired + 1) as number:
        chosen = code.variable(own.address)
        with code.when(number.differs(0)):
            chosen.set(other_block(code, own).address)
        yield Record(code, chosen.get(), BlockRecord)
