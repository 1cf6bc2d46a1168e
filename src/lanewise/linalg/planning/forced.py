"""Plans that a caller forces with `plan=`: is there a kernel of this plan for this problem?

On the CPU no kernel is made. So the family is asked, and its error is the one of a launch on a GPU.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from lanewise.errors import LanewiseError
from lanewise.linalg.plan import Plan, require_fields
from lanewise.linalg.planning.planner import require_possible
from lanewise.linalg.problem import Problem

#: Plans and problems that are known to go together.
_MOST_CHECKED = 512


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise an error if there is no kernel of a plan for a problem. It is looked up once for each of them.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 64)
    >>> problem = Problem(64, 64, 64, matrix, matrix, matrix, f32)
    >>> require_kernel(problem, Plan("warp", "sm_80", (64, 64, 8), 2))
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: tile (64, 64, 8), 2 stages: 8 elements of K are not a multiple of 16, \
those of mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    """
    sizes = {name: max(1, getattr(problem, name)) for name in ("m", "n", "k", "batch")}
    function = None if problem.epilogue.function is None else "any"  # which one it is does not matter
    _require_kernel(replace(problem, **sizes, epilogue=replace(problem.epilogue, function=function)), plan)


def with_fewer_stages(problem: Problem, plan: Plan) -> Plan:
    """Return a plan with fewer stages if there is a kernel of it only then, else as it is."""
    for stages in range(plan.stages, 1, -1):
        tried = replace(plan, stages=stages)
        with suppress(LanewiseError):
            require_kernel(problem, tried)
            return tried
    return plan


@lru_cache(maxsize=_MOST_CHECKED)
def _require_kernel(problem: Problem, plan: Plan) -> None:
    require_fields(plan)
    require_possible(problem, plan)
    if plan.family == "sparse":
        raise LanewiseError("plans of family 'sparse' are for products with a b of lw.sparsify")
    if plan.family == "warp":
        from lanewise.linalg.kernels.warp import launches as warp

        # the CPU alone promotes sums of mma.sync; the tiles have to suit the products that are left
        warp.require_kernel(replace(problem, promote=None), plan)
    elif plan.family == "blackwell":
        from lanewise.linalg.kernels.blackwell import launches as blackwell

        blackwell.require_kernel(problem, plan)
    else:
        from lanewise.linalg.kernels.hopper import launches as hopper

        hopper.require_kernel(problem, plan)
