"""Matrices in block-scaled formats: how numbers become them (`lw.quantize`), and how products take them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format
from lanewise.linalg.block_scaling.formats import BLOCK_FORMATS, BlockFormat
from lanewise.linalg.options import Options
from lanewise.linalg.types import format_named

Array = npt.NDArray[Any]
#: Exponents of ue8m0.
_LEAST_EXPONENT, _MOST_EXPONENT = -127, 127


@dataclass(frozen=True, eq=False)
class BlockScaledMatrix:
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return tuple(self.values.shape)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Return the matrix as float32 of NumPy."""
        block, length = BLOCK_FORMATS[self.format].block, self.shape[self.axis]
        factors = np.repeat(_numbers(self.scales), block, axis=self.axis)
        factors = np.take(factors, range(length), axis=self.axis)
        return np.asarray(_numbers(self.values) * factors * self.factor, np.float32)

    def __repr__(self) -> str:
        return f"<{self.format} {' × '.join(map(str, self.shape))}, scaled along axis {self.axis}>"


def _numbers(array: object) -> npt.NDArray[np.float64]:
    """Return small floats of NumPy or torch as numbers."""
    return np.asarray(array.float() if hasattr(array, "float") else array).astype(np.float64)


def block_scaled(
    matrix: Array, fmt: BlockFormat, axis: int, dtype: object, library: str
) -> BlockScaledMatrix:
    """Return numbers (rows, columns) in a block-scaled format, with blocks along an axis."""
    element = FORMATS[fmt.elements[0]] if dtype is None else format_named(dtype, "dtype")
    if element.name not in fmt.elements:
        names = " or ".join(FORMATS[element].dtype_name for element in fmt.elements)
        raise LanewiseError(f"dtype={dtype!r}: elements of {fmt.name} are {names}")
    rows = np.asarray(matrix if axis else matrix.T, np.float64)
    length = rows.shape[1]
    missing = -length % fmt.block
    parts = np.pad(rows, ((0, 0), (0, missing))).reshape(rows.shape[0], -1, fmt.block)
    largest = np.abs(parts).max(axis=2, initial=0)
    factor = 1.0
    if fmt.factor == "ue8m0":
        scales = _powers(largest, element)
    else:
        scales, factor = _nvfp4_scales(largest, element)
    divisors = FORMATS[fmt.factor].decode(scales)[:, :, None] * factor
    with np.errstate(all="ignore"):
        quotients = np.where(divisors == 0, 0.0, parts / divisors)
    values = element.array(quotients, saturate=True).reshape(rows.shape[0], -1)[:, :length]
    return BlockScaledMatrix(
        _array_of(library, values if axis else values.T, element),
        _array_of(library, FORMATS[fmt.factor].from_bits(scales if axis else scales.T), FORMATS[fmt.factor]),
        fmt.name,
        axis,
        factor,
    )


def _powers(largest: Array, element: Format) -> Array:
    """Return scale factors of ue8m0 as words, by OCP's rule.

    The power of two is that of the block's largest magnitude, divided by that of the element format's.
    """
    exponents = np.frexp(np.where(largest > 0, largest, 2.0**_LEAST_EXPONENT))[1] - 1
    shared = exponents - (np.frexp(float(element.max))[1] - 1)
    shared = np.where(largest > 0, shared, _LEAST_EXPONENT)
    return (np.clip(shared, _LEAST_EXPONENT, _MOST_EXPONENT) - _LEAST_EXPONENT).astype(np.uint8)


def _nvfp4_scales(largest: Array, element: Format) -> tuple[Array, float]:
    """Return scale factors of ue4m3 as words, and the scale of the tensor.

    The scale of the tensor lets the largest block have the largest factor.
    """
    ue4m3 = FORMATS["ue4m3"]
    most = float(largest.max(initial=0))
    factor = float(np.float32(most / (float(ue4m3.max) * float(element.max)))) if most else 1.0
    factor = factor or float(np.finfo(np.float32).smallest_subnormal)
    return ue4m3.encode(largest / float(element.max) / factor, saturate=True), factor


def _array_of(library: str, array: Array, fmt: Format) -> Any:
    """Return an array as one of a library."""
    array = np.ascontiguousarray(array)
    if library != "torch":
        return array
    torch = sys.modules["torch"]
    if fmt.bits < 8:
        raise LanewiseError(
            "torch has no type with one element of float4_e2m1fn in a byte: pass w.float().numpy()"
        )
    return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, fmt.dtype_name))


def unwrapped(a: object, b: object, options: Options) -> tuple[Any, Any, Options]:
    """Return a product's operands as arrays, and its options with the scales of block-scaled ones."""
    for name, given, axis in (("a", a, 1), ("b", b, 0)):
        if not isinstance(given, BlockScaledMatrix):
            continue
        if getattr(options, f"scale_{name}") is not None:
            raise LanewiseError(f"{name} has scales of its own: leave out scale_{name}=")
        if given.axis != axis:
            raise LanewiseError(
                f"{name} is scaled along axis {given.axis}; blocks must lie along K, axis {axis} of {name}: "
                f"lw.quantize(…, axis={axis})"
            )
        if not isinstance(options.alpha, int | float):
            raise LanewiseError(f"alpha must be a number, not {type(options.alpha).__name__}")
        scales = {f"scale_{name}": given.scales}
        options = replace(options, alpha=options.alpha * given.factor, **scales)
    return (
        a.values if isinstance(a, BlockScaledMatrix) else a,
        b.values if isinstance(b, BlockScaledMatrix) else b,
        options,
    )
