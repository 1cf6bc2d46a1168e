"""A launch that takes long says so once, where somebody reads it; Ctrl-C stops it all the same."""

import io
import os
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import lanewise as lw
from lanewise.launch import LongLaunch


@lw.kernel
def waits(x: lw.Ptr[lw.i32]) -> None:
    while x[0] == 0:
        pass


@lw.kernel
def ends(x: lw.Ptr[lw.i32]) -> None:
    x[0] = 1


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("blocks", [1, 9])
def test_a_launch_that_never_ends_says_so_and_can_be_stopped(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("lanewise.launch.PATIENCE", 0.3)
    monkeypatch.setattr(sys, "argv", ["folder/mine.py"])
    stop = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    monkeypatch.setattr(terminal, "flush", stop.start)  # Ctrl-C, a moment after the sentence
    try:
        with pytest.raises(KeyboardInterrupt):
            waits[blocks, 1](np.zeros(1, np.int32))
    finally:
        stop.cancel()
    said = terminal.getvalue()
    assert said.count("\n") == 1 and said.startswith("lanewise: waits has run on the CPU for ")
    assert "not done yet. Does it end? `lanewise check mine.py`" in said and "Ctrl-C stops it" in said


def test_others_are_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lanewise.launch.PATIENCE", 0.0)
    ends[1, 1](np.zeros(1, np.int32))
    assert capsys.readouterr().err == "" and LongLaunch.of(ends.module()["ends"]) is None
    monkeypatch.setattr("lanewise.launch.PATIENCE", 60.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ends[1, 1](np.zeros(1, np.int32))
    assert terminal.getvalue() == ""


def test_a_notebook_is_read_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = SimpleNamespace(kernel=1, compile=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("lanewise.launch.PATIENCE", 0.0)
    long = LongLaunch.of(ends.module()["ends"])
    assert long is not None
    long(3, 1000)
    long(4, 1000)
    never = LongLaunch.of(ends.module()["ends"])
    assert never is not None
    assert capsys.readouterr().err.endswith(
        "0 s: 3 of 1,000 blocks are done. progress=function shows how far it is; Ctrl-C stops it.\n"
    )
    never(0, 9)
    assert "not done yet. Does it end? lw.check names a loop that never does" in capsys.readouterr().err
