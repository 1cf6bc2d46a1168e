"""The shape of a launch: grid, block and dynamic shared memory, as every engine takes it."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.isa.multiprocessor import WARP


@dataclass(frozen=True)
class Shape:
    """Grid and block, and dynamic shared memory.

    >>> shape = Shape((4, 2, 1), (33, 1, 1))
    >>> shape.blocks, shape.threads, shape.warps
    (8, 33, 2)
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]
