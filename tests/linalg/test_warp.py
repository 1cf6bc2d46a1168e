"""The mma.sync family on the CPU machine: what `lw.matmul` says for the same plan, for any shape and type."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
from lanewise.errors import LanewiseError
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.warp import launches as warp
from lanewise.linalg.plan import Plan
from linalg.kernels_on_cpu import launches_of

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def matrix(seed: int, shape: tuple[int, ...], dtype: Any, turned: bool = False) -> Any:
    """Random elements, contiguous along the last axis or, turned, along the one before it."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-128, 128, shape) if dtype == np.int8 else rng.normal(size=shape).astype(np.float32)
    if turned:
        return np.ascontiguousarray(found.astype(dtype).swapaxes(-1, -2)).swapaxes(-1, -2)
    return found.astype(dtype)


def case(arch: str, dtype: Any, sizes: tuple[int, ...], tile: tuple[int, int, int], **more: Any) -> Any:
    """A call: the arch, the type of A and B, (…, m, n, k), the tile, and what is special."""
    return arch, dtype, sizes, tile, more


#: Names and calls; `turn_a`, `turn_b` and `turn_out` say that columns are contiguous.
CASES = {
    "f16 on Ampere": case("sm_80", np.float16, (100, 72, 72), (64, 64, 32)),
    "f16 on Turing": case("sm_75", np.float16, (100, 72, 72), (64, 64, 32), turn_b=True),
    "gelu on Turing": case(
        "sm_75", np.float16, (40, 24, 40), (64, 64, 32), bias="row", activation="gelu", out_dtype="f32"
    ),
    "s8 on Turing": case("sm_75", np.int8, (70, 72, 80), (64, 64, 64), turn_b=True, out_dtype="s32"),
    "odd bf16": case("sm_86", BF16, (101, 73, 71), (64, 64, 32)),
    "both turned": case("sm_86", BF16, (64, 72, 40), (64, 64, 32), turn_a=True, turn_b=True),
    "columns contiguous": case("sm_80", np.float16, (72, 40, 40), (64, 64, 32), turn_out=True),
    "a batch": case("sm_80", np.float16, (3, 40, 24, 40), (64, 64, 32)),
    "tf32": case("sm_80", np.float32, (100, 72, 36), (64, 64, 16), precision="tf32"),
    "s8": case("sm_80", np.int8, (100, 71, 80), (64, 64, 64), out_dtype="s32"),
    "f64": case("sm_80", np.float64, (65, 40, 35), (64, 64, 16)),
    "f64 on Hopper": case("sm_90a", np.float64, (70, 40, 34), (128, 128, 16), activation="relu", alpha=0.5),
    "f64 by TMA": case(
        "sm_90a", np.float64, (130, 120, 70), (128, 112, 16), turn_b=True, stages=4, bias="row", residual=True
    ),
    "e4m3 on Ada": case("sm_89", E4M3, (40, 80, 48), (64, 64, 64), turn_b=True, out_dtype="bf16"),
    "e4m3 out": case("sm_120a", E4M3, (40, 81, 48), (64, 64, 64), out_dtype="e4m3"),
    "f16 sums": case("sm_80", np.float16, (40, 24, 40), (64, 64, 32), accumulate="f16"),
    "f16 sums as bf16": case(
        "sm_80", np.float16, (40, 24, 40), (64, 64, 32), accumulate="f16", out_dtype="bf16"
    ),
    "bias and gelu": case("sm_80", BF16, (40, 24, 40), (64, 64, 32), bias="row", activation="gelu"),
    "everything": case(
        "sm_80", BF16, (40, 25, 40), (64, 64, 32), bias="column", activation="silu", residual=True, alpha=0.5,
        beta=2.0,
    ),
    "scales": case("sm_89", E4M3, (40, 24, 64), (64, 64, 64), scales=True, out_dtype="bf16"),
    "thin, any row": case("sm_90a", np.float16, (3, 70, 37, 5), (64, 64, 16), turn_a=True),
    "thin, even rows": case("sm_90a", BF16, (70, 38, 21), (64, 64, 16), turn_b=True),
    "one column": case("sm_90a", BF16, (130, 1, 70), (128, 8, 64)),
    "parts of K": case("sm_90a", BF16, (40, 3, 333), (64, 8, 32), turn_a=True, split=4, out_dtype="f32"),
    "parts of K, two stages": case("sm_80", np.int8, (2, 5, 71, 201), (16, 64, 64), split=2, out_dtype="s32"),
    "blocks share K": case("sm_90a", BF16, (2, 7, 3, 1001), (64, 8, 64), turn_a=True, groups=4, bias="row"),
    "blocks and warps share K": case(
        "sm_90a", np.float16, (5, 69, 701), (16, 64, 32), split=2, groups=8, turn_b=True, residual=True
    ),
    "a warp for each part of K": case("sm_90a", BF16, (3, 2, 1, 458), (16, 8, 64), split=8, stages=1),
    "one stage for each part of K": case(
        "sm_90a", np.float16, (12, 5, 1701), (16, 8, 128), split=4, groups=4, stages=1, out_dtype="f32"
    ),
    "s8, blocks share K": case("sm_90a", np.int8, (33, 70, 901), (64, 64, 64), groups=2, out_dtype="s32"),
    "blocks share K of many tiles": case("sm_90a", BF16, (600, 9, 300), (64, 8, 64), groups=2, turn_out=True),
    "f32, blocks share K": case("sm_90a", np.float32, (14, 21, 260), (32, 32, 16), groups=8),
    "f32, one stage for each part": case(
        "sm_90a", np.float32, (4, 30, 250), (16, 64, 16), split=4, groups=4, stages=1, turn_a=True
    ),
    "tf32, blocks share K": case(
        "sm_90a", np.float32, (20, 40, 301), (32, 32, 32), groups=2, precision="tf32"
    ),
    "f32": case("sm_90a", np.float32, (33, 41, 50), (32, 32, 16), turn_b=True),
    "f32 in parts": case("sm_90a", np.float32, (2, 5, 70, 101), (16, 64, 16), turn_a=True, split=2),
    "f32, columns contiguous": case("sm_80", np.float32, (72, 40, 40), (64, 64, 16), turn_out=True),
    "wide rows at any address": case("sm_90a", np.float16, (33, 271, 3), (32, 256, 16), turn_b=True),
    "all of K in one stage": case("sm_90a", BF16, (33, 70, 13), (32, 32, 16), stages=1, out_dtype="f32"),
    "95 of K in one stage": case("sm_90a", BF16, (70, 10, 95), (64, 8, 128), stages=1, turn_a=True),
    "158 of K in one stage": case("sm_90a", np.float16, (40, 33, 158), (32, 32, 256), stages=1),
    "odd rows of 201 of K": case("sm_90a", np.int8, (20, 67, 201), (16, 64, 256), stages=1, out_dtype="s32"),
    "wide rows that end early": case("sm_90a", np.float16, (33, 140, 24), (64, 128, 32), out_dtype="f32"),
    "a large tile": case("sm_80", np.float16, (140, 130, 100), (128, 128, 32)),
}  # fmt: skip
USUAL = (
    "f16 on Turing",
    "odd bf16",
    "columns contiguous",
    "a batch",
    "tf32",
    "s8",
    "f64 on Hopper",
    "f64 by TMA",
    "everything",
    "thin, any row",
    "one column",
    "95 of K in one stage",
    "parts of K",
    "blocks and warps share K",
    "one stage for each part of K",
    "f32, blocks share K",
    "f32 in parts",
    "f32, columns contiguous",
    "wide rows at any address",
)


@sampled(36)
@pytest.mark.parametrize("name", CASES if EVERYTHING else USUAL)
def test_kernel_and_call_agree(name: str) -> None:
    """The kernel stores the bits of the call, and is clean."""
    arch, dtype, sizes, tile, given = CASES[name]
    more = dict(given)
    *lead, m, n, k = sizes
    stages = more.pop("stages", 2 if arch == "sm_75" else 3)
    parts = {name: more.pop(name, 1) for name in ("split", "groups")}
    plan = Plan("warp", arch, tile, stages, **parts)
    turns = [more.pop(each, False) for each in ("turn_a", "turn_b", "turn_out")]
    a, b = matrix(1, (*lead, m, k), dtype, turns[0]), matrix(2, (*lead, k, n), dtype, turns[1])
    if (bias := more.pop("bias", None)) is not None:
        more["bias"] = matrix(3, (n,) if bias == "row" else (m, 1), dtype)
    if more.pop("residual", False):
        more["residual"] = matrix(4, (*lead, m, n), dtype)
    if more.pop("scales", False):
        more |= {"scale_a": np.float32(0.5) * np.arange(1, m + 1, dtype=np.float32).reshape(m, 1)}
        more |= {"scale_b": np.arange(1, n + 1, dtype=np.float32).reshape(1, n)}
    expected = lw.matmul(a, b, plan=plan, **more)
    out = np.zeros(expected.shape, expected.dtype)
    if turns[2]:
        out = np.ascontiguousarray(out.swapaxes(-1, -2)).swapaxes(-1, -2)
    planned = lw.plan(a, b, arch=arch, out=out, **more)
    pointers = Pointers(
        a, b.swapaxes(-1, -2), out, more.get("bias"), more.get("residual"), more.get("scale_a"),
        more.get("scale_b"), None, more.get("alpha", 1.0), more.get("beta", 1.0),
    )  # fmt: skip
    configured, arguments, _ = warp.launches(planned.problem, plan, pointers)[0]
    report = lw.check(configured, *arguments, arch=arch)
    assert not report.findings, report.findings[0]
    assert out.tobytes() == np.ascontiguousarray(expected).tobytes() or np.array_equal(out, expected)


def test_rows_that_end_within_a_piece() -> None:
    """Rows whose beginnings are aligned, and whose K is not: what lies behind them is not summed."""
    for dtype, arch, tile in ((np.float64, "sm_90a", (64, 64, 16)), (np.float16, "sm_75", (64, 64, 32))):
        a, b = matrix(1, (9, 48), dtype)[:, :21], matrix(2, (8, 48), dtype)[:, :21].T
        out = np.zeros((9, 8), dtype)
        problem = lw.plan(a, b, arch=arch).problem
        run(warp.launches(problem, Plan("warp", arch, tile, 2), Pointers(a, b.T, out)))
        assert np.array_equal(out, lw.matmul(a, b, arch=arch))


def test_operands_at_any_address() -> None:
    """Arrays that begin at any element: what lies before and behind them is neither read nor summed."""
    rng = np.random.default_rng(5)
    for dtype, (m, n, k), tile, split, out in (
        (np.int8, (1, 1, 5), (64, 8, 64), 1, "s32"), (BF16, (17, 9, 131), (32, 32, 32), 2, "f32"),
    ):  # fmt: skip
        a, b = (
            rng.integers(-9, 9, rows * columns + 1).astype(dtype)[1:].reshape(rows, columns)
            for rows, columns in ((m, k), (k, n))
        )
        plan = Plan("warp", "sm_90a", tile, 2, split=split)
        expected = lw.matmul(a, b, arch="sm_90a", plan=plan, out_dtype=out)
        result = np.zeros(expected.shape, expected.dtype)
        problem = lw.plan(a, b, arch="sm_90a", out_dtype=out).problem
        configured, arguments, _ = warp.launches(problem, plan, Pointers(a, b.T, result))[0]
        report = lw.check(configured, *arguments, arch="sm_90a")
        assert not report.findings, report.findings[0]
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_elements_that_threads_load_arrive_in_time(stages: int) -> None:
    """Rows at odd addresses, tiles too small for 16 bytes a thread; rows of tiles in one group, and more."""
    for m in (40, 600):
        a, b = matrix(1, (m, 333), BF16), matrix(2, (333, 13), BF16, turned=True)
        plan = Plan("warp", "sm_90a", (64, 8, 32), stages, schedule="one tile")
        launches = launches_of(a, b, plan=plan)
        *_, result = launches
        configured, arguments, _ = launches[0]
        report = lw.check(configured, *arguments, arch="sm_90a", schedule=stages)
        assert report.ok, report
        assert np.array_equal(result, lw.matmul(a, b, plan=plan))


def test_what_it_cannot_do() -> None:
    a = np.zeros((64, 64), np.float32)
    problem = lw.plan(a, a, precision="f32").problem
    with pytest.raises(LanewiseError, match="32 elements of K are not those of"):
        warp.kernel(problem, Plan("warp", "sm_80", (64, 64, 32), 3))
    half = lw.plan(a.astype(np.float16), a.astype(np.float16), arch="sm_80").problem
    with pytest.raises(LanewiseError, match="groups=2 is not possible"):
        warp.kernel(half, Plan("warp", "sm_80", (64, 64, 32), 3, groups=2))
    with pytest.raises(LanewiseError, match="groups=3 is not possible"):
        warp.kernel(half, Plan("warp", "sm_90a", (64, 64, 32), 3, groups=3))
    small = lw.plan(a.astype(E4M3), a.astype(E4M3).T, accumulate="f32", arch="sm_90a").problem
    with pytest.raises(LanewiseError, match="no sums promoted along K"):
        warp.kernel(small, Plan("warp", "sm_89", (64, 64, 64), 3))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_cpu_refuses_steps_of_f32_that_a_gpu_refuses(arch: str) -> None:
    """Sums of split f32 are promoted after each instruction: CPU and GPU take steps of its K alone."""
    a = np.ones((64, 256), np.float32)
    lw.matmul(a, a.T, precision="f32", plan=Plan("warp", arch, (64, 64, 16), 2))
    for step in (32, 64):
        plan = Plan("warp", arch, (64, 64, step), 2)
        with pytest.raises(lw.LanewiseError, match=f"{step} elements of K are not those of mma"):
            lw.matmul(a, a.T, precision="f32", plan=plan)


def test_a_residual_may_be_what_out_holds() -> None:
    """A thread whose place lies outside of the result reads no residual, which another may have replaced."""
    a, b, out = (matrix(seed, shape, BF16) for seed, shape in enumerate([(33, 64), (64, 31), (33, 31)]))
    plan = Plan("warp", "sm_80", (64, 64, 32), 3)
    expected = lw.matmul(a, b, plan=plan, residual=out.copy())
    problem = lw.plan(a, b, arch="sm_80", residual=out).problem
    configured, arguments, _ = warp.launches(problem, plan, Pointers(a, b.T, out, None, out))[0]
    report = lw.check(configured, *arguments, arch="sm_80")
    assert not report.findings, report.findings[0]
    assert out.tobytes() == expected.tobytes()
