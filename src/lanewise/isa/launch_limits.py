"""What a GPU can launch: the largest grids and blocks, and the shared memory of a block by arch.

The figures are those of the CUDA C++ Programming Guide, compute capabilities.
"""

from __future__ import annotations

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
#: Bytes of shared memory that a kernel may declare.
STATIC_SHARED_BYTES = 48 * 1024


def shared_bytes_of(arch: str) -> int:
    """The bytes of shared memory that a block may have on an arch, with the opt-in for dynamic ones.

    >>> shared_bytes_of("sm_86"), shared_bytes_of("sm_90a")
    (101376, 232448)
    """
    found = known_multiprocessor(arch)
    return MOST_SHARED_BYTES if found is None else found.block_shared_bytes
