"""Stores of rows that begin at any address, from shared memory: by a warp, one element of each lane at once.

Neighbouring lanes have neighbouring elements, from the first multiple of 32 bytes of a row on: memory is
written in sectors of 32 bytes. The elements before it are stored by themselves. On an H200 this is faster
than 16 bytes at once, which would have to be put together of two neighbouring chunks first, and whose ends
are stored one by one as well.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar

#: Bytes of a sector, lanes of a warp, and elements of several rows that a lane has in its registers.
_SECTOR, _LANES, _HELD = 32, 32, 8


class Row(NamedTuple):
    """A row in shared memory: where it goes to, where it is, and how many of its elements are stored; none if
    the number is not positive."""

    target: Pointer
    source: Pointer
    length: Scalar


def rows_at_once(width: int) -> int:
    """Return how many rows of a width a warp stores at the same time, so that its loads overlap.

    >>> [rows_at_once(width) for width in (8, 64, 96, 256)]
    [8, 4, 2, 1]
    """
    return next(rows for rows in (8, 4, 2, 1) if rows == 1 or rows * -(-width // _LANES) <= _HELD)


@lw.device
def store_rows(rows: list[Row], width: int, size: int) -> None:
    """Store rows of at most `width` elements of a size by a warp."""
    lane = lw.lane_id()
    gaps = [((0 - row.target.address.to(lw.u32)) & (_SECTOR - 1)).to(lw.i32) // size for row in rows]
    targets = [rows[i].target + (gaps[i] + lane) for i in range(len(rows))]
    sources = [rows[i].source + (gaps[i] + lane) for i in range(len(rows))]
    left = [rows[i].length - gaps[i] - lane for i in range(len(rows))]
    inside = range(0, width - 2 * _LANES + 1, _LANES)  # behind no row's end, whatever the gap is
    values = [[(sources[i] + c).load() for c in inside] for i in range(len(rows))]
    for i in range(len(rows)):
        if lane < lw.min(gaps[i], rows[i].length):
            (rows[i].target + lane).store((rows[i].source + lane).load())
        for n in range(len(inside)):
            if left[i] > inside[n]:
                (targets[i] + inside[n]).store(values[i][n])
        for c in range(len(inside) * _LANES, width, _LANES):
            if left[i] > c:
                (targets[i] + c).store((sources[i] + c).load())
