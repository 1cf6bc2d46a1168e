"""What counts as an array: what callers pass, and what kernels are launched on (`Pointers`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt


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


class Memory(Protocol):
    """An array that kernels are launched on: NumPy's, torch's, or a view of a GPU's memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The elements along each axis."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    @property
    def dtype(self) -> object:
        """The type of the elements, as the array's library has it."""

    # Libraries declare these with parameters of their own, so that only what they give is said here.
    @property
    def swapaxes(self) -> Callable[..., Memory]:
        """Return the array with two axes exchanged."""

    @property
    def reshape(self) -> Callable[..., Memory]:
        """Return the array with other axes."""

    @property
    def view(self) -> Callable[..., Memory]:
        """Return the array's memory as elements of another type."""

    def __getitem__(self, index: Any, /) -> Any:
        """Return a part of the array."""

    def __len__(self) -> int:
        """Return the elements along the first axis."""


#: Bytes at the beginning of a workspace that are counters: zero before a launch, and zero again after it.
COUNTER_BYTES = 16384


@dataclass
class Pointers:
    """What a plan is launched on: arrays of NumPy (for the machine) or of a GPU, as lanewise takes them.

    `a`, `b` and `out` have two axes, or three with the batch first; `a` is M × K, `b` K × N, whatever their
    strides. Scales are arrays of f32; alpha and beta are numbers.
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
    #: Of a sparse B, whose `b` are the values that are kept, (K/2, N): where they stood, i32.
    metadata: Memory | None = None


def flat(array: Any) -> Any:
    """Return the memory of an array from its first element to its last as one axis, for a kernel's pointer.

    The array's strides are not negative. Elements between its rows, which belong to others, are in it.
    """
    if isinstance(array, np.ndarray):
        if array.flags.c_contiguous:
            return array
        steps = [stride // array.itemsize for stride in array.strides]
        extent = 1 + sum((size - 1) * step for size, step in zip(array.shape, steps, strict=True))
        words = array.view(f"u{array.itemsize}")  # NumPy has no name for some types of ml_dtypes
        return np.lib.stride_tricks.as_strided(words, (extent,), (array.itemsize,)).view(array.dtype)
    if array.is_contiguous():
        return array
    extent = 1 + sum((size - 1) * step for size, step in zip(array.shape, array.stride(), strict=True))
    return array.as_strided((extent,), (1,))
