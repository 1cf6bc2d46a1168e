"""Pictures of copy atoms and tiled copies: the source beside the destination, each value with its threads.

A tiled copy is drawn over its tile; a copy atom, which has none, over what it moves, 16 bytes a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lanewise.atoms import Copy_Atom, TiledCopy
from lanewise.draw.options import Options
from lanewise.draw.owners import (
    Ownership,
    colour_legends,
    highlights,
    is_called,
    owners_of,
    panel_of,
    tv_pairs,
)
from lanewise.draw.picture import Axis, Picture, check_extent
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, product, size

ROW_BITS = 128
SIDES = {"S": "source", "D": "destination"}


@dataclass(frozen=True)
class _Plane:
    """How what is copied is laid out on the page; by rows, if the layouts' indices run along rows first."""

    rows: int
    cols: int
    axes: tuple[str, str]
    by_rows: bool


def picture_of_copy(copy: Copy_Atom, options: Options) -> Picture:
    """What each thread reads, and what it writes."""
    options.refuse("a copy: it does no product", "product")
    sides = [side for side in SIDES if options.operand is None or is_called(side, options.operand)]
    if not sides:
        raise LanewiseError(
            f'operand={options.operand!r}: a copy has "S", its source, and "D", its destination'
        )
    plane = _tile(copy) if isinstance(copy, TiledCopy) else _atom(copy)
    check_extent(repr(copy), plane.rows, plane.cols, "choose a smaller tile")
    layouts = _layouts(copy)
    matrices = [_ownership(copy, side, layouts[side], plane) for side in sides]
    threads = size(layouts["D"][0])
    return Picture(
        repr(copy),
        f"{plane.rows}×{plane.cols} values of {copy.ValType.bits} bits by {_counted(threads, 'thread')}",
        tuple(panel_of(matrix, options, at=(0, i)) for i, matrix in enumerate(matrices)),
        colour_legends(matrices, options),
        (*_notes(copy, matrices), *highlights(matrices, options)),
    )


def _layouts(copy: Copy_Atom) -> dict[str, Layout]:
    if isinstance(copy, TiledCopy):
        return {"S": copy.get_layoutS_TV(), "D": copy.get_layoutD_TV()}
    return {"S": copy.ValLayoutSrc, "D": copy.ValLayoutDst}


def _tile(copy: TiledCopy) -> _Plane:
    tile = copy.tile_mn
    if len(tile) == 1:
        return _Plane(1, tile[0], ("", "m"), by_rows=False)
    return _Plane(tile[0], product(tile[1:]), ("m", "n"), by_rows=False)


def _atom(copy: Copy_Atom) -> _Plane:
    values = max(layout.cosize() for layout in _layouts(copy).values())
    cols = values if copy.instruction is None else ROW_BITS // copy.ValType.bits
    return _Plane(-(-values // cols), cols, ("row", "v"), by_rows=True)


def _ownership(copy: Copy_Atom, side: str, layout: Layout, plane: _Plane) -> Ownership:
    pairs = tv_pairs(layout, ((t, t) for t in _threads(copy, side, size(layout[0]))))
    owners = owners_of(pairs, plane.rows, plane.cols, transposed=plane.by_rows, what=repr(copy))
    return Ownership(
        side,
        f"{SIDES[side]}: {plane.rows}×{plane.cols} {copy.ValType}",
        owners,
        Axis.counted(plane.axes[0], plane.rows),
        Axis.counted(plane.axes[1], plane.cols),
        threads=size(layout[0]),
    )


def _threads(copy: Copy_Atom, side: str, count: int) -> list[int]:
    """The threads that matter on a side: in shared memory, those whose address the instruction looks at."""
    if side != _shared_side(copy) or copy.instruction is None:
        return list(range(count))
    return [t for t in range(count) if t % copy.instruction.threads < copy.instruction.row_addresses.rows]


def _shared_side(copy: Copy_Atom) -> str:
    family = "" if copy.instruction is None else copy.instruction.family
    return {"ldmatrix": "S", "stmatrix": "D"}.get(family, "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def _notes(copy: Copy_Atom, matrices: Iterable[Ownership]) -> list[str]:
    notes = ["T: thread. V: the number of the value among those that the thread reads, or writes."]
    if copy.instruction is not None:
        notes.append(f"One operation is {copy.instruction.text}.")
    side = _shared_side(copy)
    if side:
        notes.append(f"The {SIDES[side]} is in shared memory; there T gives the address of its 16 bytes.")
    if any(len(owners) > 1 for matrix in matrices for row in matrix.owners for owners in row):
        notes.append("Where a cell names several threads, each has the value.")
    return notes
