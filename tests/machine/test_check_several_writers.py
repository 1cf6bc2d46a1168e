"""Lanes of one instruction that store the same value: who of the warp may read it, and write it again."""

import numpy as np
import pytest

import lanewise as lw


@lw.kernel
def several_lanes(out: lw.Ptr[lw.i32], case: lw.Constexpr) -> None:
    lane = lw.thread_idx.x
    shared = lw.shared(lw.i32, 32)
    if case == "two write, all read":
        if lane < 2:
            shared[0] = 7
    elif case == "all write, and one again":
        shared[0] = 7
        if lane == 30:
            shared[0] = 99
        lw.syncwarp()
    elif case == "all write, and the first again":
        shared[0] = 7
        if lane == 0:
            shared[0] = 99
        lw.syncwarp()
    elif case == "all write, and then their own":
        shared[0] = 7
        shared[lane] = lane
        lw.syncwarp()
    elif case == "all write and read":
        shared[0] = 7
    elif case == "all write twice":
        shared[0] = 7
        shared[0] = 99
    elif case == "one writes what is there":
        shared[0] = 7
        if lane == 30:
            shared[0] = 7
        lw.syncwarp()
    elif case == "met between":
        if lane < 5:
            shared[0] = 7
        lw.syncwarp()
        if lane == 30:
            shared[0] = shared[0] + 1
        lw.syncwarp()
    out[lane] = shared[0]


RACES = (
    "two write, all read", "all write, and one again", "all write, and the first again",
    "all write, and then their own",
)  # fmt: skip


@pytest.mark.parametrize(
    "case", [*RACES, "all write and read", "all write twice", "one writes what is there", "met between"]
)
def test_each_writer_counts(case: str) -> None:
    report = lw.check(several_lanes[1, 32], np.zeros(32, np.int32), case=case)
    assert [finding.kind for finding in report.findings][:1] == ["race"] * (case in RACES)


@lw.kernel
def flag_of_several(x: lw.Ptr[lw.i32], found: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]) -> None:
    lane = lw.thread_idx.x
    if x[lane] > 5:
        found[0] = 1
    out[lane] = found[0]


@pytest.mark.parametrize("setters", [1, 2, 5])
def test_a_flag_in_global_memory_is_read_after_it_is_set(setters: int) -> None:
    x = np.where(np.arange(32) < setters, 9, 0).astype(np.int32)
    report = lw.check(flag_of_several[1, 32], x, np.zeros(1, np.int32), np.zeros(32, np.int32))
    assert report.findings and report.findings[0].kind == "race"
