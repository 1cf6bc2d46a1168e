"""Reports as HTML: one page that needs nothing from elsewhere, or the part of one that a notebook shows."""

from collections.abc import Sequence
from html import escape

from lanewise.machine.checker.findings import Finding, ReportContents, number_text
from lanewise.machine.checker.reporting.listing import ListedFile, ListedLine, listing

_STYLE = """
.lanewise { font-family: system-ui, sans-serif; font-size: 14px; color: #1a1a1a; background: #fff; }
.lanewise { padding: 1em; }
.lanewise h2 { font-size: 16px; margin: 1em 0 .3em; }
.lanewise ol, .lanewise ul { margin: .3em 0; padding-left: 1.6em; }
.lanewise .error { color: #b00020; } .lanewise .advice { color: #8a5a00; } .lanewise .slow { color: #0b5394; }
.lanewise .ok { color: #1b6e2c; }
.lanewise table { border-collapse: collapse; font-family: ui-monospace, monospace; font-size: 12px; }
.lanewise td, .lanewise th { padding: 0 .6em; text-align: right; vertical-align: top; }
.lanewise td.source, .lanewise th.source { text-align: left; white-space: pre; }
.lanewise td.remark { text-align: left; white-space: pre-wrap; font-family: system-ui, sans-serif; }
.lanewise th { border-bottom: 1px solid #999; } .lanewise .number { color: #777; }
.lanewise pre { white-space: pre-wrap; margin: 0; font-size: 12px; }
.lanewise details { margin: .5em 0; }
"""


def page(reports: Sequence[ReportContents]) -> str:
    """Return reports as a page of its own."""
    names = ", ".join(dict.fromkeys(report.title for report in reports))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>lanewise check: {escape(names)}</title></head>\n"
        f"<body>\n{fragment(reports)}\n</body>\n</html>"
    )


def fragment(reports: Sequence[ReportContents]) -> str:
    """Return reports as a part of a page, with its own style."""
    parts = "".join(_report(report) for report in reports)
    return f'<div class="lanewise">\n<style>{_STYLE}</style>\n{parts}</div>'


def _report(report: ReportContents) -> str:
    state = "ok" if report.ok else "error"
    parts = [f"<h2>{escape(report.title)}: <span class='{state}'>{escape(report.summary)}</span></h2>"]
    if report.findings:
        items = "".join(
            f"<li class='{finding.severity}'>{_finding(finding)}</li>" for finding in report.findings
        )
        parts.append(f"<ul>{items}</ul>")
    if report.performance:
        parts.append(
            "<ol>"
            + "".join(f"<li class='slow'>{escape(str(verdict))}</li>" for verdict in report.performance)
        )
        parts.append("</ol>")
    parts += [_file(file) for file in listing(report)]
    if report.counters:
        rows = "".join(
            f"<tr><td class='source'>{escape(name)}</td><td>{number_text(value)}</td></tr>"
            for name, value in report.counters.items()
        )
        parts.append(f"<details><summary>{escape(report.counted)}</summary><table>{rows}</table></details>")
    if report.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
        parts.append(f"<details><summary>Notes</summary><ul>{notes}</ul></details>")
    return "\n".join(parts) + "\n"


def _finding(finding: Finding) -> str:
    head, *rest = str(finding).split("\n")
    return f"{escape(head)}<pre>{escape(chr(10).join(rest))}</pre>"


def _file(file: ListedFile) -> str:
    most = {
        column: max((line.figures.get(column, 0) for line in file.lines), default=0)
        for column in file.columns
    }
    heads = "".join(f"<th>{escape(column)}</th>" for column in ("line", *file.columns))
    rows = "".join(_line(line, file.columns, most) for line in file.lines)
    return (
        f"<details open><summary>{escape(file.name)}</summary>"
        f"<table><tr>{heads}<th class='source'>source</th></tr>\n{rows}</table></details>"
    )


def _line(line: ListedLine, columns: Sequence[str], most: dict[str, int]) -> str:
    """Return the rows of one line: its figures, the darker the more, and what was found there."""
    cells = [f"<td class='number'>{line.number}</td>"]
    for column in columns:
        figure = line.figures.get(column, 0)
        shade = 0.45 * figure / most[column] if most[column] else 0
        style = f" style='background: rgba(255, 140, 0, {shade:.2f})'" if figure else ""
        cells.append(f"<td{style}>{f'{figure:,}' if figure else ''}</td>")
    rows = f"<tr>{''.join(cells)}<td class='source'>{escape(line.text)}</td></tr>\n"
    remarks: list[tuple[str, str]] = [(finding.severity, finding.remark) for finding in line.findings]
    remarks += [("slow", verdict.description) for verdict in line.performance]
    for kind, words in remarks:
        blank = f"<td colspan='{len(columns) + 1}'></td>"
        rows += f"<tr>{blank}<td class='remark {kind}'>↑ {escape(words)}</td></tr>\n"
    return rows
