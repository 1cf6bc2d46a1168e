"""The shape of a launch: grid, block, dynamic shared memory and cluster, as every engine takes it."""

from dataclasses import dataclass

from lanewise.isa.multiprocessor import WARP


@dataclass(frozen=True)
class Shape:
    """Grid and block, dynamic shared memory, and the blocks of a cluster.

    >>> shape = Shape((4, 2, 1), (33, 1, 1))
    >>> shape.blocks, shape.threads, shape.warps
    (8, 33, 2)
    >>> Shape((4, 2, 1), (33, 1, 1), cluster=(2, 2, 1)).cluster_blocks
    4
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    #: The blocks of a cluster along x, y and z; None if the launch says nothing of clusters.
    cluster: tuple[int, int, int] | None = None
    #: Whether the kernel may begin before the one ahead of it in its stream has ended: it calls
    #: `griddepcontrol.wait` before it touches memory. On the CPU machine it changes nothing.
    overlap: bool = False

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

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster; 1 without clusters."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z
