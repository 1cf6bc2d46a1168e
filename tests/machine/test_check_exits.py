"""Whether a block of a cluster may have exited follows from what its threads wait for, not from the order.

The pairs of `mistakes/hopper/exits.cu`, of arrivals and of grids are checked in several orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import one_of
from machine.mistakes.corpus import PAIRS, Pair, accusations

FILES = ("hopper/exits.cu", "hopper/arrivals.cu", "grids.cu")
SCHEDULES: tuple[Any, ...] = ("in order", "reverse", "late", 1, 2, 3, 4)
TRIED = [
    pytest.param(pair, schedule, id=f"{pair.name}-{schedule}")
    for pair in PAIRS
    if pair.file in FILES
    for schedule in SCHEDULES
    if one_of(120, f"{pair.name} {schedule}")
]


@pytest.mark.parametrize(("pair", "schedule"), TRIED)
def test_verdict_does_not_depend_on_the_order(pair: Pair, schedule: Any) -> None:
    assert not accusations(pair.check(wrong=False, schedule=schedule))
    if pair.kinds:
        report = pair.check(wrong=True, schedule=schedule)
        assert pair.found(report), [str(finding) for finding in report.findings]


def test_message_names_the_mend() -> None:
    named = {pair.name: pair for pair in PAIRS}
    (finding,) = accusations(named["store_into_exited"].check(wrong=True))
    assert "block of rank 1" in finding.message and "may have exited" in finding.message
    # Here the block has indeed exited when it is accessed, and the launch is stopped.
    (fault,) = accusations(named["read_from_exited"].check(wrong=True))
    assert "has exited" in fault.message
    for mend in (finding.mend, fault.mend):
        assert "barrier.cluster.arrive and barrier.cluster.wait (cluster.sync())" in mend


@lw.kernel
def stores_and_exits(x: lw.Ptr[lw.f32]) -> None:
    """A bulk copy out of shared memory, which nobody waits for."""
    tile = lw.shared(lw.f32, 64, align=16)
    t = lw.thread_idx.x
    tile[t] = x[t] * 2.0
    lw.fence_proxy_async()
    lw.syncthreads()
    if t == 0:
        lw.tma.copy(x.aligned(16), tile, 256)
        lw.tma.commit()


@pytest.mark.parametrize(("arch", "severity"), [("sm_90a", "error"), ("sm_100a", "advice")])
def test_an_exit_with_a_store_in_flight(arch: str, severity: str) -> None:
    """CUTLASS's epilogues wait for the last store on sm_90, and do not on sm_100."""
    report = lw.check(stores_and_exits[1, 64], np.ones(64, np.float32), arch=arch)
    (finding,) = report.findings
    assert finding.severity == severity and "may still be reading shared memory" in finding.message
    assert report.ok == (severity == "advice")
