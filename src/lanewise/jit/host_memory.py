"""Memory that Python owns and machine code works in: zeroed, aligned, and where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
#: The alignment that every vector and every record of machine code is content with, a cache line.
ALIGNMENT = 64


def address(array: npt.NDArray[Any]) -> int:
    """Return where an array's elements begin. It is good for as long as the array is kept."""
    start: int = array.__array_interface__["data"][0]
    return start


def zeroed_bytes(size: int) -> Bytes:
    """Return so many zeroed bytes whose address is a multiple of `ALIGNMENT`.

    >>> memory = zeroed_bytes(100)
    >>> memory.size, address(memory) % ALIGNMENT
    (100, 0)
    """
    whole = np.zeros(size + ALIGNMENT, np.uint8)
    start = -address(whole) % ALIGNMENT
    return whole[start : start + size]
