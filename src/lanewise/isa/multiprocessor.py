"""What a multiprocessor of each arch has, and what a GPU can launch: grids, blocks, clusters, shared memory.

The figures are those of the CUDA C++ Programming Guide (compute capabilities) and of `cuda_occupancy.h` of
CUDA 13. What is the same on every GPU since Volta is a constant.
"""

from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number

#: Registers of a multiprocessor, which are also the most that a block may have.
REGISTERS = 65536
#: A thread has at most so many registers.
MOST_REGISTERS = 255
#: Registers are given to a warp in multiples of this.
REGISTER_UNIT = 256
#: Each of the four schedulers of a multiprocessor has a quarter of the registers.
SCHEDULERS = 4
#: Threads of a warp.
WARP = 32
#: Threads that a block may have whatever registers its kernel uses.
FITTING_THREADS = REGISTERS // (MOST_REGISTERS + 1)
#: Operations on 64-bit integers in the shared memory of another block that an H200 does not make atomic: of
#: 32 lanes that tried min with 1 to 32 it kept 17 (CUDA 13.0, driver 580.159.04). Sums were right.
TORN_IN_CLUSTERS = ("min", "max", "and", "or", "xor")


class Multiprocessor:
    """The resources of one multiprocessor that resident blocks share.

    Every new process that launches something loads this class, so it is a plain one, which costs the least.
    """

    __slots__ = ("barriers", "blocks", "reserved_bytes", "shared_bytes", "shared_unit", "warps")

    def __init__(
        self,
        warps: int,
        blocks: int,
        shared_bytes: int,
        reserved_bytes: int,
        shared_unit: int,
        barriers: int | None,
    ) -> None:
        self.warps, self.blocks, self.shared_bytes = warps, blocks, shared_bytes
        #: Bytes of shared memory that the system keeps for itself in each block.
        self.reserved_bytes = reserved_bytes
        #: Shared memory is given to a block in multiples of this.
        self.shared_unit = shared_unit
        #: Barriers of all blocks together; None where they are not what bounds the number of blocks.
        self.barriers = barriers

    @property
    def block_shared_bytes(self) -> int:
        """The bytes of shared memory that one block may have."""
        return self.shared_bytes - self.reserved_bytes


def _volta(warps: int, blocks: int, shared: int) -> Multiprocessor:
    return Multiprocessor(warps, blocks, shared * 1024, 0, 256, None)


def _ampere(warps: int, blocks: int, shared: int, barriers: int | None = None) -> Multiprocessor:
    return Multiprocessor(warps, blocks, shared * 1024, 1024, 128, barriers)


#: By the number of the arch. None are published for sm_88.
_TABLE = {
    70: _volta(64, 32, 96),
    72: _volta(64, 32, 96),
    75: _volta(32, 16, 64),
    80: _ampere(64, 32, 164),
    86: _ampere(48, 16, 100),
    87: _ampere(48, 16, 164),
    89: _ampere(48, 24, 100),
    90: _ampere(64, 32, 228, 64),
    100: _ampere(64, 32, 228, 64),
    101: _ampere(48, 24, 228, 24),
    103: _ampere(64, 32, 228, 64),
    110: _ampere(48, 24, 228, 24),
    120: _ampere(48, 24, 100, 24),
    121: _ampere(48, 24, 100, 24),
}
#: Bytes of shared memory that no block of any GPU has more of.
MOST_SHARED_BYTES = max(row.block_shared_bytes for row in _TABLE.values())


def known_multiprocessor(arch: str) -> Multiprocessor | None:
    """Return the multiprocessor of an arch; None if its figures are not published."""
    return _TABLE.get(arch_number(arch))


def multiprocessor(arch: str) -> Multiprocessor:
    """Return the multiprocessor of an arch.

    >>> multiprocessor("sm_86").warps, multiprocessor("sm_90a").shared_bytes
    (48, 233472)
    """
    figures = known_multiprocessor(arch)
    if figures is None:
        known = ", ".join(f"sm_{number}" for number in _TABLE)
        raise LanewiseError(f"how much a multiprocessor of {arch} has is not published; known are {known}")
    return figures


# what a GPU can launch --------------------------------------------------------------------------------------

LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
#: The first arch that has clusters, and the blocks that a cluster may have on each of those that have them.
CLUSTERS_SINCE, PORTABLE_CLUSTER_BLOCKS = 90, 8
#: The blocks that a cluster may have on the GPUs of data centres, if the kernel is prepared for it.
MOST_CLUSTER_BLOCKS = 16
_LARGE_CLUSTERS = (90, 100, 101, 103, 110)
#: Bytes of shared memory that a kernel may declare.
STATIC_SHARED_BYTES = 48 * 1024


def shared_bytes_of(arch: str) -> int:
    """The bytes of shared memory that a block may have on an arch, with the opt-in for dynamic ones.

    >>> shared_bytes_of("sm_86"), shared_bytes_of("sm_90a")
    (101376, 232448)
    """
    limits = known_multiprocessor(arch)
    return MOST_SHARED_BYTES if limits is None else limits.block_shared_bytes


def cluster_blocks_of(arch: str) -> int:
    """The blocks that a cluster may have on an arch; 0 where there are no clusters.

    >>> cluster_blocks_of("sm_86"), cluster_blocks_of("sm_90a"), cluster_blocks_of("sm_120")
    (0, 16, 8)
    """
    number = arch_number(arch)
    if number < CLUSTERS_SINCE:
        return 0
    return MOST_CLUSTER_BLOCKS if number in _LARGE_CLUSTERS else PORTABLE_CLUSTER_BLOCKS
