"""Drawing: a picture as rectangles, lines and words at coordinates in pixels, for SVG and LaTeX to write.

Fonts are monospaced, so that the room a word takes is known here.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from lanewise.draw.picture import FADED_TEXT, SECOND_TEXT, SOFT_TEXT, TEXT, Cell, Legend, Panel, Picture


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


@dataclass(frozen=True)
class Style:
    """How words look: size in pixels (and in points, for LaTeX), colour, weight, and which end is given."""

    size: int
    points: int
    colour: str
    bold: bool = False
    anchor: str = "start"

    def width(self, words: str) -> int:
        """The room that words take; the widest of the usual monospaced fonts has 0.602 em."""
        return ceil(len(words) * self.size * 0.602)


STYLES = {
    "title": Style(13, 10, TEXT, bold=True),
    "subtitle": Style(11, 8, SOFT_TEXT),
    "caption": Style(12, 9, TEXT, bold=True),
    "row": Style(9, 6, SOFT_TEXT, anchor="end"),
    "col": Style(9, 6, SOFT_TEXT, anchor="middle"),
    "label": Style(10, 7, TEXT, anchor="middle"),
    "sublabel": Style(10, 7, SECOND_TEXT, anchor="middle"),
    "faded": Style(10, 7, FADED_TEXT, anchor="middle"),
    "note": Style(11, 8, TEXT),
}

MARGIN = 14
SWATCH_HEIGHT = 16
LINE = 16
NOTE_COLUMNS = 96
#: The room above the cells of a panel, for its caption and the numbers of its columns.
HEADER = 32
#: An empty corner of a picture takes the notes if lines have so many letters there; its margins.
CORNER_COLUMNS, CORNER_GAP, CORNER_TOP = 44, 16, 8
#: Width of cells without labels, in which only the colour speaks.
BARE = 14


class Rect(NamedTuple):
    """A rectangle by its upper left corner."""

    x: int
    y: int
    width: int
    height: int


class Word(NamedTuple):
    """Words on one line; (x, y) is the end of the baseline that the style's anchor names."""

    x: int
    y: int
    text: str


@dataclass
class Group:
    """One panel, or the words around them, ready to write. Lines are rectangles without width or height."""

    name: str
    fills: dict[str, list[Rect]] = field(default_factory=dict)
    lines: list[Rect] = field(default_factory=list)
    rules: list[Rect] = field(default_factory=list)
    marks: list[Rect] = field(default_factory=list)
    words: dict[str, list[Word]] = field(default_factory=dict)
    hovers: list[tuple[Rect, str]] = field(default_factory=list)

    def write(self, style: str, x: int, y: int, text: str) -> None:
        """Add a text in a style, with its anchor at x and y."""
        self.words.setdefault(style, []).append(Word(x, y, text))


@dataclass(frozen=True)
class Drawing:
    """A picture's groups and its size in pixels."""

    width: int
    height: int
    groups: tuple[Group, ...]


def draw(picture: Picture, *, labels: bool = True) -> Drawing:
    """Lay a picture out in pixels.

    Where A stands left of C and B above it, the legend and the notes fill the corner that is left, if they
    fit; else the legend stands above the panels, which may be larger than the screen, and the notes below.
    """
    placed = arrange(picture, _measures(picture, labels))
    columns = max(NOTE_COLUMNS, placed.width * 10 // (STYLES["note"].width("x" * 10)))
    words = Group("words")
    y = MARGIN
    for style, text in (("title", picture.title), ("subtitle", picture.subtitle)):
        for line in _wrapped(text, columns):
            y += LINE
            words.write(style, MARGIN, y - 4, line)
    y += 8
    corner = _corner(placed, picture)
    if corner is None:
        y = _legends(words, picture.legends, y)
    y += 4
    groups = [_panel(at, y, labels) for at in placed.panels]
    if corner is not None:
        after = _legends(words, picture.legends, y + CORNER_TOP)
        _notes(words, picture.notes, corner, after)
        y += placed.height
    else:
        y = _notes(words, picture.notes, columns, y + placed.height + 6)
    width = max([MARGIN + placed.width, *_right_ends(words)])
    return Drawing(width + MARGIN, y + MARGIN, (words, *groups))


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)


def _legends(words: Group, legends: Sequence[Legend], y: int) -> int:
    """Draw legends below one another, and return where the last one ends."""
    for legend in legends:
        _legend(words, legend, y)
        y += SWATCH_HEIGHT + 8
    return y


def _notes(words: Group, notes: Sequence[str], columns: int, y: int) -> int:
    """Write notes in lines of so many letters, and return where the last one ends."""
    for note in notes:
        for line in _wrapped(note, columns):
            y += LINE
            words.write("note", MARGIN, y - 4, line)
    return y


def _corner(placed: Arrangement, picture: Picture) -> int | None:
    """Return how many letters a line in the empty corner has; None if the words do not fit there."""
    first = min(panel.panel.at[0] for panel in placed.panels)
    above = [panel for panel in placed.panels if panel.panel.at[0] == first]
    below = [panel for panel in placed.panels if panel.panel.at[0] != first]
    if not below:
        return None
    room = min(placed_panel.x - _gutter(placed_panel.panel) for placed_panel in above) - CORNER_GAP
    height = min(placed_panel.y for placed_panel in below) - HEADER - CORNER_TOP
    columns = room * 10 // STYLES["note"].width("x" * 10)
    if columns < CORNER_COLUMNS:
        return None
    lines = sum(len(_wrapped(note, columns)) for note in picture.notes)
    needed = lines * LINE + len(picture.legends) * (SWATCH_HEIGHT + 8)
    legend = Group("legend")
    _legends(legend, picture.legends, 0)
    fits = needed <= height and max(_right_ends(legend), default=0) <= MARGIN + room
    return columns if fits else None


def _right_ends(group: Group) -> Iterator[int]:
    for style, words in group.words.items():
        for word in words:
            room = STYLES[style].width(word.text)
            yield word.x + (room if STYLES[style].anchor == "start" else 0)
    for rects in group.fills.values():
        yield from (rect.x + rect.width for rect in rects)


def _gutter(panel: Panel) -> int:
    return max(STYLES["row"].width(word) for word in (panel.corner, *panel.rows.labels)) + 6


def _measures(picture: Picture, labels: bool) -> Measures:
    def cell_width(panel: Panel) -> int:
        if not labels:
            return BARE
        widest = max((len(line) for row in panel.cells for cell in row for line in cell.lines), default=0)
        return max(28, STYLES["label"].width("x" * widest) + 8)

    lines = max(len(cell.lines) for panel in picture.panels for row in panel.cells for cell in row)
    height = BARE if not labels else 28 if lines > 1 else 20
    return Measures(cell_width, height, _gutter, HEADER, (18, 14), STYLES["caption"].width)


def _panel(placed: Placed, top: int, labels: bool) -> Group:
    panel, width, height = placed.panel, placed.width, placed.height
    cell = width, height
    rows, cols = panel.extent
    x0, y0 = placed.x + MARGIN, placed.y + top
    group = Group(panel.name)
    group.write("caption", x0, y0 - 19, panel.caption)
    _axes(group, panel, cell, x0, y0)
    for i, row in enumerate(panel.cells):
        y = y0 + i * height
        _fill_row(group, row, x0, y, width, height)
        for j, one in enumerate(row):
            x = x0 + j * width
            if one.marked:
                group.marks.append(Rect(x, y, width, height))
            if one.title:
                group.hovers.append((Rect(x, y, width, height), one.title))
            if labels and one.lines:
                _label(group, one, x + width // 2, y, height)
    _ruling(group, panel, cell, x0, y0, rows, cols)
    return group


def _fill_row(group: Group, cells: Sequence[Cell], x0: int, y: int, width: int, height: int) -> None:
    """Neighbours of one colour become one rectangle."""
    start = 0
    for j in range(1, len(cells) + 1):
        if j == len(cells) or cells[j].fill != cells[start].fill:
            run = Rect(x0 + start * width, y, (j - start) * width, height)
            group.fills.setdefault(cells[start].fill, []).append(run)
            start = j


def _label(group: Group, cell: Cell, x: int, y: int, height: int) -> None:
    styles = ("faded", "faded") if cell.faded else ("label", "sublabel")
    if len(cell.lines) == 1:
        group.write(styles[0], x, y + height // 2 + 4, cell.lines[0])
        return
    for i, line in enumerate(cell.lines):
        group.write(styles[min(i, 1)], x, y + 12 + 11 * i, line)


def _axes(group: Group, panel: Panel, cell: tuple[int, int], x0: int, y0: int) -> None:
    width, height = cell
    group.write("row", x0 - 4, y0 - 5, panel.corner)
    for i, label in enumerate(panel.rows.labels):
        group.write("row", x0 - 4, y0 + i * height + height // 2 + 3, label)
    widest = max(STYLES["col"].width(label) for label in panel.cols.labels) + 2
    step = -(-widest // width)
    while step > 1 and step & (step - 1):  # every 1, 2, 4, … columns
        step += 1
    for j in range(0, len(panel.cols.labels), step):
        group.write("col", x0 + j * width + width // 2, y0 - 5, panel.cols.labels[j])


def _ruling(
    group: Group, panel: Panel, cell: tuple[int, int], x0: int, y0: int, rows: int, cols: int
) -> None:
    width, height = cell
    heavy_rows, heavy_cols = panel.rule
    for i in range(rows + 1):
        heavy = i in (0, rows) or (heavy_rows and i % heavy_rows == 0)
        (group.rules if heavy else group.lines).append(Rect(x0, y0 + i * height, cols * width, 0))
    for j in range(cols + 1):
        heavy = j in (0, cols) or (heavy_cols and j % heavy_cols == 0)
        (group.rules if heavy else group.lines).append(Rect(x0 + j * width, y0, 0, rows * height))


def _legend(group: Group, legend: Legend, y: int) -> None:
    group.write("note", MARGIN, y + 12, legend.heading)
    x = MARGIN + STYLES["note"].width(legend.heading) + 10
    for colour, label in legend.entries:
        width = max(24, STYLES["label"].width(label) + 10)
        group.fills.setdefault(colour, []).append(Rect(x, y, width, SWATCH_HEIGHT))
        group.lines.extend(Rect(x, at, width, 0) for at in (y, y + SWATCH_HEIGHT))
        group.lines.extend(Rect(at, y, 0, SWATCH_HEIGHT) for at in (x, x + width))
        group.write("label", x + width // 2, y + 12, label)
        x += width
