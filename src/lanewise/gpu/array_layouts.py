"""The shape, strides and type of arrays on a GPU, as their library, its interface or DLPack tells them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lanewise.gpu.arrays import DLPACK_CUDA, dlpack_tensor, interface_of, library_of
from lanewise.ptx.host_tensors import dlpack_device

#: DLPack's codes of types as NumPy and ml_dtypes begin their names.
_DLPACK_TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
#: Small floats of DLPack have a code each, from this one on.
_FIRST_SMALL_FLOAT = 7


class ArrayLayout(NamedTuple):
    """An array's shape, strides in bytes, bytes of an element, and the type as NumPy or torch names it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str


def layout_of(value: Any) -> ArrayLayout | None:
    """Return the layout of an array on a GPU; None for anything else."""
    library = library_of(value)
    if library is not None and library.name == "torch":
        if not value.is_cuda:
            return None
        size = value.element_size()
        strides = tuple(size * step for step in value.stride())
        return ArrayLayout(tuple(value.shape), strides, size, str(value.dtype).removeprefix("torch."))
    if library is not None:
        return ArrayLayout(tuple(value.shape), tuple(value.strides), value.dtype.itemsize, value.dtype.name)
    interface = interface_of(value)
    if interface is not None:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(interface["shape"])
        name = getattr(getattr(value, "dtype", dtype), "name", dtype.name)
        strides = tuple(interface.get("strides") or _packed(shape, dtype.itemsize))
        return ArrayLayout(shape, strides, dtype.itemsize, name)
    device = dlpack_device(value)
    if device is None or device[0] not in DLPACK_CUDA:
        return None
    tensor = dlpack_tensor(value)
    shape = tuple(tensor.shape[: tensor.ndim])
    size = tensor.bits * tensor.lanes // 8
    strides = _packed(shape, size)
    if tensor.strides:
        strides = tuple(size * step for step in tensor.strides[: tensor.ndim])
    kind = "float8" if tensor.code >= _FIRST_SMALL_FLOAT else _DLPACK_TYPES.get(tensor.code, "opaque")
    name = kind if kind in ("bool", "float8") else f"{kind}{tensor.bits}"
    return ArrayLayout(shape, strides, size, name)


def _packed(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the strides in bytes of an array in C's order without gaps.

    >>> _packed((2, 3, 4), 2)
    (24, 8, 2)
    """
    strides = [size]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides)) if shape else ()
