"""Tiles that overlap, so that one alone stores each sector: each element is stored once, nothing beside."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.formats import bf16, e4m3, f16, f32
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.kernels.hopper.traits import Store, traits_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import problem_of_sizes
from linalg.hopper_products import operand, plan, product
from linalg.kernels_on_cpu import by_kernels

#: Sizes, the type of the result, the plan, and the number of matrices.
CASES: dict[str, tuple[tuple[int, int, int], Any, Plan, int]] = {
    "three tiles across": ((70, 216, 64), bf16, plan((64, 96, 64)), 1),
    "a batch of f16": ((101, 248, 72), f16, plan((64, 64, 64)), 2),
    "f32": ((200, 212, 72), f32, plan((128, 128, 64)), 1),
    "a batch of e4m3": ((100, 80, 64), e4m3, plan((64, 64, 64)), 3),
    "three consumers": ((300, 312, 40), bf16, plan((192, 168, 64), cluster=(1, 2)), 1),
    "pingpong": ((300, 136, 40), bf16, plan((128, 64, 64), cluster=(2, 1), schedule="pingpong"), 1),
    "a wide tile": ((200, 696, 40), bf16, plan((64, 352, 64), cluster=(2, 1), schedule="pingpong"), 1),
    "128 rows of a consumer": ((600, 232, 80), bf16, plan((256, 128, 64)), 1),
    "one tile": ((64, 104, 64), bf16, plan((64, 104, 64)), 1),
    "f32, whose columns of B begin at multiples of 16 bytes": ((70, 144, 64), f32, plan((64, 64, 64)), 1),
    "no more than a tile's share": ((64, 56, 64), bf16, plan((64, 64, 64), cluster=(1, 2)), 1),
}


@sampled(3)
@pytest.mark.parametrize("ahead", [0, 16, 48])
@pytest.mark.parametrize("name", CASES)
def test_each_element_is_stored_once(name: str, ahead: int) -> None:
    """At any multiple of 16 bytes, with rows side by side or apart; a block for each tile, and few blocks."""
    sizes, out, chosen, batch = CASES[name]
    chosen = replace(chosen, whole_sectors=True, stages=2)
    problem, pointers, sums = product(
        *sizes, bf16, bf16, out, layout="NN" if "columns of B" in name else "NT", batch=batch
    )
    (m, n, _), size = sizes, out.dtype.itemsize
    pitch = n + 16 // size * (ahead == 48)
    memory = np.full(batch * m * pitch + (ahead + 64) // size, 1, out.dtype)
    first = (-memory.ctypes.data % 32 + ahead) // size
    lines = memory[first : first + batch * m * pitch].reshape(batch, m, pitch)[:, :, :n]
    pointers.out = lines if batch > 1 else lines[0]
    problem = replace(problem, out=operand(pointers.out, True, True, out))
    for multiprocessors in (None, 2 * chosen.cluster[0] * chosen.cluster[1]):
        (launch,) = hopper.launches(problem, chosen, pointers, multiprocessors=multiprocessors)
        report = lw.check(launch.kernel, *launch.arguments, arch="sm_90a", schedule="late")
        assert not report.findings, report.findings[0]
        assert np.array_equal(pointers.out, sums.astype(out.dtype))
        lines[...] = 1
        assert (memory == 1).all()


def test_epilogue() -> None:
    """Bias, activation, residual and a function of the user."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(70, 40)).astype(np.float16), rng.normal(size=(40, 136)).astype(np.float16)
    residual = rng.normal(size=(70, 136)).astype(np.float16)

    @lw.epilogue
    def larger(value: Any, row: Any, column: Any) -> Any:
        return value + row.to(lw.f32) * 2 - column.to(lw.f32)

    given: dict[str, Any] = {"bias": b[0], "activation": "relu", "residual": residual}
    chosen = plan((64, 64, 64), whole_sectors=True, stages=2)
    for more in (given, {**given, "epilogue": larger, "out_dtype": "f32"}):
        expected = lw.matmul(a, b, plan=chosen, **more)
        stored = by_kernels(a, b, plan=chosen, launch_arch="sm_90a", **more)
        assert stored.tobytes() == expected.tobytes()


def test_what_has_no_such_kernel_is_told() -> None:
    a, b = np.zeros((64, 640), np.float16), np.zeros((640, 136), np.float16)
    for changed in ({"split": 2}, {"swap": True}, {"direct": True}, {"groups": 2}):
        with pytest.raises(LanewiseError, match="whole_sectors=True is for"):
            lw.matmul(a, b, plan=plan((64, 64, 64), whole_sectors=True, **changed))
    with pytest.raises(LanewiseError, match="whole_sectors=True is for"):
        lw.matmul(a, b[:, :99], plan=plan((64, 64, 64), whole_sectors=True, copy_b=True))
    with pytest.raises(LanewiseError, match="plans of family 'warp' have whole_sectors=False, not True"):
        lw.matmul(a, b, plan=Plan("warp", "sm_80", (64, 64, 64), 2, whole_sectors=True), arch="sm_80")


def test_where_tiles_overlap() -> None:
    """Where rows of many results begin between two sectors, K is short, and L2 holds them or K is shorter."""

    def planned(m: int, n: int, k: int, batch: int = 4) -> bool:
        return plan_of(problem_of_sizes(m, n, k, "bf16", layout="nt", batch=batch), "sm_90a").whole_sectors

    assert planned(10632, 6200, 128) and planned(720, 728, 248)
    assert not planned(10632, 6208, 128)  # rows are whole sectors
    assert not planned(10632, 6201, 128)  # they begin between multiples of 16 bytes
    assert not planned(10632, 6200, 296) and not planned(720, 728, 1024)
    assert not planned(100, 72, 64, batch=1)


def test_tiles_of_a_row() -> None:
    """Tiles are whole sectors apart, and have half a sector in common, or more."""
    problem, _, _ = product(64, 64, 64, bf16, bf16, bf16)
    traits = traits_of(problem, plan((64, 72, 64), whole_sectors=True))
    assert traits.store is Store.ROWS and traits.column_step == 64
    assert [traits.tiles_across(n) for n in (1, 72, 73, 136, 137)] == [1, 1, 2, 2, 3]
    assert traits_of(problem, plan((64, 64, 64), whole_sectors=True)).column_step == 48
