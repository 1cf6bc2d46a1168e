"""What the kernel language adds to PTX, on a GPU: reductions, fp8 conversions, lw.benchmark, lw.autotune."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from lanewise import gpu
from lang import reduction_kernels as reductions
from lang import small_float_kernels as small_floats

pytestmark = pytest.mark.gpu
torch = torch_here()


def there(array: Any) -> Any:
    """A copy of an array on the GPU, as integers where torch lacks the type."""
    if array.dtype.itemsize == 1:
        return torch.from_numpy(array.view(np.uint8).copy()).cuda()
    names = {"uint16": "int16", "uint32": "int32"}
    return torch.from_numpy(array.view(names.get(array.dtype.name, array.dtype)).copy()).cuda()


def same_on_both(configured: Any, *arguments: Any, **constants: Any) -> None:
    """Launch on the machine and on the GPU: all arrays have the same bits afterwards."""
    on_gpu = [there(each) if isinstance(each, np.ndarray) else each for each in arguments]
    configured(*on_gpu, **constants)
    configured(*arguments, arch=gpu.devices()[0].arch, **constants)
    for here, other in zip(arguments, on_gpu, strict=True):
        if isinstance(here, np.ndarray):
            assert np.array_equal(here.view(np.uint8), other.cpu().numpy().view(np.uint8))


def test_reductions() -> None:
    rng = np.random.default_rng(5)
    x, n = rng.integers(-50, 50, 96).astype(np.float32), rng.integers(-5, 5, 96).astype(np.int32)
    for width in (4, 32):
        outs = np.zeros((8, 96), np.float32), np.zeros((8, 96), np.int32)
        same_on_both(reductions.over_warps[1, 96], x, n, *outs, W=width)
    for block in ((32, 1), (32, 3), (1024, 1)):
        size = block[0] * block[1]
        values = rng.integers(-50, 50, size).astype(np.float32)
        sums, indices = np.zeros((6, size), np.float32), np.zeros(size, np.int32)
        same_on_both(reductions.over_blocks[1, block], values, sums, indices, 3)
    same_on_both(reductions.with_a_function[1, 96], n, n[::-1].copy(), np.zeros((4, 2, 96), np.int32))


@pytest.mark.parametrize("element", [lw.e4m3, lw.e5m2], ids=lambda each: each.name)
def test_fp8(element: Any) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("fp8 needs sm_89")
    rng = np.random.default_rng(5)
    pair = small_floats.SMALL[element][1]
    narrow, wide, pairs = small_floats.kernels(element, pair)
    n = 1 << 18
    x = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x[: n // 2] = rng.normal(size=n // 2) * 2.0 ** rng.integers(-20, 17, n // 2)
    one, four = np.zeros(n // 4, element.dtype), np.zeros(n, element.dtype)
    same_on_both(narrow[n // 128, 32], x, one, four, np.zeros(n // 2, pair.dtype))
    words = np.arange(256, dtype=np.uint8)
    outs = np.zeros(256, np.float32), np.zeros(256, np.float16), np.zeros(256, np.int32)
    same_on_both(wide[1, 64], words.view(element.dtype), *outs)
    halves = np.zeros(256, np.float16), np.zeros(256, np.float16)
    same_on_both(
        pairs[1, 256], rng.integers(0, 2**16, 256).astype(np.uint16), np.zeros(256, np.uint32), *halves
    )


@lw.kernel
def scale(x: lw.Ptr[lw.f32], n: lw.i32, factor: lw.f32, BLOCK: lw.Constexpr, EACH: lw.Constexpr) -> None:
    for k in range(EACH):
        i = (lw.block_idx.x * EACH + k) * BLOCK + lw.thread_idx.x
        if i < n:
            x[i] = x[i] * factor


def test_benchmark_and_autotune(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    tuned = lw.autotune({"BLOCK": (64, 256), "EACH": (1, 4)})(scale)
    x = torch.ones(1 << 24, device="cuda")
    tuned[lambda n, BLOCK, EACH: -(-n // (BLOCK * EACH)), lambda BLOCK: BLOCK](x, x.numel(), 2.0)
    assert bool((x == 2).all()) and len(tuned.trials) == 4
    timings = {tuple(each.values()): found for each, found in tuned.trials}
    assert timings[64, 4].median < timings[64, 1].median  # small blocks of little work keep a GPU idle
    large, small = (lw.benchmark(lambda size=size: x[:size].mul_(1.0)).median for size in (1 << 24, 1 << 20))
    assert large > 2 * small > 0


class Line(NamedTuple):
    """Integers in memory, and the step from one to the next."""

    data: lw.Ptr[lw.i32]
    step: lw.i32


@lw.kernel
def add_lines(out: lw.Ptr[lw.i32], line: Line, factors: (lw.i32, lw.i64)) -> None:  # type: ignore[syntax]  # types
    i = lw.thread_idx.x
    out[i] = out[i] + line.data[i * line.step] * factors[0] + factors[1].to(lw.i32)


def test_structs_are_passed_field_by_field() -> None:
    """The first launches and those that machine code makes, as a struct and as tuples."""
    data = torch.arange(64, dtype=torch.int32, device="cuda")
    out, wanted = torch.zeros(32, dtype=torch.int32, device="cuda"), np.zeros(32, np.int64)
    for number in range(40):
        step = 1 + number % 2
        one: Any = step
        line: Any = Line(data, one) if number % 3 else (data, step)
        add_lines[1, 32](out, line, (number, -number))
        wanted += np.arange(32) * step * number - number
    assert np.array_equal(out.cpu().numpy(), wanted)
    with pytest.raises(lw.LanewiseError, match="line takes Line, or a tuple of 2"):
        add_lines[1, 32](out, data, (1, 2))
