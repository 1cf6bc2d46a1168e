"""A tile of A or B in shared memory as TMA loads it and tcgen05 reads it."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.linalg.kernels.blackwell.traits import ROWS, BlackwellTraits
from lanewise.linalg.kernels.hopper.operand_tiles import OperandTile


class UmmaTile(OperandTile):
    """A tile that lies in shared memory as wgmma's do, with tcgen05's descriptor of it."""

    def descriptor(self, whole: bool = True) -> Descriptor:
        """Return tcgen05's descriptor: (row, k, plane, stage)."""
        rest, steps = (self.planes, self.stages), (self.plane, self.elements)
        if self.k_major:
            array = self._array((self.rows, self.bk, *rest), (self.bk, 1, *steps))
        else:
            columns, strides = (self.wide, self.boxes), (1, self.bk * self.wide)
            array = self._array((columns, self.bk, *rest), (strides, self.wide, *steps))
        return lw.make_umma_desc(array)


def operand_tiles(traits: BlackwellTraits) -> tuple[UmmaTile, UmmaTile]:
    """Return how tiles of A and B lie in shared memory."""
    T: Any = traits
    of_a, of_b = T.stored
    tiles = (
        UmmaTile(T, of_a, (ROWS, T.depth), T.problem.a.k_major, 1, 0, "-"),
        UmmaTile(T, of_b, (T.loaded_columns, T.depth), T.problem.b.k_major, 1, T.b_offset, "-"),
    )
    if T.pair > 1:  # the first block of the pair counts the bytes of both
        for tile in tiles:
            tile.cache = {"cta_group": T.pair}
    return tiles
