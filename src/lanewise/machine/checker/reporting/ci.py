"""Reports as CI systems read them: SARIF 2.1.0, and GitHub's commands that mark lines of a change."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lanewise.machine.checker.findings import Finding, Inefficiency, ReportContents

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "advice": "warning"}
#: What the kinds of inefficiencies are called, to tell them from findings.
_PREFIX = "performance/"


def sarif(
    reports: Sequence[ReportContents], file: Path | None = None, strict: bool = False
) -> dict[str, object]:
    """Return reports as one SARIF log; `file` is the file with the kernel, for lines of the PTX.

    What wastes time is a note, or a warning if that is to be taken `strict`ly.
    """
    results = [
        result
        for report in reports
        for result in (
            *(_finding(finding, file) for finding in report.findings),
            *(_performance(verdict, file, strict) for verdict in report.performance),
        )
    ]
    rules = sorted({result["ruleId"] for result in results})
    driver = {"name": "lanewise", "rules": [_rule(rule) for rule in rules]}
    with suppress(PackageNotFoundError):  # where it is run from its source
        driver["version"] = version("lanewise")
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str) -> dict[str, Any]:
    words = name.removeprefix(_PREFIX).replace("-", " ")
    kind = "wastes time" if name.startswith(_PREFIX) else "is wrong"
    return {"id": name, "shortDescription": {"text": f"A kernel {kind}: {words}."}}


def _finding(finding: Finding, file: Path | None) -> dict[str, Any]:
    result = {
        "ruleId": finding.kind.replace(" ", "-"),
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.annotation},
        "locations": _locations(finding.source, finding.line, file),
    }
    if finding.other is not None and finding.other.line:
        related = _locations(finding.other.source, finding.other.line, file)
        result["relatedLocations"] = [
            location | {"message": {"text": finding.other.message}} for location in related
        ]
    return result


def _performance(verdict: Inefficiency, file: Path | None, strict: bool) -> dict[str, object]:
    return {
        "ruleId": _PREFIX + verdict.kind.replace(" ", "-"),
        "level": "warning" if strict else "note",
        "message": {"text": verdict.description},
        "locations": _locations(verdict.source, verdict.line, file),
    }


def _locations(source: str | None, line: int, file: Path | None) -> list[dict[str, object]]:
    """Return the place of a result; none if no file is known."""
    location = place(source, line, file)
    if location is None:
        return []
    path, number = location
    below = path.is_absolute()
    artifact = {"uri": path.as_uri() if below else path.as_posix()}
    return [{"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": number}}}]


def place(source: str | None, line: int, file: Path | None) -> tuple[Path, int] | None:
    """Return the file and line of something; the file from the folder that one is in, if it is below that.

    Of a line of the PTX, `file` is the file. None if no file is known.
    """
    if source is not None:
        name, _, number = source.rpartition(":")
        path, line = Path(name), int(number)
    elif file is not None and line:
        path = file
    else:
        return None
    here = Path.cwd()
    whole = path if path.is_absolute() else here / path
    return (whole.relative_to(here) if whole.is_relative_to(here) else whole), line


def workflow_commands(
    reports: Sequence[ReportContents], file: Path | None = None, strict: bool = False
) -> Iterator[str]:
    """Return a line for each finding and for each thing that wastes time, as GitHub reads them from a log.

    What wastes time is a notice, or a warning if that is to be taken `strict`ly.
    """
    for report in reports:
        for finding in report.findings:
            command, place = _LEVELS[finding.severity], (finding.source, finding.line, file)
            yield _command(command, finding.title, finding.annotation, *place)
        for verdict in report.performance:
            command = "warning" if strict else "notice"
            yield _command(command, verdict.kind, verdict.description, verdict.source, verdict.line, file)


def _command(command: str, title: str, message: str, source: str | None, line: int, file: Path | None) -> str:
    properties = {"title": title}
    location = place(source, line, file)
    if location is not None:
        properties = {"file": location[0].as_posix(), "line": str(location[1]), **properties}
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {words}::{_data(message)}"


def _data(text: str) -> str:
    """Return a text with what GitHub reads otherwise written as it wants it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
