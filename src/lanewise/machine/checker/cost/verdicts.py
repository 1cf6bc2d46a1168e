"""Judges what a launch cost: which lines waste wavefronts, sectors, instructions or barriers, by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.cost.array_layouts import ArrayLayouts
from lanewise.machine.checker.cost.bank_proposals import in_words
from lanewise.machine.checker.cost.divergence_costs import LEAST_DIVERGED, divergent_branches
from lanewise.machine.checker.cost.launch_costs import AccessCost, LaunchCosts
from lanewise.machine.checker.cost.needless_barriers import needless_barriers
from lanewise.machine.checker.cost.requests import Requests
from lanewise.machine.checker.cost.source_expressions import expression, source_text
from lanewise.machine.checker.records import SiteRow
from lanewise.machine.checker.report import Inefficiency
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.shared_names import plain_name

#: A line is told of if it wastes this part of all wavefronts, sectors or instructions of the launch.
LEAST_SHARE = 0.05
#: … and, if it ran only a few times, this part.
LEAST_SHARE_OF_FEW = 0.2
#: … and if it takes so many times what it would have to.
CONFLICT_RATIO, SECTOR_RATIO = 1.25, 1.5
#: Lanes of an access that are predicated off, as a part of all; it has to run LEAST_DIVERGED times too.
PREDICATED_SHARE = 0.25
#: Characters of a statement that are shown.
MOST_STATEMENT = 48
# Cycles by which verdicts are ranked: a wavefront, a sector that comes from L2, an instruction, a request to
# local memory, the wait at a barrier.
WAVEFRONT_CYCLES, SECTOR_CYCLES, INSTRUCTION_CYCLES, LOCAL_CYCLES, BARRIER_CYCLES = 1.0, 2.0, 1.0, 8.0, 20.0

T = TypeVar("T")


def performance(costs: LaunchCosts) -> list[Inefficiency]:
    """Return what wastes time in a launch, the most expensive first."""
    judge = _Judge(costs)
    found = [
        *judge.bank_conflicts(),
        *judge.uncoalesced(),
        *judge.divergence(),
        *judge.local_memory(),
        *judge.predicated_off(),
        *judge.barriers(),
    ]
    return sorted(found, key=lambda each: -each.cycles)


class _Judge:
    """The verdicts on one launch."""

    def __init__(self, costs: LaunchCosts) -> None:
        self.costs, self.kernel = costs, costs.kernel
        self.module, self.program = costs.kernel.module, costs.kernel.program
        self.variables = shared_variables(self.program)
        self._variables: dict[int, Symbol | None] = {}

    def place(self, op: Op) -> object:
        """Return the line of the source, which copies of an instruction share; None if it is not known.

        Without it, all accesses to one array count as copies: the compiler may have unrolled loops.
        """
        return self.kernel.sources[op.site]

    def line(self, op: Op) -> object:
        """Return the line of the source, or else of the PTX."""
        return self.kernel.sources[op.site] or op.line

    def _grouped(self, items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
        groups: dict[object, list[T]] = {}
        for each in items:
            groups.setdefault(key(each), []).append(each)
        return list(groups.values())

    def _made(
        self, kind: str, op: Op, subject: str, message: str, wasted: float, total: float, unit: str,
        cycles: float, remedy: str = "",
    ) -> Inefficiency:  # fmt: skip
        return Inefficiency(
            kind, subject, message, op.line, str(op.source), self.kernel.sources[op.site], round(wasted),
            round(total), unit, remedy, cycles,
        )  # fmt: skip

    def _subject(self, access: AccessCost, name: str = "") -> str:
        """Return the expression of the source that makes an access, or what it does in words."""
        source = self.kernel.sources[access.op.site]
        writes = access.located.access.writes
        found = expression(source_text(self.module, source), name, writes) if source else ""
        words = f"{access.located.space} {access.located.access.verb}"
        return found or name or self._statement(access.op) or words

    # shared memory ------------------------------------------------------------------------------------------

    def bank_conflicts(self) -> Iterator[Inefficiency]:
        """Judge requests to shared memory that take more wavefronts than they have to."""
        # An asynchronous copy of 16 bytes goes past L1: how it is written does not depend on banks alone.
        shared = [
            access
            for access in self.costs.accesses
            if access.wavefronts and not (access.located.access.asynchronous and access.located.size == 16)
        ]
        total = sum(each.wavefronts for each in shared)
        layouts = ArrayLayouts(self.costs)
        groups = self._grouped(
            shared, lambda each: (self.place(each.op), self._variable(each), each.located.access.kind)
        )
        for group in groups:
            taken, ideal = sum(each.wavefronts for each in group), sum(each.ideal for each in group)
            wasted = taken - ideal
            if wasted < LEAST_SHARE * total or taken < CONFLICT_RATIO * ideal:
                continue
            worst = max(group, key=lambda each: each.wavefronts - each.ideal)
            ways = taken / ideal
            words = f"{ways:.1f}-way bank conflict on average"
            if abs(ways - round(ways)) < 0.05:
                words = f"{ways:.0f}-way bank conflict"
            variable = self._variable(worst)
            name = plain_name(variable.name) if variable is not None else ""
            found = layouts.proposals_for(worst)
            made = self._made(
                "bank conflict", worst.op, self._subject(worst, name), words, wasted, total, "wavefronts",
                WAVEFRONT_CYCLES * wasted, in_words(found) or layouts.why_none(worst),
            )  # fmt: skip
            yield replace(made, proposals=found)

    def _variable(self, access: AccessCost) -> Symbol | None:
        """Return the shared variable that an access was made to; None if it is not known."""
        if access.row not in self._variables:
            self._variables[access.row] = self._find_variable(access)
        return self._variables[access.row]

    def _find_variable(self, access: AccessCost) -> Symbol | None:
        low, high = access.lowest, access.highest
        if not high and access.samples is not None:
            low, high = _range(access.samples)
        for variable in self.variables:
            if variable.address <= low and high <= variable.address + variable.size:
                return variable
        return None

    # global memory ------------------------------------------------------------------------------------------

    def uncoalesced(self) -> Iterator[Inefficiency]:
        """Judge requests to global memory that touch more sectors than their bytes would fill."""
        touched = [each for each in self.costs.accesses if each.sectors]
        total = sum(each.sectors for each in touched)
        for group in self._grouped(
            touched, lambda each: (self.place(each.op), each.located.access.kind, self._array(each))
        ):
            taken, least = sum(each.sectors for each in group), sum(each.least_sectors for each in group)
            wasted = taken - least
            if wasted < LEAST_SHARE * total or taken < SECTOR_RATIO * least:
                continue
            worst = max(group, key=lambda each: each.sectors - each.least_sectors)
            requests = sum(each.requests for each in group)
            figures = f"{taken / requests:.3g} sectors a request where {least / requests:.3g} would do"
            words = f"uncoalesced {worst.located.access.verb}, {figures}"
            yield self._made(
                "uncoalesced", worst.op, self._subject(worst), words, wasted, total, "sectors",
                SECTOR_CYCLES * wasted, _distance(worst.global_samples),
            )  # fmt: skip

    def _array(self, access: AccessCost) -> object:
        """Return the parameters that an address is made from."""
        return self.kernel.address_parameters.get(access.row)

    # instructions -------------------------------------------------------------------------------------------

    def divergence(self) -> Iterator[Inefficiency]:
        """Judge branches at which the lanes of a warp part."""
        total = self.costs.instructions
        for group in self._grouped(divergent_branches(self.costs), lambda each: self.line(each.op)):
            wasted = sum(each.wasted for each in group)
            few = all(each.in_a_small_launch for each in group)
            if wasted < (LEAST_SHARE_OF_FEW if few else LEAST_SHARE) * total:
                continue
            worst = max(group, key=lambda each: each.wasted)
            times, of = sum(each.diverged for each in group), sum(each.executed for each in group)
            words = f"divergent branch, in {times:,} of {of:,} executions"
            yield self._made(
                "divergent branch", worst.op, self._statement(worst.op), words, wasted, total, "instructions",
                INSTRUCTION_CYCLES * wasted,
            )  # fmt: skip

    def _statement(self, op: Op) -> str:
        """Return the line of the source that an instruction came from, shortened; empty if not at hand."""
        text = source_text(self.module, self.kernel.sources[op.site]).rstrip("{:; ")
        return text if len(text) <= MOST_STATEMENT else f"{text[: MOST_STATEMENT - 1]}…"

    def local_memory(self) -> Iterator[Inefficiency]:
        """Judge arrays of a thread that are indexed at run time and lie in local memory for that."""
        total = self.costs.instructions
        local = [each for each in self.costs.accesses if "local" in each.op.source.modifiers]
        for group in self._grouped(local, lambda each: (self.place(each.op), each.located.access.kind)):
            requests = sum(each.requests for each in group)
            if requests < LEAST_SHARE * total:
                continue
            verb = group[0].located.access.verb
            words = f"{verb} of local memory, for an array that is indexed at run time"
            remedy = "it can stay in registers only if the compiler knows every index, as in unrolled loops"
            yield self._made(
                "local memory", group[0].op, self._subject(group[0]), words, requests, total, "instructions",
                LOCAL_CYCLES * requests, remedy,
            )  # fmt: skip

    def predicated_off(self) -> Iterator[Inefficiency]:
        """Judge accesses whose guard does not hold for many of the lanes that come to them."""
        total = self.costs.instructions
        came = {
            op.site: self.costs.runs[block.number] for block in self.kernel.blocks for op in block.executed
        }
        guarded = [each for each in self.costs.accesses if each.op.guard is not None]
        first = {each.op.site: each for each in reversed(guarded)}
        for group in self._grouped(first.values(), lambda each: self.place(each.op)):
            times, threads = (int(each) for each in sum(came[each.op.site] for each in group))
            off = threads - sum(each.threads for each in group)
            wasted = off / 32
            if times < LEAST_DIVERGED or off < PREDICATED_SHARE * threads or wasted < LEAST_SHARE * total:
                continue
            words = f"{100 * off / threads:.0f} % of the lanes are predicated off"
            yield self._made(
                "predicated off", group[0].op, self._subject(group[0]), words, wasted, total, "instructions",
                INSTRUCTION_CYCLES * wasted,
            )  # fmt: skip

    # barriers -----------------------------------------------------------------------------------------------

    def barriers(self) -> Iterator[Inefficiency]:
        """Judge barriers of the block that keep nothing apart."""
        total = self.costs.instructions
        for group in self._grouped(needless_barriers(self.kernel, self.costs.arguments_overlap), self.line):
            wasted = sum(self.costs.row(op, SiteRow.requests) for op in group)
            if not wasted:
                continue
            words = "barrier that is not needed: no access before it conflicts with one after it"
            yield self._made(
                "barrier", group[0], self._statement(group[0]), words, wasted, total, "instructions",
                BARRIER_CYCLES * wasted,
            )  # fmt: skip


def _range(requests: Requests) -> tuple[int, int]:
    offsets = requests.offsets[requests.lanes]
    return int(offsets.min()), int(offsets.max()) + requests.size


def _distance(requests: Requests | None) -> str:
    """Return how far neighbouring lanes are apart, if they all are equally far."""
    if requests is None:
        return ""
    found: set[int] = set()
    for offsets, lanes in zip(requests.offsets, requests.lanes, strict=True):
        both = lanes[1:] & lanes[:-1]
        found |= {int(each) for each in np.diff(offsets)[both]}
    found.discard(0)
    if len(found) != 1:
        return ""
    (distance,) = found
    return f"neighbouring lanes are {abs(distance):,} bytes apart"
