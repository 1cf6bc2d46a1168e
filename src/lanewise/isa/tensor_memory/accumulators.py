"""Where the matrices of tcgen05.mma lie in tensor memory: D, A if it is there, the metadata of a sparse A.

Facts: PTX ISA, "Data path layout organization" (its letters A to G); CUTLASS's tmem_frg, tmem_frg_ws and
tmem_e_frg (tests/isa/cutlass_tcgen05_layouts.json). None was seen on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from lanewise.errors import LanewiseError
from lanewise.isa.operand import Operand, within

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


#: Scale factors of a row in a word, and the rows whose words lie side by side: their factors of the next
#: blocks along K follow.
FACTORS_OF_WORD, ROWS_OF_WORDS = 4, 128


class FactorPlace(NamedTuple):
    """A scale factor: the lane, the column of 32 bits counted from the address, and the byte in it."""

    lane: int
    column: int
    byte: int


def first_bytes(factors: int) -> tuple[int, ...]:
    """Return the bytes of a column at which the scale factors of a row may begin (SFA_ID and SFB_ID).

    Three and six factors of a row (K = 96) may go on in a further column.

    >>> first_bytes(2), first_bytes(3), first_bytes(6)
    ((0, 2), (0, 1, 2, 3), (0, 2))
    """
    return tuple(range(0, FACTORS_OF_WORD, {3: 1, 6: 2}.get(factors, factors)))


def further_columns(rows: int) -> int:
    """Return how many columns after its first word a row's further scale factors lie: 4 for each 128 rows.

    >>> [further_columns(rows) for rows in (64, 128, 192)]
    [4, 4, 8]
    """
    return -(-rows // ROWS_OF_WORDS) * (ROWS_OF_WORDS // PARTITION)


def factor_columns(rows: int, factors: int, first_byte: int) -> int:
    """Return how many columns of tensor memory the scale factors of some rows span.

    >>> factor_columns(128, 4, 0), factor_columns(64, 6, 2), factor_columns(192, 3, 3)
    (4, 6, 14)
    """
    words = -(-(first_byte + factors) // FACTORS_OF_WORD)
    return (words - 1) * further_columns(rows) + -(-rows // PARTITION)


def factor_place(row: int, factor: int, first_byte: int, lane: int = 0, rows: int = 128) -> FactorPlace:
    """Return where a scale factor lies that the data path from `lane` on uses.

    Each partition of 32 lanes has a copy. `row` counts the rows of A in the block, or the columns of D in the
    data path's region; there are `rows` of them, which says where the factors beyond a word lie (K = 96).

    >>> factor_place(70, 1, 2)
    FactorPlace(lane=6, column=2, byte=3)
    >>> factor_place(70, 3, 2, rows=256)
    FactorPlace(lane=6, column=10, byte=1)
    """
    partition = lane // PARTITION * PARTITION
    word, byte = divmod(first_byte + factor, FACTORS_OF_WORD)
    column = row // PARTITION + word * further_columns(rows)
    return FactorPlace(partition + row % PARTITION, column, byte)


class Place(NamedTuple):
    """Where an element lies: the block of the pair (0 for one block), its lane, and its column of 32 bits.

    The column is counted from the address of the operand.
    """

    block: int
    lane: int
    column: int

    @property
    def warps(self) -> str:
        """The warps of a block that can load it, in words."""
        first = self.lane // PARTITION
        return f"warps {first}, {first + 4}, … (numbers that are {first} modulo 4)"


@dataclass(frozen=True, repr=False)
class Accumulator(Operand):
    """C or D of a tcgen05.mma: a matrix of which each block of a pair holds half the rows.

    >>> from lanewise.isa import instruction
    >>> instruction("tcgen05 m64n16k16 f16").d.place(20, 3)
    Place(block=0, lane=36, column=3)
    """

    cta_group: int = 1
    ws: bool = False
    sparse: bool = False

    @property
    def regions(self) -> tuple[Region, ...]:
        """The rows and columns of a block's part that lie in neighbouring lanes."""
        return regions(self.rows, self.cols, self.cta_group, self.ws, self.sparse)

    @property
    def columns(self) -> int:
        """How many columns of tensor memory it takes."""
        return max(region.columns for region in self.regions)

    def place(self, row: int, col: int) -> Place:
        """Return where an element lies in tensor memory."""
        row, col = within(row, self.rows, "row", self.title), within(col, self.cols, "column", self.title)
        block, row = divmod(row, block_rows(self.rows, self.cta_group))
        region = next(
            region
            for region in self.regions
            if region.row <= row < region.row + region.rows
            and region.column <= col < region.column + region.columns
        )
        return Place(block, region.lane + row - region.row, col - region.column)

    def element_at(self, lane: int, column: int, block: int = 0) -> tuple[int, int] | None:
        """Return the row and column of the element in a lane and column of tensor memory, None if none is.

        >>> from lanewise.isa import instruction
        >>> d = instruction("tcgen05 m64n16k16 f16").d
        >>> d.element_at(36, 3), d.element_at(16, 3)
        ((20, 3), None)
        """
        lane, column = within(lane, LANES, "lane", self.title), within(column, COLUMNS, "column", self.title)
        first = within(block, self.cta_group, "block", self.title) * block_rows(self.rows, self.cta_group)
        for region in self.regions:
            if 0 <= lane - region.lane < region.rows and column < region.columns:
                return first + region.row + lane - region.lane, region.column + column
        return None
