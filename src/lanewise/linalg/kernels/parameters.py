"""Parameters that the kernels of products share, and the arguments of a problem for them.

A struct of parameters is a class whose fields are traced values in a kernel, and types where the kernel is
declared; a field that is None there has no parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.linalg.arrays import Memory, Pointers, element_steps
from lanewise.linalg.problem import Epilogue, Operand, Problem

#: A traced value in a kernel, a type where the kernel is declared, an argument where it is launched.
Field = Any


class Sizes(NamedTuple):
    """Rows, columns and products of each element of a result, and the matrices of a batch."""

    M: Field = lw.i32
    N: Field = lw.i32
    K: Field = lw.i32
    batch: Field = None


class Strides(NamedTuple):
    """Elements from line to line of A, B and the result, and from matrix to matrix of a batch."""

    lda: Field = None
    ldb: Field = None
    ldo: Field = None
    batch_a: Field = None
    batch_b: Field = None
    batch_out: Field = None


@dataclass
class EpilogueValues:
    """What an epilogue reads: pointers and numbers; those that it lacks are not read."""

    bias: Field = None
    residual: Field = None
    residual_row: Field = None
    residual_column: Field = None
    residual_batch: Field = None
    scale_a: Field = None
    scale_b: Field = None
    scale_out: Field = None
    #: Steps of block scales along rows and K, and along columns and K.
    scale_row: Field = None
    scale_row_k: Field = None
    scale_column: Field = None
    scale_column_k: Field = None
    alpha: Field = None
    beta: Field = None
    #: The rows of each matrix of a batch that is computed as one.
    folded_rows: Field = None


def epilogue_types(
    epilogue: Epilogue, number: Format = f32, scales: bool = True, block_scales: bool = False
) -> EpilogueValues:
    """Return the types of an epilogue's parameters: of its numbers, of scales of A and B if there are any.

    What it lacks has f32.
    """
    bias, residual = epilogue.bias_dtype or f32, epilogue.residual.dtype if epilogue.residual else f32
    of_side, step = lw.Ptr[f32] if scales else None, lw.i32 if block_scales else None
    return EpilogueValues(
        lw.Ptr[bias], lw.Ptr[residual], lw.i64, lw.i64, lw.i64, of_side, of_side, lw.Ptr[f32],
        step, step, step, step, number, number, lw.i32,
    )  # fmt: skip


def arguments_of(problem: Problem, pointers: Pointers, raster: int = 0) -> dict[str, object]:
    """Return the arguments of products, by the names of parameters; `raster` is the plan's `group`.

    A, B and the result have the contiguous axis last, as tensor maps see them.
    """

    def lines(array: Memory, operand: Operand) -> Memory:
        return array if operand.k_major else array.swapaxes(-1, -2)

    a, b, out, residual = problem.a, problem.b, problem.out, problem.epilogue.residual
    steps = (0, 0, 0) if residual is None else (*residual.strides, residual.batch_stride)
    scale_steps = [0, 0, 0, 0]
    if problem.promote is not None and any(problem.scale_blocks):
        assert pointers.scale_a is not None and pointers.scale_b is not None
        scale_steps = element_steps(pointers.scale_a) + element_steps(pointers.scale_b)
    strides = Strides(a.leading, b.leading, out.leading, a.batch_stride, b.batch_stride, out.batch_stride)
    sizes = Sizes(problem.m, problem.n, problem.k, problem.batch)
    return {
        "A": lines(pointers.a, a), "B": lines(pointers.b, b), "C": lines(pointers.out, out),
        **sizes._asdict(), "raster": raster, **strides._asdict(), "metadata": pointers.metadata,
        "bias": pointers.bias, "residual": pointers.residual, "residual_row": steps[0],
        "residual_column": steps[1], "residual_batch": steps[2],
        "scale_a": pointers.scale_a, "scale_b": pointers.scale_b, "scale_out": pointers.scale_out,
        "scale_row": scale_steps[0], "scale_row_k": scale_steps[1],
        "scale_column": scale_steps[2], "scale_column_k": scale_steps[3],
        "alpha": float(pointers.alpha), "beta": float(pointers.beta), "folded_rows": problem.folded_rows,
        "starts": pointers.starts, "ends": pointers.ends, "experts": problem.experts,
        "clears_rest": int(problem.clears_rest),
    }  # fmt: skip
