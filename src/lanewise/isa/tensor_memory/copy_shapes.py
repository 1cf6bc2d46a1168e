"""Shapes of tcgen05.cp: to which lanes of tensor memory each row of a matrix in shared memory is copied.

Facts: PTX ISA, "tcgen05.cp" and "Optional decompression"; the layouts of CUTLASS's copy traits
(tests/isa/cutlass_tensor_copies.json). Neither says where the bits of an expanded element lie, and that each
block of a pair copies from its own shared memory: both come from Apache TVM's tests for a B200 and from how
CUTLASS's kernels for pairs load scale factors. None was seen on a GPU of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes of a row that a matrix descriptor keeps together: four columns of tensor memory.
PIECE_BYTES = 16


@dataclass(frozen=True)
class CopyShape:
    """A shape: rows of some bits, and a layout from (row, copy) to the lane, counted from the address."""

    #: As PTX writes it, with the warps that get copies of the rows: "64x128b.warpx2::02_13".
    name: str
    bits: int
    lanes: Layout
    #: The lane of an address is a multiple of it.
    first_lane: int = 128

    @property
    def rows(self) -> int:
        """The rows of the matrix."""
        return self.lanes[0].size()

    @property
    def copies(self) -> int:
        """The lanes that get the same row."""
        return self.lanes[1].size()

    @property
    def pieces(self) -> int:
        """The pieces of 16 bytes of a row."""
        return self.bits // (8 * PIECE_BYTES)

    @property
    def columns(self) -> int:
        """The columns of 32 bits that a row fills."""
        return self.bits // 32

    @property
    def last_lane(self) -> int:
        """The last lane that is written, counted from the address."""
        return self.lanes.cosize() - 1

    def lanes_of(self, row: int) -> tuple[int, ...]:
        """Return the lanes that get a row.

        >>> SHAPES["64x128b.warpx2::01_23"].lanes_of(33)
        (65, 97)
        """
        return tuple(self.lanes(row, copy) for copy in range(self.copies))


SHAPES = {
    shape.name: shape
    for shape in (
        CopyShape("128x256b", 256, Layout((128, 1), (1, 0))),
        CopyShape("128x128b", 128, Layout((128, 1), (1, 0))),
        # One lane of each warp's partition: the one that tcgen05.shift leaves to be filled.
        CopyShape("4x256b", 256, Layout((4, 1), (32, 0)), first_lane=1),
        CopyShape("64x128b.warpx2::02_13", 128, Layout((64, 2), (1, 64))),
        CopyShape("64x128b.warpx2::01_23", 128, Layout(((32, 2), 2), ((1, 64), 32))),
        CopyShape("32x128b.warpx4", 128, Layout((32, 4), (1, 32))),
    )
}


@dataclass(frozen=True)
class Expansion:
    """A packed source format: a piece has 16 elements of some bits, then padding; each becomes a byte."""

    name: str
    bits: int
    #: The bit of the byte where the element begins: tcgen05.mma has 4-bit elements in bits 2 to 5.
    first_bit: int

    @property
    def held_bytes(self) -> int:
        """The first bytes of a piece, which hold its elements; nothing reads the others."""
        return PIECE_BYTES * self.bits // 8

    def expand(self, pieces: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return pieces [..., 16 bytes] with 16 elements each as 16 bytes each.

        >>> import numpy as np
        >>> EXPANSIONS["b4x16_p64"].expand(np.array([0x21] + [0] * 15, np.uint8))[:3].tolist()
        [4, 8, 0]
        """
        import numpy as np

        bits = np.unpackbits(pieces, axis=-1, bitorder="little")[..., : 16 * self.bits]
        elements = bits.reshape(*pieces.shape[:-1], 16, self.bits)
        weights = 1 << np.arange(self.first_bit, self.first_bit + self.bits)
        return np.asarray((elements * weights).sum(-1), np.uint8)


EXPANSIONS = {
    expansion.name: expansion for expansion in (Expansion("b6x16_p32", 6, 0), Expansion("b4x16_p64", 4, 2))
}
