"""`lw.tensor_map`: a tensor map of any array that lanewise takes, encoded without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Literal

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES
from lanewise.ptx.arguments import require_plain_array
from lanewise.ptx.tensor_maps import TensorMap

Swizzle = Literal["none", "32B", "64B", "128B"]

#: The element type of a tensor by the array's own, as NumPy, ml_dtypes and torch name it. Types of one byte
#: that are not here (fp8, bool, int8) are copied as u8.
_TYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "uint16": "u16",
    "int16": "u16", "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64",
}  # fmt: skip


def tensor_map(
    array: Any,
    box: Sequence[int],
    *,
    swizzle: Swizzle = "none",
    interleave: Literal["16B", "32B"] | None = None,
    element_strides: Sequence[int] | None = None,
    l2_promotion: Literal["64B", "128B", "256B"] | None = None,
    fill: Literal["zeros", "nan"] = "zeros",
    dtype: str | None = None,
) -> TensorMap:
    """Return a tensor map of an array: what TMA copies boxes by. It is passed for a `CUtensorMap`.

    The tensor has the array's shape and strides, so that a strided view serves; `box` and `element_strides`
    are in the array's order, the outermost axis first. `box` is how many elements a copy passes over along
    each axis. `dtype` is the type where the array's own does not say it: "tf32", "f32.ftz", "tf32.ftz". What
    the driver's encoder refuses is an error that names the rule.

    >>> import lanewise as lw
    >>> lw.tensor_map(np.zeros((4096, 1024), np.float16), (64, 64), swizzle="128B")
    <tensor map of f16 (4096, 1024), box (64, 64), swizzle 128B>
    """
    shape, strides, itemsize, name = _layout(array)
    if not shape:
        raise LanewiseError("a tensor has 1 to 5 axes; the array has none: array.reshape(1, -1) has two")
    if 0 in shape:
        raise LanewiseError(f"a tensor has at least one element along each axis; the array has shape {shape}")
    if strides[-1] != itemsize and shape[-1] > 1:
        raise LanewiseError(
            f"the last axis of a tensor lies in one piece: its stride is {itemsize} bytes, and that of the "
            f"array is {strides[-1]}; "
            + ("array.T is such an array" if strides[0] == itemsize else "copy the array")
        )
    negative = next((axis for axis, stride in enumerate(strides) if stride < 0), None)
    if negative is not None:
        raise LanewiseError(
            f"axis {negative} of the array runs backwards, by {strides[negative]} bytes; no tensor map does: "
            "copy the array"
        )
    tensor = TiledTensor(
        _element_type(name, itemsize, dtype),
        shape[::-1],
        strides[-2::-1],
        _numbers("box", box, len(shape))[::-1],
        (1,) * len(shape)
        if element_strides is None
        else _numbers("element_strides", element_strides, len(shape))[::-1],
        interleave or "none",
        swizzle,
        l2_promotion or "none",
        fill,
    )
    tensor.require_legal()
    return TensorMap(array, tensor)


def _layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], int, str]:
    """Return an array's shape, strides in bytes, bytes of an element, and the name of its type."""
    if isinstance(array, np.ndarray):
        require_plain_array("of lw.tensor_map", array)
        return array.shape, array.strides, array.itemsize, array.dtype.name
    from lanewise.gpu.array_layouts import layout_of

    found = layout_of(array)
    if found is None:
        raise LanewiseError(
            f"lw.tensor_map takes a NumPy array or an array on a GPU, not {type(array).__name__}"
            + ("; numpy.asarray makes a NumPy array of it without a copy" if _is_on_host(array) else "")
        )
    return found


def _is_on_host(array: Any) -> bool:
    """Return whether something is an array in host memory that is not NumPy's."""
    return hasattr(array, "__dlpack__") or hasattr(array, "__array__")


def _element_type(name: str, itemsize: int, wanted: str | None) -> str:
    """Return the element type of a tensor: as asked for, or that of the array's type."""
    if wanted is None:
        found = _TYPES.get(name, "u8" if itemsize == 1 else None)
        if found is None:
            raise LanewiseError(
                f"TMA copies {', '.join(ELEMENT_TYPES)}, and not {name}: view the array as one of them"
            )
        return found
    if wanted in ELEMENT_TYPES and ELEMENT_TYPES[wanted].bytes != itemsize:
        size = ELEMENT_TYPES[wanted].bytes
        raise LanewiseError(
            f"dtype={wanted!r} takes elements of {size} bytes; the array's ({name}) have {itemsize}: view it "
            "as such"
        )
    return wanted


def _numbers(name: str, values: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one integer for each axis, or raise an error."""
    try:
        found = tuple(index(each) for each in values)
    except TypeError:
        raise LanewiseError(f"{name} is an integer for each axis of the array, not {values!r}") from None
    if len(found) != rank:
        raise LanewiseError(f"{name} {found} has {len(found)} sizes; the array has {rank} axes")
    return found
