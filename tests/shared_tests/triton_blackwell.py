"""PTX that Triton compiled for sm_100 (`tests/machine/triton/make.py`): the bits of tcgen05's own `gemm`."""

import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from shared_tests.blackwell import ARCH, SCALED, factors, in_chunks, packed, same_everywhere

FOLDER = Path(__file__).parents[1] / "machine" / "triton"
KERNELS: dict[str, Any] = json.loads((FOLDER / "blackwell.json").read_text())
SWIZZLES = ("none", "32B", "64B", "128B")


@cache
def module(name: str) -> lw.Module:
    with zipfile.ZipFile(FOLDER / "blackwell.zip") as kept:
        return lw.load(kept.read(f"{name}.ptx").decode())


def described(name: str, arrays: dict[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    """Return what Triton passes for tensors that the host describes: a map, the shape, the strides."""
    passed = {}
    for (key, array), (box, swizzle) in zip(arrays.items(), KERNELS[name]["boxes"], strict=True):
        mode: Any = SWIZZLES[swizzle]
        tensor_map = lw.tensor_map(array, tuple(box), swizzle=mode)
        strides = [stride // array.itemsize for stride in array.strides]
        passed[key] = (tensor_map, *array.shape, *strides)
    return passed


def run(name: str, grid: Any, out: np.ndarray, *arguments: Any) -> np.ndarray:
    """Launch under every schedule. Triton passes scratch memory besides, which these kernels do not use."""
    about = KERNELS[name]
    assert about["global_scratch"] == 0
    (entry,) = module(name).entries
    launched = module(name)[entry][grid, 32 * about["num_warps"], about["shared"]]
    return same_everywhere(launched, (*arguments, None, None), out)


def normal(dtype: Any, *shapes: tuple[int, int]) -> list[np.ndarray]:
    """Return arrays of random numbers."""
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def product(kind: str, left: np.ndarray, right: np.ndarray, **formats: Any) -> np.ndarray:
    """Return the product with the second matrix transposed, as the instruction computes it."""
    instruction: Any = lw.instruction(f"tcgen05.mma.cta_group::1.kind::{kind}", **formats)
    return np.asarray(instruction.gemm(left, np.ascontiguousarray(right.T), arch=ARCH))


@only_with_everything
def test_dot() -> None:
    """Tiles of 64 rows, sizes that are not multiples of them, operands by cp.async."""
    m, n, k = 100, 72, 144
    a, b = normal(np.float16, (m, k), (n, k))
    c = np.zeros((m, n), np.float32)
    result = run("dot_fp16", (2, 2), c, a, b, c, m, n, k, k, k, n)
    padded = np.pad(a, ((0, 0), (0, 48))), np.pad(b, ((0, 0), (0, 48)))  # K is filled with zeros to 192
    assert result.tobytes() == product("f16", *padded, a="f16", b="f16", d="f32").tobytes()


@only_with_everything
def test_dot_of_integers() -> None:
    m, n, k = 128, 64, 256
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, (rows, k), np.int8) for rows in (m, n))
    c = np.zeros((m, n), np.int32)
    result = run("dot_i8", (1, 1), c, a, b, c, m, n, k, k, k, n)
    assert np.array_equal(result, a.astype(np.int32) @ b.T.astype(np.int32))


@pytest.mark.parametrize(
    "name", ["specialised_tf32", pytest.param("described_e4m3", marks=only_with_everything)]
)
def test_tensors_that_the_host_describes(name: str) -> None:
    """Also with warp specialisation: loads, products and the rest have warps of their own."""
    kind, dtype = ("tf32", np.float32) if "tf32" in name else ("f8f6f4", ml_dtypes.float8_e4m3fn)
    m, n, k = 256, 64, 5 * (32 if kind == "tf32" else 128)
    a, b = normal(dtype, (m, k), (n, k))
    if kind == "tf32":
        for operand in (a, b):
            operand.view(np.uint32)[...] &= 0xFFFFE000
    c = np.zeros((m, n), np.float32)
    passed = described(name, {"a": a, "b": b, "c": c})
    result = run(name, (2, 1), c, *passed["a"], *passed["b"], *passed["c"], k)
    formats = {} if kind == "tf32" else {"a": "e4m3", "b": "e4m3"}
    assert result.tobytes() == product(kind, a, b, **formats).tobytes()


@only_with_everything
def test_persistent_and_warp_specialised() -> None:
    m, n, k = 256, 384, 192
    a, b = normal(np.float16, (m, k), (n, k))
    c = np.zeros((m, n), np.float16)
    passed = described("persistent", {"a": a, "b": b, "c": c})
    result = run("persistent", 2, c, *passed["a"], *passed["b"], *passed["c"], m, n, k)
    expected = product("f16", a, b, a="f16", b="f16", d="f32").astype(np.float16)
    assert result.tobytes() == expected.tobytes()


@only_with_everything
@pytest.mark.parametrize("kind", SCALED)
def test_scaled(kind: str) -> None:
    """Scale factors go to tensor memory by tcgen05.cp."""
    words, element, _, _, block = SCALED[kind]
    name = f"scaled_{kind.replace('f', 'fp')}"
    m, n, k = 128, 256, 384
    a, b = normal(element, (m, k), (n, k))
    scale_a, scale_b = factors(kind, m, k // block), factors(kind, n, k // block)
    c = np.zeros((m, n), np.float32)
    chunks = [
        in_chunks(scales).reshape(1, len(scales) // 128, k // block // 4, 2, 256)
        for scales in (scale_a, scale_b)
    ]
    operands = [packed(array).view(np.uint8) for array in (a, b)]
    arrays = {"a": operands[0], "sa": chunks[0], "b": operands[1], "sb": chunks[1], "c": c}
    passed = described(name, arrays)
    result = run(name, (1, 2), c, *(value for key in arrays for value in passed[key]), k)
    instruction: Any = lw.instruction(f"tcgen05.mma.cta_group::1.kind::{words}")
    transposed = np.ascontiguousarray(b.T), np.ascontiguousarray(scale_b.T)
    expected = instruction.gemm(a, transposed[0], arch=ARCH, scale_a=scale_a, scale_b=transposed[1])
    assert result.tobytes() == np.asarray(expected).tobytes()


@only_with_everything
def test_attention() -> None:
    heads, length, depth = 1, 256, 64
    q, k, v = normal(np.float16, *[(heads * length, depth)] * 3)
    out = np.zeros_like(q)
    passed = described("attention", {"q": q, "k": k, "v": v, "out": out})
    arguments = [value for key in ("q", "k", "v", "out") for value in passed[key]]
    result = run("attention", (2, heads), out, *arguments, length, depth**-0.5)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * depth**-0.5
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(result - exact).max() < 2**-8 * np.abs(exact).max()  # weights are rounded to f16


@only_with_everything
def test_gather_and_scatter_by_tma() -> None:
    m, n, k = 128, 128, 128
    a, b = normal(np.float16, (2 * m, k), (n, k))
    c = np.zeros((2 * m, n), np.float16)
    rows = np.random.default_rng(2).permutation(2 * m)[:m].astype(np.int32)
    passed = described("gathered", {"a": a, "b": b, "c": c})
    result = run("gathered", (1, 1), c, *passed["a"], rows, *passed["b"], *passed["c"], k)
    expected = np.zeros_like(c)
    expected[rows] = product("f16", a[rows], b, a="f16", b="f16", d="f32").astype(np.float16)
    assert result.tobytes() == expected.tobytes()
