"""Every planted mistake is found, on its line and by its kind; its right twin is not accused.

The pairs lie in `mistakes/`, whose `corpus.py` says how they are written.
"""

from __future__ import annotations

from typing import Any

import pytest

from machine.mistakes.corpus import PAIRS, Pair, accusations

#: Mistakes that are not found yet, and why. A test fails when one of them is.
NOT_FOUND = {
    "test_without_loop": "the machine waits in mbarrier.test_wait, which on a GPU may give up",
    "function_without_value": "registers without a value are not followed through parameters of functions",
    "syncwarp_in_branch": "lanes that have exited are taken for lanes that returned early: advice",
    "bulk_add_and_plain_add": "additions of TMA are not held against plain stores of other blocks",
    "cluster_arrive_twice": "a second arrival at the cluster's barrier is not told",
    "cluster_copy_source_overwritten": "sources of copies between blocks of a cluster are not watched",
    "dsmem_no_proxy_fence": "stores into another block are not held against TMA's reads there",
    "dsmem_relaxed_arrive": "a relaxed arrival at the cluster's barrier counts as a release",
    "dsmem_written_after_arrive": "what is written between arrive and wait counts as released",
    "four_releases_for_one": "the deadlock is told, not the arrivals that are too many",
    "libcu_arrive_without_bytes": "the wait that never ends is told without a line",
    "map_replaced": "tensormap.replace is not held against the copies by that map",
    "map_replaced_elsewhere": "tensormap.replace is not held against the copies by that map",
    "more_arrivals_than_count": "the deadlock is told, not the arrivals that are too many",
    "multicast_expects_more": "the deadlock of a cluster is told without a line",
    "multicast_local_release": "the deadlock is told at the cluster's barrier, not the race before it",
    "registers_beyond_pool": "setmaxnreg is not watched",
    "registers_disagree": "setmaxnreg is not watched",
    "registers_not_given": "setmaxnreg is not watched",
    "registers_of_four_groups": "setmaxnreg is not watched",
    "registers_of_one_lane": "setmaxnreg is not watched",
    "registers_of_one_warp": "setmaxnreg is not watched",
    "registers_taken_downwards": "setmaxnreg is not watched",
    "registers_without_bound": "setmaxnreg is not watched",
    "remote_release_count": "a deadlock at the cluster's barrier is told, not the surplus arrivals",
    "store_async_expects_less": "the deadlock is told at the cluster's barrier, not at the wait",
    "try_wait_once": "the machine waits in mbarrier.try_wait, which on a GPU may give up",
    "wgmma_sums_unset": "accumulators of wgmma are not held to have a value",
}
#: Right kernels that are accused, and why. A test fails when one of them no longer is.
ACCUSED = {"reduce_tiles": "additions of TMA to one tile by several blocks are taken for a race"}


def marked(pair: Pair, failures: dict[str, str]) -> Any:
    """Return a pair as a parameter of a test, which must fail if the pair is among the known failures."""
    known = pair.name in failures
    marks = pytest.mark.xfail(strict=True, reason=failures[pair.name]) if known else ()
    return pytest.param(pair, id=str(pair.name), marks=marks)


PLANTED = [marked(pair, NOT_FOUND) for pair in PAIRS if pair.kinds]
RIGHT = [marked(pair, ACCUSED) for pair in PAIRS]


@pytest.mark.parametrize("pair", PLANTED)
def test_mistake_is_found(pair: Pair) -> None:
    report = pair.check(wrong=True)
    expected = f"{sorted(pair.kinds)} on lines {sorted(pair.lines)} of {pair.file}"
    found = [str(finding) for finding in report.findings]
    assert pair.found(report), f"{pair.hardware}: expected {expected}, found {found}"
    if not pair.advice:
        assert accusations(report), "only advice is given for what is wrong on hardware"


@pytest.mark.parametrize("pair", RIGHT)
def test_right_twin_is_not_accused(pair: Pair) -> None:
    assert not [str(finding) for finding in accusations(pair.check(wrong=False))]
