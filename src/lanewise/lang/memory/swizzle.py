"""Swizzles applied to traced indices: a few instructions, and none for what a swizzle leaves alone.

Swizzles of integers known while tracing are the `Swizzle` of `lanewise.layout` itself.
"""

from dataclasses import dataclass
from math import gcd
from typing import Any

from lanewise.lang.trace.bitwise import xor
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Swizzle

#: Neighbours that no access moves at once.
_MOST_NEIGHBOURS = 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """So many bytes, from where a pointer leads, are neighbours behind a swizzle of elements."""

    bytes: int
    swizzle: Swizzle
    element_bytes: int

    def whole(self, count: int) -> Swizzle:
        """Return a swizzle like this one that keeps `count` bytes together.

        >>> Piece(8, Swizzle(3, 2, 4), 2).whole(16)
        Swizzle(3,3,3)
        """
        swizzle = self.swizzle
        together = (-(-count // self.element_bytes) - 1).bit_length()
        shift = abs(swizzle.shift) + swizzle.base - together  # the rows that differ stay the same
        return Swizzle(swizzle.bits, together, max(shift, swizzle.bits))


def run_of(swizzle: Swizzle) -> int:
    """Return how many aligned neighbours stay neighbours behind a swizzle.

    >>> [run_of(swizzle) for swizzle in (Swizzle(3, 3, 3), Swizzle(2, 0, 3), Swizzle(2, 5, -3))]
    [8, 1, 32]
    """
    return 1 << swizzle.base


def piece_at(swizzle: Swizzle, index: int | None, extent: int, element_bytes: int) -> Piece | None:
    """Return what stays together from an index on, in an array of `extent` elements; None for all of it.

    An index of None, which is known when the kernel runs, may be anywhere where a piece begins.
    """
    lowest_source = swizzle.yyy_msk & -swizzle.yyy_msk
    if swizzle.bits == 0 or extent <= lowest_source:  # no index has a bit that moves others
        return None
    if index is None:
        return Piece(run_of(swizzle) * element_bytes, swizzle, element_bytes)
    first, count = swizzle(index), 1
    most = min(extent - index, _MOST_NEIGHBOURS)
    while count < most and swizzle(index + count) == first + count:
        count += 1
    return None if count >= most else Piece(count * element_bytes, swizzle, element_bytes)


def swizzled(swizzle: Swizzle, index: object) -> Any:
    """Return a swizzled index, traced or not.

    Whole periods in the constant addend pass by the swizzle, so that they stay a constant offset.
    """
    if not isinstance(index, Scalar):
        return swizzle(index)
    if swizzle.bits == 0:
        return index
    whole = 0
    if index.root is not None:
        whole = index.addend - index.addend % swizzle.size()
        index = index - whole
    source = index & swizzle.yyy_msk
    moved = source >> swizzle.shift if swizzle.shift > 0 else source << -swizzle.shift
    result = xor(index, moved)
    result.multiple = gcd(index.multiple, run_of(swizzle))
    return result + whole if whole else result
