"""Layouts of shared memory without bank conflicts: padded rows and swizzles, tried on observed addresses.

A layout is proposed only if it keeps every access whole: the bytes that one lane reads or writes at a time
stay neighbours, at a multiple of their number, whatever index they begin at. It is written as the source of
the kernel would: a declaration, an index expression, an argument of lw.shared.
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
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.cost.launch_costs import AccessCost, LaunchCosts
from lanewise.machine.checker.cost.requests import LANES, WAVEFRONT, Lanes, Offsets, Requests, cost_of
from lanewise.machine.checker.cost.shared_arrays import SharedArray, shared_arrays
from lanewise.machine.checker.findings import Proposal
from lanewise.machine.checker.records import SiteRow
from lanewise.machine.checker.site_table import by_async_proxy, first_access_row
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Op

#: Rows of no more bytes are the distance of neighbouring lanes in an array of one dimension.
LONGEST_STRIDE = 16
_PLURALS = {"f32": "floats", "f64": "doubles", "s32": "ints", "u32": "words", "b32": "words"}


def words_for(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    """Return how the source of an array writes it with other strides, or with a swizzle."""
    match array.source:
        case "python":
            return _python(array, stride, swizzle)
        case "cuda":
            return _cuda(array, stride, swizzle)
    if swizzle is not None:
        of = " of its byte offsets" if array.element_bytes == 1 else ""
        return f"Swizzle({swizzle.bits},{swizzle.base},{swizzle.shift}){of}"
    length = max(stride)
    kind = "row" if length * array.element_bytes > LONGEST_STRIDE + array.element_bytes else "stride"
    return f"a {kind} of {length} {_elements(array)}"


def _elements(array: SharedArray) -> str:
    if array.element_bytes == 1:
        return "bytes"
    return _PLURALS.get(array.element, f"elements of {array.element_bytes} bytes")


def _python(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    if swizzle is not None:
        return f"swizzle=lw.Swizzle({swizzle.bits}, {swizzle.base}, {swizzle.shift}) for {array.name}"
    return f"lw.Layout({array.shape}, {stride}) for {array.name}"


def _cuda(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    """Return a declaration with longer rows, or an index expression."""
    if swizzle is not None:
        return _swizzled_index(array, swizzle)
    if stride[0] == 1 < stride[-1]:  # an array of one dimension, seen as rows
        row, longer = array.shape[0], max(stride)
        by = f" * {longer - row}" if longer - row > 1 else ""
        elements = array.shape[1] * longer
        return f"{array.name}[i + i / {row}{by}] of {array.element} {array.name}[{elements}]"
    extents = [array.shape[0]]
    for number in range(1, len(stride)):
        extents.append(stride[number - 1] // stride[number])
    return f"{array.element} {array.name}{''.join(f'[{extent}]' for extent in extents)}"


def can_be_written(array: SharedArray, swizzle: Swizzle) -> bool:
    """Return whether the source can swizzle an index of the array where it stands.

    In CUDA C++ an array of several extents is indexed by row and column: the columns have to be a power of
    two, the bits that change have to be those of a column, and the others those of the row.
    """
    if array.source != "cuda" or len(array.shape) == 1:
        return True
    columns = array.shape[-1]
    low = columns.bit_length() - 1
    over = swizzle.base + swizzle.shift - low
    if columns != 1 << low or swizzle.base + swizzle.bits > low or over < 0:
        return False
    return len(array.shape) == 2 or array.shape[-2] % (1 << (over + swizzle.bits)) == 0


def _swizzled_index(array: SharedArray, swizzle: Swizzle) -> str:
    """Return the expression by which an element is indexed."""
    names = ["i"] if len(array.shape) == 1 else [*"hgfedcba"[: len(array.shape) - 2], "i", "j"]
    low = (array.shape[-1].bit_length() - 1) if len(array.shape) > 1 else 0
    over = swizzle.base + swizzle.shift - low
    source = f"i >> {over}" if over else "i"
    moved = f"({source} & {(1 << swizzle.bits) - 1})"
    names[-1] += f" ^ ({moved} << {swizzle.base})" if swizzle.base else f" ^ {moved}"
    return f"{array.name}{''.join(f'[{name}]' for name in names)}"


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


class ArrayLayouts:
    """The arrays of one launch, with what was observed of each; a proposal is made once for an array."""

    def __init__(self, costs: LaunchCosts) -> None:
        self.costs, self.program = costs, costs.kernel.program
        self._made: dict[SharedArray, tuple[Proposal, ...]] = {}

    def proposals_for(self, access: AccessCost) -> tuple[Proposal, ...]:
        """Return layouts with fewer conflicts for the array that an access was made to; none if unsure.

        A kernel of the language that computes with pointers into the array gets none: a layout counts for
        its indices alone.
        """
        array = self._array(access)
        if array is None or array.by_pointers:
            return ()
        if array not in self._made:
            usage = self._usage(array)
            self._made[array] = proposals(usage) if usage is not None else ()
        return self._made[array]

    def why_none(self, access: AccessCost) -> str:
        """Return why no layout is proposed for the array of an access, if its pointers are the reason."""
        array = self._array(access)
        if array is None or not array.by_pointers:
            return ""
        return (
            f"no layout is proposed for {array.name}: the kernel computes with pointers into it, and only "
            f"indices, as in {array.name}[…], follow a layout"
        )

    def _array(self, access: AccessCost) -> SharedArray | None:
        """Return the array that an access was made to; None if unsure.

        The asynchronous proxy reads and writes whole tiles with swizzles of its own, and does not say which:
        in a kernel with such instructions nothing is proposed.
        """
        if access.samples is None or any(by_async_proxy(op) for op in self.program.sites):
            return None
        low, high = access.samples.extent
        return next((array for array in self.arrays if array.holds(low, high)), None)

    @cached_property
    def arrays(self) -> list[SharedArray]:
        """The arrays that the kernel declares."""
        accessed: dict[Symbol, set[str]] = {}
        for variable, _, op_type, _ in self._static:
            accessed.setdefault(variable, set()).add(op_type)
        for access in self.costs.accesses:
            if access.samples is not None:
                low, high = access.samples.extent
                for variable in shared_variables(self.program):
                    if variable.address < high and low < variable.address + variable.size:
                        accessed.setdefault(variable, set()).add(_type(access.op, access.located.size))
        return shared_arrays(self.program, accessed)

    @cached_property
    def _static(self) -> list[tuple[Symbol, int, str, bool]]:
        """For accesses to variables, also those that were not made: variable, bytes, type, if in strides."""
        variables = {
            (shared_variable.address, shared_variable.address + shared_variable.size): shared_variable
            for shared_variable in shared_variables(self.program)
        }
        table = self.costs.kernel.watched
        accesses = []
        for op in self.program.sites:
            for row, located in enumerate(watched_accesses(op), first_access_row(op)):
                bounds = tuple(int(table[row, field // 8]) for field in (SiteRow.lowest, SiteRow.highest))
                variable = variables.get((bounds[0], bounds[1]))
                if variable is not None:
                    strided = located.access.size is Size.TILE_LINE
                    size = 16 if strided else located.size
                    accesses.append((variable, size, _type(op, size), strided))
        return accesses

    def _usage(self, array: SharedArray) -> Usage | None:
        """Return how an array is used; None if an access reaches beyond it, or is not known to be in it."""
        observed, sizes, strided = [], [array.element_bytes], False
        for variable, size, _, in_strides in self._static:
            if variable.address <= array.start < variable.address + max(variable.size, 1):
                sizes.append(size)
                strided |= in_strides
        for access in self.costs.accesses:
            if access.samples is None:
                continue
            low, high = access.samples.extent
            if high <= array.start or array.start + array.size <= low:
                continue
            if not array.holds(low, high):
                return None
            strided |= access.located.access.size is Size.TILE_LINE
            sizes.append(16 if access.samples.by_rows else access.samples.size)
            if access.located.access.asynchronous and access.located.size == 16:
                continue  # it goes past L1, and its conflicts are not counted
            observed.append(Observed(access.samples, access.requests / len(access.samples.offsets)))
        return Usage(array, observed, max(sizes), strided, self.program.shared_bytes)


def _type(op: Op, size: int) -> str:
    """Return the type of the elements that an access of some bytes has."""
    return op.types[-1] if op.types else f"b{8 * size}"
