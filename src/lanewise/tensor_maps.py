"""`lw.tensor_map`: a tensor map of any array that lanewise takes, encoded without a driver.

`encode_tiled` and `encode_im2col` take addresses, sizes and strides, as the driver's own functions do.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import index
from typing import Any, Literal

import numpy as np

from lanewise.errors import LanewiseError, shown
from lanewise.isa import find_arch
from lanewise.isa.tensor_map import Im2colTensor, TiledTensor
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, FILLS, INTERLEAVES, L2_PROMOTIONS, SWIZZLES
from lanewise.ptx.arguments import require_plain_array
from lanewise.ptx.host_tensors import host_array
from lanewise.ptx.tensor_maps import TensorMap, require_address
from lanewise.tracebacks import short_traceback

Interleave = Literal["16B", "32B"] | None
Promotion = Literal["64B", "128B", "256B"] | None
Fill = Literal["zeros", "nan"]
Swizzle = Literal[
    "none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"
]  # fmt: skip

#: The element type of a tensor by the array's own, as NumPy, ml_dtypes and torch name it. Types of one byte
#: that are not here (fp8, bool, int8) are copied as u8.
_TYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "uint16": "u16",
    "int16": "u16", "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64",
}  # fmt: skip


@short_traceback
def tensor_map(
    array: object,
    box: Sequence[int],
    *,
    im2col: tuple[Sequence[int], Sequence[int]] | None = None,
    swizzle: Swizzle = "none",
    interleave: Interleave = None,
    element_strides: Sequence[int] | None = None,
    l2_promotion: Promotion = None,
    fill: Fill = "zeros",
    dtype: str | None = None,
    arch: str = "sm_90",
) -> TensorMap:
    """Return a tensor map of an array: what TMA copies boxes by. It is passed for a `CUtensorMap`.

    The array is one of NumPy, a tensor in host memory (torch, DLPack), or an array on a GPU. The tensor has
    its shape and strides, so that a strided view serves; `box` and `element_strides` are in the array's
    order, the outermost axis first. `box` is how many elements a copy passes over along each axis. `dtype` is
    the type where the array's own does not say it: "tf32", "f32.ftz", "tf32.ftz". With `arch="sm_100"` or
    later there are swizzles that keep 32 or 64 bytes together ("128B_ATOM_32B" and so on). What the driver's
    encoder refuses is an error that names the rule.

    With `im2col=(lower, upper)` the map is for `.im2col` copies of images (N, …, C): `box` is (pixels,
    channels), and `lower` and `upper` are the corners of the bounding box, one number for each axis of
    pixels: its first pixel, and its last one counted from the last pixel of the array.

    >>> import lanewise as lw
    >>> lw.tensor_map(np.zeros((4096, 1024), np.float16), (64, 64), swizzle="128B")
    <tensor map of f16 (4096, 1024), box (64, 64), swizzle 128B>
    >>> images = np.zeros((8, 14, 14, 64), np.float16)
    >>> lw.tensor_map(images, (128, 64), im2col=((-1, -1), (-1, -1)), swizzle="128B").box_bytes
    16384
    """
    array = host_array(array)
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
    rank = len(shape)
    steps = _numbers("element_strides", element_strides, rank)[::-1] if element_strides is not None else None
    common = (_element_type(name, itemsize, dtype), shape[::-1], strides[-2::-1])
    modes = _modes(interleave, swizzle, l2_promotion, fill)
    tensor: TiledTensor | Im2colTensor
    if im2col is None:
        sizes = _numbers("box", box, rank)[::-1]
        tensor = _tiled(*common, sizes, steps or (1,) * rank, *modes, find_arch(arch))
    else:
        pixels, channels = _column(box)
        lower, upper = (corner[::-1] for corner in _corners(im2col))
        tensor = Im2colTensor(*common, lower, upper, channels, pixels, steps or (1,) * rank, *modes)
    tensor.require_legal()
    return TensorMap(array, tensor)


@lru_cache(maxsize=1024)
def _tiled(*of: Any) -> TiledTensor:
    """Return a tensor of tiled mode. Tensors are shared, as they remember whether they are legal."""
    return TiledTensor(*of)


@short_traceback
def encode_tiled(
    dtype: str,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    interleave: Interleave = None,
    swizzle: Swizzle = "none",
    l2_promotion: Promotion = None,
    fill: Fill = "zeros",
    arch: str = "sm_90",
) -> bytes:
    """Return the 128 bytes that `cuTensorMapEncodeTiled` gives for a tensor at a device address.

    The arguments are the driver's and in its order: the innermost axis comes first, `strides` are those of
    all axes but the innermost, in bytes. `dtype` is "f16", "bf16", "u8", "tf32" and so on, and with
    `arch="sm_100"` or later also "b4x16", "b4x16_p64" or "b6x16_p32". The bytes are passed to a kernel for a
    `CUtensorMap`, or put into memory for it.

    >>> import lanewise as lw
    >>> raw = lw.encode_tiled("f16", 0x10000, (1024, 4096), (2048,), (64, 64), swizzle="128B")
    >>> raw == lw.tensor_map(np.zeros((4096, 1024), np.float16), (64, 64), swizzle="128B").encode(0x10000)
    True
    """
    modes = _modes(interleave, swizzle, l2_promotion, fill)
    own = (_integers("box", box),)
    kind = partial(TiledTensor, arch=find_arch(arch))
    return _encoded(kind, dtype, address, dims, strides, own, element_strides, modes)


@short_traceback
def encode_im2col(
    dtype: str,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    channels: int,
    pixels: int,
    *,
    element_strides: Sequence[int] | None = None,
    interleave: Interleave = None,
    swizzle: Swizzle = "none",
    l2_promotion: Promotion = None,
    fill: Fill = "zeros",
) -> bytes:
    """Return the 128 bytes that `cuTensorMapEncodeIm2col` gives for images at a device address.

    The arguments are the driver's and in its order, the innermost axis first: `lower` and `upper` are the
    corners of the bounding box (W, H, D), `channels` those of a pixel and `pixels` those of a column that a
    copy takes.

    >>> import lanewise as lw
    >>> strides = (128, 1792, 25088)
    >>> len(lw.encode_im2col("f16", 0, (64, 14, 14, 8), strides, (-1, -1), (-1, -1), 64, 128))
    128
    """
    modes = _modes(interleave, swizzle, l2_promotion, fill)
    corners = _integers("lower", lower), _integers("upper", upper)
    own = (*corners, _integer("channels", channels), _integer("pixels", pixels))
    return _encoded(Im2colTensor, dtype, address, dims, strides, own, element_strides, modes)


def _encoded(
    kind: Callable[..., TiledTensor | Im2colTensor],
    dtype: object,
    address: object,
    dims: object,
    strides: object,
    own: tuple[object, ...],
    element_strides: object,
    modes: tuple[str, str, str, str],
) -> bytes:
    """Return the 128 bytes of a map; `own` is what its kind has between strides and element strides."""
    sizes = _integers("dims", dims)
    steps = (
        _integers("element_strides", element_strides) if element_strides is not None else (1,) * len(sizes)
    )
    tensor = kind(_driver_type(dtype), sizes, _integers("strides", strides), *own, steps, *modes)
    return tensor.encode(require_address(address))


def _modes(
    interleave: object, swizzle: object, l2_promotion: object, fill: object
) -> tuple[str, str, str, str]:
    """Return the modes of a map by name; an error for what is no name of one."""
    modes = []
    for what, value, known in (
        ("interleave", interleave, INTERLEAVES),
        ("swizzle", swizzle, SWIZZLES),
        ("l2_promotion", l2_promotion, L2_PROMOTIONS),
        ("fill", fill, FILLS),
    ):
        name = "none" if value is None and what in ("interleave", "l2_promotion") else value
        if not isinstance(name, str):
            words = ", ".join(map(repr, known))
            raise LanewiseError(f"{what} is one of {words}, not {type(value).__name__} {shown(value)}")
        modes.append(name)
    first, second, third, fourth = modes
    return first, second, third, fourth


def _column(box: object) -> tuple[int, int]:
    """Return the pixels and the channels that a copy of a column takes."""
    corners = _integers("box", box)
    if len(corners) != 2:
        raise LanewiseError(f"with im2col, box is (pixels, channels), two numbers, not {shown(box)}")
    return corners[0], corners[1]


def _corners(im2col: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the corners of a bounding box, each with one number for each axis of pixels."""
    rule = "im2col is (lower, upper): corners of the bounding box, each with a number for each axis of pixels"
    try:
        lower, upper = im2col
    except Exception:
        raise LanewiseError(f"{rule}; not {type(im2col).__name__} {shown(im2col)}") from None
    return _integers("the lower corner of im2col", lower), _integers("the upper corner of im2col", upper)


def _driver_type(dtype: Any) -> str:
    """Return an element type by PTX's name or by NumPy's."""
    if isinstance(dtype, str) and dtype in ELEMENT_TYPES:
        return dtype
    try:
        resolved = np.dtype(dtype) if dtype is not None else None
    except Exception:
        resolved = None
    if resolved is None or resolved.fields is not None:
        if isinstance(dtype, str):
            return dtype  # the rules of maps say which there are
        known = ", ".join(ELEMENT_TYPES)
        raise LanewiseError(f"dtype is one of {known}, not {type(dtype).__name__} {shown(dtype)}")
    return _element_type(resolved.name, resolved.itemsize, None)


def _layout(array: object) -> tuple[tuple[int, ...], tuple[int, ...], int, str]:
    """Return an array's shape, strides in bytes, bytes of an element, and the name of its type."""
    if isinstance(array, np.ndarray):
        require_plain_array("of lw.tensor_map", array)
        return array.shape, array.strides, array.itemsize, array.dtype.name
    from lanewise.gpu.arrays import layout_of

    layout = layout_of(array)
    if layout is None:
        on_host = hasattr(array, "__dlpack__") or hasattr(array, "__array__")
        raise LanewiseError(
            "lw.tensor_map(array, box) takes a NumPy array, a tensor in host memory or an array on a GPU "
            f"first, not {type(array).__name__}"
            + ("; numpy.asarray makes a NumPy array of it without a copy" if on_host else "")
        )
    return layout


def _element_type(name: str, itemsize: int, wanted: str | None) -> str:
    """Return the element type of a tensor: as asked for, or that of the array's type."""
    if wanted is None:
        type_name = _TYPES.get(name, "u8" if itemsize == 1 else None)
        if type_name is None:
            raise LanewiseError(
                f"TMA copies {', '.join(ELEMENT_TYPES)}, and not {name}: view the array as one of them"
            )
        return type_name
    if not isinstance(wanted, str):
        raise LanewiseError(
            f"dtype is one of {', '.join(ELEMENT_TYPES)}, not {type(wanted).__name__} {shown(wanted)}"
        )
    if wanted in ELEMENT_TYPES and ELEMENT_TYPES[wanted].bytes != itemsize:
        size = ELEMENT_TYPES[wanted].bytes
        raise LanewiseError(
            f"dtype={wanted!r} takes elements of {size} bytes; the array's ({name}) have {itemsize}: view it "
            "as such"
        )
    return wanted


def _numbers(name: str, values: object, rank: int) -> tuple[int, ...]:
    """Return one integer for each axis, or raise an error."""
    numbers = _integers(name, values)
    if len(numbers) != rank:
        raise LanewiseError(f"{name} {numbers} has {len(numbers)} sizes; the array has {rank} axes")
    return numbers


def _integers(name: str, values: Any) -> tuple[int, ...]:
    """Return some integers, or raise an error."""
    try:
        integers = tuple(index(value) for value in values)
    except Exception:  # whatever an object does that is no sequence of integers
        raise LanewiseError(
            f"{name} is an integer for each axis, not {type(values).__name__} {shown(values)}"
        ) from None
    return integers


def _integer(name: str, value: Any) -> int:
    """Return an integer, or raise an error."""
    try:
        return index(value)
    except Exception:
        raise LanewiseError(f"{name} is an integer, not {type(value).__name__} {shown(value)}") from None
