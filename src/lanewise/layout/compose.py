"""Composition: the layout that applies one layout after another, where there is one.

Divide and product, which are made from it, are beside it.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

from lanewise.errors import LanewiseError
from lanewise.layout.basis import ScaledBasis
from lanewise.layout.int_tuple import Nested, is_int
from lanewise.layout.layout import Layout, LayoutBase, M, on_domain
from lanewise.layout.simplify import FlatModes, by_mode, flat_modes, from_modes, joined
from lanewise.layout.swizzle import ComposedLayout, Swizzle

Tiler: TypeAlias = "int | LayoutBase | tuple[Tiler, ...] | None"


def composition(layoutA: Any, layoutB: Any, *inner: object) -> Any:
    """The layout R with R(c) == layoutA(layoutB(c)) for every coordinate c of layoutB.

    A tuple as layoutB composes mode by mode: an integer n stands for Layout(n), None keeps the mode, modes
    beyond the tuple are kept. layoutA may be a tensor, or a Swizzle, which gives a ComposedLayout; three
    arguments, function, offset and layout, always do.

    >>> composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)))
    ((2,2),3):((24,2),8)
    >>> composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), 8))
    (3,(4,2)):(236,(13,1))
    >>> composition(Swizzle(3, 4, 3), 0, Layout((8, 64), (64, 1)))
    SW_3_4_3 o 0 o (8,64):(64,1)
    """
    if inner:
        if len(inner) > 1:
            raise LanewiseError("composition takes two layouts, or function, offset and layout")
        return ComposedLayout(layoutA, layoutB, inner[0])
    if isinstance(layoutB, Swizzle):
        raise LanewiseError(
            f"composition({layoutA!r}, {layoutB!r}): the right side is applied first and has the shape of "
            f"the result, which a swizzle does not have; give a layout there, such as {layoutB.size()}:1"
        )
    if isinstance(layoutA, Swizzle):
        return ComposedLayout(layoutA, 0, layoutB if isinstance(layoutB, LayoutBase) else Layout(layoutB))
    return compose(layoutA, layoutB)


@on_domain
def compose(layoutA: Layout, layoutB: Tiler) -> LayoutBase:
    """composition where layoutA has coordinates of its own."""
    if layoutB is None:
        return layoutA
    if isinstance(layoutB, tuple):
        return by_mode("composition", compose, layoutA, layoutB)
    if is_int(layoutB):
        layoutB = Layout(layoutB)
    if isinstance(layoutB, ComposedLayout):
        return ComposedLayout(layoutA, 0, layoutB)
    if not isinstance(layoutB, Layout):
        raise LanewiseError(f"composition: {layoutB!r} is no layout, integer, None or tuple of these")
    after = _After(layoutA)
    shape, stride = after.modes(layoutB.shape, layoutB.stride)
    after.check(layoutB)
    return Layout._of(shape, stride)


class _After:
    """A layout, made ready to be applied after others, and a count of how far they reach into its modes."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        # Beyond its shape a layout runs on along its last mode, whose extent therefore plays no part.
        # As in pycute, the last mode is the last with an extent other than 1.
        modes = joined(flat_modes(layout)) or list(flat_modes(layout)) or [(1, 0)]
        self.front: FlatModes = modes[:-1]
        self.last = modes[-1][1]
        self.reach = [0] * len(self.front)
        self.inside: dict[tuple[int, ...], _After] = {}

    def modes(self, shape: Nested, stride: Nested) -> tuple[Nested, Nested]:
        """The shape and stride of this layout after shape:stride."""
        if isinstance(shape, tuple):
            pairs = [self.modes(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in pairs), tuple(d for _, d in pairs)
        if isinstance(stride, ScaledBasis):
            return self.at(stride.modes).modes(shape, stride.value)
        if stride == 0:
            return shape, 0
        if not self.front:
            return shape, stride * self.last
        result = from_modes(self.mode(shape, stride))
        return result.shape, result.stride

    def at(self, path: tuple[int, ...]) -> _After:
        """The mode that a basis stride moves along."""
        if path not in self.inside:
            mode = self.layout
            for i in path:
                mode = mode[i]
            self.inside[path] = _After(mode)
        return self.inside[path]

    def mode(self, shape: int, stride: int) -> FlatModes:
        if stride < 0:
            raise LanewiseError(
                f"composition({self.layout}, {shape}:{stride}) is no layout: it goes below coordinate 0; "
                "only a left side that coalesces to one mode can follow a negative stride"
            )
        result: FlatModes = []
        n, r = shape, stride
        for i, (s, d) in enumerate(self.front):
            if (n - 1) * r < s:  # all that is left falls inside this mode
                self.reach[i] += (n - 1) * r
                if n > 1:
                    result.append((n, r * d))
                return result
            if r % s == 0:  # steps over this mode as a whole
                r //= s
            elif s % r == 0 and n % (s // r) == 0:  # takes every r-th of this mode, then goes on to the next
                self.reach[i] += s - r
                result.append((s // r, r * d))
                n, r = n // (s // r), 1
            else:
                self.inadmissible(shape, stride, s, n, r)
        if n > 1:
            result.append((n, r * self.last))
        return result

    def check(self, layout: Layout) -> None:
        """Complain if modes of layout, each inside a mode here, pass its end when taken together."""
        for part in self.inside.values():
            part.check(layout)
        for (s, _), reach in zip(self.front, self.reach, strict=True):
            if reach >= s:
                raise LanewiseError(
                    f"composition({self.layout}, {layout}) is no layout: modes of the right together reach "
                    f"{reach} within mode {s} of the left; give a right side whose modes do not overlap"
                )

    def inadmissible(self, shape: int, stride: int, s: int, n: int, r: int) -> NoReturn:
        if s % r == 0:
            why = (
                f"{n} steps pass the end of mode {s}, and are not a multiple of {s // r} (shape divisibility)"
            )
            what = f"an extent that is at most {s // r} or a multiple of it"
        else:
            why = f"stride {r} and mode {s} do not divide one another (stride divisibility)"
            what = f"a stride that divides {s} or is a multiple of it"
        raise LanewiseError(
            f"composition({self.layout}, {shape}:{stride}) is no layout: {why}. "
            f"What works here is {what}; or keep it as ComposedLayout({self.layout}, 0, ...)"
        )


def with_shape(layout: M, *shape: object) -> M:
    """The same elements in the same order, under another shape.

    >>> with_shape(Layout((4, 8), (8, 1)), 2, 16)
    (2,(2,8)):(8,(16,1))
    """
    return compose(layout, Layout(shape[0] if len(shape) == 1 else shape))
