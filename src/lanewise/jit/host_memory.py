"""Memory that Python owns and machine code works in: zeroed, aligned, and where it lies."""

import ctypes

import numpy as np
import numpy.typing as npt

from lanewise.numpy_types import AnyArray

Bytes = npt.NDArray[np.uint8]
#: The alignment that every vector and every record of machine code is content with, a cache line.
ALIGNMENT = 64


def address(array: AnyArray) -> int:
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


def as_bytes(start: int, size: int, owner: Bytes | None = None) -> Bytes:
    """Return memory that somebody else owns, as an array of bytes that is no view of another array.

    It is there for as long as its owner is kept; if the owner is given, the array keeps it.
    """
    if not size:
        return np.zeros(0, np.uint8)
    kind = ctypes.c_uint8 * size
    memory = (
        kind.from_address(start) if owner is None else kind.from_buffer(owner.data, start - address(owner))
    )
    return np.ctypeslib.as_array(memory)
