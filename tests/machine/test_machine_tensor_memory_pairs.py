"""Tensor memory of pairs of blocks, its allocation, and the order of the pipe in all schedules."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import Deadlock, KernelFault
from lanewise.machine.compile.compiled import compiled
from lanewise.machine.runtime.launch import Launch
from lanewise.ptx import Shape
from machine.tensor_memory_kernels import registers
from ptxas import assemble, find_ptxas

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b32 %d<64>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<8>; .reg .b16 %h<4>;
    .shared .align 16 .b32 place[16]; .shared .align 8 .b64 bars[4]; .shared .align 1024 .b8 tile[4096];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %ctaid.x;
"""


def ptx(body: str) -> str:
    """A kernel: %r0 is the thread, %r1 its warp, %r2 the rank, %r3 the block, %rd0 the output."""
    return f"{HEAD}{body}\n    ret;\n}}\n"


def run(body: str, shape: tuple[int, int], out: np.ndarray, **options: Any) -> np.ndarray:
    """Run a kernel after ptxas has taken it; return what it wrote."""
    text = ptx(body)
    if find_ptxas() is not None:
        assert assemble(text, "sm_100a") == []
    lw.load(text)["k"][shape](out, **options)
    return out


def alloc(columns: int | str, place: str = "place", group: int = 1) -> str:
    """tcgen05.alloc to a place in shared memory."""
    return f"    tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [{place}], {columns};\n"


def dealloc(address: str, columns: int, group: int = 1) -> str:
    """tcgen05.dealloc of what a register names."""
    return f"    tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 {address}, {columns};\n"


# allocation -------------------------------------------------------------------------------------------------


def test_an_allocation_waits_until_columns_are_freed() -> None:
    """Warp 0 takes 256 and then 128 columns; warp 1 waits for 256 in one piece until warp 0 frees 256."""
    body = (
        "    setp.ne.u32 %p0, %r1, 0; @%p0 bra SECOND;\n"
        + alloc(256)
        + alloc(128, "place+4")
        + "    bar.sync 1, 64; ld.shared.u32 %r10, [place]; ld.shared.u32 %r11, [place+4];\n"
        + "    mov.u32 %r12, 7; st.shared.u32 [place+32], %r12;\n"
        + dealloc("%r10", 256)
        + dealloc("%r11", 128)
        + "    bra DONE;\nSECOND:\n    bar.sync 1, 64;\n"
        + alloc(256, "place+8")
        + "    ld.shared.u32 %r13, [place+8]; ld.shared.u32 %r14, [place+32];\n"
        + dealloc("%r13", 256)
        + "DONE:\n    bar.sync 0; setp.ne.u32 %p1, %r0, 32; @%p1 bra LAST;\n"
        + "    ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [place];\n"
        + "    st.global.v4.u32 [%rd0], {%r20, %r21, %r22, %r14};\nLAST:"
    )
    found = run(body, (1, 64), np.zeros(4, np.uint32))
    assert found.tolist() == [0, 256, 0, 7]


@pytest.mark.parametrize("columns", [32, 64, 128, 256, 512])
def test_columns_are_given_out_once(columns: int) -> None:
    """As many allocations as there is room for have addresses that do not overlap."""
    count = 512 // columns
    body = "    setp.ne.u32 %p0, %r1, 0; @%p0 bra DONE;\n"
    body += "".join(alloc(columns, f"place+{4 * n}") for n in range(count))
    for n in range(count):
        body += f"    ld.shared.u32 %r10, [place+{4 * n}]; st.global.u32 [%rd0+{4 * n}], %r10;\n"
        body += dealloc("%r10", columns)
    found = run(body + "DONE:", (1, 64), np.full(16, 9999, np.uint32))[:count]
    assert sorted(found.tolist()) == list(range(0, 512, columns))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "    mov.u32 %r9, 48;\n" + alloc("%r9"),
            "48 columns: tensor memory is allocated and freed in 32, 64",
        ),
        ("    mov.u32 %r9, 1024;\n" + alloc("%r9"), "1024 columns"),
        ("    mov.u32 %r9, 0;\n" + alloc("%r9"), "0 columns"),
        ("    mov.u32 %r9, 16;\n" + alloc("%r9"), "16 columns"),
        ("    mov.u32 %r9, -32;\n" + alloc("%r9"), "4294967264 columns"),
        (alloc("%r0"), "number of columns is not the same in all lanes"),
        (
            "    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + alloc(32),
            "after the block gave up the right to allocate",
        ),
        ("    mov.u32 %r9, 0;\n" + dealloc("%r9", 32), "is no allocation"),
        (alloc(64) + "    ld.shared.u32 %r9, [place];\n" + dealloc("%r9", 32), "is no allocation"),
        (alloc(32) * 2 + "    mov.u32 %r9, 0;\n" + dealloc("%r9", 64), "is no allocation"),
        (
            alloc(32) + "    ld.shared.u32 %r9, [place];\n" + dealloc("%r9", 32) * 2,
            "is no allocation: free what tcgen05.alloc returned",
        ),
        (alloc(64) + "    mov.u32 %r9, 32;\n" + dealloc("%r9", 32), "0x20 .* is no allocation"),
        (alloc(64) + "    mov.u32 %r9, 2147483648;\n" + dealloc("%r9", 64), "is no allocation"),
        (alloc(32, group=2), r"cta_group::2 needs the two blocks of a pair.*cluster of this launch has 1"),
        (dealloc("%r0", 64), "the address is not the same in all lanes"),
        ("    setp.lt.u32 %p0, %r0, 3;\n    @%p0" + alloc(32), "not all lanes of the warp execute"),
    ],
)
def test_wrong_allocations_are_faults(body: str, message: str) -> None:
    with pytest.raises((KernelFault, Deadlock), match=message):
        run(body, (1, 32), np.zeros(4, np.uint32))


def test_allocations_that_wait_for_each_other_are_a_deadlock_that_says_so() -> None:
    """Both warps have 256 columns and ask for 128 more: nobody can free any."""
    with pytest.raises(Deadlock) as caught:
        run(
            alloc(256, "place") + "    bar.sync 0;\n" + alloc(128, "place+4"), (1, 64), np.zeros(4, np.uint32)
        )
    message = str(caught.value)
    assert "64 threads wait for free columns of tensor memory, line" in message
    assert "all 512 columns are allocated" in message
    assert "mend: free columns (tcgen05.dealloc) before more are allocated" in message


def test_blocks_that_follow_one_another_begin_with_free_columns() -> None:
    """A block that never freed its columns leaves them free to the next one, and memory is bounded."""
    body = (
        alloc(512) + "    ld.shared.u32 %r9, [place]; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1;\n"
    )
    body += "    add.u32 %r9, %r9, 1; st.global.u32 [%rd1], %r9;"
    assert (run(body, (500, 32), np.zeros(500, np.uint32)) == 1).all()


# pairs ------------------------------------------------------------------------------------------------------

MEET = "    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"


def test_a_pair_allocates_together_and_gets_the_same_columns() -> None:
    """The block of rank 1 has other columns in use: both get those that are free in both."""
    body = (
        alloc(64, "place", 2)
        + "    ld.shared.u32 %r10, [place];\n"
        + alloc(128, "place+4", 2)
        + "    ld.shared.u32 %r11, [place+4];\n"
        + dealloc("%r10", 64, 2)
        + alloc(32, "place+8", 2)
        + "    ld.shared.u32 %r12, [place+8];\n"
        + dealloc("%r11", 128, 2)
        + dealloc("%r12", 32, 2)
        + "    mul.wide.u32 %rd1, %r3, 16; add.u64 %rd1, %rd0, %rd1; mov.u32 %r13, 5;\n"
        + "    st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};"
    )
    found = run(body, (8, 32), np.zeros((8, 4), np.uint32), cluster=4)
    assert (found == [0, 64, 0, 5]).all()


def test_a_pair_waits_for_the_block_that_comes_later() -> None:
    """The block of rank 1 spins before it allocates; the other one waits, whichever runs first."""
    for late in (0, 1):
        body = (
            f"    setp.ne.u32 %p0, %r2, {late}; @%p0 bra GO; mov.u32 %r20, 0;\n"
            "SPIN:\n    add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 5000; @%p1 bra SPIN;\nGO:\n"
            + alloc(512, "place", 2)
            + "    ld.shared.u32 %r10, [place];\n"
            + dealloc("%r10", 512, 2)
            + alloc(512, "place", 2)
            + dealloc("%r10", 512, 2)
            + "    mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1; mov.u32 %r13, 5;\n"
            + "    st.global.u32 [%rd1], %r13;"
        )
        assert (run(body, (4, 32), np.zeros(4, np.uint32), cluster=2) == 5).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "    setp.eq.u32 %p0, %r2, 1; @%p0 bra DONE;\n" + alloc(32, "place", 2) + "DONE:\n" + MEET,
            "a warp waits for 32 in both blocks of its pair",
        ),
        (
            "    setp.eq.u32 %p0, %r2, 1; @%p0 bra DONE; mov.u32 %r20, 0;\n"
            "SPIN:\n    add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 90000; @%p1 bra SPIN;\n"
            + alloc(32, "place", 2)
            + "DONE:",
            r"the other block of the pair \(rank 1 in the cluster\) has exited",
        ),
        (
            "    mad.lo.u32 %r9, %r2, 32, 32;\n" + alloc("%r9", "place", 2) + MEET,
            "the other block of the pair asks for another number of columns",
        ),
    ],
)
def test_pairs_that_do_not_agree_are_faults_or_deadlocks(body: str, message: str) -> None:
    with pytest.raises((KernelFault, Deadlock), match=message):
        run(body, (2, 32), np.zeros(4, np.uint32), cluster=2)


# the pipe ---------------------------------------------------------------------------------------------------

#: Thread 0 of the even block copies, shifts, copies again, and commits to the mbarriers of both blocks.
PIPE = (
    """
    setp.ne.u32 %p5, %r1, 0; @%p5 bra ALLOCATED;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [place], 64;
ALLOCATED:
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared::cta.b64 [bars], 1; @%p0 mbarrier.init.shared::cta.b64 [bars+8], 1;
    @%p0 fence.mbarrier_init.release.cluster;
    mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 32, %r4;   // row n of the tile has 32 * n + rank * 10000 in it
    mad.lo.u32 %r6, %r2, 10000, %r0;
    st.shared.v4.u32 [%r5], {%r6, %r6, %r6, %r6}; st.shared.v4.u32 [%r5+16], {%r6, %r6, %r6, %r6};
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""
    + MEET
    + """
    ld.shared.u32 %r10, [place];
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    and.b32 %r7, %r4, 0x3FFFF; shr.u32 %r7, %r7, 4; cvt.u64.u32 %rd1, %r7;
    // rows of 32 bytes: 8 of them are 256 bytes, swizzle of 32 bytes
    mov.u64 %rd2, 0xC000401000010000; or.b64 %rd1, %rd1, %rd2;
    setp.ne.u32 %p1, %r2, 0; @%p1 bra WAITING;
    @!%p0 bra WAITING;
    tcgen05.cp.cta_group::2.128x256b [%r10], %rd1;
    tcgen05.shift.cta_group::2.down [%r10];
    add.u32 %r11, %r10, 0x001F0000;
    tcgen05.cp.cta_group::2.4x256b [%r11], %rd1;
    mov.b16 %h0, 3;
    tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bars], %h0;
    // what comes after the commit is not waited for, but comes after it
    tcgen05.shift.cta_group::2.down [%r10];
    tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bars+8], %h0;
WAITING:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bars], 0;
    @!%p2 bra WAITING;
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bars+8], 0;
    @!%p2 bra AGAIN;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {d8}, [%r10];
    tcgen05.wait::ld.sync.aligned;
    mad.lo.u32 %r12, %r3, 128, %r0; mul.wide.u32 %rd3, %r12, 4; add.u64 %rd3, %rd0, %rd3;
    st.global.u32 [%rd3], %d7;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
"""
    + MEET
    + "    @%p5 bra FREED;\n"
    + dealloc("%r10", 64, 2)
    + "FREED:"
).replace("{d8}", registers("d", 8))


@pytest.mark.parametrize("schedule", [None, "late", 1, 2, 3, 4])
def test_operations_of_the_pipe_take_effect_in_order(schedule: object) -> None:
    """After the second phase: rows moved by two lanes, the last lane of each warp filled in between."""
    out = np.zeros((4, 128), np.uint32)
    found = run(PIPE, (4, 128), out, cluster=2, **({} if schedule is None else {"schedule": schedule}))
    for block in range(4):
        rows = np.arange(128) + 10000 * (block % 2)
        expected = rows.copy()
        expected[:31] = rows[1:32]
        expected[[31, 63, 95, 127]] = rows[:4]
        expected[:31] = expected[1:32].copy()
        np.testing.assert_array_equal(found[block], expected)


@pytest.mark.parametrize(
    ("address", "commit"),
    [
        ("mov.u32 %r5, bars; cvt.u64.u32 %rd4, %r5;", ".b64 [%rd4]"),  # as Triton 3.6 writes it
        ("mov.u64 %rd4, bars; cvta.shared.u64 %rd4, %rd4;", ".b64 [%rd4]"),
        ("mov.u32 %r5, bars;", ".shared::cluster.b64 [%r5]"),
        ("mov.u32 %r5, bars; mapa.shared::cluster.u32 %r5, %r5, 1;", ".shared::cluster.b64 [%r5]"),
        ("mov.u64 %rd4, bars; cvta.shared.u64 %rd4, %rd4; mapa.u64 %rd4, %rd4, 1;", ".b64 [%rd4]"),
    ],
)
def test_a_commit_names_its_mbarrier_by_any_address_of_the_cluster(address: str, commit: str) -> None:
    """Rank 0 commits to its own mbarrier, or to that of rank 1; the block that owns it waits."""
    owner = int("mapa" in address)
    body = (
        "    setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [bars], 1;\n" + alloc(32) + MEET
        + f"    {address} setp.ne.u32 %p1, %r2, 0; @%p1 bra ISSUED;\n"
        + f"    @%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one{commit};\n"
        + f"ISSUED:\n    setp.ne.u32 %p1, %r2, {owner}; @%p1 bra DONE;\n"
        + "WAITING:\n    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bars], 0; @!%p2 bra WAITING;\n"
        + "    mov.u32 %r6, 3; st.global.u32 [%rd0], %r6;\nDONE:\n" + MEET
        + "    ld.shared.u32 %r9, [place];\n" + dealloc("%r9", 32)
    )  # fmt: skip
    for schedule in ("early", "late"):
        assert run(body, (2, 32), np.zeros(1, np.uint32), cluster=2, schedule=schedule)[0] == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bars];",
            "no mbarrier was init",
        ),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd0];", "not in the shared memory of the"),
        (
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [bars];",
            "is for a pair of blocks, and",
        ),
        (
            "mov.b16 %h0, 5; tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster"
            ".multicast::cluster.b64 [bars], %h0;",
            "the mask 0x5 names a block that is not in the cluster",
        ),
        ("tcgen05.shift.cta_group::1.down [%r9+65536];", "names lane 1, and this shape"),
        ("tcgen05.shift.cta_group::1.down [%r9+60];", "columns from 60 on"),
        ("tcgen05.cp.cta_group::1.128x256b [%r9+508], %rd0;", "reaches column 515"),
        ("mov.u64 %rd1, 0; tcgen05.cp.cta_group::1.128x256b [%r9], %rd1;", "none that a copy takes"),
        ("mov.u64 %rd1, 0x2000400000000000; tcgen05.cp.cta_group::1.4x256b [%r9], %rd1;", "none that a copy"),
        (
            "mov.u64 %rd1, 0x0000400100013FFF; tcgen05.cp.cta_group::1.128x256b [%r9], %rd1;",
            "shared read of 16 bytes out of bounds",
        ),
        (
            "mov.u64 %rd1, 0x0000400100010100; tcgen05.cp.cta_group::1.4x256b [%r9+2097152], %rd1;",
            "reaches lane 128",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd0, %rd0, %r9, %p0;", "."),
    ],
)
def test_wrong_operations_are_faults(line: str, message: str) -> None:
    body = alloc(64) + f"    ld.shared.u32 %r9, [place]; setp.eq.u32 %p0, %r0, 99; {line}\n"
    with pytest.raises((KernelFault, lw.machine.Unsupported), match=message):
        lw.load(ptx(body))["k"][1, 32](np.zeros(4, np.uint32))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_copy_from_out_of_bounds_is_in_the_block_s_own_memory(rank: int) -> None:
    body = f"""
    setp.ne.u32 %p0, %r2, {rank};
    @%p0 ret;
    {alloc(64)}
    ld.shared.u32 %r9, [place];
    mov.u64 %rd1, 0x0000400100013FFF; tcgen05.cp.cta_group::1.128x256b [%r9], %rd1;
    """
    message = rf"(?s)shared read of 16 bytes out of bounds.*in the block of rank {rank}"
    with pytest.raises(KernelFault, match=message):
        lw.load(ptx(body))["k"][2, 32](np.zeros(4, np.uint32), cluster=2)


# stores that a schedule keeps -------------------------------------------------------------------------------

STORE = """
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
    ld.shared.u32 %r10, [place];
    mov.u32 %d0, 5; mov.u32 %d1, 6; add.u32 %d2, %r0, 100; add.u32 %d3, %r0, 200;
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r10], {{%d0, %d1}};
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r10], {{%d2, %d3}};
    mov.u32 %d2, 0; mov.u32 %d3, 0;
    {wait}
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%d8, %d9}}, [%r10];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %rd1, %r0, 8; add.u64 %rd1, %rd0, %rd1; st.global.v2.u32 [%rd1], {{%d8, %d9}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
"""


@pytest.mark.parametrize("schedule", ["early", "late", *range(6)])
def test_stores_have_taken_effect_after_their_wait(schedule: object) -> None:
    """The registers may change after the store, and of two stores to one place the later one counts."""
    text = STORE.format(wait="tcgen05.wait::st.sync.aligned;")
    found = run(text, (1, 32), np.zeros((32, 2), np.uint32), schedule=schedule)
    np.testing.assert_array_equal(found, np.arange(32)[:, None] + [100, 200])


def test_a_late_schedule_shows_that_the_wait_is_missing() -> None:
    found = run(STORE.format(wait=""), (1, 32), np.ones((32, 2), np.uint32), schedule="late")
    assert not found.any()


# launches ---------------------------------------------------------------------------------------------------


def test_checks_and_traces_of_these_kernels_find_nothing() -> None:
    """The checker does not follow tensor memory yet; it says nothing of right kernels, in any schedule."""
    kernel = lw.load(ptx(PIPE))["k"]
    out = np.zeros((4, 128), np.uint32)
    assert not lw.check(kernel[4, 128], out, cluster=2, schedule="late").findings
    assert out[0, :3].tolist() == [2, 3, 4]
    assert len(lw.trace(kernel[2, 128], np.zeros((4, 128), np.uint32), cluster=2)) > 50


def test_only_kernels_with_tcgen05_have_tensor_memory() -> None:
    shape, arguments = Shape((1, 1, 1), (32, 1, 1)), (np.zeros(4, np.uint32),)
    entries = [lw.load(ptx(body))["k"] for body in ("", alloc(32))]
    plain, with_it = (
        Launch(compiled(each.module, each.function, "sm_100a"), shape, arguments).new_block(0)
        for each in entries
    )
    assert (plain.tensor_memory.size, with_it.tensor_memory.size) == (0, 128 * 512 * 4)
    assert with_it.bytes - plain.bytes >= 128 * 512 * 4


def test_warps_beyond_the_fourth_reach_the_lanes_of_their_number_modulo_four() -> None:
    """Warp 6 stores, warp 2 loads: both reach lanes 64 to 95."""
    body = (
        "    setp.ne.u32 %p0, %r1, 0; @%p0 bra ALLOCATED;\n"
        + alloc(32)
        + "ALLOCATED:\n    bar.sync 0; ld.shared.u32 %r10, [place];\n"
        + "    setp.ne.u32 %p1, %r1, 6; @%p1 bra STORED; mov.u32 %d0, %r0;\n"
        + "    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r10], {%d0}; tcgen05.wait::st.sync.aligned;\n"
        + "STORED:\n    bar.sync 0; setp.ne.u32 %p1, %r1, 2; @%p1 bra LOADED;\n"
        + "    add.u32 %r11, %r10, 0x400000; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d1}, [%r11];\n"
        + "    tcgen05.wait::ld.sync.aligned; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1;\n"
        + "    st.global.u32 [%rd1], %d1;\nLOADED:\n    bar.sync 0; @%p0 bra FREED;\n"
        + dealloc("%r10", 32)
        + "FREED:"
    )
    found = run(body, (1, 256), np.zeros(256, np.uint32))
    assert found[64:96].tolist() == list(range(192, 224))


def test_a_spread_launch_has_tensor_memory_too() -> None:
    """Jobs of an executor run ranges of blocks."""
    body = alloc(64) + "    ld.shared.u32 %r9, [place]; mov.u32 %d0, %r3;\n"
    body += "    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%d0}; tcgen05.wait::st.sync.aligned;\n"
    body += "    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d1}, [%r9]; tcgen05.wait::ld.sync.aligned;\n"
    body += "    mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %d1;\n"
    out = np.zeros(40, np.uint32)
    with ThreadPoolExecutor(2) as pool:
        lw.load(ptx(body + dealloc("%r9", 64)))["k"][40, 32](out, executor=pool)
    assert out.tolist() == list(range(40))
