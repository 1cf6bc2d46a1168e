"""K that warps of a block and the blocks of a cluster share, in kernels of mma.sync: bits, checks, plans."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.formats import bf16
from lanewise.linalg.kernels.warp import launches as warp
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.candidates import warp_plans
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import built, plan_of
from lanewise.linalg.rules import problem_of_sizes
from linalg.kernels_on_cpu import by_kernels, launches_of
from linalg.shared_k_cases import ARCH, CASES, operands


@sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_bits_and_memory(name: str) -> None:
    """The bits of the plan's order of sums; nothing is read beside an array, or before it is there."""
    a, b, plan = operands(name, bf16.dtype if len(name) % 2 else np.float16)
    expected = lw.matmul(a, b, plan=plan)
    ((configured, arguments, _), result) = launches_of(a, b, plan=plan)
    report = lw.check(configured, *arguments, arch=ARCH)
    assert not report.findings, report.findings[0]
    assert np.array_equal(result.view(np.uint16), expected.view(np.uint16))


@sampled(2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schedule", ["late", "reverse"])
def test_check_in_other_orders(name: str, schedule: str) -> None:
    a, b, plan = operands(name, np.float16)
    ((configured, arguments, _), _) = launches_of(a, b, plan=plan)
    report = lw.check(configured, *arguments, arch=ARCH, schedule=schedule)
    assert not report.findings, report.findings[0]


def test_batches_and_epilogues() -> None:
    """Each matrix of a batch begins at another address; bias, activation and a wide result."""
    for name in ("one stage, blocks and warps", "owners by fragments"):
        a, b, plan = operands(name, np.float16, (3,))
        bias = np.linspace(-1, 1, b.shape[-1], dtype=np.float16)
        given: dict[str, Any] = {"bias": bias, "activation": "relu", "out_dtype": "f32"}
        expected = lw.matmul(a, b, plan=plan, **given)
        assert np.array_equal(by_kernels(a, b, plan=plan, launch_arch=ARCH, **given), expected)


def test_sums_are_those_of_other_kernels() -> None:
    """Parts of K are added in the order of any other kernel."""
    a, b, plan = operands("last parts are empty", bf16.dtype)
    wgmma = Plan("warpgroup", ARCH, (64, 64, 64), 2, copy_a=True, copy_b=True)
    one = replace(plan, split=1, groups=1, tile=(64, 8, 32))
    assert np.array_equal(lw.matmul(a, b, plan=one), lw.matmul(a, b, plan=wgmma))
    expected = lw.matmul(a, b, plan=replace(plan, split=3, groups=1))  # K has three steps
    for split, groups in ((2, 4), (1, 8), (4, 1), (8, 1)):
        given = replace(plan, split=split, groups=groups)
        assert np.array_equal(by_kernels(a, b, plan=given, launch_arch=ARCH), expected)


def test_ptxas_spills_nothing() -> None:
    for name in CASES:
        a, b, plan = operands(name, np.float16)
        problem = lw.plan(a, b, arch=ARCH).problem
        assert warp.kernel(problem, plan).resources(ARCH).spill_stores == 0


def test_nan_and_infinity_stay_where_they_are() -> None:
    """What lies beside a row, or behind K, is not multiplied."""
    a, b, plan = operands("owners by lanes", np.float16)
    a[5:, :] = np.inf
    b[:, 2] = np.nan
    result = by_kernels(a, b, plan=plan, launch_arch=ARCH)
    assert np.isfinite(result[:5, :2]).all()
    assert np.array_equal(result[:5, :2], lw.matmul(a, b, plan=plan)[:5, :2])


def test_when_it_is_planned() -> None:
    """Where tiles are few, if K may be cut; not if it is summed in one chain for any number of rows."""
    few, many = problem_of_sizes(3, 5, 7483, "bf16"), problem_of_sizes(100_000, 3, 7483, "bf16")
    assert plan_of(few, ARCH).family == "warp" and plan_of(few, ARCH).groups > 1
    assert {plan.groups for plan in warp_plans(few) if built(few, plan)} == {1, 2, 4, 8}
    assert {plan.groups for plan in warp_plans(many)} == {1}
    assert {plan.groups * plan.split for plan in warp_plans(few, cuts=False)} == {1}
    invariant = plan_of(replace(few, batch_invariant=True), ARCH)
    assert invariant.family != "warp" or invariant.groups * invariant.split == 1
    assert "in 2 groups, the blocks of a cluster" in repr(
        PlannedProduct(Plan("warp", ARCH, (64, 64, 64), 2, schedule="one tile", groups=2), few)
    )


def test_what_is_refused() -> None:
    problem = problem_of_sizes(3, 200, 333, "f16")
    good = Plan("warp", ARCH, (16, 64, 32), 2, schedule="one tile", groups=2)
    warp.require_kernel(problem, good)
    for plan, words in (
        (replace(good, groups=3), "groups=3 is not possible"),
        (replace(good, arch="sm_80"), "on sm_90a"),
        (replace(good, split=16), "threads; a block has at most 1024"),
        (replace(good, stages=80, groups=8), "bytes of shared memory"),
    ):
        with pytest.raises(LanewiseError, match=words):
            warp.require_kernel(problem, plan)
    f64 = problem_of_sizes(3, 200, 333, "f64")
    with pytest.raises(LanewiseError, match="for sums of 32 bits"):
        warp.require_kernel(f64, replace(good, tile=(64, 64, 16)))
