"""Ownership: which threads hold an element of a matrix, as which of their values; and its panel of cells.

Where the ownership comes from (an operand, a CuTe layout, an atom) is left to the modules beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from lanewise.draw.options import Options
from lanewise.draw.picture import FADED, PASTELS, SHARED, WHITE, Axis, Cell, Legend, Panel
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, size


class Owner(NamedTuple):
    """A thread and the number of the value, among its own, that is the element."""

    thread: int
    value: int


Owners = Sequence[Sequence[Sequence[Owner]]]


@dataclass(frozen=True)
class Ownership:
    """A matrix and the owners of each of its elements, [row][col]; `slots` values share a register.

    `shared` matrices have no owners: they lie in shared memory. `thread` is the word for a thread here, which
    may be a lane of tensor memory; then `value` is its column.
    """

    name: str
    caption: str
    owners: Owners
    rows: Axis
    cols: Axis
    threads: int
    slots: int = 0
    shared: bool = False
    thread: str = "thread"
    #: The word for a value, and the letters by which thread and value are told in a cell.
    value: str = "value"
    letters: tuple[str, str] = ("T", "V")

    @property
    def extent(self) -> tuple[int, int]:
        """How many rows and columns the matrix has."""
        return len(self.rows.labels), len(self.cols.labels)

    def holders(self, row: int, col: int) -> str:
        """The owners of an element in words, with register and slot where values share registers."""
        if self.shared:
            return "in shared memory"
        owners = self.owners[row][col]
        if not owners:
            return f"no {self.thread} holds it"
        threads, values = {o.thread for o in owners}, {o.value for o in owners}
        words = f"{_counted(self.thread, threads)}, {_counted(self.value, values)}"
        if self.slots and len(owners) == 1:
            register, slot = divmod(owners[0].value, self.slots)
            words += f" (register {register}, slot {slot})"
        return words


def owners_of(
    pairs: Iterable[tuple[Owner, int]],
    rows: int,
    cols: int,
    *,
    transposed: bool = False,
    what: str = "the layout",
) -> list[list[list[Owner]]]:
    """The owners of each element, from (owner, flat column-major index) pairs; of the transpose if so said.

    >>> owners_of([(Owner(0, 0), 0), (Owner(1, 0), 3)], 2, 2)
    [[[Owner(thread=0, value=0)], []], [[], [Owner(thread=1, value=0)]]]
    """
    owners: list[list[list[Owner]]] = [[[] for _ in range(cols)] for _ in range(rows)]
    outer = cols if transposed else rows
    for owner, index in pairs:
        if not 0 <= index < rows * cols:
            raise LanewiseError(
                f"thread {owner.thread}, value {owner.value} of {what} leads to index {index}, "
                f"outside the {rows}×{cols} matrix: give the shape that the layout covers"
            )
        inner, high = index % outer, index // outer
        row, col = (high, inner) if transposed else (inner, high)
        owners[row][col].append(owner)
    return owners


def ranges(numbers: Iterable[int], most: int = 4) -> str:
    """Numbers in ascending order, shortened where nothing is lost; if more than `most` are left, the ends.

    >>> ranges([3, 0, 1, 2]), ranges([4, 12]), ranges([0, 64, 128, 192]), ranges([0, 1, 3, 7, 12, 20])
    ('0–3', '4,12', '0,64…192', '0,…,20')
    """
    ordered = sorted(set(numbers))
    steps = {after - number for number, after in pairwise(ordered)}
    if len(ordered) > 2 and steps == {1}:
        return f"{ordered[0]}–{ordered[-1]}"
    if len(ordered) > 3 and len(steps) == 1:
        return f"{ordered[0]},{ordered[1]}…{ordered[-1]}"
    return ",".join(map(str, ordered)) if len(ordered) <= most else f"{ordered[0]},…,{ordered[-1]}"


def tv_pairs(layout: Any, places: Iterable[tuple[int, Any]]) -> Iterator[tuple[Owner, int]]:
    """The index of every value of some threads under a (thread, value) layout.

    `places` are pairs of a thread and the coordinate that it has in the layout.

    >>> list(tv_pairs(Layout((2, 2), (1, 4)), [(1, 1)]))
    [(Owner(thread=1, value=0), 1), (Owner(thread=1, value=1), 5)]
    """
    values = range(size(layout.shape[1]))
    if not isinstance(layout, Layout):
        yield from ((Owner(thread, v), layout(at, v)) for thread, at in places for v in values)
        return
    # strides add up, so that a mode at a time is enough, and a tile of thousands takes no time
    steps = [layout[1](v) for v in values]
    for thread, at in places:
        start = layout[0](at)
        yield from ((Owner(thread, v), start + step) for v, step in enumerate(steps))


def panel_of(
    matrix: Ownership, options: Options, *, at: tuple[int, int] = (0, 0), rule: tuple[int, int] = (0, 0)
) -> Panel:
    """The panel of a matrix: T and V in each cell, coloured by one of them."""
    rows, cols = matrix.extent
    if options.lane is not None and not 0 <= options.lane < matrix.threads:
        raise LanewiseError(f"threads are 0 to {matrix.threads - 1}; lane={options.lane} was asked for")
    marked = marked_cell(matrix.name, rows, cols, options)
    reads = _inputs(matrix, options)
    colour = _colouring(matrix, options)
    explain = options.explains(rows * cols)
    cells = []
    for row in range(rows):
        line = []
        for col in range(cols):
            owners = () if matrix.shared else matrix.owners[row][col]
            title = f"{matrix.name}[{row}][{col}]: {matrix.holders(row, col)}" if explain else ""
            empty = SHARED if matrix.shared else WHITE
            is_marked = (row, col) == marked or reads(row, col)
            line.append(_cell(owners, colour, empty, options.lane, title, is_marked, matrix.letters))
        cells.append(line)
    return Panel(matrix.name, matrix.caption, cells, matrix.rows, matrix.cols, at, rule)


def marked_cell(name: str, rows: int, cols: int, options: Options) -> tuple[int, int] | None:
    """The cell of a panel that the options mark; names such as "C, D" stand for either."""
    if options.element is None:
        return None
    if len(options.element) == 3 and not is_called(name, options.element[0]):
        return None
    row, col = (int(x) for x in options.element[-2:])
    if not (0 <= row < rows and 0 <= col < cols):
        raise LanewiseError(f"{name} is {rows}×{cols}: there is no element [{row}][{col}]")
    return row, col


def _inputs(matrix: Ownership, options: Options) -> Callable[[int, int], bool]:
    """Which cells an element of D is computed from: its row of A, its column of B, and the element of C."""
    if not options.inputs:
        return lambda row, col: False
    if options.element is None or len(options.element) != 3 or not is_called("C, D", options.element[0]):
        raise LanewiseError('inputs=True is about an element of D: element=("D", row, col)')
    wanted_row, wanted_col = (int(x) for x in options.element[1:])
    if is_called(matrix.name, "A"):
        return lambda row, col: row == wanted_row
    if is_called(matrix.name, "B"):
        return lambda row, col: col == wanted_col
    is_sum = is_called(matrix.name, "C") or is_called(matrix.name, "D")
    return lambda row, col: is_sum and (row, col) == (wanted_row, wanted_col)


def is_called(name: str, wanted: str) -> bool:
    """Whether a panel goes by a name, in either case.

    >>> is_called("C, D", "d"), is_called("scale A", "scale_a"), is_called("A", "B")
    (True, True, False)
    """
    plain = wanted.strip().lower().replace("_", " ")
    return plain in name.lower().split(", ") or (plain == "metadata" and name == "E")


def _colouring(matrix: Ownership, options: Options) -> Callable[[Owner], int]:
    by = options.colour or "thread"
    if by == "register":
        if not matrix.slots:
            raise LanewiseError(f'{matrix.name} does not know registers: colour by "thread" or "value"')
        return lambda owner: owner.value // matrix.slots
    return (lambda owner: owner.value) if by == "value" else (lambda owner: owner.thread)


def _cell(
    owners: Sequence[Owner],
    colour: Callable[[Owner], int],
    empty: str,
    lane: int | None,
    title: str,
    marked: bool,
    letters: tuple[str, str],
) -> Cell:
    if not owners:
        return Cell((), empty, title, marked, lane is not None)
    first, (t, v) = owners[0], letters
    if len(owners) == 1:
        lines = (f"{t}{first.thread}", f"{v}{first.value}")
    else:
        lines = (f"{t}{ranges(o.thread for o in owners)}", f"{v}{ranges(o.value for o in owners)}")
    if lane is not None and all(owner.thread != lane for owner in owners):
        return Cell(lines, FADED, title, marked, True)
    return Cell(lines, PASTELS[colour(first) % 8], title, marked)


def _counted(what: str, numbers: set[int]) -> str:
    return f"{what}{'s' if len(numbers) > 1 else ''} {ranges(numbers, most=16)}"


def colour_legends(matrices: Sequence[Ownership], options: Options) -> tuple[Legend, ...]:
    """What the pastels mean under the options, where anything is coloured."""
    threads = [matrix.thread for matrix in matrices if not matrix.shared]
    if not threads:
        return ()
    first = next(matrix for matrix in matrices if not matrix.shared)
    by = {
        "thread": f"{threads[0]} {first.letters[0]}",
        "value": f"{first.value} {first.letters[1]}",
        "register": "register",
    }[options.colour or "thread"]
    return (Legend(f"colour: {by} mod 8", tuple((pastel, str(i)) for i, pastel in enumerate(PASTELS))),)


def highlights(matrices: Sequence[Ownership], options: Options) -> list[str]:
    """Notes that say what is pointed out."""
    notes = [] if options.lane is None else [f"Marked: {matrices[0].thread} {options.lane}."]
    if options.element is None:
        return notes
    names = ", ".join(matrix.name for matrix in matrices)
    if len(options.element) == 2 and len(matrices) > 1:
        raise LanewiseError(
            f'element={options.element!r}: name the matrix, too ({names}), as in ("A", row, col)'
        )
    marked = [(matrix, marked_cell(matrix.name, *matrix.extent, options)) for matrix in matrices]
    lines = [f"{m.name}[{at[0]}][{at[1]}], {m.holders(*at)}" for m, at in marked if at is not None]
    if not lines:
        raise LanewiseError(f"element={options.element!r}: the picture has {names}")
    if options.inputs:
        row, col = options.element[-2:]
        lines.append(f"row {row} of A and column {col} of B, from which it is computed")
    return [*notes, f"Marked: {'; '.join(lines)}."]
