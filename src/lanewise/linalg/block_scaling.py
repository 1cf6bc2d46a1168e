"""Block-scaled matrices: small floats of which each block along K has a scale factor of 8 bits.

mxfp8 and mxfp4 are those of OCP's Microscaling Formats (MX) 1.0, nvfp4 is NVIDIA's. `SwizzledScales` are
scale factors in the order in which tcgen05.cp brings them to tensor memory, as cuBLAS takes them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format
from lanewise.hints import Suggests
from lanewise.linalg.operands import OF_OPERANDS, multiplied_by_matmul
from lanewise.linalg.types import format_named
from lanewise.numpy_types import AnyArray
from lanewise.ptx.host_tensors import host_array

#: Rows and scale factors of a block of the swizzled order, and the bytes of one.
SWIZZLED_ROWS, SWIZZLED_FACTORS = 128, 4
SWIZZLED_BYTES = SWIZZLED_ROWS * SWIZZLED_FACTORS
#: Rows that lie side by side in a block.
_LANES = 32
#: Steps of scale factors in this order, in `Problem.factor_steps`.
SWIZZLED = (-1, -1)
#: dtypes of scale factors.
_FACTOR_DTYPES = ("float8_e8m0fnu", "float8_e4m3fn", "uint8")


@dataclass(frozen=True)
class BlockFormat:
    """A block-scaled format: its elements, its scale factors, and how many elements share one."""

    name: str
    elements: tuple[str, ...]
    factor: str
    block: int
    #: The kind of tcgen05.mma, with its words about scale factors.
    kind: str
    #: Bits of an element in memory that tcgen05 reads.
    bits: int


BLOCK_FORMATS = {
    format_.name: format_
    for format_ in (
        BlockFormat("mxfp8", ("e4m3", "e5m2"), "ue8m0", 32, "mxf8f6f4.block_scale.block32", 8),
        BlockFormat("mxfp4", ("e2m1",), "ue8m0", 32, "mxf4.block_scale.block32", 4),
        BlockFormat("nvfp4", ("e2m1",), "ue4m3", 16, "mxf4nvf4.block_scale.block16", 4),
    )
}


def block_format_of(element: Format, factor: str) -> BlockFormat | None:
    """Return the format that has these elements, and scale factors of this dtype; None if there is none.

    >>> from lanewise.formats import e2m1
    >>> block_format_of(e2m1, "float8_e4m3fn").name
    'nvfp4'
    """
    name = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}.get(factor)
    matching = (
        format_
        for format_ in BLOCK_FORMATS.values()
        if element.name in format_.elements and format_.factor == name
    )
    return next(matching, None)


class SwizzledScales:
    """Scale factors of a matrix with some rows in NVIDIA's 128×4 order, as cuBLAS and tcgen05.cp take them.

    `array` is contiguous and has any shape: 512 bytes for each 128 rows and 4 neighbouring factors of a row,
    those of the first 128 rows before those of the next. In 512 bytes, byte 16·(r mod 32) + 4·(r div 32) + f
    is factor f of row r. `rows` and `factors` are the numbers that count; the rest is padding, which must
    not be NaN. Rows of B are those of its transpose, its columns.

    >>> plain = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> swizzled = SwizzledScales.of(plain)
    >>> swizzled.array[[0, 1, 16, 17]].tolist(), swizzled.array.size
    ([0, 1, 4, 5], 512)
    >>> bool((swizzled.plain() == plain).all())
    True
    """

    def __init__(self, array: Any, rows: int, factors: int) -> None:
        for name, value in (("rows", rows), ("factors", factors)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                raise LanewiseError(f"{name}={value!r}: swizzled scales have a number of {name}, an integer")
        dtype, size = str(getattr(array, "dtype", "")).removeprefix("torch."), getattr(array, "size", None)
        size = size() if callable(size) else size
        count = int(np.prod(size)) if size is not None else -1
        _require_factors(dtype or type(array).__name__)
        wanted = swizzled_bytes(int(rows), int(factors))
        if count != wanted:
            raise LanewiseError(
                f"swizzled scales of {rows} rows with {factors} factors are {wanted} bytes, whole blocks of "
                f"128 × 4; the array has {count}"
            )
        #: The factors in their order, and how many rows and factors of a row count.
        self.array, self.rows, self.factors = array, int(rows), int(factors)

    @classmethod
    def of(cls, scales: Any) -> SwizzledScales:
        """Return scale factors (rows, factors) of NumPy in the swizzled order; padding is zeros."""
        plain = np.asarray(host_array(scales))
        _require_factors(plain.dtype.name)
        if plain.ndim != 2:
            raise LanewiseError(f"scale factors have shape (rows, factors), not {plain.shape}")
        rows, factors = plain.shape
        tall, deep = -(-rows // SWIZZLED_ROWS), -(-factors // SWIZZLED_FACTORS)
        whole = np.zeros((tall * SWIZZLED_ROWS, deep * SWIZZLED_FACTORS), np.uint8)
        whole[:rows, :factors] = np.ascontiguousarray(plain).view(np.uint8)
        parts = whole.reshape(tall, SWIZZLED_ROWS // _LANES, _LANES, deep, SWIZZLED_FACTORS)
        words = np.ascontiguousarray(parts.transpose(0, 3, 2, 1, 4)).reshape(-1)
        return cls(words.view(plain.dtype), rows, factors)

    def plain(self) -> AnyArray:
        """Return the scale factors as an array (rows, factors) of NumPy, without padding."""
        array = np.asarray(host_array(self.array))
        tall, deep = -(-self.rows // SWIZZLED_ROWS), -(-self.factors // SWIZZLED_FACTORS)
        words = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        parts = words.reshape(tall, deep, _LANES, SWIZZLED_ROWS // _LANES, SWIZZLED_FACTORS)
        whole = parts.transpose(0, 3, 2, 1, 4).reshape(tall * SWIZZLED_ROWS, deep * SWIZZLED_FACTORS)
        return np.ascontiguousarray(whole[: self.rows, : self.factors]).view(array.dtype)

    def __repr__(self) -> str:
        return f"<scales of {self.rows} rows, {self.factors} each, in 128×4 order>"


def _require_factors(dtype: str) -> None:
    """Raise an error if elements of a type are no scale factors."""
    if dtype not in _FACTOR_DTYPES:
        names = " or ".join(_FACTOR_DTYPES[:2])
        raise LanewiseError(f"swizzled scales are an array of {names}, not of {dtype}")


def swizzled_bytes(rows: int, factors: int) -> int:
    """Return the bytes of scale factors in the swizzled order.

    >>> swizzled_bytes(129, 5)
    2048
    """
    return -(-rows // SWIZZLED_ROWS) * -(-factors // SWIZZLED_FACTORS) * SWIZZLED_BYTES


# matrices: how numbers become them (`lw.quantize`) ----------------------------------------------------------

#: Exponents of ue8m0.
_LEAST_EXPONENT, _MOST_EXPONENT = -127, 127


@dataclass(frozen=True, eq=False)
class BlockScaledMatrix(Suggests):
    """A matrix whose elements are values · scales · factor: small floats, one scale for each block along K.

    `values` has the matrix's shape. `scales` has one element for each block of `axis`, the axis of K: that is
    the last of an A, (M, K), and the first of a B, (K, N). `factor` is 1, or of nvfp4 the tensor's scale.
    """

    values: Any
    scales: Any
    #: "mxfp8", "mxfp4" or "nvfp4".
    format: str
    axis: int = 0
    factor: float = 1.0
    INSTEAD: ClassVar = OF_OPERANDS
    STANDS_FOR: ClassVar = "an operand"
    __array_ufunc__: ClassVar = None  # NumPy leaves the operator @ to this class
    __matmul__ = __rmatmul__ = multiplied_by_matmul

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return tuple(self.values.shape)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Return the matrix as float32 of NumPy."""
        block, length = BLOCK_FORMATS[self.format].block, self.shape[self.axis]
        factors = np.repeat(_numbers(self.scales), block, axis=self.axis)
        factors = np.take(factors, range(length), axis=self.axis)
        with np.errstate(under="ignore"):
            return np.asarray(_numbers(self.values) * factors * self.factor, np.float32)

    def __repr__(self) -> str:
        return f"<{self.format} {' × '.join(map(str, self.shape))}, scaled along axis {self.axis}>"


def _numbers(array: object) -> npt.NDArray[np.float64]:
    """Return small floats of NumPy or torch as numbers."""
    return np.asarray(array.float() if hasattr(array, "float") else array).astype(np.float64)


def block_scaled(
    matrix: AnyArray, fmt: BlockFormat, axis: int, dtype: object, library: str
) -> BlockScaledMatrix:
    """Return numbers (rows, columns) in a block-scaled format, with blocks along an axis."""
    element = FORMATS[fmt.elements[0]] if dtype is None else format_named(dtype, "dtype")
    if element.name not in fmt.elements:
        names = " or ".join(FORMATS[element].dtype_name for element in fmt.elements)
        raise LanewiseError(f"dtype={dtype!r}: elements of {fmt.name} are {names}")
    rows = np.asarray(matrix if axis else matrix.T, np.float64)
    length = rows.shape[1]
    missing = -length % fmt.block
    whole = np.pad(rows, ((0, 0), (0, missing)))
    parts = whole.reshape(rows.shape[0], whole.shape[1] // fmt.block, fmt.block)
    largest = np.abs(parts).max(axis=2, initial=0)
    factor = 1.0
    if fmt.factor == "ue8m0":
        scales = _powers(largest, element)
    else:
        scales, factor = _nvfp4_scales(largest, element)
    divisors = FORMATS[fmt.factor].decode(scales)[:, :, None] * factor
    with np.errstate(all="ignore"):
        quotients = np.where(divisors == 0, 0.0, parts / divisors)
    values = element.array(quotients, saturate=True).reshape(whole.shape)[:, :length]
    return BlockScaledMatrix(
        _array_of(library, values if axis else values.T, element),
        _array_of(library, FORMATS[fmt.factor].from_bits(scales if axis else scales.T), FORMATS[fmt.factor]),
        fmt.name,
        axis,
        factor,
    )


def _powers(largest: AnyArray, element: Format) -> AnyArray:
    """Return scale factors of ue8m0 as words, by OCP's rule.

    The power of two is that of the block's largest magnitude, divided by that of the element format's.
    """
    exponents = np.frexp(np.where(largest > 0, largest, 2.0**_LEAST_EXPONENT))[1] - 1
    shared = exponents - (np.frexp(float(element.max))[1] - 1)
    shared = np.where(largest > 0, shared, _LEAST_EXPONENT)
    return (np.clip(shared, _LEAST_EXPONENT, _MOST_EXPONENT) - _LEAST_EXPONENT).astype(np.uint8)


def _nvfp4_scales(largest: AnyArray, element: Format) -> tuple[AnyArray, float]:
    """Return scale factors of ue4m3 as words, and the scale of the tensor.

    The scale of the tensor lets the largest block have the largest factor.
    """
    ue4m3 = FORMATS["ue4m3"]
    most = float(largest.max(initial=0))
    factor = float(np.float32(most / (float(ue4m3.max) * float(element.max)))) if most else 1.0
    factor = factor or float(np.finfo(np.float32).smallest_subnormal)
    return ue4m3.encode(largest / float(element.max) / factor, saturate=True), factor


def _array_of(library: str, array: AnyArray, fmt: Format) -> Any:
    """Return an array as one of a library."""
    array = np.ascontiguousarray(array)
    if library != "torch":
        return array
    torch = sys.modules["torch"]
    if fmt.bits < 8:
        raise LanewiseError(
            "torch has no type with one element of float4_e2m1fn in a byte: pass w.float().cpu().numpy()"
        )
    return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, fmt.dtype_name))
