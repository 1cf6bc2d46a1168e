"""The memory that NumPy arrays are views of: which array owns it, and where it lies on the host."""

import numpy as np

from lanewise.jit.host_memory import address
from lanewise.numpy_types import AnyArray

Array = AnyArray


def owner_of(array: Array) -> Array:
    """Return the array whose memory an array is a view of: itself if it is not a view.

    Memory that NumPy did not allocate (a buffer, a mapped file) belongs to the first array made of it.

    >>> whole = np.zeros(8)
    >>> owner_of(whole[2:5][1:]) is whole, owner_of(whole) is whole
    (True, True)
    """
    owner, base = array, array.base
    # as_strided puts an object of NumPy's own between a view and the array that it is of.
    while isinstance(base, np.ndarray) or type(base).__module__.partition(".")[0] == "numpy":
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


#: Alignments that hosts give to bytes by hand: 64 is that of a tensor map in C++, 4096 that of a page.
_BY_HAND = (4096, 2048, 1024, 512, 256, 128, 64)


def alignment_by_hand(array: Array, owner: Array) -> int:
    """Return to how many bytes the host has aligned a view of an owner of bytes; 1 if it has not.

    That is how hosts align: of more bytes than they need, they pass those from the first multiple on.

    >>> page = np.zeros(8192, np.uint8)
    >>> raw = np.frombuffer(page[-address(page) % 4096 + 16 :].data, np.uint8)
    >>> alignment_by_hand(raw[112:], raw), alignment_by_hand(raw[113:], raw)
    (128, 1)
    """
    start, first = bounds(owner)[0], bounds(array)[0]
    if owner.itemsize != 1 or first == start:
        return 1
    return next((multiple for multiple in _BY_HAND if first - start == -start % multiple), 1)


def bounds(array: Array) -> tuple[int, int]:
    """Return the host addresses of an array's first byte and of the byte after its last."""
    low = high = address(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for size, stride in zip(array.shape, array.strides, strict=True):
        span = (size - 1) * stride
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + array.itemsize
