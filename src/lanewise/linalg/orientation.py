"""Orientation: out = A·B and outᵀ = Bᵀ·Aᵀ are the same numbers, summed in the same order.

Which of the two the kernel of a plan computes is said once, by `computes_transpose`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lanewise.linalg.arrays import Pointers
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Operand, Problem

_OTHER = {"row": "column", "column": "row", None: None}


def computes_transpose(problem: Problem, plan: Plan) -> bool:
    """Return whether the kernel of a plan computes the transpose.

    Kernels of mma.sync store rows of the result, those of wgmma too, unless the plan swaps; a sparse B is the
    first operand of its instruction.

    >>> from lanewise.linalg.rules import problem_of_sizes
    >>> problem = problem_of_sizes(64, 64, 64, "bf16")
    >>> plan = Plan("warpgroup", "sm_90a", (64, 64, 64), 4)
    >>> computes_transpose(problem, plan), computes_transpose(problem, replace(plan, swap=True))
    (False, True)
    """
    if plan.family == "sparse":
        return True
    if plan.family == "warp":
        return not problem.out.k_major
    return problem.out.k_major == plan.swap


def oriented(problem: Problem, plan: Plan) -> Problem:
    """Return the problem as the kernel of a plan computes it."""
    return transposed(problem) if computes_transpose(problem, plan) else problem


def oriented_launch(problem: Problem, plan: Plan, pointers: Pointers) -> tuple[Problem, Pointers]:
    """Return the problem and its arrays as the kernel of a plan computes it."""
    if not computes_transpose(problem, plan):
        return problem, pointers
    return transposed(problem), transposed_pointers(pointers)


def transposed(problem: Problem) -> Problem:
    """Return the problem whose result is the transpose: A and B change places, and all that belongs to them.

    The transpose of B, N by K, is contiguous along K where B is: `k_major` stays. That of the result says
    whether its rows are contiguous, and becomes the opposite.
    """
    epilogue = problem.epilogue
    return replace(
        problem,
        m=problem.n,
        n=problem.m,
        a=problem.b,
        b=problem.a,
        out=_transposed_operand(problem.out),
        scale_blocks=problem.scale_blocks[::-1],
        factor_steps=problem.factor_steps[::-1],
        is_transpose=not problem.is_transpose,
        epilogue=replace(
            epilogue,
            bias=_OTHER[epilogue.bias],
            folded=_OTHER[epilogue.folded],
            scale_a=epilogue.scale_b,
            scale_b=epilogue.scale_a,
            residual=None if epilogue.residual is None else _transposed_operand(epilogue.residual),
            function=_transposed_function(epilogue),
        ),
    )


def transposed_pointers(pointers: Pointers) -> Pointers:
    """Return the arrays of the transposed problem."""

    residual = pointers.residual
    return replace(
        pointers,
        a=pointers.b,
        b=pointers.a,
        out=pointers.out.swapaxes(-1, -2),
        residual=None if residual is None else residual.swapaxes(-1, -2),
        scale_a=pointers.scale_b,
        scale_b=pointers.scale_a,
    )


def _transposed_operand(operand: Operand) -> Operand:
    return replace(operand, k_major=not operand.k_major)


class TransposedFunction:
    """A user's epilogue function with row and column exchanged; equal to another one of the same function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, value: Any, row: Any, column: Any) -> Any:
        return self.function(value, column, row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransposedFunction) and self.function is other.function

    def __hash__(self) -> int:
        return hash(id(self.function))


def _transposed_function(epilogue: Epilogue) -> Any:
    function = epilogue.function
    if function is None:
        return None
    return function.function if isinstance(function, TransposedFunction) else TransposedFunction(function)
