"""Kernels of tcgen05 that the tests of traces and of the debugger run, traced once for each schedule."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import lanewise as lw
from lanewise.traces.trace import Trace

SCHEDULES = ("early", "late", 3)
SWIZZLE = lw.Swizzle(3, 3, 3)
mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")
pair_mma = lw.instruction("tcgen05.mma.cta_group::2.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")


@lw.kernel
def product(
    A: lw.TensorMap[lw.bf16, (128, 64), 128],
    B: lw.TensorMap[lw.bf16, (64, 64), 128],
    C: lw.Ptr[lw.f32],
    K: lw.i32,
):
    sA = lw.shared(lw.bf16, (128, 64), swizzle=SWIZZLE, align=1024)
    sB = lw.shared(lw.bf16, (64, 64), swizzle=SWIZZLE, align=1024)
    thread, bars = lw.thread_idx.x, lw.mbarrier(2)
    loaded, multiplied = bars[0], bars[1]
    if thread == 0:
        bars.init(1)
        lw.fence_mbarrier_init()
    memory = lw.tmem.alloc(64)
    acc = memory.accumulator(mma)
    a, b = lw.make_umma_desc(sA), lw.make_umma_desc(sB)
    for step in lw.range(K // 64):
        if thread == 0:
            loaded.arrive(expect=A.nbytes + B.nbytes)
            lw.tma.load(sA, A, (0, step * 64), loaded)
            lw.tma.load(sB, B, (0, step * 64), loaded)
            loaded.wait(step % 2)
            for k in range(0, 64, 16):
                mma(a[0, k], b[0, k], acc, accumulate=(step > 0) | (k > 0))
            lw.tcgen05.commit(multiplied)
        multiplied.wait(step % 2)
        lw.syncthreads()
    lw.tcgen05.fence_after()
    sums = acc.load(0, 64)
    for i in range(64):
        row, col = sums.element(i)
        C[row * 64 + col] = sums[i]
    memory.free()


@lw.kernel(cluster=2)
def paired(
    A: lw.TensorMap[lw.bf16, (64, 64), 128], B: lw.TensorMap[lw.bf16, (32, 64), 128], C: lw.Ptr[lw.f32]
):
    sA = lw.shared(lw.bf16, (64, 64), swizzle=SWIZZLE, align=1024)
    sB = lw.shared(lw.bf16, (32, 64), swizzle=SWIZZLE, align=1024)
    thread, rank, bars = lw.thread_idx.x, lw.block_idx.x % 2, lw.mbarrier(2)
    loaded, multiplied = bars[0], bars[1]
    if thread == 0:
        bars.init(1)
        lw.fence_mbarrier_init()
    memory = lw.tmem.alloc(32, cta_group=2)
    acc = memory.accumulator(pair_mma)
    a, b = lw.make_umma_desc(sA), lw.make_umma_desc(sB)
    if thread == 0:
        loaded.arrive(expect=A.nbytes + B.nbytes)
        lw.tma.load(sA, A, (rank * 64, 0), loaded)
        lw.tma.load(sB, B, (rank * 32, 0), loaded)
        loaded.wait(0)
    lw.cluster.sync()
    if (thread == 0) & (rank == 0):
        for k in range(0, 64, 16):
            pair_mma(a[0, k], b[0, k], acc, accumulate=k > 0)
        lw.tcgen05.commit(multiplied, cta_group=2, multicast=3)
    multiplied.wait(0)
    lw.tcgen05.fence_after()
    sums = acc.load(0, 32)
    for i in range(32):
        row, col = sums.element(i)
        C[(rank * 64 + row) * 64 + col] = sums[i]
    memory.free()


def matrices(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """A (m, k), B (n, k) and an empty C (m, n)."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.normal(size=(rows, k)).astype(lw.bf16.dtype) for rows in (m, n))
    return a, b, np.zeros((m, n), np.float32)


@cache
def tile(schedule: object) -> tuple[Trace, Any, Any, Any]:
    """The trace of a product of one block, its matrices, and the result, which is the instruction's own."""
    a, b, c = matrices(128, 64, 128)
    maps = lw.tensor_map(a, (128, 64), swizzle="128B"), lw.tensor_map(b, (64, 64), swizzle="128B")
    trace = lw.trace(product[1, 128], *maps, c, 128, arch="sm_100a", schedule=schedule)
    np.testing.assert_array_equal(c, mma.gemm(a, b.T, arch="sm_100a"))
    return trace, a, b, c


@cache
def pair() -> tuple[Trace, Any, Any, Any]:
    """The trace of a product of a pair of blocks."""
    a, b, c = matrices(128, 64, 64)
    maps = lw.tensor_map(a, (64, 64), swizzle="128B"), lw.tensor_map(b, (32, 64), swizzle="128B")
    trace = lw.trace(paired[2, 128], *maps, c, arch="sm_100a", blocks="all")
    np.testing.assert_array_equal(c, pair_mma.gemm(a, b.T, arch="sm_100a"))
    return trace, a, b, c
