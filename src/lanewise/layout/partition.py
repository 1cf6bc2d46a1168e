"""Partitions of a tensor: the tile of one block, and the elements of one thread.

Partitions by instruction fragments are in the atoms.
"""

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import Nested

from .coordinates import dice, has_none
from .divides import zipped_divide
from .int_tuple import as_int, product, spell
from .layout import Layout
from .modes import rank
from .swizzle import ComposedLayout
from .tensor import Tensor


def inner_partition(tensor: Tensor, tiler: object, crd: object) -> Tensor:
    """One tile of a tensor: the one at crd among the tiles. Fewer entries in crd leave the last modes whole.

    >>> inner_partition(Tensor(0, Layout((8, 8))), (2, 4), (1, 1))
    34 o (2,4):(1,8)
    """
    tiles = _tiles("inner_partition", tensor, tiler)
    part: Tensor = tiles[(None,) * rank(tiles.layout[0]), _filled("inner_partition", crd, tiles.shape[1])]
    return part


def outer_partition(tensor: Tensor, tiler: object, crd: object) -> Tensor:
    """The elements of a tensor that lie at crd within each tile.

    >>> outer_partition(Tensor(0, Layout((8, 8))), (2, 4), (1, 1))
    9 o (4,2):(2,32)
    """
    tiles = _tiles("outer_partition", tensor, tiler)
    part: Tensor = tiles[_filled("outer_partition", crd, tiles.shape[0]), (None,) * rank(tiles.layout[1])]
    return part


def _tiles(name: str, tensor: Tensor, tiler: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise LanewiseError(
            f"{name} takes a Tensor, not {tensor!r}; Tensor(0, layout) is one of indices alone"
        )
    return zipped_divide(tensor, tiler)


def _filled(name: str, crd: object, shape: object) -> Nested:
    """crd with None for the modes of shape that it leaves out."""
    if not isinstance(crd, tuple) or not isinstance(shape, tuple):
        return crd
    if len(crd) > len(shape):
        raise LanewiseError(f"{name}: coordinate {spell(crd)} has more entries than {spell(shape)}")
    return crd + (None,) * (len(shape) - len(crd))


def local_tile(tensor: Tensor, tiler: object, crd: Nested, proj: Nested = None) -> Tensor:
    """The tile of a tensor that belongs to the block at crd.

    With proj, a tuple, the entries of tiler and crd where proj has None are left out: a tiler of (M, N, K)
    serves A with (1, None, 1), B with (None, 1, 1), C with (1, 1, None).

    >>> A = Tensor(0, Layout((256, 64)))
    >>> local_tile(A, (128, 96, 16), (1, 2, None), (1, None, 1))
    128 o (128,16,4):(1,256,4096)
    """
    if proj is not None:
        tiler, crd = dice(proj, tiler), dice(proj, crd)
    return inner_partition(tensor, tiler, crd)


def local_partition(tensor: Tensor, threads: Layout, index: int, proj: Nested = None) -> Tensor:
    """The elements of a tensor that belong to one thread, the layout of threads laid over it tile by tile.

    >>> local_partition(Tensor(0, Layout((8, 8))), Layout((2, 4), (4, 1)), 5)
    9 o (4,2):(2,32)
    """
    if not isinstance(threads, Layout):
        raise LanewiseError(f"local_partition takes a Layout of threads, not {threads!r}")
    if not 0 <= as_int(index) < threads.cosize():
        raise LanewiseError(f"thread {index} is not among the {threads.cosize()} threads of {threads}")
    tiler: object = tuple(product(mode.shape) for mode in threads)
    crd: Nested = threads.get_flat_coord(index)
    if proj is not None:
        tiler, crd = dice(proj, tiler), dice(proj, crd)
    return outer_partition(tensor, tiler, crd)


def domain_offset(crd: object, tensor: Tensor) -> Tensor:
    """The same tensor seen from crd: its coordinate 0 is what crd was.

    >>> domain_offset((2, 3), Tensor(0, Layout((8, 8))))[0]
    26
    """
    if not isinstance(tensor, Tensor) or has_none(crd):
        raise LanewiseError(
            f"domain_offset takes a whole coordinate and a Tensor, not {crd!r} and {tensor!r}"
        )
    layout = tensor.layout
    if isinstance(layout, ComposedLayout):  # the step must pass through the swizzle
        return tensor._on(layout.shifted(crd))
    return tensor._at(layout, tensor.offset + layout(crd))
