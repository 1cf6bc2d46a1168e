"""What goes wrong is told: findings and faults at their step, limits, and questions that have no answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from growth import grows_in_proportion
from lanewise.machine.tracer import traced_launch
from traces.traced import hgemm, hgemm_trace, matrices

RACE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry race(.param .u64 out) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .shared .align 4 .b32 tile[64];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, tile;
    add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %r0;
    ld.shared.u32 %r3, [%r1+128];
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r3;
    ret;
}"""


def test_a_finding_stands_at_the_step_where_it_came_up() -> None:
    module = lw.load(RACE.replace("[%r1+128]", "[%r1]").replace("%r1, %r0, 2", "%r1, %r0, 0"))
    run = lw.trace(module["race"][1, 64], np.zeros(64, np.uint32))
    assert run.findings
    steps = [step for step in run.steps if step.findings]
    assert steps and steps[0].findings[0].line == steps[0].line
    report = lw.check(module["race"][1, 64], np.zeros(64, np.uint32))
    assert {(each.kind, each.line) for each in run.findings} >= {
        (each.kind, each.line) for each in report.findings
    }


def test_a_fault_ends_the_trace_at_its_instruction() -> None:
    module = lw.load(RACE)
    run = lw.trace(module["race"][1, 64], np.zeros(48, np.uint32))
    assert run.fault.startswith("shared read of 4 bytes out of bounds")
    last = run.at(-1)
    assert not last.is_complete and last.op.opcode == "ld" and last.written == {}
    assert last.memory[0].addresses[0] == 256 and last.memory[0].elements[0] == "shared 0x100"
    assert last.findings[0].kind == "out of bounds"
    assert "ended by a fault" in str(run)


def test_the_limit_is_told_and_the_launch_runs_on() -> None:
    arrays = matrices(16, 8, 1024)
    whole = hgemm_trace([each.copy() for each in arrays])
    run = hgemm_trace(arrays, limit=1 << 17)
    assert not run.is_complete and 100 < len(run) < len(whole)
    assert "limit of 131072 bytes was reached" in str(run) and run.nbytes <= 1 << 17
    assert arrays[2].any()
    for number in (0, len(run) // 2, len(run) - 1):
        assert repr(run.at(number)) == repr(whole.at(number))
    with pytest.raises(lw.LanewiseError, match=rf"no step {len(run)}: .* limit of 131072 bytes"):
        run.at(len(run))
    assert whole.compare(run) is None


def test_a_container_with_less_memory_than_the_machine_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr(traced_launch, "CONTAINER_LIMITS", ((str(limit), str(used)),))
    free = traced_launch.available_bytes()
    assert free > 1 << 20  # there is no such file
    limit.write_text("max\n")
    used.write_text("1000000\n")
    assert abs(traced_launch.available_bytes() - free) < free // 2  # no limit
    limit.write_text("5000000\n")
    assert traced_launch.available_bytes() == 4_000_000
    with pytest.raises(lw.LanewiseError, match="limit=4000001 is more than the 4000000 bytes of memory"):
        hgemm_trace(matrices(), limit=4_000_001)
    run = hgemm_trace(matrices(16, 8, 4096))
    assert not run.is_complete and run.nbytes <= 2_000_000 and "limit of 2000000 bytes" in str(run)


def test_a_hundred_thousand_instructions_take_time_in_proportion() -> None:
    arrays = {k: matrices(16, 8, k) for k in (8192, 32768)}
    assert grows_in_proportion(lambda k: hgemm_trace(arrays[k]), 32768)
    run = hgemm_trace(arrays[32768])
    assert len(run) > 100_000 and run.is_complete and run.nbytes < 200e6
    assert run.at(-1).registers["acc"].shape == (32, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": [(2, 0)]}, r"no block \(2, 0\) in a grid of \(2, 2, 1\)"),
        ({"blocks": "some"}, r'blocks= is a list of coordinates, as \[\(0, 0\), \(1, 0\)\], or "all"'),
        ({"blocks": []}, "name at least one block"),
        ({"warps": 1}, "warps 0 to 0; there is no warp 1"),
        ({"warps": []}, "name at least one warp"),
        ({"limit": 10}, "limit=10 is too little"),
        ({"limit": "much"}, "limit= is a number of bytes, not 'much'"),
        ({"limit": 1 << 60}, "more than the .* bytes of memory that are free"),
        ({"schedule": "random"}, "schedule= is"),
    ],
)
def test_wrong_options_are_refused_in_words(options: dict[str, object], message: str) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        hgemm_trace(matrices(), **options)


def test_a_kernel_without_a_grid_is_refused() -> None:
    with pytest.raises(lw.LanewiseError, match=r"lw.trace takes a kernel with its grid and block"):
        lw.trace(hgemm)


@pytest.fixture(scope="module")
def run() -> lw.traces.Trace:
    return hgemm_trace(matrices())


def test_wrong_questions_are_answered_in_words(run: lw.traces.Trace) -> None:
    step = run.at(40)

    def refused(message: str, ask: object) -> None:
        with pytest.raises(lw.LanewiseError, match=message):
            ask()

    refused("no register or variable acd; did you mean acc", lambda: step.registers["acd"])
    refused("named by a string", lambda: step.registers[3])
    refused(r"there is no step 100000: the trace has steps 0 to \d+", lambda: run.at(100000))
    refused("by its number, not by 'x'", lambda: run.at("x"))
    refused("no fragment", lambda: step.fragment("lane"))
    refused("no fragment", lambda: step.fragment("zzz"))
    refused("no array Cs in shared memory: it has As, Bs", lambda: step.shared("Cs"))
    refused("elements of f16; the shape", lambda: step.shared("As", dtype=lw.f16, shape=(64, 64)))
    refused(r"C has the shape \(32, 16\); there is no element \[32, 0\]", lambda: run.writer("C[32, 0]"))
    refused("no register or variable X.*arrays are A, B, C, As, Bs", lambda: run.writer("X[0]"))
    refused("acc has 4 elements a lane", lambda: run.writer("acc", lane=0))
    refused("elements 0 to 3", lambda: run.writer("acc[4]", lane=0))
    refused("give lane=", lambda: run.writer("%lane"))
    refused("there is no folder", lambda: run.save("/no/such/folder/run.html"))
    refused("a lane is 0 to 31", lambda: run.writer("%lane", lane=32))
    refused("warp 1 was not traced", lambda: run.writer("%lane", lane=0, warp=1))
    refused(
        r"block \(1, 0, 0\) was not traced; traced are \(0, 0, 0\)", lambda: run.origin("C[0, 0]", block=1)
    )
    refused("no argument of the traced launch", lambda: run.writer((np.zeros(3), 0)))
    refused("is named as", lambda: run.writer(3))


def test_a_kernel_that_never_ends_is_ended_and_kept() -> None:
    @lw.kernel
    def endless(X: lw.Ptr[lw.i32]):
        while X[0] == 0:
            pass

    run = lw.trace(endless[1, 32], np.zeros(1, np.int32), limit=1 << 20)
    assert run.fault and len(run) > 100 and run.at(-1).line
    bounded = lw.trace(endless[1, 32], np.zeros(1, np.int32), limit=1 << 20, steps=50)
    assert "more than 50 steps" in bounded.fault


def test_plain_launches_are_not_traced(run: lw.traces.Trace) -> None:
    a, b, c = matrices()
    before = len(run)
    hgemm[(2, 2), 32](a, b, c, 16, 48)
    assert len(run) == before
