"""Writes reports to a file, in the form that the file's name asks for."""

import json
from collections.abc import Sequence
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.machine.checker.findings import ReportContents
from lanewise.machine.checker.reporting.ci import sarif
from lanewise.machine.checker.reporting.html import page
from lanewise.machine.checker.reporting.listing import listing, listing_text

SUFFIXES = (".html", ".json", ".sarif", ".txt")


def save(reports: Sequence[ReportContents], path: Path, file: Path | None = None) -> None:
    """Write reports to a path; `file` is the file with the kernel, for lines of the PTX."""
    match path.suffix:
        case ".html":
            text = page(reports)
        case ".sarif":
            text = json.dumps(sarif(reports, file), indent=1, ensure_ascii=False)
        case ".json":
            text = json.dumps([report.to_dict() for report in reports], indent=1, ensure_ascii=False)
        case ".txt":
            text = "\n\n".join(f"{report}\n\n{listing_text(listing(report))}" for report in reports)
        case other:
            raise LanewiseError(
                f"{path}: the name of a report ends in one of {', '.join(SUFFIXES)}, not in {other!r}"
            )
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise LanewiseError(f"{path}: {error.strerror}") from None
