"""Matrix descriptors in compiled code: the walk over the pieces of 16 bytes that a descriptor names.

`isa/matrix_descriptor.py` says how they lie. Whoever needs the pieces (the product, which gathers them; a
checker) gives the body that is written for them.
"""

from __future__ import annotations

from collections.abc import Callable

from lanewise.isa.matrix_descriptor import (
    FIELD,
    SWIZZLE_MODES,
    Major,
    Mode,
    PieceGrid,
    piece_grid,
)
from lanewise.jit.simd import Value, i64
from lanewise.machine.codegen.function_code import FunctionCode
from lanewise.machine.tensor_core.sparsity_and_scales import table

#: Lines of a matrix that lie in one pattern, a row of it apart.
LINES_TOGETHER = 8
#: The body for eight neighbouring lines: their number divided by 8, the piece, the addresses of the pieces.
Body = Callable[[Value, Value, list[Value]], None]

#: A stride in the table: so many bytes, times the leading and the stride offset. There are four of them, then
#: the bits of a piece's number that take the third stride (the fourth takes the others), then the swizzle's.
_LINE, _GROUP, _PIECE, _FURTHER_PIECE = range(0, 12, 3)
_PIECE_BITS, _SWIZZLE_BITS, _COLUMNS = 12, 13, 14
#: The distance of the bits that a swizzle joins by exclusive or.
SHIFT = 3


def field_of(code: FunctionCode, descriptor: Value, name: str) -> Value:
    """Return a field of a descriptor, in bytes where it is an address or an offset."""
    field = FIELD[name]
    found = (descriptor >> field.first_bit) & ((1 << field.bits) - 1)
    return found * field.unit if field.unit > 1 else found


def _rows_of(major: Major) -> list[list[int]]:
    """Return the numbers of each swizzle mode, in the order of their codes."""
    found = []
    for swizzle_mode in sorted(SWIZZLE_MODES, key=lambda each: each.code):
        grid = piece_grid(64, 16, 16, major, swizzle_mode.name)
        line, piece = grid.line_modes[0], grid.piece_modes[0]
        strides = [number for mode in (*grid.line_modes, *grid.piece_modes) for number in _stride(mode)]
        found.append([*strides, piece.extent.bit_length() - 1, swizzle_mode.swizzle.zzz_msk])
        assert swizzle_mode.swizzle.shift == SHIFT and line.extent == LINES_TOGETHER, grid
    return found


def _stride(mode: Mode) -> tuple[int, int, int]:
    """Return a stride as bytes, times the leading and times the stride offset."""
    if isinstance(mode.stride, int):
        return mode.stride, 0, 0
    return 0, int(mode.stride == "leading_byte_offset"), int(mode.stride == "stride_byte_offset")


def each_piece(
    code: FunctionCode, descriptor: Value, major: Major, groups: Value, pieces: Value, body: Body
) -> None:
    """Write the body for each piece of eight lines; addresses are offsets in shared memory, not checked.

    `groups` times eight lines of so many pieces each make the matrix.
    """
    numbers = [each for row in _rows_of(major) for each in row]
    rows = table(code, f"how {major}-major matrices lie", numbers)
    mode = field_of(code, descriptor, "swizzle") * _COLUMNS
    leading, stride = (
        field_of(code, descriptor, name) for name in ("leading_byte_offset", "stride_byte_offset")
    )

    def number(column: int) -> Value:
        return rows.load(mode + column).to(i64)

    def stride_of(column: int) -> Value:
        return number(column) + number(column + 1) * leading + number(column + 2) * stride

    line, group, piece, further = map(stride_of, (_LINE, _GROUP, _PIECE, _FURTHER_PIECE))
    bits, swizzle = number(_PIECE_BITS), number(_SWIZZLE_BITS)
    start = field_of(code, descriptor, "start_address")
    pattern = field_of(code, descriptor, "base_offset") << 7
    with code.loop(groups) as group_number, code.loop(pieces) as piece_number:
        inner = piece_number & ((code.constant(i64, 1) << bits) - 1)
        first = start + group_number * group + inner * piece + (piece_number >> bits) * further
        addresses = []
        for number_in_group in range(LINES_TOGETHER):
            linear = first + line * number_in_group
            addresses.append(linear ^ (((linear - pattern) >> SHIFT) & swizzle))
        body(group_number, piece_number, addresses)


def swizzled_bits(code: FunctionCode, descriptor: Value) -> Value:
    """Return the bits of an address that the swizzle of a descriptor changes."""
    rows = table(code, "how K-major matrices lie", [each for row in _rows_of("K") for each in row])
    return rows.load(field_of(code, descriptor, "swizzle") * _COLUMNS + _SWIZZLE_BITS).to(i64)


def grid_of(rows: int, k: int, bits: int, major: Major) -> PieceGrid:
    """Return how many lines and pieces a matrix has, which is the same for all swizzles."""
    return piece_grid(rows, k, bits, major, "none")
