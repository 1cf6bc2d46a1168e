"""A plan of the Hopper kernels with as many stages as shared memory holds."""

from __future__ import annotations

from dataclasses import replace

from lanewise.errors import LanewiseError
from lanewise.linalg.families.build import build_of
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

_MOST_STAGES, _LEAST_STAGES = 16, 3


def fitted(problem: Problem, plan: Plan) -> Plan | None:
    """Return a plan with as many stages as shared memory holds; None if the kernel cannot have its tile.

    Results leave through two buffers at least. Those that threads store one by one, and those of sums that
    were promoted, leave all at once, if three stages are left then.
    """
    seen = oriented(problem, plan)
    most: Plan | None = None
    for stages in range(_MOST_STAGES, 1, -1):
        tried = replace(plan, stages=stages)
        try:
            build = build_of(seen, tried)
            build.require_possible()
        except LanewiseError:
            continue
        enough = build.buffers >= min(2, build.turns) and not build.promotes
        if build.direct or build.gather or build.stages_all_at_once or (build.store_by_tma and enough):
            return tried
        most = most or tried
        if stages <= _LEAST_STAGES:
            break
    return most
