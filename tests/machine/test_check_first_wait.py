"""A wait at an mbarrier comes after its initialisation by another order than that which it gives."""

import numpy as np
import pytest

import lanewise as lw


@lw.kernel
def first_wait(
    source: lw.Ptr[lw.f32, 16], out: lw.Ptr[lw.f32], synced: lw.Constexpr, copies: lw.Constexpr
) -> None:
    shared, thread = lw.shared(lw.f32, 64, align=128), lw.thread_idx.x
    barrier = lw.mbarrier()[0]
    if thread == 0:
        barrier.init(1)
        lw.fence_mbarrier_init()
    if synced == "before the arrival":
        lw.syncthreads()
    if thread == 0:
        if copies:
            barrier.arrive(expect=256)
            lw.tma.copy(shared, source, 256, barrier)
        else:
            barrier.arrive()
    if synced == "after the arrival":
        lw.syncthreads()
    barrier.wait(0)
    out[thread] = shared[thread] if copies else 1.0


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("schedule", ["in order", "late", 1, 2])
@pytest.mark.parametrize("synced", ["not at all", "before the arrival", "after the arrival"])
def test_a_wait_needs_an_order_after_the_initialisation(synced: str, schedule: str, copies: bool) -> None:
    report = lw.check(
        first_wait[1, 64], np.ones(64, np.float32), np.zeros(64, np.float32), synced=synced, copies=copies,
        schedule=schedule,
    )  # fmt: skip
    found = [finding.kind for finding in report.findings if finding.severity == "error"]
    assert found[:1] == ["race"] * (synced == "not at all")
