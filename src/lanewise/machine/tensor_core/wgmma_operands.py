"""Operands of wgmma between shared memory or registers and plain matrices in the host's memory.

Functions that all kernels share: a matrix through its descriptor, A from the registers of four warps, and the
accumulators of four warps to a matrix of sums and back. The warps' frames follow one another.
"""

from __future__ import annotations

from lanewise.isa import fragments
from lanewise.isa.matrix_descriptor import PIECE_BYTES, Major
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, f32, i64, u16, u32, u64
from lanewise.layout import Layout
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    shared_code,
)
from lanewise.machine.codegen.register_shuffles import shuffled
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, each_piece
from lanewise.machine.tensor_core.mma_function import half_numbers, half_words

#: Rows of a warp, and the columns of a tile of accumulators.
WARP_ROWS, TILE_COLUMNS = 16, 8

GATHER_ARGUMENTS = ("site", "descriptor", "groups", "pieces", "out", "pitch", "flipped")
REGISTER_ARGUMENTS = ("places", "count", "matrix", "pitch")


def interleaved(code: FunctionCode, first: Value, second: Value) -> Value:
    """Return the elements of two vectors by turns."""
    lanes = first.type.lanes
    return shuffled(code, first, second, tuple(n // 2 + n % 2 * lanes for n in range(2 * lanes)))


# matrices in shared memory ----------------------------------------------------------------------------------


def gather(module: ir.Module, bits: int, major: Major, turned: bool) -> ir.Function:
    """Return `gather(frame, site, descriptor, groups, pieces, out, pitch, flipped)`: a matrix from a descriptor.

    Lines become rows of `pitch` elements, or columns if it is turned. `flipped` is 1 to change all signs. It
    returns 0, or that the launch stops because a piece is out of bounds.
    """

    def write(code: BlockCode) -> None:
        element = Type("u", bits)
        lanes = 8 * PIECE_BYTES // bits
        limit = code.launch.get(LaunchRecord.shared_bytes) - PIECE_BYTES
        memory = code.block.get(BlockRecord.shared)
        out, pitch = code.pointer("out", element), code["pitch"]
        sign = (code["flipped"].to(element) << (bits - 1)).spread(lanes)

        def body(group: Value, piece: Value, addresses: list[Value]) -> None:
            outside = addresses[0] > limit
            for address in addresses[1:]:
                outside = outside | (address > limit)
            with code.when(outside):
                for address in addresses:
                    with code.when(address > limit):
                        code.fault(FaultKind.OUT_OF_BOUNDS, code["site"], 0, address, PIECE_BYTES)
            lines = [Record(code, memory + each).get(0, element, lanes) ^ sign for each in addresses]
            if not turned:
                for number, line in enumerate(lines):
                    out.store(line, (group * LINES_TOGETHER + number) * pitch + piece * lanes)
                return
            while len(lines) > 1:  # the elements of all lines by turns
                half = len(lines) // 2
                lines = [interleaved(code, lines[each], lines[each + half]) for each in range(half)]
            for number in range(lanes):
                row = lines[0].part(number * LINES_TOGETHER, LINES_TOGETHER)
                out.store(row, (piece * lanes + number) * pitch + group * LINES_TOGETHER)

        each_piece(code, code["descriptor"], major, code["groups"], code["pieces"], body)
        code.give(0)

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
        (row, first // 4): [words[row, first + each] for each in range(4)]
        for row in range(WARP_ROWS)
        for first in range(0, per_row, 4)
    }


def warp_frames(code: BlockCode) -> list[Value]:
    """Return the frames of the four warps."""
    size = code.launch.get(LaunchRecord.frame_bytes)
    index = code.frame.get(abi.WarpFrame.index)
    first = code["frame"] - (index & (abi.WARPGROUP - 1)) * size
    return [first + size * each for each in range(abi.WARPGROUP)]


def a_from_registers(module: ir.Module) -> ir.Function:
    """Return `a_from_registers(frame, places, sign, out)`: A of four warps as rows of 32 bytes.

    `sign` has the bits of a word that are to be flipped.
    """

    def write(code: BlockCode) -> None:
        places = code.pointer("places", u32)
        sign = code["sign"].to(u32).spread(4)
        runs = _runs(fragments.a_layout(WARP_ROWS, 16, 2), 2)
        for warp, frame in enumerate(warp_frames(code)):
            registers = [Record(code, frame + places.load(each).to(u64).to(i64)) for each in range(4)]
            for (row, piece), words in runs.items():
                register, lane = words[0]
                assert words == [(register, lane + each) for each in range(4)]
                value = registers[register].get(4 * lane, u32, 4) ^ sign
                place = (warp * WARP_ROWS + row) * 2 * PIECE_BYTES + piece * PIECE_BYTES
                code.record("out").pointer(place, u32).store(value)
        code.give(0)

    return shared_code(module, "wgmma A from registers", ("places", "sign", "out"), write)


def _accumulators(
    module: ir.Module, name: str, slot_bits: int, move: str
) -> ir.Function:
    """Return a function that moves accumulators of four warps, tile by tile of 16 × 8."""

    def write(code: BlockCode) -> None:
        places, matrix = code.pointer("places", u32), code.pointer("matrix", u32)
        registers = TILE_COLUMNS * WARP_ROWS * slot_bits // (32 * abi.LANES)
        frames = warp_frames(code)
        with code.loop(code["count"]) as tile:
            offsets = [places.load(tile * registers + each).to(u64).to(i64) for each in range(registers)]
            for warp, frame in enumerate(frames):
                records = [Record(code, frame + offset) for offset in offsets]
                for row in range(WARP_ROWS):
                    place = matrix + ((warp * WARP_ROWS + row) * code["pitch"] + tile * TILE_COLUMNS)
                    _move_row(code, records, row, slot_bits, place, move)
        code.give(0)

    return shared_code(module, name, REGISTER_ARGUMENTS, write)


def _move_row(
    code: BlockCode, registers: list[Record], row: int, slot_bits: int, place: Pointer, move: str
) -> None:
    """Write the move of eight accumulators in a row of a tile, between registers and 32-bit sums."""
    layout = fragments.c_layout(WARP_ROWS, TILE_COLUMNS)
    held = {layout(lane, value): (value, lane) for lane in range(abi.LANES) for value in range(4)}
    cells = [held[row + WARP_ROWS * column] for column in range(TILE_COLUMNS)]
    lane = cells[0][1]
    even, odd = cells[0][0], cells[1][0]
    assert cells == [((even, odd)[each % 2], lane + each // 2) for each in range(TILE_COLUMNS)]
    if slot_bits == 32:
        halves = [registers[each].pointer(4 * lane, u32) for each in (even, odd)]
        if move == "in":
            place.store(interleaved(code, halves[0].load(0, 4), halves[1].load(0, 4)))
            return
        sums = place.load(0, TILE_COLUMNS)
        for first, half in enumerate(halves):
            half.store(shuffled(code, sums, None, tuple(range(first, TILE_COLUMNS, 2))))
        return
    words = registers[even // 2].pointer(4 * lane, u16)
    if move == "in":
        place.store(half_numbers(words.load(0, TILE_COLUMNS)).view(u32))
    else:
        words.store(half_words(place.load(0, TILE_COLUMNS).view(f32)))


def accumulators_in(module: ir.Module, slot_bits: int) -> ir.Function:
    """Return `in(frame, places, tiles, matrix, pitch)`: the accumulators as rows of 32-bit sums."""
    return _accumulators(module, f"wgmma {slot_bits}-bit accumulators in", slot_bits, "in")


def accumulators_out(module: ir.Module, slot_bits: int) -> ir.Function:
    """Return `out(frame, places, tiles, matrix, pitch)`: rows of sums back to the accumulators."""
    return _accumulators(module, f"wgmma {slot_bits}-bit accumulators out", slot_bits, "out")


def stop_unless_zero(code: BlockCode, answer: Value) -> None:
    """Write that the launch stops if a function has recorded a fault."""
    with code.when(answer.differs(0)):
        code.give(BlockAnswer.STOPPING)
