"""LaTeX (TikZ) of a drawing, light enough for pdflatex's memory; needs TikZ and geometry, nothing rarer.

The page is cut to the picture, and a pixel is three quarters of a point.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from lanewise.draw.drawing import STYLES, Drawing, Group, Rect, Word
from lanewise.draw.picture import GRID, MARK, RULE, WHITE, Picture
from lanewise.errors import LanewiseError

#: Cells a side beyond which pdflatex takes too long, or runs out of memory.
MAX_CELLS = 64
#: Points a pixel.
POINTS = 0.75
PIECES = 32

_SPECIAL = {
    **{c: rf"\char{ord(c)}{{}}" for c in "\\{}$&#%_^~"},  # typewriter fonts have these at their ASCII places
    "–": "-", "×": r"$\times$", "·": r"$\cdot$", "→": r"$\to$", "−": "-", "…": "...",
}  # fmt: skip


def check_cells(picture: Picture) -> None:
    """Refuse a picture that pdflatex would choke on."""
    for panel in picture.panels:
        rows, cols = panel.extent
        if rows > MAX_CELLS or cols > MAX_CELLS:
            raise LanewiseError(
                f"{panel.name} is {rows}×{cols} cells; LaTeX pictures go up to {MAX_CELLS}×{MAX_CELLS}: "
                "draw it as SVG instead (lanewise.draw.svg, or save to a .svg or .html file)"
            )


def to_latex(drawing: Drawing, title: str, *, standalone: bool = True) -> str:
    """The drawing as a LaTeX document, or as a tikzpicture to be put into one.

    >>> from lanewise.draw.drawing import Drawing
    >>> to_latex(Drawing(10, 10, ()), "empty", standalone=False).splitlines()[1]
    '\\\\begin{tikzpicture}[x=0.75pt,y=-0.75pt]'
    """
    picture = "\n".join(_picture(drawing, title))
    if not standalone:
        return picture + "\n"
    width, height = drawing.width * POINTS, drawing.height * POINTS
    return "\n".join(
        (
            r"\documentclass{article}",
            rf"\usepackage[paperwidth={width:g}pt,paperheight={height:g}pt,margin=0pt]{{geometry}}",
            r"\usepackage{tikz}",
            r"\pagestyle{empty}",
            r"\setlength{\parindent}{0pt}\setlength{\topskip}{0pt}",
            r"\begin{document}%",
            picture + "%",
            r"\end{document}",
            "",
        )
    )


def tex(text: str) -> str:
    """Text as TeX takes it; letters that its default fonts lack become question marks.

    >>> print(tex("50% of A_1 → B"))
    50\\char37{} of A\\char95{}1 $\\to$ B
    """
    return "".join(_SPECIAL.get(c, c if " " <= c <= "~" else "?") for c in text)


def _picture(drawing: Drawing, title: str) -> Iterator[str]:
    yield f"% {re.sub('[^ -~]', '?', title)}"
    yield rf"\begin{{tikzpicture}}[x={POINTS}pt,y=-{POINTS}pt]"
    yield rf"\useasboundingbox (0,0) rectangle ({drawing.width},{drawing.height});"
    # A node a word would exhaust TeX's memory: words on one line are one row of boxes without width.
    yield r"\def\lwstart#1#2{\hbox to 0pt{#1\hss}\kern#2pt}%"
    yield r"\def\lwmiddle#1#2{\hbox to 0pt{\hss#1\hss}\kern#2pt}%"
    yield r"\def\lwend#1#2{\hbox to 0pt{\hss#1}\kern#2pt}%"
    # and these take a third of the time of TikZ's own syntax
    yield r"\def\lwbox#1#2#3#4{\pgfpathrectangle{\pgfpointxy{#1}{#2}}{\pgfpointxy{#3}{#4}}}%"
    yield r"\def\lwto#1#2#3#4{\pgfpathmoveto{\pgfpointxy{#1}{#2}}\pgfpathlineto{\pgfpointxy{#3}{#4}}}%"
    colours = dict.fromkeys([GRID, RULE, MARK, *(s.colour for s in STYLES.values())])
    colours.update(dict.fromkeys(colour for group in drawing.groups for colour in group.fills))
    names = {colour: f"lanewise{i}" for i, colour in enumerate(colours)}
    for colour, name in names.items():
        yield rf"\definecolor{{{name}}}{{HTML}}{{{colour[1:].upper()}}}"
    for group in drawing.groups:
        yield f"% {re.sub('[^ -~]', '?', group.name)}"
        yield from _group(group, names)
    yield r"\end{tikzpicture}"


def _group(group: Group, names: dict[str, str]) -> Iterator[str]:
    for colour, rects in group.fills.items():
        if colour != WHITE:
            yield from _paths("fill", names[colour], 0, map(_box, rects))
    yield from _paths("stroke", names[GRID], 0.3, map(_segment, group.lines))
    yield from _paths("stroke", names[RULE], 0.8, map(_segment, group.rules))
    inner = (Rect(r.x + 1, r.y + 1, r.width - 2, r.height - 2) for r in group.marks)
    yield from _paths("stroke", names[MARK], 1.6, map(_box, inner))
    for name, words in group.words.items():
        style = STYLES[name]
        weight = r"\bfseries" if style.bold else ""
        font = rf"\fontsize{{{style.points}}}{{{style.points}}}\ttfamily{weight}\selectfont\frenchspacing"
        yield rf"\begin{{scope}}{font}\color{{{names[style.colour]}}}%"
        for y, line in groupby(words, key=lambda word: word.y):
            yield _line(list(line), y, style.anchor)
        yield r"\end{scope}"


def _line(words: list[Word], y: int, anchor: str) -> str:
    steps = [(after.x - word.x) * POINTS for word, after in pairwise(words)]
    row = "".join(
        rf"\lw{anchor}{{{tex(word.text)}}}{{{step:g}}}" for word, step in zip(words, [*steps, 0], strict=True)
    )
    return rf"\pgftext[at=\pgfpointxy{{{words[0].x}}}{{{y}}},base,left]{{{row}}}%"


def _paths(use: str, colour: str, width: float, pieces: Iterable[str]) -> Iterator[str]:
    """Many pieces a path, which is light, but not too many, since long paths take long."""
    waiting = list(pieces)
    if not waiting:
        return
    yield rf"\begin{{scope}}\pgfsetcolor{{{colour}}}\pgfsetlinewidth{{{width}pt}}%"
    for i in range(0, len(waiting), PIECES):
        yield rf"{''.join(waiting[i : i + PIECES])}\pgfusepath{{{use}}}%"
    yield r"\end{scope}"


def _box(r: Rect) -> str:
    return rf"\lwbox{{{r.x}}}{{{r.y}}}{{{r.width}}}{{{r.height}}}"


def _segment(r: Rect) -> str:
    return rf"\lwto{{{r.x}}}{{{r.y}}}{{{r.x + r.width}}}{{{r.y + r.height}}}"
