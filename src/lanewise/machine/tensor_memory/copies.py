"""tcgen05.cp: a matrix that a descriptor names in shared memory is copied to lanes of tensor memory.

The shapes are those of `isa/tensor_memory/copy_shapes.py`. Rows are read in pieces of 16 bytes; each goes to
all lanes that get it. Of a pair, each block copies from its own shared memory to its own tensor memory.
"""

from __future__ import annotations

from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS, PIECE_BYTES, SHAPES, CopyShape, Expansion
from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u32
from lanewise.layout import flatten
from lanewise.machine.abi import BlockAnswer, BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.codegen.function_code import U64, BlockCode, FunctionCode, Record, shared
from lanewise.machine.codegen.tensor_pipe import (
    PipeOperation,
    fault_in,
    lane_and_column,
    operand_of,
    tensor_word,
)
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory.targets import (
    ADDRESS,
    PAIRED,
    Target,
    demand_target,
    each_block,
    issue_each,
)
from lanewise.machine.tensor_memory_records import LANE_BYTES

_DESCRIPTOR = 2
#: Rows of a swizzle's pattern.
PATTERN_ROWS = 8
#: Bits 46 to 48 of a descriptor of tcgen05.
CONSTANT_BIT, CONSTANT_BITS, CONSTANT = 46, 3, 1
#: The bits of addresses and offsets, which are counted in pieces; where base offset and swizzle begin.
ADDRESS_BITS, BASE_OFFSET_BIT, SWIZZLE_BIT = 14, 49, 61


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.cp: one operation for each active lane."""
    shape = next((each for name, each in SHAPES.items() if set(name.split(".")) <= set(op.modifiers)), None)
    expansion = next((each for name, each in EXPANSIONS.items() if op.has(name)), None)
    if shape is None:
        raise op.unsupported(f"it has one of the shapes {', '.join(f'.{each}' for each in SHAPES)}")
    if op.has("b8x16") != (expansion is not None):
        raise op.unsupported("elements are expanded from .b6x16_p32 or .b4x16_p64 to .b8x16")
    name = f"tcgen05.cp {shape.name}{f' {expansion.name}' if expansion else ''}"
    issue_each(code, op, name, lambda inner: _write_issue(inner, name, shape, expansion))


def _write_issue(code: BlockCode, name: str, shape: CopyShape, expansion: Expansion | None) -> None:
    made, descriptor = PipeOperation(code), code["descriptor"]
    demand_target(code, Target(shape.first_lane, shape.last_lane, shape.columns))
    constant = ((descriptor >> CONSTANT_BIT) & ((1 << CONSTANT_BITS) - 1)).equals(CONSTANT)
    even = ((descriptor >> SWIZZLE_BIT) & 1).equals(0)
    with code.when(~(constant & even)):
        code.fault(FaultKind.TENSOR_MEMORY, code["site"], code["lane"], descriptor, int(Wrong.DESCRIPTOR))
    made.operand(ADDRESS, code["address"])
    made.operand(PAIRED, code["paired"])
    made.operand(_DESCRIPTOR, descriptor)

    def write(module: ir.Module, name: str) -> None:
        _write_execute(FunctionCode(module, name, ("operation",), ir.WORD, ""), shape, expansion)

    made.give(shared(code.module, f"execute {name}", ir.FunctionType(ir.WORD, [ir.LONG]), write))


def _write_execute(code: FunctionCode, shape: CopyShape, expansion: Expansion | None) -> None:
    """Write the function that carries out a copy: row by row, piece by piece."""
    operation = code.record("operation")
    lane, column = lane_and_column(operand_of(operation, ADDRESS))
    source = _Source(code, operand_of(operation, _DESCRIPTOR))
    with each_block(code, operation) as block:
        memory = block.get(BlockRecord.shared)
        limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes) - PIECE_BYTES
        first = tensor_word(block, lane, column)
        with code.loop(shape.rows) as row:
            lanes = [_lane(shape, row, copy) for copy in range(shape.copies)]
            for piece in range(shape.pieces):
                address = source.address(row, piece)
                with code.when(address > limit):
                    fault_in(code, operation, FaultKind.OUT_OF_BOUNDS, address, PIECE_BYTES)
                    code.give(BlockAnswer.STOPPING)
                held = Record(code, memory + address)
                for number, words in enumerate(_words(code, held, expansion)):
                    for each in lanes:
                        target = Record(code, first + each * LANE_BYTES + piece * PIECE_BYTES)
                        target.pointer(words.type.lanes * 4 * number, u32).store(words)
    code.give(0)


def _lane(shape: CopyShape, row: Value, copy: int) -> Value:
    """Return the lane that a row is copied to, counted from the address: its layout as code."""
    modes = zip(flatten(shape.lanes[0].shape), flatten(shape.lanes[0].stride), strict=True)
    found, rest = row.code.constant(i64, shape.lanes(0, copy)), row
    for extent, stride in modes:
        found = found + (rest & (extent - 1)) * stride
        rest = rest >> (extent.bit_length() - 1)
    return found


class _Source:
    """The matrix that a descriptor names: rows of pieces, K-major, as for tcgen05.mma."""

    def __init__(self, code: FunctionCode, descriptor: Value) -> None:
        self.code = code
        swizzle = (descriptor >> SWIZZLE_BIT) & 7
        self.row_bytes = swizzle.equals(0).select(
            code.number(PIECE_BYTES), code.number(256) >> (swizzle >> 1)
        )
        self.swizzled = self.row_bytes - PIECE_BYTES
        self.start, leading, self.stride = (
            ((descriptor >> bit) & ((1 << ADDRESS_BITS) - 1)) * PIECE_BYTES for bit in (0, 16, 32)
        )
        self.pattern = ((descriptor >> BASE_OFFSET_BIT) & 7) << 7
        #: The bytes to the second piece of a row: without a swizzle a row of the pattern is one piece.
        self.to_second = swizzle.equals(0).select(leading, code.number(PIECE_BYTES))

    def address(self, row: Value, piece: int) -> Value:
        """Return the offset of a piece in shared memory."""
        inside, group = row & (PATTERN_ROWS - 1), row >> (PATTERN_ROWS.bit_length() - 1)
        linear = self.start + inside * self.row_bytes + group * self.stride + self.to_second * piece
        return linear ^ (((linear - self.pattern) >> 3) & self.swizzled)


def _words(code: FunctionCode, held: Record, expansion: Expansion | None) -> list[Value]:
    """Return the words of a piece that are written, as one vector or one by one."""
    if expansion is None:
        return [held.get(0, u32, PIECE_BYTES // 4)]
    halves, bits = [held.get(each, U64) for each in (0, 8)], expansion.bits
    found = []
    for start in range(0, 16 * bits, 4 * bits):  # the elements of a word
        if start + 4 * bits <= 64:
            packed = halves[0] >> start
        elif start >= 64:
            packed = halves[1] >> (start - 64)
        else:
            packed = (halves[0] >> start) | (halves[1] << (64 - start))
        word = code.constant(U64, 0)
        for number in range(4):
            element = (packed >> (bits * number)) & ((1 << bits) - 1)
            word = word | (element << (8 * number + expansion.first_bit))
        found.append(word.to(u32))
    return found
