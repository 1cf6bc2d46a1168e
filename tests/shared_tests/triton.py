"""PTX that Triton compiled for sm_80 and sm_90 (`tests/machine/triton/make.py`) on the machine."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw

FOLDER = Path(__file__).parents[1] / "machine" / "triton"
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


# sm_90: dots are wgmma, descriptors are tensor maps ---------------------------------------------------------


def same_under_every_schedule(
    name: str, grid: Any, arguments: tuple[Any, ...], out: np.ndarray
) -> np.ndarray:
    """Run a kernel whose scratch memory is among the arguments, and check it; returns what it writes."""
    about = KERNELS[name]
    entry = next(iter(module(name).entries))
    launched = module(name)[entry][grid, 32 * about["num_warps"], about["shared"]]
    launched(*arguments)
    result = out.copy()
    for schedule in ("early", "late", 3):
        out[...] = 0
        launched(*arguments, schedule=schedule)
        assert out.tobytes() == result.tobytes(), schedule
    report = lw.check(launched, *arguments)
    assert report.ok, str(report)
    assert report.counters["smsp__inst_executed_pipe_tensor.sum"] > 0
    return result


def hopper_operands(dtype: Any, instruction: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A (128, 192), B (64, 192), zeros for their product, and what wgmma gives for it."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((128, 192), (64, 192)))
    product = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{instruction}")
    expected = product.gemm(a, np.ascontiguousarray(b.T), arch="sm_90a")
    return a, b, np.zeros((128, 64), np.float32), expected


def test_dot_by_wgmma() -> None:
    a, b, c, expected = hopper_operands(np.float16, "f16.f16")
    arguments = (a, np.ascontiguousarray(b.T), c, 128, 64, 192, 192, 64, 64, None, None)
    assert same_under_every_schedule("wgmma_matmul", (2, 1), arguments, c).tobytes() == expected.tobytes()


def test_tensors_that_the_host_describes() -> None:
    """A descriptor is a tensor map with the tensor's shape and strides."""
    a, b, c, expected = hopper_operands(np.float16, "f16.f16")
    arguments: list[Any] = []
    for array, box in ((a, (64, 64)), (b, (64, 64)), (c, (64, 32))):
        tensor_map = lw.tensor_map(array, box, swizzle="128B")
        arguments += [tensor_map, *array.shape, array.shape[1], 1]
    found = same_under_every_schedule("described", (2, 1), (*arguments, 192, None, None), c)
    assert found.tobytes() == expected.tobytes()


def test_tensors_that_the_kernel_describes() -> None:
    """Tensor maps are made in scratch memory, with tensormap.replace."""
    a, b, c, expected = hopper_operands(ml_dtypes.bfloat16, "bf16.bf16")
    size = 2 * KERNELS["describes"]["global_scratch"]  # for each block
    memory = np.zeros(size + 128, np.uint8)
    begin = -lw.address(memory) % 128
    scratch = memory[begin : begin + size]
    found = same_under_every_schedule("describes", (2, 1), (a, b, c, 128, 64, 192, scratch, None), c)
    assert found.tobytes() == expected.tobytes()


def test_a_map_in_scratch_memory_that_is_not_aligned_is_named() -> None:
    a, b, c, _ = hopper_operands(ml_dtypes.bfloat16, "bf16.bf16")
    memory = np.zeros(1024, np.uint8)
    scratch = memory[-lw.address(memory) % 128 + 16 :]
    with pytest.raises(lw.LanewiseError, match="of a tensor map is not a multiple of 64"):
        run_with_scratch = module("describes")["describes"][(2, 1), 128, KERNELS["describes"]["shared"]]
        run_with_scratch(a, b, c, 128, 64, 192, scratch, None)
