"""`lanewise debug`: kernels in files, scripts with several launches, findings; exit codes and complaints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PTX = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 X) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd0, [X];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.f32 %f0, [%rd2];
    add.f32 %f1, %f0, 0f3F800000;
    st.global.f32 [%rd2], %f1;
    ret;
}
"""
SCRIPT = """
import sys
import numpy as np
import lanewise as lw

@lw.kernel
def k(X: lw.Ptr[lw.f32], V: lw.f32):
    i = lw.thread_idx.x
    x = X[i] + V
    X[i] = x

x = np.zeros(32, np.float32)
for number in range(int(sys.argv[1])):
    k[1, 32](x, 1.0)
print("sum", x.sum())
"""


@pytest.fixture
def ptx(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(PTX)
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_kernel_in_a_file(answered: Callable[..., str], ptx: Path) -> None:
    said = answered(
        "debug", ptx, "--block", 32, "--arg", "arange:f32:32", "-x", "break 13", "-x", "run", "-x",
        "print %f0[0]", "-x", "print %f0 + 1 - lane", "-x", "quit",
    )  # fmt: skip
    assert "k, block (0, 0, 0) of (1, 1, 1): 8 steps of 1 warp" in said
    assert "%f0 + 1 - lane = 1 in lanes 0-31" in said and "error: %f0" in said


def test_a_script_goes_on_from_launch_to_launch(answered: Callable[..., str], script: Path) -> None:
    said = answered(
        "debug", script, "-x", "break 10", "-x", "run", "-x", "leave", "-x", "run", "-x", "print x", "-x",
        "leave", "--", 2,
    )  # fmt: skip
    assert "Launch 2:" in said and "x = 2 in lanes 0-31" in said and said.endswith("sum 64.0\n")


def test_quit_ends_a_script(answered: Callable[..., str], script: Path) -> None:
    said = answered("debug", script, "-x", "quit", "--", 3)
    assert "Launch 1:" in said and "Launch 2:" not in said and "sum" not in said


def test_it_starts_at_the_first_finding(answered: Callable[..., str], ptx: Path) -> None:
    said = answered(
        "debug", ptx, "--check", "--grid", 2, "--block", 32, "--arg", "zeros:f32:16", "-x", "print %r0",
        "-x", "quit",
    )  # fmt: skip
    assert "Finding: out of bounds" in said or "Finding: fault" in said or "Finding:" in said
    assert "PTX line 12" in said and "ld.global.f32" in said


def test_nothing_is_found(answered: Callable[..., str], ptx: Path) -> None:
    said = answered("debug", ptx, "--check", "--block", 32, "--arg", "zeros:f32:32", "-x", "quit")
    assert "The checker found nothing." in said


def test_complaints(lanewise: Callable[..., Any], script: Path, ptx: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (("debug", tmp_path / "no.ptx"), "no.ptx"),
        (("debug", script, "--grid", 1), "launches its kernels itself"),
        (("debug", script, "--", 0), "launches nothing"),
        (("debug", ptx, "--block", 32), "takes 1 argument:"),
    ):
        said = lanewise(*arguments)
        assert said.code == 2 and message in said.err and "Traceback" not in said.err
