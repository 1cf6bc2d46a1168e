"""Layouts at traced coordinates: how far a coordinate leads, as integers and traced integers.

A stride counts elements, or steps along one of several coordinates; addresses are in `tiles_memory.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.lang.builder import current
from lanewise.lang.types import is_int
from lanewise.lang.values import Scalar, describe
from lanewise.layout import Layout, ScaledBasis, flatten, product, size
from lanewise.layout.int_tuple import spell

#: The extent of a mode whose extent only the running kernel knows.
UNKNOWN = 1 << 62

#: How far along each coordinate; () stands for elements.
Steps = dict[tuple[int, ...], Any]


def steps(shape: Any, stride: Any, coordinate: Any) -> Steps:
    """How far a coordinate of shape:stride leads; None in it counts as 0."""
    total: Steps = {}
    _add(total, shape, stride, coordinate)
    return total


def _add(total: Steps, shape: Any, stride: Any, crd: Any) -> None:
    if crd is None:
        return
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(shape) != len(crd):
            raise current().error(f"coordinate of {len(crd)} entries does not fit shape {written(shape)}")
        for each, extent, step in zip(crd, shape, stride, strict=True):
            _add(total, extent, step, each)
        return
    traced = isinstance(crd, Scalar)
    if traced and not is_int(crd.dtype):
        raise current().error(f"a coordinate is an integer, not {describe(crd)}")
    if not traced and (isinstance(crd, bool) or not isinstance(crd, int)):
        raise current().error(f"a coordinate is an integer, traced or not, or None; not {describe(crd)}")
    if not traced and not 0 <= crd < product(shape):
        raise current().error(f"coordinate {crd} is outside {written(shape)}")
    modes = list(zip(flatten(shape), flatten(stride), strict=True))
    while len(modes) > 1 and modes[-1][0] == 1:
        modes.pop()
    before = 1
    for number, (extent, step) in enumerate(modes):
        value, path = (step.value, step.modes) if isinstance(step, ScaledBasis) else (step, ())
        if value != 0 and extent > 1:
            digit = crd // before if before > 1 else crd
            if number < len(modes) - 1:
                digit = digit % extent
            total[path] = total.get(path, 0) + digit * value
        before *= extent


def static_step(step: Any, rank: int) -> Any:
    """What a Layout gave for a coordinate: an integer, or, over `rank` coordinates, one for each."""
    if rank == 0:
        return int(step)
    if isinstance(step, ScaledBasis):
        step = step.as_tuple()
    entries = tuple(step) if isinstance(step, tuple) else ()
    return tuple(int(each) for each in entries) + (0,) * (rank - len(entries))


def reach(layout: Layout) -> int:
    """Every bit that an index of a layout of elements may have."""
    found = 0
    for number in range(size(layout)):
        found |= int(layout(number))
    return found


def known(layout: Layout) -> Layout:
    """The modes of a layout whose extents are known."""
    modes = [mode for mode in layout if UNKNOWN not in flatten((mode.shape,))]
    return Layout._of(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))


def written(shape: Any) -> str:
    """A shape for messages, `?` where the extent is known only when the kernel runs."""
    return str(spell(shape)).replace(str(UNKNOWN), "?")


__all__ = ["UNKNOWN", "Steps", "known", "reach", "static_step", "steps", "written"]
