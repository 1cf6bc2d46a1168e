"""Bank maps: which of shared memory's 32 banks each element or 16-byte chunk of a layout falls in.

And what that means for ldmatrix, which reads eight rows of 16 bytes a phase.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lanewise.draw.layouts import indices_of
from lanewise.draw.options import Options
from lanewise.draw.owners import marked_cell, ranges
from lanewise.draw.picture import (
    CONFLICTS,
    FADED,
    PASTELS,
    Axis,
    Cell,
    Legend,
    Panel,
    Picture,
    conflict_colour,
)
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout import ComposedLayout, Layout, Tensor
from lanewise.tracebacks import short_traceback

BANKS = 32
BANK_BITS = 32
CHUNK_BITS = 128
#: Rows that ldmatrix reads at once: 8 × 16 bytes are all 32 banks.
PHASE = 8
ELEMENT_BITS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class BankMap(Drawn):
    """A shared-memory layout with the size of its elements: see `bank_map`."""

    layout: Any
    element_bits: int
    unit: str = ""
    phase: tuple[int, int] | None = None

    @property
    def chunk(self) -> int:
        """Elements in 16 bytes."""
        return CHUNK_BITS // self.element_bits

    @cached_property
    def _indices(self) -> list[list[int]]:
        return indices_of(self.layout)

    @cached_property
    def across(self) -> bool | None:
        """True if 16-byte chunks lie across (along j), False if down (along i), None if there are none."""
        if self._chunked(self._indices):
            return True
        return False if self._chunked([list(column) for column in zip(*self._indices, strict=True)]) else None

    def _chunked(self, lines: list[list[int]]) -> bool:
        n = self.chunk
        return all(
            len(line) % n == 0
            and all(
                line[j] % n == 0 and line[j : j + n] == list(range(line[j], line[j] + n))
                for j in range(0, len(line), n)
            )
            for line in lines
        )

    def banks(self, i: int, j: int) -> tuple[int, ...]:
        """The banks that the element at (i, j) falls in: one, or more where it is wider than a bank.

        >>> bank_map(Layout((8, 64), (64, 1)), 16).banks(1, 2)
        (1,)
        """
        return self._banks(self._indices[i][j], 1)

    def _banks(self, index: int, count: int) -> tuple[int, ...]:
        first = index * self.element_bits // BANK_BITS
        last = ((index + count) * self.element_bits - 1) // BANK_BITS
        return tuple(bank % BANKS for bank in range(first, last + 1))

    @cached_property
    def _chunks(self) -> list[list[int]]:
        """The index at which each chunk begins, as rows and columns of chunks."""
        n = self.chunk
        if self.across:
            return [line[::n] for line in self._indices]
        return self._indices[::n]

    @cached_property
    def conflicts(self) -> list[list[int]]:
        """The wavefronts of each ldmatrix phase: [group of 8 rows][chunk], or [chunk][group of 8 columns].

        >>> row_major = Layout((8, 64), (64, 1))
        >>> bank_map(row_major, 16).conflicts[0][0]
        8
        >>> from lanewise.layout import Swizzle, composition
        >>> bank_map(composition(Swizzle(3, 3, 3), row_major), 16).conflicts[0]
        [1, 1, 1, 1, 1, 1, 1, 1]
        """
        if self.across is None:
            raise LanewiseError(f"{self.layout} has no aligned runs of 16 bytes, so ldmatrix cannot read it")
        lines = self._chunks if self.across else [list(line) for line in zip(*self._chunks, strict=True)]
        ways = [
            [_ways(line[j] // self.chunk for line in lines[i : i + PHASE]) for j in range(len(lines[0]))]
            for i in range(0, len(lines), PHASE)
        ]
        return ways if self.across else [list(line) for line in zip(*ways, strict=True)]


def _ways(chunks: Any) -> int:
    """Turns that reading these chunks takes: the most different ones that fall in one group of four banks."""
    different = set(chunks)
    return max(sum(1 for c in different if c % PHASE == group) for group in range(PHASE))


@short_traceback
def bank_map(
    layout: object, element_bits: int = 16, *, unit: str = "", phase: tuple[int, int] | None = None
) -> BankMap:
    """Return a layout of shared memory that is drawn by banks; its indices count elements of `element_bits`.

    `unit` is "element", or "chunk" for the 16 bytes that ldmatrix reads; by default it is "chunk" if the
    layout has such chunks. `phase` marks one phase of ldmatrix, by its position in `conflicts`.

    >>> bank_map(Layout((64, 8)), 16).across
    False
    """
    if isinstance(layout, Tensor):
        layout = layout.layout
    if not isinstance(layout, Layout | ComposedLayout):
        raise LanewiseError(f"bank_map takes a layout, not {layout!r}")
    if element_bits not in ELEMENT_BITS:
        raise LanewiseError(
            f"element_bits={element_bits!r}: elements have {', '.join(map(str, ELEMENT_BITS))} bits"
        )
    if unit not in ("", "element", "chunk"):
        raise LanewiseError(f'unit={unit!r} is "element" or "chunk"')
    drawn = BankMap(layout, element_bits, unit, phase)
    if any(not isinstance(index, int) or index < 0 for line in drawn._indices for index in line):
        raise LanewiseError(f"{layout} leads to coordinates, or below 0, and not to places in shared memory")
    if (unit == "chunk" or phase is not None) and drawn.across is None:
        raise LanewiseError(f"{layout} has no aligned runs of 16 bytes: draw it by elements")
    if phase is not None:
        _check_phase(phase, drawn.conflicts)
    return drawn


def _check_phase(phase: Any, conflicts: list[list[int]]) -> None:
    rows, cols = len(conflicts), len(conflicts[0])
    right = isinstance(phase, tuple) and len(phase) == 2 and all(isinstance(x, int) for x in phase)
    if not right or not (0 <= phase[0] < rows and 0 <= phase[1] < cols):
        raise LanewiseError(f"phase={phase!r}: there are {rows}×{cols} phases; give (row, column) of one")


def picture_of_banks(banks: BankMap, options: Options) -> Picture:
    """The map, and beside it what each ldmatrix phase costs."""
    options.refuse("a bank map", "lane", "colour", "operand", "product")
    unit = banks.unit or ("element" if banks.across is None else "chunk")
    panels = [_map(banks, unit, options)]
    notes = [
        "b is the bank: there are 32 banks, each 4 bytes wide. @ is the address in bytes: "
        f"the layout's index × {banks.element_bits} bits."
    ]
    all_legends = [
        Legend("colour: bank div 4", tuple((c, f"b{4 * i}–{4 * i + 3}") for i, c in enumerate(PASTELS)))
    ]
    if banks.across is None:
        notes.append("No aligned runs of 16 bytes: ldmatrix cannot read this layout.")
    else:
        worst = max(map(max, banks.conflicts))
        panels.append(_phases(banks, options))
        lines, run = ("rows", "across") if banks.across else ("columns", "down")
        notes.append(
            f"In a phase ldmatrix reads 8 {lines} of 16 bytes ({run}). A phase of eight colours takes one "
            "wavefront; each time a colour comes again with another address, it takes one more. The worst "
            f"here: {_wavefronts(worst)}."
        )
        names = ("1", "2", "3–4", "more")
        all_legends.append(
            Legend("wavefronts of an ldmatrix phase", tuple(zip(CONFLICTS, names, strict=True)))
        )
    if banks.phase is not None:
        cost = _wavefronts(banks.conflicts[banks.phase[0]][banks.phase[1]])
        notes.append(f"Marked: phase {banks.phase}, {cost}.")
    return Picture(
        f"Bank map of {banks.layout}",
        f"elements of {banks.element_bits} bits in shared memory, drawn by {unit}s"
        + (" of 16 bytes" if unit == "chunk" else ""),
        tuple(panels),
        tuple(all_legends),
        tuple(notes),
    )


def _wavefronts(ways: int) -> str:
    return "1 wavefront, no conflict" if ways == 1 else f"{ways} wavefronts, a {ways}-way bank conflict"


def _map(banks: BankMap, unit: str, options: Options) -> Panel:
    chunked = unit == "chunk"
    indices = banks._chunks if chunked else banks._indices
    count = banks.chunk if chunked else 1
    rows, cols = len(indices), len(indices[0])
    down, over = (1 if not chunked or banks.across else count), (count if chunked and banks.across else 1)
    marked = marked_cell("the map", rows, cols, options)
    cells = []
    for i, line in enumerate(indices):
        row = []
        for j, index in enumerate(line):
            held = banks._banks(index, count)
            byte = f"@{index * banks.element_bits / 8:g}"
            faded = banks.phase is not None and banks.phase != _phase_of(banks, i * down, j * over)
            fill = FADED if faded else PASTELS[held[0] // 4]
            where = f"({i * down},{j * over}): index {index}, byte {byte[1:]}, bank {ranges(held)}"
            title = where if options.explains(rows * cols) else ""
            row.append(Cell((f"b{ranges(held)}", byte), fill, title, (i, j) == marked, faded))
        cells.append(row)
    axes = (
        Axis("i", tuple(str(i * down) for i in range(rows))),
        Axis("j", tuple(str(j * over) for j in range(cols))),
    )
    caption = "banks of 16-byte chunks" if chunked else "banks of elements"
    return Panel("banks", caption, cells, *axes, rule=_phase_rule(banks, chunked))


def _phase_rule(banks: BankMap, chunked: bool) -> tuple[int, int]:
    if banks.across is None:
        return 0, 0
    run = 0 if chunked else banks.chunk
    return (PHASE, run) if banks.across else (run, PHASE)


def _phase_of(banks: BankMap, i: int, j: int) -> tuple[int, int]:
    return (i // PHASE, j // banks.chunk) if banks.across else (i // banks.chunk, j // PHASE)


def _phases(banks: BankMap, options: Options) -> Panel:
    ways = banks.conflicts
    rows, cols = len(ways), len(ways[0])
    cells = [
        [
            Cell(
                (f"{count}×",),
                conflict_colour(count),
                f"phase ({i},{j}): {_wavefronts(count)}" if options.explains(rows * cols) else "",
                (i, j) == banks.phase,
            )
            for j, count in enumerate(line)
        ]
        for i, line in enumerate(ways)
    ]
    by_rows, by_cols = (PHASE, banks.chunk) if banks.across else (banks.chunk, PHASE)
    axes = Axis("i", _spans(rows, by_rows)), Axis("j", _spans(cols, by_cols))
    return Panel("phases", "wavefronts of each ldmatrix phase", cells, *axes, at=(1, 0))


def _spans(count: int, step: int) -> tuple[str, ...]:
    return tuple(f"{i * step}–{i * step + step - 1}" if step > 1 else str(i) for i in range(count))
