"""Who waits for whom: barriers of blocks and clusters, mbarriers, warpgroups; deadlocks too."""

import numpy as np
import pytest

import cluster_kernels
import lanewise as lw
from machine.bulk_copy_kernels import TO_SHARED, WAIT, kernel

LATE = kernel(
    f"""
    @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    {TO_SHARED} [%r1], [%rd0], 1024, [%r2];
    {WAIT}
    ld.shared.u32 %r5, [%r1];
    st.global.u32 [%rd1], %r5;
    """
)


def test_a_phase_of_an_mbarrier_is_waited_for_until_the_bytes_arrive() -> None:
    a, b = np.arange(256, dtype=np.uint32), np.zeros(32, np.uint32)
    run = lw.trace(lw.load(LATE)["k"][1, 64], a, b, schedule="late")
    issue = next(step for step in run.steps if TO_SHARED in step.text)
    test = next(step for step in run.steps if "try_wait" in step.text)
    (copy,) = run.copies
    assert copy.bytes == 1024 and copy.completed is not None and issue.number < copy.completed <= test.number
    between = run.at(test.number - 1)
    assert between.warp == 1
    (waiting,) = between.waiting  # warp 1 is about to, and the bytes come just then
    assert waiting.kind == "mbarrier" and waiting.lanes == 0xFFFFFFFF and waiting.since == issue.number
    assert str(waiting) == (
        f"warp 0 waits for the phase of parity 0 of the mbarrier bar since step {issue.number}: "
        "it lacks 1024 bytes"
    )
    assert not [each for each in test.waiting if each.kind == "mbarrier"]
    early = lw.trace(lw.load(LATE)["k"][1, 32], a, b)
    assert not [step for step in early.steps if step.waiting]  # the bytes are there at once


def test_a_deadlock_says_what_an_mbarrier_lacks() -> None:
    text = LATE.replace("_, [bar], 1024", "_, [bar], 2048")
    run = lw.trace(lw.load(text)["k"][1, 64], np.zeros(256, np.uint32), np.zeros(32, np.uint32))
    assert "deadlock" in run.fault
    waiting = run.at(-1).waiting
    assert [each.warp for each in waiting] == [0, 1]
    assert all(each.missing == "it lacks 1024 bytes" for each in waiting)
    alone = LATE.replace("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;", "bra WAIT;")
    run = lw.trace(lw.load(alone)["k"][1, 32], np.zeros(256, np.uint32), np.zeros(32, np.uint32))
    assert [each.missing for each in run.at(-1).waiting] == ["it lacks 1 of 1 arrivals"]


def test_blocks_of_a_cluster_wait_for_each_other() -> None:
    ring = lw.load(cluster_kernels.RING)["k"][2, 32]
    run = lw.trace(ring, np.zeros(32, np.uint32), blocks="all", cluster=2)
    first = next(step for step in run.steps if step.text.startswith("barrier.cluster.wait"))
    (waiting,) = first.waiting
    other = 1 - first.block[0]
    assert waiting.kind == "cluster" and waiting.since == first.number
    assert str(waiting).endswith(f"step {first.number}: warp 0 of block ({other}, 0, 0) has not arrived")
    assert "waits at the barrier of its cluster" in str(waiting)
    kinds = {each.kind for step in run.steps for each in step.waiting}
    assert kinds == {"cluster", "mbarrier"}
    remote = next(each for step in run.steps for each in step.waiting if each.kind == "mbarrier")
    assert (
        remote.what.startswith("for the phase of parity 0 of the mbarrier bar")
        and "arrivals" in remote.missing
    )
    one = lw.trace(ring, np.zeros(32, np.uint32), blocks=[(1,)], cluster=2)
    told = {each.missing for step in one.steps for each in step.waiting if each.kind == "cluster"}
    assert told <= {"", "blocks that are not traced have not arrived"} and told


NAMED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p0, %r0, 64;
    @%p0 bra LAST;
    barrier.sync 3, 96;
    bra DONE;
LAST:
    barrier.arrive 3, 96;
DONE:
    ret;
}"""


def test_named_barriers_count_those_who_arrive_without_waiting() -> None:
    run = lw.trace(lw.load(NAMED)["k"][1, 96], np.zeros(1, np.uint32))
    said = [str(each) for step in run.steps for each in step.waiting if each.warp == 0]
    assert "32 of 96 threads have arrived" in said[0] and said[0].startswith("warp 0 waits at barrier 3")
    assert any("64 of 96 threads have arrived" in each for each in said)
    broken = lw.trace(lw.load(NAMED.replace("3, 96", "3, 128"))["k"][1, 96], np.zeros(1, np.uint32))
    assert broken.fault and len(broken.at(-1).waiting) == 2
    assert all(each.missing == "96 of 128 threads have arrived" for each in broken.at(-1).waiting)


@pytest.mark.parametrize("come", [128, 96])
def test_warps_of_a_warpgroup_wait_for_each_other(come: int) -> None:
    from machine.warpgroup import module, statement

    text = module(
        f"setp.ge.u32 %p1, %r8, {come};\n@%p1 bra DONE;\nwgmma.fence.sync.aligned;\n"
        f"{statement(lw.instruction(SMALL), scale_d='0')}\n"
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nDONE:"
    )
    run = lw.trace(lw.load(text)["k"][1, 128], np.zeros(1, np.uint32), arch="sm_90a")
    waits = [each for step in run.steps for each in step.waiting]
    assert {each.kind for each in waits} == {"warpgroup"}
    assert "waits for the other warps of its warpgroup" in str(waits[0])
    assert waits[0].missing == "warps 1, 2, 3 missing"
    if come == 96:
        assert run.fault and {each.missing for each in run.at(-1).waiting} == {"warp 3 missing"}
    else:
        assert not run.fault and not run.at(-1).waiting


SMALL = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
