"""PTX that Triton compiled for sm_80 (`tests/machine/triton`, made by its `make.py`) on the machine."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw

FOLDER = Path(__file__).parent / "triton"
KERNELS: dict[str, Any] = json.loads((FOLDER / "kernels.json").read_text())


@cache
def module(name: str) -> lw.Module:
    return lw.load(FOLDER / f"{name}.ptx")


def run(name: str, grid: Any, *arguments: Any) -> None:
    """Launch with what Triton passes besides: pointers to scratch memory that is not used."""
    about = KERNELS[name]
    assert about["global_scratch"] == 0
    entry = module(name)[name]
    extra = len(entry.parameters) - len(about["signature"])
    entry[grid, 32 * about["num_warps"], about["shared"]](*arguments, *[None] * extra)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 96), (100, 72, 80)])
def test_matmul_is_the_instruction_repeated(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    run("matmul", (-(-m // 64), -(-n // 64)), a, b, c, m, n, k, k, n, n)
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert c.tobytes() == mma.gemm(a, b, arch="sm_80").tobytes()


def test_softmax() -> None:
    x = (3 * np.random.default_rng(2).standard_normal((5, 781))).astype(np.float32)
    y = np.zeros_like(x)
    run("softmax", 5, x, y, 781, 781, 781)
    exact = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    exact /= exact.sum(1, keepdims=True)
    # exp is ex2.approx (2 ulp) of an argument of up to 30, rounded; the division is div.full (2 ulp).
    assert np.abs(y / exact - 1).max() < 4e-6


def test_layer_norm() -> None:
    rng = np.random.default_rng(3)
    rows, n = 6, 600
    x = (2 + 3 * rng.standard_normal((rows, n))).astype(np.float16)
    weight, bias = rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    mean, rstd = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    # A stride of 608 keeps rows on multiples of 16 elements, which this PTX was compiled to expect.
    wide, out = np.zeros((rows, 608), np.float16), np.zeros((rows, 608), np.float16)
    wide[:, :n] = x
    run("layer_norm", rows, wide, out, weight, bias, mean, rstd, 608, n, 1e-5)
    y = out[:, :n].astype(np.float64)
    exact = x.astype(np.float64)
    deviation = np.sqrt(exact.var(1) + 1e-5)
    assert np.abs(mean - exact.mean(1)).max() < 1e-6
    assert np.abs(rstd * deviation - 1).max() < 1e-6
    exact = (exact - exact.mean(1, keepdims=True)) / deviation[:, None] * weight + bias
    # What is stored is f16: half a unit in its last place, and float32's errors before that.
    assert np.abs(y - exact).max() <= np.abs(exact).max() * 2**-11 * 1.01
    assert not out[:, n:].any()


def test_fused_attention() -> None:
    heads, length, depth = 2, 128, 64
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((heads, length, depth)).astype(np.float16) for _ in range(3))
    out = np.zeros_like(q)
    run("attention", (length // 64, heads), q, k, v, out, length, depth**-0.5)
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * depth**-0.5
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("hqk,hkd->hqd", weights, v.astype(np.float64))
    # Weights and outputs are rounded to f16.
    assert np.abs(out.astype(np.float64) - exact).max() < 2e-3
