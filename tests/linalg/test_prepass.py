"""Copies of operands for TMA and wgmma: every element in its place, zeros behind the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.formats import FORMATS, bf16, e4m3, f32, tf32
from lanewise.linalg.families import prepass, prepass_kernels, warpgroup
from lanewise.linalg.pointers import flat
from linalg.hopper_products import plan, product, some


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", some([1, 2, 4], 2))
def test_copies(size: int, transposed: bool) -> None:
    """Rows of any alignment become rows at multiples of 16 bytes, and a matrix its transpose."""
    rng = np.random.default_rng(size)
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    rows, columns, leading = 37, 75, 81
    base = rng.integers(0, 1 << (8 * size), 1 + rows * leading, dtype=kind)
    source = base[1:].reshape(rows, leading)[:, :columns]
    width = rows if transposed else columns
    padded = -(-width // (128 // size)) * (128 // size)
    target = np.full((columns if transposed else rows, padded), 7, kind)
    kernel = (prepass_kernels.transposing if transposed else prepass_kernels.realigning)(size)
    blocks = (2, -(-padded // 64)) if transposed else (1, 10)
    arguments = (flat(source), target, rows, columns, leading, padded, 0, 0)
    kernel[blocks, 256](*arguments)
    wanted = source.T if transposed else source
    assert np.array_equal(target[:, : wanted.shape[1]], wanted)
    assert not target[:, wanted.shape[1] :].any()
    assert lw.check(kernel[blocks, 256], *arguments).ok


@pytest.mark.parametrize(
    ("dtype", "layout", "out"),
    some(
        [(bf16, "NN", bf16), (bf16, "TT", bf16), (e4m3, "TN", f32), (tf32, "TN", f32)],
        (e4m3, "TN", f32),
    ),
)
def test_products_of_copies(dtype: Any, layout: str, out: Any) -> None:
    """A product of odd sizes by way of copies has the same bits."""
    m, n, k = 67, 61, 77
    problem, pointers, sums = product(m, n, k, dtype, dtype, out, layout=layout)
    chosen = replace(plan((64, 64, 32 * 32 // FORMATS[dtype.name].bits)), copy_a=True, copy_b=True)
    if dtype is e4m3:
        chosen = replace(chosen, tile=(64, 64, 128))
    if dtype is bf16:
        chosen = replace(chosen, tile=(64, 64, 64))
    if dtype is tf32:
        chosen = replace(chosen, tile=(64, 64, 32))
    assert prepass.needs_copy(problem.a, problem.precision) and prepass.needs_copy(
        problem.b, problem.precision
    )
    pointers.workspace = np.zeros(warpgroup.workspace_bytes(problem, chosen) + 128, np.uint8)
    start = -lw.address(pointers.workspace) % 128 if hasattr(lw, "address") else 0
    pointers.workspace = pointers.workspace[start:]
    warpgroup.launch(problem, chosen, pointers)
    assert np.array_equal(pointers.out, sums.astype(pointers.out.dtype))


@pytest.mark.parametrize("layout", some(["NN", "TT"], "TT"))
def test_f32_by_split_products(layout: str) -> None:
    """Six products of bf16 parts, promoted after each 64 of K, are nearly exact."""
    m, n, k = 70, 68, 200
    problem, pointers, _ = product(m, n, k, tf32, tf32, f32, layout=layout)
    problem = replace(problem, precision="f32")
    chosen = replace(plan((64, 64, 64), stages=2), copy_a=True, copy_b=True)
    pointers.workspace = np.zeros(warpgroup.workspace_bytes(problem, chosen) + 128, np.uint8)
    pointers.workspace = pointers.workspace[-lw.address(pointers.workspace) % 128 :]
    warpgroup.launch(problem, chosen, pointers)
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
    parts_a, parts_b = split(pointers.a), split(pointers.b)
    total = np.zeros((m, n), np.float32)
    for first in range(0, k, 64):
        at = slice(first, first + 64)
        order = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
        left = [np.pad(parts_a[i][:, at], ((0, 0), (0, 64 - parts_a[i][:, at].shape[1]))) for i, _ in order]
        right = [np.pad(parts_b[j][at], ((0, 64 - parts_b[j][at].shape[0]), (0, 0))) for _, j in order]
        total = total + mma.gemm(np.concatenate(left, 1), np.concatenate(right, 0), arch="sm_90a")
    assert np.array_equal(pointers.out, total)
    exact = pointers.a.astype(np.float64) @ pointers.b.astype(np.float64)
    assert np.abs(pointers.out - exact).max() < 1e-6 * np.abs(exact).max()


def split(values: Any) -> list[Any]:
    """An f32 array as three of bf16: towards zero first, then to nearest."""
    high = (values.view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    middle = (values - high).astype(bf16.dtype)
    low = (values - high - middle.astype(np.float32)).astype(bf16.dtype)
    return [high.astype(bf16.dtype), middle, low]
