"""Swizzles applied to traced indices: a few instructions, and none for what a swizzle leaves alone.

Swizzles of integers known while tracing are the `Swizzle` of `lanewise.layout` itself.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from lanewise.lang.trace.bitwise import xor
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Swizzle


def swizzled(swizzle: Swizzle, index: Any) -> Any:
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
    found = xor(index, moved)
    unit = 1 << min(swizzle.base, swizzle.base + swizzle.shift)
    found.multiple = gcd(index.multiple, unit)
    return found + whole if whole else found
