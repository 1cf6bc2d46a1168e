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


CELL = "/tmp/ipykernel_1/2030512989.py"


@pytest.fixture
def in_a_cell(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Run a text as the second cell of a notebook, whose number IPython keeps under a file name."""

    def run(text: str) -> dict[str, Any]:
        shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={CELL: 2}))
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        lines = text.splitlines(keepends=True)
        monkeypatch.setattr(linecache, "cache", {**linecache.cache, CELL: (len(text), None, lines, CELL)})
        namespace: dict[str, Any] = {"lw": lw}
        exec(compile(text, CELL, "exec"), namespace)
        return namespace

    return run


def test_a_finding_in_a_notebook_names_the_cell(in_a_cell: Callable[[str], dict[str, Any]]) -> None:
    text = "@lw.kernel\ndef shift(x: lw.Ptr[lw.f32]):\n    x[lw.thread_idx.x] = x[lw.thread_idx.x + 1]\n"
    report = lw.check(in_a_cell(text)["shift"][1, 32], np.zeros(32, np.float32))
    assert {finding.source for finding in report.findings} == {"cell In[2]:3"}
    assert "x[lw.thread_idx.x + 1]" in report.listing_text()


def test_a_mistake_in_a_kernel_in_a_notebook_names_the_cell(
    in_a_cell: Callable[[str], dict[str, Any]],
) -> None:
    text = "@lw.kernel\ndef wrong(x: lw.Ptr[lw.f32]):\n    x[0] = x[0] + [1]\n"
    kernel = in_a_cell(text)["wrong"]
    with pytest.raises(lw.KernelError, match=r"^cell In\[2\]:3: "):
        kernel.ptx()
    assert "cell In[2], line 1" in kernel._repr_html_()
    assert "cell In[2]:3: " in kernel._repr_html_()


@lw.kernel
def scale(x: lw.Ptr[lw.f32], a: lw.f32, n: lw.i32, BLOCK: lw.Constexpr = 128) -> None:
    i = lw.block_idx.x * BLOCK + lw.thread_idx.x
    if i < n:
        x[i] = x[i] * a


@lw.kernel
def unbound(x: lw.Ptr[lw.f32], N: lw.Constexpr) -> None:
    x[0] = lw.f32(N)


def test_a_kernel_shows_its_signature_resources_source_and_ptx() -> None:
    shown = scale._repr_html_()
    assert "<h2>scale(x: Ptr[f32], a: f32, n: i32, BLOCK: Constexpr = 128)</h2>" in shown
    assert "scale[grid, block](x, a, n)" in shown
    assert "<td>registers</td><td>" in shown or "<td>resources</td>" in shown
    assert "if i &lt; n:" in shown and ".visible .entry scale(" in shown
    assert "needs a value for the Constexpr N" in unbound._repr_html_()


def test_modules_and_entries_show_their_names_as_c_plus_plus_writes_them() -> None:
    module = lw.load(PTX.replace("entry k", "entry _Z4copyPKfPfi"))
    assert repr(module) == "<PTX 8.0 for sm_80: copy(float const*, float*, int)>"
    for shown in (module._repr_html_(), module["copy"]._repr_html_()):
        assert "copy(float const*, float*, int)" in shown and "st.global.u32" in shown
    report = lw.check(module["copy"][1, 32], np.zeros(32, np.uint32))
    assert "copy(float const*, float*, int): " in str(report)
