"""Inverses of a layout, and its nullspace: which coordinates lead to a given index.

Vectors common to two layouts are in common.py.
"""

from typing import Any

from lanewise.errors import LanewiseError

from .int_tuple import is_int
from .layout import Layout
from .simplify import FlatModes, from_modes, integer_modes, joined
from .swizzle import Swizzle


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
