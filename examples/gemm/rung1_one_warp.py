"""Rung 1: one warp computes one 16×8 tile of C, a step of 16 along K at a time, with ldmatrix and mma.

Every tile of A is loaded N / 8 times, every tile of B M / 16 times: almost all the time goes to memory.
"""

from functools import cache
from typing import Any

import parts

import lanewise as lw


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = parts.instruction(dtype, accumulate)

    @lw.kernel
    def one_warp(
        A: lw.Ptr[dtype, 16], B: lw.Ptr[dtype, 16], C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32
    ) -> None:  # fmt: skip
        lane = lw.lane_id()
        row, col = lw.block_idx.y * 16, lw.block_idx.x * 8
        As, Bs = lw.shared(dtype, (16, 16)), lw.shared(dtype, (16, 8))
        acc = mma.zeros()
        for k in lw.range(0, K, 16):
            r, c = lane // 2, lane % 2 * 8  # 16 bytes a lane: two lanes a row of A, one a row of B
            As.ptr(r, c).store((A + (row + r) * K + k + c).load(8))
            if lane < 16:
                Bs.ptr(lane, 0).store((B + (k + lane) * N + col).load(8))
            lw.syncwarp()
            a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)
            b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
            acc = mma(a, b, acc)
            lw.syncwarp()
        for i in range(0, len(acc), 2):
            r, c = acc.element(i)
            (C + (row + r) * N + col + c).store([acc[i].to(dtype), acc[i + 1].to(dtype)])

    return one_warp


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B for multiples of 16 × 8 × 16."""
    (m, k), n = a.shape, b.shape[1]
    if m % 16 or n % 8 or k % 16:
        raise ValueError(f"this rung takes multiples of 16 × 8 × 16, not {m} × {n} × {k}")
    return kernel(parts.format_of(a), accumulate)[(n // 8, m // 16), 32], (a, b, c, m, n, k), {}
