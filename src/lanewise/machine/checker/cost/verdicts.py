"""Judges what a launch cost: which lines waste wavefronts, sectors, instructions or barriers, by rank."""

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

#: A line is reported if it wastes this part of all wavefronts, sectors or instructions of the launch.
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
    verdicts = [
        *judge.bank_conflicts(),
        *judge.uncoalesced(),
        *judge.divergence(),
        *judge.local_memory(),
        *judge.predicated_off(),
        *judge.barriers(),
    ]
    return sorted(verdicts, key=lambda verdict: -verdict.cycles)


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
        for item in items:
            groups.setdefault(key(item), []).append(item)
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
        subject = expression(source_text(self.module, source), name, writes) if source else ""
        words = f"{access.located.space} {access.located.access.verb}"
        return subject or name or self._statement(access.op) or words

    # shared memory ------------------------------------------------------------------------------------------

    def bank_conflicts(self) -> Iterator[Inefficiency]:
        """Judge requests to shared memory that take more wavefronts than they have to."""
        # An asynchronous copy of 16 bytes goes past L1: how it is written does not depend on banks alone.
        shared = [
            access
            for access in self.costs.accesses
            if access.wavefronts and not (access.located.access.asynchronous and access.located.size == 16)
        ]
        total = sum(access.wavefronts for access in shared)
        layouts = ArrayLayouts(self.costs)
        groups = self._grouped(
            shared, lambda access: (self.place(access.op), self._variable(access), access.located.access.kind)
        )
        for group in groups:
            wavefronts = sum(access.wavefronts for access in group)
            ideal = sum(access.ideal for access in group)
            wasted = wavefronts - ideal
            if wasted < LEAST_SHARE * total or wavefronts < CONFLICT_RATIO * ideal:
                continue
            worst = max(group, key=lambda access: access.wavefronts - access.ideal)
            ways = wavefronts / ideal
            words = f"{ways:.1f}-way bank conflict on average"
            if abs(ways - round(ways)) < 0.05:
                words = f"{ways:.0f}-way bank conflict"
            variable = self._variable(worst)
            name = plain_name(variable.name) if variable is not None else ""
            proposals = layouts.proposals_for(worst)
            made = self._made(
                "bank conflict", worst.op, self._subject(worst, name), words, wasted, total, "wavefronts",
                WAVEFRONT_CYCLES * wasted, in_words(proposals) or layouts.why_none(worst),
            )  # fmt: skip
            yield replace(made, proposals=proposals)

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
        touched = [access for access in self.costs.accesses if access.sectors]
        total = sum(access.sectors for access in touched)
        for group in self._grouped(
            touched, lambda access: (self.place(access.op), access.located.access.kind, self._array(access))
        ):
            sectors = sum(access.sectors for access in group)
            least = sum(access.least_sectors for access in group)
            wasted = sectors - least
            if wasted < LEAST_SHARE * total or sectors < SECTOR_RATIO * least:
                continue
            worst = max(group, key=lambda access: access.sectors - access.least_sectors)
            requests = sum(access.requests for access in group)
            figures = f"{sectors / requests:.3g} sectors a request where {least / requests:.3g} would do"
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
        for group in self._grouped(divergent_branches(self.costs), lambda branch: self.line(branch.op)):
            wasted = sum(branch.wasted for branch in group)
            few = all(branch.in_a_small_launch for branch in group)
            if wasted < (LEAST_SHARE_OF_FEW if few else LEAST_SHARE) * total:
                continue
            worst = max(group, key=lambda branch: branch.wasted)
            times, of = sum(branch.diverged for branch in group), sum(branch.executed for branch in group)
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
        local = [access for access in self.costs.accesses if "local" in access.op.source.modifiers]
        for group in self._grouped(local, lambda access: (self.place(access.op), access.located.access.kind)):
            requests = sum(access.requests for access in group)
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
        guarded = [access for access in self.costs.accesses if access.op.guard is not None]
        first = {access.op.site: access for access in reversed(guarded)}
        for group in self._grouped(first.values(), lambda access: self.place(access.op)):
            times, threads = (int(count) for count in sum(came[access.op.site] for access in group))
            off = threads - sum(access.threads for access in group)
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
    distances: set[int] = set()
    for offsets, lanes in zip(requests.offsets, requests.lanes, strict=True):
        both = lanes[1:] & lanes[:-1]
        distances |= {int(distance) for distance in np.diff(offsets)[both]}
    distances.discard(0)
    if len(distances) != 1:
        return ""
    (distance,) = distances
    return f"neighbouring lanes are {abs(distance):,} bytes apart"
