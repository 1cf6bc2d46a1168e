"""Compact layouts in a chosen order of modes: by an order tuple, or by the strides of another layout.

The plain column-major one is Layout(shape) itself.
"""

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import (
    IntTuple,
    Nested,
    as_int,
    flatten,
    prefix_product,
    product,
    spell,
    unflatten,
)
from lanewise.layout.layout import Layout
from lanewise.layout.modes import weakly_congruent
from lanewise.layout.simplify import FlatModes, integer_modes


def make_ordered_layout(shape: IntTuple, order: object) -> Layout:
    """The compact layout in which modes with a lower order run faster, equal ones from left to right.

    An integer in order where shape has a tuple holds for that whole mode.

    >>> make_ordered_layout((3, 5), (2, 6)), make_ordered_layout((3, 5), (10, 2))
    ((3,5):(1,3), (3,5):(5,1))
    >>> make_ordered_layout((2, (3, 4)), (2, 1))
    (2,(3,4)):(12,(1,3))
    """
    shape = Layout(shape).shape
    if not weakly_congruent(order, shape):
        raise LanewiseError(f"make_ordered_layout: order {spell(order)} is not nested like {spell(shape)}")
    parts = _parts(shape, order)
    strides: list[Nested] = [0] * len(parts)
    stride = 1
    for i in sorted(range(len(parts)), key=lambda i: parts[i][1]):
        strides[i] = prefix_product(parts[i][0], stride)
        stride *= product(parts[i][0])
    return Layout(shape, unflatten(tuple(strides), order))


def _parts(shape: Nested, order: Nested) -> list[tuple[Nested, int]]:
    """The pieces of shape that each have one order."""
    if isinstance(order, tuple):
        return [p for s, o in zip(shape, order, strict=True) for p in _parts(s, o)]
    return [(shape, as_int(order))]


def make_layout_like(layout: Layout) -> Layout:
    """The compact layout of the same shape whose modes run in the same order; strides of 0 stay.

    >>> make_layout_like(Layout((4, 3, 2), (100, 1, 0)))
    (4,3,2):(3,1,0)
    """
    modes = integer_modes("make_layout_like", layout)
    return _compact(layout, modes, [abs(d) for _, d in modes])


def make_fragment_like(layout: Layout) -> Layout:
    """The layout of registers for a partition: mode 0 compact and fastest, the rest in the order it has.

    >>> make_fragment_like(Layout(((2, 2), 4, 3), ((16, 8), 64, 1)))
    ((2,2),4,3):((1,2),12,4)
    """
    modes = integer_modes("make_fragment_like", layout)
    values = len(flatten(layout[0].shape)) if len(layout) else 0
    # mode 0 from left to right, below every other order
    order = [(0, i) if i < values else (1, abs(d)) for i, (_, d) in enumerate(modes)]
    return _compact(layout, modes, order)


def _compact(layout: Layout, modes: FlatModes, order: list[Any]) -> Layout:
    """The shape of layout with compact strides in an order, and 0 where layout repeats."""
    ranks = {o: i for i, o in enumerate(sorted(set(order)))}
    once = tuple(s if d != 0 else 1 for s, d in modes)
    strides = make_ordered_layout(once, tuple(ranks[o] for o in order)).stride
    kept = tuple(c if d != 0 else 0 for c, (_, d) in zip(strides, modes, strict=True))
    return Layout(layout.shape, unflatten(kept, layout.shape))
