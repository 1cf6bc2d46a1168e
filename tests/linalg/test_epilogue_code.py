"""Epilogues on the CPU machine: activations against float64, and all steps fused into a product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from lanewise.formats import bf16, e4m3, f16, f32
from lanewise.linalg.kernels.fused_epilogue import ACTIVATIONS, activated
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.problem import Epilogue, Operand
from linalg.hopper_products import plan, product, some


def exact(name: str, x: Any) -> Any:
    """The activation in float64."""
    x = x.astype(np.float64)
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
        if name == "relu":
            return np.maximum(x, 0)
        if name == "sigmoid":
            return sigmoid
        if name == "silu":
            return x * sigmoid
        if name == "gelu_tanh":
            return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_as_good_as_f32(name: str) -> None:
    """The error is some units of f32, for small numbers and large ones; NaN stays NaN, infinity is taken."""

    @lw.kernel
    def apply(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]):
        i = lw.block_idx.x * 256 + lw.thread_idx.x
        y[i] = activated(name, x[i])

    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=1024) * 3, rng.normal(size=1000) * 30, np.zeros(24)]).astype(
        np.float32
    )
    y = np.zeros_like(x)
    apply[8, 256](x, y)
    wanted = exact(name, x)
    # far out, where e^-x is tiny, its relative error grows with x; Φ has an absolute error
    relative = np.where(np.abs(wanted) < 0.01 * np.abs(x), 1.5e-5, 1e-6)
    absolute = 4e-7 * np.abs(x) if name == "gelu_erf" else 1e-30
    assert (np.abs(y - wanted) <= relative * np.abs(wanted) + absolute).all()
    x[:4], y[:] = (np.nan, 200.0, -3e38, -np.inf), 0
    apply[8, 256](x, y)
    assert np.isnan(y[0]) and (np.abs(y[2:4]) < 1e-25).all()
    assert y[1] == (1.0 if name == "sigmoid" else 200.0)


@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS[1:])
def test_activations_of_16_bits_have_a_small_relative_error(name: str, dtype: Any) -> None:
    """The error is a small part of half a unit of the format, in the left tail too; NaN stays NaN."""

    @lw.kernel
    def apply(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]):
        i = lw.block_idx.x * 256 + lw.thread_idx.x
        y[i] = activated(name, x[i], dtype)

    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=3072) * 3, np.linspace(-8, 8, 1024)]).astype(np.float32)
    y = np.zeros_like(x)
    apply[16, 256](x, y)
    wanted = exact(name, x)
    if name == "gelu_erf":  # without cancellation
        wanted = x * 0.5 * np.vectorize(math.erfc)(-x.astype(np.float64) / math.sqrt(2))
    half_unit = 2.0 ** -(dtype.mantissa_bits + 2)
    smallest = 2.0**-90  # below it powers of two end
    assert (np.abs(y - wanted) <= half_unit / 16 * np.abs(wanted) + smallest).all()
    x[:7] = np.nan, np.inf, -np.inf, 3e38, -200.0, 0.0, -3e38
    y[:] = 0
    apply[16, 256](x, y)
    top = 1.0 if name == "sigmoid" else np.inf
    assert np.isnan(y[0])
    assert y[1] == top
    assert y[3] == (1.0 if name == "sigmoid" else x[3])
    assert (np.abs(y[[2, 4, 6]]) < 1e-25).all()
    assert np.abs(y[5] - (0.5 if name == "sigmoid" else 0.0)) <= half_unit / 32


@only_with_everything
def test_everything_at_once() -> None:
    """Scales, alpha, bias, activation, residual, beta, output scale and a function, in this order."""
    m, n, k = 70, 72, 128
    rng = np.random.default_rng(2)

    @lw.device
    def checkered(value: Any, row: Any, column: Any) -> Any:
        return lw.where((row + column) % 2 == 0, value, -value)

    residual = rng.normal(size=(m, n)).astype(bf16.dtype)
    epilogue = Epilogue(
        alpha=True, beta=True, bias="row", bias_dtype=bf16, activation="silu",
        residual=Operand(bf16, True, n), scale_a="row", scale_b="tensor", scale_out=True, function=checkered,
    )  # fmt: skip
    scale_a, scale_b = rng.random(m, np.float32) + 0.5, np.float32([0.25])
    bias = rng.normal(size=n).astype(bf16.dtype)
    problem, pointers, sums = product(
        m, n, k, e4m3, e4m3, f32, layout="NT", epilogue=epilogue, bias=bias, residual=residual,
        scale_a=scale_a, scale_b=scale_b, scale_out=np.float32([3.0]), alpha=0.5, beta=2.0,
    )  # fmt: skip
    for swap in some([False, True], True):
        pointers.out[:] = 0
        chosen = plan((64, 64, 128) if not swap else (64, 80, 128), swap=swap)
        configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
        configured(*arguments)
        value = sums * (scale_a[:, None] * scale_b * np.float32(0.5)) + bias.astype(np.float32)
        value = (exact("silu", value) + 2 * residual.astype(np.float64)) * 3
        value = np.where(np.add.outer(np.arange(m), np.arange(n)) % 2 == 0, value, -value)
        assert np.abs(pointers.out - value).max() < 1e-5 * np.abs(value).max()
        assert lw.check(configured, *arguments, schedule="late").ok
