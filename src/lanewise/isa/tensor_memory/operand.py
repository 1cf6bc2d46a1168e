"""An operand of tcgen05.mma that lies in tensor memory: C and D, element by element.

The layouts are tables in `accumulators.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lanewise.isa.operand import Operand, within
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, PARTITION, Region, block_rows, regions


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
