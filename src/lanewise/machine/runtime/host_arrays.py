"""The caller's arrays as device memory: what NumPy allocated is one allocation, views are parts of it.

A GPU has memory by the allocation: cudaMalloc aligns its first byte, and a view such as `a[1:]` is an address
inside. So here: the owner of a view's memory gets an aligned device address, and its views lie where they lie
in it. Two views of one owner have their distance, whether they are writable or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, address, as_bytes, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.runtime.device_memory import Allocation, View

Array = npt.NDArray[Any]

#: Device addresses between two owners that belong to neither.
GAP = 1 << 30
#: The alignment of an owner's device address; cudaMalloc's is 256 bytes or more.
ALIGNMENT = 1 << 21
#: The alignment that the host's own instructions need: an atomic operation of 16 bytes is the widest.
HOST_ALIGNMENT = 16


def owner_of(array: Array) -> Array:
    """Return the array whose memory an array is a view of: itself if it is none.

    Memory that NumPy did not allocate (a buffer, a mapped file) belongs to the first array made of it.

    >>> whole = np.zeros(8)
    >>> owner_of(whole[2:5][1:]) is whole, owner_of(whole) is whole
    (True, True)
    """
    owner, base = array, array.base
    # as_strided puts an object of NumPy's own between a view and the array that it is of.
    while isinstance(base, np.ndarray) or type(base).__module__.partition(".")[0] == "numpy":
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


def bounds(array: Array) -> tuple[int, int]:
    """Return the host addresses of an array's first byte and of the byte after its last."""
    low = high = address(array)
    if array.size == 0:
        return low, high
    for size, stride in zip(array.shape, array.strides, strict=True):
        span = (size - 1) * stride
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + array.itemsize


@dataclass
class Memory:
    """Host memory that becomes one allocation: its bounds, and the arrays that were passed of it."""

    start: int
    stop: int
    arrays: list[tuple[str, Array]]

    def join(self, other: Memory) -> None:
        """Take in memory that overlaps, and the arrays in it."""
        self.start, self.stop = min(self.start, other.start), max(self.stop, other.stop)
        self.arrays += other.arrays


@dataclass(frozen=True)
class StagedMemory:
    """Memory at a host address that atomic operations cannot have: a launch works in a copy of it."""

    own: Bytes
    copy: Bytes

    def write_back(self) -> None:
        """Write to the caller's memory what a launch wrote into the copy."""
        self.own[:] = self.copy


class HostArrays:
    """The arrays of a launch, and the device memory that they get."""

    def __init__(self) -> None:
        self._arrays: list[tuple[str, Array]] = []
        #: Copies of writable memory that is not aligned on the host.
        self.staged: list[StagedMemory] = []
        self._copies: list[Bytes] = []

    def add(self, name: str, array: Array) -> None:
        """Add an array of the launch."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise LanewiseError(
                f"argument {name}: an array must be in one piece; np.ascontiguousarray makes a copy that is"
            )
        self._arrays.append((name, array))

    def allocate(self) -> tuple[list[Allocation], dict[int, int]]:
        """Return the allocations, and the device address of each array by its `id`."""
        placed: list[Allocation] = []
        addresses: dict[int, int] = {}
        first = abi.ARGUMENT_BASE
        for memory in self._memories():
            views = tuple(
                View(name, address(array) - memory.start, array.nbytes, bool(array.flags.writeable))
                for name, array in memory.arrays
            )
            size = memory.stop - memory.start
            writable = any(view.writable for view in views)
            host = self._host(memory.start, size, writable)
            names = ", ".join(dict.fromkeys(view.name for view in views))
            placed.append(Allocation(names, first, size, host, writable, views))
            for (_, array), view in zip(memory.arrays, views, strict=True):
                addresses[id(array)] = first + view.offset
            first = aligned(first + size + GAP, ALIGNMENT)
        return placed, addresses

    def _memories(self) -> list[Memory]:
        """Return the memory of all arrays, in the order of the arguments.

        Device addresses then do not depend on host addresses.
        """
        by_owner: dict[int, Memory] = {}
        for name, array in self._arrays:
            owner = owner_of(array)
            start, stop = bounds(owner)
            first, end = bounds(array)  # as_strided can make a view that is larger than its owner
            memory = Memory(min(start, first), max(stop, end), [(name, array)])
            known = by_owner.get(id(owner))
            if known is None:
                by_owner[id(owner)] = memory
            else:
                known.join(memory)
        joined: list[Memory] = []
        for memory in sorted(by_owner.values(), key=lambda each: each.start):
            if joined and memory.start < joined[-1].stop:
                joined[-1].join(memory)
            else:
                joined.append(memory)
        order = {id(array): number for number, (_, array) in reversed(list(enumerate(self._arrays)))}
        for memory in joined:
            memory.arrays.sort(key=lambda named: order[id(named[1])])
        return sorted(joined, key=lambda each: order[id(each.arrays[0][1])])

    def _host(self, start: int, size: int, writable: bool) -> int:
        """Return the host address that a launch works at: the memory's own, or that of an aligned copy."""
        if start % HOST_ALIGNMENT == 0 or size == 0:
            return start
        own = as_bytes(start, size)
        copy = zeroed_bytes(size)
        copy[:] = own
        self._copies.append(copy)
        if writable:
            self.staged.append(StagedMemory(own, copy))
        return address(copy)
