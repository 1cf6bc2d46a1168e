"""Matrices that lie in two arrays: 2:4-sparse ones (`sparsify.py`), and 4-bit integers (`quantize.py`).

They are copied once to each GPU where products with them are computed.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn
from weakref import WeakSet

import numpy as np

from lanewise.formats import Format, u8
from lanewise.hints import Suggests
from lanewise.linalg.operands import OF_OPERANDS, View, empty, multiplied_by_matmul
from lanewise.numpy_types import AnyArray

#: Bytes that rows of values are padded to, for TMA.
ALIGNED = 16


class OnDevice(NamedTuple):
    """A matrix on a GPU in two arrays of bytes: the kept values of a sparse one, and where they stood; or the
    integers of one of 4 bits, packed, and their scales."""

    values: Any
    metadata: Any
    values_address: int
    metadata_address: int

    @classmethod
    def of(cls, values: object, metadata: object) -> OnDevice:
        """Return a matrix whose values and metadata are two arrays of bytes."""
        from lanewise.gpu.arrays import locate

        places = [locate(array, 0) for array in (values, metadata)]
        assert places[0] is not None and places[1] is not None
        return cls(values, metadata, places[0].address, places[1].address)


class MatrixInTwoArrays(Suggests, ABC):
    """A K by N matrix that lies in two arrays: values, and their places or scales."""

    INSTEAD: ClassVar = OF_OPERANDS
    STANDS_FOR: ClassVar = "the b"
    __array_ufunc__ = None  # NumPy leaves the operator @ to this class
    __matmul__ = __rmatmul__ = multiplied_by_matmul

    if not TYPE_CHECKING:  # a checker knows that it has no items

        def __getitem__(self, index: object) -> NoReturn:
            raise TypeError(f"{type(self).__name__} has no items: {OF_OPERANDS['toarray']}")

    def __init__(self, shape: tuple[int, int], fmt: Format, kind: tuple[object, ...]) -> None:
        #: The shape of the matrix with its zeros.
        self.shape, self.format = shape, fmt
        #: Copies on GPUs, by library and device; they are made for the first product there.
        self.copies: dict[tuple[str, int], OnDevice] = {}
        #: What of it decides a launch, besides the device: all but its address and its numbers.
        self.kind = kind

    @property
    def k(self) -> int:
        """The elements of a column."""
        return self.shape[0]

    @abstractmethod
    def parts(self) -> tuple[AnyArray, AnyArray]:
        """Return both arrays in host memory, as they lie on a GPU."""

    def on_device(self, like: View) -> OnDevice:
        """Return the matrix on the GPU of an array, in memory of the array's library; it is copied once."""
        assert like.device is not None
        key = (like.library, like.device)
        copy = self.copies.get(key)
        if copy is None:
            copy = OnDevice.of(*(_to_device(like, part) for part in self.parts()))
            self.keep_copy(like, copy)
        return copy

    def keep_copy(self, like: View, copy: OnDevice) -> None:
        """Keep the matrix on the GPU of an array, in memory of the array's library."""
        assert like.device is not None
        self.copies[like.library, like.device] = copy
        _COPIED.add(self)


#: Matrices that are on GPUs.
_COPIED: WeakSet[MatrixInTwoArrays] = WeakSet()


def forget_copies() -> None:
    """Give back the memory of matrices on GPUs, which are others from now on."""
    for matrix in _COPIED:
        matrix.parts()  # from now on it is in host memory, if it was made on a GPU
        matrix.copies.clear()
    _COPIED.clear()


def bytes_for(like: View, count: int) -> Any:
    """Return so many bytes on the GPU of an array, in memory of its library."""
    return empty(like, (max(count, ALIGNED),), u8)


def _to_device(like: View, array: AnyArray) -> Any:
    """Return an array's bytes on the GPU of another one, in memory of its library."""
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    made = bytes_for(like, whole.size)
    if like.library == "torch":
        made[: whole.size].copy_(sys.modules["torch"].from_numpy(whole))
    else:
        made[: whole.size].set(whole)
    return made
