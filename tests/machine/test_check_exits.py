"""Whether a block of a cluster may have exited follows from what its threads wait for, not from the order.

The pairs of `mistakes/hopper/exits.cu`, of arrivals and of grids are checked in several orders.
"""

from __future__ import annotations

from typing import Any

import pytest

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
