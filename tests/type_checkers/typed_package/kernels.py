"""Kernels with every kind of parameter and value, and what a type checker is to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import numpy as np

import lanewise as lw
from lanewise import Ptr, f16, f32, i32

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


@lw.device
def clamp(x: f32, low: f32, high: f32) -> f32:
    """Return x, or the bound that it passes."""
    if x < low:
        return low
    return high if x > high else x


@dataclass
class Running:
    """A maximum and where it was found, carried through a loop."""

    value: f32
    index: i32


@lw.kernel
def scalars(x: Ptr[f32], out: lw.Ptr[lw.f32, 16], n: lw.i32, factor: f32, WIDTH: lw.Constexpr = 4) -> None:
    i = lw.block_idx.x * lw.block_dim.x + lw.thread_idx.x
    assert_type(i, lw.i32)
    assert_type(i % 32, lw.i32)
    assert_type(2 * i + np.int32(1), lw.i32)
    assert_type(i < n, lw.pred)
    assert_type(-factor * 2.0, lw.f32)
    assert_type(factor.to(lw.f16), lw.f16)
    assert_type(factor.dtype, lw.Format)
    assert_type(lw.f16.bits, int)
    assert_type(lw.f32(0.0), lw.f32)
    n = n // 2 * 2  # parameters may be bound anew
    x += i
    best = Running(lw.f32(0.0), lw.i32(0))
    for k in lw.range(0, n, WIDTH):
        assert_type(k, lw.i32)
        value = clamp(x[k] * factor, 0.0, 1.0)
        if value > best.value and not (k == 3 or value != value):
            best = Running(value, k)
    while n > 4:
        n = n >> 1
    low, high = lw.unpack(lw.pack(best.value.to(f16), lw.f16(1.0)))
    first, *_ = (out + i).load(4)
    (out + i).store((first, best.value, low.to(f32), high.to(f32)))
    out[i] = lw.where(i < n, best.value, best.index.to(lw.f32))
    lw.printf("%d\n", i)
    assert i < 4096, "few threads"


@lw.kernel(max_threads=32)
def fragments(A: lw.Array[lw.f16, (16, 16)], B: lw.Ptr[lw.f16, 16], C: lw.Ptr[lw.f32]) -> None:
    lane = lw.lane_id()
    Bs = lw.shared(lw.f16, (16, 8), swizzle=lw.Swizzle(3, 3, 3))
    Bs.ptr(lane % 16, 0).store((B + lane % 16 * 8).load(8))
    lw.syncthreads()
    a = mma.a.fragment([lw.pack(A[lane, 2 * i], A[lane, 2 * i + 1]) for i in range(4)])
    b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
    acc = mma(a, b, mma.zeros())
    acc = acc.map(lambda x: lw.max(x, 0.0))
    for i in range(len(acc)):
        row, col = acc.element(i)
        C[row * 8 + col] = acc[i]


@lw.kernel
def hopper(T: lw.TensorMap[lw.bf16, (64, 64), 128], out: lw.Ptr[lw.bf16, 16]) -> None:
    tile = lw.shared(lw.bf16, (2, 64, 64), align=1024)
    pipeline = lw.Pipeline(2, bytes=T.nbytes)
    pipeline.init()
    state = pipeline.producer_state()
    if lw.elect_one():
        pipeline.acquire(state)
        lw.tma.load(tile.ptr(0, 0, 0), T, (0, 0), pipeline.barrier(state))
        state = state.next()
    pipeline.wait(pipeline.consumer_state())
    whole = lw.make_tensor(out, (64, 64), (64, 1))
    copy = lw.make_tiled_copy("UniversalCopy<uint128_t>", lw.Layout((16, 8), (8, 1)), lw.Layout((1, 8)))
    mine = copy.get_slice(lw.thread_idx.x)
    lw.copy(copy, mine.partition_S(tile[0, None, None]), mine.partition_D(whole))


def run(x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    """Launch, check and look at a kernel."""
    out = np.zeros_like(x)
    scalars[4, 64](x, out, x.size, 0.5, WIDTH=8)
    report = lw.check(scalars[4, 64], x, out, x.size, 0.5)
    assert not report.findings
    formats: list[lw.Format] = [lw.f16, lw.bf16, lw.e4m3]
    print(scalars.ptx("sm_90", WIDTH=4), [each.dtype for each in formats], lw.bf16.dtype.itemsize)
