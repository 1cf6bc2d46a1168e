"""`lw.TensorMap[dtype, box, swizzle]`: the annotation of a parameter that takes a tensor map, and its value.

What the 128 bytes mean, and how the host makes them, is `lw.tensor_map`; here is what a kernel knows of them.
"""

from math import prod
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.matrix_descriptor import swizzle_mode
from lanewise.lang.trace.builder import Register, current
from lanewise.lang.trace.traced import Traced
from lanewise.lang.trace.types import TensorMapType, dtype_name, storage_bytes

#: Dimensions of a tensor, and elements of a box along each of them.
_MOST_DIMENSIONS, _LONGEST_BOX = 5, 256
#: The names of swizzles by the bytes that are swizzled.
_SWIZZLES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}


class TensorMap(Traced):
    """A tensor map inside a kernel: what lw.tma loads through and stores through; `nbytes` is a box's size.

    The annotation says the element's format, the box (or only its rank) in the order of the array, and the
    bytes that are swizzled, 0, 32, 64 or 128: `lw.TensorMap[lw.bf16, (128, 64), 128]`.
    """

    __slots__ = ("address", "kind", "name")

    def __init__(self, kind: TensorMapType, address: Register, name: str) -> None:
        self.kind, self.address, self.name = kind, address, name

    def __class_getitem__(cls, what: object) -> TensorMapType:
        entries = what if isinstance(what, tuple) else (what,)
        usage = "lw.TensorMap[lw.bf16, (128, 64), 128] or lw.TensorMap[lw.bf16, 2]"
        if not 2 <= len(entries) <= 3 or not isinstance(entries[0], Format):
            raise LanewiseError(
                "lw.TensorMap takes the element's format, the box or the rank, and perhaps the swizzle: "
                f"{usage}"
            )
        dtype, box, swizzle = (*entries, None)[:3]
        if isinstance(swizzle, int) and swizzle in _SWIZZLES:
            swizzle = _SWIZZLES[swizzle]  # a number, since type checkers read text in annotations as code
        elif swizzle is not None and swizzle not in _SWIZZLES.values():
            raise LanewiseError(f"the swizzle of lw.TensorMap is 0, 32, 64 or 128 bytes, not {swizzle!r}")
        if isinstance(box, int) and not isinstance(box, bool):
            rank, box = box, None
        elif isinstance(box, tuple | list):
            rank, box = len(box), tuple(box)
        else:
            raise LanewiseError(f"the box of lw.TensorMap is a tuple, or its rank a number: {usage}")
        if not 1 <= rank <= _MOST_DIMENSIONS:
            raise LanewiseError(f"a tensor map has 1 to {_MOST_DIMENSIONS} dimensions, not {rank}")
        if box is not None:
            _check_box(dtype, box, swizzle)
        return TensorMapType(dtype, rank, box, swizzle)

    @property
    def dtype(self) -> Format:
        """The format of the tensor's elements."""
        return self.kind.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of one box, which a load brings to shared memory."""
        if self.kind.box is None:
            raise current().error(
                f"the box of {self.name} is not known while tracing: write it into the annotation, "
                f"lw.TensorMap[lw.{dtype_name(self.dtype)}, (rows, columns)]"
            )
        return prod(self.kind.box) * storage_bytes(self.dtype)

    def __str__(self) -> str:
        return f"the tensor map {self.name!r}, {self.kind!r}"


def _check_box(dtype: Format, box: tuple[Any, ...], swizzle: str | None) -> None:
    """Raise an error for a box that no tensor map has."""
    for extent in box:
        if isinstance(extent, bool) or not isinstance(extent, int) or not 1 <= extent <= _LONGEST_BOX:
            raise LanewiseError(
                f"a box has 1 to {_LONGEST_BOX} elements along each dimension, not {extent!r}"
            )
    inner = box[-1] * storage_bytes(dtype)
    if inner % 16:
        raise LanewiseError(
            f"the innermost extent of a box is a multiple of 16 bytes; {box[-1]} of {dtype.name} are {inner}"
        )
    if swizzle not in (None, "none") and inner > swizzle_mode(swizzle).row_bytes:
        widest = swizzle_mode(swizzle).row_bytes
        raise LanewiseError(
            f"with the {swizzle} swizzle the innermost extent of a box is at most {widest} bytes, "
            f"{widest // storage_bytes(dtype)} of {dtype.name}; not {box[-1]}"
        )
