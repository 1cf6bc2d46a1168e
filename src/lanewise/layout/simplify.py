"""Simplifying a layout without changing its function: coalesce, and filter, which drops repetition.

Composition and the rest of the algebra are in the modules beside it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.basis import ScaledBasis
from lanewise.layout.int_tuple import Nested, flatten, spell
from lanewise.layout.layout import Layout, make_layout, on_domain

FlatModes = list[tuple[int, Nested]]


def flat_modes(layout: Layout) -> Iterable[tuple[int, Nested]]:
    """The (shape, stride) leaves of a layout, in order."""
    return zip(flatten(layout.shape), flatten(layout.stride), strict=True)


def integer_modes(name: str, layout: object) -> FlatModes:
    """The same for an operation that makes sense only on a Layout with integer strides."""
    if not isinstance(layout, Layout):
        raise LanewiseError(f"{name} takes a Layout, with shape and stride, not {layout!r}")
    modes = list(flat_modes(layout))
    if any(isinstance(d, ScaledBasis) for _, d in modes):
        raise LanewiseError(f"{name}({layout}): its values are coordinates; use integer strides")
    return modes


def joined(modes: Iterable[tuple[int, object]]) -> FlatModes:
    """The modes without those of extent 1, and with neighbours that run on from each other made one."""
    result: FlatModes = []
    for shape, stride in modes:
        if shape == 1:
            continue
        if result and result[-1][0] * result[-1][1] == stride:
            result[-1] = (result[-1][0] * shape, result[-1][1])
        else:
            result.append((shape, stride))
    return result


def from_modes(modes: FlatModes) -> Layout:
    """A flat layout: one mode stands bare, and no mode at all is 1:0."""
    if not modes:
        return Layout._of(1, 0)
    if len(modes) == 1:
        return Layout._of(*modes[0])
    shape, stride = zip(*modes, strict=True)
    return Layout._of(shape, stride)


def by_mode(name: str, f: Callable[[Layout, Any], Layout], layout: Layout, profile: Nested) -> Layout:
    """f on each mode with its entry in profile; modes beyond the profile stay as they are."""
    if len(layout) < len(profile):
        raise LanewiseError(
            f"{name}: {spell(profile)} has more entries than {layout} has modes, {len(layout)}"
        )
    return make_layout([*(f(m, p) for m, p in zip(layout, profile, strict=False)), *layout[len(profile) :]])


@on_domain
def coalesce(layout: Layout, profile: object = None) -> Layout:
    """The flat layout with the fewest modes and the same index for every linear coordinate.

    A tuple as profile coalesces mode by mode.

    >>> coalesce(Layout((2, (1, 6)), (1, (6, 2))))
    12:1
    >>> coalesce(Layout((2, (1, 6)), (1, (6, 2))), (1, 1))
    (2,6):(1,2)
    """
    if isinstance(profile, tuple):
        return by_mode("coalesce", coalesce, layout, profile)
    return from_modes(joined(flat_modes(layout)))


@on_domain
def filter(layout: Layout, profile: object = None) -> Layout:
    """coalesce, with the modes of stride 0 dropped: the layout's indices without repetition.

    >>> filter(Layout((2, 4, 3), (0, 1, 4)))
    12:1
    """
    if isinstance(profile, tuple):
        return by_mode("filter", filter, layout, profile)
    return from_modes(joined((s, d) for s, d in flat_modes(layout) if d != 0))
