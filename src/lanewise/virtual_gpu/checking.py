"""Which launches of a program are checked and how, and what was found in the whole program: `gpu.report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.machine.checker.findings import WANTED
from lanewise.machine.checker.report import Finding, Report
from lanewise.machine.errors import KernelFault
from lanewise.ptx.model.names import plain_name
from lanewise.virtual_gpu.order.stream_races import Access, AccessKind, ranges_of

if TYPE_CHECKING:
    from lanewise.launch import Configured
    from lanewise.machine.runtime.launch import Progress
    from lanewise.ptx import Entry

#: The name of the part of a report that is about the program, and not about one kernel.
PROGRAM = "the whole program"


def new_in_each(reports: Sequence[Report]) -> list[Report]:
    """Return the first report of each kernel, and of the others those that have something new, and only that.

    A finding is known by its kernel, kind and place.
    """
    seen: set[tuple[str, ...]] = set()
    kernels: set[str] = set()
    kept = []
    for report in reports:
        new = []
        for finding in report.findings:
            key = (report.kernel, finding.kind, str(finding.location))
            if key not in seen:
                seen.add(key)
                new.append(finding)
        if report.kernel not in kernels or new:
            own = copy(report)
            object.__setattr__(own, "findings", new)
            kept.append(own)
        kernels.add(report.kernel)
    return kept


@dataclass(frozen=True)
class ProgramReport:
    """The reports of all checked launches, each finding once for each kernel, and what is wrong beside them.

    `parts` has a report for each kernel, and one about streams and memory if there is anything to say.
    """

    launches: int
    checked: int
    kernels: int
    parts: list[Report] = field(repr=False)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all parts, in their order."""
        return [finding for report in self.parts for finding in report.findings]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(report.ok for report in self.parts)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def summary(self) -> str:
        """How much was checked and found, in a sentence."""
        errors = sum(finding.severity == "error" for finding in self.findings)
        advice = len(self.findings) - errors
        plain = self.launches - self.checked
        kernels = _counted(self.kernels, "kernel", "kernels")
        verb = "was" if self.checked == 1 else "were"
        return (
            f"{_counted(self.checked, 'launch', 'launches')} of {kernels} {verb} checked"
            + (f", {_counted(plain, 'other', 'others')} ran plainly" if plain else "")
            + f"; errors found: {errors}"
            + (f", advice: {advice}" if advice else "")
        )

    def save(self, path: str | Path) -> None:
        """Write the report to a file, in the form that its name ends in: .html, .json, .sarif or .txt."""
        from lanewise.machine.checker.report import save

        save(self.parts, Path(path))

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from lanewise.machine.checker.reporting.html import fragment

        return fragment(self.parts)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.parts), self.summary])


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def program_report(
    launches: int, reports: Sequence[Report], findings: Sequence[Finding], notes: Sequence[str]
) -> ProgramReport:
    """Return the report of a program: of its launches, and what was found and noted beside them."""
    parts = new_in_each(reports)
    if findings or notes:
        parts.append(Report(PROGRAM, list(findings), {}, list(notes)))
    return ProgramReport(launches, len(reports), len({report.kernel for report in reports}), parts)


def _no_progress(kernel: str) -> AbstractContextManager[Progress | None]:
    """Show nothing of how far a launch is."""
    return nullcontext()


@dataclass
class Checking:
    """How the launches of a program are checked.

    `only` are names of kernels, in which `*` stands for any text; `first` is how many launches are checked.
    With `fast` launches run plainly, and one that stops is checked again to say why. With `streams` races
    between launches, copies and fills on different streams are looked for.
    """

    only: Sequence[str] = ()
    first: int | None = None
    fast: bool = False
    streams: bool = False
    #: Options of every check, such as the schedules.
    options: dict[str, Any] = field(default_factory=dict)
    #: Returns what shows how far a launch of a kernel is, to be entered.
    progress: Callable[[str], AbstractContextManager[Progress | None]] = _no_progress
    count: int = 0

    def __post_init__(self) -> None:
        if self.fast and self.streams:
            raise LanewiseError(
                "races between streams are found by what launches access, which is not followed in plain "
                "launches: streams and fast exclude each other"
            )
        if self.first is not None and self.first < 1:
            raise LanewiseError(f"at least the first launch is checked, not the first {self.first}")

    def takes(self, entry: Entry) -> bool:
        """Return whether a launch of a kernel is to be checked; it is counted if so."""
        if self.only and not any(is_named(entry, name) for name in self.only):
            return False
        self.count += 1
        return self.first is None or self.count <= self.first

    def check(self, configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> Report:
        """Check a launch and return its report."""
        from lanewise.machine.checker.check import check
        from lanewise.machine.checker.report import Report

        entry = configured.entry
        with self.progress(entry.demangled) as progress:
            shown: dict[str, Any] = {"progress": progress} if progress is not None else {}
            if self.fast:
                try:
                    configured(*arguments, **options, **shown)
                except KernelFault as fault:
                    report = check(configured, *arguments, **options, **self.options)
                    if report.findings:
                        return report
                    from lanewise.machine.checker.report import Finding

                    finding = Finding(fault.kind or "fault", str(fault), fault.line or 0, "")
                    return Report(entry.name, [finding], {}, module=entry.module, ended=False)
                return Report(entry.name, [], {}, module=entry.module)
            token = WANTED.set(self.streams)
            try:
                return check(configured, *arguments, **options, **self.options, **shown)
            finally:
                WANTED.reset(token)


def is_named(entry: Entry, pattern: str) -> bool:
    """Return whether a kernel has a name: mangled, demangled, or its plain name; `*` stands for any text.

    A template's plain name may have arguments or not, and a name in a namespace may stand alone.
    """
    whole = entry.demangled
    before = whole.replace("(anonymous namespace)::", "").partition("(")[0]
    plain = before.removeprefix("void ")  # only templates have a type there
    title = plain.partition("<")[0]
    names = (entry.name, whole, before, plain, title, title.rpartition("::")[2], plain_name(entry.name))
    return any(fnmatchcase(name, pattern) for name in names)


def accesses_in(report: Report, home: Callable[[int], int | None]) -> list[Access]:
    """Return what a checked launch has read and written, by the allocations that addresses lie in."""
    accesses = []
    for access in report.accesses:
        start = home(access.first)
        if start is None:
            continue
        for kind, marks in (
            (AccessKind.READ, access.reads),
            (AccessKind.WRITE, access.writes),
            (AccessKind.READ | AccessKind.STRONG, access.strong_reads),
            (AccessKind.WRITE | AccessKind.STRONG, access.strong_writes),
        ):
            if marks.any():
                accesses.append(Access(start, kind, ranges_of(marks, access.first, access.cell_bytes)))
    return accesses
