"""Whether a matrix descriptor fits the tile that it reads: its stride, its major axis, its elements' type.

Only what can hardly be meant is reported: rows that lie in one another, a line that is left before its end,
and elements of 16 bits that a tensor copy has written as those of the other format.
"""

from __future__ import annotations

from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, FIELDS
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import suspect
from lanewise.machine.checker.watch_code.watch_module import load_long

#: Rows of a group, and the bytes of a piece of a row.
GROUP_ROWS, PIECE_BYTES = 8, 16
#: The numbers of formats in a tensor map that products tell apart, and where in the map the number stands.
F16_TYPE, BF16_TYPE = ELEMENT_TYPES["f16"].code, ELEMENT_TYPES["bf16"].code
((TYPE_BIT, TYPE_BITS),) = next(field.parts for field in FIELDS if field.name == "type")
TYPE_WORD, TYPE_SHIFT, TYPE_MASK = TYPE_BIT // 64 * 8, TYPE_BIT % 64, (1 << TYPE_BITS) - 1


@inlined
def type_of_map(address: int) -> int:
    """Return the number of a tensor map's type, which lies at an address of the host; 0 of other types."""
    number = (load_long(address + TYPE_WORD) >> TYPE_SHIFT) & TYPE_MASK
    return number if (number == F16_TYPE) | (number == BF16_TYPE) else 0


@inlined
def bytes_of_line(swizzled: int) -> int:
    """Return the bytes of a line of a swizzle, by the bits of addresses that it changes plus one; 0: none."""
    if swizzled > 1 << 6:
        return 1 << 7
    return swizzled - 1 + PIECE_BYTES if swizzled > 1 else 0


@compiled()
def look_at_layout(
    frame: WarpFrame, row: int, lane: int, start: int, stride: int, swizzled: int, by_columns: int,
    groups: int, pieces: int,
) -> None:  # fmt: skip
    """A product reads a matrix of so many groups of eight lines, and pieces of a line."""
    line = bytes_of_line(swizzled)
    if line == 0:
        return
    size = GROUP_ROWS * line
    if (by_columns == 0) & (groups > 1) & (stride != 0) & (stride < size):
        suspect(Suspicion.MATRIX_ROWS_OVERLAP, frame, row, lane, start, stride, size)
    inside = start & (line - 1)
    if (by_columns != 0) & (inside != 0) & (inside + min(pieces * PIECE_BYTES, line) > line):
        suspect(Suspicion.MATRIX_LINE_LEFT, frame, row, lane, start, inside, line)
