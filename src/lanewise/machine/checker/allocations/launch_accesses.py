"""The bytes that a checked launch has read and written, for who compares launches with each other."""

from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Whether reports of checks say which bytes were accessed; then all reads are put on record.
WANTED: ContextVar[bool] = ContextVar("accesses wanted", default=False)

Marks = npt.NDArray[np.bool_]


class AllocationAccesses(NamedTuple):
    """What was accessed of an allocation: marks of its cells, each of some bytes, from an address on.

    Strong accesses are atomic operations and others at the scope of the GPU.
    """

    allocation: int
    first: int
    cell_bytes: int
    reads: Marks
    writes: Marks
    strong_reads: Marks
    strong_writes: Marks
