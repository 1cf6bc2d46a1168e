"""How a product with 4-bit weights becomes a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lanewise.formats import Format
from lanewise.linalg.kernels.family import Launch, residual_strides
from lanewise.linalg.kernels.int4.kernels import LINE, UNPACKING, Traits, product, unpacking
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, GROUP_STEP
from lanewise.linalg.kernels.int4.plans import Tile
from lanewise.linalg.problem import Operand, Problem
from lanewise.tensor_maps import tensor_map

#: Columns of results that are stored at once where they lie side by side.
_WIDTH = 4


def product_launch(
    problem: Problem, memory: Sequence[Any], packed: tuple[int, int, int], factors: tuple[float, float],
    tile: Tile,
) -> Launch:  # fmt: skip
    """Return the launch of a product.

    `memory` are the rows as a matrix, words, scales, result, bias, residual and output scale (0: none);
    `packed` are the weights' tiles of K, elements of a group, and padded columns; `factors` are alpha and
    beta.
    """
    chunks, group, columns = packed
    out = problem.out
    beside = out.k_major and out.inner == 1 and out.alignment * 8 >= _WIDTH * out.dtype.bits
    traits = Traits(
        _compiled_in(problem), tile, 1 if group % CHUNK == 0 else CHUNK // GROUP_STEP, _WIDTH if beside else 1
    )
    x, words, scales, result, bias, residual, scale_out = memory
    arguments = (
        tensor_map(x, (traits.rows, LINE), swizzle="128B"), words, scales, result, problem.m, problem.n,
        chunks, group // GROUP_STEP, columns, *out.strides, bias, residual, *residual_strides(problem)[:2],
        scale_out, *factors, problem.folded_rows,
    )  # fmt: skip
    grid = (-(-problem.n // traits.columns) * tile.split, -(-problem.m // traits.rows))
    return Launch(product(traits)[grid, traits.threads, traits.shared_bytes], arguments)


def _compiled_in(problem: Problem) -> Problem:
    """Return a problem without what is an argument of its kernel: sizes and strides."""

    def kind(operand: Operand) -> Operand:
        return Operand(operand.dtype, True, 0)

    return replace(
        problem, m=0, n=0, k=0, a=kind(problem.a), b=kind(problem.b), out=kind(problem.out),
        epilogue=problem.epilogue.compiled_in, folded_rows=0, batch_invariant=False,
    )  # fmt: skip


def unpack_launch(dtype: Format, memory: Sequence[object], n: int, packed: tuple[int, int, int]) -> Launch:
    """Return the launch that writes weights (N, K); `memory` are words, scales and the matrix as words."""
    chunks, group, columns = packed
    arguments = (*memory, n, chunks, group // GROUP_STEP, columns)
    return Launch(unpacking(dtype)[(chunks, -(-n // COLUMNS)), UNPACKING], arguments)
