"""Shadow memory kept for the next check: to get new pages takes longer than to check a small launch."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address

#: The most bytes that are kept while no check runs: of those that were ever in use, and of address space,
#: which most systems give without memory.
MOST_KEPT_BYTES, MOST_KEPT_SPACE = 1 << 26, 1 << 30
#: How many logs of epochs are kept, and how much of each may be in use.
MOST_LOGS, MOST_LOGGED_EPOCHS = 4, 1 << 20

Words = npt.NDArray[np.uint32]
#: Ranges of words, each with its first and the one behind its last.
Ranges = list[tuple[int, int]]


class Piece:
    """Words that are taken and given back as a whole."""

    def __init__(self, words: Words) -> None:
        self.words = words
        #: Where they may not be zero.
        self.used: Ranges = []
        #: The most bytes that were in use at a time.
        self.touched_bytes = 0

    def clear(self) -> None:
        """Make all words zero; NumPy's own assignment is slower by far."""
        for first, end in self.used:
            ctypes.memset(address(self.words) + 4 * first, 0, 4 * (end - first))
        self.used = []


class ShadowPool:
    """Memory to be taken and given back: zeroed words, and logs of epochs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Memory, the latest last; it is cleared when somebody takes it.
        self._kept: list[Piece] = []
        #: Logs, of which only pages at the beginning were ever touched.
        self._logs: list[Words] = []

    def take(self, count: int) -> Piece:
        """Return so many words that are zero, or some more."""
        with self._lock:
            sizes = [each.words.size for each in self._kept]
            fitting = [number for number, size in enumerate(sizes) if count <= size <= 2 * count]
            found = self._kept.pop(fitting[-1]) if fitting else None
        if found is None:
            return Piece(np.zeros(count, np.uint32))
        found.clear()
        return found

    def give(self, piece: Piece, used: Ranges) -> None:
        """Take back words, which are zero but for those in some ranges."""
        piece.used = used
        piece.touched_bytes = max(piece.touched_bytes, sum(4 * (end - first) for first, end in used))
        with self._lock:
            self._kept.append(piece)
            while (
                sum(each.touched_bytes for each in self._kept) > MOST_KEPT_BYTES
                or sum(each.words.nbytes for each in self._kept) > MOST_KEPT_SPACE
            ):
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
