"""Real kernels of sm_90a in CUDA C++ (`kernels/hopper`): right to the last bit under every schedule, and silent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from cluster_kernels import CUDA as DISTRIBUTED
from machine.classics import classic, compiled

ARCH = "sm_90a"
STAGES, TILE = 3, 64 * 128
BARRIERS = 1024  # bytes of shared memory that are enough for them
#: Types: NumPy's, of operands and of sums; the instruction's beside m64n64; elements of K in a row of 128 bytes.
TYPES: dict[str, tuple[Any, Any, str, int]] = {
    "bf16": (ml_dtypes.bfloat16, np.float32, "k16.f32.bf16.bf16", 64),
    "f16": (np.float16, np.float32, "k16.f32.f16.f16", 64),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32, "k32.f32.e4m3.e4m3", 128),
    "tf32": (np.float32, np.float32, "k8.f32.tf32.tf32", 32),
    "s8": (np.int8, np.int32, "k32.s32.s8.s8", 128),
}


def same_everywhere(launched: Any, arguments: tuple[Any, ...], out: np.ndarray) -> np.ndarray:
    """Run a kernel under every schedule and under the checker; returns what all of them write to `out`."""
    begin = out.copy()
    launched(*arguments)
    result = out.copy()
    for schedule in ("early", "late", 1, 2):
        out[...] = begin
        launched(*arguments, schedule=schedule)
        assert out.tobytes() == result.tobytes(), schedule
    out[...] = begin
    report = lw.check(launched, *arguments)
    assert out.tobytes() == result.tobytes(), "under check"
    assert report.ok, str(report)
    return result


def operands(kind: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A (m, k) and B (n, k)."""
    rng = np.random.default_rng(k)
    dtype = TYPES[kind][0]
    if kind == "s8":
        return tuple(rng.integers(-128, 128, shape, np.int8) for shape in ((m, k), (n, k)))  # type: ignore[return-value]
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k)))
    if kind == "tf32":
        for each in (a, b):
            each.view(np.uint32)[...] &= 0xFFFFE000
    return a, b


def product(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the instruction gives, repeated along K."""
    instruction = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n64{TYPES[kind][2]}")
    return instruction.gemm(a, np.ascontiguousarray(b.T), arch=ARCH)


def operand_map(array: np.ndarray, rows: int, kind: str) -> Any:
    dtype = "tf32" if kind == "tf32" else None
    return lw.tensor_map(array, (rows, TYPES[kind][3]), swizzle="128B", dtype=dtype)


@cache
def source(name: str) -> lw.Module:
    return classic(f"hopper/{name}", ARCH)


# products ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_cooperative_gemm(kind: str) -> None:
    """Two warpgroups multiply a tile of 128 × 64, a third loads it by TMA through three stages."""
    m, n, k = 128, 128, 4 * TYPES[kind][3]
    a, b = operands(kind, m, n, k)
    d = np.zeros((m, n), TYPES[kind][1])
    launched = source("gemm")[f"cooperative<{kind}, 1, 1>"][(2, 1), 384, STAGES * 3 * TILE + BARRIERS]
    arguments = (operand_map(a, 128, kind), operand_map(b, 64, kind), d, n, 4)
    assert same_everywhere(launched, arguments, d).tobytes() == product(kind, a, b).tobytes()


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_gemm_with_multicast_in_clusters(cluster: tuple[int, int]) -> None:
    """Blocks of a cluster share A's tile or B's: each loads a half of it for both."""
    m, n, steps = 256, 128, 5
    a, b = operands("bf16", m, n, 64 * steps)
    d = np.zeros((m, n), np.float32)
    kernel = source("gemm")[f"cooperative<bf16, {cluster[0]}, {cluster[1]}>"]
    launched = kernel[(2, 2), 384, STAGES * 3 * TILE + BARRIERS].in_clusters(cluster)
    maps = operand_map(a, 128 // cluster[0], "bf16"), operand_map(b, 64 // cluster[1], "bf16")
    assert same_everywhere(launched, (*maps, d, n, steps), d).tobytes() == product("bf16", a, b).tobytes()


@pytest.mark.parametrize("kind", TYPES)
def test_persistent_pingpong_gemm_with_tma_stores(kind: str) -> None:
    """Two blocks take six tiles; of their two consumers one multiplies while the other stores."""
    m, n, steps = 128, 192, 2
    a, b = operands(kind, m, n, steps * TYPES[kind][3])
    d = np.zeros((m, n), TYPES[kind][1])
    shared = STAGES * 2 * TILE + 2 * 64 * 64 * 4 + BARRIERS
    launched = source("gemm")[f"pingpong<{kind}>"][2, 384, shared]
    maps = operand_map(a, 64, kind), operand_map(b, 64, kind), lw.tensor_map(d, (64, 64))
    assert same_everywhere(launched, (*maps, 3, 6, steps), d).tobytes() == product(kind, a, b).tobytes()
