"""The prompt: what commands answer, that mistakes are answers, completion, Ctrl-C, the limit."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from debug.debugged import Told, hgemm_debugger, launched, line_of
from lanewise.debug import commands
from lanewise.debug.debugger import Debugger
from lanewise.debug.prompt import Prompt, Quit, completions
from traces.probes import CASES
from traces.traced import hgemm, matrices

MMA = line_of(hgemm, "acc = mma(a, b, acc)")


@pytest.fixture(scope="module")
def debugger() -> Debugger:
    return hgemm_debugger()


@pytest.fixture
def told(debugger: Debugger) -> Told:
    debugger.stops.clear()
    debugger.lanes = None
    debugger.to_start()
    return Told(debugger)


def test_a_fragment_is_drawn_as_its_matrix(told: Told) -> None:
    told(f"break {MMA}", "run")
    text = told("print a")
    a = np.asarray(told.debugger.recorded.trace.arrays[0].array)
    rows = [line.split() for line in text.splitlines()]
    assert text.startswith("a: f16, 16 × 16, held by the warp")
    assert rows[4] == ["2", *(f"{float(each):.4g}" for each in a[2, :16])]


def test_lanes_are_a_table_and_equal_ones_a_line(told: Told) -> None:
    told(f"break {MMA}", "run")
    assert told("print k") == "k = 0 in lanes 0-31"
    assert told("print lane").splitlines()[-1].split() == ["24", *map(str, range(24, 32))]
    assert told("lanes 0x3", "print lane").splitlines()[-1].split() == ["0", "0", "1", *"······"]
    assert "lanes 0-31; at" in told("lanes all")


def test_a_part_of_an_array_has_the_numbers_of_the_whole(told: Told) -> None:
    lines = told("continue", "print C[4:6, 2:5]").splitlines()
    assert lines[1].split() == ["2", "3", "4"] and lines[2].split()[0] == "4"


def test_why_names_the_inputs(told: Told) -> None:
    answer = told("continue", "why C[3, 5]")
    assert "made from 48 elements of A: A[3, 0]" in answer and "B[47, 5]" in answer
    assert "before the launch" in told("why C[17, 9]")
    assert told("run", "goto 0", "why As[0, 0]") == "As[0, 0]: nothing has written it up to here"


def test_what_there_is(told: Told) -> None:
    assert told("info shared").split()[:5] == ["As", "float16", "16", "×", "16"]
    assert told("info findings") == "The checker found nothing."
    assert told("info barriers") == "No warp waits at a barrier."
    assert told("info copies") == "No asynchronous copy was issued up to here."
    assert told("info breakpoints") == "There are none."
    assert told(f"break {MMA} if lane == 7", "info break") == f"1  break traced.py:{MMA} if lane == 7"
    assert "k" in told("goto 60", "info registers") and "> warp 0" in told("info warps")
    assert "variables: N, K, lane" in told("info variables")


def test_asynchronous_copies_from_issue_to_completion() -> None:
    told = Told(Debugger(launched(lw.load(COPY)["k"][1, 32], np.arange(128, dtype=np.float32))))
    assert told("break 15", "run", "info copies").split()[-1] == "way"
    assert told("next", "info copies").split()[-1] == "group"
    assert told("next", "info copies").split()[-1] == "complete"


COPY = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 X) {
    .shared .align 16 .b8 tile[512];
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd0, [X];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd2, %rd0, %rd1;
    mov.u32 %r2, tile;
    mad.lo.u32 %r1, %r0, 16, %r2;
    cp.async.ca.shared.global [%r1], [%rd2], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ret;
}
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate", "no command 'frobnicate'"),
        ("brake 3", "did you mean break?"),
        ("re", "may be reverse-continue"),
        ("break 10000", "have no code"),
        ("break x", "a line is named as"),
        ("break 28 if", "a condition is missing"),
        ("watch", "name what to watch"),
        ("watch acc", "name one, as in acc"),
        ("watch Q[1]", "no register or variable Q"),
        ("watch As[99, 0]", "there is no element"),
        ("delete 7", "no breakpoint 7"),
        ("goto x", "the number of a step"),
        ("goto 999999999", "steps are 0 to"),
        ("lanes 40", "lanes are named as"),
        ("warp 3", "there is no warp 3"),
        ("block 7,7", "there is no block"),
        ("block x", "by its coordinates"),
        ("info nonsense", "info knows no topic 'nonsense'; topics are barriers"),
        ("info", "info needs a topic; topics are barriers"),
        ("why", "name an element"),
        ("why Q[1]", "arrays are A, B, C, As, Bs"),
        ("up", "nothing called it"),
        ("finish", "in the kernel itself"),
        ("type As", "write it as"),
        ("type As f16[999,999]", "has 512 bytes"),
        ("draw acc", "write it as"),
        ("draw lane x.svg", "neither a fragment nor"),
        ("draw acc x.bmp", "pictures are written as"),
        ("save x.png", "is saved as .html"),
        ("save /nowhere/at/all.html", "could not be written"),
        ("catch me", "on or off"),
        ("step x", "how many times"),
        ("continue 3x", "continue takes nothing after it, and '3x' was given"),
        ("set acc = 5", "cannot be changed: edit the kernel"),
        ("display acc", "`watch ELEMENT` stops where it changes"),
        ("x/4f C", "`print x[0:4]` shows elements"),
        ("thread 3", "`warp N`, `lanes N` and `block X,Y`"),
        ("origin C[3, 5]", "`why C[3, 5]` says what made a value"),
    ],
)
def test_a_mistake_is_an_answer(told: Told, line: str, message: str) -> None:
    answer = told(line)
    assert answer.startswith("error: ") and message in answer


def test_topics_have_their_names_of_gdb(told: Told) -> None:
    for theirs, own in {"locals": "variables", "threads": "warps", "regs": "registers"}.items():
        assert told(f"info {theirs}") == told(f"info {own}")


def test_pictures_and_pages_are_written(told: Told, tmp_path: Path) -> None:
    told(f"draw acc {tmp_path / 'acc.svg'}", f"draw As {tmp_path / 'As.svg'}", f"save {tmp_path / 'x.html'}")
    told(f"save {tmp_path / 'x.json'}")
    assert all((tmp_path / name).read_text() for name in ("acc.svg", "As.svg", "x.html", "x.json"))


def test_every_command_has_help_with_an_example(told: Told) -> None:
    overview = told("help")
    for name in commands.names():
        assert "example:" in told(f"help {name}")
        assert commands.find(name).about in overview


def test_names_are_completed(debugger: Debugger) -> None:
    assert completions(debugger, "rev", "rev") == ["reverse-continue", "reverse-next", "reverse-stepi"]
    assert completions(debugger, "info b", "b") == ["barriers", "breakpoints"]
    assert completions(debugger, "print ac", "ac")[0] == "acc"
    assert completions(debugger, "help ti", "ti") == []


def test_the_limit_is_told_with_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = matrices(k=480)
    launch = launched(hgemm[(2, 2), 32], a, b, c, 16, 480)
    launch.limit = 1 << 16
    with pytest.raises(Quit):
        Prompt(given=["continue", "quit"]).debug(launch)
    said = capsys.readouterr().out
    assert "The limit of 65536 bytes was reached: these are the first" in said
    assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=0.1)  # the launch ran on


@lw.kernel
def patient(X: lw.Ptr[lw.i32]):
    turns = lw.i32(0)
    while turns < 0x7FFFFFFF:
        turns += 1
    X[1] = turns


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to send")
def test_an_interrupt_stops_the_run_and_not_the_debugger(capsys: pytest.CaptureFixture[str]) -> None:
    launch = launched(patient[1, 32], np.zeros(32, np.int32))
    launch.limit = 1 << 20
    launch.started = lambda running: threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(Quit):
        Prompt(given=["step", "where", "quit"]).debug(launch)
    said = capsys.readouterr().out
    assert "The launch did not end: the launch was interrupted" in said and "step " in said


def test_the_prompt_repeats_a_move_and_ends_with_its_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["stepi", "", "", "print 1", ""])

    def read(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    a, b, c = matrices()
    with pytest.raises(Quit):
        Prompt().debug(launched(hgemm[(2, 2), 32], a, b, c, 16, 48))
    said = capsys.readouterr().out
    assert "step 14," in said and said.count("1 = 1") == 1


def test_on_hopper_a_fragment_is_held_by_four_warps_and_leads_back_to_a_and_b() -> None:
    case = CASES["hopper"]()
    debugger = Debugger(launched(case.configured, *case.arguments))
    told = Told(debugger)
    last = max(step.number for step in debugger.recorded.trace.steps if step.text.startswith("wgmma.mma"))
    shown = told(f"goto {last + 1}", "print acc")
    assert shown.startswith("acc: f32, 64 × 64, held by four warps")
    a, b = (each.array.astype(float) for each in case.arguments[:2])
    first = [float(each) for each in shown.splitlines()[2].split()[1:4]]
    assert np.allclose(first, (a @ b)[0, :3], rtol=1e-3)  # it is shown with four digits
    why = told("warp 0", "lanes 5", "why acc[0]")
    assert "made from 192 elements of A: A[1, 0]" in why and "of B: B[0, 2]" in why
    copies = told("info copies").splitlines()
    assert len(copies) == 1 + 2 * 3 and all(each.split()[-1] == "complete" for each in copies[1:])
    assert all(" 8192 " in each for each in copies[1:])
