"""Every planted mistake is found, on its line and by its kind; its right twin is not accused.

The pairs lie in `mistakes/`, whose `corpus.py` says how they are written.
"""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from machine.mistakes.corpus import PAIRS, Pair, accusations, in_the_suite

#: Mistakes that are not found yet, and why. A test fails when one of them is.
NOT_FOUND: dict[str, str] = {}


def marked(pair: Pair, failures: dict[str, str]) -> Any:
    """Return a pair as a parameter of a test, which must fail if the pair is among the known failures."""
    known = pair.name in failures
    marks = pytest.mark.xfail(strict=True, reason=failures[pair.name]) if known else ()
    return pytest.param(pair, id=str(pair.name), marks=marks)


PLANTED = [marked(pair, NOT_FOUND) for pair in PAIRS if pair.kinds and pair.name in in_the_suite()]
RIGHT = [marked(pair, {}) for pair in PAIRS if pair.name in in_the_suite()]


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


def test_fence_of_a_warpgroup_behind_the_barrier_needs_no_advice() -> None:
    (pair,) = [each for each in PAIRS if each.name == "changed_tile_fenced_late"]
    assert not pair.check(wrong=False).findings


@pytest.mark.parametrize("schedule", ["in order", "late", "reverse"])
def test_one_thread_releases_what_its_group_of_warps_has_fenced(schedule: str) -> None:
    """Other warps of the block need not come to the barrier; the fence and the barrier are needed."""
    pairs = [each for each in PAIRS if each.name.startswith("tickets_of_pairs_")]
    assert len(pairs) == 3
    for pair in pairs:
        assert not pair.check(wrong=False, schedule=schedule).findings
        assert pair.found(pair.check(wrong=True, schedule=schedule))


SCATTER = """extern "C" __global__ void scatter(const int* to, const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[to[i]] = x[i];
}"""


@pytest.mark.parametrize("seed", range(6))
def test_rounds_of_a_loop_write_the_same_values_to_the_same_places(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, threads = 150, 32 * int(random.integers(1, 3))
    to = random.integers(0, 40, count).astype(np.int32)
    values = random.standard_normal(40).astype(np.float32)[to]  # one value for each place
    y, launch = np.zeros(40, np.float32), lw.cuda(SCATTER)["scatter"][1, threads]
    assert not lw.check(launch, to, values, y, count).findings
    values[-1] += 1  # now another value is written to one place
    others = (np.arange(count) - (count - 1)) % threads != 0
    assert bool((to[others] == to[-1]).any()) != lw.check(launch, to, values, y, count).ok
