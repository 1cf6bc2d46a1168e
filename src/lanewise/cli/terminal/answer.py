"""What a command answers: tables to read, and the same as plain data; and how an answer is written.

That is rich tables on a terminal, plain text in a pipe; CSV, Markdown or JSON if asked for."""

from __future__ import annotations

import csv
import io
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | int


@dataclass(frozen=True)
class Table:
    """Rows under column names.

    In a `grid`, a matrix, the first column names the rows. In a `catalogue` the first column is the text that
    people copy, which is never broken into lines.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    grid: bool = False
    catalogue: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{self.title}: {row} under {self.columns}"


@dataclass(frozen=True)
class Answer:
    """One answer: `tables` with `notes` under them, and `data`, the same for JSON.

    CSV takes one table: `flat`, or the first where there is no `flat`.
    """

    tables: tuple[Table, ...]
    data: Any
    notes: tuple[str, ...] = ()
    flat: Table | None = None


def facts(title: str, pairs: Sequence[tuple[str, Cell]]) -> Table:
    """A table of properties and their values; those without a value are left out.

    >>> facts("it", [("shape", "m16n8k16"), ("kind", "")]).rows
    [('shape', 'm16n8k16')]
    """
    return Table(title, ("property", "value"), [pair for pair in pairs if pair[1] != ""])


def span(first: int, count: int) -> str:
    """Return so many numbers from one on, in words.

    >>> span(16, 16), span(3, 1)
    ('16-31', '3')
    """
    return f"{first}-{first + count - 1}" if count > 1 else str(first)


STYLES = ("text", "json", "csv", "markdown")
#: Characters up to which JSON is laid out for reading; laying it out takes Python ten times as long.
_PRETTY = 100_000
#: Colours of lanes on a terminal, by lane mod 8, as in the pictures people know.
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_green", "bright_magenta")


def style_of(*, json: bool, csv: bool, markdown: bool) -> str:
    """The style that the three flags ask for; at most one may be given.

    >>> style_of(json=False, csv=True, markdown=False)
    'csv'
    """
    chosen = [name for name, given in zip(STYLES[1:], (json, csv, markdown), strict=True) if given]
    if len(chosen) > 1:
        raise LanewiseError(f"--{' and --'.join(chosen)} exclude each other; give one")
    return chosen[0] if chosen else "text"


def show(answer: Answer, style: str) -> None:
    """Print an answer; text goes through rich if it lands on a terminal."""
    if style == "text" and sys.stdout.isatty():
        _on_terminal(answer)
    else:
        sys.stdout.write(written(answer, style))


def written(answer: Answer, style: str) -> str:
    """An answer as text in one of the styles.

    >>> answer = Answer((Table("", ("lane", "row"), [(12, 3)]),), {"lane": 12, "row": 3})
    >>> print(written(answer, "csv"), end="")
    lane,row
    12,3
    >>> print(written(answer, "text"), end="")
    lane  row
      12    3
    """
    match style:
        case "json":
            short = json.dumps(answer.data, ensure_ascii=False)
            return (
                json.dumps(answer.data, indent=1, ensure_ascii=False) if len(short) < _PRETTY else short
            ) + "\n"
        case "csv":
            return _csv(answer.flat or answer.tables[0])
        case "markdown":
            return _blocks(_markdown(table) for table in answer.tables) + _paragraphs(answer, "\n")
        case _:
            return _blocks(_plain(table) for table in answer.tables) + _paragraphs(answer, "")


def _blocks(blocks: Iterator[str]) -> str:
    return "\n".join(blocks)


def _paragraphs(answer: Answer, between: str) -> str:
    notes = between.join(f"{note}\n" for note in answer.notes)
    return f"\n{notes}" if notes and answer.tables else notes


def _csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def _markdown(table: Table) -> str:
    def line(cells: Any) -> str:
        return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |\n"

    rule = ["---:" if right else "---" for right in _right_aligned(table)]
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + line(table.columns) + line(rule) + "".join(line(row) for row in table.rows)


def _plain(table: Table) -> str:
    named = table.columns != ("property", "value")
    lines = [table.columns, *table.rows] if named else list(table.rows)
    widths = [max((len(str(row[i])) for row in lines), default=0) for i in range(len(table.columns))]
    right = _right_aligned(table)
    out = [table.title] if table.title else []
    for row in lines:
        cells = (
            str(cell).rjust(width) if push else str(cell).ljust(width)
            for cell, width, push in zip(row, widths, right, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    return "".join(f"{line}\n" for line in out)


def _right_aligned(table: Table) -> list[bool]:
    return [
        bool(table.rows) and all(isinstance(row[i], int) for row in table.rows)
        for i in range(len(table.columns))
    ]


# on a terminal ------------------------------------------------------------------------------------------


def _on_terminal(answer: Answer) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for table in answer.tables:
        for part in _fitting(table, console.width):
            if part.catalogue and _width(part) > console.width:
                _print_entries(console, part)
            else:
                _print_table(console, part)
    for note in answer.notes:
        console.print(note, style="dim")


def _fitting(table: Table, width: int) -> list[Table]:
    """A grid that is wider than the terminal, as several with fewer columns each."""
    if not table.grid:
        return [table]
    cell = 2 + max(
        (len(str(row[i])) for row in (table.columns, *table.rows) for i in range(1, len(row))), default=0
    )
    label = 2 + max(len(str(row[0])) for row in (table.columns, *table.rows))
    count = max(1, (width - label) // cell)
    starts = range(1, len(table.columns), count)
    return [
        Table(
            table.title if start == 1 else "",
            (table.columns[0], *table.columns[start : start + count]),
            [(row[0], *row[start : start + count]) for row in table.rows],
            grid=True,
        )
        for start in starts
    ]


def _width(table: Table) -> int:
    lines = (table.columns, *table.rows)
    return sum(2 + max(len(str(line[i])) for line in lines) for i in range(len(table.columns))) - 2


def _print_entries(console: Console, table: Table) -> None:
    """A catalogue that is too wide: the text on a line of its own, what is said about it under it."""
    for row in table.rows:
        console.print(str(row[0]), style="bold", soft_wrap=True)
        about = (f"{name} {cell}" for name, cell in zip(table.columns[1:], row[1:], strict=True))
        console.print(f"    {'; '.join(about)}", soft_wrap=True)
    console.print()


def _print_table(console: Console, table: Table) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    named = table.columns != ("property", "value")
    # Not rich's own title, which breaks at the width of the table, in the midst of an instruction.
    for line in textwrap.wrap(table.title, console.width, break_long_words=False, break_on_hyphens=False):
        console.print(line, style="bold", soft_wrap=True)
    grid = RichTable(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=named,
        header_style="bold",
    )
    for name, right in zip(table.columns, _right_aligned(table), strict=True):
        first = not grid.columns
        grid.add_column(
            name,
            justify="right" if right else "left",
            overflow="fold",
            style="bold" if first and (table.grid or not named) else "",
            no_wrap=table.grid,
        )
    for row in table.rows:
        cells = [Text(str(cell)) for cell in row]
        if table.grid:
            for text, cell in zip(cells[1:], row[1:], strict=True):
                text.stylize(_colour(str(cell)))
        grid.add_row(*cells)
    # A grid keeps its whole numbers: where even one column is too wide, the line is longer than the terminal.
    width = console.width
    console.width = max(width, _width(table)) if table.grid else width
    console.print(grid)
    console.width = width
    console.print()


def _colour(cell: str) -> str:
    lane, colon, _ = cell.partition(":")
    return _COLOURS[int(lane) % 8] if colon and lane.isdigit() else ""
