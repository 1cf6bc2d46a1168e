"""`lw.quantize`: matrices of few bits: 4-bit integers with a scale for each group of K, block-scaled formats.

Products with the former are in `int4_matmul.py`; the latter are made in `block_scaling.py`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import Format, bf16
from lanewise.linalg.arrays import Array
from lanewise.linalg.block_scaling import BLOCK_FORMATS, BlockFormat, BlockScaledMatrix, block_scaled
from lanewise.linalg.kernels.int4.packing import GROUP_STEP, Packed, pack, pack_scales, padded, unpack
from lanewise.linalg.matrix_in_two_arrays import MatrixInTwoArrays
from lanewise.linalg.operands import View, view_of
from lanewise.linalg.types import QUANTIZED, format_named, names_taken
from lanewise.numpy_types import AnyArray
from lanewise.tracebacks import short_traceback

#: The largest magnitude of a weight; -8 is not used, so that weights are symmetric.
_LARGEST = 7
#: Types of the rows that are multiplied with weights, and of their scales.
_ROWS = ("f16", "bf16")


class QuantizedMatrix(MatrixInTwoArrays):
    """A K by N matrix of 4-bit integers from -7 to 7, with a scale for each column and `group` elements of K.

    An element is integer · scale, rounded to `format`, the type of scales and of the rows that it multiplies.
    """

    def __init__(
        self, words: AnyArray, scales: AnyArray, shape: tuple[int, int], group: int, fmt: Format
    ) -> None:
        super().__init__(shape, fmt, ("int4", *shape, group, fmt.name))
        #: Packed words, and scales (groups of K, columns), padded to whole tiles; elements that share one.
        self.words, self.scales, self.group = words, scales, group
        #: The library and the device that `dequantize` returns an array of.
        self.library: str = "numpy"
        self.device: int | None = None

    @property
    def columns(self) -> int:
        """The columns, padded to whole tiles."""
        return int(self.scales.shape[1])

    @property
    def groups(self) -> int:
        """The groups of K, each of which has a scale in every column."""
        return int(self.scales.shape[0])

    @property
    def chunks(self) -> int:
        """Tiles of a column."""
        return int(self.words.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of words and scales."""
        return int(self.words.nbytes + self.scales.nbytes)

    @property
    def integers(self) -> npt.NDArray[np.int8]:
        """The weights before they are scaled, (K, N)."""
        return unpack(self.words, self.shape[1], self.k).T

    def rows(self) -> AnyArray:
        """Return the weights as kernels multiply them, (N, K), in host memory."""
        k, n = self.shape
        factors = np.repeat(self.scales[:, :n].astype(np.float32), self.group, axis=0)[:k].T
        # An integer of 4 bits times a scale is exact in f32, so that it is rounded once.
        return (self.integers.T.astype(np.float32) * factors).astype(self.format.dtype)

    def dequantize(self) -> Any:
        """Return the matrix (K, N) as an array of the library, and on the device, of the original one."""
        dense = self.rows().T
        if self.library != "torch":
            return np.ascontiguousarray(dense)
        torch = sys.modules["torch"]
        words = torch.from_numpy(np.ascontiguousarray(dense).view(np.int16))
        made = words.view(getattr(torch, self.format.dtype_name))
        return made if self.device is None else made.to(f"cuda:{self.device}")

    @property
    def packed(self) -> Packed:
        """What of the weights a launch depends on, beside their addresses."""
        return Packed(self.chunks, self.group, self.groups)

    def parts(self) -> tuple[AnyArray, AnyArray]:
        """Return words and scales as they lie on a GPU."""
        return self.words, pack_scales(self.scales)

    def __repr__(self) -> str:
        k, n = self.shape
        return f"<int4 {k} × {n}, {self.format.name} scales of {self.group}, {self.nbytes} bytes>"


@overload
def quantize(
    w: Array, format: Literal["int4"] = "int4", *, group: int = 128, dtype: object = None
) -> QuantizedMatrix: ...


@overload
def quantize(
    w: Array, format: Literal["mxfp8", "mxfp4", "nvfp4"], *, axis: int = 0, dtype: object = None
) -> BlockScaledMatrix: ...


@overload
def quantize(
    w: Array, format: str, *, group: int | None = None, axis: int = 0, dtype: object = None
) -> Any: ...


@short_traceback
def quantize(
    w: Array, format: str = "int4", *, group: int | None = None, axis: int = 0, dtype: object = None
) -> QuantizedMatrix | BlockScaledMatrix:
    """Return weights (K, N) in a format of few bits for `lw.matmul(x, w)`.

    "mxfp8", "mxfp4" and "nvfp4" are block-scaled formats, which products for sm_100a take on both sides: 32
    (nvfp4: 16) elements along `axis` have a scale. That is axis 0 of weights (K, N), and 1 of rows (M, K).
    The scale of an MX format is a power of two by OCP's rule; `dtype` is e4m3 or e5m2 of mxfp8.

    "int4" has a scale for each column and `group` of K, 128 unless said otherwise: the largest magnitude of
    its group over 7. Weights are the nearest integers. `dtype`, f16 or bf16, is the type of scales and of the
    rows x: that of w, or bf16 for a w of f32.

    >>> import numpy as np
    >>> w = np.arange(-8, 8, dtype=np.float16).reshape(8, 2)
    >>> quantize(w)
    <int4 8 × 2, f16 scales of 128, 8448 bytes>
    >>> quantize(w).dequantize()[:2].tolist()
    [[-8.0, -7.0], [-5.7109375, -5.0]]
    >>> quantize(w, "mxfp4").scales.astype(float).tolist()
    [[2.0, 1.0]]
    """
    if format in BLOCK_FORMATS:
        if group is not None:
            raise LanewiseError(
                f"group={group!r}: blocks of {format} have {BLOCK_FORMATS[format].block} elements"
            )
        return _block_scaled(w, BLOCK_FORMATS[format], axis, dtype)
    if format != "int4":
        known = ["int4", *BLOCK_FORMATS]
        raise LanewiseError(
            f"lw.quantize makes {', '.join(map(repr, known[:-1]))} or {known[-1]!r}, not {format!r}"
        )
    if axis != 0:
        raise LanewiseError(f"axis={axis!r}: groups of int4 lie along axis 0, which is K")
    group = 128 if group is None else group
    if (
        isinstance(group, bool)
        or not isinstance(group, int | np.integer)
        or group < GROUP_STEP
        or group % GROUP_STEP
    ):
        raise LanewiseError(f"group={group!r} must be a multiple of {GROUP_STEP}, such as 128")
    view = _source(w, " (K, N)")
    fmt = format_named(dtype, "dtype") if dtype is not None else view.format
    fmt = bf16 if dtype is None and fmt.name not in _ROWS else fmt
    if fmt.name not in _ROWS:
        raise LanewiseError(f"dtype={dtype!r}: scales are float16 or bfloat16, as the rows they multiply")
    matrix = _on_host(view).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise LanewiseError("w has infinities or NaN, which no integer stands for")
    k, n = matrix.shape
    group = min(int(group), max(padded(n, k)[1], GROUP_STEP))  # a longer one is all of K, too
    words, scales = _quantized(matrix.T, group, fmt)
    quantized = QuantizedMatrix(words, scales, (k, n), group, fmt)
    quantized.library, quantized.device = view.library, view.device
    return quantized


def _block_scaled(w: Array, fmt: BlockFormat, axis: int, dtype: object) -> BlockScaledMatrix:
    """Return a matrix in a block-scaled format."""
    view = _source(w)
    if isinstance(axis, bool) or axis not in (0, 1, -1, -2):
        raise LanewiseError(f"axis={axis!r} must be 0, K of weights (K, N), or 1, K of rows (M, K)")
    matrix = _on_host(view).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise LanewiseError(f"w has infinities or NaN, which {fmt.name} has no scale for")
    scaled = block_scaled(matrix, fmt, axis % 2, dtype, view.library)
    if view.device is None or view.library != "torch":
        return scaled
    values, scales = (array.to(f"cuda:{view.device}") for array in (scaled.values, scaled.scales))
    return replace(scaled, values=values, scales=scales)


def _source(w: object, axes: str = "") -> View:
    """Return a matrix that can be quantized, a parameter of a model without its gradient."""
    view = view_of(w.detach() if hasattr(w, "detach") else w, "w")
    if view.format.name not in QUANTIZED or len(view.shape) != 2:
        raise LanewiseError(
            f"w is {view.format.dtype_name} of shape {view.shape}; lw.quantize takes a matrix{axes} of "
            f"{names_taken('w')}"
        )
    return view


def _on_host(view: View) -> AnyArray:
    """Return a matrix in host memory."""
    if view.device is None:
        return np.asarray(view.array)
    if view.library == "torch":
        return np.asarray(view.array.float().cpu().numpy())
    if view.library == "cupy":
        return np.asarray(view.array.get())
    raise LanewiseError(f"lw.quantize takes matrices on a GPU of torch and CuPy, not of {view.library}")


def _largest_scale(fmt: Format) -> Any:
    """Return the largest scale with which the largest integer of 4 bits is a finite number."""
    with np.errstate(over="ignore"):
        scale = np.array([float(fmt.max) / _LARGEST], np.float32).astype(fmt.dtype)
        while np.isinf((scale.astype(np.float32) * _LARGEST).astype(fmt.dtype).astype(np.float32)).any():
            scale = (scale.view(np.uint16) - 1).view(fmt.dtype)  # the next one below
    return scale[0]


def _quantized(rows: AnyArray, group: int, fmt: Format) -> tuple[AnyArray, AnyArray]:
    """Return packed words and scales of weights (N, K) of f32."""
    n, k = rows.shape
    columns, whole = padded(n, k)
    groups = -(-whole // group)
    whole_rows = np.zeros((n, groups * group), np.float32)
    whole_rows[:, :k] = rows
    apart = whole_rows.reshape(n, groups, group)
    exact = np.abs(apart).max(axis=2, initial=0) / np.float32(_LARGEST)
    least = np.float32(fmt.smallest_subnormal)  # nothing is divided by zero
    if exact.max(initial=0) * _LARGEST > float(fmt.max):
        wider = '; dtype="bfloat16" has a wider range' if fmt is not bf16 else ""
        raise LanewiseError(
            f"w has magnitudes up to {np.abs(rows).max():.3g}, and {fmt.dtype_name}, the type of the scales "
            f"and of what they multiply, ends at {float(fmt.max):.3g}{wider}"
        )
    scale = np.minimum(np.maximum(exact, least).astype(fmt.dtype), _largest_scale(fmt))
    integers = np.rint(apart / scale.astype(np.float32)[:, :, None])
    integers = np.clip(integers, -_LARGEST, _LARGEST).reshape(whole_rows.shape)[:, :k]
    scales = np.ones((groups, columns), fmt.dtype)
    scales[:, :n] = scale.T
    return pack(integers), scales
