"""What a check tells: findings, what wastes time, the counters of a line, and the contents of a report.

`triage.py` decides what is a finding, `cost/` what wastes time; `reporting/` writes reports in other forms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.hints import Items
from lanewise.machine.program.source_lines import short_place
from lanewise.ptx.model.names import demangle

if TYPE_CHECKING:
    from lanewise.machine.checker.mends import Race
    from lanewise.ptx import Module


#: Whether reports of checks say which bytes were accessed; then all reads are put on record.
WANTED: ContextVar[bool] = ContextVar("accesses wanted", default=False)

Marks = npt.NDArray[np.bool_]


class AllocationAccesses(NamedTuple):
    """What was accessed of an allocation: marks of its cells, each of some bytes, from an address on.

    Strong accesses are atomic operations and others at the scope of the GPU.
    """

    allocation: int
    first: int
    cell_bytes: int
    reads: Marks
    writes: Marks
    strong_reads: Marks
    strong_writes: Marks


Three = tuple[int, int, int]
#: An error is wrong on every GPU; advice is about what PTX leaves undefined although GPUs are known to do it.
Severity = Literal["error", "advice"]


@dataclass(frozen=True)
class Finding:
    """Something wrong in a kernel: what it is, where, which thread did it first, and how often."""

    kind: str
    message: str
    line: int
    text: str
    source: str | None = None
    thread: Three | None = None
    block: Three | None = None
    address: int | None = None
    allocation: str | None = None
    count: int = 1
    other: Finding | None = None
    severity: Severity = "error"
    #: For inlined code: its own line of the source, then the line of each call, up to the kernel.
    chain: tuple[str, ...] = ()
    #: The schedule under which it showed, such as "reverse" or "seed 1"; None if it did in order.
    schedule: str | None = None
    #: What mends it, such as "`__syncthreads()` between line 41 and line 57"; empty if nothing is known.
    mend: str = ""
    #: The text of the line of the source.
    quote: str = ""
    #: Of a race: the pairs of accesses that its mend has to order.
    races: tuple[Race, ...] = field(default=(), repr=False, compare=False)

    @property
    def title(self) -> str:
        """The kind of the finding, followed by its severity unless it is an error: "race (advice)"."""
        return self.kind if self.severity == "error" else f"{self.kind} ({self.severity})"

    @property
    def place(self) -> str:
        """The file and line of the source, its path from the current folder; or the line of the PTX."""
        return short_place(self.source) if self.source else f"PTX:{self.line}" if self.line else ""

    @property
    def location(self) -> str:
        """The place, and the text of that line."""
        text = self.quote if self.source else elided(self.text)
        return f"{self.place}: {text}" if text else self.place

    @property
    def annotation(self) -> str:
        """What is wrong, who did it, and what mends it in one line, for programs that show the place."""
        where = f" by thread {self.thread} in block {self.block}" if self.thread else ""
        return f"{self.message}{where}" + (f"; mend: {self.mend}" if self.mend else "")

    @property
    def remark(self) -> str:
        """What is wrong and what mends it in one line, for beside the line of the source."""
        return f"{self.title}: {self.message}" + (f"; mend: {self.mend}" if self.mend else "")

    def in_words(self, ptx: bool = False, inlined: bool = False) -> str:
        """Return the finding in words: the line, what is wrong, who did it, and what mends it.

        With `ptx`, the instructions of the PTX and the address follow; with `inlined`, the calls through
        which the line was inlined.
        """
        lines = [self.location] if self.line else []
        lines.append(f"{self.title}: {self.message}")
        lines += self._who("by", f" in {self.allocation}" if self.allocation else "")
        if self.other is not None:
            lines.append(
                f"    and {self.other.message}{f', {self.other.location}' if self.other.line else ''}"
            )
            lines += self.other._who("by", "")
        if self.mend:
            lines.append(f"    mend: {self.mend}")
        if self.count > 1:
            lines.append(f"    {self.count} times")
        if self.schedule is not None:
            lines.append(f"    under the schedule {self.schedule}")
        sides = [self, self.other] if self.other is not None else [self]
        if ptx and self.address is not None:
            lines.append(f"    address {self.address:#x}")
        for side in sides if ptx else ():
            if side.line:
                lines.append(f"    PTX line {side.line}: {elided(side.text)}")
        for side in sides if inlined else ():
            if side.chain:
                lines.append(f"    {', inlined at '.join(map(short_place, side.chain))}")
        return "\n".join(lines)

    def _who(self, by: str, where: str) -> list[str]:
        if self.thread is None:
            return [f"    {where.strip()}"] if where else []
        return [f"    {by} thread {self.thread} in block {self.block}{where}"]

    def __str__(self) -> str:
        return self.in_words()


_REGISTERS = re.compile(r"\{([^{}]*,[^{}]*)\}")
#: Registers of a list that are written out.
_MOST_REGISTERS = 4


def elided(text: str) -> str:
    """Return an instruction with long lists of registers cut to their ends.

    >>> elided("wgmma.mma_async {%f0, %f1, %f2, %f3, %f4, %f5}, %rd1, {%r1, %r2};")
    'wgmma.mma_async {%f0, …, %f5}, %rd1, {%r1, %r2};'
    """

    def ends(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split(",")]
        return match[0] if len(names) <= _MOST_REGISTERS else f"{{{names[0]}, …, {names[-1]}}}"

    return _REGISTERS.sub(ends, text)


@dataclass(frozen=True)
class Proposal:
    """Another layout of an array in shared memory, tried on the addresses that were observed.

    All numbers count elements of the array. `text` is the layout as the source of the kernel writes it.
    """

    array: str
    element_bytes: int
    #: Bits, base and shift of a swizzle of an element's index; None if the array becomes longer instead.
    swizzle: tuple[int, int, int] | None
    #: Extents and strides. An array of one extent that is to become longer has two here: an index counts
    #: along the first one first.
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    #: The part of the conflicts of the array that stays.
    left: float
    text: str


@dataclass(frozen=True)
class Inefficiency:
    """Something in a kernel that wastes time: what it is, where, how much of what is wasted, and a remedy."""

    kind: str
    #: What it is about, such as `tile[threadIdx.x][…]`.
    subject: str
    #: What is wrong with it, such as "32-way bank conflict".
    message: str
    line: int
    text: str
    source: str | None
    wasted: int
    #: All of the launch; 0 if that is not known.
    total: int
    #: What is counted: wavefronts, sectors, instructions.
    unit: str
    #: What would mend it, tried on the addresses that were observed; empty if nothing is known.
    remedy: str = ""
    #: The cycles that it is estimated to cost, by which a report ranks.
    cycles: float = 0.0
    #: The layouts that the remedy of a bank conflict names.
    proposals: tuple[Proposal, ...] = ()

    @property
    def location(self) -> str:
        """The line of the source, or of the PTX if the source is not known."""
        return short_place(self.source) if self.source else f"PTX:{self.line}"

    @property
    def share(self) -> float:
        """The part of all that is wasted."""
        return self.wasted / self.total if self.total else 0.0

    @property
    def description(self) -> str:
        """It in one line, without the place."""
        subject = f"{self.subject}: " if self.subject else ""
        cost = f", {self.wasted:,} of {self.total:,} {self.unit} wasted ({100 * self.share:.0f} %)"
        cost = cost if self.total else ""
        return f"{subject}{self.message}{cost}" + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        return f"{self.location}  {self.description}"


@dataclass(frozen=True)
class Line:
    """The counters of one line of the PTX."""

    line: int
    text: str
    source: str | None
    counters: Mapping[str, int | float]


@dataclass(frozen=True)
class ReportContents:
    """The contents of a report; `Report` adds the forms in which it is read."""

    kernel: str
    findings: list[Finding]
    counters: Mapping[str, int | float]
    notes: list[str] = field(default_factory=list)
    #: Judges what wastes time, and lists the counters of lines, when that is first asked for.
    judge: Callable[[], list[Inefficiency]] | None = field(default=None, repr=False, compare=False)
    list_lines: Callable[[], list[Line]] | None = field(default=None, repr=False, compare=False)
    #: The module of the kernel, for the text of its source and of its PTX.
    module: Module | None = field(default=None, repr=False, compare=False)
    #: Whether the launch ran to its end: otherwise the counters are those until the fault.
    ended: bool = True
    #: The bytes that the launch has accessed, if somebody wants to know.
    accesses: tuple[AllocationAccesses, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", Items(self.findings))

    @property
    def counted(self) -> str:
        """How many counters there are, and whether they are those of the whole launch."""
        return f"{len(self.counters)} counters" + ("" if self.ended else " until the fault")

    @property
    def title(self) -> str:
        """The name of the kernel as C++ writes it; `kernel` is that in the PTX."""
        return demangle(self.kernel)

    @cached_property
    def performance(self) -> list[Inefficiency]:
        """What wastes time, the most expensive first; it does not count for `ok`."""
        return Items(self.judge() if self.judge is not None else ())

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of the PTX that ran, with their counters."""
        return self.list_lines() if self.list_lines is not None else []

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: what is computed later is computed before, since compiled code stays."""
        computed = {"performance": self.performance, "lines": self.lines}
        return {**self.__dict__, **computed, "judge": None, "list_lines": None, "module": None}

    @property
    def ok(self) -> bool:
        """Whether no finding is an error; findings that are only advice do not count."""
        return all(finding.severity != "error" for finding in self.findings)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def summary(self) -> str:
        """How many findings there are of each kind, and how many things waste time, in words."""
        kinds = Counter(finding.title for finding in self.findings)
        total = len(self.findings)
        by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        findings = f"{total} finding{'s' if total != 1 else ''} ({by_kind})" if total else "nothing found"
        count = len(self.performance)
        if not count:
            return findings
        slow = f"{count} thing{'s' if count != 1 else ''} that cost{'s' if count == 1 else ''} time"
        return f"{findings}, {slow}" if total else f"nothing wrong, {slow}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, strings and numbers, for JSON."""
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "ended": self.ended,
            "findings": [asdict(finding) for finding in self.findings],
            "counters": dict(self.counters),
            "lines": [asdict(line) | {"counters": dict(line.counters)} for line in self.lines],
            "notes": list(self.notes),
            "performance": [asdict(verdict) | {"location": verdict.location} for verdict in self.performance],
        }


def number_text(value: float) -> str:
    """Return a counter as reports show it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
