"""What two layouts have in common: the longest run of elements that is contiguous in both.

That run is what a copy from one to the other can move as a vector.
"""

from typing import Any

from lanewise.errors import LanewiseError

from .int_tuple import product
from .inverse import right_inverse
from .layout import Layout, LayoutBase
from .simplify import FlatModes, flat_modes, from_modes, joined
from .swizzle import ComposedLayout, Swizzle


def max_common_layout(a: Any, b: Any) -> Layout:
    """The longest layout R, of coordinates inside both, with a(R(i)) == i and b(R(i)) == i.

    >>> max_common_layout(Layout((8, 4), (1, 16)), Layout((8, 4)))
    8:1
    """
    limit, (a, b) = _unswizzled(a, b)
    inverse = right_inverse(b)
    longest = min([inverse.size(), *limit])
    inside = a.size()
    common = next((i for i in range(longest) if (c := inverse(i)) >= inside or a(c) != i), longest)
    result: FlatModes = []
    for shape, stride in flat_modes(inverse):
        result.append((min(shape, common), stride))
        common //= shape
        if common <= 1:
            break
    return from_modes(joined(result))


def max_common_vector(a: object, b: object) -> int:
    """How many elements max_common_layout has.

    >>> max_common_vector(Layout((8, 4), (1, 16)), Layout((8, 4))), max_common_vector(Layout(8), Layout(8, 2))
    (8, 1)
    """
    return product(max_common_layout(a, b).shape)


def _unswizzled(*layouts: LayoutBase) -> tuple[list[int], list[object]]:
    """How many elements each swizzle leaves together, two to its base; and the layouts without them."""
    limits: list[int] = []
    plain: list[object] = []
    for layout in layouts:
        if not isinstance(layout, LayoutBase):
            raise LanewiseError(f"a common layout is made of two layouts, and {layout!r} is not a layout")
        if isinstance(layout, ComposedLayout) and isinstance(layout.layoutB, Swizzle) and layout.layoutB.bits:
            limits.append(1 << layout.layoutB.base if layout.offset == 0 else 1)
            plain.append(layout.layoutA)
        else:
            plain.append(layout)
    return limits, plain
