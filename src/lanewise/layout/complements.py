"""Complement: the layout of what another layout leaves out.

Divide and product, which are made from it, are beside it.
"""

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import IntTuple, is_int, product, spell
from lanewise.layout.layout import Layout
from lanewise.layout.simplify import FlatModes, from_modes, integer_modes, joined


def complement(layout: object, max_idx: IntTuple = 1) -> Layout:
    """The layout, rising, of the offsets at which copies of layout must be put to fill 0 to max_idx - 1.

    No two of the sums layout(i) + result(j) are equal, and size(layout) * size(result) is at least max_idx.

    >>> complement(Layout(4, 2), 24), complement(Layout((2, 2), (1, 6)), 24)
    ((2,3):(1,8), (3,2):(2,12))
    """
    if is_int(layout):
        layout = Layout(layout)
    target = product(max_idx)
    if target < 1:
        raise LanewiseError(
            f"complement({layout}, {spell(max_idx)}): there is nothing to fill; give at least 1"
        )
    result: FlatModes = []
    covered = 1
    for stride, shape in sorted((d, s) for s, d in integer_modes("complement", layout) if d != 0 and s != 1):
        if stride < covered:
            why = (
                "a negative stride" if stride < 0 else f"a stride below {covered}, where smaller strides end"
            )
            raise LanewiseError(
                f"complement({layout}): mode {shape}:{stride} has {why}; a layout has a complement "
                "if its strides are positive and each is at least extent x stride of the one before in size"
            )
        result.append((stride // covered, covered))
        covered = shape * stride
    result.append((-(-target // covered), covered))
    return from_modes(joined(result))
