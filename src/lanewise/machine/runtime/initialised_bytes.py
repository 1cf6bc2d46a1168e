"""Which bytes of memory were written since it was allocated, for memory that outlives launches.

Whoever allocates memory lets it be followed here: a virtual GPU that checks its launches. A checked launch
marks what it writes and reports what it reads before. Copies carry the marks. Memory that nobody follows
counts as initialised, and memory that is written as a whole costs nothing more.
"""

import threading
from bisect import bisect_right, insort
from typing import NamedTuple

import numpy as np

from lanewise.jit.host_memory import Bytes, zeroed_bytes

#: The mark of a byte that was written; others have 0.
WRITTEN = 1


class _Range(NamedTuple):
    """Memory that is followed: its address, its bytes, and their marks; None if all are written."""

    first: int
    size: int
    marks: Bytes | None


class InitialisedBytes:
    """The marks of memory that is followed, by device addresses.

    >>> memory = InitialisedBytes()
    >>> memory.follow(1000, 8)
    >>> memory.write(1000, 4)
    >>> memory.marks(1002, 4).tolist()
    [1, 1, 0, 0]
    >>> memory.write(1004, 4)
    >>> memory.marks(1002, 4) is None
    True
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._starts: list[int] = []
        self._ranges: dict[int, _Range] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def follow(self, first: int, size: int) -> None:
        """Follow new memory, nothing of which is written."""
        with self._lock:
            if first not in self._ranges:
                insort(self._starts, first)
            self._ranges[first] = _Range(first, size, zeroed_bytes(size))

    def forget(self, first: int) -> None:
        """Follow memory no longer, because it is freed."""
        with self._lock:
            if self._ranges.pop(first, None) is not None:
                self._starts.remove(first)

    def take_all_as_initialised(self) -> None:
        """Count everything as written: something ran that does not keep account of what it writes."""
        with self._lock:
            for known in list(self._ranges.values()):
                self._ranges[known.first] = known._replace(marks=None)

    def _at(self, first: int, size: int) -> _Range | None:
        """Return the followed memory in which a range lies."""
        if not self._starts:
            return None
        at = bisect_right(self._starts, first) - 1
        if at < 0:
            return None
        known = self._ranges[self._starts[at]]
        return known if first + size <= known.first + known.size else None

    def marks(self, first: int, size: int) -> Bytes | None:
        """Return the marks of a range, to be read or written; None if it is initialised or not followed."""
        with self._lock:
            known = self._at(first, size)
            if known is None or known.marks is None:
                return None
            return known.marks[first - known.first : first - known.first + size]

    def write(self, first: int, size: int) -> None:
        """Note that bytes were written."""
        marks = self.marks(first, size)
        if marks is not None:
            marks[:] = WRITTEN
            self.settle(first, size)

    def copy(self, target: int, source: int, size: int) -> None:
        """Note that bytes were copied: those that nothing was written to stay so."""
        with self._lock:
            known, copied = self._at(target, size), self.marks(source, size)
            if known is None or (known.marks is None and copied is None):
                return
            if known.marks is None:
                whole = np.full(known.size, WRITTEN, np.uint8)
                known = self._ranges[known.first] = known._replace(marks=whole)
            assert known.marks is not None
            offset = target - known.first
            known.marks[offset : offset + size] = WRITTEN if copied is None else copied
            self.settle(target, size)

    def settle_all(self) -> None:
        """Keep no marks of memory all of which is written: a launch has marked what it wrote."""
        with self._lock:
            for known in list(self._ranges.values()):
                if known.marks is not None:
                    self.settle(known.first, known.size)

    def settle(self, first: int, size: int) -> None:
        """Keep no marks of the memory in which a range lies if all of it is written."""
        with self._lock:
            known = self._at(first, size)
            if known is not None and known.marks is not None and known.marks.view(np.bool_).all():
                self._ranges[known.first] = known._replace(marks=None)


#: The memory that is followed, of all virtual GPUs.
INITIALISED = InitialisedBytes()
