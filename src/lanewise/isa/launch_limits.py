"""What a GPU can launch: the largest grids and blocks, clusters and the shared memory of a block by arch.

The figures are those of the CUDA C++ Programming Guide, compute capabilities.
"""

from __future__ import annotations

from lanewise.isa.archs import arch_number

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
_KIB_BY_ARCH = {
    70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 101: 227, 103: 227, 110: 227,
    120: 99, 121: 99,
}  # fmt: skip
#: Bytes of shared memory that no block of any GPU has more of.
MOST_SHARED_BYTES = max(_KIB_BY_ARCH.values()) * 1024


def shared_bytes_of(arch: str) -> int:
    """The bytes of shared memory that a block may have on an arch, with the opt-in for dynamic ones.

    >>> shared_bytes_of("sm_86"), shared_bytes_of("sm_90a")
    (101376, 232448)
    """
    kib = _KIB_BY_ARCH.get(arch_number(arch))
    return MOST_SHARED_BYTES if kib is None else kib * 1024


def cluster_blocks_of(arch: str) -> int:
    """The blocks that a cluster may have on an arch; 0 where there are no clusters.

    >>> cluster_blocks_of("sm_86"), cluster_blocks_of("sm_90a"), cluster_blocks_of("sm_120")
    (0, 16, 8)
    """
    number = arch_number(arch)
    if number < CLUSTERS_SINCE:
        return 0
    return MOST_CLUSTER_BLOCKS if number in _LARGE_CLUSTERS else PORTABLE_CLUSTER_BLOCKS
