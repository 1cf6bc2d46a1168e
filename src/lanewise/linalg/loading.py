"""Which operands TMA and wgmma take as they lie in memory, and which a plan has to copy first: the one rule.

Planner, plans that a caller forces, tuned plans and the kernels' copies all ask here.
"""

from __future__ import annotations

from dataclasses import replace

from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem


def needs_transpose(operand: Operand, precision: str) -> bool:
    """Return whether wgmma cannot take an operand because its neighbours lie along M or N.

    All but 16-bit types are taken along K alone.
    """
    return not operand.k_major and (operand.dtype.word_bits != 16 or bool(precision))


def needs_copy(operand: Operand, precision: str = "") -> bool:
    """Return whether an operand has to be copied before TMA and wgmma can take it."""
    return not operand.tma or precision == "f32" or needs_transpose(operand, precision)


def with_copies(problem: Problem, plan: Plan) -> Plan:
    """Return a plan that copies those operands of a problem that have to be copied, and no others.

    >>> from lanewise.linalg.planning.sizes import problem_of_sizes
    >>> plan = Plan("warpgroup", "sm_90a", (128, 128, 64), 4)
    >>> found = with_copies(problem_of_sizes(64, 64, 65, "bf16", layout="nn"), plan)
    >>> found.copy_a, found.copy_b
    (True, False)
    """
    if plan.family not in ("warpgroup", "blackwell"):
        return replace(plan, copy_a=False, copy_b=False)
    return replace(
        plan,
        copy_a=needs_copy(problem.a, problem.precision),
        copy_b=needs_copy(problem.b, problem.precision),
    )


def as_loaded(problem: Problem) -> Problem:
    """Return a problem with its operands as wgmma gets them, copied where it does not take their major."""
    a, b = (
        replace(each, k_major=each.k_major or needs_transpose(each, problem.precision))
        for each in (problem.a, problem.b)
    )
    return replace(problem, a=a, b=b)
