"""Recasting: the layout that the same memory has when its elements are seen as wider or narrower ones.

Layouts, swizzles and compositions of them; the data of a tensor is not touched here.
"""

from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.basis import ScaledBasis
from lanewise.layout.int_tuple import Nested, as_int, flatten, shape_div
from lanewise.layout.layout import Layout
from lanewise.layout.swizzle import ComposedLayout, Swizzle


def upcast(layout: object, n: int) -> Any:
    """The layout in units of n elements: strides divided by n, contiguous modes shortened.

    >>> upcast(Layout((32, 8), (1, 32)), 4), upcast(Swizzle(3, 4, 3), 8)
    ((8,8):(1,8), Swizzle(3,1,3))
    """
    return _cast("upcast", _checked("upcast", layout), n, _upcast_mode, _upcast_swizzle)


def downcast(layout: object, n: int) -> Any:
    """The layout in units of an n-th of an element: strides times n, the contiguous mode lengthened.

    >>> downcast(Layout((8, 8), (1, 8)), 4), downcast(Swizzle(3, 1, 3), 8)
    ((32,8):(1,32), Swizzle(3,4,3))
    """
    layout = _checked("downcast", layout)
    n = as_int(n)
    plain = layout.layoutA if isinstance(layout, ComposedLayout) else layout
    if isinstance(plain, Layout) and not {1, -1} & set(flatten(plain.stride)) and n != 1:
        raise LanewiseError(f"downcast({plain}, {n!r}): no mode has stride 1, which the parts would go on in")
    return _cast("downcast", layout, n, _downcast_mode, _downcast_swizzle)


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
    mode: Callable[[int, int, int], tuple[Nested, Nested]],
    swizzle: Callable[[Swizzle, int], Swizzle],
) -> object:
    if as_int(n) < 1:
        raise LanewiseError(f"{name}: n is at least 1, not {n}")
    if isinstance(layout, Swizzle):
        return swizzle(layout, _log2(name, n))
    if isinstance(layout, ComposedLayout):
        outer, inner = (_cast(name, x, n, mode, swizzle) for x in (layout.layoutB, layout.layoutA))
        if name == "upcast" and layout.offset % n != 0:
            raise LanewiseError(f"upcast({layout}, {n}): the offset {layout.offset} is not a multiple of {n}")
        return ComposedLayout(outer, layout.offset // n if name == "upcast" else layout.offset * n, inner)

    def cast(shape: Nested, stride: Nested) -> tuple[Nested, Nested]:
        if isinstance(shape, tuple):
            pairs = [cast(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in pairs), tuple(d for _, d in pairs)
        if isinstance(stride, ScaledBasis):
            raise LanewiseError(f"{name}({layout}, {n}): its values are coordinates; use integer strides")
        try:
            return mode(shape, stride, n)
        except LanewiseError:
            raise LanewiseError(
                f"{name}({layout}, {n}): mode {shape}:{stride} does not hold whole groups of {n}; the stride "
                f"must be a multiple of {n}, or divide it with extent x stride a multiple or a divisor of {n}"
            ) from None

    return Layout._of(*cast(layout.shape, layout.stride))


def _upcast_mode(shape: int, stride: int, n: int) -> tuple[object, object]:
    if stride == 0:
        return shape, stride
    return shape_div(shape, shape_div(n, abs(stride))), shape_div(stride, n)


def _downcast_mode(shape: int, stride: int, n: int) -> tuple[object, object]:
    return (shape * n, stride) if abs(stride) == 1 else (shape, stride * n)


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
