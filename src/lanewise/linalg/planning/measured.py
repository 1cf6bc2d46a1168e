"""Plans that were measured: a small table for each kind of GPU. `tuned.py` has what `lw.tune` found.

The tables are JSON files in `measured/`, one for each arch, with the GPU, driver and date of the run.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import multiplied_as

_FOLDER = Path(__file__).parent.parent / "measured"
#: The table of each arch.
_FILES = {"sm_90a": "h200.json"}
#: What of a plan is not written down: what is known from elsewhere.
_LEFT_OUT = ("arch", "copy_a", "copy_b", "why")
#: A measured plan serves problems whose sizes are all within this factor, if its tiles take as many waves; of
#: several waves the last has to be as full, to this share.
_NEAR, _AS_FULL = 1.12, 0.97


def kind_of(problem: Problem) -> str:
    """Return what of a problem a measured plan is for, besides its sizes: types, majors, promotion, groups.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 64)
    >>> kind_of(Problem(64, 64, 64, matrix, matrix, matrix, f32))
    'bf16·bf16→bf16 f32 tn'
    """
    a, b = multiplied_as(problem)
    majors = ("t" if problem.a.k_major else "n") + ("n" if problem.b.k_major else "t")
    more = f" promote {problem.promote}" if problem.promote else ""
    more += " grouped" if problem.experts else ""
    return f"{a}·{b}→{problem.out.dtype.name} {problem.sums.name} {majors}{more}"


@cache
def _table(arch: str) -> dict[str, list[dict[str, Any]]]:
    """Return the measured plans of an arch by the kind of problem."""
    path = _FOLDER / _FILES.get(arch, "none")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["plans"]
    except OSError:
        return {}
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    return by_kind


def measured_plan(problem: Problem, arch: str) -> Plan | None:
    """Return the plan that was fastest for a problem of nearly these sizes; None if none was measured."""
    nearest, distance = None, math.log(_NEAR)
    kind = kind_of(problem)
    if kind.startswith("f16·f16→f16 f32"):  # f16 is as fast as bf16
        kind = kind.replace("f16", "bf16")
    for row in _table(arch).get(kind, ()):
        sizes = ((problem.m, row["m"]), (problem.n, row["n"]), (problem.k, row["k"]))
        if problem.batch != row.get("batch", 1) or any(min(pair) < 1 for pair in sizes):
            continue
        far = max(abs(math.log(one / other)) for one, other in sizes)
        if far > distance or (far == distance and nearest is not None):
            continue
        plan = plan_from(row["plan"], arch, "")
        waves, wanted = (_waves(plan, sizes, problem.batch) for sizes in (row, vars(problem)))
        if math.ceil(wanted) == math.ceil(waves) and (waves <= 1 or wanted >= _AS_FULL * waves):
            nearest, distance = row, far
    if nearest is None:
        return None
    return plan_from(
        nearest["plan"], arch, f"the fastest at {nearest['m']}×{nearest['n']}×{nearest['k']}, as measured"
    )


def _waves(plan: Plan, sizes: dict[str, Any], batch: int) -> float:
    """Return how many tiles of a plan there are for each block or cluster that runs at the same time."""
    across, along = plan.cluster
    rows, columns = (sizes[name] for name in ("nm" if plan.swap else "mn"))
    tiles = -(-rows // (plan.tile[0] * across)) * -(-columns // (plan.tile[1] * along))
    return float(tiles * batch * plan.groups / GPUS[plan.arch].slots(across * along * plan.split))


def plan_from(fields: dict[str, Any], arch: str, why: str) -> Plan:
    """Return a plan of its fields as JSON has them."""
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return Plan(**{"arch": arch, "why": why, **known})


def fields_of(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan for JSON: what it takes to make it again, without reasons."""
    return {name: value for name, value in plan.__dict__.items() if name not in _LEFT_OUT}
