"""Layouts of shared memory without bank conflicts: padded rows and swizzles, tried on observed addresses.

A layout is proposed only if it keeps every access whole: the bytes that one lane reads or writes at a time
stay neighbours, at a multiple of their number, whatever index they begin at.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.isa.multiprocessor import STATIC_SHARED_BYTES
from lanewise.layout import Swizzle
from lanewise.machine.checker.cost.proposal_words import can_be_written, words_for
from lanewise.machine.checker.cost.requests import LANES, WAVEFRONT, Lanes, Offsets, Requests, cost_of
from lanewise.machine.checker.cost.shared_arrays import SharedArray
from lanewise.machine.checker.findings import Proposal

#: The most lengths of rows that are tried, and the most bytes that rows are made longer by.
MOST_ROWS, MOST_PADDING = 16, 64
#: What is left of the excess by a layout that is worth a word although it does not remove all of it.
WORTHWHILE = 0.5


#: By size, and whether lanes give the rows of matrices: offsets, lanes and weights.
Stacked = dict[tuple[int, bool], tuple[Offsets, Lanes, npt.NDArray[np.float64]]]


class Observed(NamedTuple):
    """Requests of one instruction that were observed, and how many requests each of them stands for."""

    requests: Requests
    weight: float


@dataclass(frozen=True)
class Usage:
    """How a kernel uses an array: what was observed, and what every layout has to keep."""

    array: SharedArray
    observed: Sequence[Observed]
    #: The bytes of the largest access, also of instructions that did not run.
    largest: int
    #: Whether instructions choose addresses by themselves, as wmma does by a stride: no swizzle then.
    strided: bool
    #: The bytes of static shared memory that the kernel has in all.
    static_bytes: int

    @property
    def unit(self) -> int:
        """The bytes that a layout has to keep together."""
        return max(self.largest, self.array.element_bytes)

    def excess(self, stride: tuple[int, ...], swizzle: Swizzle | None) -> float:
        """Return the wavefronts beyond the least if the array had other strides, and a swizzle."""
        total = 0.0
        for (size, by_rows), (offsets, lanes, weights) in self.stacked.items():
            moved = self.array.moved(offsets, stride, swizzle)
            cost = cost_of(Requests(moved, lanes, size, by_rows))
            total += float(weights @ (cost.wavefronts - cost.phases))
        return total

    @cached_property
    def stacked(self) -> Stacked:
        """All requests of one size in one array, equal ones once, with their weights."""
        return _stacked(self.observed, self.array.start)

    def fits(self) -> bool:
        """Return whether every observed access lies whole in the array, at a multiple of its size."""
        for (size, _), (offsets, lanes, _) in self.stacked.items():
            active = offsets[lanes]
            if not self.array.holds(int(active.min()), int(active.max()) + size) or (active % size).any():
                return False
        return self.array.start % self.unit == 0


def _stacked(observed: Iterable[Observed], start: int) -> Stacked:
    distinct: dict[tuple[int, bool], dict[bytes, list[float]]] = {}
    rows: dict[bytes, tuple[Offsets, Lanes]] = {}
    for access in observed:
        requests = access.requests
        group = distinct.setdefault((requests.size, requests.by_rows), {})
        for offsets, lanes in zip(requests.offsets, requests.lanes, strict=True):
            at = np.where(lanes, offsets, start)
            key = at.tobytes() + lanes.tobytes()
            rows[key] = at, lanes
            group.setdefault(key, []).append(access.weight)
    return {
        kind: (
            np.array([rows[key][0] for key in group]),
            np.array([rows[key][1] for key in group]),
            np.array([sum(weights) for weights in group.values()]),
        )
        for kind, group in distinct.items()
    }


def rows_of(requests: Requests) -> list[int]:
    """Return the bytes that rows may have: distances between lanes whose numbers differ by one bit.

    >>> rows_of(Requests(128 * np.arange(32)[None, :], np.ones((1, 32), bool), 4))
    [128, 256, 512, 1024, 2048]
    """
    distances = set()
    lanes = np.arange(LANES)
    for offsets, active in zip(requests.offsets, requests.lanes, strict=True):
        for bit in range(LANES.bit_length() - 1):
            low = lanes[(lanes >> bit & 1) == 0]
            both = active[low] & active[low | 1 << bit]
            distances |= {abs(int(distance)) for distance in (offsets[low | 1 << bit] - offsets[low])[both]}
    return sorted(
        distance
        for distance in distances
        if distance > max(requests.size, 8) and distance % requests.size == 0
    )


class Candidate(NamedTuple):
    """A layout that was tried: the excess that it leaves, the array as it is, new strides, a swizzle."""

    left: float
    array: SharedArray
    stride: tuple[int, ...]
    swizzle: Swizzle | None


def proposals(usage: Usage) -> tuple[Proposal, ...]:
    """Return layouts that remove the conflicts of an array: a padded one, a swizzled one, or both.

    If none removes all of them, it is the one that removes most, if that is at least half.
    """
    before = usage.excess(usage.array.stride, usage.array.swizzle)
    if not before or not usage.fits():
        return ()
    best = best_candidates(usage)
    removing = [candidate for candidate in best if candidate.left == 0]
    best = removing or sorted(best, key=lambda candidate: candidate.left)[:1]
    return tuple(_proposed(candidate, before) for candidate in best if candidate.left <= WORTHWHILE * before)


def best_candidates(usage: Usage) -> list[Candidate]:
    """Return the padded layout and the swizzle that leave least; of equally good ones, the first tried."""
    best: list[Candidate] = []
    for tried in (_paddings(usage), _swizzles(usage)):
        candidates: list[Candidate] = []
        for candidate in tried:
            candidates.append(candidate)
            if candidate.left == 0:
                break
        best += sorted(candidates, key=lambda candidate: candidate.left)[:1]
    return best


def _proposed(candidate: Candidate, before: float) -> Proposal:
    array, swizzle = candidate.array, candidate.swizzle
    numbers = (swizzle.bits, swizzle.base, swizzle.shift) if swizzle is not None else None
    text = words_for(array, candidate.stride, swizzle)
    return Proposal(
        array.name, array.element_bytes, numbers, array.shape, candidate.stride, candidate.left / before, text
    )


def _paddings(usage: Usage) -> Iterator[Candidate]:
    """Try longer rows: along the extents of the array or, if it has one only, along distances of lanes."""
    array = usage.array
    if array.nested or array.swizzle is not None or not array.may_grow:
        return
    shaped = [array]
    if len(array.shape) == 1:
        lengths = {
            row // array.element_bytes
            for access in usage.observed
            if cost_of(access.requests).excess
            for row in rows_of(access.requests)
            if row % array.element_bytes == 0
        }
        shaped = [array.in_rows(length) for length in sorted(lengths)[:MOST_ROWS] if length < array.elements]
    step = max(usage.unit, 4)
    for in_shape in shaped:
        in_rows = replace(usage, array=in_shape)
        for level, padding in product(range(1, len(in_shape.shape)), range(step, MOST_PADDING + 1, step)):
            stride = _padded(in_shape, level, padding, usage.unit)
            if stride is None or padding % array.element_bytes:
                continue
            last = sum((extent - 1) * step for extent, step in zip(in_shape.shape, stride, strict=True)) + 1
            if usage.static_bytes - array.size + last * array.element_bytes > STATIC_SHARED_BYTES:
                continue
            yield Candidate(in_rows.excess(stride, None), in_shape, stride, None)


def _padded(array: SharedArray, level: int, padding: int, unit: int) -> tuple[int, ...] | None:
    """Return strides of which the `level`-th smallest is some bytes longer; None if accesses would break."""
    order = sorted(
        range(len(array.shape)), key=lambda number: (array.stride[number], array.shape[number] > 1)
    )
    place = order[level]
    old, below = array.stride[place], array.stride[order[level - 1]]
    elements = padding // array.element_bytes
    if array.shape[place] == 1 or old * array.element_bytes % unit or elements % below or elements == 0:
        return None
    stride = list(array.stride)
    for number in order[level:]:
        if array.stride[number] % old:
            return None
        stride[number] = array.stride[number] // old * (old + elements)
    return tuple(stride)


def _swizzles(usage: Usage) -> Iterator[Candidate]:
    """Try swizzles of an element's index that keep the largest access together, in the array's elements."""
    array = usage.array
    size = max(usage.unit, 4)
    unit = size // array.element_bytes
    if usage.strided or unit == 0 or unit & (unit - 1) or size > WAVEFRONT // 2:
        return
    base = unit.bit_length() - 1
    most = (WAVEFRONT // size).bit_length() - 1
    highest = array.elements.bit_length()
    for bits in range(1, most + 1):
        for shift in range(bits, highest - base):
            if array.elements % (1 << (base + bits)):
                continue
            swizzle = Swizzle(bits, base, shift)
            if (not array.may_grow and array.elements % swizzle.size()) or not can_be_written(array, swizzle):
                continue
            yield Candidate(usage.excess(array.stride, swizzle), array, array.stride, swizzle)


def in_words(proposals: Sequence[Proposal]) -> str:
    """Return proposals as the remedy that a verdict names; empty without any."""
    if not proposals:
        return ""
    named = ", or ".join(proposal.text for proposal in proposals) + ("," if len(proposals) > 1 else "")
    left = proposals[0].left
    return f"{named} removes it" if left == 0 else f"{named} leaves {100 * left:.0f} % of it"
