"""Where elements are, from a traced place on: through a swizzle, or by strides known when the kernel runs.

What a layout does with coordinates is in `tiles_steps.py`; both meet in the `View` of `tiles.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lanewise.lang.arithmetic import add, mul, xor
from lanewise.lang.arrays import swizzled
from lanewise.lang.builder import current
from lanewise.lang.intrinsics.maths import mul_wide
from lanewise.lang.memory import Pointer
from lanewise.lang.tiles_steps import Steps
from lanewise.lang.types import i32, i64
from lanewise.lang.values import Scalar, literal
from lanewise.layout import Swizzle


def plus(a: Any, b: Any) -> Any:
    """The sum of integers, traced or not; None counts as 0."""
    if a is None or (not isinstance(a, Scalar) and a == 0):
        return b
    if b is None or (not isinstance(b, Scalar) and b == 0):
        return a
    if isinstance(a, Scalar) and isinstance(b, Scalar) and a.dtype != b.dtype:
        a, b = a.to(i64), b.to(i64)
    return add(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else a + b


@dataclass(frozen=True)
class Elements:
    """Memory counted in elements: pointer[outer + swizzle(inner + static + step)].

    `inner` has only the bits of `mask` (-1: any). A swizzle xors bits onto others, so it goes through a sum
    without carries bit by bit; `outer` and whole periods pass by it.
    """

    pointer: Pointer
    swizzle: Swizzle | None = None
    inner: Any = None
    mask: int = 0
    static: int = 0
    outer: Any = None

    #: Coordinates that a step has beside elements.
    rank = 0
    limits: tuple[Any, ...] = ()

    def traced(self) -> list[Any]:
        """The traced values in it."""
        return [self.pointer, *(each for each in (self.inner, self.outer) if each is not None)]

    def with_traced(self, values: list[Any]) -> Elements:
        """The same with other traced values."""
        rest = iter(values)
        return replace(
            self,
            pointer=next(rest),
            inner=None if self.inner is None else next(rest),
            outer=None if self.outer is None else next(rest),
        )

    def same_kind(self, other: Any) -> bool:
        """Whether another differs in traced values alone."""
        return isinstance(other, Elements) and self._kind() == other._kind()

    def _kind(self) -> tuple[Any, ...]:
        return self.swizzle, self.mask, self.static, self.inner is None, self.outer is None

    def moved(self, total: Steps, mask: int | None = None) -> Elements:
        """From a place further on; `mask` has the bits that a traced step can have."""
        step = total.get((), 0)
        if not isinstance(step, Scalar):
            return replace(self, static=self.static + step)
        if step.root is not None:  # what is known of it stays a constant offset
            return replace(self, static=self.static + step.addend).moved({(): step.root}, mask)
        if self.swizzle is None and mask is not None:
            return replace(self, pointer=self.pointer + step)
        if self.swizzle is None or step.multiple % self.swizzle.size() == 0:
            return replace(self, outer=plus(self.outer, step))
        bits = -1 if mask is None else mask
        if self.inner is not None:
            bits = bits | self.mask if bits >= 0 and self.mask >= 0 and not bits & self.mask else -1
        return replace(self, inner=plus(self.inner, step), mask=bits)

    def at(self, step: int) -> Pointer:
        """The pointer to the element so many elements further on."""
        place = self.static + step
        if self.swizzle is None:
            found = self.pointer + place
        else:
            low = place % self.swizzle.size()
            found = self.pointer + self._low(self.swizzle, low) + (place - low)
        return found if self.outer is None else found + self.outer

    def _low(self, swizzle: Swizzle, low: int) -> Any:
        if self.inner is None:
            return swizzle(low)
        if self.mask < 0 or low & self.mask:
            return swizzled(swizzle, plus(self.inner, low))
        moved = swizzle(low)
        found = swizzled(swizzle, self.inner)
        return xor(found, moved) if moved else found

    def prepare(self, steps: list[int]) -> None:
        """Compute the addresses behind the swizzle that steps lead to, but for whole periods."""
        if self.swizzle is not None:
            unit = self.run()
            lows = {(self.static + step) % self.swizzle.size() // unit * unit for step in steps}
            for low in sorted(lows):
                self.at(low - self.static)

    def run(self) -> int:
        """Neighbours that stay neighbours, as far as they are aligned; 0 for all."""
        swizzle = self.swizzle
        return 0 if swizzle is None else 1 << min(swizzle.base, swizzle.base + swizzle.shift)

    def coordinates(self, step: int) -> tuple[Any, ...]:
        """Refused: elements have no coordinates in a tensor."""
        raise current().error(
            "the coordinates of this tensor's elements are not kept: make it by "
            "lw.make_tensor(pointer, shape, stride)"
        )


@dataclass(frozen=True)
class Strides:
    """Memory by coordinates: pointer[Σ coordinate · stride], with traced numbers among the strides.

    `pointer` is already at the coordinates of `origin`; `limits` is the shape of the whole tensor.
    """

    pointer: Pointer
    strides: tuple[Any, ...]
    limits: tuple[Any, ...]
    origin: tuple[Any, ...]

    swizzle = None

    @property
    def rank(self) -> int:
        """How many coordinates."""
        return len(self.strides)

    def traced(self) -> list[Any]:
        """The traced values in it."""
        return [self.pointer, *map(_traced, self.origin)]

    def with_traced(self, values: list[Any]) -> Strides:
        """The same with other traced values."""
        return replace(self, pointer=values[0], origin=tuple(values[1:]))

    def same_kind(self, other: Any) -> bool:
        """Whether another differs in traced values alone."""
        return isinstance(other, Strides) and self._kind() == other._kind()

    def _kind(self) -> tuple[Any, ...]:
        return tuple(map(id, self.strides)), tuple(map(id, self.limits))

    def moved(self, total: Steps, mask: int | None = None) -> Strides:
        """From a place further on."""
        origin, pointer = list(self.origin), self.pointer
        for (mode,), step in total.items():
            origin[mode] = plus(origin[mode], step)
            pointer = pointer + product(step, self.strides[mode])
        return replace(self, origin=tuple(origin), pointer=pointer)

    def at(self, step: tuple[int, ...]) -> Pointer:
        """The pointer to the element so many coordinates further on."""
        found: Pointer = self.pointer
        for number, stride in zip(step, self.strides, strict=True):
            if number and isinstance(stride, Scalar):
                found = found + product(number, stride)
        fixed = sum(
            n * stride for n, stride in zip(step, self.strides, strict=True) if not isinstance(stride, Scalar)
        )
        return found.moved(fixed, found.size)

    def prepare(self, steps: list[tuple[int, ...]]) -> None:
        """Compute how far steps lead along traced strides, where they do not have to be computed again."""
        for mode, stride in enumerate(self.strides):
            if isinstance(stride, Scalar):
                for number in sorted({step[mode] for step in steps} - {0}):
                    mul(product(number, stride), self.pointer.size)

    def run(self) -> int:
        """Neighbours that stay neighbours: all."""
        return 0

    def coordinates(self, step: tuple[int, ...]) -> tuple[Any, ...]:
        """Where in the whole tensor an element is."""
        return tuple(plus(first, more) for first, more in zip(self.origin, step, strict=True))


@dataclass(frozen=True)
class Places:
    """No memory: the coordinates themselves, from `origin` on."""

    origin: tuple[Any, ...]

    swizzle = None
    limits: tuple[Any, ...] = ()

    @property
    def rank(self) -> int:
        """How many coordinates."""
        return len(self.origin)

    @property
    def pointer(self) -> Pointer:
        """Refused: coordinates lie nowhere."""
        raise current().error("a tensor of coordinates has no memory: index it, as in row, col = t[v, m, n]")

    def traced(self) -> list[Any]:
        """The traced values in it."""
        return [*map(_traced, self.origin)]

    def with_traced(self, values: list[Any]) -> Places:
        """The same with other traced values."""
        return Places(tuple(values))

    def same_kind(self, other: Any) -> bool:
        """Whether another differs in traced values alone."""
        return isinstance(other, Places) and self.rank == other.rank

    def moved(self, total: Steps, mask: int | None = None) -> Places:
        """From a place further on."""
        origin = list(self.origin)
        for (mode,), step in total.items():
            origin[mode] = plus(origin[mode], step)
        return Places(tuple(origin))

    def at(self, step: tuple[int, ...]) -> Pointer:
        """Refused, as `pointer` is."""
        return self.pointer

    def prepare(self, steps: list[tuple[int, ...]]) -> None:
        """Nothing to compute."""

    def run(self) -> int:
        """Neighbours that stay neighbours: all."""
        return 0

    def coordinates(self, step: tuple[int, ...]) -> tuple[Any, ...]:
        """The coordinates so much further on."""
        return tuple(plus(first, more) for first, more in zip(self.origin, step, strict=True))


def _traced(coordinate: Any) -> Scalar:
    """A coordinate as a value that a loop or a branch may change."""
    return coordinate if isinstance(coordinate, Scalar) else literal(coordinate, i32)


def product(step: Any, stride: Any) -> Any:
    """step · stride, in 64 bits where both are traced or their product may be large."""
    if not isinstance(stride, Scalar):
        wide = isinstance(step, Scalar) and stride not in (0, 1)
        return (step.to(i64) if wide else step) * stride
    if isinstance(step, Scalar) and step.dtype == stride.dtype and step.dtype.bits == 32:
        found = mul_wide(step, stride)
        found.multiple = step.multiple * stride.multiple
        return found
    if isinstance(step, Scalar):
        step = step.to(i64)
    return stride.to(i64) * step


Memory = Elements | Strides | Places

__all__ = ["Elements", "Memory", "Places", "Strides", "plus", "product"]
