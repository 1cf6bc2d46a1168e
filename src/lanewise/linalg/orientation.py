"""Products turned round: out = A·B and outᵀ = Bᵀ·Aᵀ are the same numbers, summed in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lanewise.linalg.pointers import Pointers
from lanewise.linalg.problem import Epilogue, Operand, Problem

_OTHER = {"row": "column", "column": "row", None: None}


def transposed(problem: Problem) -> Problem:
    """Return the problem whose result is the transpose: A and B change places, and all that belongs to them.

    The transpose of B, N by K, is contiguous along K where B is: `k_major` stays. That of the result says
    whether its rows are contiguous, and turns round.
    """
    epilogue = problem.epilogue
    return replace(
        problem,
        m=problem.n,
        n=problem.m,
        a=problem.b,
        b=problem.a,
        out=_turned(problem.out),
        scale_blocks=problem.scale_blocks[::-1],
        turned=not problem.turned,
        epilogue=replace(
            epilogue,
            bias=_OTHER[epilogue.bias],
            scale_a=epilogue.scale_b,
            scale_b=epilogue.scale_a,
            residual=None if epilogue.residual is None else _turned(epilogue.residual),
            function=_turned_function(epilogue),
        ),
    )


def transposed_pointers(pointers: Pointers) -> Pointers:
    """Return the arrays of the transposed problem."""

    def turned(array: Any) -> Any:
        return array if array is None or array.ndim < 2 else array.swapaxes(-1, -2)

    return replace(
        pointers,
        a=turned(pointers.b),
        b=turned(pointers.a),
        out=turned(pointers.out),
        residual=turned(pointers.residual),
        scale_a=turned(pointers.scale_b),
        scale_b=turned(pointers.scale_a),
    )


def _turned(operand: Operand) -> Operand:
    return replace(operand, k_major=not operand.k_major)


class TurnedFunction:
    """A user's epilogue function with row and column exchanged; equal to another one of the same function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, value: Any, row: Any, column: Any) -> Any:
        return self.function(value, column, row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnedFunction) and self.function is other.function

    def __hash__(self) -> int:
        return hash(id(self.function))


def _turned_function(epilogue: Epilogue) -> Any:
    function = epilogue.function
    if function is None:
        return None
    return function.function if isinstance(function, TurnedFunction) else TurnedFunction(function)
