"""A product on NumPy arrays, with the bits that a GPU returns for the same plan.

Sums are those of the plan's instruction in the plan's order (`sum_order.py`). `epilogue.py` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from lanewise.formats import FORMATS, bf16
from lanewise.isa import Instruction
from lanewise.linalg.block_scaling import BLOCK_FORMATS, SwizzledScales
from lanewise.linalg.cpu.epilogue import as_matrices, finished
from lanewise.linalg.cpu.progress import Progress
from lanewise.linalg.orientation import computes_transpose
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.linalg.sparsify import SparseMatrix
from lanewise.linalg.sum_order import SPLIT_PRODUCTS, instruction_of, split_parts
from lanewise.linalg.types import BLOCK
from lanewise.numpy_types import AnyArray

#: The bits of f32 that tf32 does not have, and the NaN that TMA makes of every NaN when it rounds.
_TF32_LOST, _TF32_NAN = 13, 0x7FFFE000
#: Products that are computed between two looks at the progress: some tenths of a second.
_SLAB = 2_000_000_000
#: Elements of operands and sums up to which blocks of K are computed side by side.
_ELEMENTS_AT_ONCE = 1 << 22


def compute(request: Request, problem: Problem, plan: Plan, b: object = None) -> None:
    """Compute a request whose arrays are in host memory, and write its result; `b` may be a sparse matrix."""
    out = as_matrices(request.out.array, request.out.shape)
    if not out.size:
        return
    if isinstance(b, SparseMatrix):
        total = sparse_sums(request, problem, plan, b)
    elif problem.block_format:
        total = block_scaled_sums(request, problem, plan)
    else:
        total = sums(request, problem, plan)
    out[...] = finished(request, problem, total)


# the sums ---------------------------------------------------------------------------------------------------


def sums(request: Request, problem: Problem, plan: Plan) -> AnyArray:
    """Return the sums of a request, (…, M, N), in the order of a plan: f32, f16, f64 or s32."""
    a = as_matrices(request.a.array, request.a.shape)
    b = as_matrices(request.b.array, request.b.shape)
    if problem.precision:
        a, b = map(split_bf16 if problem.precision == "f32" else rounded_tf32, (a, b))
    turned = problem.sums.name == "f64" and computes_transpose(problem, plan)  # of two NaN, B's is kept
    if turned:
        a, b = b.swapaxes(-1, -2), a.swapaxes(-1, -2)
    products = prod(request.batch) * request.m * request.n * request.k
    with Progress("lw.matmul") as progress:
        chains = Chains(instruction_of(problem, plan), plan.arch, products, progress)
        parts = [
            _part_of(request, problem, plan, chains, a[..., start:end], b[..., start:end, :], start)
            for start, end in split_parts(problem, plan)
        ]
    groups = [_added(parts[first : first + plan.split]) for first in range(0, len(parts), plan.split)]
    total = _added(groups)
    shape = (*request.batch, request.m, request.n)
    return np.broadcast_to(total.swapaxes(-1, -2) if turned else total, shape)


class Chains:
    """Chains of one instruction along K, some rows of a matrix at a time, so that a long one shows how far it
    is; `products` is how many there are in all."""

    def __init__(self, multiply: Instruction, arch: str, products: int, progress: Progress) -> None:
        self.multiply, self.arch, self.k = multiply, arch, multiply.k
        self.products, self.progress, self.done = products, progress, 0

    def gemm(self, a: AnyArray, b: AnyArray, times: int = 1) -> AnyArray:
        """Return the product of matrices; each of its elements is a chain of instructions in order of K.

        `times` is how many products of the chain are one of those that are counted.
        """
        rows = a.shape[-2]
        one = max(1, a.size // max(1, rows) * b.shape[-1])
        slab = max(1, _SLAB // one)
        parts = []
        for first in range(0, max(1, rows), slab):
            part = a[..., first : first + slab, :]
            parts.append(self.multiply.gemm(part, b, arch=self.arch))
            self.done += one * part.shape[-2] // times
            self.progress(min(self.done, self.products), self.products)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-2)


def sparse_sums(request: Request, problem: Problem, plan: Plan, b: SparseMatrix) -> AnyArray:
    """Return the sums of a product with a sparse b, (…, M, N), in order of K."""
    multiply = instruction_of(problem, plan)
    dense = np.ascontiguousarray(as_matrices(request.a.array, request.a.shape))
    rows = dense.reshape(prod(request.batch) * request.m, b.k)
    padding = -b.k % multiply.k or (multiply.k if not b.k else 0)
    values = np.pad(b.values, ((0, 0), (0, padding // 2)))
    # The places of what is not there: 0 and 1 of each group, whose elements are zeros.
    indices = np.concatenate(
        [b.indices, np.tile(np.array([0, 1], np.uint8), (b.indices.shape[0], padding // 4))], axis=1
    )
    columns = np.pad(rows, ((0, 0), (0, padding))).T
    total = multiply.gemm(values, columns, arch=plan.arch, metadata=indices)
    return np.ascontiguousarray(total.T).reshape((*request.batch, request.m, request.n))


def block_scaled_sums(request: Request, problem: Problem, plan: Plan) -> AnyArray:
    """Return the sums of a product of block-scaled matrices, (…, M, N): one chain in order of K."""
    m, n, k = request.m, request.n, request.k
    shape = (*request.batch, m, n)
    if not k:
        return np.zeros(shape, np.float32)
    multiply = instruction_of(problem, plan)
    fmt = BLOCK_FORMATS[problem.block_format]
    a = np.ascontiguousarray(request.a.array).reshape(m, k)
    b = np.asarray(request.b.array).reshape(k, n)
    missing = -(-k // multiply.k) * multiply.k // fmt.block - -(-k // fmt.block)
    of_a = np.pad(_factors(request.scale_a, m, k, "a"), ((0, 0), (0, missing)))
    of_b = np.pad(_factors(request.scale_b, n, k, "b"), ((0, 0), (0, missing)))
    dtype = FORMATS[fmt.factor].dtype
    slab, parts = max(1, _SLAB // (k * n)), []
    with Progress("lw.matmul") as progress:
        for first in range(0, m, slab):
            rows = slice(first, first + slab)
            scale_a, scale_b = of_a[rows].view(dtype), np.ascontiguousarray(of_b.T).view(dtype)
            parts.append(multiply.gemm(a[rows], b, arch=plan.arch, scale_a=scale_a, scale_b=scale_b))
            progress(min(first + slab, m), m)
    return np.concatenate(parts).reshape(shape)


def _factors(scale: Scale, rows: int, k: int, side: str) -> AnyArray:
    """Return the factors of A's rows or B's columns as bytes, (rows, factors)."""
    assert scale.view is not None and scale.block_format is not None
    count = -(-k // scale.block_format.block)
    array = np.asarray(scale.view.array)
    if scale.swizzled:
        return SwizzledScales(array, rows, count).plain().view(np.uint8)
    plain = array.reshape(array.shape[-2:])
    return np.ascontiguousarray(plain if side == "a" else plain.T).view(np.uint8)


def _added(parts: Sequence[AnyArray]) -> AnyArray:
    """Return the sum of parts, added in order, each sum rounded."""
    total = parts[0]
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total = part + total  # of two NaN of f64 a GPU returns the second, and NumPy the first
    return total


def _part_of(
    request: Request, problem: Problem, plan: Plan, chains: Chains, a: AnyArray, b: AnyArray, start: int
) -> AnyArray:
    """Return the sums over a part of K that begins at `start`: one chain of instructions, or several that are
    promoted to f32."""
    if problem.promote is None and problem.precision != "f32":
        return chains.gemm(a, b)
    # Sums of a block of K begin at zero, and are added to a total by ordinary arithmetic.
    total: AnyArray = np.zeros((), np.float32)
    step = problem.promote or plan.tile[2]
    multiplied = _split_chains if problem.precision == "f32" else _chains
    of_step = a[..., :step].size + b[..., :step, :].size + prod(request.batch) * request.m * request.n
    at_once, first, k = max(1, _ELEMENTS_AT_ONCE // of_step), 0, a.shape[-1]
    while first < k:
        count = max(1, min(at_once, (k - first) // step))
        last = min(first + count * step, k)
        for part in multiplied(chains, a[..., first:last], b[..., first:last, :], count):
            if problem.epilogue.scale_a == "block":
                total = fused_multiply_add(part, _block_factor(request, (start + first) // BLOCK), total)
            else:
                with np.errstate(all="ignore"):
                    total = np.asarray(total + part)
            first += step
    return total


def _chains(chains: Chains, a: AnyArray, b: AnyArray, count: int) -> AnyArray:
    """Return the sums over some blocks of K, one chain each, along a first axis."""
    return chains.gemm(*_blocks(a, b, count))


def _split_chains(chains: Chains, a: AnyArray, b: AnyArray, count: int) -> AnyArray:
    """Return the sums of the products of split f32 over some blocks of K, along a first axis: one chain each,
    the small products first.

    A and B have their three parts along a first axis.
    """
    pairs = [_blocks(a[one], b[other], count) for one, other in SPLIT_PRODUCTS]
    missing = -pairs[0][0].shape[-1] % chains.k  # each part's share of the chain is whole instructions
    if missing:
        pairs = [
            (
                np.pad(part_a, [(0, 0)] * (part_a.ndim - 1) + [(0, missing)]),
                np.pad(part_b, [(0, 0)] * (part_b.ndim - 2) + [(0, missing), (0, 0)]),
            )
            for part_a, part_b in pairs
        ]
    long_a = np.concatenate([part for part, _ in pairs], -1)
    long_b = np.concatenate([part for _, part in pairs], -2)
    return chains.gemm(long_a, long_b, times=len(SPLIT_PRODUCTS))


def _blocks(a: AnyArray, b: AnyArray, count: int) -> tuple[AnyArray, AnyArray]:
    """Return matrices cut into blocks along K, which are the first axis of their batch.

    The chains of a long K are many and short; they are computed side by side.
    """
    k, axes = a.shape[-1], max(a.ndim, b.ndim) + 1
    of_a = np.moveaxis(a.reshape(*a.shape[:-1], count, k // count), -2, 0)
    of_b = np.moveaxis(b.reshape(*b.shape[:-2], count, k // count, b.shape[-1]), -3, 0)
    one, other = (x.reshape(count, *(1,) * (axes - x.ndim), *x.shape[1:]) for x in (of_a, of_b))
    return one, other


def _block_factor(request: Request, block: int) -> AnyArray:
    """Return scale_a · scale_b of a block of K, rounded to f32, for each element of the result."""

    def numbers(scale: Scale, axis: int) -> AnyArray:
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


def fused_multiply_add(x: AnyArray, y: AnyArray, z: object) -> AnyArray:
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


def rounded_tf32(array: AnyArray) -> AnyArray:
    """Return f32 rounded to tf32, to nearest even, as tensor maps of tf32 load it; every NaN becomes one.

    >>> float(rounded_tf32(np.float32(1 + 2**-11 + 2**-20))) == 1 + 2**-10
    True
    """
    words = np.ascontiguousarray(array, np.float32).reshape(np.shape(array)).view(np.uint32)
    half = (1 << (_TF32_LOST - 1)) - 1
    rounded = (words + half + ((words >> _TF32_LOST) & 1)) & np.uint32(~((1 << _TF32_LOST) - 1) & 0xFFFFFFFF)
    return np.where(np.isnan(words.view(np.float32)), np.uint32(_TF32_NAN), rounded).view(np.float32)


def split_bf16(array: AnyArray) -> AnyArray:
    """Return f32 as three bf16 whose sum it is, along a new first axis.

    The first is rounded towards zero, the others, of what is left, to nearest. Of infinities and NaN the
    others are zero.

    >>> [float(part) for part in split_bf16(np.float32(1 + 2**-9 + 2**-20))]
    [1.0, 0.001953125, 9.5367431640625e-07]
    """
    array = np.asarray(array)
    words = np.ascontiguousarray(array, np.float32).reshape(array.shape).view(np.uint32)
    high = np.where(np.isnan(array), array, (words & np.uint32(0xFFFF0000)).view(np.float32))
    with np.errstate(all="ignore"):
        rest = np.where(np.isfinite(array), array - high, np.float32(0)).astype(np.float32)
        middle = rest.astype(bf16.dtype)
        low = (rest - middle.astype(np.float32)).astype(bf16.dtype)
        return np.stack([high.astype(bf16.dtype), middle, low])
