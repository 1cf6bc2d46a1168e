"""Where the panels of a picture go, in the units of whoever writes it: pixels or characters.

The measures of cells and margins come from the writer; what is in the cells is the picture's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lanewise.draw.picture import Panel, Picture


@dataclass(frozen=True)
class Measures:
    """What a writer's units make of cells and margins: the width that a panel's cells want, the height of all
    cells, the room that a panel wants left of its cells and needs above them, and the gaps between panels."""

    cell_width: Callable[[Panel], int]
    cell_height: int
    gutter: Callable[[Panel], int]
    header: int
    gap: tuple[int, int]
    caption_width: Callable[[str], int]


@dataclass(frozen=True)
class Placed:
    """A panel, the coordinates of its first cell, and the size of its cells."""

    panel: Panel
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Arrangement:
    """Panels with their coordinates, and the size that they take together."""

    panels: tuple[Placed, ...]
    width: int
    height: int


@dataclass(frozen=True)
class _Column:
    """Panels that stand above one another: their cells are equally wide and begin at the same x."""

    x: int
    width: int


def arrange(picture: Picture, measures: Measures) -> Arrangement:
    """Give every row and column of panels the room that its largest panel needs."""
    heights: dict[int, int] = {}
    stacks: dict[int, list[Panel]] = {}
    for panel in picture.panels:
        row, col = panel.at
        room = measures.header + panel.extent[0] * measures.cell_height
        heights[row] = max(heights.get(row, 0), room)
        stacks.setdefault(col, []).append(panel)
    columns, total_width = _columns(stacks, measures)
    tops: dict[int, int] = {}
    y = 0
    for row in sorted(heights):
        tops[row] = y + measures.header
        y += heights[row] + measures.gap[1]
    placed = tuple(
        Placed(panel, columns[col].x, tops[row], columns[col].width, measures.cell_height)
        for panel in picture.panels
        for row, col in (panel.at,)
    )
    return Arrangement(placed, total_width, y - measures.gap[1])


def _columns(stacks: dict[int, list[Panel]], measures: Measures) -> tuple[dict[int, _Column], int]:
    columns: dict[int, _Column] = {}
    x = 0
    for col in sorted(stacks):
        panels: Sequence[Panel] = stacks[col]
        width = max(map(measures.cell_width, panels))
        start = x + max(map(measures.gutter, panels))
        columns[col] = _Column(start, width)
        x = start + max(max(p.extent[1] * width, measures.caption_width(p.caption)) for p in panels)
        x += measures.gap[0]
    return columns, x - measures.gap[0]
