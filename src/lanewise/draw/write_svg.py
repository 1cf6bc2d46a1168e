"""SVG of a drawing: one path a colour, one text element a line of cells, so that large pictures stay small.

Looks are written as attributes, not as a style sheet, which would leak into a notebook around it.
"""

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby

from lanewise.draw.drawing import STYLES, Drawing, Group, Rect, Word
from lanewise.draw.picture import GRID, MARK, RULE, WHITE

FONTS = "DejaVu Sans Mono,Menlo,Consolas,Liberation Mono,monospace"
_NOT_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_svg(drawing: Drawing, title: str) -> str:
    """The drawing as an SVG document.

    >>> from lanewise.draw.drawing import Group, Drawing
    >>> to_svg(Drawing(10, 10, (Group("words"),)), "a < b").count("a &lt; b")
    1
    """
    size = f'width="{drawing.width}" height="{drawing.height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {drawing.width} {drawing.height}" '
        f'role="img" font-family="{FONTS}">',
        f"<title>{xml(title)}</title>",
        f'<rect {size} fill="{WHITE}"/>',
    ]
    for group in drawing.groups:
        parts.append(f'<g data-panel="{xml(group.name)}">')
        parts.extend(_group(group))
        parts.append("</g>")
    parts.append("</svg>\n")
    return "\n".join(parts)


def xml(text: str) -> str:
    """Text as XML takes it; what XML cannot carry at all becomes a question mark."""
    return escape(_NOT_XML.sub("?", text))


def _group(group: Group) -> Iterator[str]:
    for colour, rects in group.fills.items():
        if colour != WHITE:
            path = "".join(f"M{r.x} {r.y}h{r.width}v{r.height}h-{r.width}z" for r in rects)
            yield f'<path fill="{colour}" d="{path}"/>'
    yield from _strokes(group.lines, GRID, "0.5")
    yield from _strokes(group.rules, RULE, "1.2")
    for r in group.marks:
        inner = f'x="{r.x + 1}" y="{r.y + 1}" width="{r.width - 2}" height="{r.height - 2}"'
        yield f'<rect {inner} fill="none" stroke="{MARK}" stroke-width="2.5"/>'
    for style, words in group.words.items():
        yield from _words(style, words)
    if group.hovers:
        yield '<g fill="none" pointer-events="all">'
        for r, title in group.hovers:
            box = f'<rect x="{r.x}" y="{r.y}" width="{r.width}" height="{r.height}">'
            yield f"{box}<title>{xml(title)}</title></rect>"
        yield "</g>"


def _strokes(lines: list[Rect], colour: str, width: str) -> Iterator[str]:
    if lines:
        path = "".join(f"M{r.x} {r.y}" + (f"h{r.width}" if r.width else f"v{r.height}") for r in lines)
        yield f'<path fill="none" stroke="{colour}" stroke-width="{width}" d="{path}"/>'


def _words(name: str, words: list[Word]) -> Iterator[str]:
    style = STYLES[name]
    weight = ' font-weight="bold"' if style.bold else ""
    anchor = f' text-anchor="{style.anchor}"' if style.anchor != "start" else ""
    yield f'<g font-size="{style.size}" fill="{style.colour}"{weight}{anchor}>'
    for y, line in groupby(words, key=lambda word: word.y):
        spans = "".join(f'<tspan x="{word.x}">{xml(word.text)}</tspan>' for word in line)
        yield f'<text y="{y}">{spans}</text>'
    yield "</g>"
