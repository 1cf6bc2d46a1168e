"""Judges what a launch cost: which lines waste wavefronts, sectors, instructions or barriers, by rank."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from lanewise.isa.multiprocessor import MOST_REGISTERS
from lanewise.machine import abi
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.cost.bank_proposals import ArrayLayouts, in_words
from lanewise.machine.checker.cost.launch_costs import AccessCost, LaunchCosts
from lanewise.machine.checker.cost.needless_barriers import needless_barriers
from lanewise.machine.checker.cost.requests import Requests
from lanewise.machine.checker.findings import Inefficiency, ReportContents
from lanewise.machine.checker.records import SiteRow
from lanewise.machine.program.basic_blocks import BasicBlock, postdominators, until_lanes_meet
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line, source_text
from lanewise.machine.runtime.shared_names import plain_name
from lanewise.ptx import Entry, Loc, Resources, Shape

#: Indices longer than this are left out of a message.
MOST_CHARACTERS = 12
_INDEXED = re.compile(r"([A-Za-z_]\w*(?:(?:\.|->)\w+)*)\s*(?=\[)")
_ASSIGNMENT = re.compile(r"(?<![=!<>+\-*/%&|^])(?:=|[+\-*/%&|^]=|<<=|>>=)(?!=)")


def expression(text: str, name: str, writes: bool) -> str:
    """Return the indexed expression that a line reads or writes, shortened; empty if it is not plain which.

    `name` is that of the variable; if it is empty, any will do.

    >>> line = "out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];"
    >>> expression(line, "tile", False), expression(line, "", True)
    ('tile[threadIdx.x][…]', 'out[…]')
    """
    assigned = _ASSIGNMENT.search(text)
    if assigned is None:
        sides = text
    elif writes:
        sides = text[: assigned.start()]
    else:
        sides = text[assigned.end() :] if assigned[0] == "=" else text
    uses = [use for use in _indexed(sides) if not name or use[0].split(".")[0] == name]
    if writes and assigned is not None:
        uses = uses[-1:]  # what stands next to the sign of an assignment
    if name and not uses:
        uses = [use for use in _indexed(text) if use[0].split(".")[0] == name]
    if len({use[0] for use in uses}) != 1:
        return ""
    variable, indices = uses[0]
    return variable + "".join(f"[{index if len(index) <= MOST_CHARACTERS else '…'}]" for index in indices)


def _indexed(text: str) -> list[tuple[str, list[str]]]:
    """Return the names in a text that are indexed, each with its indices; not those inside an index."""
    uses = []
    position = 0
    while (match := _INDEXED.search(text, position)) is not None:
        indices, position = [], match.end()
        while text[position : position + 1] == "[":
            end = _closing(text, position)
            indices.append(text[position + 1 : end].strip())
            position = end + 1
        uses.append((match[1], indices))
    return uses


def _closing(text: str, start: int) -> int:
    """Return where a bracket is closed; the end of the text if it is not."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


#: A branch is judged if lanes parted at it so often, and in such a part of its executions.
LEAST_DIVERGED, DIVERGED_SHARE = 16, 0.1
#: In a small launch it is judged, with a higher threshold of what is wasted, if lanes parted in most
#: executions: a last warp that is not full is no divergent branch.
FEW_DIVERGED, MOST_EXECUTIONS = 4, 0.5


class DivergentBranch(NamedTuple):
    """A branch at which lanes parted, and the warp instructions that were wasted until they met again."""

    op: Op
    executed: int
    diverged: int
    wasted: float


def divergent_branches(costs: LaunchCosts) -> Iterator[DivergentBranch]:
    """Return the branches at which lanes parted often.

    A basic block that several of them lead to counts for the one that leads to the fewest.
    """
    branches: list[tuple[BasicBlock, dict[int, BasicBlock]]] = []
    known: dict[int, int] = {}
    for block in costs.kernel.blocks:
        op = block.op
        if op is None or block.end is not BlockEnd.JUMP:
            continue
        executed, diverged = int(costs.ran.runs[block.number, 0]), int(costs.ran.diverged[op.site])
        often = diverged >= LEAST_DIVERGED and diverged >= DIVERGED_SHARE * executed
        if often or (diverged >= FEW_DIVERGED and diverged > MOST_EXECUTIONS * executed):
            known = known or postdominators(costs.kernel.blocks)
            branches.append((block, until_lanes_meet(block, known)))
    wasted: dict[int, float] = {block.number: 0.0 for block, _ in branches}
    leading: dict[int, tuple[int, int]] = {}
    for start, region in branches:
        for number in region:
            leading[number] = min(
                leading.get(number, (len(region), start.number)), (len(region), start.number)
            )
    for block in costs.kernel.blocks:
        times, threads = (int(count) for count in costs.ran.runs[block.number])
        if block.number in leading and times:
            wasted[leading[block.number][1]] += len(block.executed) * (times - threads / abi.LANES)
    for block, _ in branches:
        assert block.op is not None
        executed, diverged = int(costs.ran.runs[block.number, 0]), int(costs.ran.diverged[block.op.site])
        yield DivergentBranch(block.op, executed, diverged, wasted[block.number])


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
        writes = access.located.access.writes
        subject = expression(self._text(access.op), name, writes)
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
            low, high = access.samples.extent
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
            few = all(branch.diverged < LEAST_DIVERGED for branch in group)  # of a small launch
            if wasted < (LEAST_SHARE_OF_FEW if few else LEAST_SHARE) * total:
                continue
            worst = max(group, key=lambda branch: branch.wasted)
            times, of = sum(branch.diverged for branch in group), sum(branch.executed for branch in group)
            words = f"divergent branch, in {times:,} of {of:,} executions"
            yield self._made(
                "divergent branch", worst.op, self._statement(worst.op), words, wasted, total, "instructions",
                INSTRUCTION_CYCLES * wasted,
            )  # fmt: skip

    def _text(self, op: Op) -> str:
        """Return the line of the source that an instruction came from; empty if it is not at hand."""
        source = self.kernel.sources[op.site]
        return source_text(self.module, source) if source else ""

    def _statement(self, op: Op) -> str:
        """Return the line of the source that an instruction came from, shortened; empty if not at hand."""
        text = self._text(op).rstrip("{:; ")
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
            op.site: self.costs.ran.runs[block.number]
            for block in self.kernel.blocks
            for op in block.executed
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


#: Cycles of a load or store of 4 bytes by a warp, which reaches L1.
_SPILL_CYCLES = 8.0


def spills(entry: Entry, used: Resources, shape: Shape) -> list[Inefficiency]:
    """Return a verdict on the bytes that each thread spills; none if it spills nothing."""
    moved = used.spill_stores + used.spill_loads
    if not moved:
        return []
    loc = next((statement for statement in entry.body if isinstance(statement, Loc)), None)
    source = source_line(entry.module, loc) if loc is not None else None
    words = (
        f"ptxas spills registers on {used.arch}: {used.spill_stores} bytes of stores and "
        f"{used.spill_loads} of loads a thread, with {used.registers} registers"
    )
    cycles = _SPILL_CYCLES * moved / 4 * shape.warps * shape.blocks
    return [
        Inefficiency(
            "spills", entry.demangled, words, entry.function.line, f".entry {entry.name}", source, moved, 0,
            "bytes", _remedy(used, shape), cycles,
        )
    ]  # fmt: skip


def _remedy(used: Resources, shape: Shape) -> str:
    """Return what may end spills; more registers only if a thread can have them in blocks of this size."""
    more = (
        used.registers < MOST_REGISTERS and replace(used, registers=MOST_REGISTERS).threads >= shape.threads
    )
    return "keep fewer values at a time" + (", or let a thread have more registers" if more else "")


def judged_with_spills(
    report: ReportContents, entry: Entry, used: Resources, shape: Shape
) -> list[Inefficiency]:
    """Return what wastes time in a launch, spills included, the most expensive first."""
    return sorted([*report.performance, *spills(entry, used, shape)], key=lambda verdict: -verdict.cycles)
