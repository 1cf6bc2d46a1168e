"""Where the matrices of tcgen05.mma lie in tensor memory: D, A if it is there, the metadata of a sparse A.

Facts: PTX ISA, "Data path layout organization" (its letters A to G); CUTLASS's tmem_frg, tmem_frg_ws and
tmem_e_frg (tests/isa/cutlass_tcgen05_layouts.json). None was seen on a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Tensor memory of a block: lanes, and columns of 32 bits.
LANES, COLUMNS = 128, 512
#: Lanes of a partition, which the warps of one number modulo four reach.
PARTITION = 32
#: The letters by which PTX ISA names the data paths, by how rows and columns of a block's D go to lanes.
FULL, HALVED, SCATTERED, QUARTERED = "full", "halved", "scattered", "quartered"


class Region(NamedTuple):
    """Some rows and columns of a block's part of D that lie in neighbouring lanes.

    Row `row + i` and column `column + j` lie in lane `lane + i` and column `j` of tensor memory, counted from
    the address of D.
    """

    lane: int
    row: int
    rows: int
    column: int
    columns: int


def block_rows(m: int, cta_group: int) -> int:
    """Return the rows of D, and of A, that a block of the pair (or the one block) holds."""
    return m // cta_group


def data_path(m: int, cta_group: int, ws: bool, sparse: bool) -> str:
    """Return how D lies: "full", "halved", "scattered" or "quartered".

    >>> data_path(64, 1, ws=False, sparse=False), data_path(128, 2, ws=False, sparse=False)
    ('scattered', 'halved')
    """
    if ws:
        path = {128: FULL, 64: HALVED, 32: QUARTERED}.get(m) if cta_group == 1 else None
    elif cta_group == 1:
        path = {128: FULL, 64: SCATTERED}.get(m)
    else:
        path = {256: FULL, 128: SCATTERED if sparse else HALVED}.get(m)
    if path is None:
        raise LanewiseError(f"tcgen05.mma{'.ws' if ws else ''} with cta_group::{cta_group} has no M of {m}")
    return path


@cache
def regions(m: int, n: int, cta_group: int = 1, ws: bool = False, sparse: bool = False) -> tuple[Region, ...]:
    """Return how the part of D that a block holds is spread over lanes and columns.

    >>> regions(64, 16)[1]
    Region(lane=32, row=16, rows=16, column=0, columns=16)
    >>> regions(128, 64, cta_group=2)[1]
    Region(lane=64, row=0, rows=64, column=32, columns=32)
    """
    rows = block_rows(m, cta_group)
    match data_path(m, cta_group, ws, sparse):
        case "full":
            return (Region(0, 0, rows, 0, n),)
        case "scattered":
            return tuple(Region(2 * row, row, 16, 0, n) for row in range(0, rows, 16))
        case _:
            parts = LANES // rows
            return tuple(Region(rows * i, 0, rows, n // parts * i, n // parts) for i in range(parts))


def d_places(
    m: int, n: int, cta_group: int = 1, ws: bool = False, sparse: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the lane and the column of each element (row, column) of the part of D that a block holds."""
    import numpy as np

    rows = block_rows(m, cta_group)
    lanes, columns = np.empty((rows, n), np.int64), np.empty((rows, n), np.int64)
    for region in regions(m, n, cta_group, ws, sparse):
        part = np.s_[region.row : region.row + region.rows, region.column : region.column + region.columns]
        lanes[part] = region.lane + np.arange(region.rows)[:, None]
        columns[part] = np.arange(region.columns)
    return lanes, columns


def a_column(k: int, bits: int) -> tuple[int, int]:
    """Return the column of A's element k in tensor memory, and its first bit there.

    A's rows lie in the lanes in which D's rows lie: a D whose columns are spread over several groups of lanes
    needs a copy of A in each of them.

    >>> a_column(5, 16)
    (2, 16)
    """
    return divmod(k * bits, 32)


# metadata ---------------------------------------------------------------------------------------------------


class MetadataLayout(NamedTuple):
    """How the metadata of a sparse A lies, by the bits of A's elements.

    A row has `bits` bits of metadata. Where rows are `paired`, two rows eight apart share two lanes: each has
    16 bits in the low or high half of both, the first half of K in the first lane.
    """

    bits: int
    columns: int
    paired: bool
    #: Elements of K for which there is one code of four bits, and those of A that a code selects.
    group: int
    selected: int


METADATA = {
    32: MetadataLayout(32, 1, True, 2, 1),
    16: MetadataLayout(32, 1, True, 4, 2),
    8: MetadataLayout(64, 2, False, 4, 2),
    4: MetadataLayout(64, 2, False, 8, 4),
}


def metadata_place(row: int, code: int, bits: int) -> tuple[int, int, int]:
    """Return lane, column and first bit of a code of metadata, for a row among those of its data path.

    >>> metadata_place(9, 0, 16), metadata_place(9, 4, 16)
    ((1, 0, 16), (9, 0, 16))
    """
    layout = METADATA[bits]
    if not layout.paired:
        column, bit = divmod(4 * code, 32)
        return row, column, bit
    half, bit = divmod(4 * code, 16)
    return row // 16 * 16 + row % 8 + 8 * half, 0, 16 * (row // 8 % 2) + bit
