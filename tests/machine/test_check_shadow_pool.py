"""Shadow memory that one check leaves to the next: it is zero when it is taken, whatever was accessed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from lanewise.jit import threads
from lanewise.machine.checker import checked_launch
from lanewise.machine.checker.shadow_pool import MOST_KEPT_BYTES, MOST_KEPT_SPACE, Piece, ShadowPool

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry access(.param .u64 data)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r0, %r1, %r2, %r0;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1;
    ACCESS
    ret;
}
"""
ACCESSES = {
    "store": "st.global.u32 [%rd0], %r0;",
    "load": "ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd0], %r3;",
    "atomic": "atom.global.add.u32 %r3, [%rd0], 1;",
    "volatile": "ld.volatile.global.u32 %r3, [%rd0]; st.volatile.global.u32 [%rd0], %r3;",
    "release": "st.release.gpu.global.u32 [%rd0], %r0; ld.acquire.gpu.global.u32 %r3, [%rd0];",
}
#: Copies by TMA of 128 bytes by each block; what they leave in shadow memory is in planes of its own.
BULK_KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry access(.param .u64 data)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p<3>;
    .shared .align 128 .b8 buffer[128];
    .shared .align 8 .b64 done;
    ld.param.u64 %rd0, [data];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd1, %r1, 128;
    add.u64 %rd0, %rd0, %rd1;
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, buffer;
    mov.u32 %r3, done;
    mad.lo.u32 %r4, %r0, 4, %r2;
    st.shared.u32 [%r4], %r0;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared.b64 [%r3], 1;
    fence.proxy.async;
    bar.sync 0;
    @%p0 bra $END;
    ACCESS
$END:
    ret;
}
"""
BULK_ACCESSES = {
    "bulk load and store": """
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 128, [%r3];
$WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0;
    @!%p1 bra $WAIT;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;""",
    "bulk store": """
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;""",
    "bulk reduction of all blocks": """
    ld.param.u64 %rd0, [data];
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r2], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;""",
}
KERNELS = {name: KERNEL.replace("ACCESS", text) for name, text in ACCESSES.items()}
KERNELS |= {name: BULK_KERNEL.replace("ACCESS", text) for name, text in BULK_ACCESSES.items()}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ShadowPool:
    """A pool of its own for the checks of one test."""
    made = ShadowPool()
    monkeypatch.setattr("lanewise.machine.checker.watch.SHADOWS", made)
    return made


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("workers", [1, 3])
def test_memory_is_zero_when_it_is_taken_again(
    kind: str, workers: int, pool: ShadowPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was in use is cleared: the planes of these accesses, in the range that they touched."""
    monkeypatch.setattr(threads, "processors", lambda: workers)
    monkeypatch.setattr(checked_launch, "ALONE_SECONDS", 0)
    kernel = lw.load(KERNELS[kind])["access"]
    data = np.zeros(32 * 64, np.uint32)
    assert lw.check(kernel[32, 32], data).ok
    sizes = [piece.words.size for piece in pool._kept]
    assert sizes
    assert any(piece.words.any() for piece in pool._kept)
    for size in reversed(sizes):
        assert not pool.take(size).words.any()


def test_a_check_takes_the_memory_of_the_last(pool: ShadowPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same launch again needs no new memory, and finds the same."""
    monkeypatch.setattr(threads, "processors", lambda: 1)  # each thread of a check has memory of its own
    kernel = lw.load(KERNEL.replace("ACCESS", "st.global.u32 [%rd0], %r0; st.global.u32 [%rd0+4], %r0;"))
    reports, kept = [], []
    for _ in range(3):
        data = np.zeros(1025, np.uint32)
        reports.append(lw.check(kernel["access"][1, 1024], data))
        kept.append({id(piece) for piece in pool._kept})
    assert kept[0] and kept[0] == kept[1] == kept[2]
    assert [len(report.findings) for report in reports] == [1, 1, 1]
    assert len({str(report) for report in reports}) == 1


def test_what_is_kept_has_a_bound() -> None:
    """The oldest memory goes; what was never in use does not count."""
    pool = ShadowPool()
    words = MOST_KEPT_BYTES // 4 // 4
    pieces = [Piece(np.zeros(16 * words, np.uint32)) for _ in range(6)]
    for piece in pieces:
        pool.give(piece, [(0, words)])
    assert pool._kept == pieces[2:]
    pool.give(Piece(np.zeros(MOST_KEPT_SPACE // 4 + 1, np.uint32)), [])
    assert pool._kept == []


def test_a_lock_that_nobody_will_release_is_forgotten() -> None:
    """In a forked child it may be held by a thread that is not there."""
    pool = ShadowPool()
    pool._lock.acquire()
    pool.forget()
    assert pool.take(8).words.size == 8


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page as Linux does")
def test_no_check_reads_behind_its_shadow_memory() -> None:
    """Cells of global memory have fewer planes than those of shared memory."""
    program = str(Path(__file__).with_name("fenced_shadow.py"))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
