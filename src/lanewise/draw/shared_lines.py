"""Shared memory as lines of 128 bytes: one cell for each 16 bytes, under the four banks that they lie in."""

from collections.abc import Mapping
from typing import NamedTuple

from lanewise.draw.options import Options
from lanewise.draw.palette import PASTELS, SHARED
from lanewise.draw.picture import Axis, Cell, Legend, Panel

CHUNK_BYTES = 16
LINE_BYTES = 128
_CHUNKS = LINE_BYTES // CHUNK_BYTES
_BANK_BYTES = 4
#: Lines that a picture shows; swizzles repeat after eight.
MOST_LINES = 32


class Held(NamedTuple):
    """What 16 bytes of shared memory hold: two words for the cell, its colour, a sentence."""

    row: str
    columns: str
    colour: int
    title: str


def banks_of(address: int) -> str:
    """Return the banks of the 16 bytes at an address.

    >>> banks_of(0x410)
    '4–7'
    """
    first = address % LINE_BYTES // _BANK_BYTES
    return f"{first}–{first + CHUNK_BYTES // _BANK_BYTES - 1}"


def lines_panel(
    caption: str, held: Mapping[int, Held], first: int, lines: int, options: Options, at: tuple[int, int]
) -> Panel:
    """Return the panel of so many lines from an address on; `held` has what lies at each address."""
    cells = []
    for line in range(first, first + lines * LINE_BYTES, LINE_BYTES):
        row = []
        for address in range(line, line + LINE_BYTES, CHUNK_BYTES):
            piece = held.get(address)
            if piece is None:
                row.append(Cell((), SHARED))
                continue
            last = address + CHUNK_BYTES - 1
            tooltip = f"bytes {address:#x} to {last:#x}, banks {banks_of(address)}: {piece.title}"
            title = tooltip if options.explains(lines * _CHUNKS) else ""
            row.append(Cell((piece.row, piece.columns), PASTELS[piece.colour % len(PASTELS)], title))
        cells.append(row)
    return Panel(
        "memory",
        caption,
        cells,
        Axis("byte", tuple(f"{first + LINE_BYTES * line:#x}" for line in range(lines))),
        Axis("bank", tuple(banks_of(CHUNK_BYTES * chunk) for chunk in range(_CHUNKS))),
        at=at,
        rule=(8, 0),
    )


def chunk_legend(heading: str) -> Legend:
    """Return the legend of cells that are coloured by the place of 16 bytes in their row."""
    return Legend(heading, tuple((colour, str(number)) for number, colour in enumerate(PASTELS)))
