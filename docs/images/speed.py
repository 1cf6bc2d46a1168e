"""The plot of how fast products are, from the record of a GPU: `docs/images/make.py` writes it.

Each mark is one call: the time of the faster library over the time of `lw.matmul`, on a logarithmic axis.
"""

import math
from typing import Any, NamedTuple

FONT = "DejaVu Sans,Helvetica,Arial,sans-serif"
#: Colours for a light page, and for a dark one.
STYLE = """
.card { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d8dee4 } .one { stroke: #59636e }
text { fill: #1f2328 } .soft { fill: #59636e }
.mark { stroke: #ffffff; fill: #0969da }
@media (prefers-color-scheme: dark) {
  .card { fill: #0d1117; stroke: #3d444d } .grid { stroke: #2f353d } .one { stroke: #9198a1 }
  text { fill: #f0f6fc } .soft { fill: #9198a1 }
  .mark { stroke: #0d1117; fill: #4493f8 }
}
"""
LEFT, WIDE, TOP, HIGH, RADIUS = 250, 400, 74, 24, 4
WORDS = "Right of 1× lanewise is faster than the faster of the two."
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 5)


#: The rows of the plot, by the part of the benchmark or by the end of a product's name in it.
ROWS = {
    "squares": "bf16 and f16 squares, up to 16384³",
    "layouts": "bf16 and f16 squares, up to 16384³",
    "small": "bf16, small squares, up to 1536³",
    "skinny": "bf16, 1 to 128 rows",
    "long_k": "bf16, long K",
    "odd": "bf16, odd sizes and strides",
    "grouped": "groups of experts, bf16",
    "tensor": "e4m3, a scale for each matrix",
    "rows": "e4m3, a scale for each row",
    "int8": "int8",
    "tf32": "tf32",
    "f64": "f64",
    "f32": "f32, by six products of bf16",
}


class Measured(NamedTuple):
    """One product: which row it belongs to, and how many times as fast it is."""

    row: str
    ratio: float


def measured(record: dict[str, Any]) -> list[Measured]:
    """Return the products of a record that the plot has a row for: those that others compute, too."""
    measured = []
    for measurement in record["rows"]:
        row = ROWS.get(measurement["part"]) or ROWS.get(measurement["name"].split()[-1])
        if row is not None and not measurement["peer"].startswith("lanewise"):
            measured.append(Measured(row, measurement["ratio"]))
    return measured


def speed(record: dict[str, Any]) -> str:
    """Return the plot of a record as SVG."""
    marks = measured(record)
    rows = [row for row in dict.fromkeys(ROWS.values()) if any(mark.row == row for mark in marks)]
    low = min(0.85, *(mark.ratio for mark in marks)) / 1.03
    high = max(1.2, *(mark.ratio for mark in marks)) * 1.03

    def x(ratio: float) -> float:
        return LEFT + WIDE * math.log(ratio / low) / math.log(high / low)

    bottom = TOP + HIGH * len(rows)
    lines = []
    for tick in TICKS:
        if low <= tick <= high:
            kind = "one" if tick == 1 else "grid"
            lines.append(f'<path class="{kind}" d="M{x(tick):.1f} {TOP - 6} V{bottom}"/>')
            lines.append(_text(x(tick), bottom + 16, f"{tick:g}×", 11, "middle", "soft"))
    for number, row in enumerate(rows):
        y = TOP + HIGH * (number + 0.5)
        lines.append(_text(LEFT - 12, y + 4, row, 12, "end"))
        for mark in marks:
            if mark.row == row:
                lines.append(f'<circle class="mark" cx="{x(mark.ratio):.1f}" cy="{y:g}" r="{RADIUS}"/>')
    seen = record["circumstances"]
    torch = f"torch {seen['torch'].partition('+')[0]}"
    head = f"Products on an {seen['gpu']['name']}: how many times as fast as {torch} and cuBLASLt"
    legend = bottom + 38
    lines += [
        _text(14, 26, head, 14, "start", "", bold=True),
        _text(14, 46, WORDS, 11),
        _text(14, legend, "Each mark is a call of lw.matmul.", 11, "start", "soft"),
        _text(LEFT + WIDE + 30, legend, f"measured {seen['date'].split()[0]}", 11, "end", "soft"),
    ]
    width, height = LEFT + WIDE + 44, legend + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">'
    )
    card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    title = "<title>How many times as fast as the library lanewise multiplies matrices</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", card, *lines, "</svg>"]) + "\n"


def _text(
    x: float, y: float, words: str, size: int, anchor: str = "start", kind: str = "", *, bold: bool = False
) -> str:
    attributes = f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes += f' class="{kind}"' if kind else ""
    attributes += ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:g}" font-size="{size}"{attributes}>{words}</text>'
