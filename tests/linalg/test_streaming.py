"""Products that stream a long matrix at any address: bits, memory that is not read, and what is refused."""

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
from lanewise.linalg.planning.candidates import streaming_plans
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import problem_of_sizes
from linalg.kernels_on_cpu import by_kernels, launches_of
from linalg.streaming_cases import ARCH, CASES, operands


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
    for name in ("along K by columns", "along N", "a cluster, by fragments"):
        a, b, plan = operands(name, np.float16, (3,))
        bias = np.linspace(-1, 1, b.shape[-1], dtype=np.float16)
        given: dict[str, Any] = {"bias": bias, "activation": "relu", "out_dtype": "f32"}
        expected = lw.matmul(a, b, plan=plan, **given)
        assert np.array_equal(by_kernels(a, b, plan=plan, launch_arch=ARCH, **given), expected)


def test_sums_are_those_of_other_kernels() -> None:
    """One chain of K has the bits of any other kernel that sums in one chain."""
    a, b, plan = operands("along K, long b", bf16.dtype)
    one = replace(plan, split=1)
    wgmma = Plan("warpgroup", ARCH, (64, 64, 64), 2, copy_a=True, copy_b=True)
    assert np.array_equal(lw.matmul(a, b, plan=one), lw.matmul(a, b, plan=wgmma))


def test_parts_without_any_k() -> None:
    """K is over before its last parts begin: they add nothing, and not the end of K again."""
    a, b, plan = operands("along K, odd", np.float16)
    a, b, plan = a[:, :40], b[:40], replace(plan, tile=(64, 8, 16))
    expected = lw.matmul(a, b, plan=replace(plan, split=3))
    for split, groups in ((2, 4), (1, 8), (4, 1)):
        given = replace(plan, split=split, groups=groups)
        assert np.array_equal(by_kernels(a, b, plan=given, launch_arch=ARCH), expected)


def test_ptxas_takes_clusters() -> None:
    """It spills at most a few registers, as without clusters."""
    for name in CASES:
        if name.startswith("a cluster"):
            a, b, plan = operands(name, np.float16)
            problem = lw.plan(a, b, arch=ARCH).problem
            assert warp.kernel(problem, plan).resources(ARCH).spill_stores <= 32


def test_nan_and_infinity_stay_where_they_are() -> None:
    """What lies beside a row, or behind K, is not multiplied."""
    a, b, plan = operands("along K, odd", np.float16)
    a[5:, :] = np.inf
    b[:, 2] = np.nan
    result = by_kernels(a, b, plan=plan, launch_arch=ARCH)
    assert np.isfinite(result[:5, :2]).all()
    assert np.array_equal(result[:5, :2], lw.matmul(a, b, plan=plan)[:5, :2])


def test_when_it_is_planned() -> None:
    """Where TMA cannot load the long matrix, and few rows or columns are multiplied with it."""

    def planned(m: int, n: int, k: int, dtype: str = "bf16") -> list[Plan]:
        return streaming_plans(problem_of_sizes(m, n, k, dtype, layout="nt"))

    problem = problem_of_sizes(3, 20000, 1001, "bf16", layout="nt")
    assert plan_of(problem, ARCH).schedule == "streaming"
    plans = streaming_plans(problem)
    assert {plan.split for plan in plans} <= {1, 2, 4}
    for plan in plans:
        warp.require_kernel(problem, plan)
    assert planned(3, 20000, 4099) and not planned(3, 20000, 4096)
    assert not planned(40, 20000, 4099) and not planned(3, 20000, 41)
    assert not planned(3, 20000, 4099, "f32")


def test_when_blocks_share_k() -> None:
    """Where tiles are few, if K may be cut; not if it is summed in one chain for any number of rows."""
    few = problem_of_sizes(3925, 27, 7483, "bf16", layout="nt")
    many = problem_of_sizes(100_000, 3, 7483, "bf16", layout="nt")
    assert plan_of(few, ARCH).groups > 1
    for problem, groups in ((few, {1, 2, 4}), (many, {1})):
        plans = streaming_plans(problem)
        assert {plan.groups for plan in plans} == groups
        for plan in plans:
            warp.require_kernel(problem, plan)
    assert {plan.groups * plan.split for plan in streaming_plans(few, cuts=False)} == {1}
    invariant = plan_of(replace(few, batch_invariant=True), ARCH)
    assert invariant.schedule != "streaming" or invariant.groups * invariant.split == 1
    assert "in 2 groups, the blocks of a cluster" in repr(
        PlannedProduct(Plan("warp", ARCH, (64, 32, 64), 2, schedule="streaming", groups=2), few)
    )


def test_what_is_refused() -> None:
    problem = lw.plan(np.zeros((3, 333), np.float16), np.zeros((333, 200), np.float16), arch=ARCH).problem
    good = Plan("warp", ARCH, (16, 128, 32), 2, schedule="streaming")
    warp.require_kernel(problem, good)
    for plan, words in (
        (replace(good, tile=(128, 128, 32)), "has to be longer"),
        (replace(good, tile=(16, 96, 32)), "multiples of 16 × 8"),
        (replace(good, tile=(16, 128, 40)), "not a multiple of 16"),
        (replace(good, stages=40), "bytes of shared memory"),
        (replace(good, arch="sm_80"), "on sm_90a"),
        (replace(good, groups=3), "3 groups of K: the 2, 4 or 8 blocks of a cluster"),
    ):
        with pytest.raises(LanewiseError, match=words):
            warp.require_kernel(problem, plan)
    few, long = np.zeros((333, 50), np.float16)[:, :3].T, np.zeros((333, 200), np.float16)
    wide = lw.plan(few, long, arch=ARCH).problem
    with pytest.raises(LanewiseError, match="50 apart"):
        warp.require_kernel(wide, good)
    whole = lw.plan(np.zeros((3, 333), np.int8), np.zeros((333, 200), np.int8), arch=ARCH).problem
    with pytest.raises(LanewiseError, match="16-bit types"):
        warp.require_kernel(whole, replace(good, tile=(16, 128, 64)))
