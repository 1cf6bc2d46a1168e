"""How a product with 4-bit weights becomes a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lanewise.formats import Format
from lanewise.linalg.kernels.family import Launch, residual_strides
from lanewise.linalg.kernels.int4.kernels import LANES, PARTS, ROWS, FewRows, few_rows, unpacking
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS
from lanewise.linalg.problem import Operand, Problem

#: Instructions' rows of a block, and its tiles of columns: two where that leaves no multiprocessor idle.
_BLOCKS, _TILES = (1, 2, 4, 8), 2


def few_rows_launch(
    problem: Problem, memory: Sequence[object], leading: int, packed: tuple[int, int, int],
    factors: tuple[float, float], multiprocessors: int,
) -> Launch:  # fmt: skip
    """Return the launch of a product of few rows.

    `memory` are the rows, words, scales, result, bias, residual and output scale (0: none); `packed` are the
    weights' chunks of K, elements of a group, and padded columns; `factors` are alpha and beta.
    """
    chunks, group, columns = packed
    blocks = next((each for each in _BLOCKS if each * ROWS >= problem.m), _BLOCKS[-1])
    tiles = _TILES if problem.n > multiprocessors * COLUMNS else 1
    traits = FewRows(_compiled_in(problem), tiles, blocks)
    x, words, scales, out, bias, residual, scale_out = memory
    out_row, out_column = problem.out.strides
    arguments = (
        x, words, scales, out, problem.m, problem.n, chunks, group // CHUNK, columns, leading, out_row,
        out_column, bias, residual, *residual_strides(problem)[:2], scale_out, *factors, problem.folded_rows,
    )  # fmt: skip
    grid = (-(-problem.m // traits.rows), -(-problem.n // traits.columns))
    return Launch(few_rows(traits)[grid, PARTS * LANES, traits.shared_bytes], arguments)


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
    arguments = (*memory, n, chunks, group // CHUNK, columns)
    grid = (-(-chunks // PARTS), -(-n // COLUMNS))
    return Launch(unpacking(dtype)[grid, PARTS * LANES], arguments)
