"""The memory that a launch may write, copied and put back where a check repeats the launch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.jit.host_memory import Bytes
from lanewise.machine.runtime.device_memory import Allocation, heap_in_use
from lanewise.machine.runtime.heap import HeapState, heap_of
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.machine.runtime.launch import Launch


class MemoryCopy(NamedTuple):
    """What memory held at some time, and who had which part of the heap."""

    contents: list[Bytes]
    heap: HeapState | None
    #: Which bytes of the memory had ever been written, where that is followed.
    initialised: list[Bytes | None]


class WrittenMemory:
    """The memory that a launch may write, where the caller has it."""

    def __init__(self, launch: Launch, written: list[Allocation]) -> None:
        self.allocations = [each for each in written if each.writable]
        self._marks = [INITIALISED.marks(each.first, each.size) for each in self.allocations]
        self._own = [launch.arrays.caller_memory(each) for each in self.allocations]
        self._heap = heap_of(launch.compiled.module) if heap_in_use(launch.compiled.module) else None

    def copy(self) -> MemoryCopy:
        """Return a copy of what it holds."""
        heap = self._heap.state() if self._heap is not None else None
        marks = [None if each is None else each.copy() for each in self._marks]
        return MemoryCopy([content.copy() for content in self._own], heap, marks)

    def put_back(self, copy: MemoryCopy) -> None:
        """Restore what `copy` returned."""
        for own, content in zip(self._own, copy.contents, strict=True):
            own[:] = content
        for marks, before in zip(self._marks, copy.initialised, strict=True):
            if marks is not None and before is not None:
                marks[:] = before
        if self._heap is not None and copy.heap is not None:
            self._heap.restore(copy.heap)

    def differing(self, copy: MemoryCopy) -> list[Allocation]:
        """Return the allocations that hold something else than when they were copied."""
        pairs = zip(self.allocations, self._own, copy.contents, strict=True)
        return [each for each, own, content in pairs if not np.array_equal(own, content)]
