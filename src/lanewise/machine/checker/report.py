"""The result of a check: its contents, and the forms in which people and programs read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests
from lanewise.machine.checker.findings import (
    Finding,
    Inefficiency,
    Line,
    Proposal,
    ReportContents,
    Severity,
    Three,
    number_text,
)

if TYPE_CHECKING:
    from lanewise.machine.checker.reporting.listing import ListedFile

__all__ = ["Finding", "Inefficiency", "Line", "Proposal", "Report", "Severity", "Three"]


class Report(ReportContents, Suggests):
    """The result of `lanewise.check`; it is true if it has no finding, or none but advice."""

    INSTEAD: ClassVar = {
        "bank_conflicts": 'report.counters["derived__memory_l1_wavefronts_shared_excessive"] counts what '
        "they cost, and report.performance says where they are",
        "races": 'report.findings has them, those whose kind is "race"',
        "errors": "report.findings has them",
        "print": "print(report) prints it",
        "to_json": 'report.save("report.json") writes JSON, and to_dict() returns it as objects',
    }

    if not TYPE_CHECKING:  # a checker knows that a report has no items

        def __getitem__(self, name: object) -> NoReturn:
            raise TypeError(
                "a report has no items: report.findings is a list, report.counters has values by name"
            )

    def listing(self) -> list[ListedFile]:
        """Return the source of the kernel in its order, each line with its counters and what was found there.

        It is CUDA C++ or Python where the PTX says from which line it came, else the PTX.
        """
        from lanewise.machine.checker.reporting.listing import listing

        return listing(self)

    def listing_text(self) -> str:
        """Return the source of the kernel with counters and findings beside its lines, as plain text."""
        from lanewise.machine.checker.reporting.listing import listing_text

        return listing_text(self.listing())

    def save(self, path: str | Path) -> None:
        """Write the report to a file, in the form that its name ends in: .html, .json, .sarif or .txt.

        A page is one file that needs nothing else: it has the source with counters beside each line.
        """
        save([self], Path(path))

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from lanewise.machine.checker.reporting.html import fragment

        return fragment([self])

    def __repr__(self) -> str:
        return f"<report of {self.title}: {self.summary}>"

    def in_words(self, counters: bool = False, ptx: bool = False, inlined: bool = False) -> str:
        """Return the report as text: the findings, what wastes time, and what there is besides.

        `counters` adds the counters of the launch; `ptx` and `inlined` add to each finding what
        `Finding.in_words` says.
        """
        parts = [finding.in_words(ptx, inlined) for finding in self.findings]
        if self.performance:
            parts.append("\n".join(str(verdict) for verdict in self.performance))
        parts.append(f"{self.title}: {self.summary}")
        if self.counters and counters:
            width = max(len(name) for name in self.counters)
            rows = [f"{name:<{width}}  {number_text(value)}" for name, value in self.counters.items()]
            parts.append("\n".join([f"{self.counted}:", *rows]))
        elif self.counters:
            parts.append(f"{self.counted}: --counters, report.counters")
        parts += [f"note: {note}" for note in self.notes]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.in_words()


#: What the name of a saved report may end in.
SUFFIXES = (".html", ".json", ".sarif", ".txt")


def save(reports: Sequence[Report], path: Path, file: Path | None = None) -> None:
    """Write reports to a path, in the form that its name ends in.

    `file` is the file with the kernel, for lines of the PTX.
    """
    from lanewise.machine.checker.reporting.ci import sarif
    from lanewise.machine.checker.reporting.html import page

    match path.suffix:
        case ".html":
            text = page(reports)
        case ".sarif":
            text = json.dumps(sarif(reports, file), indent=1, ensure_ascii=False)
        case ".json":
            text = json.dumps([report.to_dict() for report in reports], indent=1, ensure_ascii=False)
        case ".txt":
            text = "\n\n".join(f"{report}\n\n{report.listing_text()}" for report in reports)
        case other:
            raise LanewiseError(
                f"{path}: the name of a report ends in one of {', '.join(SUFFIXES)}, not in {other!r}"
            )
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise LanewiseError(f"{path}: {error.strerror}") from None
