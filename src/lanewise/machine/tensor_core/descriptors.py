"""Matrix descriptors in compiled code: the walk over the pieces of 16 bytes that a descriptor names.

`isa/matrix_descriptor.py` says how they lie. Whoever needs the pieces (the product, which gathers them; a
checker) gives the body that is written for them.
"""

from collections.abc import Callable
from typing import NamedTuple

from lanewise.isa.matrix_descriptor import (
    FIELD,
    PIECE_BYTES,
    SWIZZLE_MODES,
    TCGEN05_FIELD,
    TCGEN05_MODES,
    TCGEN05_VERSION,
    Field,
    Major,
    Mode,
    PieceGrid,
    piece_grid,
)
from lanewise.jit.simd import Pointer, Value, i64
from lanewise.machine.codegen.function_code import FunctionCode
from lanewise.machine.tensor_core.sparsity_and_scales import table

#: Pieces of a row of 128 bytes, beyond which a matrix may go on in another buffer.
ROW_PIECES = 128 // PIECE_BYTES
#: Lines of a matrix that lie in one pattern, a row of it apart.
LINES_TOGETHER = 8
#: The body for eight neighbouring lines: their number divided by 8, the piece, the addresses of the pieces.
Body = Callable[[Value, Value, list[Value]], None]

#: A stride in the table: so many bytes, times the leading and the stride offset. There are four of them, then
#: the bits of a piece's number that take the third stride (the fourth takes the others), then the swizzle's.
_LINE, _GROUP, _PIECE, _FURTHER_PIECE = range(0, 12, 3)
_PIECE_BITS, _SWIZZLE_BITS, _SHIFT, _LINE_BITS, _COLUMNS = 12, 13, 14, 15, 16
#: The distance of the bits that a swizzle joins by exclusive or; tcgen05 has one with another distance.
SHIFT = 3


def field_of(descriptor: Value, field: Field) -> Value:
    """Return a field of a descriptor, in bytes where it is an address or an offset."""
    value = (descriptor >> field.first_bit) & ((1 << field.bits) - 1)
    return value * field.unit if field.unit > 1 else value


def _rows_of(major: Major, version: int) -> list[list[int]]:
    """Return the numbers of each swizzle mode, in the order of their codes; zeros for codes without one."""
    of_wgmma = version != TCGEN05_VERSION
    modes = {mode.code: mode for mode in SWIZZLE_MODES}
    if not of_wgmma:
        modes = {mode.tcgen05_code: mode for mode in TCGEN05_MODES}
    rows = [[0] * _COLUMNS for _ in range(max(modes) + 1)]
    for code, mode in modes.items():
        grid = piece_grid(64, 16, 16, major, mode.name, version)
        line, piece = grid.line_modes[0], grid.piece_modes[0]
        strides = [number for mode in (*grid.line_modes, *grid.piece_modes) for number in _stride(mode)]
        bits = (extent.bit_length() - 1 for extent in (piece.extent, line.extent))
        rows[code] = [*strides, next(bits), mode.swizzle.zzz_msk, mode.swizzle.shift, next(bits)]
        assert not of_wgmma or (mode.swizzle.shift, line.extent) == (SHIFT, LINES_TOGETHER), grid
    return rows


def _table(code: FunctionCode, major: Major, version: int) -> Pointer:
    """Return the numbers of all swizzle modes in memory."""
    whose = "tcgen05" if version == TCGEN05_VERSION else "wgmma"
    numbers = [number for row in _rows_of(major, version) for number in row]
    return table(code, f"how {major}-major matrices of {whose} lie", numbers)


def _stride(mode: Mode) -> tuple[int, int, int]:
    """Return a stride as bytes, times the leading and times the stride offset."""
    if isinstance(mode.stride, int):
        return mode.stride, 0, 0
    return 0, int(mode.stride == "leading_byte_offset"), int(mode.stride == "stride_byte_offset")


class First(NamedTuple):
    """The first group of eight lines, and the first piece of them, that a walk visits."""

    group: Value
    piece: Value


def each_piece(
    code: FunctionCode,
    descriptor: Value,
    major: Major,
    groups: Value,
    pieces: Value,
    body: Body,
    *,
    version: int = 0,
    first: First | None = None,
    may_go_on: bool = False,
) -> None:
    """Write the body for each piece of eight lines; addresses are offsets in shared memory, not checked.

    `groups` times eight lines of so many pieces each make the matrix, or the part of it from `first` on; the
    body counts them from 0. `version` is that of the descriptor: wgmma's or tcgen05's. If rows `may_go_on` in
    another buffer (K of 48 bytes), the descriptor says whether they do.
    """
    rows = _table(code, major, version)
    is_tcgen05 = version == TCGEN05_VERSION
    fields = TCGEN05_FIELD if is_tcgen05 else FIELD
    mode = field_of(descriptor, fields["swizzle"]) * _COLUMNS
    leading, stride = (
        field_of(descriptor, fields[name]) for name in ("leading_byte_offset", "stride_byte_offset")
    )

    def number(column: int) -> Value:
        return rows.load(mode + column).to(i64)

    def stride_of(column: int) -> Value:
        return number(column) + number(column + 1) * leading + number(column + 2) * stride

    line, group, piece, further = map(stride_of, (_LINE, _GROUP, _PIECE, _FURTHER_PIECE))
    bits, swizzle = number(_PIECE_BITS), number(_SWIZZLE_BITS)
    shift: Value | int = number(_SHIFT) if is_tcgen05 else SHIFT
    lines = [line * number for number in range(LINES_TOGETHER)]
    if is_tcgen05:  # a pattern may have fewer than eight lines
        line_bits = number(_LINE_BITS)
        numbers = [code.number(number) for number in range(LINES_TOGETHER)]
        in_pattern = (code.constant(i64, 1) << line_bits) - 1
        lines = [(number & in_pattern) * line + (number >> line_bits) * group for number in numbers]
        group = group * (code.constant(i64, LINES_TOGETHER) >> line_bits)
    start = field_of(descriptor, fields["start_address"])
    pattern = field_of(descriptor, fields["base_offset"]) << 7
    with code.loop(groups) as group_number, code.loop(pieces) as piece_number:
        at_group = group_number + first.group if first else group_number
        at_piece = piece_number + first.piece if first else piece_number
        inner = at_piece & ((code.constant(i64, 1) << bits) - 1)
        begin = start + at_group * group + inner * piece + (at_piece >> bits) * further
        if may_go_on:
            is_absolute = field_of(descriptor, TCGEN05_FIELD["absolute_leading"])
            place = ((start >> 4) & (ROW_PIECES - 1)) + at_piece
            goes_on = is_absolute.differs(0) & (place > ROW_PIECES - 1)
            there = leading + at_group * group + (place - ROW_PIECES) * PIECE_BYTES
            begin = goes_on.select(there, begin)
        addresses = []
        for offset in lines:
            linear = begin + offset
            addresses.append(linear ^ (((linear - pattern) >> shift) & swizzle))
        body(group_number, piece_number, addresses)


def stop_outside(
    code: FunctionCode, addresses: list[Value], limit: Value, fault: Callable[[Value], None]
) -> None:
    """Write a test that no address lies beyond the last piece; `fault` writes what stops the launch."""
    outside = addresses[0] > limit
    for address in addresses[1:]:
        outside = outside | (address > limit)
    with code.when(outside):
        for address in addresses:
            with code.when(address > limit):
                fault(address)


def swizzled_bits(code: FunctionCode, descriptor: Value) -> Value:
    """Return the bits of an address that the swizzle of a descriptor changes."""
    rows = _table(code, "K", version=0)
    return rows.load(field_of(descriptor, FIELD["swizzle"]) * _COLUMNS + _SWIZZLE_BITS).to(i64)


def grid_of(rows: int, k: int, bits: int, major: Major) -> PieceGrid:
    """Return how many lines and pieces a matrix has, which is the same for all swizzles."""
    return piece_grid(rows, k, bits, major, "none")
