"""Inverses of a layout, and its nullspace: which coordinates lead to a given index.

From them follows what two layouts have in common: the longest run of elements that is contiguous in both,
which a copy from one to the other can move as a vector.
"""

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import is_int, product
from lanewise.layout.layout import Layout, LayoutBase
from lanewise.layout.simplify import FlatModes, flat_modes, from_modes, integer_modes, joined
from lanewise.layout.swizzle import ComposedLayout, Swizzle


def right_inverse(layout: object) -> Any:
    """The layout R with layout(R(i)) == i, for the indices from 0 that modes reach one after the other.

    For a bijection that is the inverse; with no mode of stride 1 it is 1:0. Modes with a stride of 0 or less
    play no part. None stays None, and a Swizzle is its own inverse.

    >>> right_inverse(Layout((4, 8), (8, 1))), right_inverse(Layout((2, 4, 4), (0, 1, 8)))
    ((8,4):(4,1), 4:2)
    """
    if layout is None or isinstance(layout, Swizzle):
        return layout
    if is_int(layout):
        return Layout(layout)
    starts: dict[object, tuple[int, int]] = {}
    before = 1
    for shape, stride in joined(integer_modes("right_inverse", layout)):
        starts.setdefault(stride, (shape, before))
        before *= shape
    result: FlatModes = []
    index = 1
    while index in starts:
        shape, before = starts.pop(index)
        result.append((shape, before))
        index *= shape
    return from_modes(joined(result))


def left_inverse(layout: object) -> Any:
    """The layout L with L(layout(i)) == i, for a layout that gives no index twice.

    Strides of 0 are allowed: L then gives the first of the coordinates that share an index.

    >>> left_inverse(Layout((8, 4), (4, 1))), left_inverse(Layout(4, 2))
    ((4,8):(8,1), (2,4):(4,1))
    """
    if layout is None or isinstance(layout, Swizzle):
        return layout
    if is_int(layout):
        return Layout(layout)
    modes = []
    before = 1
    for shape, stride in joined(integer_modes("left_inverse", layout)):
        if stride != 0:
            modes.append((stride, shape, before))
        before *= shape
    result: FlatModes = []
    # what the layout leaves out is numbered after what it reaches, as by its complement
    unreached = before
    covered = at = 1
    for stride, shape, before in sorted(modes):
        if stride < covered or stride % at != 0:
            raise LanewiseError(
                f"left_inverse({layout}): mode {shape}:{stride} after stride {at} and {covered} indices; "
                "strides must be positive, each dividing the next, and no two coordinates may share an index"
            )
        if stride % covered == 0:
            result.append((stride // covered, unreached))
            unreached *= stride // covered
        else:  # the previous mode's digit runs on up to here, and is never that great
            result[-1] = (stride // at, result[-1][1])
        result.append((shape, before))
        covered, at = shape * stride, stride
    return from_modes(joined(result))


def nullspace(layout: Layout) -> Layout:
    """The layout of coordinates that lead to index 0 because their modes have stride 0.

    >>> nullspace(Layout((4, 2, 3), (1, 0, 4)))
    2:4
    """
    result: FlatModes = []
    before = 1
    for shape, stride in integer_modes("nullspace", layout):
        if stride == 0 and shape != 1:
            result.append((shape, before))
        before *= shape
    return from_modes(result)


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
