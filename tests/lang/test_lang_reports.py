"""Kernels of the language in reports: Python lines beside their counters; how many blocks are resident."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from lanewise.ptx import ToolMissing


def test_a_kernel_in_python() -> None:
    @lw.kernel
    def columns(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]):
        i = lw.thread_idx.x
        y[i] = x[i * 32]

    report = lw.check(columns[1, 32], np.ones(1024, np.float32), np.ones(32, np.float32))
    (file,) = report.listing()
    assert Path(file.name).name == Path(__file__).name
    slow = next(line for line in file.lines if line.performance)
    assert slow.text.strip() == "y[i] = x[i * 32]" and slow.figures["sectors"] == 32 + 4
    assert report.performance[0].subject == "x[i * 32]"


def test_kernels_of_the_language_know_theirs() -> None:
    @lw.kernel
    def scale(x: lw.Ptr[lw.f32], n: lw.Constexpr):
        i = lw.block_idx.x * n + lw.thread_idx.x
        x[i] = x[i] * 2.0

    try:
        found = scale.occupancy("sm_90", block=(32, 4), n=128)
    except ToolMissing:
        pytest.skip("no ptxas")
    assert found.threads == 128 and found.blocks == 16 and found.warps == 64
