"""K cut into parts: over the blocks of a cluster, over clusters, both; added in the plan's order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.formats import bf16, s8, s32
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.plan import Plan
from linalg.hopper_products import plan, product, some
from linalg.kernels_on_cpu import by_kernels
from linalg.split_sums import in_parts


@pytest.mark.parametrize(
    "chosen",
    some(
        [
            plan((64, 16, 64), split=2, swap=True),
            plan((128, 64, 64), split=2, cluster=(2, 1)),
            plan((64, 64, 64), groups=3),
            plan((64, 64, 64), split=2, groups=2),
        ],
        plan((64, 16, 64), split=2, groups=2, swap=True),
    ),
)
def test_parts_of_k(chosen: Plan) -> None:
    """The bits are those of the plan's order, twice in a row: the counters are zero again; nothing races."""
    m = 13 if chosen.swap else 70
    problem, pointers, _ = product(m, 72, 328, bf16, bf16, bf16, layout="NT")
    workspace = np.zeros(hopper.workspace_bytes(problem, chosen) + 128, np.uint8)
    pointers.workspace = workspace[-lw.address(workspace) % 128 :]
    wanted = in_parts(pointers.a, pointers.b.T, chosen).astype(bf16.dtype)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
    for _ in range(2):
        pointers.out[:] = 0
        configured(*arguments)
        assert np.array_equal(pointers.out, wanted)
    assert lw.check(configured, *arguments, schedule="late").ok


@pytest.mark.parametrize("chosen", some([plan((192, 16, 64), groups=3)], plan((128, 16, 64), groups=2)))
def test_sums_of_several_warpgroups_are_released(chosen: Plan) -> None:
    """Each consumer releases its sums to the cluster that comes last, while other consumers are at work."""
    m, n, k = chosen.tile[0], chosen.tile[1], 64 * chosen.groups
    problem, pointers, _ = product(m, n, k, bf16, bf16, bf16, layout="NT")
    workspace = np.zeros(hopper.workspace_bytes(problem, chosen) + 128, np.uint8)
    pointers.workspace = workspace[-lw.address(workspace) % 128 :]
    configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
    for schedule in ("in order", "late", "reverse"):
        assert not lw.check(configured, *arguments, schedule=schedule).findings
    assert np.array_equal(pointers.out, in_parts(pointers.a, pointers.b.T, chosen).astype(bf16.dtype))


def test_parts_of_k_of_integers() -> None:
    """Sums of int8 go through the workspace as integers: they are exact, however K is cut."""
    chosen = plan((64, 32, 128), groups=3)
    problem, pointers, wanted = product(70, 24, 700 // 16 * 16, s8, s8, s32, s32, layout="NT")
    workspace = np.zeros(hopper.workspace_bytes(problem, chosen) + 128, np.uint8)
    pointers.workspace = workspace[-lw.address(workspace) % 128 :]
    configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
    assert lw.check(configured, *arguments, schedule="late").ok
    assert np.array_equal(pointers.out, wanted)


@pytest.mark.parametrize(
    "chosen",
    some(
        [
            plan((128, 64, 64), split=2, groups=2, cluster=(2, 1), gather=True),
            plan((64, 16, 64), groups=35, gather=True),
            plan((64, 64, 64), groups=3, gather=True),
        ],
        plan((64, 16, 64), groups=9, swap=True, gather=True),
    ),
)
def test_groups_added_by_a_second_kernel(chosen: Plan) -> None:
    """The second kernel adds in the same order; the workspace need not be zero before."""
    m = 13 if chosen.swap else 130
    problem, pointers, _ = product(m, 72, 64 * chosen.split * chosen.groups, bf16, bf16, bf16, layout="NT")
    workspace = np.full(hopper.workspace_bytes(problem, chosen) + 128, 255, np.uint8)
    pointers.workspace = workspace[-lw.address(workspace) % 128 :]
    wanted = in_parts(pointers.a, pointers.b.T, chosen).astype(bf16.dtype)
    for configured, arguments, _ in hopper.launches(problem, chosen, pointers):
        assert lw.check(configured, *arguments, schedule="late").ok
    assert np.array_equal(pointers.out, wanted)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"gather": True}, "gather=True needs groups above 1"),
        ({"l2": "x"}, "two letters, one for A and one for B"),
    ],
)
def test_what_kernels_do_not_have_is_refused(fields: dict[str, Any], reason: str) -> None:
    """Fields of a plan that do not fit are refused with the reason."""
    problem, _, _ = product(64, 64, 256, bf16, bf16, bf16, layout="NT")
    with pytest.raises(lw.LanewiseError, match=reason):
        require_possible(traits_of(problem, plan((64, 64, 64), **fields)))


@pytest.mark.parametrize(
    "chosen",
    some(
        [plan((128, 64, 64), direct=True), plan((64, 32, 64), split=2, direct=True)],
        plan((64, 16, 64), split=2, swap=True, direct=True),
    ),
)
def test_results_stored_from_registers(chosen: Plan) -> None:
    """Results that do not go through shared memory are the same; rows and columns beyond are left alone."""
    problem, pointers, _ = product(13 if chosen.swap else 70, 70, 328, bf16, bf16, bf16, layout="NT")
    wanted = in_parts(pointers.a, pointers.b.T, chosen).astype(bf16.dtype)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
    assert lw.check(configured, *arguments, schedule="late").ok
    assert np.array_equal(pointers.out, wanted)


def test_more_tiles_than_counters_are_refused() -> None:
    """Clusters that share K count themselves in a workspace of limited size."""
    problem, pointers, _ = product(64, 64, 256, bf16, bf16, bf16, layout="NT")
    with pytest.raises(lw.LanewiseError, match="8192 counters"):
        traits = traits_of(problem, plan((64, 64, 64), groups=2))
        hopper.for_shape(traits, 64 * 128, 64 * 64, 1, 132)
    assert pointers.workspace is None


@pytest.mark.parametrize(
    "chosen",
    some(
        [
            plan((64, 32, 64), split=2),
            plan((64, 16, 64), groups=3, direct=True),
            plan((64, 8, 64), groups=4, gather=True, swap=True),
            plan((128, 32, 64), split=2, groups=2, stages=2),
        ],
        plan((64, 16, 64), split=2, groups=2, gather=True),
    ),
)
def test_parts_of_k_of_split_f32(chosen: Plan) -> None:
    """Parts of f32 that is split into bf16 are promoted by themselves, and added in the plan's order."""
    rng = np.random.default_rng(5)
    m = 7 if chosen.swap else 70
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((2, m, 491), (2, 491, 40)))
    chosen = replace(chosen, copy_a=True, copy_b=True)
    wanted = lw.matmul(a, b, precision="f32", plan=chosen)
    assert np.array_equal(by_kernels(a, b, plan=chosen, precision="f32"), wanted)
    one = lw.matmul(a, b, precision="f32", plan=replace(chosen, split=1, groups=1, gather=False))
    assert not np.array_equal(one, wanted)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(wanted - exact).max() < 1e-5 * np.abs(exact).max()
