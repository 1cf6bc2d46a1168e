"""A tile of A or B in shared memory: how TMA loads it, also in parts for a cluster, and how wgmma reads it."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format, tf32
from lanewise.linalg.families.build import LINE, ROWS


def line_swizzle(element_bytes: int) -> Any:
    """Return the 128-byte swizzle for elements of a size."""
    from lanewise.layout import Swizzle

    return Swizzle(3, 4 - (element_bytes.bit_length() - 1), 3)


class OperandTile:
    """`rows` × `bk` elements in each of several stages. `parts` blocks of a cluster load a part each.

    A K-major tile lies as rows of 128 bytes; one whose neighbours lie along M or N as boxes of `bk` lines.
    """

    def __init__(
        self, dtype: Format, rows: int, bk: int, stages: int, k_major: bool, parts: int, offset: int
    ) -> None:
        self.dtype, self.rows, self.bk, self.stages = dtype, rows, bk, stages
        self.k_major, self.parts, self.offset = k_major, parts, offset
        self.size = 4 if dtype is tf32 else dtype.bits // 8
        self.wide = LINE // self.size
        self.boxes = -(-rows // self.wide)

    @property
    def elements(self) -> int:
        """Elements of one stage."""
        return (self.rows if self.k_major else self.boxes * self.wide) * self.bk

    @property
    def box(self) -> tuple[int, int]:
        """The box of the operand's tensor map, outermost first."""
        return (self.rows // self.parts, self.bk) if self.k_major else (self.bk, self.wide)

    def _array(self, shape: Any, strides: Any) -> Any:
        from lanewise.layout import Layout

        return lw.dynamic_shared(
            self.dtype, Layout(shape, strides), swizzle=line_swizzle(self.size), offset=self.offset
        )

    def descriptor(self, whole: bool) -> Any:
        """Return wgmma's descriptor: (row, k, stage) of the whole, or (row, k, which 64 rows, stage)."""
        if self.k_major and whole:
            array = self._array((self.rows, self.bk, self.stages), (self.bk, 1, self.elements))
        elif self.k_major:
            array = self._array(
                (ROWS, self.bk, self.rows // ROWS, self.stages),
                (self.bk, 1, ROWS * self.bk, self.elements),
            )
        elif whole:
            array = self._array(
                ((self.wide, self.boxes), self.bk, self.stages),
                ((1, self.bk * self.wide), self.wide, self.elements),
            )
        else:
            array = self._array(
                (ROWS, self.bk, self.boxes, self.stages), (1, self.wide, self.bk * self.wide, self.elements)
            )
        return lw.make_gmma_desc(array)

    def target(self) -> Any:
        """Return the array that loads write: (box…, which part or box, stage)."""
        if self.k_major:
            rows = self.rows // self.parts
            return self._array(
                (rows, self.bk, self.parts, self.stages), (self.bk, 1, rows * self.bk, self.elements)
            )
        return self._array(
            (self.bk, self.wide, self.boxes, self.stages), (self.wide, 1, self.bk * self.wide, self.elements)
        )

    def load(
        self, map: Any, target: Any, first: Any, k: Any, batch: Any, stage: Any, barrier: Any, part: Any, mask: Any
    ) -> None:  # fmt: skip
        """Load this block's part of the tile that begins at row (or column) `first` and at `k`."""
        lead = (batch,) if map.kind.rank == 3 else ()
        many = {"multicast": mask} if self.parts > 1 else {}
        if self.k_major:
            at = first if self.parts == 1 else first + part * (self.rows // self.parts)
            place = 0 if self.parts == 1 else part
            lw.tma.load(target[self._index(lead, place, stage)], map, (*lead, at, k), barrier, **many)
            return
        share = self.boxes // self.parts
        for number in range(share):
            which = number if self.parts == 1 else part * share + number
            at = first + which * self.wide
            lw.tma.load(target[self._index(lead, which, stage)], map, (*lead, k, at), barrier, **many)

    @staticmethod
    def _index(lead: tuple[Any, ...], which: Any, stage: Any) -> tuple[Any, ...]:
        return (None, None, which, stage)
