"""Layouts of shared memory without bank conflicts: longer rows and swizzles, tried on observed addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from lanewise.layout import Swizzle
from lanewise.machine.checker.cost.requests import LANES, WAVEFRONT, Offsets, Requests, cost_of

#: The most bits that a swizzle is tried to reach up.
MOST_SHIFT = 12
#: The most lengths of rows that are tried, and the most bytes that rows are made longer by.
MOST_ROWS, MOST_PADDING = 16, 64
#: Rows of no more bytes are the distance of neighbouring lanes in an array of one dimension.
LONGEST_STRIDE = 16
#: What is left of the excess by a layout that is worth a word although it does not remove all of it.
WORTHWHILE = 0.5
_NAMES = {"f32": "floats", "f64": "doubles", "s32": "ints", "u32": "words", "b32": "words"}


class Observed(NamedTuple):
    """Requests of one instruction that were observed, and how many requests each of them stands for."""

    requests: Requests
    weight: float


class Candidate(NamedTuple):
    """A layout that was tried: the excess that it leaves, in words; longer rows in bytes, or a swizzle."""

    left: float
    words: str
    row: int = 0
    padding: int = 0
    swizzle: Swizzle | None = None


class Array(NamedTuple):
    """An array in shared memory, as its accesses show it: where it begins, its element, all its requests."""

    start: int
    element_type: str
    element_bytes: int
    observed: Sequence[Observed]

    @property
    def largest(self) -> int:
        """The bytes of the largest access, which a layout has to keep together."""
        return max(each.requests.size for each in self.observed)

    def excess(self) -> float:
        """Return the wavefronts beyond the least, as the array is."""
        return sum(_excess(each, each.requests.offsets) for each in self.observed)

    def padded(self, row: int, padding: int) -> float:
        """Return the excess if every row of some bytes were longer by a padding."""

        def moved(offsets: Offsets) -> Offsets:
            place = offsets - self.start
            return offsets + place // row * padding

        return sum(_excess(each, moved(each.requests.offsets)) for each in self.observed)

    def swizzled(self, swizzle: Swizzle) -> float:
        """Return the excess if the index of each element were swizzled."""

        def moved(offsets: Offsets) -> Offsets:
            place = np.maximum(offsets - self.start, 0)
            index, byte = place // self.element_bytes, place % self.element_bytes
            return np.asarray(self.start + swizzle(index) * self.element_bytes + byte)

        return sum(_excess(each, moved(each.requests.offsets)) for each in self.observed)


def _excess(observed: Observed, offsets: Offsets) -> float:
    return observed.weight * cost_of(observed.requests.moved(offsets)).excess


def rows_of(requests: Requests) -> list[int]:
    """Return the bytes that rows may have: distances between lanes whose numbers differ by one bit.

    >>> rows_of(Requests(128 * np.arange(32)[None, :], np.ones((1, 32), bool), 4))
    [128, 256, 512, 1024, 2048]
    """
    found = set()
    lanes = np.arange(LANES)
    for offsets, active in zip(requests.offsets, requests.lanes, strict=True):
        for bit in range(LANES.bit_length() - 1):
            low = lanes[(lanes >> bit & 1) == 0]
            both = active[low] & active[low | 1 << bit]
            found |= {abs(int(each)) for each in (offsets[low | 1 << bit] - offsets[low])[both]}
    return sorted(each for each in found if each > max(requests.size, 8) and each % requests.size == 0)


def proposal(array: Array, conflicting: Requests) -> str:
    """Return in words which layouts remove the conflicts of an array, or most of them; else nothing."""
    before = array.excess()
    tried = candidates(array, conflicting)
    removing = [each.words for each in tried if each.left == 0]
    if removing:
        # A longer row comes first; of the swizzles the first will do.
        named = removing[:2] if removing[0].startswith(("a row", "a stride")) else removing[:1]
        return f"{', or '.join(named)}{',' if len(named) > 1 else ''} removes it"
    left, words, *_ = min(tried, default=Candidate(before, ""), key=lambda each: each[:2])
    return f"{words} leaves {100 * left / before:.0f} % of it" if left <= WORTHWHILE * before else ""


def candidates(array: Array, conflicting: Requests) -> list[Candidate]:
    """Return the layouts that are tried for an array: longer rows first, then swizzles up to a good one."""
    return [*_padding(array, conflicting), *_swizzles(array)]


def _padding(array: Array, conflicting: Requests) -> Iterator[Candidate]:
    """Try longer rows: the shortest with which the requests have no conflicts, and what it leaves in all."""
    unit = max(array.largest, array.element_bytes, 4)
    alone = array._replace(observed=[Observed(conflicting, 1)])
    rows = [each for each in rows_of(conflicting) if each % array.element_bytes == 0]
    for row, padding in product(rows[:MOST_ROWS], range(unit, MOST_PADDING + 1, unit)):
        if alone.padded(row, padding) == 0:
            length = (row + padding) // array.element_bytes
            what = "row" if row > LONGEST_STRIDE else "stride"
            words = f"a {what} of {length} {_elements(array)}"
            yield Candidate(array.padded(row, padding), words, row, padding)
            return


def _elements(array: Array) -> str:
    return _NAMES.get(array.element_type, f"elements of {array.element_bytes} bytes")


def _swizzles(array: Array) -> Iterator[Candidate]:
    """Try swizzles of an element's index that keep the largest access together; end with one that is good."""
    unit = max(array.largest // array.element_bytes, 1)
    base = unit.bit_length() - 1
    if unit != 1 << base:
        return
    most = (WAVEFRONT // max(array.largest, 4)).bit_length() - 1
    for bits, shift in product(range(1, most + 1), range(1, MOST_SHIFT)):
        if shift < bits:
            continue
        swizzle = Swizzle(bits, base, shift)
        left = array.swizzled(swizzle)
        yield Candidate(left, f"Swizzle({bits},{base},{shift})", swizzle=swizzle)
        if left == 0:
            return
