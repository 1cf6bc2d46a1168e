"""Stores of rows that begin at any address, from shared memory, and which tile stores what of a row.

Memory is written in sectors of 32 bytes. Where two tiles write parts of one, L2 takes each part by itself. So
tiles may overlap, and a tile stores the sectors of a row from the first that begins in it to the first that
begins in the next tile (`own_columns`). Where tiles do not overlap, a warp stores a row, one element of each
lane at once (`store_rows`): neighbouring lanes have neighbouring elements, from the first whole sector on,
and the elements before it are stored by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.tile_traits import SECTOR, TileTraits

#: Lanes of a warp, and elements of several rows that a lane has in its registers.
_LANES, _HELD = 32, 8


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


def elements_before_sector(pointer: Pointer, size: int) -> Scalar:
    """Return how many elements of a size lie between an address and the next sector."""
    return ((0 - pointer.address.to(lw.u32)) & (SECTOR - 1)).to(lw.i32) // size


@lw.device
def own_columns(T: TileTraits, place: Pointer, column: Scalar, N: Scalar) -> tuple[Scalar, Scalar]:
    """Return which columns of a row of a tile the tile stores: the first, and that after the last.

    The row is at `place`, and begins at a `column` of N. The first tile of a row stores what lies before the
    first sector, too, and the last one the row's end; a tile behind that, of a cluster, stores nothing.
    """
    size, left = T.out.bits // 8, N - column
    begin = lw.where(column == 0, 0, elements_before_sector(place, size))
    further = T.column_step + elements_before_sector(place + T.column_step, size)
    end = lw.where(left <= T.bn, left, further)
    return begin, lw.where((column == 0) | (left > T.overlap), end, 0)


@lw.device
def store_rows(rows: list[Row], width: int, size: int) -> None:
    """Store rows of at most `width` elements of a size by a warp."""
    lane = lw.lane_id()
    gaps = [elements_before_sector(row.target, size) for row in rows]
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
