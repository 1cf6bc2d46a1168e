"""Plain text of a picture: panels as tables in a monospaced font, placed as in the other pictures."""

import textwrap
from dataclasses import replace

from lanewise.draw.drawing import Measures, Placed, arrange
from lanewise.draw.picture import Cell, Panel, Picture, cut

NOTE_COLUMNS = 96
#: Beyond this width panels go below one another instead of side by side.
PAGE_COLUMNS = 140
#: Beyond this width a panel is cut into pieces.
LINE_COLUMNS = 160


def to_text(picture: Picture) -> str:
    """The picture as lines of text. A marked cell stands in brackets, a faded one is a dot."""
    measures = Measures(_cell_width, 1, _gutter, 2, (2, 1), len)
    placed = arrange(picture, measures)
    if placed.width > PAGE_COLUMNS:  # lines that a terminal would break say nothing
        narrow = cut(picture, lambda panel: (LINE_COLUMNS - _gutter(panel)) // _cell_width(panel))
        stacked = tuple(replace(panel, at=(i, 0)) for i, panel in enumerate(narrow.panels))
        placed = arrange(replace(picture, panels=stacked), measures)
    page = [[" "] * placed.width for _ in range(placed.height)]
    for panel in placed.panels:
        _panel(page, panel)
    lines = [picture.title]
    lines += textwrap.wrap(picture.subtitle, NOTE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    lines += ["", *("".join(row).rstrip() for row in page), ""]
    for note in picture.notes:
        lines += textwrap.wrap(note, NOTE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).rstrip() + "\n"


def _cell_width(panel: Panel) -> int:
    words = [*panel.cols.labels, *(_written(cell) for row in panel.cells for cell in row)]
    return max(map(len, words)) + 1


def _gutter(panel: Panel) -> int:
    return max(len(word) for word in (panel.corner, *panel.rows.labels)) + 1


def _written(cell: Cell) -> str:
    label = "." if cell.faded and not cell.marked else " ".join(cell.lines) or "·"
    return f"[{label}]" if cell.marked else label


def _panel(page: list[list[str]], placed: Placed) -> None:
    panel, x0, y0, width = placed.panel, placed.x, placed.y, placed.width

    def put(x: int, y: int, word: str) -> None:
        page[y][x : x + len(word)] = word

    put(x0, y0 - 2, panel.caption)
    put(x0 - 1 - len(panel.corner), y0 - 1, panel.corner)
    for j, label in enumerate(panel.cols.labels):
        put(x0 + j * width, y0 - 1, label)
    for i, row in enumerate(panel.cells):
        label = panel.rows.labels[i]
        put(x0 - 1 - len(label), y0 + i, label)
        for j, cell in enumerate(row):
            put(x0 + j * width, y0 + i, _written(cell))
