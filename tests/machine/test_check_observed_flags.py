"""Plain accesses to a flag by a thread that has seen it: the observation order of the PTX memory model.

Block 0, or thread 0, waits for a flag that the others write, and then accesses the flag itself by a plain
load or store. That is in order if it has waited for all of their writes, with a fence or without one.
"""

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.checker.report import Report

HEAD = """
.version 8.0
.target sm_80
.address_size 64
"""
BLOCKS = """
.visible .entry blocks(.param .u64 flag, .param .u64 data, .param .u64 out, .param .u32 count)
{
    .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [flag]; ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [out]; ld.param.u32 %r9, [count];
    mov.u32 %r0, %ctaid.x;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 bra AGAIN;
    WRITE
    ret;
AGAIN:
    WAIT
    THEN
    ret;
}
"""
THREADS = """
.visible .entry threads(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<3>;
    .shared .align 4 .b32 flag;
    ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    setp.eq.u32 %p1, %r0, OTHER;
    @%p0 st.shared.u32 [flag], 0;
    bar.sync 0;
    @%p0 bra AGAIN;
    @!%p1 bra DONE;
    fence.acq_rel.cta;
    st.STRONG.shared.u32 [flag], 1;
DONE:
    ret;
AGAIN:
    ld.STRONG.shared.u32 %r1, [flag];
    setp.ne.s32 %p2, %r1, 1;
    @%p2 bra AGAIN;
    FENCE
    THEN
    ret;
}
"""
WRITES = {
    "fence and atom": "membar.gl; atom.global.add.u32 %r2, [%rd0], 1;",
    "fence and red.relaxed": "fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%rd0], 1;",
    "fence and st.relaxed": "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd0], 1;",
    "fence and exchange": "membar.gl; atom.global.exch.b32 %r2, [%rd0], 1;",
    "red.relaxed": "red.relaxed.gpu.global.add.u32 [%rd0], 1;",
    "red.release": "red.release.gpu.global.add.u32 [%rd0], 1;",
    "st.volatile": "st.volatile.global.u32 [%rd0], 1;",
}
TEST = "setp.ne.s32 %p1, %r1, 1; @%p1 bra AGAIN;"
WAITS = {
    "ld.volatile and fence": f"ld.volatile.global.u32 %r1, [%rd0]; {TEST} membar.gl;",
    "ld.volatile": f"ld.volatile.global.u32 %r1, [%rd0]; {TEST}",
    "ld.relaxed": f"ld.relaxed.gpu.global.u32 %r1, [%rd0]; {TEST}",
    "ld.acquire": f"ld.acquire.gpu.global.u32 %r1, [%rd0]; {TEST}",
    "atom": f"atom.global.add.u32 %r1, [%rd0], 0; {TEST} membar.gl;",
    "cas": f"atom.global.cas.b32 %r1, [%rd0], 1, 2; {TEST}",
}
RESET, READ = "st.global.u32 [%rd0], 0;", "ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2], %r3;"
SCHEDULES = ("in order", "reverse", 1)


def check_blocks(
    write: str, wait: str, then: str, blocks: int = 2, count: int = 0, schedule: str | int = "in order"
) -> Report:
    """Check blocks that write a flag, and block 0, which waits for it and goes on."""
    text = HEAD + BLOCKS.replace("WRITE", write).replace("WAIT", wait).replace("THEN", then)
    arrays = [np.zeros(2, np.int32) for _ in range(3)]
    return lw.check(lw.load(text)["blocks"][blocks, 1], *arrays, count, schedule=schedule)


@pytest.mark.parametrize("then", [RESET, READ], ids=["reset", "read"])
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("write", WRITES)
def test_who_has_waited_for_a_flag_may_access_it(write: str, wait: str, then: str) -> None:
    for schedule in SCHEDULES:
        assert not check_blocks(WRITES[write], WAITS[wait], then, schedule=schedule).findings


@pytest.mark.parametrize(
    ("other", "strong"), [(5, "relaxed.cta"), (32, "relaxed.cta"), (32, "volatile")], ids=str
)
@pytest.mark.parametrize("fence", ["", "fence.acq_rel.cta;"])
@pytest.mark.parametrize(
    "then", ["st.shared.u32 [flag], 0;", "ld.shared.u32 %r3, [flag]; st.global.u32 [%rd2], %r3;"]
)
def test_a_flag_of_the_block(other: int, strong: str, fence: str, then: str) -> None:
    """The writer is a lane of the same warp, or of another one."""
    text = HEAD + THREADS.replace("OTHER", str(other)).replace("STRONG", strong)
    text = text.replace("FENCE", fence).replace("THEN", then)
    for schedule in SCHEDULES:
        report = lw.check(lw.load(text)["threads"][1, 64], np.zeros(1, np.int32), schedule=schedule)
        assert not report.findings


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("comparison", ["ne.s32 %p1, %r1, 3", "lt.u32 %p1, %r1, 3", "lt.s32 %p1, %r1, %r9"])
@pytest.mark.parametrize("fence", ["", "membar.gl;"])
def test_who_has_waited_for_all_arrivals_may_reset(schedule: str | int, comparison: str, fence: str) -> None:
    wait = f"ld.volatile.global.u32 %r1, [%rd0]; setp.{comparison}; @%p1 bra AGAIN; {fence}"
    arrive = f"{fence} red.relaxed.gpu.global.add.u32 [%rd0], 1;"
    assert not check_blocks(arrive, wait, RESET, blocks=4, count=3, schedule=schedule).findings


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_last_ticket_resets_the_counter(schedule: str | int) -> None:
    """The counter of CUDA's sample threadFenceReduction: atomics form a chain that the last one observes."""
    take = """atom.global.inc.u32 %r1, [%rd0], %r9; mov.u32 %r2, %nctaid.x; add.s32 %r3, %r2, -1;
        setp.ne.s32 %p1, %r1, %r3; @%p1 ret;"""
    assert not check_blocks("bra AGAIN;", take, RESET, blocks=4, count=4, schedule=schedule).findings


#: Mistakes: what the others write, how block 0 waits, how many blocks there are.
RACES = {
    "without having read it": ("fence and atom", "", 2),
    "after a read that waits for nothing": ("fence and atom", "ld.volatile.global.u32 %r1, [%rd0];", 2),
    "after one of two arrivals": (
        "fence and atom",
        "ld.volatile.global.u32 %r1, [%rd0]; setp.lt.s32 %p1, %r1, 1; @%p1 bra AGAIN; membar.gl;", 3,
    ),
    "after any of two arrivals": (
        "red.relaxed", "ld.acquire.gpu.global.u32 %r1, [%rd0]; setp.eq.s32 %p1, %r1, 0; @%p1 bra AGAIN;", 3,
    ),
    "after fewer arrivals than there are": (
        "fence and atom", "ld.volatile.global.u32 %r1, [%rd0]; setp.gt.s32 %p1, %r9, %r1; @%p1 bra AGAIN;", 3,
    ),
    "after one of two equal stores": ("st.volatile", WAITS["ld.volatile"], 3),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("race", RACES)
def test_who_has_not_waited_for_a_flag_may_not_reset_it(race: str, schedule: str | int) -> None:
    write, wait, blocks = RACES[race]
    report = check_blocks(WRITES[write], wait, RESET, blocks=blocks, count=1, schedule=schedule)
    assert any(finding.kind == "race" and finding.severity == "error" for finding in report.findings)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_flag_at_the_scope_of_another_block(schedule: str | int) -> None:
    write = "atom.cta.global.add.u32 %r2, [%rd0], 1;"
    assert not check_blocks(write, WAITS["ld.volatile"], RESET, schedule=schedule).ok


@pytest.mark.parametrize("wait", ["ld.volatile", "ld.relaxed", "cas"])
@pytest.mark.parametrize("write", ["red.relaxed", "st.volatile"])
def test_a_flag_orders_no_data_without_fences(write: str, wait: str) -> None:
    then = "ld.global.u32 %r3, [%rd1]; st.global.u32 [%rd2], %r3;"
    report = check_blocks("st.global.u32 [%rd1], 5;" + WRITES[write], WAITS[wait], then)
    (race,) = report.findings
    assert race.severity == "error" and race.allocation == "argument 1 (data)"


def test_another_thread_than_the_one_that_waited() -> None:
    """It is ordered only behind a barrier; `BARRIER` stands between the wait and the reset."""
    text = """
.visible .entry k(.param .u64 flag)
{
    .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<1>;
    ld.param.u64 %rd0, [flag];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;
    setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 33;
    @%p0 bra READER;
    @%p1 red.relaxed.gpu.global.add.u32 [%rd0], 1;
    ret;
READER:
    @!%p1 bra DONE;
AGAIN:
    ld.volatile.global.u32 %r2, [%rd0];
    setp.ne.s32 %p3, %r2, 1;
    @%p3 bra AGAIN;
DONE:
    BARRIER
    @%p2 st.global.u32 [%rd0], 0;
    ret;
}
"""
    right, wrong = (lw.load(HEAD + text.replace("BARRIER", barrier))["k"] for barrier in ("bar.sync 0;", ""))
    assert not lw.check(right[2, 64], np.zeros(1, np.int32)).findings
    assert not lw.check(wrong[2, 64], np.zeros(1, np.int32)).ok


def test_a_ticket_that_is_looked_at_elsewhere_is_told_as_what_it_is() -> None:
    """The ticket goes through memory, so it is not known whether the thread has waited for the last one."""
    take = """.shared .align 4 .b32 ticket; atom.global.add.u32 %r1, [%rd0], 1; st.shared.u32 [ticket], %r1;
        ld.shared.u32 %r2, [ticket]; setp.ne.u32 %p1, %r2, 1; @%p1 ret;"""
    report = check_blocks("bra AGAIN;", take, RESET)
    (advice,) = report.findings
    assert report.ok and "nothing orders" not in advice.message
    assert "ordered only if the thread goes on because of the value" in advice.message
