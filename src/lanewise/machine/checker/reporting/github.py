"""Reports as GitHub's workflow commands, which mark lines of a pull request; each form has its file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lanewise.machine.checker.findings import ReportContents
from lanewise.machine.checker.reporting.sarif import place

_COMMANDS = {"error": "error", "advice": "warning"}


def workflow_commands(
    reports: Sequence[ReportContents], file: Path | None = None, strict: bool = False
) -> Iterator[str]:
    """Return a line for each finding and for each thing that wastes time, as GitHub reads them from a log.

    What wastes time is a notice, or a warning if that is to be taken `strict`ly.
    """
    for report in reports:
        for finding in report.findings:
            where = f" by thread {finding.thread} in block {finding.block}" if finding.thread else ""
            command = _COMMANDS[finding.severity]
            mend = f"; mend: {finding.mend}" if finding.mend else ""
            message = f"{finding.message}{where}{mend}"
            yield _command(command, finding.title, message, finding.source, finding.line, file)
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
