"""Division: a layout split into tiles and the rest, the two kept apart in differently nested results.

Product, its counterpart, is beside it.
"""

from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.complements import complement
from lanewise.layout.compose import Tiler, compose
from lanewise.layout.int_tuple import is_int, spell
from lanewise.layout.layout import Layout, make_layout, on_domain, size
from lanewise.layout.simplify import by_mode


@on_domain
def logical_divide(layoutA: Layout, layoutB: Tiler) -> Layout:
    """layoutA as (tile, rest): mode 0 takes the elements that layoutB points to, mode 1 the offsets of tiles.

    A tuple divides mode by mode; in it an integer n is Layout(n), None leaves the mode as it is.

    >>> logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2))
    ((2,2),(2,3)):((4,1),(2,8))
    >>> logical_divide(Layout((9, 8), (8, 1)), (3, 4))
    ((3,3),(4,2)):((8,24),(1,4))
    """
    if layoutB is None:
        return layoutA
    if isinstance(layoutB, tuple):
        return by_mode("logical_divide", logical_divide, layoutA, layoutB)
    tile = as_tile("logical_divide", layoutB)
    try:
        return compose(layoutA, make_layout(tile, complement(tile, size(layoutA))))
    except LanewiseError as e:
        raise LanewiseError(f"{layoutA} cannot be divided by the tile {tile}: {e}") from None


def as_tile(name: str, tiler: object) -> Layout:
    """The layout that one entry of a tiler stands for."""
    if isinstance(tiler, Layout):
        return tiler
    if is_int(tiler):
        return Layout(tiler)
    raise LanewiseError(f"{name}: a tiler is a Layout, an integer, None, or a tuple of these, not {tiler!r}")


def hier_unzip(splitter: Callable[[Any, Any], Layout], layoutA: Layout, layoutB: Tiler) -> Layout:
    """splitter on each mode, the first halves gathered in mode 0 and the second in mode 1.

    >>> hier_unzip(logical_divide, Layout((9, 8), (8, 1)), (3, 4))
    ((3,4),(3,2)):((8,1),(24,4))
    """
    if not isinstance(layoutA, Layout) or not callable(splitter):
        raise LanewiseError(
            f"hier_unzip takes a splitter such as logical_divide and a Layout, not {layoutA!r}"
        )
    if layoutB is None:
        return make_layout(Layout._of(1, 0), layoutA)
    if not isinstance(layoutB, tuple):
        return splitter(layoutA, layoutB)
    if len(layoutA) < len(layoutB):
        raise LanewiseError(
            f"tiler {spell(layoutB)} has more entries than {layoutA} has modes, {len(layoutA)}"
        )
    split = [hier_unzip(splitter, a, b) for a, b in zip(layoutA, layoutB, strict=False)]
    first = make_layout([s[0] for s in split])
    return make_layout(first, make_layout([s[1] for s in split] + [*layoutA[len(split) :]]))


@on_domain
def zipped_divide(layoutA: Layout, layoutB: Tiler) -> Layout:
    """logical_divide with all tile modes gathered in mode 0 and all rests in mode 1.

    >>> zipped_divide(Layout((9, 8), (8, 1)), (3, 4))
    ((3,4),(3,2)):((8,1),(24,4))
    """
    return hier_unzip(logical_divide, layoutA, layoutB)


@on_domain
def tiled_divide(layoutA: Layout, layoutB: Tiler) -> Layout:
    """zipped_divide with the rests as modes of their own: (tile, rest0, rest1, ...).

    >>> tiled_divide(Layout((9, 8), (8, 1)), (3, 4))
    ((3,4),3,2):((8,1),24,4)
    """
    tile, rest = zipped_divide(layoutA, layoutB)
    return make_layout([tile, *rest])


@on_domain
def flat_divide(layoutA: Layout, layoutB: Tiler) -> Layout:
    """zipped_divide with every part as a mode of its own: (tile0, tile1, ..., rest0, rest1, ...).

    >>> flat_divide(Layout((9, 8), (8, 1)), (3, 4))
    (3,4,3,2):(8,1,24,4)
    """
    tile, rest = zipped_divide(layoutA, layoutB)
    return make_layout([*tile, *rest])
