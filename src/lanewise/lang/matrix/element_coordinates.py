"""Which matrix element a lane's value is, as traced integers: the catalogue's layout at this lane.

The layouts are in `isa/`; here they are computed for a lane that only the running kernel knows.
"""

from typing import Any

from lanewise.isa import Operand
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.special_registers import lane_id, thread_rank
from lanewise.layout import flatten

#: Threads that hold an operand together.
_WARP, _WARPGROUP = 32, 128


def element_coordinates(operand: Operand, index: int) -> tuple[Scalar, Scalar]:
    """Return (row, column) of this lane's `index`-th element of an operand."""
    if operand.thr_id is not None or operand.threads not in (_WARP, _WARPGROUP):
        raise current().error(
            f"{operand.title}: places of elements are known for operands of one warp or warpgroup"
        )
    outer = operand.cols if operand.transposed else operand.rows
    lane = lane_id() if operand.threads == _WARP else thread_rank() % _WARPGROUP
    inner: Any = 0
    high: Any = 0
    shapes, strides = flatten(operand.layout[0].shape), flatten(operand.layout[0].stride)
    left: object = lane
    for number, (shape, stride) in enumerate(zip(shapes, strides, strict=True)):
        last = number == len(shapes) - 1
        digit, left = (left, 0) if last else (left % shape, left // shape)
        # each mode of the lane runs along the rows or along the columns, never across both
        if stride % outer == 0:
            high = high + digit * (stride // outer)
        else:
            inner = inner + digit * stride
    more, less = divmod(operand.layout[1](index), outer)
    inner, high = inner + less, high + more
    return (high, inner) if operand.transposed else (inner, high)
