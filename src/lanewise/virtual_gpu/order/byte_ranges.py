"""Sets of bytes as sorted ranges, and what an operation does with them."""

from __future__ import annotations

from enum import IntFlag, auto
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: First address and the one behind the last, a row for each range; rows are sorted and do not touch.
Ranges = npt.NDArray[np.int64]


class AccessKind(IntFlag):
    """What an operation does with bytes."""

    READ = auto()
    WRITE = auto()
    #: By atomic or other strong operations at the scope of the GPU, which do not race with each other.
    STRONG = auto()

    @property
    def verb(self) -> str:
        """What the operation does, in words."""
        words = "writes" if self & AccessKind.WRITE else "reads"
        return f"{words} (atomically)" if self & AccessKind.STRONG else words

    def conflicts(self, other: AccessKind) -> bool:
        """Return whether two accesses to one byte race if nothing orders them."""
        both_strong = bool(self & other & AccessKind.STRONG)
        return bool((self | other) & AccessKind.WRITE) and not both_strong


class Access(NamedTuple):
    """Bytes of one allocation that an operation reads or writes; `home` is where the allocation begins."""

    home: int
    kind: AccessKind
    ranges: Ranges


def one_range(first: int, size: int) -> Ranges:
    """Return a single range."""
    return np.array([(first, first + size)], np.int64)


def ranges_of(marks: npt.NDArray[np.bool_], first: int, step: int) -> Ranges:
    """Return the ranges of bytes that cells of some bytes each have marks for, from an address on.

    >>> ranges_of(np.array([True, True, False, True]), 100, 4).tolist()
    [[100, 108], [112, 116]]
    """
    edges = np.flatnonzero(np.diff(marks, prepend=False, append=False))
    return (first + step * edges.astype(np.int64)).reshape(-1, 2)


def common(one: Ranges, other: Ranges) -> tuple[int, int] | None:
    """Return the first bytes that two sets share, as an address and the one behind; None if none.

    >>> common(np.array([[0, 4], [8, 12]]), np.array([[4, 8], [10, 20]]))
    (10, 12)
    """
    if not one.size or not other.size or one[-1, 1] <= other[0, 0] or other[-1, 1] <= one[0, 0]:
        return None
    # The first range of `other` that ends behind the begin of each range of `one`.
    at = np.searchsorted(other[:, 1], one[:, 0], "right")
    near = at < len(other)
    meets = np.zeros(len(one), bool)
    meets[near] = other[at[near], 0] < one[near, 1]
    if not meets.any():
        return None
    number = int(np.argmax(meets))
    mate = other[at[number]]
    return int(max(one[number, 0], mate[0])), int(min(one[number, 1], mate[1]))
