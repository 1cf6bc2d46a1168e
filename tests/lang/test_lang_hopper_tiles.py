"""Hopper's tiles on the CPU machine: wgmma through descriptors of layouts, TMA by partitions, whole products.

Every product is compared bit for bit with the instruction repeated along K.
"""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled

RNG = np.random.default_rng(90)
ARCH = "sm_90a"
Box = lw.TensorMap[lw.f16, (16, 64), 128]


def swizzle(dtype: lw.Format, mode: int) -> lw.Swizzle | None:
    """The swizzle of elements that is a swizzle mode of so many bytes."""
    if not mode:
        return None
    base = {8: 4, 16: 3, 32: 2}[dtype.bits]
    return lw.Swizzle({32: 1, 64: 2, 128: 3}[mode], base, 3)


def shared_layout(rows: int, k: int, dtype: lw.Format, mode: int, major: str) -> lw.Layout:
    """A tile of (row, k) in the canonical layout of a swizzle mode: patterns of 8 rows, one by one."""
    wide = (mode or 16) * 8 // dtype.bits  # elements of a row of the pattern
    if major == "K":
        return lw.Layout(((8, rows // 8), (wide, k // wide)), ((wide, 8 * wide), (1, rows * wide)))
    return lw.Layout(((wide, rows // wide), k), ((1, k * wide), wide))


CASES = [
    ("f32.bf16.bf16", 64, 16, 128, "K", "K"),
    ("f32.f16.f16", 128, 16, 64, "K", "MN"),
    ("f16.f16.f16", 32, 16, 32, "MN", "K"),
    ("f32.bf16.bf16", 64, 16, 0, "K", "K"),
    ("f32.bf16.bf16", 256, 16, 128, "MN", "MN"),
    ("f32.tf32.tf32", 16, 8, 128, "K", "K"),
    ("s32.s8.s8", 48, 32, 128, "K", "K"),
    ("f32.e4m3.e4m3", 24, 32, 64, "K", "K"),
]


@sampled(8)
@pytest.mark.parametrize(("types", "n", "k", "mode", "major_a", "major_b"), CASES)
def test_a_product_out_of_shared_memory(
    types: str, n: int, k: int, mode: int, major_a: str, major_b: str
) -> None:
    mma = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types}")
    dtype, out = mma.a.format, mma.d.format
    depth = max(2 * k, (mode or 16) * 8 // dtype.bits)
    layouts = [
        shared_layout(rows, depth, dtype, mode, major) for rows, major in ((64, major_a), (n, major_b))
    ]

    @lw.kernel
    def run(A: lw.Ptr[dtype], B: lw.Ptr[dtype], D: lw.Ptr[out]):
        arrays = [lw.shared(dtype, each, swizzle=swizzle(dtype, mode), align=1024) for each in layouts]
        thread = lw.thread_idx.x
        for array, matrix, rows in zip(arrays, (A, B), (64, n), strict=True):
            for place in lw.range(thread, rows * depth, 128):
                array[place // depth, place % depth] = matrix[place]
        lw.fence_proxy_async()
        lw.syncthreads()
        a, b = (lw.make_gmma_desc(each) for each in arrays)
        acc = mma.zeros()
        lw.wgmma_fence()
        for first in range(0, depth, k):
            acc = mma(a[0, first], b[0, first], acc)
        lw.wgmma_commit()
        lw.wgmma_wait()
        for i in range(len(acc)):
            row, col = acc.element(i)
            D[row * n + col] = acc[i]

    a, b = (_matrix(dtype, shape) for shape in ((64, depth), (n, depth)))
    d = np.zeros((64, n), out.dtype)
    run[1, 128](a, b, d, arch=ARCH)
    assert np.array_equal(d, mma.gemm(a, b.T, arch=ARCH))


def _matrix(dtype: lw.Format, shape: tuple[int, int]) -> Any:
    if dtype.kind == "int":
        return RNG.integers(-128, 128, shape).astype(dtype.dtype)
    return RNG.normal(size=shape).astype(dtype.dtype or np.float32)


def test_the_left_matrix_in_registers_and_a_sum_that_begins_anew() -> None:
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16")
    in_registers = lw.instruction(mma.text, a_source="registers")

    @lw.kernel
    def run(A: lw.Ptr[lw.f16], B: lw.Ptr[lw.f16], D: lw.Ptr[lw.f32], rounds: lw.i32):
        sB = lw.shared(lw.f16, shared_layout(32, 16, lw.f16, 32, "K"), swizzle=lw.Swizzle(1, 3, 3), align=256)
        for place in lw.range(lw.thread_idx.x, 32 * 16, 128):
            sB[place // 16, place % 16] = B[place]
        lw.fence_proxy_async()
        lw.syncthreads()
        a = in_registers.a.full(0)
        for i in range(len(a)):
            row, col = a.element(i)
            a[i] = A[row * 16 + col]
        b = lw.make_gmma_desc(sB)
        acc = mma.c.full(1e6)  # which the first product overwrites
        for number in lw.range(rounds):
            lw.wgmma_fence()
            acc = mma(a, b, acc, accumulate=number > 0, negate_a=True)
            lw.wgmma_commit()
            lw.wgmma_wait()
            acc = acc.map(lambda x: x * 2.0)
        for i in range(len(acc)):
            row, col = acc.element(i)
            D[row * 32 + col] = acc[i]

    a, b = (RNG.integers(-8, 8, (rows, 16)).astype(np.float16) for rows in (64, 32))
    d = np.zeros((64, 32), np.float32)
    run[1, 128](a, b, d, 3, arch=ARCH)
    product = -(a.astype(np.float64) @ b.T.astype(np.float64))
    assert np.array_equal(d, 14 * product)  # ((2 p + p) · 2 + p) · 2 = 14 p


def test_branches_and_loops_carry_accumulators() -> None:
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")

    @lw.kernel
    def run(D: lw.Ptr[lw.f32], n: lw.i32):
        ones = lw.shared(
            lw.f16, shared_layout(64, 16, lw.f16, 32, "K"), swizzle=lw.Swizzle(1, 3, 3), align=256
        )
        for place in lw.range(lw.thread_idx.x, 64 * 16, 128):
            ones[place // 16, place % 16] = 1.0
        lw.fence_proxy_async()
        lw.syncthreads()
        d = lw.make_gmma_desc(ones)
        acc = mma.zeros()
        other = mma.c.full(3.0)
        for i in lw.range(n):
            lw.wgmma_fence()
            if i % 2 == 0:
                acc = mma(d, d, acc)
            else:
                other = mma(d, d, other)
            lw.wgmma_commit()
            lw.wgmma_wait()
            if i == 2:
                acc, other = other, acc
        D[lw.thread_idx.x] = acc[0]
        D[128 + lw.thread_idx.x] = other[0]

    found = np.zeros((2, 128), np.float32)
    run[1, 128](found, 5, arch=ARCH)
    # i = 0, 1, 2: acc 32, other 19; they change places; i = 3: other 48; i = 4: acc 35
    assert (found[0] == 35).all() and (found[1] == 48).all()


@pytest.mark.parametrize("boxes", [1, 2])
def test_tiles_by_tma_partitions(boxes: int) -> None:
    """A tile of several boxes goes from one array to another, and its middle is cut off by the edges."""
    swizzled = lw.Swizzle(3, 3, 3)

    @lw.kernel
    def run(A: Box, B: Box, M: lw.i32, N: lw.i32):
        wide = (64, boxes)
        tile = lw.shared(lw.f16, lw.Layout((16, wide), (64, (1, 1024))), swizzle=swizzled, align=1024)
        bar = lw.mbarrier()[0]
        load, store = lw.make_tma_copy("SM90_TMA_LOAD", A), lw.make_tma_copy("SM90_TMA_STORE", B)
        at = (lw.block_idx.y, lw.block_idx.x)
        gA = lw.local_tile(load.get_tma_tensor((M, N)), (16, 64 * boxes), at)
        gB = lw.local_tile(store.get_tma_tensor((M, N)), (16, 64 * boxes), at)
        tAgA, tAsA = lw.tma_partition(load, gA, tile)
        tBgB, tBsB = lw.tma_partition(store, gB, tile)
        if lw.thread_idx.x == 0:
            bar.init(1)
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if lw.thread_idx.x == 0:
            bar.arrive(expect=boxes * A.nbytes)
            lw.copy(load.with_(bar), tAgA[None], tAsA[None])
        bar.wait(0)
        tile[3, 5] = tile[3, 5] + 1.0
        lw.fence_proxy_async()
        lw.syncthreads()
        if lw.thread_idx.x == 0:
            lw.copy(store, tBsB[None], tBgB[None])
            lw.tma.commit()
            lw.tma.wait()

    a = RNG.integers(-9, 9, (40, 200)).astype(np.float16)
    b = np.zeros_like(a)
    maps = [lw.tensor_map(each, (16, 64), swizzle="128B") for each in (a, b)]
    run[(-(-200 // (64 * boxes)), 3), 1](*maps, 40, 200, arch=ARCH)
    wanted = a.copy()
    wanted[3::16, 5 :: 64 * boxes] += 1
    assert np.array_equal(b, wanted)
