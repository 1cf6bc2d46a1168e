"""Memory of an operand as an array that kernels take: an address, a shape, strides, and whose it is.

Families make views of it as they would of torch's tensors. It keeps the number of its operand, by which a
recorded launch finds out what its addresses are made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, format_of
from lanewise.linalg.operands import packed_strides


class DeviceView:
    """A part of an operand's memory on a GPU, with a shape and strides in elements."""

    def __init__(
        self, operand: int, address: int, shape: tuple[int, ...], strides: tuple[int, ...], fmt: Format
    ) -> None:
        self.operand, self.address, self.format = operand, address, fmt
        self.shape, self._strides = shape, strides

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements, as NumPy has it."""
        return self.format.dtype

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.format.word_bits // 8

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in bytes, as NumPy has them."""
        return tuple(step * self.itemsize for step in self._strides)

    def stride(self) -> tuple[int, ...]:
        """Return the strides in elements, as torch has them."""
        return self._strides

    def is_contiguous(self) -> bool:
        """Return whether elements lie side by side in the order of their indices."""
        return self._strides == packed_strides(self.shape) or 0 in self.shape

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceView:
        """Return another view that begins at the same address."""
        return DeviceView(self.operand, self.address, tuple(shape), tuple(strides), self.format)

    def swapaxes(self, one: int, other: int) -> DeviceView:
        """Return the view with two axes exchanged."""
        shape, strides = list(self.shape), list(self._strides)
        shape[one], shape[other] = shape[other], shape[one]
        strides[one], strides[other] = strides[other], strides[one]
        return self.as_strided(tuple(shape), tuple(strides))

    def reshape(self, *shape: Any) -> DeviceView:
        """Return a contiguous view in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if not self.is_contiguous() or prod(sizes) != prod(self.shape):
            raise LanewiseError(
                f"a view of shape {self.shape} and strides {self._strides} cannot get shape {sizes}"
            )
        return self.as_strided(tuple(sizes), packed_strides(tuple(sizes)))

    def view(self, dtype: Any) -> DeviceView:
        """Return a contiguous view of one axis as elements of another type, of NumPy's or torch's."""
        fmt = format_of(str(dtype).removeprefix("torch.") if "torch" in type(dtype).__module__ else dtype)
        size = fmt.word_bits // 8
        count = self.shape[-1] * self.itemsize // size
        return DeviceView(
            self.operand, self.address, (*self.shape[:-1], count), packed_strides((count,)), fmt
        )

    def expand(self, *shape: int) -> DeviceView:
        """Return a view in which axes of one element are repeated."""
        strides = [
            0 if own == 1 and size != 1 else step
            for own, size, step in zip(self.shape, shape, self._strides, strict=True)
        ]
        return self.as_strided(shape, tuple(strides))

    def __iter__(self) -> Iterator[DeviceView]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: Any) -> DeviceView:
        """Return a part: an integer, a slice without a step, or None for a new axis, for the first axes."""
        given = list(index) if isinstance(index, tuple) else [index]
        shape: list[int] = []
        strides: list[int] = []
        address, axis = self.address, 0
        for value in given:
            if value is None:
                shape.append(1)
                strides.append(self.shape[axis] * self._strides[axis] if axis < self.ndim else 1)
                continue
            start, step = value, self._strides[axis]
            if isinstance(value, slice):
                start, end, _ = value.indices(self.shape[axis])
                shape.append(max(0, end - start))
                strides.append(step)
            address += start * step * self.itemsize
            axis += 1
        shape += self.shape[axis:]
        strides += self._strides[axis:]
        return DeviceView(self.operand, address, tuple(shape), tuple(strides), self.format)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": f"<u{self.itemsize}",
            "data": (self.address, False),
            "strides": self.strides,
            "any_strides": True,
        }
