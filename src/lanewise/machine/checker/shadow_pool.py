"""Shadow memory kept for the next check: to get new pages takes longer than to check a small launch."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address

#: The most bytes that are kept while no check runs.
MOST_KEPT_BYTES = 1 << 26
#: How many logs of epochs are kept, and how much of each may be in use.
MOST_LOGS, MOST_LOGGED_EPOCHS = 4, 1 << 20

Words = npt.NDArray[np.uint32]


#: Ranges of words, each with its first and the one behind its last.
Ranges = list[tuple[int, int]]


class ShadowPool:
    """Memory to be taken and given back: zeroed words, and logs of epochs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Memory, the latest last, and where it is not zero: it is cleared when somebody takes it.
        self._kept: list[tuple[Words, Ranges]] = []
        #: Logs, of which only pages at the beginning were ever touched.
        self._logs: list[Words] = []

    def take(self, count: int) -> Words:
        """Return so many words that are zero, or some more."""
        with self._lock:
            sizes = [each.size for each, _ in self._kept]
            fitting = [number for number, size in enumerate(sizes) if count <= size <= 2 * count]
            found = self._kept.pop(fitting[-1]) if fitting else None
        if found is None:
            return np.zeros(count, np.uint32)
        words, used = found
        for first, end in used:  # NumPy's own assignment is slower by far
            ctypes.memset(address(words) + 4 * first, 0, 4 * (end - first))
        return words

    def give(self, words: Words, used: Ranges) -> None:
        """Take back words, which are zero but for those in some ranges."""
        with self._lock:
            self._kept.append((words, used))
            while sum(each.nbytes for each, _ in self._kept) > MOST_KEPT_BYTES:
                del self._kept[0]

    def take_log(self, epochs: int) -> Words:
        """Return a log for so many epochs. Entries may have any value: each is written before it is read."""
        with self._lock:
            if self._logs and self._logs[-1].size == epochs:
                return self._logs.pop()
        return np.zeros(epochs, np.uint32)

    def give_log(self, log: Words, used: int) -> None:
        """Take back a log of which so many epochs were used."""
        with self._lock:
            if used <= MOST_LOGGED_EPOCHS and len(self._logs) < MOST_LOGS:
                self._logs.append(log)

    def forget(self) -> None:
        """Forget the lock, which a thread that a forked child does not have may hold."""
        self._lock = threading.Lock()


#: Where all checks have their shadow memory from.
SHADOWS = ShadowPool()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SHADOWS.forget)
