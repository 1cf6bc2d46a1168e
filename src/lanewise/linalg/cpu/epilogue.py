"""What is fused with a product, on NumPy arrays: functions of `kernels/fused_epilogue.py` on each element.

The GPU's kernels call these functions too. Here a kernel of its own does, on the CPU machine.
"""
# mypy: disable-error-code="valid-type,type-arg,no-untyped-def,index"

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from lanewise.formats import Format, e4m3, f32, format_of
from lanewise.linalg.problem import Epilogue, Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.numpy_types import AnyArray

_THREADS = 128
#: Elements of one launch of the epilogue's kernel, whose indices have 32 bits.
_MOST_ELEMENTS = 1 << 28


def as_matrices(array: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Return an array in the shape of its view: axes of one element are put in, none is copied."""
    view = array.reshape(shape) if array.shape != shape else array
    assert np.shares_memory(view, array) or not array.size
    return view


def finished(request: Request, problem: Problem, total: AnyArray) -> AnyArray:
    """Return what is stored for the sums: the epilogue applied, and rounded to the format of the result."""
    epilogue = replace(problem.epilogue, folded=None)  # each matrix of a batch is computed by itself
    if epilogue.scale_a == "block":  # they are in the sums already
        epilogue = replace(epilogue, scale_a=None, scale_b=None)
    if problem.sums.name == "f64":
        return _finished_f64(request, epilogue, total)
    if epilogue.compiled_in == Epilogue():
        return rounded(total, problem.out.dtype)
    result = problem.out.dtype
    return rounded(_by_kernel(request, epilogue, np.ascontiguousarray(total), result), result)


def rounded(values: AnyArray, fmt: Format) -> AnyArray:
    """Return sums in the format of the result; e4m3 becomes the largest number where a sum is larger.

    Integers become f32 before, as in an epilogue.
    """
    if values.dtype.kind == "i" and values.dtype != fmt.dtype:
        values = values.astype(np.float32)
    if fmt == e4m3:
        return fmt.array(np.asarray(values, np.float64), saturate=True)
    with np.errstate(all="ignore"):
        return _with_one_nan(values.astype(fmt.dtype, copy=False), fmt)


def _with_one_nan(values: AnyArray, fmt: Format) -> AnyArray:
    """Return floats of 16 or 32 bits with the NaN that a GPU makes: all bits but the sign are 1."""
    if fmt.kind == "float" and (missing := np.isnan(values)).any():
        values = values.copy()
        values.view(fmt.word_dtype)[missing] = (1 << (fmt.bits - 1)) - 1
    return values


def _finished_f64(request: Request, epilogue: Epilogue, total: AnyArray) -> AnyArray:
    """Return an epilogue of f64: each operation is one of NumPy's, rounded by itself.

    Of two NaN a GPU returns the second, and NumPy the first: the sum so far comes last.
    """
    with np.errstate(all="ignore"):
        if epilogue.alpha:
            total = total * request.alpha
        if request.bias is not None:
            bias = np.asarray(request.bias.array).reshape(-1)
            total = (bias if epilogue.bias == "row" else bias[:, None]) + total
        if epilogue.activation == "relu":
            total = np.where(total > 0, total, np.where(np.isnan(total), total, 0.0))
        if request.residual is not None:
            residual = as_matrices(request.residual.array, request.residual.shape)
            total = (residual * request.beta if epilogue.beta else residual) + total
    return total


@cache
def _element_kernel(
    epilogue: Epilogue, sums: Format, residual: Format | None, result: Format, batched: bool
) -> Any:
    """Return a kernel that applies an epilogue to one element in each thread, of one matrix or of several."""
    from lanewise import lang as lw
    from lanewise.linalg.kernels.fused_epilogue import column_terms, row_terms
    from lanewise.linalg.kernels.fused_epilogue import finished as finished_value
    from lanewise.linalg.kernels.parameters import EpilogueValues

    scale: Any = lw.Ptr[f32]
    of_epilogue: Any = EpilogueValues(
        bias=lw.Ptr[epilogue.bias_dtype or f32], residual=lw.Ptr[residual or f32], scale_a=scale,
        scale_b=scale, scale_out=scale, alpha=f32, beta=f32,
    )  # fmt: skip

    @lw.kernel
    def matmul_epilogue(
        total: lw.Ptr[sums],
        out: lw.Ptr[f32],
        given: of_epilogue,
        first_row: lw.i32,
        m: lw.i32,
        n: lw.i32,
        count: lw.i32,
    ):
        at = lw.block_idx.x * _THREADS + lw.thread_idx.x
        if at < count:
            line = first_row + at // n
            row = line % m if batched else line
            column = at % n
            more = given.residual[at].to(f32) if epilogue.residual is not None else None
            of_row = row_terms(epilogue, given, row)
            of_column = column_terms(epilogue, given, column)
            out[at] = finished_value(
                epilogue, given, total[at], of_row, of_column, more, (row, column), result
            )

    return matmul_epilogue


def _by_kernel(request: Request, epilogue: Epilogue, total: AnyArray, result: Format) -> AnyArray:
    """Return the epilogue of sums as f32, by its own functions in a kernel on the CPU machine.

    The format of the result says how accurate activations are.
    """
    from lanewise.linalg.kernels.parameters import EpilogueValues

    m, n, batch = request.m, request.n, total.shape[:-2]
    of_sides = (request.scale_a, m, epilogue.scale_a), (request.scale_b, n, epilogue.scale_b)
    # Matrices whose scales are the same are one launch: there may be thousands of small ones.
    apart = batch if any(form and _varies(scale) for scale, _, form in of_sides) else ()
    lines = m * prod(batch[len(apart) :])
    kind, added = epilogue.compiled_in, None
    if request.residual is not None:
        added = request.residual.format
    accuracy = f32 if epilogue.activation is None else result
    kernel = _element_kernel(kind, format_of(total.dtype), added, accuracy, lines > m)
    total = total.reshape(*apart, lines, n)
    out = np.empty(total.shape, np.float32)
    nothing: AnyArray = np.zeros(1, np.float32)
    bias = nothing if request.bias is None else np.ascontiguousarray(request.bias.array).reshape(-1)
    residual = nothing
    if request.residual is not None:
        added_to = as_matrices(request.residual.array, request.residual.shape)
        residual = np.ascontiguousarray(added_to).reshape(total.shape)
    scale_out = nothing if request.scale_out is None else np.asarray(request.scale_out.array).reshape(1)
    rows = max(1, _MOST_ELEMENTS // n)
    for matrix in np.ndindex(apart):
        scales = [
            _vector(scale, size, batch, matrix) if scale.view is not None and form is not None else nothing
            for scale, size, form in of_sides
        ]
        for first in range(0, lines, rows):
            some = slice(first, min(first + rows, lines))
            count = (some.stop - first) * n
            more = residual[matrix][some].reshape(-1) if request.residual is not None else nothing
            kernel[-(-count // _THREADS), _THREADS](
                total[matrix][some].reshape(-1), out[matrix][some].reshape(-1), EpilogueValues(
                    bias, more, scale_a=scales[0], scale_b=scales[1], scale_out=scale_out,
                    alpha=request.alpha, beta=request.beta,
                ), first % m, m, n, count,
            )  # fmt: skip
    return out.reshape(*batch, m, n)


def _varies(scale: Scale) -> bool:
    """Return whether matrices of a batch may have different scales."""
    return scale.view is not None and scale.form != "tensor" and len(scale.view.shape) > 2


def _vector(scale: Scale, size: int, batch: tuple[int, ...], matrix: tuple[int, ...]) -> AnyArray:
    """Return the scales of one matrix of the batch as a vector, or as one number."""
    assert scale.view is not None
    array = np.asarray(scale.view.array)
    if scale.form == "tensor":
        return array.reshape(1)
    if array.ndim > 2:
        array = np.broadcast_to(array, (*batch, *array.shape[-2:]))[matrix]
    return np.ascontiguousarray(array.reshape(size))
