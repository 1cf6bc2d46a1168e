"""Tensor memory at the prompt: words by lane and column, matrices by name, operations in flight."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from debug.debugged import Told, launched, line_of
from lanewise.debug.adapter.variables import scopes
from lanewise.debug.debugger import Debugger
from lanewise.debug.prompt import completions
from traces.tensor_kernels import matrices, mma, product

COMMIT = line_of(product, "lw.tcgen05.commit(multiplied)")
LOAD = line_of(product, "sums = acc.load(0, 64)")


@pytest.fixture(scope="module")
def arrays() -> tuple[Any, Any, Any]:
    return matrices(128, 64, 128)


@pytest.fixture(scope="module")
def debugger(arrays: tuple[Any, Any, Any]) -> Debugger:
    a, b, c = arrays
    maps = lw.tensor_map(a, (128, 64), swizzle="128B"), lw.tensor_map(b, (64, 64), swizzle="128B")
    return Debugger(launched(product[1, 128], *maps, c, 128, arch="sm_100a"))


@pytest.fixture
def told(debugger: Debugger) -> Told:
    debugger.stops.clear()
    debugger.to_start()
    return Told(debugger)


def test_words_and_matrices_are_expressions(told: Told, arrays: tuple[Any, Any, Any]) -> None:
    a, b, _ = arrays
    expected = mma.gemm(a, b.T, arch="sm_100a")
    told(f"break {LOAD}", "run")
    assert told("print acc[70, 9]") == f"acc[70, 9] = {expected[70, 9]:.6g}"
    assert told("print tmem[70, 9] == acc[70, 9]") == "tmem[70, 9] == acc[70, 9] = True"
    assert told("print tmem_bits[70, 9]") == f"tmem_bits[70, 9] = {expected.view(np.uint32)[70, 9]}"
    assert told("print acc").startswith("acc: float32, 128 × 64")
    assert told("print tmem[128, 0]") == "error: tmem has elements 0 to 127 there, not 128"
    assert told("print tmem[0, 512]") == "error: tmem has elements 0 to 511 there, not 512"
    lines = told("print tmem[3:5, 0:2]").splitlines()
    assert lines[2].split() == ["3", *(f"{float(each):.4g}" for each in expected[3, :2])]


def test_a_watchpoint_stops_where_a_product_writes(told: Told) -> None:
    assert told("watch tmem[3, 5]").endswith("which changes 8 times")
    assert "tmem[3, 5]: 0 → " in told("run")


def test_what_is_in_flight_and_who_wrote(told: Told) -> None:
    told(f"break {COMMIT}", "run")
    flying = [line for line in told("info copies").splitlines() if "tcgen05.mma" in line]
    assert len(flying) == 4 and all(line.endswith("under way") for line in flying)
    assert told("info tensor").splitlines()[0] == "Columns 0–63 are allocated."
    assert "0-63  0-127  step" in told("info tensor")
    told("next")
    flying = [line for line in told("info copies").splitlines() if "tcgen05.mma" in line]
    assert all(line.endswith("complete") for line in flying)


def test_why_goes_through_tensor_memory(told: Told) -> None:
    text = told(f"break {LOAD}", "run", "why acc[3, 5]")
    assert "made from 128 elements of A: A[3, 0]" in text and "made from 128 elements of B: B[5, 0]" in text


def test_before_anything_is_allocated(told: Told) -> None:
    assert told("info tensor") == "No column is allocated.\nNothing has been written to it."
    assert told("print acc").startswith("error: acc has no columns of tensor memory yet")


def test_it_is_drawn_completed_and_shown_in_an_editor(told: Told, tmp_path: Path) -> None:
    told(f"break {LOAD}", "run", f"draw tmem {tmp_path / 'tmem.svg'}")
    assert "written by step" in (tmp_path / "tmem.svg").read_text()
    assert {"tmem", "tmem_bits"} <= set(completions(told.debugger, "print tm", "tm"))
    shown = {name: make for name, make, _ in scopes(told.debugger.moment)}["Tensor memory"]()
    assert [each.name for each in shown] == ["acc", "tmem", "tmem_bits"]
