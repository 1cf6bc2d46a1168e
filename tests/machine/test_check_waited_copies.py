"""Copies by cp.async that another warp reads: waited for or not, in one round of a loop or in several."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw

#: Each of 4 warps copies 16 bytes per lane, all wait, and each warp reads what its neighbour copied.
KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pipeline(.param .u64 source, .param .u64 out, .param .u32 rounds) {
    .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<2>;
    .shared .align 16 .b8 tile[4096];
    ld.param.u64 %rd0, [source];
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r9, [rounds];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 16;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    mov.u32 %r1, tile;
    shl.b32 %r2, %r0, 4;
    add.u32 %r3, %r1, %r2;
    xor.b32 %r4, %r2, 512;
    add.u32 %r4, %r1, %r4;
AGAIN:
    cp.async.cg.shared.global [%r3], [%rd3], 16;
    cp.async.commit_group;
    WAIT
    bar.sync 0;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
    BARRIER
    sub.u32 %r9, %r9, 1;
    setp.ne.u32 %p0, %r9, 0;
    @%p0 bra AGAIN;
    st.global.v4.u32 [%rd4], {%r5, %r6, %r7, %r8};
    ret;
}
"""


def _check(wait: str = "cp.async.wait_group 0;", barrier: str = "bar.sync 0;", rounds: int = 3) -> Any:
    module = lw.load(KERNEL.replace("WAIT", wait).replace("BARRIER", barrier))
    source, out = np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32)
    return lw.check(module["pipeline"][1, 128], source, out, rounds)


def test_copies_that_are_waited_for_are_right_and_others_are_found() -> None:
    assert _check().ok
    assert [each.kind for each in _check(wait="").findings if each.severity == "error"]
    kinds = {each.kind for each in _check(barrier="").findings if each.severity == "error"}
    assert "race" in kinds
    # One round needs no second barrier.
    assert _check(barrier="", rounds=1).ok


#: A warp copies 512 bytes to shared memory, and a lane copies them back by the asynchronous proxy.
COPIED_BACK = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copied_back(.param .u64 source, .param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<1>;
    .shared .align 128 .b8 tile[512];
    ld.param.u64 %rd0, [source];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 16;
    add.s64 %rd2, %rd0, %rd2;
    mov.u32 %r1, tile;
    shl.b32 %r2, %r0, 4;
    add.u32 %r2, %r1, %r2;
    cp.async.cg.shared.global [%r2], [%rd2], 16;
    cp.async.wait_all;
    FENCE
    bar.warp.sync 0xffffffff;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:
    ret;
}
"""


def test_what_cp_async_wrote_needs_a_fence_before_the_asynchronous_proxy_reads_it() -> None:
    def check(fence: str) -> Any:
        source, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
        module = lw.load(COPIED_BACK.replace("FENCE", fence))
        return lw.check(module["copied_back"][1, 32], source, out)

    assert not check("fence.proxy.async;").findings
    (finding,) = check("").findings
    assert (finding.kind, finding.severity) == ("proxy", "error")
    assert "cp.async, which is of the generic proxy, wrote these bytes" in finding.message
    line = COPIED_BACK[: COPIED_BACK.index("cp.async.cg")].count("\n") + 1
    assert f"`fence.proxy.async` after a wait for the copies of line {line}, " in finding.mend


#: All lanes of a warp copy a word to the same place: from FROM, and as many bytes as BYTES says.
TO_ONE_PLACE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry to_one_place(.param .u64 source, .param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %p<2>;
    .shared .align 16 .b8 tile[16];
    ld.param.u64 %rd0, [source];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, SIZE;
    add.s64 %rd2, %rd0, %rd2;
    mov.u32 %r1, tile;
    setp.eq.u32 %p0, %r0, 7;
    setp.eq.u32 %p1, %r0, 99;
    selp.u32 %r2, 0, 4, %p0;
    selp.u32 %r3, 0, 4, %p1;
    cp.async.ca.shared.global [%r1], [FROM], SIZE BYTES;
    cp.async.wait_all;
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %r4, [%r1];
    mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r4;
    ret;
}
"""


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize(
    "start, length, ok",
    [
        ("%rd0", "", True),
        ("%rd0+4", ", %r3", True),
        ("%rd0", ", %p1", True),
        ("%rd2", "", False),
        ("%rd0", ", %r2", False),
        ("%rd0", ", %p0", False),
    ],
)
def test_lanes_that_copy_the_same_bytes_to_one_place_do_not_race(
    start: str, length: str, ok: bool, size: int
) -> None:
    start = start.replace("+4", f"+{size}")
    module = lw.load(TO_ONE_PLACE.replace("FROM", start).replace("BYTES", length).replace("SIZE", str(size)))
    source, out = np.arange(512, dtype=np.uint32), np.zeros(32, np.uint32)
    report = lw.check(module["to_one_place"][1, 32], source, out)
    errors = {each.kind for each in report.findings if each.severity == "error"}
    assert errors == (set() if ok else {"race"}), str(report)
