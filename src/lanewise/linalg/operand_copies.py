"""Which operands TMA, wgmma and tcgen05 take as they lie, and which a plan has to copy first: the one rule.

Planner, plans that a caller forces, tuned plans and the kernels' copies all ask here.
"""

from __future__ import annotations

from dataclasses import replace

from lanewise.linalg.orientation import computes_transpose
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem


def needs_transpose(operand: Operand, precision: str, tcgen05: bool = False) -> bool:
    """Return whether wgmma (or tcgen05) cannot take an operand because its neighbours lie along M or N.

    wgmma takes all but 16-bit types along K alone, tcgen05 tf32 and elements of 4 bits.
    """
    if tcgen05 and operand.dtype.bits == 8:
        return False
    return not operand.k_major and (operand.dtype.word_bits != 16 or bool(precision))


def needs_copy(operand: Operand, precision: str = "", tcgen05: bool = False) -> bool:
    """Return whether an operand has to be copied before TMA and wgmma (or tcgen05) can take it."""
    return not operand.tma or precision == "f32" or needs_transpose(operand, precision, tcgen05)


#: Bytes of a line, of K or of M, from which on threads do not count what is left of it.
_LONG_LINE = 1 << 31


def has_long_lines(problem: Problem) -> bool:
    """Return whether lines of A are too long for threads to load them at any address.

    >>> from lanewise.linalg.rules import problem_of_sizes
    >>> [has_long_lines(problem_of_sizes(1, 8, k, "f32")) for k in ((1 << 29) - 1, (1 << 29) + 1)]
    [False, True]
    """
    a = problem.a
    return (problem.k if a.k_major else problem.m) * a.dtype.word_bits // 8 >= _LONG_LINE


def can_be_shifted(problem: Problem) -> bool:
    """Return whether wgmma can get A of a problem from registers that shift it: elements of 8 or 16 bits at
    any address. Of 8 bits, neighbours have to lie along K."""
    a = problem.a
    lies = a.inner == 1 and min(a.leading, a.batch_stride) >= 0 and not a.tma
    plain = not (problem.promote or problem.experts or problem.sparse or problem.precision)
    plain = plain and not has_long_lines(problem)
    return lies and plain and (a.dtype.word_bits == 16 or (a.dtype.word_bits == 8 and a.k_major))


def with_copies(problem: Problem, plan: Plan) -> Plan:
    """Return a plan that copies those operands of a problem that have to be copied, and no others.

    >>> from lanewise.linalg.rules import problem_of_sizes
    >>> plan = Plan("warpgroup", "sm_90a", (128, 128, 64), 4)
    >>> copied = with_copies(problem_of_sizes(64, 64, 65, "bf16", layout="nn"), plan)
    >>> copied.copy_a, copied.copy_b
    (True, False)
    """
    if plan.family == "warp":
        return replace(plan, copy_a=False, copy_b=False)
    copies = [
        needs_copy(operand, problem.precision, plan.family == "blackwell")
        for operand in (problem.a, problem.b)
    ]
    if plan.a_in_registers:
        copies[int(computes_transpose(problem, plan))] = False
    return replace(plan, copy_a=copies[0], copy_b=copies[1])


def as_loaded(problem: Problem, plan: Plan) -> Problem:
    """Return a problem with its operands as wgmma (or tcgen05) gets them: those that are copied are made
    contiguous along K, where wgmma wants it; one that goes through registers stays as it lies."""
    copied = with_copies(problem, plan)

    def loaded(operand: Operand, is_copied: bool) -> Operand:
        turned = is_copied and needs_transpose(operand, problem.precision)
        return replace(operand, k_major=operand.k_major or turned)

    return replace(problem, a=loaded(problem.a, copied.copy_a), b=loaded(problem.b, copied.copy_b))
