"""The bytes that a checked launch has read and written, for who compares launches with each other."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.machine.checker import records
from lanewise.machine.checker.records import AllocationShadow, ShadowPlane

if TYPE_CHECKING:
    from lanewise.machine.checker.watch import Watch

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


def accesses_of(watches: list[Watch]) -> list[AllocationAccesses]:
    """Return what a launch has accessed, given the watches of its host threads."""
    found = []
    for number, allocation in enumerate(watches[0].launch.allocations):
        if allocation.is_variable or not watches[0].shadows[number].size:
            continue
        shift = watches[0].shifts[number]
        rows = [watch.shadow_table[number] for watch in watches]
        low = min(int(row[AllocationShadow.accessed_from // 8]) for row in rows) >> shift
        high = (max(int(row[AllocationShadow.accessed_to // 8]) for row in rows) - 1 >> shift) + 1
        if low >= high:
            continue
        marks = [np.zeros(high - low, bool) for _ in range(4)]
        for watch in watches:
            for mark, seen in zip(marks, _marks(watch, number, slice(low, high)), strict=True):
                mark |= seen
        start = allocation.first + (low << shift)
        found.append(AllocationAccesses(allocation.first, start, 1 << shift, *marks))
    return found


def _marks(watch: Watch, number: int, part: slice) -> tuple[Marks, Marks, Marks, Marks]:
    """Return weak and strong reads, weak and strong writes, of some cells."""
    shadow = watch.shadows[number]
    read, wrote = (shadow[plane, part] != 0 for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.WRITE_EPOCH))
    strong_read, strong_write = (
        shadow[plane, part] & records.STRONG != 0 for plane in (ShadowPlane.READER, ShadowPlane.WRITER)
    )
    weak_read = read & ~strong_read
    if watch.kernel.follows_async:
        weak_read |= shadow[ShadowPlane.ASYNC_READ_EPOCH, part] != 0
    return weak_read, wrote & ~strong_write, read & strong_read, wrote & strong_write
