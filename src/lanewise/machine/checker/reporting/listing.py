"""The source of a kernel in its order, with counters and findings beside each line."""

import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lanewise.machine.checker.findings import Finding, Inefficiency, ReportContents
from lanewise.machine.program.source_lines import source_texts

_GLOBAL = ("ld", "st", "ldgsts", "atom", "red")
#: The columns of a listing, and the counters whose sum each of them shows.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "executed": ("smsp__inst_executed.sum",),
    "tensor": ("smsp__inst_executed_pipe_tensor.sum",),
    "wavefronts": ("memory_l1_wavefronts_shared",),
    "conflicts": ("derived__memory_l1_wavefronts_shared_excessive",),
    "requests": tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in _GLOBAL),
    "sectors": tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in _GLOBAL),
}


@dataclass(frozen=True)
class ListedLine:
    """One line of the source, its figures under the names of COLUMNS, and what was found there."""

    number: int
    text: str
    figures: Mapping[str, int]
    findings: Sequence[Finding] = ()
    performance: Sequence[Inefficiency] = ()

    @property
    def remarks(self) -> list[str]:
        """What was found at the line, in words."""
        wrong = [finding.remark for finding in self.findings]
        return [*wrong, *(verdict.description for verdict in self.performance)]


@dataclass(frozen=True)
class ListedFile:
    """The lines of one file that belong to the kernel; the columns in which any of them has a figure."""

    name: str
    lines: Sequence[ListedLine]
    columns: tuple[str, ...] = field(default=())


def listing(report: ReportContents) -> list[ListedFile]:
    """Return the files that a kernel came from, the lines of each in order."""
    figures: dict[str, dict[int, dict[str, int]]] = {}
    for line in report.lines:
        name, number = _split(line.source, line.line)
        row = figures.setdefault(name, {}).setdefault(number, dict.fromkeys(COLUMNS, 0))
        for column, names in COLUMNS.items():
            row[column] += sum(int(line.counters.get(name, 0)) for name in names)
    findings: dict[tuple[str, int], list[Finding]] = {}
    for finding in report.findings:
        if finding.line:
            findings.setdefault(_split(finding.source, finding.line), []).append(finding)
    slow: dict[tuple[str, int], list[Inefficiency]] = {}
    for verdict in report.performance:
        slow.setdefault(_split(verdict.source, verdict.line), []).append(verdict)
    for name, number in (*findings, *slow):
        figures.setdefault(name, {}).setdefault(number, dict.fromkeys(COLUMNS, 0))
    if len(figures) > 1 and not any(name == PTX for name, _ in (*findings, *slow)):
        figures.pop(PTX, None)  # the few instructions of no line, which load parameters
    return [_file(report, name, figures[name], findings, slow) for name in sorted(figures)]


#: The name under which lines of the PTX are listed.
PTX = "PTX"


def _split(source: str | None, line: int) -> tuple[str, int]:
    """Return the file and line of a place; a line of the PTX if the source is not known."""
    if source is None:
        return PTX, line
    name, _, number = source.rpartition(":")
    return name, int(number)


def _file(
    report: ReportContents,
    name: str,
    figures: dict[int, dict[str, int]],
    findings: dict[tuple[str, int], list[Finding]],
    slow: dict[tuple[str, int], list[Inefficiency]],
) -> ListedFile:
    texts = texts_of(report, name)
    lines = [
        ListedLine(
            number,
            texts[number - 1] if number <= len(texts) else "",
            figures.get(number, {}),
            findings.get((name, number), ()),
            slow.get((name, number), ()),
        )
        for number in range(min(figures), max(figures) + 1)
    ]
    used = tuple(column for column in COLUMNS if any(line.figures.get(column) for line in lines))
    return ListedFile(name, lines, used)


def texts_of(report: ReportContents, name: str) -> list[str]:
    """Return the lines of a file as the kernel was compiled from it; none if they are not at hand."""
    module = report.module
    if module is None:
        return [text.rstrip("\n") for text in linecache.getlines(name)]
    return (module.text or str(module)).split("\n") if name == PTX else source_texts(module, name)


def listing_text(files: Iterable[ListedFile]) -> str:
    """Return listed files as plain text: figures at the left, the source beside them, remarks below."""
    return "\n\n".join(_text(file) for file in files)


def _text(file: ListedFile) -> str:
    titles = ("line", *file.columns)
    rows = [
        (
            str(line.number),
            *(f"{line.figures[column]:,}" if line.figures.get(column) else "" for column in file.columns),
        )
        for line in file.lines
    ]
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]

    def joined(cells: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    shown = [file.name, f"{joined(titles)}  source"]
    margin = " " * len(joined(titles))
    for line, cells in zip(file.lines, rows, strict=True):
        shown.append(f"{joined(cells)}  {line.text}".rstrip())
        indent = " " * (len(line.text) - len(line.text.lstrip()))
        shown += [f"{margin}  {indent}^ {remark}" for remark in line.remarks]
    return "\n".join(shown)
