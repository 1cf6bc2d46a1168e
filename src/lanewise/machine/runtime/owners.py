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


def bounds(array: Array) -> tuple[int, int]:
    """Return the host addresses of an array's first byte and of the byte after its last."""
    low = high = address(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for size, stride in zip(array.shape, array.strides, strict=True):
        span = (size - 1) * stride
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + array.itemsize
