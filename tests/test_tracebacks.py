"""Tracebacks of the library's errors: the user's lines and the message, and no line of the library."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import InternalError, LanewiseError
from lanewise.tracebacks import RAISE_AS_IS, short_traceback

PACKAGE = str(Path(lw.__file__).parent)
WHOLE = "LANEWISE_TRACEBACK"
SCRIPT = """\
import numpy as np
import lanewise as lw

@lw.kernel
def fill(x: lw.Ptr[lw.f32], n: lw.i32):
    x[lw.thread_idx.x + n] = {value}

def start(n):
    fill[1, 32](np.zeros(32, np.float32), n)

start({n})
"""
PTX = ".version 8.0\n.target sm_80\n.visible .entry k(.param .u64 x) { ret; }"


def doubled(x: Any) -> Any:
    return x + missing  # type: ignore[name-defined]  # noqa: F821 (the mistake that a test looks for)


@lw.kernel
def mixed(x: lw.Ptr[lw.f32], n: lw.i32) -> None:
    x[0] = x[0] + n


@lw.kernel
def calls(x: lw.Ptr[lw.f32]) -> None:
    x[0] = doubled(x[0])


@lw.kernel
def beyond(x: lw.Ptr[lw.f32]) -> None:
    x[lw.thread_idx.x + 32] = 1.0


NO_FUNCTION: Any = 3
MMA: Any = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
X, H = np.zeros(32, np.float32), np.zeros((3, 4), np.float16)
#: Calls that end in an error, and the lines of this file that their tracebacks end with.
WRONG: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: mixed[1, 32](X, 1), ["mixed[1, 32](X, 1)", "x[0] = x[0] + n"]),
    (lambda: mixed.ptx("sm_80"), ['mixed.ptx("sm_80")', "x[0] = x[0] + n"]),
    (lambda: mixed.sass("sm_80"), ['mixed.sass("sm_80")', "x[0] = x[0] + n"]),
    (lambda: lw.check(mixed[1, 32], X, 1), ["lw.check(mixed[1, 32], X, 1)", "x[0] = x[0] + n"]),
    (lambda: lw.trace(mixed[1, 32], X, 1), ["lw.trace(mixed[1, 32], X, 1)", "x[0] = x[0] + n"]),
    (lambda: mixed(X, 1), ["mixed(X, 1)"]),
    (lambda: mixed[1, 32](H, 1), ["mixed[1, 32](H, 1)"]),
    (lambda: mixed[0, 32](X, 1), ["mixed[0, 32](X, 1)", "x[0] = x[0] + n"]),
    (lambda: beyond[0, 32](X), ["beyond[0, 32](X)"]),
    (lambda: beyond[1, 32](X), ["beyond[1, 32](X)"]),
    (lambda: beyond[1, 32](X, steps=1), ["beyond[1, 32](X, steps=1)"]),
    (lambda: lw.check(3), ["lw.check(3)"]),
    (lambda: lw.load("no such file"), ['lw.load("no such file")']),
    (lambda: lw.load(PTX)["other"], ['lw.load(PTX)["other"]']),
    (lambda: lw.load(PTX)["k"][0, 32], ['lw.load(PTX)["k"][0, 32]']),
    (lambda: lw.load(PTX)["k"](X), ['lw.load(PTX)["k"](X)']),
    (lambda: lw.load(PTX)["k"][1, 32](X, 2), ['lw.load(PTX)["k"][1, 32](X, 2)']),
    (lambda: lw.cuda("", compiler="gcc"), ['lw.cuda("", compiler="gcc")']),  # type: ignore[arg-type]  # the mistake
    (lambda: lw.matmul(H, H), ["lw.matmul(H, H)"]),
    (lambda: lw.plan(H, H), ["lw.plan(H, H)"]),
    (lambda: lw.tune(H, H), ["lw.tune(H, H)"]),
    (lambda: lw.sparsify(H), ["lw.sparsify(H)"]),
    (lambda: lw.grouped_matmul(H, H, [1]), ["lw.grouped_matmul(H, H, [1])"]),
    (lambda: lw.benchmark(NO_FUNCTION), ["lw.benchmark(NO_FUNCTION)"]),
    (lambda: MMA(X, X), ["MMA(X, X)"]),
    (lambda: MMA([[1]], [[1]], arch="sm_90"), ['MMA([[1]], [[1]], arch="sm_90")']),
    (lambda: MMA.a.pack(X), ["MMA.a.pack(X)"]),
    (lambda: MMA.a.unpack(X), ["MMA.a.unpack(X)"]),
    (lambda: lw.Ptr[np.float32], ["lw.Ptr[np.float32]"]),
    (lambda: lw.TensorMap[lw.f16], ["lw.TensorMap[lw.f16]"]),
    (lambda: lw.Array[lw.f16], ["lw.Array[lw.f16]"]),
    (lambda: lw.virtual_gpu("H1000"), ['lw.virtual_gpu("H1000")']),
    (lambda: lw.autotune(NO_FUNCTION), ["lw.autotune(NO_FUNCTION)"]),
    (lambda: lw.autotune({"Y": (1,)})(beyond), ['lw.autotune({"Y": (1,)})(beyond)']),
    (lambda: lw.Layout((4, 8))(1, 2, 3), ["lw.Layout((4, 8))(1, 2, 3)"]),
    (lambda: lw.atom("SM80_zz"), ['lw.atom("SM80_zz")']),
    (lambda: lw.f16.encode("a"), ['lw.f16.encode("a")']),
    (lambda: lw.address(3), ["lw.address(3)"]),
    (lambda: lw.texture(3), ["lw.texture(3)"]),
    (lambda: lw.epilogue(NO_FUNCTION), ["lw.epilogue(NO_FUNCTION)"]),
    (lambda: lw.device(NO_FUNCTION), ["lw.device(NO_FUNCTION)"]),
    (lambda: lw.kernel(NO_FUNCTION), ["lw.kernel(NO_FUNCTION)"]),
    (lambda: lw.kernel(max_threads=0)(doubled), ["lw.kernel(max_threads=0)(doubled)"]),
    (lambda: lw.load(PTX).globals["g"], ['lw.load(PTX).globals["g"]']),
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracebacks are as users see them: the suite itself asks for whole ones."""
    monkeypatch.delenv(RAISE_AS_IS, raising=False)
    monkeypatch.delenv(WHOLE, raising=False)


@sampled(2)
@pytest.mark.parametrize(
    ("value", "n", "message"), [("mistaken", 0, "'mistaken'"), ("1.0", 1, "past the end")]
)
def test_script_shows_its_own_lines(tmp_path: Path, value: str, n: int, message: str) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(SCRIPT.format(value=value, n=n))
    environment = {**os.environ, "PYTHONPATH": str(Path(PACKAGE).parent)}
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment).stderr
    assert PACKAGE not in said and message in said
    assert said.count("File ") == 2 and said.count("Traceback") == 1
    assert "line 11, in <module>" in said and "line 9, in start" in said and "wrong.py:6" in said


def told(call: Callable[[], Any]) -> traceback.TracebackException:
    with pytest.raises(LanewiseError) as caught:
        call()
    return traceback.TracebackException.from_exception(caught.value)


@pytest.mark.parametrize(("call", "lines"), WRONG)
def test_no_line_is_of_the_library(call: Callable[[], Any], lines: list[str]) -> None:
    shown = told(call)
    text = "".join(shown.format())
    assert PACKAGE not in text and text.count("Traceback") == 1
    assert [frame.filename for frame in shown.stack] == [__file__] * len(shown.stack)
    ends = [str(frame.line) for frame in list(shown.stack)[-len(lines) :]]
    assert all(line in end for line, end in zip(lines, ends, strict=True))


def test_error_in_a_function_that_a_kernel_calls_shows_the_way_there() -> None:
    shown = told(lambda: calls[1, 32](X))
    assert shown.__cause__ is not None
    assert [frame.name for frame in shown.__cause__.stack] == ["calls", "doubled"]
    assert PACKAGE not in "".join(shown.format())


def test_error_that_the_user_was_handling_is_shown() -> None:
    def handling() -> None:
        try:
            os.environ["NOTHING_OF_THIS_NAME"]
        except KeyError:
            lw.matmul(H, H)

    shown = told(handling)
    assert shown.__context__ is not None and "NOTHING_OF_THIS_NAME" in str(shown.__context__)


@pytest.mark.parametrize("variable", [WHOLE, RAISE_AS_IS])
def test_variable_keeps_the_whole_traceback(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert any(frame.filename.startswith(PACKAGE) for frame in told(lambda: lw.matmul(H, H)).stack)


def test_mistake_of_the_library_keeps_the_whole_traceback() -> None:
    @short_traceback
    def broken() -> None:
        raise InternalError("a mistake", ZeroDivisionError("of a table"))

    assert [frame.name for frame in told(broken).stack][-1] == "broken"
    assert any(frame.filename.startswith(PACKAGE) for frame in told(broken).stack)
