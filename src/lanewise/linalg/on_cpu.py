"""A product on NumPy arrays, with the bits that a GPU returns for the same plan.

The sums are those of the plan's instruction in the plan's order (`order.py`). What is fused is done by the
functions of `epilogue_code.py`, which the GPU's kernels call too: here in a kernel of its own, element by
element, on the CPU machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.formats import Format, e4m3, f32
from lanewise.isa import Instruction
from lanewise.linalg.order import instruction_of, split_parts
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import BLOCK

Array = npt.NDArray[Any]

#: The bits of f32 that tf32 does not have, and the NaN that TMA makes of every NaN when it rounds.
_TF32_LOST, _TF32_NAN = 13, 0x7FFFE000
_THREADS = 128
#: Elements of one launch of the epilogue's kernel, whose indices have 32 bits.
_MOST_ELEMENTS = 1 << 28


def compute(request: Request, problem: Problem, plan: Plan) -> None:
    """Compute a request whose arrays are in host memory, and write its result."""
    out = as_matrices(request.out.array, request.out.shape)
    if not out.size:
        return
    total = sums(request, problem, plan)
    out[...] = finished(request, problem, total, out)


def as_matrices(array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array in the shape of its view: axes of one element are put in, none is copied."""
    view = array.reshape(shape) if array.shape != shape else array
    assert np.shares_memory(view, array) or not array.size
    return view


# the sums ---------------------------------------------------------------------------------------------------


def sums(request: Request, problem: Problem, plan: Plan) -> Array:
    """Return the sums of a request, (…, M, N), in the order of a plan: f32, f16, f64 or s32."""
    a = as_matrices(request.a.array, request.a.shape)
    b = as_matrices(request.b.array, request.b.shape)
    multiply = instruction_of(problem, plan)
    if problem.precision:
        a, b = split_tf32(a, b) if problem.precision == "f32" else (rounded_tf32(a), rounded_tf32(b))
    total: Array | None = None
    for start, end in split_parts(problem, plan):
        part = _part_of(request, problem, multiply, plan.arch, a, b, start, end)
        if total is None:
            total = part
        else:
            with np.errstate(all="ignore"):
                total = total + part
    assert total is not None
    shape = (*request.batch, request.m, request.n)
    return np.broadcast_to(total, shape)


def _part_of(
    request: Request,
    problem: Problem,
    multiply: Instruction,
    arch: str,
    a: Array,
    b: Array,
    start: int,
    end: int,
) -> Array:
    """Return the sums over a part of K: one chain of instructions, or several that are promoted to f32."""

    def chain(first: int, last: int) -> Array:
        return multiply.gemm(a[..., first:last], b[..., first:last, :], arch=arch)

    if problem.promote is None:
        return chain(start, end)
    total: Array | None = None
    for first in range(start, end, problem.promote) if end > start else [start]:
        part = chain(first, min(first + problem.promote, end))
        if problem.epilogue.scale_a == "block":
            factor = _block_factor(request, first // BLOCK)
            total = fused_multiply_add(part, factor, np.float32(0) if total is None else total)
        elif total is None:
            total = part
        else:
            with np.errstate(all="ignore"):
                total = total + part
    assert total is not None
    return total


def _block_factor(request: Request, block: int) -> Array:
    """Return scale_a · scale_b of a block of K, rounded to f32, for each element of the result."""

    def numbers(scale: Scale, axis: int, along: int) -> Array:
        assert scale.view is not None
        array = np.asarray(scale.view.array)
        array = array.reshape((1,) * (2 - array.ndim) + array.shape)
        index = min(block, array.shape[axis] - 1)
        found = np.take(array, [index], axis)
        return found if along == found.shape[-1 - (axis == -1)] else found

    of_a = numbers(request.scale_a, -1, request.m)
    of_b = np.repeat(numbers(request.scale_b, -2, request.n), BLOCK, axis=-1)[..., : request.n]
    if of_b.shape[-1] < request.n:  # one scale for all columns
        of_b = np.broadcast_to(of_b[..., :1], (*of_b.shape[:-1], request.n))
    with np.errstate(all="ignore"):
        return np.asarray(of_a * of_b, np.float32)


def fused_multiply_add(x: Array, y: Array, z: Any) -> Array:
    """Return x·y + z of f32, rounded once.

    The product is exact in f64. The sum is rounded to odd there (its last bit says that something was lost),
    so that rounding it to f32 gives what rounding the exact sum would.

    >>> one = np.float32(1)
    >>> float(fused_multiply_add(np.float32(1 + 2**-12), np.float32(1 - 2**-12), -one)) == -(2.0**-24)
    True
    """
    with np.errstate(all="ignore"):
        product = np.asarray(x, np.float64) * np.asarray(y, np.float64)
        other = np.broadcast_to(np.asarray(z, np.float64), product.shape)
        total = product + other
        # What the sum lost (Knuth): total + lost is exact.
        tail = total - product
        lost = (product - (total - tail)) + (other - tail)
        even = (total.view(np.int64) & 1) == 0
        towards = np.where(lost > 0, np.inf, -np.inf)
        odd = np.where((lost != 0) & even & np.isfinite(total), np.nextafter(total, towards), total)
        return np.asarray(odd, np.float32)


def rounded_tf32(array: Array) -> Array:
    """Return f32 rounded to tf32, to nearest even, as tensor maps of tf32 load it; every NaN becomes one.

    >>> float(rounded_tf32(np.float32(1 + 2**-11 + 2**-20))) == 1 + 2**-10
    True
    """
    words = np.ascontiguousarray(array, np.float32).reshape(np.shape(array)).view(np.uint32)
    half = (1 << (_TF32_LOST - 1)) - 1
    rounded = (words + half + ((words >> _TF32_LOST) & 1)) & np.uint32(~((1 << _TF32_LOST) - 1) & 0xFFFFFFFF)
    return np.where(np.isnan(words.view(np.float32)), np.uint32(_TF32_NAN), rounded).view(np.float32)


def split_tf32(a: Array, b: Array) -> tuple[Array, Array]:
    """Return A and B of three times the K whose product in tf32 is that of f32, the small terms first.

    Each number is a tf32 and what that leaves, again as tf32: (low · high) + (high · low) + (high · high).
    """

    def parts(array: Array) -> tuple[Array, Array]:
        high = rounded_tf32(array)
        with np.errstate(all="ignore"):
            left = array - high
        # Infinities and NaN are in the high part alone.
        return high, rounded_tf32(np.where(np.isfinite(high), left, np.float32(0)))

    (high_a, low_a), (high_b, low_b) = parts(a), parts(b)
    return np.concatenate([low_a, high_a, high_a], -1), np.concatenate([high_b, low_b, high_b], -2)


# what is fused ----------------------------------------------------------------------------------------------


def finished(request: Request, problem: Problem, total: Array, out: Array) -> Array:
    """Return what is stored for the sums: the epilogue applied, and rounded to the format of the result."""
    epilogue = problem.epilogue
    if epilogue.scale_a == "block":  # they are in the sums already
        epilogue = replace(epilogue, scale_a=None, scale_b=None)
    if problem.sums.name == "f64":
        return _finished_f64(request, epilogue, total)
    plain = replace(epilogue, scale_a_strides=(0, 0, 0), scale_b_strides=(0, 0, 0))
    if plain == Epilogue():
        return rounded(total, problem.out.dtype)
    return rounded(_by_kernel(request, epilogue, np.ascontiguousarray(total)), problem.out.dtype)


def rounded(values: Array, fmt: Format) -> Array:
    """Return sums in the format of the result; e4m3 becomes the largest number where a sum is larger."""
    if values.dtype == fmt.dtype:
        return values
    if fmt == e4m3:
        return fmt.array(np.asarray(values, np.float64), saturate=True)
    with np.errstate(all="ignore"):
        return values.astype(fmt.dtype)


def _finished_f64(request: Request, epilogue: Epilogue, total: Array) -> Array:
    """Return an epilogue of f64: each operation is one of NumPy's, rounded by itself."""
    with np.errstate(all="ignore"):
        if epilogue.alpha:
            total = total * request.alpha
        if request.bias is not None:
            bias = np.asarray(request.bias.array).reshape(-1)
            total = total + (bias if epilogue.bias == "row" else bias[:, None])
        if epilogue.activation == "relu":
            total = np.where(total > 0, total, np.where(np.isnan(total), total, 0.0))
        if request.residual is not None:
            residual = as_matrices(request.residual.array, request.residual.shape)
            total = total + (residual * request.beta if epilogue.beta else residual)
    return total


@cache
def _element_kernel(epilogue: Epilogue, sums: Format, residual: Format | None) -> Any:
    """Return a kernel that applies an epilogue to one element in each thread."""
    from lanewise import lang as lw
    from lanewise.linalg.epilogue_code import EpilogueValues, column_terms, row_terms
    from lanewise.linalg.epilogue_code import finished as finished_value

    bias_type = epilogue.bias_dtype or f32
    added = residual or f32

    @lw.kernel
    def epilogue_of_elements(
        total: lw.Ptr[sums],  # type: ignore[valid-type]
        out: lw.Ptr[f32],
        bias: lw.Ptr[bias_type],  # type: ignore[valid-type]
        residual: lw.Ptr[added],  # type: ignore[valid-type]
        scale_a: lw.Ptr[f32],
        scale_b: lw.Ptr[f32],
        scale_out: lw.Ptr[f32],
        alpha: f32,
        beta: f32,
        first_row: lw.i32,
        n: lw.i32,
        count: lw.i32,
    ):  # type: ignore[no-untyped-def]
        at = lw.block_idx.x * _THREADS + lw.thread_idx.x
        if at < count:
            row = first_row + at // n
            column = at % n
            given = EpilogueValues(
                alpha=alpha, beta=beta, bias=bias, scale_a=scale_a, scale_b=scale_b, scale_out=scale_out
            )
            more = residual[at].to(f32) if epilogue.residual is not None else None
            of_row = row_terms(epilogue, given, row)
            of_column = column_terms(epilogue, given, column)
            out[at] = finished_value(epilogue, given, total[at], of_row, of_column, more, (row, column))

    return epilogue_of_elements


def _by_kernel(request: Request, epilogue: Epilogue, total: Array) -> Array:
    """Return the epilogue of sums as f32, by its own functions in a kernel on the CPU machine."""
    m, n, batch = request.m, request.n, total.shape[:-2]
    kind = replace(epilogue, scale_a_strides=(0, 0, 0), scale_b_strides=(0, 0, 0))
    added = None
    if request.residual is not None:
        added = request.residual.format
        kind = replace(kind, residual=_any_operand(epilogue))
    kernel = _element_kernel(kind, _format_of_sums(total), added)
    out = np.empty(total.shape, np.float32)
    nothing = np.zeros(1, np.float32)
    bias = nothing if request.bias is None else np.ascontiguousarray(request.bias.array).reshape(-1)
    residual = nothing
    if request.residual is not None:
        residual = np.ascontiguousarray(as_matrices(request.residual.array, request.residual.shape))
    scale_out = nothing if request.scale_out is None else np.asarray(request.scale_out.array).reshape(1)
    rows = max(1, _MOST_ELEMENTS // n)
    for matrix in np.ndindex(batch):
        scales = [
            _vector(scale, size, batch, matrix) if scale.view is not None and form is not None else nothing
            for scale, size, form in (
                (request.scale_a, m, epilogue.scale_a),
                (request.scale_b, n, epilogue.scale_b),
            )
        ]
        for first in range(0, m, rows):
            some = slice(first, min(first + rows, m))
            count = (some.stop - first) * n
            more = residual[matrix][some].reshape(-1) if request.residual is not None else nothing
            kernel[-(-count // _THREADS), _THREADS](
                total[matrix][some].reshape(-1), out[matrix][some].reshape(-1), bias, more, *scales,
                scale_out, request.alpha, request.beta, first, n, count,
            )  # fmt: skip
    return out


def _any_operand(epilogue: Epilogue) -> Any:
    """Return a residual that stands for all: kernels are not made anew for each leading dimension."""
    assert epilogue.residual is not None
    return replace(epilogue.residual, leading=0, batch_stride=0, alignment=1, inner=1, k_major=True)


def _format_of_sums(total: Array) -> Format:
    from lanewise.formats import format_of

    return format_of(total.dtype)


def _vector(scale: Scale, size: int, batch: tuple[int, ...], matrix: tuple[int, ...]) -> Array:
    """Return the scales of one matrix of the batch as a vector, or as one number."""
    assert scale.view is not None
    array = np.asarray(scale.view.array)
    if scale.form == "tensor":
        return array.reshape(1)
    if array.ndim > 2:
        array = np.broadcast_to(array, (*batch, *array.shape[-2:]))[matrix]
    return np.ascontiguousarray(array.reshape(size))
