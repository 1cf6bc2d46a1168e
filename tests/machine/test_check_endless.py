"""A check ends launches that can never end, and names what they wait for; it does not end others."""

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from growth import grows_in_proportion
from lanewise.machine.checker.report import Report

SPIN = "ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p0, %r3, 0; @%p0 bra WAIT;"


def check(body: str, grid: int, block: int, n: int = 0, words: int = 4, steps: int | None = None) -> Report:
    """Check a kernel of an array of zeros `f` (%rd0), with %r0 the thread, %r1 the block and %r9 a number."""
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 f, .param .u32 n) {{
    .reg .b64 %rd<8>; .reg .b32 %r<10>; .reg .pred %p<4>; .shared .align 4 .b8 s[64];
    ld.param.u64 %rd0, [f]; ld.param.u32 %r9, [n]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
{body}
}}"""
    return lw.check(lw.load(text)["k"][grid, block], np.zeros(words, np.uint32), n, steps=steps)


#: What the loop is, its launch, the text of the instruction that is named, what it waits for.
ENDLESS = {
    "a flag that nobody sets": (
        "mov.u64 %rd1, %rd0;\nWAIT: " + SPIN,
        (4, 64),
        "ld.volatile",
        "argument 0 (f)",
    ),
    "no exit": ("WAIT: bra WAIT;", (2, 64), "bra", None),
    "two blocks that wait for each other": (
        "xor.b32 %r2, %r1, 1; mul.wide.u32 %rd1, %r2, 4; add.u64 %rd1, %rd0, %rd1;\nWAIT: "
        + SPIN
        + "mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd0, %rd2; st.volatile.global.u32 [%rd2], 1;",
        (2, 32),
        "ld.volatile",
        "argument 0 (f)",
    ),
    "a lock that a lane holds": (
        "WAIT: atom.global.cas.b32 %r3, [%rd0], 0, 1; setp.ne.u32 %p0, %r3, 0; @%p0 bra WAIT;",
        (1, 2),
        "atom.global.cas",
        "argument 0 (f)",
    ),
    "lanes that wait for one at a barrier of their warp": (
        "setp.eq.u32 %p1, %r0, 5; @%p1 bra LATE;\n"
        "WAIT: ld.volatile.shared.u32 %r3, [s]; setp.eq.u32 %p0, %r3, 0; @%p0 bra WAIT;\n"
        "bar.warp.sync -1; ret;\nLATE: bar.warp.sync -1; st.volatile.shared.u32 [s], 1;",
        (1, 32),
        "ld.volatile.shared",
        "shared variable s",
    ),
    "barriers": ("WAIT: bar.sync 0; bra WAIT;", (1, 64), "", None),
    "a store of the same value": ("WAIT: st.global.u32 [%rd0], 0; bra WAIT;", (1, 1), "st.global", None),
    "a loop of seven basic blocks": (
        "mov.u64 %rd1, %rd0;\nWAIT:" + "".join(f"\nL{n}: bar.warp.sync -1;" for n in range(6)) + "\n" + SPIN,
        (1, 32),
        "ld.volatile",
        "argument 0 (f)",
    ),
}


#: Basic blocks of a thread block after which what never ends has been noticed.
ENOUGH = 1_000_000


@pytest.mark.parametrize("value", ["ld.shared.u32 %r4, [s];", "mov.u32 %r4, 0;"])
def test_a_loop_that_counts_is_ended_sooner_after_an_error(value: str) -> None:
    count = "mov.u32 %r2, 1;\nWAIT: add.u32 %r2, %r2, 2; setp.ne.u32 %p0, %r2, 0; @%p0 bra WAIT;\nret;"
    report = check(f"{value} st.global.u32 [%rd0], %r4; {count}", 1, 32, steps=ENOUGH)
    kinds = {finding.kind: finding.message for finding in report.findings}
    is_wrong = "uninitialised" in kinds
    assert is_wrong == value.startswith("ld")
    assert ("nothing has changed for very long" in kinds["endless"]) == is_wrong


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_a_finding(name: str) -> None:
    body, (grid, block), text, allocation = ENDLESS[name]
    report = check(body + "\nret;", grid, block, steps=ENOUGH)
    (finding,) = (each for each in report.findings if each.kind == "endless")
    assert finding.text.startswith(text) and finding.line and finding.thread is not None
    assert finding.allocation == allocation and "never ends" in finding.message
    if grid > 1:
        assert finding.block == (0, 0, 0) and f"{grid} blocks" in finding.message
        assert finding.other is not None and finding.other.block == (1, 0, 0)


def test_a_counter_in_the_loop_is_no_progress() -> None:
    body = "mov.u64 %rd1, %rd0; mov.u32 %r5, 0;\nWAIT: add.u32 %r5, %r5, 1;" + SPIN
    (finding,) = check(body + "st.global.u32 [%rd0+4], %r5; ret;", 1, 32).findings
    assert finding.kind == "endless" and finding.text.startswith("ld.volatile")


def test_long_loops_that_end_are_not_accused() -> None:
    body = "mov.u32 %r5, 0;\nWAIT: add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, %r9; @%p0 bra WAIT;\nret;"
    assert check(body, 2, 64, 500_000).ok
    assert [each.kind for each in check(body, 2, 64, 500_000, steps=1000).findings] == ["endless"]


#: Each block waits for the one beside it, then lets the next one go.
CHAIN = f"""add.s32 %r1, %r1, 1; mul.wide.s32 %rd2, %r1, 4; add.s64 %rd2, %rd0, %rd2;
    add.s32 %r2, %r1, %r9; mul.wide.s32 %rd1, %r2, 4; add.s64 %rd1, %rd0, %rd1;
    setp.eq.u32 %p1, %r2, LAST; @%p1 bra GO;
WAIT: {SPIN}
GO: membar.gl; st.volatile.global.u32 [%rd2], 1; ret;"""


@pytest.mark.parametrize("direction", [1, -1])
def test_chains_of_blocks_end(direction: int) -> None:
    blocks = 2000 if EVERYTHING else 600
    last = blocks + 1 if direction == 1 else 0
    body = CHAIN.replace("LAST", str(last))
    assert check(body, blocks, 32, direction % 2**32, blocks + 2).ok


def test_many_blocks_at_a_barrier_of_the_grid() -> None:
    """Thousands of blocks count themselves, and wait for the others; no GPU has as many under way."""
    body = """setp.ne.u32 %p1, %r0, 0; @%p1 bra DONE;
    membar.gl; atom.global.add.u32 %r2, [%rd0], 1;
WAIT: ld.volatile.global.u32 %r3, [%rd0]; setp.lt.u32 %p0, %r3, %r9; @%p0 bra WAIT;
DONE: bar.sync 0; ret;"""
    assert grows_in_proportion(lambda count: check(body, count, 64, count), 10_000 if EVERYTHING else 300)
    report = check(body, 4_800, 32, 4_800)
    (advice,) = report.findings
    assert report.ok and advice.kind == "deadlock" and advice.severity == "advice"
    assert "largest GPU runs at most 4736" in advice.message
    assert not check(body, 200, 64, 200).findings


def test_blocks_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.machine.checker.checked_launch.MOST_RESIDENT", 5)
    body = CHAIN.replace("LAST", "21")
    (finding,) = check(body, 20, 32, 1, 22).findings
    assert finding.kind == "deadlock" and "15 more cannot begin" in finding.message
    assert finding.text.startswith("ld.volatile") and finding.allocation == "argument 0 (f)"


def test_a_loop_that_waits_for_time_ends() -> None:
    body = """mov.u64 %rd4, %clock64;
AGAIN: mov.u64 %rd5, %clock64; sub.u64 %rd5, %rd5, %rd4; setp.lt.u64 %p0, %rd5, 300000;
    @%p0 bra AGAIN; ret;"""
    assert not check(body, 2, 32, 0).findings
