"""e4m3 products with a scale for each 128 of K: promoted to f32 as docs/matmul.md says, bit for bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.formats import bf16, e4m3, f32
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.options import Options
from lanewise.linalg.problem import Epilogue
from lanewise.linalg.rules import request_of
from linalg.hopper_products import plan, product, some, sums_of
from linalg.kernels_on_cpu import by_kernels


def promoted(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """The sums by NumPy: each block's product rounded as wgmma does, scaled and added by one rounding."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for block in range(-(-a.shape[1] // 128)):
        part = slice(128 * block, 128 * block + 128)
        sums = sums_of(np.ascontiguousarray(a[:, part]), np.ascontiguousarray(b[part]), e4m3, e4m3, f32)
        scale = scale_a[:, block, None] * np.repeat(scale_b[block], 128)[: b.shape[1]]
        total = (sums.astype(np.float64) * scale + total).astype(np.float32)  # exact in float64, or nearly
    return total


@sampled(6)
@pytest.mark.parametrize(("schedule", "k"), [("cooperative", 400), ("by turns", 400), ("by turns", 272)])
@pytest.mark.parametrize("swap", some([False, True], False))
def test_block_scales(swap: bool, schedule: str, k: int) -> None:
    """1×128 scales of A and 128×128 scales of B, also with A and B exchanged."""
    m, n, blocks = 70, 144, -(-k // 128)
    rng = np.random.default_rng(3)
    scale_a = rng.random((m, blocks), np.float32) + 0.5
    scale_b = rng.random((blocks, 2), np.float32) + 0.5
    problem, pointers, _ = product(m, n, k, e4m3, e4m3, bf16, layout="NT", scale_a=scale_a, scale_b=scale_b)
    problem = replace(problem, promote=128)
    chosen = plan((64, 80, 128), swap=True) if swap else plan((128, 96, 128))
    chosen = replace(chosen, schedule=schedule)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers)[0]
    configured(*arguments)
    assert np.array_equal(
        pointers.out, promoted(pointers.a, pointers.b.T, scale_a, scale_b).astype(bf16.dtype)
    )
    assert lw.check(configured, *arguments, schedule="late").ok


@only_with_everything
@sampled(12)
@pytest.mark.parametrize("schedule", ["cooperative", "by turns"])
@pytest.mark.parametrize(
    ("k", "along_k"),
    [
        pytest.param(272, True, id="three steps, copied one by one"),
        pytest.param(512, True, id="four steps, copied at once"),
        pytest.param(512, False, id="four steps that do not lie side by side"),
    ],
)
def test_several_tiles_for_each_block(k: int, along_k: bool, schedule: str) -> None:
    """Stages are used again: no scale is written before all warps have read the last one."""
    m, n, blocks = 300, 200, -(-k // 128)
    rng = np.random.default_rng(5)
    scale_a = rng.random((m, blocks), np.float32) + 0.5
    scale_b = rng.random((blocks, 2), np.float32) + 0.5
    if not along_k:
        scale_a, scale_b = np.asfortranarray(scale_a), np.asfortranarray(scale_b)
    problem, pointers, _ = product(m, n, k, e4m3, e4m3, f32, layout="NT", scale_a=scale_a, scale_b=scale_b)
    problem = replace(problem, promote=128)
    configured, arguments, _ = hopper.launches(
        problem,
        plan((128, 64, 128), cluster=(2, 1), stages=3, schedule=schedule),
        pointers,
        multiprocessors=2,
    )[0]
    configured(*arguments)
    assert np.array_equal(pointers.out, promoted(pointers.a, pointers.b.T, scale_a, scale_b))
    assert lw.check(configured, *arguments).ok


@only_with_everything
@pytest.mark.parametrize("multiprocessors", [2, 132])
def test_a_wide_tile_is_multiplied_and_promoted_in_halves(multiprocessors: int) -> None:
    """Sums and totals of 256 columns do not fit into the registers: each half has its turn."""
    m, n, k = 130, 300, 272
    rng = np.random.default_rng(6)
    scale_a = rng.random((m, 3), np.float32) + 0.5
    scale_b = rng.random((3, 3), np.float32) + 0.5
    problem, pointers, _ = product(m, n, k, e4m3, e4m3, bf16, layout="NT", scale_a=scale_a, scale_b=scale_b)
    problem = replace(problem, promote=128)
    chosen = plan((128, 256, 128), cluster=(2, 1), stages=3)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers, multiprocessors=multiprocessors)[0]
    configured(*arguments)
    assert np.array_equal(
        pointers.out, promoted(pointers.a, pointers.b.T, scale_a, scale_b).astype(bf16.dtype)
    )
    assert lw.check(configured, *arguments, schedule="late").ok


def test_promotion_without_scales() -> None:
    """Sums of 128 of K are added in f32, not in the tensor cores; scales of rows come after."""
    m, n, k = 64, 64, 304
    scale_a = np.linspace(1, 2, m).astype(np.float32)
    problem, pointers, _ = product(
        m, n, k, e4m3, e4m3, f32, layout="NT", epilogue=Epilogue(scale_a="row"), scale_a=scale_a
    )
    problem = replace(problem, promote=128, scale_blocks=(0, 0))
    run(hopper.launches(problem, plan((64, 64, 128)), pointers))
    total = np.zeros((m, n), np.float32)
    for first in range(0, k, 128):
        part = slice(first, first + 128)
        left, right = np.ascontiguousarray(pointers.a[:, part]), np.ascontiguousarray(pointers.b.T[part])
        total = total + sums_of(left, right, e4m3, e4m3, f32)
    assert np.array_equal(pointers.out, total * scale_a[:, None])


def shortest(shapes: tuple[Any, Any], scales: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return small integers of a K of one block, as e4m3, and scales that are powers of two."""
    rng = np.random.default_rng(11)
    a, b = (rng.integers(-2, 3, shape).astype(np.float32).astype(e4m3.dtype) for shape in shapes)
    powers = [2.0 ** rng.integers(-2, 3, shape) for shape in scales]
    return a, b, powers[0].astype(np.float32), powers[1].astype(np.float32)


@sampled(18)
@pytest.mark.parametrize(
    ("shapes", "scales"),
    [
        pytest.param(((1, 106), (106, 300)), ((1, 1), (1, 3)), id="one row"),
        pytest.param(((70, 106), (106, 300)), ((1, 1), (1, 3)), id="one scale of a"),
        pytest.param(((70, 64), (64, 100)), ((70, 1), (1, 1)), id="one scale of b"),
        pytest.param(((5, 1, 96), (96, 200)), ((5, 1, 1), (1, 2)), id="rows of a batch"),
        pytest.param(((3, 4, 96), (96, 200)), ((3, 4, 1), (1, 2)), id="matrices of a batch"),
        pytest.param(((3, 4, 96), (96, 200)), ((4, 1), (1, 2)), id="matrices that share scales"),
    ],
)
def test_scales_of_a_single_block(shapes: tuple[Any, Any], scales: tuple[Any, Any]) -> None:
    """With a K of up to 128 one scale, or one for each row, is a scale of blocks: of each matrix its own."""
    a, b, scale_a, scale_b = shortest(shapes, scales)
    wide = np.repeat(scale_b, 128, axis=-1)[..., : b.shape[-1]]
    wide = np.broadcast_to(wide if scale_b.shape[-1] > 1 else scale_b, (1, b.shape[-1]))
    wanted = np.matmul(a.astype(np.float32), b.astype(np.float32)) * scale_a * wide
    given: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": "f32"}
    assert np.array_equal(lw.matmul(a, b, **given), wanted)
    problem = request_of(a, b, Options(**given)).problem
    if problem is not None:  # else each matrix is a product of its own
        assert np.array_equal(by_kernels(a, b, **given), wanted)
