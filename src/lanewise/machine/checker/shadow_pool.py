"""Shadow memory kept for the next check: to get new pages takes longer than to check a small launch."""

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
        #: Bytes of all that is kept: those that were ever in use, and those of address space.
        self._touched_bytes = self._space = 0
        #: Logs, of which only pages at the beginning were ever touched.
        self._logs: list[Words] = []

    def take(self, count: int) -> Piece:
        """Return so many words that are zero, or some more."""
        with self._lock:
            fitting = (
                number
                for number in reversed(range(len(self._kept)))
                if count <= self._kept[number].words.size <= 2 * count
            )
            number = next(fitting, None)
            piece = None if number is None else self._leave(number)
        if piece is None:
            return Piece(np.zeros(count, np.uint32))
        piece.clear()
        return piece

    def give(self, piece: Piece, used: Ranges) -> None:
        """Take back words, which are zero but for those in some ranges."""
        piece.used = used
        piece.touched_bytes = max(piece.touched_bytes, sum(4 * (end - first) for first, end in used))
        with self._lock:
            self._kept.append(piece)
            self._touched_bytes += piece.touched_bytes
            self._space += piece.words.nbytes
            while self._touched_bytes > MOST_KEPT_BYTES or self._space > MOST_KEPT_SPACE:
                self._leave(0)

    def _leave(self, number: int) -> Piece:
        """Return a piece that is kept no longer."""
        piece = self._kept.pop(number)
        self._touched_bytes -= piece.touched_bytes
        self._space -= piece.words.nbytes
        return piece

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
