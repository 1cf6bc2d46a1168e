"""Basis strides: strides that move along one coordinate, for layouts whose values are coordinates.

Only the two number-like types; make_identity_layout and coordinate tensors are built from them above.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.layout.int_tuple import Nested, as_int, is_int


class ArithmeticTuple(tuple[Nested, ...]):
    """A coordinate that is added entry by entry; a shorter one counts as filled up with zeros.

    >>> ArithmeticTuple((1, 2)) + ArithmeticTuple((3,))
    (4, 2)
    """

    __slots__ = ()

    def __add__(self, other: object) -> ArithmeticTuple:
        if is_int(other):
            if other == 0:
                return self
            raise LanewiseError(f"the coordinate {tuple(self)} and the integer {other} have no sum")
        mine, theirs = tuple(self), tuple(_as_arithmetic(other))
        longest = max(len(mine), len(theirs))
        mine, theirs = mine + (0,) * (longest - len(mine)), theirs + (0,) * (longest - len(theirs))
        return ArithmeticTuple(_add(x, y) for x, y in zip(mine, theirs, strict=True))

    __radd__ = __add__


def _as_arithmetic(x: Nested) -> ArithmeticTuple:
    if isinstance(x, ScaledBasis):
        return x.as_tuple()
    return ArithmeticTuple(x)


def _add(x: Nested, y: Nested) -> object:
    if isinstance(x, tuple):
        return ArithmeticTuple(x) + y
    if isinstance(y, tuple):
        return ArithmeticTuple(y) + x
    return x + y


@dataclass(frozen=True, slots=True)
class ScaledBasis:
    """A stride of value along one coordinate; modes is the path to it, outermost first.

    >>> 3 * E(1), (3 * E(1)).as_tuple()
    (3@1, (0, 3))
    """

    value: int
    modes: tuple[int, ...]

    def __mul__(self, other: int) -> ScaledBasis:
        return ScaledBasis(self.value * as_int(other), self.modes)

    __rmul__ = __mul__

    def __add__(self, other: object) -> Nested:
        if is_int(other) and other == 0:
            return self
        return self.as_tuple() + other

    __radd__ = __add__

    def __abs__(self) -> ScaledBasis:
        return ScaledBasis(abs(self.value), self.modes)

    def as_tuple(self) -> ArithmeticTuple:
        """The step as a coordinate."""
        step: object = self.value
        for m in reversed(self.modes):
            step = ArithmeticTuple((0,) * m + (step,))
        return step if isinstance(step, ArithmeticTuple) else ArithmeticTuple((step,))

    def __repr__(self) -> str:
        return "@".join(map(str, (self.value, *reversed(self.modes))))


def as_offset(x: object) -> Nested:
    """x, if it can be added to an index: an integer or a coordinate."""
    return x if isinstance(x, ArithmeticTuple | ScaledBasis) else as_int(x)


def E(*modes: int) -> ScaledBasis:
    """The unit step along the coordinate found by following modes.

    >>> E(0), E(0, 1)
    (1@0, 1@1@0)
    """
    return ScaledBasis(1, tuple(as_int(m) for m in modes))
