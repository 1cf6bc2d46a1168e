"""Where values come from when asynchronous copies and warpgroups have moved them: TMA, multicast, wgmma."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lanewise as lw
from everything import sampled
from gpu.device import Kernel
from gpu.execution import PLAIN, multiply
from gpu.inputs import operands
from lanewise.machine.program.operands import elements_of
from machine.bulk_copy_kernels import STORED, TO_GLOBAL, copied, kernel, remote, store_and_wait
from traces.traced import written

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gemm"))

SCHEDULES = (None, "late", 3)


def persistent(m: int, n: int, k: int) -> tuple[Any, tuple[Any, ...], list[npt.NDArray[np.generic]]]:
    """Rung 11 of the ladder with small tiles: TMA with multicast, wgmma, stmatrix, and TMA stores."""
    rung = import_module("rung11_persistent")
    T = rung.Tiling(BM=64, BN=128, BK=64, stages=2, store_columns=64)
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    maps = [lw.tensor_map(each, (64, 64), swizzle="128B") for each in (a, b, c)]
    configured = rung.kernel(lw.f16, lw.f32, T)[2, T.threads, T.shared_bytes]
    return configured, (*maps, m, n, k), [a, b, c]


@sampled(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_element_of_c_leads_back_to_its_row_of_a_and_column_of_b(schedule: object) -> None:
    configured, arguments, (a, b, c) = persistent(128, 128, 128)
    run = lw.trace(configured, *arguments, blocks=[(1, 0)], schedule=schedule)
    assert not run.fault and not [each for each in run.findings if each.severity != "advice"]
    assert np.abs(c.astype(float) - a.astype(float) @ b.astype(float)).max() < 0.1
    # Rows 64 to 127 are block 1's; half of its tile of B was sent to it by block 0.
    for row, col in ((64, 0), (100, 37)):
        origin = run.origin((c, (row, col)))
        assert origin.value == c[row, col]
        assert origin.step is not None and origin.step.text.startswith("cp.async.bulk.tensor.2d.global")
        assert origin.inputs == {"A": [(row, k) for k in range(128)], "B": [(k, col) for k in range(128)]}
        read = {each.what: each.value for each in origin.walk() if each.kind == "input"}
        assert read == {
            **{f"A[{row}, {k}]": a[row, k] for k in range(128)},
            **{f"B[{k}, {col}]": b[k, col] for k in range(128)},
        }
    tile = run.origin("sB[5, 7, 0]", before=run.first(lambda step: step.text.startswith("wgmma.mma")))
    assert tile.inputs == {"B": [(7, 5)]} and tile.value == b[7, 5]
    assert [each.value for each in run.history("C[70, 3]")] == [c[70, 3]]
    other = run.writer("C[0, 0]")  # by block 0, which is not traced
    assert other is not None and other.step is None and other.value == c[0, 0]


def test_sums_of_each_product_are_there_although_products_follow_one_another() -> None:
    configured, arguments, (a, b, _) = persistent(128, 128, 64)
    run = lw.trace(configured, *arguments, blocks=[(1, 0)])
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16")
    total = np.zeros((64, 128), np.float32)
    products = [step for step in run.steps if step.text.startswith("wgmma.mma") and step.warp == 5]
    assert len(products) == 4
    for number, step in enumerate(products):
        part = slice(16 * number, 16 * number + 16)
        total = mma(a[64:, part], b[part], total, arch="sm_90a")
        assert np.array_equal(step.fragment("d"), total)
    assert np.array_equal(products[0].shared("sA")[:, :, 0], a[64:])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copies_in_all_directions_are_followed(schedule: object) -> None:
    a, b = np.arange(1024, dtype=np.uint32), np.zeros(1032, np.uint32)
    run = lw.trace(lw.load(copied("", "shared::cluster"))["k"][1, 64], a, b, schedule=schedule)
    expected = np.concatenate([np.zeros(4, int), np.arange(512, 1024), np.arange(512), np.zeros(4, int)])
    assert np.array_equal(b, expected) and np.array_equal(written(run, "b"), b)
    for number in (4, 515, 516, 1027):
        assert run.origin(f"b[{number}]").inputs == {"a": [(expected[number],)]}
    assert run.writer("b[2]") is None and run.writer("b[1030]") is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stores_into_another_block_come_from_the_registers_of_its_lane(schedule: object) -> None:
    text = remote(f"{STORED}.v4.u32 [%r6], {{%r9, %r3, %r4, %r9}}, [%r7];")
    out = np.zeros((4, 4), np.uint32)
    run = lw.trace(
        lw.load(text)["k"][4, 1], np.zeros(4, np.uint32), out, blocks="all", cluster=4, schedule=schedule
    )
    assert out.tolist() == [
        [10 + (rank - 1) % 4, (rank - 1) % 4, 4, 10 + (rank - 1) % 4] for rank in range(4)
    ]
    for rank in range(4):
        nodes = list(run.origin(f"b[{rank}, 0]").walk())
        store = next(each for each in nodes if each.step is not None and STORED in each.step.text)
        assert store.step is not None and store.step.block == ((rank - 1) % 4, 0, 0)
        assert [each.what for each in store.sources] == ["%r9"] and store.sources[0].value == out[rank, 0]


def test_a_store_whose_source_was_read_comes_from_what_was_there_then() -> None:
    module = lw.load(store_and_wait("cp.async.bulk.wait_group.read 0;"))
    a, b = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    run = lw.trace(module["k"][1, 1], a, b, schedule="late")
    origin = run.origin("a[0]")
    assert (a[0], origin.value, origin.sources[0].value) == (5, 5, 5)
    later = lw.trace(lw.load(store_and_wait(""))["k"][1, 1], a, b, schedule="late")
    assert later.origin("a[0]").sources[0].value == 6


def test_a_reduction_comes_from_what_was_there_and_what_was_added() -> None:
    text = kernel(f"""
    ld.global.u32 %r4, [%rd0];
    st.shared.u32 [%r1], %r4;
    st.shared.u32 [%r1+4], %r4; st.shared.u32 [%r1+8], %r4; st.shared.u32 [%r1+12], %r4;
    fence.proxy.async;
    {TO_GLOBAL.replace("cp.async", "cp.reduce.async")}.add.u32 [%rd1], [%r1], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;""")
    a, b = np.full(4, 7, np.uint32), np.arange(4, dtype=np.uint32)
    run = lw.trace(lw.load(text)["k"][1, 1], a, b)
    assert b.tolist() == [7, 8, 9, 10]
    assert run.origin("b[2]").inputs == {"a": [(0,)], "b": [(2,)]}


@lw.kernel
def copies(X: lw.Ptr[lw.f32, 16], Y: lw.Ptr[lw.f32, 16]):
    i = lw.thread_idx.x
    tile = lw.shared(lw.f32, (64,))
    lw.cp_async(tile.ptr(i), X + i, 4)
    lw.cp_async_commit()
    x = i * 2
    lw.cp_async_wait(0)
    lw.syncthreads()
    Y[i] = tile[63 - i] + lw.f32(x)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_cp_async_that_is_kept_arrives_when_it_is_waited_for(schedule: object) -> None:
    x, y = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32)
    run = lw.trace(copies[1, 64], x, y, schedule=schedule)
    assert np.array_equal(y, x[::-1] + 2 * np.arange(64)) and not run.findings
    issue = run.first(lambda step: step.text.startswith("cp.async.") and "shared" in step.text)
    wait = run.first(lambda step: step.text.startswith("cp.async.wait"))
    assert issue is not None and wait is not None
    there = {None: 32, "late": 0}.get(schedule)
    assert there is None or np.count_nonzero(issue.shared("tile")[:32]) == there
    mine = slice(32 * wait.warp, 32 * wait.warp + 32)
    assert np.array_equal(wait.shared("tile")[mine], x[mine])
    assert run.origin("Y[5]").inputs == {"X": [(58,)]}
    assert (run.writer("tile[3]", before=wait) is None) == (there == 0) or there is None


class Traced:
    """A machine that runs one wgmma out of arrays and keeps its trace (see `gpu.device.Device`)."""

    arch = "sm_90a"

    def __init__(self) -> None:
        self.traces: list[lw.traces.Trace] = []

    def run(
        self, ready: Kernel, inputs: list[npt.NDArray[Any]], output: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        arrays = [np.ascontiguousarray(each) for each in (*inputs, output)]
        configured = lw.load(ready.ptx)["k"][len(output), ready.threads]
        self.traces.append(lw.trace(configured, *arrays, arch=self.arch))
        return arrays[-1]


@sampled(2)
@pytest.mark.parametrize("form", ["", "sp"])
@pytest.mark.parametrize("source", ["descriptor", "registers"])
def test_a_sum_of_a_warpgroup_comes_from_a_row_and_a_column(source: str, form: str) -> None:
    from machine.warpgroup import by_types

    wgmma = next(
        each
        for each in by_types("wgmma.sp" if form else "wgmma", 24)
        if each.types == ("f32", "bf16", "bf16") and each.a_source == source
    )
    given, machine = operands(wgmma, 1, seed=3), Traced()
    multiply(machine, wgmma, given, PLAIN)
    run = machine.traces[0]  # of the first sparsity selector
    step = next(each for each in run.steps if each.text.startswith("wgmma.mma") and each.warp == 2)
    row, col = 37, 13
    holder = wgmma.d.holder(row, col)
    register = elements_of(step.op.operands[0])[holder.register].name
    origin = run.origin(register, warp=holder.lane // 32, lane=holder.lane % 32, before=len(run) - 1)
    sums, a, b = step.fragment("d"), wgmma.a.cols, wgmma.b.rows
    assert origin.raw == sums[row, col].tobytes()
    found = [each.raw for each in origin.sources]
    assert len(found) == 1 + a + b
    assert found[0] == given.c[0][row, col].tobytes()
    assert b"".join(found[-b:]) == given.b[0][:, col].tobytes()
    assert form or b"".join(found[1 : 1 + a]) == given.a[0][row].tobytes()


def test_a_variable_of_four_warps_is_one_matrix_wherever_they_are() -> None:
    configured, arguments, (a, b, _) = persistent(128, 128, 64)
    run = lw.trace(configured, *arguments, blocks=[(1, 0)])
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16")
    products = [step for step in run.steps if step.text.startswith("wgmma.mma") and step.warp == 6]
    total = np.zeros((64, 128), np.float32)
    for number, step in enumerate(products):
        part = slice(16 * number, 16 * number + 16)
        total = mma(a[64:, part], b[part], total, arch="sm_90a")
        later = run.at(step.number + 1)  # of another warp, perhaps
        assert np.array_equal(step.fragment("acc"), total)
        assert later.warp != 6 or np.array_equal(later.fragment("acc"), total)
        assert np.array_equal(step.fragment("acc3"), total)  # by one of its registers
