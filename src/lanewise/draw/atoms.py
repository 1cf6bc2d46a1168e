"""Pictures of atoms and of what is tiled with them: each element or value with its threads.

Of an MMA, C is at the origin, A left, B above; of a copy, the source stands beside the destination. A tiled
copy is drawn over its tile; a copy atom, which has none, over what it moves, 16 bytes a row. The (thread,
value) layouts are the atom's own; which thread reads which is nothing this module decides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lanewise.atoms import Copy_Atom, MMA_Atom, TiledCopy
from lanewise.draw.instructions import PLACES
from lanewise.draw.options import Options
from lanewise.draw.owners import (
    Owner,
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
from lanewise.isa import Operand
from lanewise.layout import Layout, idx2crd, is_int, product, size

#: For each operand: its name in the picture, its modes (of M, N, K) down and across, and whether its layout
#: leads to the transpose of what is drawn.
OPERANDS = {"a": ("A", (0, 2), False), "b": ("B", (2, 1), True), "c": ("C, D", (0, 1), False)}


def picture_of_mma(mma: MMA_Atom, options: Options) -> Picture:
    """One tile of an MMA atom or a tiled MMA."""
    options.refuse("an atom: it does one product", "product")
    tile = mma.tile_size_mnk
    wanted = options.operand
    keys = [key for key, (name, *_) in OPERANDS.items() if wanted is None or is_called(name, wanted)]
    if not keys:
        raise LanewiseError(f"operand={options.operand!r}: an atom has A, B, C and D")
    matrices = {key: _ownership(mma, key) for key in keys}
    panels = tuple(
        panel_of(matrices[key], options, at=PLACES[key], rule=_rule(mma, OPERANDS[key][1])) for key in keys
    )
    tiles, threads = "×".join(map(str, tile)), size(mma.thr_layout_vmnk)
    shape = "×".join(map(str, mma.Shape_MNK))
    return Picture(
        repr(mma),
        f"{tiles} by {threads} threads; one operation is {shape}: {mma.instruction.text}",
        panels,
        colour_legends(list(matrices.values()), options),
        (*_notes(mma, list(matrices.values())), *highlights(list(matrices.values()), options)),
    )


def _ownership(mma: MMA_Atom, key: str) -> Ownership:
    name, (down, across), transposed = OPERANDS[key]
    rows, cols = mma.tile_size_mnk[down], mma.tile_size_mnk[across]
    check_extent(f"{name} of {mma!r}", rows, cols, "choose a smaller tile")
    operand = mma.instruction.operands[key]
    shared = operand.where != "registers"
    kind = {"a": mma.ValTypeA, "b": mma.ValTypeB, "c": mma.ValTypeC}[key]
    threads = mma.thr_layout_vmnk
    modes = (across, down) if transposed else (down, across)
    pairs = () if shared else _pairs(mma, key, modes)
    owners = owners_of(pairs, rows, cols, transposed=transposed, what=repr(mma))
    return Ownership(
        name,
        f"{name}: {rows}×{cols} {kind}{', shared memory' if shared else ''}",
        owners,
        Axis.counted("mnk"[down], rows),
        Axis.counted("mnk"[across], cols),
        threads=threads.cosize(),
        slots=_slots(mma, operand, key),
        shared=shared,
    )


def _pairs(mma: MMA_Atom, key: str, modes: tuple[int, int]) -> Iterator[tuple[Owner, int]]:
    """Every thread's values and their indices; where a thread stands along the third mode plays no part."""
    split = {"a": mma.thrfrg_A, "b": mma.thrfrg_B, "c": mma.thrfrg_C}[key]
    layout = split(Layout(tuple(mma.tile_size_mnk[mode] for mode in modes)))
    threads = mma.thr_layout_vmnk
    grid = tuple(size(mode) for mode in threads)
    places = []
    for index in range(size(threads)):
        v, *mnk = idx2crd(index, grid)
        places.append((threads(index), (v, tuple(mnk[mode] for mode in modes))))
    return tv_pairs(layout, sorted(places))


def _slots(mma: MMA_Atom, operand: Operand, key: str) -> int:
    """Values a register; a value of a sparse A is one index along K, of which two are one stored element."""
    if mma.operation.composed:
        return 0
    return operand.slots * (2 if key == "a" and mma.instruction.sparse else 1)


def _rule(mma: MMA_Atom, modes: tuple[int, int]) -> tuple[int, int]:
    """Heavy lines around each operation, where its elements lie together."""
    down, across = (
        mma.Shape_MNK[mode] if mma.PermutationMNK[mode] is None or is_int(mma.PermutationMNK[mode]) else 0
        for mode in modes
    )
    return down, across


def _notes(mma: MMA_Atom, matrices: list[Ownership]) -> list[str]:
    notes = ["T: thread. V: the number of the value among that thread's own, one operation after the other."]
    if any(len(owners) > 1 for matrix in matrices for row in matrix.owners for owners in row[:1]):
        notes.append("Where a cell names several threads, each holds the element.")
    if mma.instruction.sparse:
        notes.append("A is sparse: its values stand for places along K, of which half are stored.")
    if any(matrix.shared for matrix in matrices):
        notes.append("What lies in shared memory is read there through a descriptor; no thread holds it.")
    return notes


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
    matrices = [_copied(copy, side, layouts[side], plane) for side in sides]
    threads = size(layouts["D"][0])
    return Picture(
        repr(copy),
        f"{plane.rows}×{plane.cols} values of {copy.ValType.bits} bits by {_counted(threads, 'thread')}",
        tuple(panel_of(matrix, options, at=(0, i)) for i, matrix in enumerate(matrices)),
        colour_legends(matrices, options),
        (*_copy_notes(copy, matrices), *highlights(matrices, options)),
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


def _copied(copy: Copy_Atom, side: str, layout: Layout, plane: _Plane) -> Ownership:
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


def _copy_notes(copy: Copy_Atom, matrices: Iterable[Ownership]) -> list[str]:
    notes = ["T: thread. V: the number of the value among those that the thread reads, or writes."]
    if copy.instruction is not None:
        notes.append(f"One operation is {copy.instruction.text}.")
    side = _shared_side(copy)
    if side:
        notes.append(f"The {SIDES[side]} is in shared memory; there T gives the address of its 16 bytes.")
    if any(len(owners) > 1 for matrix in matrices for row in matrix.owners for owners in row):
        notes.append("Where a cell names several threads, each has the value.")
    return notes
