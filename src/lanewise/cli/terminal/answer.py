"""What a command answers: tables to read, and the same as plain data for JSON.

Commands build these; how they look on a terminal, in a pipe or in a file is left to `render`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
