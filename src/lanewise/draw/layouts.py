"""Pictures of layouts: the index of every coordinate, or, for (thread, value) layouts, who owns each element.

Layouts of one mode are a row; of more than two, mode 0 runs down and all others run across.
"""

from dataclasses import dataclass
from typing import Any

from lanewise.draw.options import Options
from lanewise.draw.owners import (
    Ownership,
    colour_legends,
    highlights,
    marked_cell,
    owners_of,
    panel_of,
    tv_pairs,
)
from lanewise.draw.picture import GREYS, MAX_EXTENT, PASTELS, Axis, Cell, Legend, Panel, Picture, check_extent
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout import ComposedLayout, Layout, Swizzle, Tensor, flatten, idx2crd, product, rank

TOO_LARGE = "take a tile of it (zipped_divide, slicing), or give it another shape (with_shape)"

#: As many (thread, value) pairs as a picture of the largest extent needs, and some that repeat.
MAX_PAIRS = 8 * MAX_EXTENT * MAX_EXTENT


@dataclass(frozen=True)
class TVLayout(Drawn):
    """A (thread, value) layout with the matrix whose flat column-major index it leads to: see `tv`."""

    layout: Any
    shape: tuple[int, int]


def tv(layout: object, shape: object) -> TVLayout:
    """Return a (thread, value) layout that is drawn over a matrix of this shape (rows, columns).

    >>> c = tv(Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), (16, 8))
    >>> c.shape
    (16, 8)
    """
    if not isinstance(layout, Layout | ComposedLayout) or rank(layout) != 2:
        raise LanewiseError(f"tv takes a layout of two modes, thread and value, not {layout!r}")
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise LanewiseError(f"tv: the shape is (rows, columns) of the matrix, not {shape!r}")
    rows, cols = (product(extent) for extent in shape)
    return TVLayout(layout, (rows, cols))


def picture_of_tv(tv_layout: TVLayout, options: Options) -> Picture:
    """Which thread and value own each element."""
    options.refuse("a (thread, value) layout", "operand", "product")
    layout, (rows, cols) = tv_layout.layout, tv_layout.shape
    check_extent(f"the matrix under {layout}", rows, cols, "take a smaller tile")
    threads, values = (product(extent) for extent in layout.shape)
    if threads * values > MAX_PAIRS:
        raise LanewiseError(
            f"{layout} has {threads}×{values} threads and values, more than {MAX_PAIRS}: draw a part of it"
        )
    matrix = Ownership(
        "matrix",
        f"matrix: {rows}×{cols}",
        owners_of(tv_pairs(layout, enumerate(range(threads))), rows, cols, what=str(layout)),
        Axis.counted("m", rows),
        Axis.counted("n", cols),
        threads=threads,
    )
    return Picture(
        f"(thread, value) layout {layout}",
        f"{threads} threads, {values} values each, over a {rows}×{cols} matrix",
        (panel_of(matrix, options),),
        colour_legends([matrix], options),
        ("T: thread. V: the number of the value among that thread's own.", *highlights([matrix], options)),
    )


def one_period(swizzle: Swizzle) -> ComposedLayout:
    """The indices that a swizzle permutes among themselves, a row for each of its patterns.

    >>> print(one_period(Swizzle(1, 0, 1)))
    SW_1_0_1 o 0 o (2,2):(2,1)
    """
    rows = 1 << swizzle.bits
    return ComposedLayout(swizzle, 0, Layout((rows, swizzle.size() // rows), (swizzle.size() // rows, 1)))


def picture_of_layout(layout: object, options: Options) -> Picture:
    """The index of every coordinate."""
    options.refuse("a layout: it has indices, not threads; tv(layout, shape) draws those", "lane", "colour")
    options.refuse("a layout", "operand", "product")
    indices = indices_of(layout)
    elements = [index for row in indices for index in row]
    swizzled = _chunk_bits(layout) is not None
    return Picture(
        f"{'Swizzled layout' if swizzled else 'Layout'} {layout}",
        f"{_counted(len(elements), 'coordinate', 'coordinates')}, "
        f"{_counted(len(set(elements)), 'different index', 'different indices')}{_span(elements)}",
        (_panel(layout, indices, indices, options),),
        (_legend(layout),),
        _how_to_read(layout, "its index"),
    )


def picture_of_tensor(tensor: Tensor, options: Options) -> Picture:
    """The element at every coordinate, coloured by index."""
    options.refuse("a tensor: it has elements, not threads; tv(layout, shape) draws those", "lane", "colour")
    options.refuse("a tensor", "operand", "product")
    indices = indices_of(tensor.layout)
    rows = len(indices)
    elements = [[tensor[i + rows * j] for j in range(len(row))] for i, row in enumerate(indices)]
    return Picture(
        f"Tensor {tensor.layout}",
        f"{tensor.size()} elements" + (f", from {tensor.offset} on" if tensor.data is None else ""),
        (_panel(tensor.layout, indices, elements, options),),
        (_legend(tensor.layout),),
        _how_to_read(tensor.layout, "its element"),
    )


def indices_of(layout: Any) -> list[list[Any]]:
    """The layout's indices as rows and columns: mode 0 down, the others across; one mode across.

    >>> indices_of(Layout((2, 2, 2)))
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    shape = layout.shape
    rows = product(shape[0]) if rank(layout) > 1 else 1
    cols = layout.size() // rows
    check_extent(str(layout), rows, cols, TOO_LARGE)
    return [[layout(i + rows * j) for j in range(cols)] for i in range(rows)]


def _panel(layout: Any, indices: list[list[object]], elements: list[list[object]], options: Options) -> Panel:
    rows, cols = len(indices), len(indices[0])
    marked = marked_cell("the layout", rows, cols, options)
    shift, explain = _chunk_bits(layout), options.explains(rows * cols)
    cells = []
    for i, row in enumerate(indices):
        line = []
        for j, index in enumerate(row):
            title = ""
            if explain:
                title = f"{_spelled(idx2crd(i + rows * j, layout.shape))} → {_spelled(index)}"
                title += "" if elements is indices else f": {_spelled(elements[i][j])}"
            fill = _colour(index, shift)
            line.append(Cell((_spelled(elements[i][j]),), fill, title, (i, j) == marked))
        cells.append(line)
    return Panel("layout", f"{rows}×{cols}", cells, Axis.counted("i", rows), Axis.counted("j", cols))


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_spelled, value))})"
    if hasattr(value, "__float__") and not hasattr(value, "__index__"):
        return f"{float(value):.4g}"
    return "".join(c if c.isprintable() else "?" for c in str(value)[:24])


def _colour(index: object, shift: int | None) -> str:
    first = flatten(index)[0] if isinstance(index, tuple) and flatten(index) else index
    number = first if isinstance(first, int) else 0
    return GREYS[number % 8] if shift is None else PASTELS[(number >> shift) % 8]


def _chunk_bits(layout: object) -> int | None:
    """The bits of an index below those that a swizzle moves: what stays together; None for plain layouts."""
    if not isinstance(layout, ComposedLayout):
        return None
    outer = layout.layoutB
    if isinstance(outer, Swizzle) and outer.bits:
        return outer.base
    return _chunk_bits(outer)


def _legend(layout: Any) -> Legend:
    shift = _chunk_bits(layout)
    what = "first coordinate" if isinstance(layout(0), tuple) else "index"
    if shift:
        what += f" div {1 << shift}"
    colours = GREYS if shift is None else PASTELS
    return Legend(f"colour: {what} mod 8", tuple((colour, str(i)) for i, colour in enumerate(colours)))


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _span(indices: list[Any]) -> str:
    if any(isinstance(index, tuple) for index in indices):
        return ""
    return f", {min(indices)} to {max(indices)}"


def _how_to_read(layout: object, what: str) -> tuple[str, ...]:
    modes = rank(layout)
    if modes > 2:
        return (
            f"Mode 0 runs down (i), modes 1 to {modes - 1} across (j), mode 1 fastest. Each cell: {what}.",
        )
    if modes < 2:
        return (f"One mode, drawn as a row. Each cell: {what}.",)
    return (f"Mode 0 runs down (i), mode 1 across (j). Each cell: {what}.",)
