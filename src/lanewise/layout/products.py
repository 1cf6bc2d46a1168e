"""Product: a layout repeated at the offsets that another layout gives, in differently nested results.

Division, its counterpart, is beside it.
"""

from lanewise.errors import LanewiseError
from lanewise.layout.complements import complement
from lanewise.layout.compose import Tiler, compose
from lanewise.layout.divides import as_tile, hier_unzip
from lanewise.layout.int_tuple import IntTuple, product, spell
from lanewise.layout.layout import Layout, cosize, make_layout, on_domain, size
from lanewise.layout.modes import append
from lanewise.layout.order import make_ordered_layout
from lanewise.layout.simplify import by_mode, coalesce


@on_domain
def logical_product(layoutA: Layout, layoutB: Tiler) -> Layout:
    """(layoutA, copies): mode 1 puts copies of layoutA, in the order of layoutB, where they do not overlap.

    A tuple multiplies mode by mode; in it an integer n is Layout(n), None leaves the mode as it is.

    >>> logical_product(Layout((2, 2), (4, 1)), Layout(6))
    ((2,2),(2,3)):((4,1),(2,8))
    """
    if layoutB is None:
        return layoutA
    if isinstance(layoutB, tuple):
        return by_mode("logical_product", logical_product, layoutA, layoutB)
    tile = as_tile("logical_product", layoutB)
    try:
        places = complement(layoutA, size(layoutA) * cosize(tile))
        return make_layout(layoutA, compose(places, tile))
    except LanewiseError as e:
        raise LanewiseError(f"{layoutA} cannot be repeated as {tile}: {e}") from None


@on_domain
def zipped_product(layoutA: Layout, layoutB: Tiler) -> Layout:
    """logical_product with all blocks gathered in mode 0 and all copies in mode 1.

    >>> zipped_product(Layout((2, 5), (5, 1)), (3, 4))
    ((2,5),(3,4)):((5,1),(1,5))
    """
    return hier_unzip(logical_product, layoutA, layoutB)


@on_domain
def tiled_product(layoutA: Layout, layoutB: Tiler) -> Layout:
    """zipped_product with the copies as modes of their own: (block, copies0, copies1, ...).

    >>> tiled_product(Layout(32), Layout((2, 2)))
    (32,2,2):(1,32,64)
    """
    block, copies = zipped_product(layoutA, layoutB)
    return make_layout([block, *copies])


@on_domain
def flat_product(layoutA: Layout, layoutB: Tiler) -> Layout:
    """zipped_product with every part as a mode of its own: (block0, ..., copies0, ...).

    >>> flat_product(Layout((2, 5), (5, 1)), Layout((3, 4)))
    (2,5,3,4):(5,1,10,30)
    """
    block, copies = zipped_product(layoutA, layoutB)
    return make_layout([*block, *copies])


def _ranked_product(block: Layout, tiler: Layout, block_first: bool) -> Layout:
    places = as_tile("a product", tiler)
    rank = max(len(block), len(places))
    # as tuples of modes, so that a mode of the tiler stays one even where it is split
    blocks, copies = logical_product(*(make_layout([*append(x, rank=rank)]) for x in (block, places)))
    pairs = zip(blocks, copies, strict=True) if block_first else zip(copies, blocks, strict=True)
    return coalesce(make_layout([make_layout(p) for p in pairs]), (1,) * rank)


@on_domain
def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """The block repeated over the tiler, mode by mode, each copy whole: the matrix of blocks.

    >>> blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3)))
    (6,(5,4)):(5,(1,30))
    """
    return _ranked_product(block, tiler, block_first=True)


@on_domain
def raked_product(block: Layout, tiler: Layout) -> Layout:
    """The block repeated over the tiler, mode by mode, the copies interleaved.

    >>> raked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3)))
    ((3,2),(4,5)):((10,5),(30,1))
    """
    return _ranked_product(block, tiler, block_first=False)


@on_domain
def tile_to_shape(block: Layout, shape: IntTuple, order: object = None) -> Layout:
    """The block repeated until it has the shape, along the modes in ascending order, or from left to right.

    >>> tile_to_shape(Layout((8, 4), (4, 1)), (16, 8)), tile_to_shape(Layout((8, 4), (4, 1)), (16, 8), (2, 1))
    ((16,(4,2)):(4,(1,64)), ((8,2),(4,2)):((4,64),(1,32)))
    """
    target = tuple(product(s) for s in shape) if isinstance(shape, tuple) else (product(shape),)
    if len(block) > len(target):
        raise LanewiseError(f"tile_to_shape: {block} has more modes than shape {spell(shape)}")
    padded = append(block, rank=len(target))
    extents = tuple(m.size() for m in padded)
    if any(t % e for t, e in zip(target, extents, strict=True)):
        raise LanewiseError(
            f"tile_to_shape: {spell(target)} is not a multiple of the block's {spell(extents)}"
        )
    copies = tuple(t // e for t, e in zip(target, extents, strict=True))
    places = make_ordered_layout(copies, tuple(range(len(copies))) if order is None else order)
    result: Layout = blocked_product(padded, places)
    return result
