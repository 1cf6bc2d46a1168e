"""Reads pictures back from SVG and text by where things stand, as a person would."""

import re
import xml.etree.ElementTree as ET
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

SVG = "{http://www.w3.org/2000/svg}"
RECT = re.compile(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z")


@dataclass
class ReadPanel:
    """What stands in each cell, by (row, col): words, colours, marks, hover titles; and the axes' labels."""

    labels: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    colours: dict[tuple[int, int], str] = field(default_factory=dict)
    faded: set[tuple[int, int]] = field(default_factory=set)
    marks: list[tuple[int, int]] = field(default_factory=list)
    titles: dict[tuple[int, int], str] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    cols: list[str] = field(default_factory=list)
    caption: str = ""
    extent: tuple[int, int] = (0, 0)


@dataclass
class ReadPicture:
    """The panels by name, and every word around them."""

    width: float
    height: float
    panels: dict[str, ReadPanel]
    words: list[str]


def read_svg(text: str) -> ReadPicture:
    root = ET.fromstring(text)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    panels, words = {}, []
    for group in root.findall(f"{SVG}g"):
        name = group.get("data-panel")
        spans = list(_spans(group))
        for x, y, word, size, anchor, _ in spans:
            room = len(word) * size * 0.6
            left = x - {"start": 0, "middle": room / 2, "end": room}[anchor]
            assert left >= 0 and left + room <= width, f"{word!r} is cut off at the side"
            assert size / 2 <= y <= height - 2, f"{word!r} is cut off above or below"
        if name == "words":
            words += [word for _, _, word, *_ in spans]
        else:
            assert name not in panels, f"two panels are called {name}"
            panels[name] = _panel(group, spans)
    return ReadPicture(width, height, panels, words)  # type: ignore[arg-type]  # an attribute that is missing fails the tests


def _spans(group: Any) -> Iterator[Any]:
    for style in group.findall(f"{SVG}g"):
        for line in style.findall(f"{SVG}text"):
            for span in line.findall(f"{SVG}tspan"):
                size, anchor = float(style.get("font-size")), style.get("text-anchor", "start")
                yield (
                    float(span.get("x")),
                    float(line.get("y")),
                    span.text or "",
                    size,
                    anchor,
                    style.get("fill"),
                )


def _panel(group: Any, spans: list[Any]) -> ReadPanel:
    panel = ReadPanel()
    lines = [path.get("d") for path in group.findall(f"{SVG}path") if path.get("fill") == "none"]
    ys = sorted({int(y) for d in lines for y in re.findall(r"M\d+ (\d+)h", d)})
    xs = sorted({int(x) for d in lines for x in re.findall(r"M(\d+) \d+v", d)})

    def place(x: float, y: float) -> tuple[int, int]:
        row, col = bisect_right(ys, y) - 1, bisect_right(xs, x) - 1
        assert 0 <= row < len(ys) - 1 and 0 <= col < len(xs) - 1, (x, y)
        return row, col

    fills: dict[Any, Any] = {}
    for x, y, word, _, anchor, fill in spans:
        if y < ys[0]:
            if anchor == "middle":
                panel.cols.append(word)
            elif anchor == "start":
                panel.caption = word
        elif x < xs[0]:
            panel.rows.append(word)
        else:
            panel.labels.setdefault(place(x, y), []).append(word)
            fills.setdefault(fill, []).append(place(x, y))
    for fill, cells in fills.items():
        if int(fill[1:3], 16) > 0x90:
            panel.faded.update(cells)
    for path in group.findall(f"{SVG}path"):
        for x, y, w, h in RECT.findall(path.get("d")):
            x, y, w, h = int(x), int(y), int(w), int(h)
            first, last = place(x + 1, y + 1), place(x + w - 1, y + h - 1)
            for row in range(first[0], last[0] + 1):
                for col in range(first[1], last[1] + 1):
                    assert (row, col) not in panel.colours, "a cell is painted twice"
                    panel.colours[row, col] = path.get("fill")
    for rect in group.findall(f"{SVG}rect"):
        panel.marks.append(place(float(rect.get("x")) + 1, float(rect.get("y")) + 1))
    for rect in group.findall(f"{SVG}g/{SVG}rect"):
        at = place(float(rect.get("x")) + 1, float(rect.get("y")) + 1)
        panel.titles[at] = rect.find(f"{SVG}title").text
    panel.extent = (len(ys) - 1, len(xs) - 1)
    return panel


def read_text(text: str) -> dict[str, dict[tuple[int, int], str]]:
    """The cells of each panel of a text picture whose panels stand below one another, by caption.

    A panel that is cut into pieces is put together again: the captions of pieces end with their columns.
    """
    panels: dict[str, dict[tuple[int, int], str]] = {}
    lines = text.split("\n")
    for number, (above, header) in enumerate(pairwise(lines)):
        if "\\" not in header or header.strip().split()[0].count("\\") != 1:
            continue
        starts = [match.start() for match in re.finditer(r"\S+", header)][1:]
        cells = panels.setdefault(re.sub(r", \S+ \d+ to \d+$", "", above.strip()), {})
        first = max((col for _, col in cells), default=-1) + 1
        for row, line in enumerate(takewhile(str.strip, lines[number + 2 :])):
            assert line[: starts[0]].strip() == str(row)
            for col, (start, end) in enumerate(zip(starts, [*starts[1:], len(line) + 1], strict=True), first):
                cells[row, col] = line[start:end].strip()
    return panels


def numbers(label: str) -> set[int]:
    """The numbers that a label such as T0–3, V2,10 or T0,64…192 stands for."""
    run = re.fullmatch(r"(\d+)–(\d+)", label[1:])
    if run:
        return set(range(int(run[1]), int(run[2]) + 1))
    steps = re.fullmatch(r"(\d+),(\d+)…(\d+)", label[1:])
    if steps:
        first, second, last = map(int, steps.groups())
        return set(range(first, last + 1, second - first))
    return {int(number) for number in label[1:].split(",")}
