"""Bulk copies, reductions and asynchronous stores on the CPU machine, early, late and at random."""

import json
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine.errors import KernelFault
from machine.bulk_copy_kernels import (
    REDUCED,
    STORED,
    TO_GLOBAL,
    TO_SHARED,
    WAIT,
    WITHIN,
    copied,
    kernel,
    remote,
    store_and_wait,
)
from tensor_copy_cases import digest, operands

RECORD = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "h200_tensor_copies.json").read_text()
)
SCHEDULES = (None, "early", "late", 1, 2, 3)


#: The line of the body's first instruction.
LINE = kernel("BODY").split("\n").index("    BODY") + 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode, target", [("", "shared::cluster"), (".L2::cache_hint", "shared::cta")])
def test_copies_in_all_directions(schedule: object, mode: str, target: str) -> None:
    a, b = np.arange(1024, dtype=np.uint32), np.zeros(1032, np.uint32)
    lw.load(copied(mode, target))["k"][1, 64](a, b, schedule=schedule)
    assert np.array_equal(b[4:1028], np.concatenate([a[512:], a[:512]]))
    assert not b[:4].any() and not b[1028:].any()


@sampled(12)
@pytest.mark.parametrize("space, operation, type, seen", RECORD["bulk_reductions"])
def test_reductions_leave_the_bits_that_an_h200_left(
    space: str, operation: str, type: str, seen: str
) -> None:
    size = int(type[-2:]) // 8
    a, b = operands(77, 4096, size)
    noftz = ".noftz" if type in ("f16", "bf16") and operation == "add" else ""
    if space == "g":
        head = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}{noftz}.{type}"
        reduce = f"""{head} [%rd0], [%r1], 4096;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    else:  # into the second half, which has the other operand
        reduce = f"""mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 8192;
    {TO_SHARED} [%r1+4096], [%rd0], 4096, [%r2];
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}.{type}
        [%r1+4096], [%r1], 4096, [%r2];
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1;
    @!%p1 bra AGAIN;
    {TO_GLOBAL} [%rd0], [%r1+4096], 4096;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    text = kernel(
        f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
    {TO_SHARED} [%r1], [%rd1], 4096, [%r2];
    {WAIT}
    {reduce}""",
        bytes=8192,
    )
    result = a.copy()
    lw.load(text)["k"][1, 1](result, b)
    assert digest(result) == seen


# one mistake at a time --------------------------------------------------------------------------------------


@sampled(6)
@pytest.mark.parametrize(
    "instruction, words",
    [
        (
            f"{TO_SHARED} [%r1], [%rd0], 24, [%r2];",
            "a copy of 24 bytes: the number of bytes has to be a multiple",
        ),
        (f"{TO_SHARED} [%r1+8], [%rd0], 16, [%r2];", "is not a multiple of 16"),
        (f"{TO_SHARED} [%r1], [%rd0+4], 16, [%r2];", "is not a multiple of 16"),
        (f"{TO_SHARED} [%r1], [%rd0], 8192, [%r2];", "shared write of 8192 bytes out of bounds"),
        (f"{TO_SHARED} [%r1], [%rd0+16], 64, [%r2];", "global read of 64 bytes out of bounds"),
        (f"{TO_SHARED} [%r1], [%rd0], 16, [%r1];", "mbarrier: no mbarrier was initialised here"),
        (f"{TO_GLOBAL} [%rd1], [%r1], 128;", "global write of 128 bytes out of bounds"),
        (f"{TO_GLOBAL} [%rd1], [%r1+4], 16;", "is not a multiple of 16"),
        (
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r1+4], {%r0, %r0}, [%r2];",
            "misaligned shared write of 8 bytes",
        ),
    ],
)
@pytest.mark.parametrize("schedule", (None, "late", 7))
def test_a_wrong_copy_is_a_fault_in_words(instruction: str, words: str, schedule: object) -> None:
    module, arrays = lw.load(kernel(instruction)), (np.zeros(16, np.uint32), np.zeros(16, np.uint32))
    with pytest.raises(KernelFault, match=words) as raised:
        module["k"][1, 1](*arrays, schedule=schedule)
    assert raised.value.line == LINE
    report = lw.check(module["k"][1, 1], *arrays, schedule=schedule)
    assert {finding.line for finding in report.findings} == {LINE}  # nobody waits for it either


def test_read_only_memory_is_not_written() -> None:
    a, b = np.zeros(16, np.uint32), np.zeros(16, np.uint32)
    b.flags.writeable = False
    with pytest.raises(KernelFault, match="read-only"):
        lw.load(kernel(f"{TO_GLOBAL} [%rd1], [%r1], 64;"))["k"][1, 1](a, b)


@pytest.mark.parametrize(
    "instruction, why",
    [
        ("st.async.mmio.release.gpu.global.u32 [%rd0], %r0;", "sm_100"),
        (f"{TO_GLOBAL}.cp_mask [%rd1], [%r1], 64, %r0;", "needs sm_100; this PTX is for sm_90a"),
        ("st.bulk.weak.shared::cta [%r1], 64, 0;", "sm_100"),
        (f"{TO_SHARED}.multicast::cluster [%r1], [%rd0], 64, [%r2];", "operands do not fit"),
    ],
)
def test_forms_of_later_gpus_are_refused_with_their_line(instruction: str, why: str) -> None:
    with pytest.raises(lw.LanewiseError, match=rf"line {LINE}: .*{why}"):
        lw.load(kernel(instruction))["k"][1, 1](np.zeros(16), np.zeros(16))


# when operations take effect --------------------------------------------------------------------------------


def test_a_load_that_nobody_waits_for_shows_under_a_late_schedule() -> None:
    text = kernel(f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    {TO_SHARED} [%r1], [%rd0], 16, [%r2];
    ld.shared.u32 %r5, [%r1];
    st.global.u32 [%rd1], %r5;""")
    found = {}
    for schedule in ("early", "late", *range(16)):
        a, b = np.full(4, 7, np.uint32), np.zeros(4, np.uint32)
        lw.load(text)["k"][1, 1](a, b, schedule=schedule)
        found[schedule] = int(b[0])
    assert (found["early"], found["late"]) == (7, 0)
    assert {found[seed] for seed in range(16)} == {0, 7}


@pytest.mark.parametrize(
    "wait, stored, read",
    [
        ("cp.async.bulk.wait_group 0;", 5, 5),
        ("cp.async.bulk.wait_group.read 0;", 5, 0),  # the source was read, nothing is written yet
        ("cp.async.bulk.wait_group.read 1;", 6, 0),  # the group may stay pending
        ("", 6, 0),
    ],
)
def test_waiting_for_a_group_completes_as_much_as_it_says(wait: str, stored: int, read: int) -> None:
    a, b = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    lw.load(store_and_wait(wait))["k"][1, 1](a, b, schedule="late")
    assert (a[0], b[0]) == (stored, read)
    lw.load(store_and_wait(wait))["k"][1, 1](a, b)
    assert (a[0], b[0]) == (5, 5)


def test_groups_belong_to_threads() -> None:
    """Each thread commits what it issued; a thread that waits completes its own groups alone."""
    text = kernel(f"""
    shl.b32 %r4, %r0, 4;
    add.u32 %r5, %r1, %r4;
    add.u32 %r6, %r0, 1;
    st.shared.u32 [%r5], %r6;
    fence.proxy.async;
    cvt.u64.u32 %rd2, %r4;
    add.u64 %rd3, %rd0, %rd2;
    {TO_GLOBAL} [%rd3], [%r5], 16;
    cp.async.bulk.commit_group;
    setp.gt.u32 %p2, %r0, 3;
    @!%p2 cp.async.bulk.wait_group 0;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.u32 %r7, [%rd3];
    st.global.u32 [%rd4], %r7;""")
    a, b = np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32)
    lw.load(text)["k"][1, 32](a, b, schedule="late")
    assert np.array_equal(a[:, 0], np.arange(1, 33))
    assert np.array_equal(b[:, 0], np.where(np.arange(32) < 4, np.arange(1, 33), 0))


def test_a_thread_that_looks_at_memory_again_and_again_sees_the_copy_at_last() -> None:
    text = kernel(f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    {TO_SHARED} [%r1], [%rd0], 16, [%r2];
LOOK:
    ld.volatile.shared.u32 %r5, [%r1];
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra LOOK;
    st.global.u32 [%rd1], %r5;""")
    a, b = np.full(4, 9, np.uint32), np.zeros(4, np.uint32)
    lw.load(text)["k"][1, 1](a, b, schedule="late", steps=10_000_000)
    assert b[0] == 9


def test_a_seed_gives_the_same_run_again() -> None:
    """Sixteen unordered copies to one place: which is last depends on the seed, and on it alone."""
    copies = "\n".join(f"{TO_SHARED} [%r1], [%rd0+{16 * each}], 16, [%r2];" for each in range(16))
    text = kernel(f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    {copies}
    {WAIT}
    mov.u32 %r6, %ctaid.x;
    shl.b32 %r6, %r6, 2;
    cvt.u64.u32 %rd2, %r6;
    add.u64 %rd3, %rd1, %rd2;
    ld.shared.u32 %r5, [%r1];
    st.global.u32 [%rd3], %r5;""")
    a, module = np.repeat(np.arange(16, dtype=np.uint32), 4), lw.load(text)

    def ran(schedule: object) -> list[int]:
        last = np.zeros(64, np.uint32)
        module["k"][64, 1](a, last, schedule=schedule)
        return last.tolist()

    assert ran("early") == [15] * 64
    assert ran(1) == ran(1) != ran(2)
    assert len(set(ran(3))) > 4


def test_many_operations_may_be_pending() -> None:
    """More than the queue holds: the oldest take effect."""
    text = kernel(f"""
    mov.u32 %r4, 0;
ISSUE:
    cvt.u64.u32 %rd2, %r4;
    add.u64 %rd3, %rd0, %rd2;
    {TO_GLOBAL} [%rd3], [%r1], 16;
    add.u32 %r4, %r4, 16;
    setp.lt.u32 %p2, %r4, 32768;
    @%p2 bra ISSUE;""")
    a = np.ones(8192, np.uint32)
    lw.load(text)["k"][1, 1](a, a[:1], schedule="late")
    assert not a.any()


# clusters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "instructions, expected",
    [
        (
            f"{STORED}.v4.u32 [%r6], {{%r9, %r3, %r4, %r9}}, [%r7];",
            lambda rank: [10 + rank, rank, 4, 10 + rank],
        ),
        (
            f"{STORED}.b64 [%r6], %rd4, [%r7]; {STORED}.b64 [%r6+8], %rd4, [%r7];",
            lambda rank: [10 + rank, 0, 10 + rank, 0],
        ),
        (
            f"{REDUCED}.add.u32 [%r6], %r9, [%r7]; {REDUCED}.max.s32 [%r6+4], %r9, [%r7]; "
            f"{REDUCED}.add.u64 [%r6+8], %rd4, [%r7];",
            lambda rank: [110 + rank, 10 + rank, 10 + rank, 0],
        ),
        (
            f"{TO_GLOBAL} [%rd0], [%r1], 0; {WITHIN} [%r6], [%r1], 16, [%r7];",
            lambda rank: [100, 0, 0, 0],
        ),
    ],
)  # fmt: skip
def test_stores_into_another_block_of_the_cluster(
    instructions: str, expected: object, schedule: object
) -> None:
    assert callable(expected)
    out = np.zeros((4, 4), np.uint32)
    lw.load(remote(instructions))["k"][4, 1](np.zeros(4, np.uint32), out, cluster=4, schedule=schedule)
    assert out.tolist() == [expected((rank - 1) % 4) for rank in range(4)]


@sampled(6)
@pytest.mark.parametrize(
    "instruction", [f"{TO_GLOBAL} [%rd0], [%r6], 16;", f"{WITHIN} [%r6], [%r6+16], 16, [%r7];"]
)
@pytest.mark.parametrize("schedule", (None, "late", 7))
def test_the_source_of_a_copy_lies_in_its_own_block(instruction: str, schedule: object) -> None:
    bound = lw.load(remote(instruction))["k"][4, 1]
    arrays = (np.zeros(4, np.uint32), np.zeros((4, 4), np.uint32))
    with pytest.raises(
        KernelFault,
        match="in the shared memory of another block: a bulk copy reads that of its own block only",
    ):
        bound(*arrays, cluster=4, schedule=schedule)
    for _ in range(20):
        found = lw.check(bound, *arrays, cluster=4, schedule=schedule).findings
        assert "out of bounds" in {each.kind for each in found}


# checks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", (None, "late", "reverse", 11))
def test_a_check_of_right_copies_finds_nothing(schedule: object) -> None:
    a, b = np.arange(1024, dtype=np.uint32), np.zeros(1032, np.uint32)
    report = lw.check(lw.load(copied("", "shared::cluster"))["k"][1, 64], a, b, schedule=schedule)
    assert not report.findings
    assert np.array_equal(b[4:1028], np.concatenate([a[512:], a[:512]]))


def test_schedules_that_do_not_exist_are_errors() -> None:
    module = lw.load(kernel(""))
    with pytest.raises(lw.LanewiseError, match='"early", "late" or an integer'):
        module["k"][1, 1](np.zeros(4), np.zeros(4), schedule="soon")
    with pytest.raises(lw.LanewiseError, match='"reverse", "early", "late", an integer'):
        lw.check(module["k"][1, 1], np.zeros(4), np.zeros(4), schedule="soon")
