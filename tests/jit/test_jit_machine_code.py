"""Machine code on disk: written once, shared by processes, mended when damaged, done without if need be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everything import EVERYTHING, sampled
from lanewise.jit import machine_code

SCRIPT = """
import numpy as np
from lanewise.arith import compute
from lanewise.jit import machine_code
from lanewise.isa import instruction

if {read_only}:
    machine_code.compile = None
mma = instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
print(compute(mma, np.ones((16, 8), "f2"), np.ones((8, 8), "f2"), arch="sm_75").sum())
"""


def start(cache: Path | str, read_only: bool = False) -> subprocess.Popen[str]:
    """A new process that computes one product; with `read_only` it cannot compile."""
    environment = os.environ | {"LANEWISE_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", SCRIPT.format(read_only=read_only)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


def test_processes_share_what_one_compiled(tmp_path: Path) -> None:
    several = [start(tmp_path) for _ in range(3 if EVERYTHING else 2)]
    assert {finish(each) for each in several} == {"1024.0"}
    kept = list(tmp_path.glob("*.o"))
    assert len(kept) == 1
    assert finish(start(tmp_path, read_only=True)) == "1024.0"
    kept[0].write_bytes(kept[0].read_bytes()[:-100] + bytes(100))  # damaged: compiled anew
    assert finish(start(tmp_path)) == "1024.0"
    assert finish(start(tmp_path, read_only=True)) == "1024.0"


@sampled(2)
@pytest.mark.parametrize("where", ["", "/proc/nowhere", "file"])
def test_no_cache_is_no_error(where: str, tmp_path: Path) -> None:
    if where == "file":
        (tmp_path / "file").write_text("not a directory")
        where = str(tmp_path / "file")
    assert finish(start(where)) == "1024.0"


def test_one_program_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    written = []

    def write() -> str:
        written.append(1)
        return "define void @f(ptr %0) { ret void }"

    first = machine_code.load("a test's key", write)
    assert machine_code.load("a test's key", write) is first
    assert len(written) == 1
    first("f", [])


def test_few_passes_where_the_environment_asks_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sum in a loop becomes a product with all passes; what is kept on disk is told apart."""
    text = """define i64 @f(i64 %n) {
entry: br label %again
again:
  %i = phi i64 [0, %entry], [%next, %again]
  %sum = phi i64 [0, %entry], [%more, %again]
  %more = add i64 %sum, 7
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, %n
  br i1 %on, label %again, label %done
done: ret i64 %more }"""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    images = {}
    for value in ("", "1"):
        monkeypatch.setenv(machine_code.COMPILE_QUICKLY, value)
        images[value] = machine_code.images("a sum", lambda: [machine_code.compile(text)])
    assert images["1"] == [machine_code.compile_quickly(text)] != images[""]
    monkeypatch.setenv(machine_code.COMPILE_QUICKLY, "")
    assert machine_code.images("a sum", list) == images[""]
