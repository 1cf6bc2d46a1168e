"""Recasting: the layout that the same memory has when its elements are seen as wider or narrower ones.

Layouts, swizzles and compositions of them; the data of a tensor is not touched here.
"""

from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import Nested, as_int, shape_div, unflatten
from lanewise.layout.layout import Layout
from lanewise.layout.simplify import FlatModes, integer_modes
from lanewise.layout.swizzle import ComposedLayout, Swizzle


def upcast(layout: object, n: int) -> Any:
    """The layout in units of n elements: strides divided by n, contiguous modes shortened.

    >>> upcast(Layout((32, 8), (1, 32)), 4), upcast(Swizzle(3, 4, 3), 8)
    ((8,8):(1,8), Swizzle(3,1,3))
    """
    return _cast("upcast", _checked("upcast", layout), n, _upcast_modes, _upcast_swizzle)


def downcast(layout: object, n: int) -> Any:
    """The layout in units of an n-th of an element: strides times n, the contiguous mode lengthened.

    An element at index x becomes the n parts at n x to n x + n - 1. A mode of extent 1 is lengthened only
    where no longer one has stride 1. Where several longer ones have, all are, as in CuTe, and overlap.

    >>> downcast(Layout((8, 8), (1, 8)), 4), downcast(Swizzle(3, 1, 3), 8)
    ((32,8):(1,32), Swizzle(3,4,3))
    >>> downcast(Layout((1, 8)), 2)
    (1,16):(2,1)
    """
    layout = _checked("downcast", layout)
    n = as_int(n)
    plain = layout.layoutA if isinstance(layout, ComposedLayout) else layout
    if isinstance(plain, Layout) and n != 1 and not _contiguous_modes(integer_modes("downcast", plain)):
        raise LanewiseError(f"downcast({plain}, {n!r}): no mode has stride 1, which the parts would go on in")
    return _cast("downcast", layout, n, _downcast_modes, _downcast_swizzle)


def recast(layout: object, old: object, new: object) -> Any:
    """The layout when elements of old bits are seen as elements of new bits; formats stand for their bits.

    >>> recast(Layout((32, 8), (1, 32)), 8, 32), recast(Layout((8, 8), (1, 8)), 32, 8)
    ((8,8):(1,8), (32,8):(1,32))
    """
    layout = _checked("recast", layout)
    was, will = (as_int(getattr(x, "bits", x)) for x in (old, new))
    if was < 1 or will < 1 or (will % was != 0 and was % will != 0):
        raise LanewiseError(f"recast from {was} to {will} bits: one must be a multiple of the other")
    return upcast(layout, will // was) if will >= was else downcast(layout, was // will)


recast_layout = recast


def _checked(name: str, layout: object) -> Layout | ComposedLayout | Swizzle:
    if not isinstance(layout, Layout | ComposedLayout | Swizzle):
        raise LanewiseError(f"{name} takes a layout or a swizzle first, not {layout!r}")
    return layout


def _cast(
    name: str,
    layout: Layout | ComposedLayout | Swizzle,
    n: int,
    recast_modes: Callable[[FlatModes, Layout, int], FlatModes],
    swizzle: Callable[[Swizzle, int], Swizzle],
) -> object:
    if as_int(n) < 1:
        raise LanewiseError(f"{name}: n is at least 1, not {n}")
    if isinstance(layout, Swizzle):
        return swizzle(layout, _log2(name, n))
    if isinstance(layout, ComposedLayout):
        outer, inner = (_cast(name, x, n, recast_modes, swizzle) for x in (layout.layoutB, layout.layoutA))
        if name == "upcast" and layout.offset % n != 0:
            raise LanewiseError(f"upcast({layout}, {n}): the offset {layout.offset} is not a multiple of {n}")
        return ComposedLayout(outer, layout.offset // n if name == "upcast" else layout.offset * n, inner)
    modes = recast_modes(integer_modes(name, layout), layout, n)
    shapes, strides = (tuple(mode[i] for mode in modes) for i in (0, 1))
    return Layout._of(unflatten(shapes, layout.shape), unflatten(strides, layout.shape))


def _upcast_modes(modes: FlatModes, layout: Layout, n: int) -> FlatModes:
    def cast(shape: int, stride: Nested) -> tuple[Nested, Nested]:
        if stride == 0:
            return shape, stride
        try:
            return shape_div(shape, shape_div(n, abs(stride))), shape_div(stride, n)
        except LanewiseError:
            raise LanewiseError(
                f"upcast({layout}, {n}): mode {shape}:{stride} does not hold whole groups of {n}; the stride "
                f"must be a multiple of {n}, or divide it with extent x stride a multiple or a divisor of {n}"
            ) from None

    return [cast(shape, stride) for shape, stride in modes]


def _downcast_modes(modes: FlatModes, layout: Layout, n: int) -> FlatModes:
    contiguous = _contiguous_modes(modes)
    return [
        (shape * n, stride) if place in contiguous else (shape, stride * n)
        for place, (shape, stride) in enumerate(modes)
    ]


def _contiguous_modes(modes: FlatModes) -> list[int]:
    """Return the modes of stride 1 that are longer than 1; if there are none, the first of them."""
    candidates = [i for i, (_, stride) in enumerate(modes) if stride in (1, -1)]
    return [i for i in candidates if modes[i][0] != 1] or candidates[:1]


def _log2(name: str, n: int) -> int:
    if n & (n - 1):
        raise LanewiseError(f"{name} of a swizzle by {n}: only by a power of two, since a swizzle moves bits")
    return n.bit_length() - 1


def _upcast_swizzle(swizzle: Swizzle, log2: int) -> Swizzle:
    base = swizzle.base - log2
    if base < 0 and swizzle.shift < 0 and swizzle.bits:
        raise LanewiseError(
            f"upcast({swizzle!r}, {1 << log2}): it moves bits that wider elements do not have"
        )
    return Swizzle(max(swizzle.bits + min(base, 0), 0), max(base, 0), swizzle.shift)


def _downcast_swizzle(swizzle: Swizzle, log2: int) -> Swizzle:
    return Swizzle(swizzle.bits, swizzle.base + log2, swizzle.shift)
