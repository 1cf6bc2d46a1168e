"""tcgen05.cp and tcgen05.shift, which write lanes of tensor memory: copied rows, or those of the next lane.

A copy reads the matrix that a descriptor names in shared memory. The shapes are those of
`isa/tensor_memory/copy_shapes.py`. Rows are read in pieces of 16 bytes; each goes to all lanes that get it.
Of a pair, each block copies from its own shared memory to its own tensor memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lanewise.isa.matrix_descriptor import TCGEN05_FIELD, TCGEN05_VERSION
from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS, PIECE_BYTES, SHAPES, CopyShape, Expansion
from lanewise.jit.simd import Value, i64, u32, u64
from lanewise.layout import flatten
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    routine,
    shared_code,
    shared_routine,
)
from lanewise.machine.codegen.tensor_pipe import (
    ISSUER,
    PipeOperation,
    columns_are_allocated,
    fault_in,
    is_paired,
    lane_and_column,
    missing_column,
    operand_of,
    other_block,
    tensor_word,
)
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, each_piece, field_of, stop_outside
from lanewise.machine.tensor_memory.allocation import is_for_pair
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import LANE_BYTES, TENSOR_COLUMNS, TENSOR_LANES

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
        given = [code.lane_read(operand, u64, lane) for operand in rest]
        code.invoke_or_stop(function, code["frame"], op.site, lane, address, paired, *given)


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


#: The operand that is the descriptor of the matrix in shared memory, and the bytes of a piece that are read.
DESCRIPTOR, HELD_BYTES = 2, 3
#: Lanes that are shifted together, and the columns of an element of 32 bytes.
SHIFTED_ROWS, SHIFTED_COLUMNS = 32, 8


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.cp: one operation for each active lane."""
    shape = next(shape for name, shape in SHAPES.items() if set(name.split(".")) <= set(op.modifiers))
    expansion = next((expansion for name, expansion in EXPANSIONS.items() if op.has(name)), None)
    name = f"tcgen05.cp {shape.name}{f' {expansion.name}' if expansion else ''}"
    issue_each(code, op, name, lambda inner: _write_issue(inner, name, shape, expansion))


def _write_issue(code: BlockCode, name: str, shape: CopyShape, expansion: Expansion | None) -> None:
    made, descriptor = PipeOperation(code), code["descriptor"]
    demand_target(code, Target(shape.first_lane, shape.last_lane, shape.columns))
    version = field_of(descriptor, TCGEN05_FIELD["version"])
    swizzle = field_of(descriptor, TCGEN05_FIELD["swizzle"])
    with code.when(version.differs(TCGEN05_VERSION) | (swizzle & 1).differs(0)):
        code.fault(FaultKind.TENSOR_MEMORY, code["site"], code["lane"], descriptor, int(Wrong.DESCRIPTOR))
    made.operand(ADDRESS, code["address"])
    made.operand(PAIRED, code["paired"])
    made.operand(DESCRIPTOR, descriptor)
    made.operand(HELD_BYTES, code.number(expansion.held_bytes if expansion else PIECE_BYTES))

    def write(inner: FunctionCode) -> None:
        _write_execute(inner, shape, expansion)

    made.give(routine(code.module, f"execute {name}", ("operation",), write))


def _write_execute(code: FunctionCode, shape: CopyShape, expansion: Expansion | None) -> None:
    """Write the function that carries out a copy: eight rows after the others, piece by piece."""
    operation = code.record("operation")
    lane, column = lane_and_column(operand_of(operation, ADDRESS))
    groups = code.number(-(-shape.rows // LINES_TOGETHER))
    with each_block(code, operation) as block:
        memory = block.get(BlockRecord.shared)
        limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes) - PIECE_BYTES
        first = tensor_word(block, lane, column)

        def fault(address: Value) -> None:
            shown = address | block.get(BlockRecord.shared_first)
            fault_in(code, operation, FaultKind.OUT_OF_BOUNDS, shown, PIECE_BYTES)

        def body(group: Value, piece: Value, addresses: list[Value]) -> None:
            stop_outside(code, addresses[: shape.rows], limit, fault)
            for number, address in enumerate(addresses[: shape.rows]):
                row = group * LINES_TOGETHER + number
                lanes = [_lane(shape, row, copy) for copy in range(shape.copies)]
                for place, words in enumerate(_words(code, Record(code, memory + address), expansion)):
                    for lane in lanes:
                        target = Record(code, first + lane * LANE_BYTES + piece * PIECE_BYTES)
                        target.pointer(words.type.lanes * 4 * place, u32).store(words)

        pieces = code.number(shape.pieces)
        each_piece(
            code, operand_of(operation, DESCRIPTOR), "K", groups, pieces, body, version=TCGEN05_VERSION
        )
    code.give(0)


def _lane(shape: CopyShape, row: Value, copy: int) -> Value:
    """Return the lane that a row is copied to, counted from the address: its layout as code."""
    modes = zip(flatten(shape.lanes[0].shape), flatten(shape.lanes[0].stride), strict=True)
    lane, rest = row.code.constant(i64, shape.lanes(0, copy)), row
    for extent, stride in modes:
        lane = lane + (rest & (extent - 1)) * stride
        rest = rest >> (extent.bit_length() - 1)
    return lane


def _words(code: FunctionCode, held: Record, expansion: Expansion | None) -> list[Value]:
    """Return the words of a piece that are written, as one vector or one by one."""
    if expansion is None:
        return [held.get(0, u32, PIECE_BYTES // 4)]
    halves, bits = [held.get(offset, u64) for offset in (0, 8)], expansion.bits
    words = []
    for start in range(0, 16 * bits, 4 * bits):  # the elements of a word
        if start + 4 * bits <= 64:
            packed = halves[0] >> start
        elif start >= 64:
            packed = halves[1] >> (start - 64)
        else:
            packed = (halves[0] >> start) | (halves[1] << (64 - start))
        word = code.constant(u64, 0)
        for number in range(4):
            element = (packed >> (bits * number)) & ((1 << bits) - 1)
            word = word | (element << (8 * number + expansion.first_bit))
        words.append(word.to(u32))
    return words


def lower_shift(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.shift.down: one operation for each active lane.

    The PTX ISA says that rows are shifted "down, except the last", and CUTLASS that what refills them is the
    last lane of each partition (by the copy of shape .4x256b). So lane r takes the words of lane r + 1, and
    the last one keeps its own. No GPU has confirmed it.
    """
    issue_each(code, op, "tcgen05.shift", _write_shift_issue)


def _write_shift_issue(code: BlockCode) -> None:
    made = PipeOperation(code)
    demand_target(code, Target(SHIFTED_ROWS, SHIFTED_ROWS - 1, SHIFTED_COLUMNS))
    made.operand(ADDRESS, code["address"])
    made.operand(PAIRED, code["paired"])
    made.give(_execute_shift(code.module))


@shared_routine("execute tcgen05.shift", ("operation",))
def _execute_shift(code: FunctionCode) -> None:
    operation = code.record("operation")
    lane, column = lane_and_column(operand_of(operation, ADDRESS))
    with each_block(code, operation) as block:
        first = tensor_word(block, lane, column)
        with code.loop(SHIFTED_ROWS - 1) as row:
            place = Record(code, first + row * LANE_BYTES)
            place.pointer(0, u32).store(place.get(LANE_BYTES, u32, SHIFTED_COLUMNS))
