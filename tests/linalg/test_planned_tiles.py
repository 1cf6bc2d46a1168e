"""Plans of the Hopper kernels without a GPU: every plan that the planner makes can be compiled."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everything import EVERYTHING
from lanewise import isa
from lanewise.errors import LanewiseError
from lanewise.formats import e4m3, f32, s8, s32
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.operand_copies import as_loaded
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.problem import Epilogue
from lanewise.linalg.rules import problem_of_sizes
from linalg.hopper_products import product

ROOT = Path(__file__).parents[2]
#: What is fused, by the record's names.
_FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tensor": {"epilogue": Epilogue(scale_a="tensor", scale_b="tensor")},
    "rows": {"epilogue": Epilogue(scale_a="row", scale_b="row")},
    "blocks": {"promote": 128},
}
_PLANS = 400 if EVERYTHING else 40


@pytest.mark.parametrize("dtype", ["int8", "e4m3"])
def test_instructions_of_planned_tiles_exist(dtype: str) -> None:
    """wgmma of int8 has no 40, 56, 72 … columns, that of the others has every multiple of 8."""
    rng = np.random.default_rng(7)
    for _ in range(_PLANS):
        m, n, k = (int(2 ** rng.uniform(0, 12.5)) for _ in range(3))
        layout = str(rng.choice(["nt", "nn", "tn", "tt"]))
        problem = problem_of_sizes(m, n, k, dtype, layout=layout)
        plan = plan_of(problem, "sm_90a")
        if plan.family == "warp":  # mma.sync has one width
            continue
        traits = traits_of(oriented(as_loaded(problem, plan), plan), plan)
        require_possible(traits)
        assert traits.instruction.n == plan.tile[1], plan


def test_widths_are_those_of_the_catalogue() -> None:
    """All widths that the catalogue lists are taken by a tile, and no others."""
    problem, _, _ = product(64, 256, 128, s8, s8, s32, s32, layout="NT")
    listed = {each.n for each in isa.instructions("sm_90a", "wgmma", a="s8", b="s8")}
    for columns in range(8, 257, 8):
        traits = traits_of(problem, Plan("warpgroup", "sm_90a", (64, columns, 128), 2))
        if columns in listed:
            require_possible(traits)
        else:
            with pytest.raises(
                LanewiseError, match=r"wgmma of s8 and s8 takes 8, 16, 24, 32, 48, .* columns"
            ):
                require_possible(traits)


def test_other_types_have_all_widths() -> None:
    """e4m3 has 40 columns, which int8 has not."""
    problem, _, _ = product(64, 40, 128, e4m3, e4m3, f32, layout="NT")
    require_possible(traits_of(problem, Plan("warpgroup", "sm_90a", (64, 40, 128), 2)))


def measured() -> list[dict[str, Any]]:
    """Return the record of 8-bit products, each by several plans, the fastest first."""
    text = (ROOT / "benchmarks" / "results" / "h200_matmul_8bit.json").read_text(encoding="utf-8")
    return list(json.loads(text)["products"])


def planned_microseconds(row: dict[str, Any]) -> float | None:
    """Return what the kernel that the planner takes needed; None if it was not among those measured."""
    out = "bf16" if row["dtype"] == "e4m3" else None
    problem = problem_of_sizes(row["m"], row["n"], row["k"], row["dtype"], layout="nt", out=out)
    plan = plan_of(replace(problem, **_FORMS[row["form"]]), "sm_90a")
    chosen = [*plan.tile[:2], *plan.cluster, plan.schedule, plan.swap, plan.split]
    times = [
        float(each["us"])
        for each in row["plans"]
        if [*each["tile"], *each["cluster"], each["schedule"], each["swap"], each["split"]] == chosen
    ]
    return min(times) if times else None


def test_plans_of_8_bit_types_are_nearly_the_fastest_that_were_measured() -> None:
    """The kernel that the planner takes is within 10 % of the best."""
    times = [(planned_microseconds(row), row) for row in measured()]
    known = [(time, row) for time, row in times if time is not None]
    assert len(known) > 15
    for time, row in known:
        assert time <= 1.10 * row["plans"][0]["us"], row
