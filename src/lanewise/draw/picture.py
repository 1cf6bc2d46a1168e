"""Picture: what is drawn, before anyone says how: panels of coloured, labelled cells, a title, a legend.

Every kind of object is described as one of these, and SVG, LaTeX and text are written from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lanewise.errors import LanewiseError

#: Cells by thread (or value, register, bank) modulo 8; black text reads well on each.
PASTELS = ("#a9cbf5", "#b5e2a2", "#ffe48a", "#f7b2ab", "#cdb8ee", "#9fe0d8", "#ffc891", "#f0b7dc")
#: Cells of plain layouts by index modulo 8.
GREYS = ("#ffffff", "#f1f1f1", "#e4e4e4", "#d6d6d6", "#c8c8c8", "#bbbbbb", "#adadad", "#a0a0a0")
#: Shared-memory conflicts: free, 2, 3 or 4, and more ways.
CONFLICTS = ("#c4e8b8", "#ffe48a", "#ffc891", "#f28b82")

WHITE = "#ffffff"
#: Elements that no lane holds: they lie in shared memory.
SHARED = "#ececec"
#: What is not in the lane (or phase) that a picture points out.
FADED = "#fafafa"

TEXT = "#1a1a1a"
SECOND_TEXT = "#3f3f3f"
SOFT_TEXT = "#5c5c5c"
FADED_TEXT = "#b4b4b4"
GRID = "#8a8a8a"
RULE = "#1a1a1a"
MARK = "#d00000"


def conflict_colour(ways: int) -> str:
    """The colour of an access that takes `ways` wavefronts.

    >>> conflict_colour(1) == CONFLICTS[0], conflict_colour(8) == CONFLICTS[3]
    (True, True)
    """
    if ways < 1:
        raise LanewiseError(f"an access takes at least one wavefront, not {ways}")
    return CONFLICTS[0 if ways == 1 else 1 if ways == 2 else 2 if ways <= 4 else 3]


#: More cells than this, in one direction, no screen shows.
MAX_EXTENT = 256


class Cell(NamedTuple):
    """One cell: its label, a line each; its colour; what it says when pointed at; how it stands out."""

    lines: tuple[str, ...] = ()
    fill: str = WHITE
    title: str = ""
    marked: bool = False
    faded: bool = False


@dataclass(frozen=True)
class Axis:
    """The name of an axis and a label for each row or column."""

    name: str
    labels: tuple[str, ...]

    @classmethod
    def counted(cls, name: str, extent: int) -> Axis:
        """An axis labelled 0, 1, 2, …

        >>> Axis.counted("k", 3).labels
        ('0', '1', '2')
        """
        return cls(name, tuple(map(str, range(extent))))


@dataclass(frozen=True)
class Panel:
    """A grid of cells under a caption.

    `at` is its place in the picture, (row, column) of a table whose rows and columns take the room that their
    panels need: panels in one row begin at the same height, so that A stands beside C and B above it. `rule`
    draws a heavy line after every so many rows and columns; 0 draws none.
    """

    name: str
    caption: str
    cells: Sequence[Sequence[Cell]]
    rows: Axis
    cols: Axis
    at: tuple[int, int] = (0, 0)
    rule: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        rows, cols = self.extent
        if len(self.cells) != rows or any(len(row) != cols for row in self.cells):
            raise LanewiseError(f"the cells of panel {self.name} do not fill its axes, {rows}×{cols}")

    @property
    def extent(self) -> tuple[int, int]:
        """How many rows and columns of cells the panel has."""
        return len(self.rows.labels), len(self.cols.labels)

    @property
    def corner(self) -> str:
        """What stands where the two axes meet."""
        return "\\".join(name for name in (self.rows.name, self.cols.name) if name)


@dataclass(frozen=True)
class Legend:
    """What the colours mean: a heading, and (colour, label) pairs."""

    heading: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture:
    """Panels under a title, with a legend, and notes in words below."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    legends: tuple[Legend, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.panels:
            raise LanewiseError("a picture has at least one panel")


def cut(picture: Picture, most: Callable[[Panel], int]) -> Picture:
    """Return a picture whose wide panels are cut into pieces that stand below one another.

    `most` says how many columns a piece of a panel may have.

    >>> wide = Panel("C", "C: 1×4", [[Cell()] * 4], Axis.counted("m", 1), Axis.counted("n", 4))
    >>> [(panel.at, panel.cols.labels) for panel in cut(Picture("", "", (wide,)), lambda panel: 3).panels]
    [((0, 0), ('0', '1', '2')), ((1, 0), ('3',))]
    """
    pieces = [_pieces(panel, max(most(panel), 1)) for panel in picture.panels]
    rows = max(map(len, pieces))
    if rows == 1:
        return picture
    panels = [
        replace(piece, at=(panel.at[0] * rows + number, panel.at[1]))
        for panel, own in zip(picture.panels, pieces, strict=True)
        for number, piece in enumerate(own)
    ]
    return replace(picture, panels=tuple(panels))


def _pieces(panel: Panel, most: int) -> list[Panel]:
    """Return a panel, or pieces of it that have so many columns at most; a heavy line ends a piece."""
    columns = panel.extent[1]
    if columns <= most:
        return [panel]
    unit = panel.rule[1] or 8
    most = most // unit * unit or most
    starts = range(0, columns, most)
    return [
        replace(
            panel,
            caption=f"{panel.caption}, {panel.cols.name or 'columns'} {panel.cols.labels[start]} to "
            f"{panel.cols.labels[min(start + most, columns) - 1]}",
            cells=[row[start : start + most] for row in panel.cells],
            cols=Axis(panel.cols.name, panel.cols.labels[start : start + most]),
        )
        for start in starts
    ]


def check_extent(what: str, rows: int, cols: int, advice: str) -> None:
    """Refuse a panel that is too large to be seen, before any of its cells is made."""
    if rows > MAX_EXTENT or cols > MAX_EXTENT:
        raise LanewiseError(
            f"{what} is {rows}×{cols} cells; a picture shows up to {MAX_EXTENT}×{MAX_EXTENT}: {advice}"
        )
