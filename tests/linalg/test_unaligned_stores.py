"""Results whose lines begin at any address: every element is stored, and nothing else is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.formats import bf16, e4m3, f16, f32
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.kernels.hopper.traits import Store, traits_of
from lanewise.linalg.plan import Plan
from linalg.hopper_products import operand, plan, product, some


@sampled(8)
@pytest.mark.parametrize("columns_contiguous", some([False, True], False, True))
@pytest.mark.parametrize("dtype", some([bf16, f32, e4m3], bf16, e4m3))
def test_lines_at_any_address(dtype: Any, columns_contiguous: bool) -> None:
    m, n, k = (133, 70, 64) if columns_contiguous else (70, 213, 64)
    problem, pointers, sums = product(m, n, k, bf16, bf16, dtype, layout="NT")
    outer, inner = (n, m) if columns_contiguous else (m, n)
    for ahead in some(range(4), 0, 3):
        memory = np.full(outer * (inner + 6) + ahead + 32, 1, dtype.dtype)
        first = -memory.ctypes.data % 16 // memory.itemsize + ahead
        lines = memory[first : first + outer * (inner + 3)].reshape(outer, inner + 3)[:, :inner]
        pointers.out = lines.T if columns_contiguous else lines
        kind = operand(pointers.out, not columns_contiguous, not columns_contiguous, dtype)
        turned = replace(problem, out=kind)
        run(hopper.launches(turned, plan((64, 64 if columns_contiguous else 96, 64)), pointers))
        assert np.array_equal(pointers.out, sums.astype(dtype.dtype))
        lines[...] = 1
        assert (memory == 1).all()


@pytest.mark.parametrize("out", some([bf16, e4m3, f32], bf16, e4m3))
def test_sums_of_f16_become_other_types(out: Any) -> None:
    problem, pointers, sums = product(64, 40, 64, f16, f16, out, sums=f16)
    run(hopper.launches(problem, plan((64, 48, 64)), pointers))
    assert np.array_equal(pointers.out, sums.astype(np.float32).astype(out.dtype))


def test_tile_of_forty_columns_turned() -> None:
    problem, pointers, sums = product(72, 21, 64, f16, f16, f16, layout="NT")
    run(hopper.launches(problem, plan((64, 40, 64), swap=True), pointers))
    assert np.array_equal(pointers.out, sums.astype(np.float16))


#: Sizes, the type of the result, the plan, and the number of matrices.
SEVERAL_TILES: dict[str, tuple[tuple[int, int, int], Any, Plan, int]] = {
    "one subtile": ((200, 213, 72), bf16, plan((64, 64, 64)), 1),
    "two subtiles": ((70, 300, 72), bf16, replace(plan((128, 256, 64)), stages=4), 1),
    "a cluster": ((260, 201, 72), bf16, plan((128, 128, 64), cluster=(2, 1)), 1),
    "three consumers": ((200, 345, 72), bf16, plan((192, 168, 64), cluster=(1, 2)), 1),
    "rows of 128": ((600, 231, 80), bf16, plan((256, 128, 64)), 1),
    "a batch of e4m3": ((100, 77, 64), e4m3, plan((64, 32, 64)), 3),
    "f32": ((200, 213, 72), f32, plan((128, 128, 64)), 1),
    "f32, the second of two subtiles narrower": (
        (200, 213, 72),
        f32,
        replace(plan((128, 136, 64)), stages=5),
        1,
    ),
    "nine chunks in a row": ((400, 205, 72), bf16, plan((192, 72, 64)), 1),
    "nine chunks of e4m3": ((300, 301, 72), e4m3, plan((128, 144, 64)), 1),
}


@only_with_everything
@sampled(5)
@pytest.mark.parametrize("name", some(SEVERAL_TILES, "a cluster", "a batch of e4m3", "nine chunks in a row"))
def test_warps_store_their_rows_of_several_tiles(name: str) -> None:
    sizes, out, chosen, batch = SEVERAL_TILES[name]
    problem, pointers, sums = product(*sizes, bf16, bf16, out, layout="NT", batch=batch)
    blocks = chosen.cluster[0] * chosen.cluster[1]
    memory = np.full(pointers.out.size + 64, 1, out.dtype)
    first = -memory.ctypes.data % 16 // memory.itemsize + 1
    pointers.out = memory[first : first + pointers.out.size].reshape(pointers.out.shape)
    problem = replace(problem, out=operand(pointers.out, True, True, out))
    configured, arguments, _ = hopper.launches(problem, chosen, pointers, multiprocessors=blocks)[0]
    traits = hopper.for_shape(traits_of(problem, chosen), problem.m, problem.n, problem.batch, blocks)
    assert traits.store is Store.WARPS and not traits.one_tile
    for schedule in some(["in order", "late", 7], "late"):
        pointers.out[...] = 1
        report = lw.check(configured, *arguments, schedule=schedule)
        assert report.ok, report
        assert np.array_equal(pointers.out, sums.astype(out.dtype))
    assert (memory[:first] == 1).all() and (memory[first + pointers.out.size :] == 1).all()
