"""Plans of the Hopper kernels without a GPU: every plan that the planner makes can be compiled."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise import isa
from lanewise.errors import LanewiseError
from lanewise.formats import e4m3, f32, s8, s32
from lanewise.linalg.families.build import build_of
from lanewise.linalg.families.candidates import natural
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import _as_loaded, plan_of
from lanewise.linalg.planning.sizes import problem_of_sizes
from linalg.hopper_products import EVERYTHING, product

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
        build = build_of(natural(_as_loaded(problem), plan), plan)
        build.require_possible()
        assert build.instruction.n == plan.tile[1], plan


def test_widths_are_those_of_the_catalogue() -> None:
    """All widths that the catalogue lists are taken by a tile, and no others."""
    problem, _, _ = product(64, 256, 128, s8, s8, s32, s32, layout="NT")
    listed = {each.n for each in isa.instructions("sm_90a", "wgmma", a="s8", b="s8")}
    for columns in range(8, 257, 8):
        build = build_of(problem, Plan("warpgroup", "sm_90a", (64, columns, 128), 2))
        if columns in listed:
            build.require_possible()
        else:
            with pytest.raises(LanewiseError, match=r"wgmma of s8 and s8 has 8, 16, 24, 32, 48, .* columns"):
                build.require_possible()


def test_other_types_have_all_widths() -> None:
    """e4m3 has 40 columns, which int8 has not."""
    problem, _, _ = product(64, 40, 128, e4m3, e4m3, f32, layout="NT")
    build_of(problem, Plan("warpgroup", "sm_90a", (64, 40, 128), 2)).require_possible()
