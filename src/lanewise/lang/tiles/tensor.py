"""Tensors and their tiles under CuTe's names: make_tensor, make_identity_tensor, local_tile.

Tensors themselves are in `memory/array.py` and `memory/view.py`; what threads take of one, in `partition.py`.
"""

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.lang.memory.array import Array, Strided, as_layout, integer_entries
from lanewise.lang.memory.layout_index import UNKNOWN
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import Coordinates, SwizzledAddresses, View, slice_layout, without_slices
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.layout import Layout, Swizzle, flatten, is_layout, make_identity_layout, product, zipped_divide
from lanewise.layout.coordinates import dice
from lanewise.layout.int_tuple import Nested


def as_view(tensor: object, what: str) -> View:
    """Return an array of the language, or a view, as a view; `what` names the function that takes it."""
    if isinstance(tensor, View):
        return tensor
    if not isinstance(tensor, Array):
        raise current().error(
            f"{what} takes a tensor: lw.make_tensor(pointer, …), lw.shared(…) or a tile of one; not "
            f"{describe(tensor)}"
        )
    return tensor.view(what)


def make_tensor(pointer: object, *layout: object, swizzle: Swizzle | None = None) -> Array:
    """Return a pointer seen through a layout, or through a shape and a stride with traced numbers in them.

    Inside a kernel: `gA = lw.make_tensor(A, (M, K), (K, 1))`. A tensor of shape and stride knows its limits:
    `lw.copy(…, pred=lw.inside)` leaves out what lies beyond. A promise about the stride,
    `K = lw.assume(K, multiple_of=8)`, is what allows rows to be moved 16 bytes at a time.
    """
    if isinstance(pointer, Array):
        pointer = pointer.pointer
    if not isinstance(pointer, Pointer):
        raise current().error(f"lw.make_tensor takes a pointer first, not {describe(pointer)}")
    pointer.leave_layout()
    if len(layout) == 2:
        shape, stride = integer_entries(layout[0]), integer_entries(layout[1])
        if len(shape) != len(stride):
            raise current().error(f"a shape of {len(shape)} modes takes as many strides, not {len(stride)}")
        return Array(pointer, Strided(shape, stride))
    if len(layout) != 1:
        raise current().error("lw.make_tensor takes a pointer and a layout, or a shape and a stride")
    if not is_layout(layout[0]) and any(isinstance(extent, Scalar) for extent in flatten((layout[0],))):
        raise current().error("a shape with traced numbers takes its strides, too: (M, K), (K, 1)")
    return Array(pointer, as_layout(layout[0], swizzle))


def make_identity_tensor(shape: object) -> View:
    """Return the tensor of its own coordinates: partition it as another to see which elements those are.

    Inside a kernel: `row, col = thread.partition_C(lw.make_identity_tensor((64, 64)))[v, m, n]`.
    """
    extents = integer_entries(shape)
    layout = make_identity_layout(
        tuple(UNKNOWN if isinstance(extent, Scalar) else extent for extent in extents)
    )
    return View(Coordinates((0,) * len(extents)), layout)


def local_tile(tensor: object, tiler: Any, coord: Nested, proj: Nested = None) -> View:
    """Return the tile of a tensor at a coordinate among its tiles; None keeps all along a mode.

    Inside a kernel: `gA = lw.local_tile(A, (128, 32), (lw.block_idx.y, None))` has modes (128, 32, tiles of
    K). With `proj`, entries of tiler and coord where it has None are left out, as in CuTe.
    """
    whole = as_view(tensor, "lw.local_tile")
    if proj is not None:
        tiler, coord = dice(proj, tiler), dice(proj, coord)
    tiles = tiler if isinstance(tiler, tuple) else (tiler,)
    crd = without_slices(coord if isinstance(coord, tuple) else (coord,))
    if any(isinstance(tile, Scalar) for tile in tiles):
        raise current().error("the extents of a tile are Python integers: the trace unrolls over them")
    rank = len(whole.layout) if isinstance(whole.shape, tuple) else 1
    if len(tiles) > rank or len(crd) > rank:
        raise current().error(f"a tile of {len(tiles)} modes at {len(crd)} coordinates, of {whole}")
    crd += (None,) * (rank - len(crd))
    layout = divide_into_tiles(whole, tiles)
    here = ((None,) * len(tiles), crd)
    return View(whole.addresses_at(here, layout), slice_layout(here, layout))


def divide_into_tiles(whole: View, tiles: tuple[Any, ...]) -> Layout:
    """Return the layout of a view divided into (tile, tiles)."""
    layout = whole.layout
    if isinstance(whole.addresses, SwizzledAddresses):
        _check_divisible(layout, tiles)
        try:
            return zipped_divide(layout, tiles)
        except LanewiseError as error:
            raise current().error(str(error)) from None
    inside, over = [], []
    for mode, own in enumerate(layout):
        extent = own.shape
        if mode >= len(tiles):
            over.append((extent, own.stride))
            continue
        tile = tiles[mode]
        if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1 or isinstance(extent, tuple):
            raise current().error(
                f"a tensor with strides known when the kernel runs is cut into extents, not {tile!r}"
            )
        inside.append((tile, own.stride))
        count = UNKNOWN if extent == UNKNOWN else -(-extent // tile)
        over.append((count, own.stride * tile))
    return Layout._of(
        (tuple(n for n, _ in inside), tuple(n for n, _ in over)),
        (tuple(d for _, d in inside), tuple(d for _, d in over)),
    )


def _check_divisible(layout: Layout, tiles: tuple[object, ...]) -> None:
    """Raise an error for a mode whose size is no multiple of the tile's."""
    for number, (tile, mode) in enumerate(zip(tiles, layout, strict=False)):
        if isinstance(tile, int) and (tile < 1 or product(mode.shape) % tile):
            raise current().error(
                f"lw.local_tile: mode {number} has {product(mode.shape)} elements, no multiple of {tile}"
            )
