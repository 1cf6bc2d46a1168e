"""Checks in other orders of blocks and warps: what one order hides shows in another; a seed gives one run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.jit import threads
from lanewise.machine.checker.report import Report

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNELS = f"""{HEAD}
// The last warp of each block sets `word` to 7. Each warp stores what it finds there, without a barrier.
// In order all but the last warp find 0, in reverse all find 7.
.visible .entry late(.param .u64 out) {{
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p; .shared .align 4 .b8 word[4];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, %ntid.x; shr.u32 %r2, %r2, 5; sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p, %r1, %r2;
    @%p bra READ;
    st.volatile.shared.u32 [word], 7;
READ:
    ld.volatile.shared.u32 %r3, [word];
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r4, %r4, %r5, %r0;
    mul.wide.u32 %rd1, %r4, 4; add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r3;
    ret;
}}
// Each warp takes a ticket: the tickets are the order in which the warps of all blocks ran.
.visible .entry tickets(.param .u64 counter, .param .u64 out) {{
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %rd0, [counter]; ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; setp.ne.u32 %p, %r1, 0;
    @%p bra END;
    atom.global.add.u32 %r2, [%rd0], 1;
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r4, %r4, %r5, %r0; shr.u32 %r4, %r4, 5;
    mul.wide.u32 %rd2, %r4, 4; add.u64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r2;
END:
    ret;
}}
// Block 0 writes a word that block 1 reads only if it finds a flag: in order the flag is never found.
.visible .entry hidden(.param .u64 flag, .param .u64 data) {{
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %rd0, [flag]; ld.param.u64 %rd1, [data];
    mov.u32 %r0, %ctaid.x; setp.eq.u32 %p, %r0, 0;
    @%p bra FIRST;
    atom.global.exch.b32 %r1, [%rd0], 1;
    st.global.u32 [%rd1], 2;
    ret;
FIRST:
    atom.global.or.b32 %r1, [%rd0], 0;
    setp.eq.u32 %p, %r1, 0;
    @%p bra END;
    st.global.u32 [%rd1], 1;
END:
    ret;
}}
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    return lw.load(KERNELS)


def tickets(module: lw.Module, schedule: Any) -> list[int]:
    """The order in which 4 warps of 6 blocks ran: for each its ticket."""
    counter, out = np.zeros(1, np.uint32), np.zeros(24, np.uint32)
    assert lw.check(module["tickets"][6, 128], counter, out, schedule=schedule).ok
    assert sorted(out) == list(range(24))
    return [int(each) for each in out]


def test_blocks_and_warps_run_in_order_in_reverse_or_at_random(module: lw.Module) -> None:
    assert tickets(module, None) == tickets(module, "in order") == list(range(24))
    assert tickets(module, "reverse") == list(range(24))[::-1]
    drawn = [tickets(module, seed) for seed in range(6)]
    assert len({tuple(each) for each in drawn}) == 6
    assert drawn == [tickets(module, seed) for seed in range(6)]
    blocks = [[int(np.argsort(each)[0]) // 4, int(np.argsort(each)[-1]) // 4] for each in drawn]
    assert len({first for first, _ in blocks}) > 1 and len({last for _, last in blocks}) > 1


@pytest.mark.parametrize("warps", [1, 2, 3, 8, 32])
def test_every_warp_may_be_the_first_and_the_last(warps: int, module: lw.Module) -> None:
    counter, out = np.zeros(1, np.uint32), np.zeros((200, warps), np.uint32)
    assert lw.check(module["tickets"][200, 32 * warps], counter, out, schedule=1).ok
    order = np.argsort(out, axis=1)
    assert set(order[:, 0]) == set(order[:, -1]) == set(range(warps))


def test_an_order_shows_a_result_that_another_hides(module: lw.Module) -> None:
    found = {}
    for schedule in ("in order", "reverse", 1, 2):
        out = np.zeros((8, 128), np.uint32)
        lw.check(module["late"][8, 128], out, schedule=schedule)
        found[schedule] = out
    assert not found["in order"][:, :96].any() and (found["reverse"] == 7).all()
    assert 0 < np.count_nonzero(found[1][:, :96]) < 8 * 96
    assert not np.array_equal(found[1], found[2])


def test_several_schedules_are_one_report(module: lw.Module) -> None:
    flag, data = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    kernel = module["hidden"][2, 1]
    assert not lw.check(kernel, flag, data).findings and data[0] == 2
    flag[:], data[:] = 0, 0
    report = lw.check(kernel, flag, data, schedule=("in order", "reverse"))
    (race,) = report.findings
    assert race.kind == "race" and race.schedule == "reverse" and race.text.startswith("st.global")
    assert "under the schedule reverse" in str(race) and race.other is not None
    assert (flag[0], data[0]) == (1, 2), "the arrays have the results of the first run"
    assert report.to_dict()["findings"][0]["schedule"] == "reverse"
    assert any(
        "argument 1 (data) has other results under the schedule reverse" in each for each in report.notes
    )


@sampled(2)
@pytest.mark.parametrize("schedule", ["reverse", 3])
@pytest.mark.parametrize("name", ["late", "tickets"])
def test_any_number_of_threads_gives_one_run(
    name: str, schedule: Any, module: lw.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[dict[str, Any], bytes]:
        out = np.zeros(40 * 128, np.uint32)
        arguments = (out,) if name == "late" else (np.zeros(1, np.uint32), out)
        report = lw.check(module[name][40, 128], *arguments, schedule=schedule)
        return report.to_dict(), out.tobytes()

    runs = []
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "processors", lambda count=count: count)
        runs.append(run())
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("schedule", ["in order", "reverse", 1, 2, 3])
def test_a_right_kernel_is_right_in_any_order(schedule: Any, right: Callable[[Any], Report]) -> None:
    assert right(schedule).ok


@pytest.fixture(scope="module")
def right() -> Callable[[Any], Report]:
    """A block-wide sum in a loop with divergent lanes, barriers and a counter of blocks that are done."""
    text = f"""{HEAD}.visible .entry sums(.param .u64 x, .param .u64 out, .param .u64 done) {{
    .reg .b64 %rd<8>; .reg .b32 %r<10>; .reg .pred %p; .shared .align 4 .b8 tile[512];
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [done];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 128, %r0;
    mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd0, %rd3; ld.global.u32 %r3, [%rd3];
    mov.u32 %r4, tile; mad.lo.u32 %r4, %r0, 4, %r4; st.shared.u32 [%r4], %r3;
    mov.u32 %r5, 64;
LOOP:
    bar.sync 0;
    setp.ge.u32 %p, %r0, %r5; @%p bra NEXT;
    mad.lo.u32 %r6, %r5, 4, %r4; ld.shared.u32 %r7, [%r6]; ld.shared.u32 %r8, [%r4];
    add.u32 %r8, %r8, %r7; st.shared.u32 [%r4], %r8;
NEXT:
    shr.u32 %r5, %r5, 1; setp.ne.u32 %p, %r5, 0; @%p bra LOOP;
    setp.ne.u32 %p, %r0, 0; @%p bra END;
    mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd1, %rd4; st.global.u32 [%rd4], %r8;
    membar.gl; atom.global.add.u32 %r9, [%rd2], 1;
END:
    ret;
}}"""
    kernel = lw.load(text)["sums"]
    x = np.arange(30 * 128, dtype=np.uint32)

    def check(schedule: Any) -> Report:
        out, done = np.zeros(30, np.uint32), np.zeros(1, np.uint32)
        report = lw.check(kernel[30, 128], x, out, done, schedule=schedule)
        assert np.array_equal(out, x.reshape(30, 128).sum(1)) and done[0] == 30
        return report

    return check


@pytest.mark.parametrize("schedule", ["backwards", 1.5, -1, 1 << 63, True, [], ["reverse", None, "x"]])
def test_a_schedule_that_is_none(schedule: Any, module: lw.Module) -> None:
    with pytest.raises(LanewiseError, match=r"schedule="):
        lw.check(module["late"][1, 32], np.zeros(32, np.uint32), schedule=schedule)


COPIES = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copies(.param .u64 x, .param .u64 out, .param .u32 waits)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<4>;
    .shared .align 16 .b8 tile[256];
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r4, [waits];
    setp.eq.u32 %p, %r4, 1;
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd2, %r0, 4, %rd0;
    mad.wide.u32 %rd3, %r0, 4, %rd1;
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %r0, 4, %r1;
    cp.async.ca.shared.global [%r2], [%rd2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r2+128], [%rd2+128], 4;
    cp.async.commit_group;
    @%p cp.async.wait_group 1;
    ld.shared.u32 %r3, [%r2];
    @%p cp.async.wait_all;
    ld.shared.u32 %r5, [%r2+128];
    add.u32 %r3, %r3, %r5;
    st.global.u32 [%rd3], %r3;
    ret;
}
"""


@pytest.mark.parametrize("run", [lambda kernel, *a, **s: kernel(*a, **s), lw.check])
def test_copies_take_effect_when_they_are_waited_for(run: Any) -> None:
    kernel = lw.load(COPIES)["copies"][1, 32]
    x = np.arange(1, 65, dtype=np.uint32)
    for schedule in ("early", "late", 1, 2):
        out = np.zeros(32, np.uint32)
        run(kernel, x, out, 1, schedule=schedule)
        assert (out == x[:32] + x[32:]).all()
        run(kernel, x, out, 0, schedule=schedule)
        missing = out != x[:32] + x[32:]
        assert missing.all() if schedule == "late" else missing.any() == (schedule != "early")


def test_as_many_copies_as_nobody_can_keep_take_effect_too() -> None:
    copies = "cp.async.ca.shared.global [%r2], [%rd2], 4;\n" * 100
    text = COPIES.replace("    @%p cp.async.wait_group 1;\n", copies)
    out, x = np.zeros(32, np.uint32), np.arange(1, 65, dtype=np.uint32)
    lw.load(text)["copies"][1, 32](x, out, 0, schedule="late")
    assert (out == x[:32] + x[32:]).all()


#: Blocks hand a word to each other in two rounds. In the second one the flag of the first is taken for its
#: own, so a block may overwrite the word before the other has read it; only if it is interrupted there.
ROUNDS = f"""{HEAD}
.visible .entry rounds(.param .u64 words, .param .u64 flags) {{
    .reg .b64 %rd<8>; .reg .b32 %r<10>; .reg .pred %p;
    ld.param.u64 %rd0, [words]; ld.param.u64 %rd1, [flags];
    mov.u32 %r0, %ctaid.x; xor.b32 %r1, %r0, 1; mov.u32 %r2, 0; mov.u32 %r3, %r0;
    mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r1, 4, %rd0;
    mad.wide.u32 %rd4, %r0, 4, %rd1; mad.wide.u32 %rd5, %r1, 4, %rd1;
ROUND:
    st.global.u32 [%rd2], %r3;
    fence.acq_rel.gpu;
    atom.global.add.u32 %r4, [%rd4], 1;
WAIT:
    atom.global.or.b32 %r5, [%rd5], 0;
    setp.lt.u32 %p, %r5, LEAST;
    @%p bra WAIT;
    fence.acq_rel.gpu;
    ld.global.u32 %r6, [%rd3];
    add.u32 %r3, %r3, %r6;
    fence.acq_rel.gpu;
    atom.global.add.u32 %r4, [%rd4], 1;
    AGAIN
    add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 2;
    @%p bra ROUND;
    ret;
}}
"""
WAIT_FOR_THE_READER = """add.u32 %r8, %r7, 1;
READ:
    atom.global.or.b32 %r5, [%rd5], 0;
    setp.lt.u32 %p, %r5, %r8;
    @%p bra READ;
    fence.acq_rel.gpu;"""


def rounds(least: str, before: str, again: str) -> Any:
    """Return the kernel whose waits are for flags of `least`."""
    text = ROUNDS.replace("LEAST", least).replace("WAIT:", before + "WAIT:", 1).replace("AGAIN", again)
    return lw.load(text)["rounds"]


def test_seeds_interrupt_a_block_that_has_waited() -> None:
    wrong = rounds("1", "", "")
    count = "shl.b32 %r7, %r2, 1; add.u32 %r7, %r7, 1;\n"  # flags count 1, 2 and 3, 4
    right = rounds("%r7", count, WAIT_FOR_THE_READER)

    def is_silent(kernel: Any, seed: int) -> bool:
        words, flags = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
        return not lw.check(kernel[2, 1], words, flags, schedule=seed).findings

    assert not all(is_silent(wrong, seed) for seed in range(100))
    assert all(is_silent(right, seed) for seed in range(20))


#: Every block stores a word and sets its flag. The last one waits for the flag of the one before, by atomics
#: that add 0, and reads the word of block 0.
POLLS = f"""{HEAD}
.visible .entry polls(.param .u64 words, .param .u64 flags, .param .u32 first) {{
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %rd0, [words]; ld.param.u64 %rd1, [flags]; ld.param.u32 %r3, [first];
    mov.u32 %r0, %ctaid.x; mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd1;
    st.global.u32 [%rd2], %r0;
    fence.acq_rel.gpu;
    atom.global.exch.b32 %r1, [%rd3], 1;
    setp.ne.u32 %p, %r0, 2;
    @%p bra END;
NEXT:
    mad.wide.u32 %rd4, %r3, 4, %rd1;
WAIT:
    atom.global.add.u32 %r1, [%rd4], 0;
    setp.eq.u32 %p, %r1, 0;
    @%p bra WAIT;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 2;
    @%p bra NEXT;
    fence.acq_rel.gpu;
    ld.global.u32 %r1, [%rd0];
    st.global.u32 [%rd2], %r1;
END:
    ret;
}}
"""


def test_a_block_that_polls_a_flag_publishes_nothing_there() -> None:
    """Else the flag would tell of all blocks, as a counter does that several of them add to."""
    polls = lw.load(POLLS)["polls"]

    def is_silent(first: int, seed: int) -> bool:
        words, flags = np.zeros(3, np.uint32), np.zeros(3, np.uint32)
        return not lw.check(polls[3, 1], words, flags, first, schedule=seed).findings

    assert not any(is_silent(1, seed) for seed in range(12))
    assert all(is_silent(0, seed) for seed in range(12))
