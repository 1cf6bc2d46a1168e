"""What a GPU can launch: the largest grids and blocks, clusters and the shared memory of a block by arch.

The figures are those of the CUDA C++ Programming Guide, compute capabilities.
"""

from lanewise.isa.archs import arch_number
from lanewise.isa.multiprocessor import MOST_SHARED_BYTES, known_multiprocessor

__all__ = [
    "LARGEST_BLOCK",
    "LARGEST_GRID",
    "MOST_SHARED_BYTES",
    "MOST_THREADS",
    "STATIC_SHARED_BYTES",
    "shared_bytes_of",
]

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
