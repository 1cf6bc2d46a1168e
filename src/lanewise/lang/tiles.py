"""Tensors of a kernel as CuTe has them: memory seen through static layouts from a traced place on.

Slices and tiles of them here; what threads take of them in `tiles_threads.py`, copies in `tiles_copy.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.lang.arrays import Array, Strided, as_layout
from lanewise.lang.builder import current
from lanewise.lang.memory import Pointer
from lanewise.lang.tiles_memory import Elements, Memory, Places, Strides
from lanewise.lang.tiles_steps import UNKNOWN, known, static_step, steps, written
from lanewise.lang.trees import Node
from lanewise.lang.values import Scalar, describe, public
from lanewise.layout import (
    ComposedLayout,
    Layout,
    ScaledBasis,
    Swizzle,
    is_layout,
    make_identity_layout,
    product,
    size,
    zipped_divide,
)
from lanewise.layout.coordinates import dice, has_none, slice_

#: Elements of a thread for which addresses are computed ahead.
_MOST_PREPARED = 1024


class View(Node):
    """Elements in memory through a static layout, from a traced place on: `v[m, None, k]`, `v.ptr(m, n, k)`.

    None (or `:`) keeps a mode; a coordinate without either is an element.
    """

    __slots__ = ("layout", "memory")

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self.memory, self.layout = memory, layout

    def parts(self) -> list[Any]:
        return self.memory.traced()

    def with_parts(self, parts: list[Any], fresh: bool = False) -> View:
        return View(self.memory.with_traced(parts), self.layout)

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, View) and self.layout == other.layout and self.memory.same_kind(other.memory)

    @property
    def dtype(self) -> Format:
        """The dtype of the elements."""
        return self.memory.pointer.dtype

    @property
    def space(self) -> str:
        """The state space: shared, global, local."""
        return self.memory.pointer.space

    @property
    def shape(self) -> Any:
        """The shape of the coordinates; an extent that only the running kernel knows is very large."""
        return self.layout.shape

    def moved(self, coordinate: Any, layout: Layout, mask: int | None = None) -> Memory:
        """The memory from a coordinate of a layout on."""
        return self.memory.moved(steps(layout.shape, layout.stride, coordinate), mask)

    def step(self, number: int) -> Any:
        """How far the number-th coordinate leads, in elements or along each coordinate of the tensor."""
        return static_step(self.layout(number), self.memory.rank)

    def ptr(self, *coordinates: Any) -> Pointer:
        """The pointer to an element; without coordinates, to the first."""
        if not coordinates:
            return self.memory.at(static_step(0, self.memory.rank))
        crd = as_coordinate(coordinates[0] if len(coordinates) == 1 else coordinates, self.layout)
        return self.moved(crd, self.layout).at(static_step(0, self.memory.rank))

    def coordinates(self, *coordinates: Any) -> tuple[Any, ...]:
        """Where in the tensor that this is a part of an element lies: traced integers, one a mode."""
        crd = as_coordinate(coordinates[0] if len(coordinates) == 1 else coordinates, self.layout)
        return self.moved(crd, self.layout).coordinates(static_step(0, self.memory.rank))

    def neighbours(self, numbers: list[int]) -> bool:
        """Whether the elements of these coordinates lie side by side in memory, in order."""
        found = [self.step(number) for number in numbers]
        if isinstance(self.memory, Strides):
            for mode, stride in enumerate(self.memory.strides):
                moves = any(each[mode] != found[0][mode] for each in found)
                if moves and (isinstance(stride, Scalar) or stride != 1):
                    return False
            found = [sum(each) for each in found]
        return [each - found[0] for each in found] == list(range(len(found)))

    def prepared(self) -> View:
        """The same, with what its addresses share computed here, before a loop that uses them."""
        inside = known(self.layout)
        if size(inside) <= _MOST_PREPARED:
            found = [static_step(inside(number), self.memory.rank) for number in range(size(inside))]
            self.memory.prepare(found)
        return self

    def __getitem__(self, coordinate: Any) -> Any:
        crd = as_coordinate(coordinate, self.layout)
        if not has_none(crd):
            place, first = self.moved(crd, self.layout), static_step(0, self.memory.rank)
            return place.coordinates(first) if isinstance(place, Places) else place.at(first).load()
        return View(self.moved(crd, self.layout), sliced(crd, self.layout))

    def __setitem__(self, coordinate: Any, value: Any) -> None:
        crd = as_coordinate(coordinate, self.layout)
        if has_none(crd):
            raise current().error("a slice is written by lw.copy(source, slice)")
        self.moved(crd, self.layout).at(static_step(0, self.memory.rank)).store(value)

    def __iter__(self) -> Any:
        raise current().error("a tensor in memory is not iterated over: index it in a loop")

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        if isinstance(self.memory, Places):
            return f"a tensor of coordinates, of shape {written(self.shape)}"
        return f"a tensor of {public(self.dtype)} in {self.space} memory, of shape {written(self.shape)}"


def as_coordinate(coordinate: Any, layout: Layout) -> Any:
    """A coordinate with None for `:`, of as many entries as the layout has modes; None where too few."""
    crd = _without_slices(coordinate)
    if isinstance(crd, tuple) and isinstance(layout.shape, tuple) and len(crd) != len(layout.shape):
        raise current().error(
            f"{len(crd)} coordinates do not fit shape {written(layout.shape)}: give one for each mode, None "
            "for those to keep"
        )
    return crd


def _without_slices(crd: Any) -> Any:
    if isinstance(crd, slice):
        if crd != slice(None):
            raise current().error(f"a slice of a tensor is `:` or None, a whole mode; not {crd}")
        return None
    return tuple(map(_without_slices, crd)) if isinstance(crd, tuple) else crd


def sliced(crd: Any, layout: Layout) -> Layout:
    """The modes that a coordinate keeps."""
    if crd is None:
        return layout
    try:
        return Layout._of(slice_(crd, layout.shape), slice_(crd, layout.stride))
    except LanewiseError as error:
        raise current().error(str(error)) from None


def view(tensor: Any, what: str) -> View:
    """An array of the language, or a view, as a view."""
    if isinstance(tensor, View):
        return tensor
    if not isinstance(tensor, Array):
        raise current().error(
            f"{what} takes a tensor: lw.make_tensor(pointer, …), lw.shared(…) or a tile of one; not "
            f"{describe(tensor)}"
        )
    layout = tensor.layout
    if isinstance(layout, Strided):
        shape, stride = _listed(layout.shape), _listed(layout.stride)
        extents = tuple(UNKNOWN if isinstance(each, Scalar) else each for each in shape)
        memory = Strides(tensor.pointer, stride, shape, (0,) * len(shape))
        return View(memory, make_identity_layout(extents))
    swizzle, offset = None, 0
    if isinstance(layout, ComposedLayout):
        if not isinstance(layout.layoutB, Swizzle) or not isinstance(layout.layoutA, Layout):
            raise current().error(f"{what} takes a layout, or a swizzle after one; not {layout}")
        swizzle, offset, layout = layout.layoutB, layout.offset, layout.layoutA
        if swizzle.bits == 0:
            swizzle = None
    if any(isinstance(each, ScaledBasis) for each in _leaves(layout.stride)):
        raise current().error(f"{what}: {layout} leads to coordinates, not to elements")
    return View(Elements(tensor.pointer, swizzle, static=offset), layout)


def _leaves(stride: Any) -> list[Any]:
    return [leaf for each in stride for leaf in _leaves(each)] if isinstance(stride, tuple) else [stride]


def _listed(what: Any) -> tuple[Any, ...]:
    entries = what if isinstance(what, tuple) else (what,)
    for each in entries:
        if not isinstance(each, Scalar) and (isinstance(each, bool) or not isinstance(each, int)):
            raise current().error(f"shapes and strides are integers, traced or not; not {describe(each)}")
    return entries


def make_tensor(pointer: Any, *layout: Any, swizzle: Swizzle | None = None) -> Array:
    """A pointer seen through a layout, or through a shape and a stride with traced numbers among them.

    Inside a kernel: `gA = lw.make_tensor(A, (M, K), (K, 1))`. A tensor of shape and stride knows its limits:
    `lw.copy(…, pred=lw.inside)` leaves out what lies beyond. A promise about the stride,
    `K = lw.assume(K, multiple_of=8)`, is what allows rows to be moved 16 bytes at a time.
    """
    if isinstance(pointer, Array):
        pointer = pointer.pointer
    if not isinstance(pointer, Pointer):
        raise current().error(f"lw.make_tensor takes a pointer first, not {describe(pointer)}")
    if len(layout) == 2:
        shape, stride = _listed(layout[0]), _listed(layout[1])
        if len(shape) != len(stride):
            raise current().error(f"a shape of {len(shape)} modes takes as many strides, not {len(stride)}")
        return Array(pointer, Strided(shape, stride))
    if len(layout) != 1:
        raise current().error("lw.make_tensor takes a pointer and a layout, or a shape and a stride")
    if not is_layout(layout[0]) and any(isinstance(each, Scalar) for each in _leaves(layout[0])):
        raise current().error("a shape with traced numbers takes its strides, too: (M, K), (K, 1)")
    return Array(pointer, as_layout(layout[0], swizzle))


def make_identity_tensor(shape: Any) -> View:
    """The tensor of its own coordinates: tile and partition it as another to see which elements those are.

    Inside a kernel: `row, col = thread.partition_C(lw.make_identity_tensor((64, 64)))[v, m, n]`.
    """
    extents = _listed(shape)
    layout = make_identity_layout(tuple(UNKNOWN if isinstance(each, Scalar) else each for each in extents))
    return View(Places((0,) * len(extents)), layout)


def local_tile(tensor: Any, tiler: Any, coord: Any, proj: Any = None) -> View:
    """The tile of a tensor at a coordinate among the tiles, traced or not; None keeps all along a mode.

    Inside a kernel: `gA = lw.local_tile(A, (128, 32), (lw.block_idx.y, None))` has modes (128, 32, tiles of
    K). With `proj`, entries of tiler and coord where it has None are left out, as in CuTe.
    """
    whole = view(tensor, "lw.local_tile")
    if proj is not None:
        tiler, coord = dice(proj, tiler), dice(proj, coord)
    tiles = tiler if isinstance(tiler, tuple) else (tiler,)
    crd = _without_slices(coord if isinstance(coord, tuple) else (coord,))
    if any(isinstance(each, Scalar) for each in tiles):
        raise current().error("the extents of a tile are Python integers: the trace unrolls over them")
    rank = len(whole.layout) if isinstance(whole.shape, tuple) else 1
    if len(tiles) > rank or len(crd) > rank:
        raise current().error(f"a tile of {len(tiles)} modes at {len(crd)} coordinates, of {whole}")
    crd += (None,) * (rank - len(crd))
    layout = tiled(whole, tiles)
    here = ((None,) * len(tiles), crd)
    return View(whole.moved(here, layout), sliced(here, layout))


def tiled(whole: View, tiles: tuple[Any, ...]) -> Layout:
    """A layout as (tile, tiles)."""
    layout = whole.layout
    if isinstance(whole.memory, Elements):
        _check_whole(layout, tiles)
        try:
            return zipped_divide(layout, tiles)
        except LanewiseError as error:
            raise current().error(str(error)) from None
    inside, over = [], []
    for mode, part in enumerate(layout):
        extent = part.shape
        if mode >= len(tiles):
            over.append((extent, part.stride))
            continue
        tile = tiles[mode]
        if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1 or isinstance(extent, tuple):
            raise current().error(
                f"a tensor with strides known when the kernel runs is cut into extents, not {tile!r}"
            )
        inside.append((tile, part.stride))
        count = UNKNOWN if extent == UNKNOWN else -(-extent // tile)
        over.append((count, part.stride * tile))
    return Layout._of(
        (tuple(n for n, _ in inside), tuple(n for n, _ in over)),
        (tuple(d for _, d in inside), tuple(d for _, d in over)),
    )


def _check_whole(layout: Layout, tiles: tuple[Any, ...]) -> None:
    for number, (tile, mode) in enumerate(zip(tiles, layout, strict=False)):
        if isinstance(tile, int) and (tile < 1 or product(mode.shape) % tile):
            raise current().error(
                f"lw.local_tile: mode {number} has {product(mode.shape)} elements, no multiple of {tile}"
            )


__all__ = [
    "View",
    "as_coordinate",
    "local_tile",
    "make_identity_tensor",
    "make_tensor",
    "sliced",
    "tiled",
    "view",
]
