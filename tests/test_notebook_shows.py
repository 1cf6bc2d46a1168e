"""What a prompt or a notebook shows of an object fits a screen, and help is not cut off."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.cli import main

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd0, [p];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r0;
    ret;
}
"""


@pytest.mark.parametrize(
    "make",
    [
        lambda module, x: module,
        lambda module, x: module["k"],
        lambda module, x: module["k"][1, 32],
        lambda module, x: lw.check(module["k"][1, 32], x),
        lambda module, x: lw.trace(module["k"][1, 32], x),
    ],
    ids=["module", "entry", "launch", "report", "trace"],
)
def test_a_repr_is_a_line(make: Callable[[lw.Module, object], object]) -> None:
    shown = repr(make(lw.load(PTX), np.zeros(32, np.uint32)))
    assert "k" in shown and len(shown) < 160 and "\n" not in shown


def test_a_swizzle_draws_itself() -> None:
    shown = lw.Swizzle(2, 0, 2)._repr_svg_()
    assert shown is not None and shown.startswith("<svg ")
    assert lw.draw.text(lw.Swizzle(2, 0, 2)).count("\n") > 5


@pytest.mark.parametrize("command", ["", "draw"])
def test_no_line_of_the_help_is_cut_off(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert commands and not re.search(r"\.\.\.$", commands, re.M)


def test_a_finding_in_a_notebook_names_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython keeps the number of each cell under the name of a file that does not exist."""
    cell = "/tmp/ipykernel_1/2030512989.py"
    text = "@lw.kernel\ndef shift(x: lw.Ptr[lw.f32]):\n    x[lw.thread_idx.x] = x[lw.thread_idx.x + 1]\n"
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={cell: 2}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    lines = text.splitlines(keepends=True)
    monkeypatch.setattr(linecache, "cache", {**linecache.cache, cell: (len(text), None, lines, cell)})
    namespace: dict[str, Any] = {"lw": lw}
    exec(compile(text, cell, "exec"), namespace)
    report = lw.check(namespace["shift"][1, 32], np.zeros(32, np.float32))
    assert {finding.source for finding in report.findings} == {"cell In[2]:3"}
    assert "x[lw.thread_idx.x + 1]" in report.listing_text()
