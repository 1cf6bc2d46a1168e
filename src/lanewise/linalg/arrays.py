"""What counts as an array: what callers pass, and what kernels are launched on. Types alone, no code."""

from __future__ import annotations

from collections.abc import Callable
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
