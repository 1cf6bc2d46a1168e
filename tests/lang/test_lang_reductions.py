"""Reductions and scans of warps and blocks, held against NumPy; printing; groups of elements."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lang.reduction_kernels import THREADS, compose, over_blocks, over_warps, with_a_function

rng = np.random.default_rng(11)


@pytest.mark.parametrize("width", [4, 32])
def test_warps(width: int) -> None:
    x = rng.integers(-50, 50, THREADS).astype(np.float32)  # sums are exact in any order
    n = rng.integers(-5, 5, THREADS).astype(np.int32)
    f, i = np.zeros((8, THREADS), np.float32), np.zeros((8, THREADS), np.int32)
    over_warps[1, THREADS](x, n, f, i, W=width)
    groups, numbers = x.reshape(-1, width), n.reshape(-1, width)
    for k, (ufunc, first) in enumerate(((np.add, 0), (np.maximum, -(2**31)), (np.minimum, 2**31 - 1))):
        assert np.array_equal(f[k], np.repeat(ufunc.reduce(groups, axis=1), width))
        assert np.array_equal(i[k], np.repeat(ufunc.reduce(numbers, axis=1), width))
        assert np.array_equal(f[3 + k], ufunc.accumulate(groups, axis=1).ravel())
        until = ufunc.accumulate(numbers, axis=1)
        exclusive = np.concatenate([np.full((len(until), 1), first), until[:, :-1]], axis=1)
        assert np.array_equal(i[3 + k], exclusive.ravel())
    assert np.array_equal(f[6], np.repeat(groups.max(1), width))
    assert np.array_equal(i[6] % width, np.repeat(groups.argmax(1), width))
    backwards = numbers[:, ::-1]  # indices fall: of equal values the last has the least index
    last = width - 1 - backwards.argmin(1) + np.arange(len(numbers)) * width
    assert np.array_equal(i[7], np.repeat(1000 - last, width))


@sampled(6)
@pytest.mark.parametrize("block", [(32, 1), (32, 3), (1024, 1)])
def test_blocks(block: tuple[int, int]) -> None:
    size = block[0] * block[1]
    x = rng.integers(-50, 50, size).astype(np.float32)
    f, i = np.zeros((6, size), np.float32), np.zeros(size, np.int32)
    report = lw.check(over_blocks[1, block], x, f, i, 3)
    assert not report.findings
    for k in range(3):
        assert (f[k] == (x + k).sum()).all()
    assert np.array_equal(f[3], np.cumsum(x))
    assert np.array_equal(f[4], [-np.inf, *np.maximum.accumulate(x)[:-1]])
    assert (f[5] == x.max()).all() and (i == x.argmax()).all()


def test_a_function_combines_in_order() -> None:
    m, c = (rng.integers(-2, 3, THREADS).astype(np.int32) for _ in range(2))
    m[m == 0] = 1
    out = np.zeros((4, 2, THREADS), np.int32)
    with_a_function[1, THREADS](m, c, out)
    maps = list(zip(m.astype(object), c.astype(object), strict=True))

    def word(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    for lane in range(THREADS):
        start = lane // 32 * 32
        wanted = (
            reduce(compose, maps[start : start + 32]),
            reduce(compose, maps[start : lane + 1]),
            reduce(compose, maps),
            reduce(compose, maps[:lane], (1, 0)),
        )
        assert [[word(int(each)) for each in pair] for pair in wanted] == out[:, :, lane].tolist()
    assert len(list(accumulate(maps, compose))) == THREADS


def test_scans_begin_with_a_number() -> None:
    @lw.kernel
    def begun(x: lw.Ptr[lw.f32], warps: lw.Ptr[lw.f32], until: lw.Ptr[lw.f32], through: lw.Ptr[lw.f32]):
        t = lw.thread_idx.x
        warps[t] = lw.warp_scan(x[t], "max", exclusive=True, initial=1)
        until[t] = lw.block_scan(x[t], exclusive=True, initial=0.5)
        through[t] = lw.block_scan(x[t], lambda a, b: a + b, initial=7)

    x = rng.integers(-20, 20, 64).astype(np.float32)
    warps, until, through = np.zeros((3, 64), np.float32)
    begun[1, 64](x, warps, until, through)
    for first in (0, 32):
        wanted = np.maximum.accumulate([1, *x[first : first + 31]])
        assert np.array_equal(warps[first : first + 32], wanted)
    assert np.array_equal(until, 0.5 + np.cumsum([0, *x[:-1]])) and np.array_equal(through, 7 + np.cumsum(x))


def test_argmax_passes_over_nan() -> None:
    @lw.kernel
    def nan(x: lw.Ptr[lw.f32], out: lw.Ptr[lw.i32]):
        out[lw.thread_idx.x] = lw.block_reduce(x[lw.thread_idx.x], "argmax")[1]

    x = np.full(64, np.nan, np.float32)
    out = np.zeros(64, np.int32)
    nan[1, 64](x, out)
    assert (out == 0).all()
    x[[40, 50]] = -np.inf, -5
    nan[1, 64](x, out)
    assert (out == 50).all()


def test_half_floats_and_wide_integers() -> None:
    @lw.kernel
    def narrow(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.i64], a: lw.Ptr[lw.f16], b: lw.Ptr[lw.i64]):
        t = lw.thread_idx.x
        a[t], b[t] = lw.block_reduce(x[t], "max"), lw.block_scan(y[t])

    x, y = rng.normal(size=64).astype(np.float16), rng.integers(-(2**40), 2**40, 64)
    a, b = np.zeros_like(x), np.zeros_like(y)
    narrow[1, 64](x, y, a, b)
    assert (a == x.max()).all() and np.array_equal(b, np.cumsum(y))


def error_of(kernel: Any) -> str:
    with pytest.raises(lw.KernelError) as caught:
        kernel.ptx("sm_80")
    return str(caught.value)


def test_mistakes_are_named() -> None:
    @lw.kernel
    def unknown(x: lw.Ptr[lw.f32]):
        x[0] = lw.warp_reduce(x[0], "mean")

    @lw.kernel
    def no_initial(x: lw.Ptr[lw.f32]):
        x[0] = lw.warp_scan(x[0], lambda a, b: a * b, exclusive=True)

    @lw.kernel
    def width(x: lw.Ptr[lw.f32]):
        x[0] = lw.warp_reduce(x[0], width=5)

    assert "'argmin', or a function of two values; not the Python str 'mean'" in error_of(unknown)
    assert "needs initial=" in error_of(no_initial)
    assert "a power of two up to 32; not 5" in error_of(width)
    with pytest.raises(lw.KernelError, match=r"takes whole warps, and the block has 40 threads"):
        over_blocks[1, 40](np.zeros(40, np.float32), np.zeros(1, np.float32), np.zeros(40, np.int32), 0)


# dynamic shared memory, printing, groups of elements ----------------------------------------------------


def test_dynamic_shared_memory_is_as_large_as_its_arrays() -> None:
    @lw.kernel
    def turned(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], N: lw.Constexpr):
        t = lw.thread_idx.x
        first = lw.dynamic_shared(lw.f32, N)
        second = lw.dynamic_shared(lw.f32, N, offset=4 * N)
        first[t], second[t] = x[t], 2.0 * x[t]
        lw.syncthreads()
        y[t] = first[N - 1 - t] + second[N - 1 - t]

    for n in (32, 64):
        x = rng.normal(size=n).astype(np.float32)
        y = np.zeros_like(x)
        turned[1, n](x, y, N=n)
        assert np.array_equal(y, x[::-1] + 2 * x[::-1])
        bound, _ = turned[1, n].bind(x, y, N=n)
        assert bound.shape.shared_bytes == 8 * n
    bound, _ = turned[1, 32, 4096].bind(x, y, N=32)
    assert bound.shape.shared_bytes == 4096


def test_print_prints(capfd: pytest.CaptureFixture[str]) -> None:
    @lw.kernel
    def shown(x: lw.Ptr[lw.f16], n: lw.u64, SIZE: lw.Constexpr):
        i = lw.thread_idx.x
        print("tracing for", SIZE)
        if i < 2:
            print(i, "holds", x[i], "100%", i == 1, n, sep=", ", end="!\n")

    shown[1, 32](np.array([1.5, -2], np.float16), 2**40, SIZE=7)
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "tracing for 7"
    assert sorted(said[1:]) == [f"0, holds, 1.5, 100%, 0, {2**40}!", f"1, holds, -2, 100%, 1, {2**40}!"]

    @lw.kernel
    def many(x: lw.Array[lw.f16, (4, 4)]):
        print(x)

    assert "is many: print its elements" in error_of(many)


@pytest.mark.parametrize("width", [None, 4])
def test_vectorized_moves_groups(width: int | None) -> None:
    @lw.kernel
    def doubled(X: lw.Ptr[lw.f16, 16], Y: lw.Ptr[lw.f16, 16], n: lw.i32, WIDTH: lw.Constexpr):
        x, y = lw.vectorized(X, WIDTH), lw.vectorized(Y, WIDTH)
        for i in lw.range(lw.thread_idx.x, n // x.width, lw.block_dim.x):
            y[i] = tuple(2.0 * each for each in x[i])

    x = rng.normal(size=512).astype(np.float16)
    y = np.zeros_like(x)
    doubled[1, 32](x, y, x.size, WIDTH=width)
    assert np.array_equal(y, 2 * x)
    assert f"ld.global.v{(width or 8) // 2}.b32" in doubled.ptx("sm_80", WIDTH=width)


def test_vectorized_asks_for_alignment() -> None:
    @lw.kernel
    def unaligned(x: lw.Ptr[lw.f16, 4]):
        x[0] = lw.vectorized(x, 8)[0][0]

    @lw.kernel
    def odd(x: lw.Ptr[lw.f16, 16]):
        x[0] = lw.vectorized(x, 3)[0][0]

    assert "lw.Ptr[…, 16], or promise it with .aligned(16)" in error_of(unaligned)
    assert "at most 8 elements, 16 bytes; not 3" in error_of(odd)
