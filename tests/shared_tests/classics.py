"""Kernels that every CUDA programmer writes once: reductions, softmax, histograms, transposes, attention."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from everything import sampled
from machine.classics import classic


def lane_tree(x: np.ndarray, down: bool) -> np.ndarray:
    """Sums of 32 lanes by shuffles, as float32 arithmetic does them: lane 0's in the order of the kernel."""
    lanes = np.arange(32)
    for step in (16, 8, 4, 2, 1):
        other = np.where(lanes + step < 32, lanes + step, lanes) if down else lanes ^ step
        x = x + x[..., other]
    return x[..., 0]


def block_sum(x: np.ndarray) -> np.ndarray:
    """Of threads along the last axis."""
    warps = x.shape[-1] // 32
    parts = lane_tree(x.reshape(*x.shape[:-1], warps, 32), down=True)
    return lane_tree(
        np.concatenate([parts, np.zeros((*x.shape[:-1], 32 - warps), np.float32)], -1), down=False
    )


def test_sum_by_shuffles_in_the_order_of_the_kernel() -> None:
    x = np.random.default_rng(1).standard_normal((6, 1000)).astype(np.float32)
    sums = np.zeros(6, np.float32)
    classic("reductions")["sum_of_rows"][6, 96](x, sums, 1000)
    threads = np.zeros((6, 96), np.float32)
    for start in range(0, 1000, 96):
        part = x[:, start : start + 96]
        threads[:, : part.shape[1]] += part
    assert (sums == block_sum(threads)).all()


def test_the_last_block_adds_what_the_others_left() -> None:
    kernel = classic("reductions")["sum_of_all"]
    for seed, blocks in ((1, 7), (2, 33), (3, 7)):  # the counter of blocks wraps for the next launch
        x = np.random.default_rng(seed).standard_normal(20_000).astype(np.float32)
        parts, result = np.zeros(blocks, np.float32), np.zeros(1, np.float32)
        kernel[blocks, 128](x, parts, result, x.size)
        threads = np.zeros((blocks, 128), np.float32)
        padded = np.zeros(-(-x.size // threads.size) * threads.size, np.float32)
        padded[: x.size] = x
        for part in padded.reshape(-1, blocks, 128):
            threads += part
        assert (parts == block_sum(threads)).all()
        last = np.zeros((1, 128), np.float32)
        last[0, :blocks] += parts
        assert (result == block_sum(last)).all()


def test_cooperative_groups() -> None:
    x = np.random.default_rng(2).integers(-1000, 1000, 3 * 128).astype(np.int32)
    tiles, blocks, odds = np.zeros(48, np.int32), np.zeros(3, np.int32), np.zeros(1, np.int32)
    classic("groups")["sum_by_groups"][3, 128](x, tiles, blocks, odds)
    assert (tiles == x.reshape(48, 8).sum(1)).all()
    assert (blocks == x.reshape(3, 128).sum(1)).all()
    assert odds[0] == (x % 2).sum()


def test_softmax_within_the_error_of_its_exponentials() -> None:
    x = (3 * np.random.default_rng(3).standard_normal((9, 777))).astype(np.float32)
    y = np.zeros_like(x)
    classic("reductions")["softmax"][9, 128](x, y, 777)
    exact = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    exact /= exact.sum(1, keepdims=True)
    # ex2.approx has 2 ulp; the argument, up to 20 / log 2, is rounded to float32: 2^-24 * 29 of the result.
    assert np.abs(y / exact - 1).max() < 4e-6
    assert np.abs(y.sum(1) - 1).max() < 2e-6


def test_histogram_of_bytes() -> None:
    x = np.random.default_rng(4).binomial(255, 0.02, 20_001).astype(np.uint8)
    bins, zeros = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
    classic("reductions")["histogram"][5, 192](x, bins, zeros, x.size)
    assert (bins == np.bincount(x, minlength=256)).all()
    assert zeros[0] == (x == 0).sum()


def test_transposes() -> None:
    small = np.random.default_rng(5).integers(0, 1 << 16, (3, 8, 8)).astype(np.uint16)
    turned = np.zeros_like(small)
    classic("transpose")["transpose8"][3, 32](small.view(np.uint32), turned.view(np.uint32))
    assert (turned == small.swapaxes(1, 2)).all()
    x = np.random.default_rng(6).standard_normal((50, 71)).astype(np.float32)
    y = np.zeros((71, 50), np.float32)
    classic("transpose")["transpose32"][(3, 2), (32, 8)](x, y, 71, 50)
    assert (y == x.T).all()


@sampled(2)
@pytest.mark.parametrize(
    ("name", "dtype", "causal", "error"),
    [
        ("half", np.float16, False, 2e-3),
        ("__nv_bfloat16", ml_dtypes.bfloat16, True, 1.6e-2),
    ],
)
def test_flash_attention(name: str, dtype: Any, causal: bool, error: float) -> None:
    heads, length, depth = 2, 192, 64
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((heads, length, depth)).astype(dtype) for _ in range(3))
    out, log_sums = np.zeros_like(q), np.zeros((heads, length), np.float32)
    kernel = classic("flash_attention")[f"attention<{name}, {str(causal).lower()}>"]
    kernel[(length // 64, heads), 128](q, k, v, out, log_sums, length, depth**-0.5)
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * depth**-0.5
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    sums = weights.sum(-1, keepdims=True)
    exact = np.einsum("hqk,hkd->hqd", weights / sums, v.astype(np.float64))
    # Weights and outputs are rounded to the type of the inputs: half a unit in the last place each.
    assert np.abs(out.astype(np.float64) - exact).max() < error
    assert np.abs(log_sums - (np.log(sums) + scores.max(-1, keepdims=True))[..., 0]).max() < 1e-5
