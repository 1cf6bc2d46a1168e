"""Operands of wgmma between shared memory or registers and plain matrices in the host's memory.

Functions that all kernels share: a matrix through its descriptor, A from the registers of four warps, and the
accumulators of four warps to a matrix of sums and back. The warps' frames follow one another.
"""

from lanewise.isa import fragments
from lanewise.isa.matrix_descriptor import PIECE_BYTES, Major
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, f32, i64, u16, u32, u64
from lanewise.layout import Layout
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    shared_code,
    shared_function,
)
from lanewise.machine.codegen.register_shuffles import joined, shuffled
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, each_piece, stop_outside
from lanewise.machine.tensor_core.mma_function import half_numbers, half_words

#: Rows of a warp, and the columns of a tile of accumulators.
WARP_ROWS, TILE_COLUMNS = 16, 8

GATHER_ARGUMENTS = ("site", "descriptor", "groups", "pieces", "out", "pitch", "flipped")
REGISTER_ARGUMENTS = ("places", "count", "matrix", "pitch")


def interleaved(code: FunctionCode, first: Value, second: Value) -> Value:
    """Return the elements of two vectors by turns."""
    lanes = first.type.lanes
    return shuffled(code, first, second, tuple(n // 2 + n % 2 * lanes for n in range(2 * lanes)))


def columns_of(code: FunctionCode, lines: list[Value]) -> list[Value]:
    """Return the columns of a small matrix, whose lines are vectors."""
    count, lanes = len(lines), lines[0].type.lanes
    while len(lines) > 1:  # the elements of all lines by turns
        half = len(lines) // 2
        lines = [interleaved(code, lines[number], lines[number + half]) for number in range(half)]
    return [lines[0].part(number * count, count) for number in range(lanes)]


def store_lines(
    code: FunctionCode, out: Pointer, lines: list[Value], group: Value, piece: Value, turned: bool
) -> None:
    """Store the pieces of eight lines in a matrix: as rows of `pitch` elements, or as columns if turned."""
    lanes, pitch = lines[0].type.lanes, code["pitch"]
    if not turned:
        for number, line in enumerate(lines):
            out.store(line, (group * LINES_TOGETHER + number) * pitch + piece * lanes)
        return
    for number, row in enumerate(columns_of(code, lines)):
        out.store(row, (piece * lanes + number) * pitch + group * LINES_TOGETHER)


# matrices in shared memory ----------------------------------------------------------------------------------


def gather(module: ir.Module, bits: int, major: Major, turned: bool) -> ir.Function:
    """Return `gather(frame, site, descriptor, groups, pieces, out, pitch, flipped)`: what a descriptor names.

    Lines become rows of `pitch` elements, or columns if it is turned. `flipped` is 1 to change all signs. It
    returns 0, or that the launch stops because a piece is out of bounds.
    """

    def write(code: BlockCode) -> None:
        element = Type("u", bits)
        lanes = 8 * PIECE_BYTES // bits
        limit = code.launch.get(LaunchRecord.shared_bytes) - PIECE_BYTES
        memory = code.block.get(BlockRecord.shared)
        out = code.pointer("out", element)
        sign = (code["flipped"].to(element) << (bits - 1)).spread(lanes)

        def fault(address: Value) -> None:
            shown = address | code.block.get(BlockRecord.shared_first)
            code.fault(FaultKind.OUT_OF_BOUNDS, code["site"], 0, shown, PIECE_BYTES)

        def body(group: Value, piece: Value, addresses: list[Value]) -> None:
            stop_outside(code, addresses, limit, fault)
            lines = [Record(code, memory + address).get(0, element, lanes) ^ sign for address in addresses]
            store_lines(code, out, lines, group, piece, turned)

        each_piece(code, code["descriptor"], major, code["groups"], code["pieces"], body)

    name = f"wgmma {bits}-bit {major}-major {'columns' if turned else 'rows'}"
    return shared_code(module, name, GATHER_ARGUMENTS, write)


# matrices in registers --------------------------------------------------------------------------------------


def _runs(layout: Layout, elements: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return where rows of `elements` neighbours lie in a warp's registers of 32 bits.

    For each row and run of elements: the words, as pairs of a register and a lane, in order. `layout` maps
    (lane, value) to row + 16 · column.
    """
    values = layout[1].size()
    words: dict[tuple[int, int], tuple[int, int]] = {}
    columns = layout.size() // WARP_ROWS
    slots = max(1, elements)
    for lane in range(abi.LANES):
        for value in range(0, values, slots):
            column, row = divmod(layout(lane, value), WARP_ROWS)
            words[row, column // slots] = value // slots, lane
    per_row = columns // slots
    return {
        (row, first // 4): [words[row, first + number] for number in range(4)]
        for row in range(WARP_ROWS)
        for first in range(0, per_row, 4)
    }


def warp_frames(code: BlockCode) -> list[Value]:
    """Return the frames of the four warps."""
    size = code.launch.get(LaunchRecord.frame_bytes)
    index = code.frame.get(abi.WarpFrame.index)
    first = code["frame"] - (index & (abi.WARPGROUP - 1)) * size
    return [first + size * warp for warp in range(abi.WARPGROUP)]


@shared_function("wgmma A from registers", ("places", "sign", "out", "pitch"))
def a_from_registers(code: BlockCode) -> None:
    """`a_from_registers(frame, places, sign, out, pitch)`: A of four warps, 32 bytes of each row.

    `sign` has the bits of a word that are to be flipped, `pitch` the bytes from a row to the next.
    """
    places = code.pointer("places", u32)
    sign = code["sign"].to(u32).spread(4)
    runs = _runs(fragments.a_layout(WARP_ROWS, 16, 2), 2)
    for warp, frame in enumerate(warp_frames(code)):
        registers = [Record(code, frame + places.load(number).to(u64).to(i64)) for number in range(4)]
        for (row, piece), words in runs.items():
            register, lane = words[0]
            assert words == [(register, lane + number) for number in range(4)]
            value = registers[register].get(4 * lane, u32, 4) ^ sign
            place = code["pitch"] * (warp * WARP_ROWS + row) + piece * PIECE_BYTES
            code.record("out").pointer(place, u32).store(value)


#: Rows of a tile whose accumulators lie in neighbouring lanes and that are moved together.
ROWS_TOGETHER = 4


def _accumulators(module: ir.Module, name: str, slot_bits: int, move: str) -> ir.Function:
    """Return a function that moves the accumulators of a warp, tile by tile of 16 × 8."""

    def write(code: BlockCode) -> None:
        places, matrix = code.pointer("places", u32), code.pointer("matrix", u32)
        registers = TILE_COLUMNS * WARP_ROWS * slot_bits // (32 * abi.LANES)
        with code.loop(code["count"]) as tile:
            offsets = [places.load(tile * registers + number).to(u64).to(i64) for number in range(registers)]
            records = [Record(code, code["frame"] + offset) for offset in offsets]
            for row in range(0, WARP_ROWS, ROWS_TOGETHER):
                rows = [
                    matrix + (code["pitch"] * (row + number) + tile * TILE_COLUMNS) for number in range(4)
                ]
                first, even, odd = _cells(row)
                if slot_bits == 32:
                    halves = [records[register].pointer(4 * first, u32) for register in (even, odd)]
                    _move_words(code, halves, rows, move)
                else:
                    words = records[even // 2].pointer(4 * first, u16)
                    _move_halves(words, rows, move)

    return shared_code(module, name, REGISTER_ARGUMENTS, write)


def _cells(row: int) -> tuple[int, int, int]:
    """Return where four rows of a tile lie: the first lane, the values of even and of odd columns.

    Each row takes the next four lanes, each lane two neighbouring columns.
    """
    layout = fragments.c_layout(WARP_ROWS, TILE_COLUMNS)
    held = {layout(lane, value): (value, lane) for lane in range(abi.LANES) for value in range(4)}
    columns = range(TILE_COLUMNS)
    cells = [held[row + below + WARP_ROWS * n] for below in range(ROWS_TOGETHER) for n in columns]
    (even, lane), (odd, _) = cells[:2]
    assert cells == [((even, odd)[number % 2], lane + number // 2) for number in range(len(cells))]
    return lane, even, odd


def _move_words(code: BlockCode, halves: list[Pointer], rows: list[Pointer], move: str) -> None:
    """Write the move of four rows of 32-bit accumulators: even columns in one register, odd in another."""
    count = ROWS_TOGETHER * TILE_COLUMNS
    if move == "in":
        even, odd = (half.load(0, count // 2) for half in halves)
        both = interleaved(code, even, odd)
        for number, row in enumerate(rows):
            row.store(both.part(number * TILE_COLUMNS, TILE_COLUMNS))
        return
    sums = joined(code, [row.load(0, TILE_COLUMNS) for row in rows], len(rows))[0]
    for first, half in enumerate(halves):
        half.store(shuffled(code, sums, None, tuple(range(first, count, 2))))


def _move_halves(words: Pointer, rows: list[Pointer], move: str) -> None:
    """Write the move of four rows of f16 accumulators, which lie one after the other."""
    for number, row in enumerate(rows):
        if move == "in":
            row.store(half_numbers(words.load(number * TILE_COLUMNS, TILE_COLUMNS)).view(u32))
        else:
            words.store(half_words(row.load(0, TILE_COLUMNS).view(f32)), number * TILE_COLUMNS)


def accumulators_in(module: ir.Module, slot_bits: int) -> ir.Function:
    """Return `in(frame, places, tiles, matrix, pitch)`: a warp's accumulators as rows of 32-bit sums."""
    return _accumulators(module, f"wgmma {slot_bits}-bit accumulators in", slot_bits, "in")


def accumulators_out(module: ir.Module, slot_bits: int) -> ir.Function:
    """Return `out(frame, places, tiles, matrix, pitch)`: rows of sums back to a warp's accumulators."""
    return _accumulators(module, f"wgmma {slot_bits}-bit accumulators out", slot_bits, "out")
