"""A product on NumPy arrays, with the bits that a GPU returns for the same plan.

Sums are those of the plan's instruction in the plan's order (`order.py`). `fused_on_cpu.py` does the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.isa import Instruction
from lanewise.linalg.fused_on_cpu import as_matrices, finished
from lanewise.linalg.order import instruction_of, split_parts
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import BLOCK

Array = npt.NDArray[Any]

#: The bits of f32 that tf32 does not have, and the NaN that TMA makes of every NaN when it rounds.
_TF32_LOST, _TF32_NAN = 13, 0x7FFFE000


def compute(request: Request, problem: Problem, plan: Plan) -> None:
    """Compute a request whose arrays are in host memory, and write its result."""
    out = as_matrices(request.out.array, request.out.shape)
    if not out.size:
        return
    total = sums(request, problem, plan)
    out[...] = finished(request, problem, total)


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

    def numbers(scale: Scale, axis: int) -> Array:
        assert scale.view is not None
        array = np.asarray(scale.view.array)
        array = array.reshape((1,) * (2 - array.ndim) + array.shape)
        index = min(block, array.shape[axis] - 1)
        return np.take(array, [index], axis)

    of_a = numbers(request.scale_a, -1)
    of_b = np.repeat(numbers(request.scale_b, -2), BLOCK, axis=-1)[..., : request.n]
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
