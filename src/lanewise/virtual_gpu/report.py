"""What the checks of a virtual GPU found in a whole program: `gpu.report`."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

from lanewise.machine.checker.report import Finding, Report

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
        parts.append(Report(PROGRAM, list(findings), {}, [], list(notes)))
    return ProgramReport(launches, len(reports), len({report.kernel for report in reports}), parts)
