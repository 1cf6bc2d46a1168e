"""What counts as an array: what callers pass, and what kernels are launched on (`Pointers`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from lanewise.errors import LanewiseError
from lanewise.formats import Format


class SupportsDLPack(Protocol):
    """An array that DLPack passes on: NumPy's, torch's, CuPy's, JAX's."""

    def __dlpack__(self) -> object:
        """Return the array as a capsule."""


class SupportsCudaArrayInterface(Protocol):
    """An array on a GPU that says where it lies."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """The array's address, shape, strides and type."""


#: An array that a caller passes; NumPy's have no DLPack by their types if elements are those of ml_dtypes.
Array: TypeAlias = SupportsDLPack | SupportsCudaArrayInterface | npt.NDArray[np.generic]
#: A scale: one for each row or block, or a number.
Scale: TypeAlias = Array | float


#: An array that kernels are launched on: one in host memory, or a `DeviceView`.
Memory: TypeAlias = npt.NDArray[Any]


class DeviceView(np.ndarray[Any, Any]):
    """Memory of an operand on a GPU, as an array of NumPy's that nobody reads: `device_view` makes one.

    NumPy computes the shapes, strides and addresses of its parts. Each part knows the number of its operand,
    by which a recorded launch finds out what its addresses are made of.
    """

    operand: int

    def __array_finalize__(self, source: object) -> None:
        self.operand = getattr(source, "operand", 0)

    def __repr__(self) -> str:
        return f"<operand {self.operand}: {self.dtype.name} {self.shape} at {self.ctypes.data:#x}>"

    __str__ = __repr__

    def reshape(self, *shape: Any, **_: Any) -> Any:
        """Return a contiguous view in another shape; NumPy would copy others."""
        if not self.flags.c_contiguous:
            raise LanewiseError(f"{self!r} is not contiguous and cannot get shape {shape}")
        return super().reshape(*shape)


class OnGpu:
    """A `DeviceView` as a launch takes it: what other libraries say of their arrays on a GPU."""

    def __init__(self, view: DeviceView) -> None:
        self.operand, self.dtype, self.address = view.operand, view.dtype, view.ctypes.data
        #: Kernels follow the strides.
        self.__cuda_array_interface__ = {
            "version": 3, "shape": view.shape, "typestr": f"<u{view.itemsize}",
            "data": (self.address, False), "strides": view.strides, "any_strides": True,
        }  # fmt: skip


def device_view(
    operand: int, address: int, shape: Sequence[int], strides: Sequence[int], fmt: Format
) -> DeviceView:
    """Return the memory of an operand at an address, by its shape and its strides in elements.

    >>> from lanewise.formats import f16
    >>> view = device_view(4, 0x7F0000000000, (8, 16), (32, 1), f16)[2:].swapaxes(0, 1)
    >>> view.operand, view.shape, hex(view.ctypes.data)
    (4, (16, 6), '0x7f0000000080')
    """
    view = array_at(address, shape, strides, fmt.word_bits // 8).view(fmt.dtype).view(DeviceView)
    view.operand = operand
    return view


def array_at(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Memory:
    """Return words of some bytes at an address as an array; strides are in elements. Nothing is read."""
    interface = {
        "version": 3,
        "typestr": f"<u{size}",
        "data": (address, False),
        "shape": tuple(shape),
        "strides": tuple(step * size for step in strides),
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


#: Bytes at the beginning of a workspace that are counters: zero before a launch, and zero again after it.
COUNTER_BYTES = 16384


@dataclass
class Pointers:
    """What a plan is launched on: arrays of NumPy (for the machine) or of a GPU, as lanewise takes them.

    `a`, `b` and `out` have two axes, or three with the batch first; `a` is M × K, and B is there as its
    transpose, N × K, as in `Problem`, whatever their strides. Scales are arrays of f32, those of blocks rows
    of A or columns of B by blocks of K; alpha and beta are numbers.
    """

    a: Memory
    b: Memory
    out: Memory
    bias: Memory | None = None
    residual: Memory | None = None
    scale_a: Memory | None = None
    scale_b: Memory | None = None
    scale_out: Memory | None = None
    alpha: float = 1.0
    beta: float = 1.0
    workspace: Memory | None = None
    #: Of a grouped product: the first row of each expert and the row after its last, i32.
    starts: Memory | None = None
    ends: Memory | None = None
    #: Of a sparse B, whose `b` are the values that are kept, (N, K/2): where they stood, i32.
    metadata: Memory | None = None


def flat(array: Memory) -> Memory:
    """Return the memory of an array from its first element to its last as one axis, for a kernel's pointer.

    The array's strides are not negative. Elements between its rows, which belong to others, are in it.
    """
    if array.flags.c_contiguous:
        return array
    extent = 1 + sum((size - 1) * step for size, step in zip(array.shape, element_steps(array), strict=True))
    words = array.view(f"u{array.itemsize}")  # NumPy has no name for some types of ml_dtypes
    return as_strided(words, (extent,), (array.itemsize,), subok=True).view(array.dtype)


def element_steps(array: Memory) -> list[int]:
    """Return the strides of an array in elements."""
    return [stride // array.itemsize for stride in array.strides]


def batch_of_one(array: Memory) -> Memory:
    """Return a matrix as the only one of a batch; the first stride is one that a tensor map may have."""
    strides = (array.shape[0] * array.strides[0], *array.strides)
    return as_strided(array, (1, *array.shape), strides, subok=True)
