"""A test of an mbarrier orders what comes after it if its failure keeps the thread from going on."""

from __future__ import annotations

import numpy as np
import pytest

import lanewise as lw

#: Each step copies 16 bytes, looks whether they are there, waits for them unless they are, and looks ahead. A
#: thread with another number would skip the first look.
KERNEL = """
.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 tile[16];
.shared .align 8 .b64 bar;
.visible .entry steps(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<8>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, bar;
    mov.u32 %r2, tile;
    mov.u32 %r3, 0;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra END;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
HEAD:
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 16, [%r1];
    and.b32 %r4, %r3, 1;
    xor.b32 %r5, %r4, 1;
    mov.pred %p1, -1;
    @%p0 bra LOOKED;
    mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r4;
LOOKED:
    @%p1 bra THERE;
FIRST
THERE:
    ld.shared.u32 %r6, [%r2];
    st.global.u32 [%rd1], %r6;
    add.u64 %rd0, %rd0, 16;
    add.u64 %rd1, %rd1, 4;
    mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r5;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p4, %r3, 3;
    @%p4 bra HEAD;
END:
    ret;
}
"""
WAIT = "AGAIN:\n    mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r4;\n    @!%p2 bra AGAIN;\n"
#: A second try may fail as well, and nobody looks.
TRY = "    mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r4;\n"


@pytest.mark.parametrize("schedule", ["in order", "late"])
def test_look_ahead_that_nobody_heeds_does_not_undo_the_look_before_it(schedule: str) -> None:
    x, y = np.arange(12, dtype=np.uint32), np.zeros(3, np.uint32)
    for text in (
        KERNEL.replace("FIRST", WAIT),
        KERNEL.replace("@%p1 bra THERE;\nFIRST", f"@!%p1 bra AGAIN;\n    bra THERE;\n{WAIT}"),
    ):
        report = lw.check(lw.load(text)["steps"][1, 32], x, y, schedule=schedule)
        assert not [str(finding) for finding in report.findings if finding.severity == "error"]
        assert list(y) == [0, 4, 8]


def test_failed_look_that_leads_to_one_that_nobody_heeds_is_no_wait() -> None:
    x, y = np.arange(12, dtype=np.uint32), np.zeros(3, np.uint32)
    report = lw.check(lw.load(KERNEL.replace("FIRST", TRY))["steps"][1, 32], x, y)
    assert {finding.kind for finding in report.findings if finding.severity == "error"} == {
        "asynchronous copy"
    }


#: A thread arrives and announces bytes, stores, and completes the bytes itself, as the tile scheduler of
#: CUTLASS does for sm_120.
COMPLETED = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry completed(.param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %rd<3>; .reg .pred %p<4>;
    .shared .align 8 .b64 ready; .shared .align 4 .b32 word;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra $READY;
    mbarrier.init.shared.b64 [ready], 1;
$READY:
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 32;
    @%p1 bra $WAITS;
    mbarrier.arrive.expect_tx.shared.b64 _, [ready], 4;
    st.shared.u32 [word], 7;
    FENCE
    mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [ready], 4;
$WAITS:
    setp.ge.u32 %p2, %r0, 32;
    @%p2 bra $DONE;
$TEST:
    mbarrier.try_wait.parity.shared.b64 %p3, [ready], 0;
    @!%p3 bra $TEST;
    ld.shared.u32 %r1, [word];
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    st.global.u32 [%rd1], %r1;
$DONE:
    ret;
}
"""


@pytest.mark.parametrize("schedule", ["in order", "late", "reverse"])
@pytest.mark.parametrize(("fence", "kinds"), [("fence.acq_rel.cluster;", []), ("", ["race"])])
def test_bytes_that_a_thread_completes_behind_its_arrival_release_what_it_stored(
    fence: str, kinds: list[str], schedule: str
) -> None:
    launch = lw.load(COMPLETED.replace("FENCE", fence))["completed"][1, 64]
    report = lw.check(launch, np.zeros(32, np.uint32), schedule=schedule)
    assert [finding.kind for finding in report.findings] == kinds
