"""Rung 6: while the tensor cores work on one step of 16 along K, ldmatrix brings the fragments of the next.

The barrier moves before the last step of a tile, whose successor is in the next stage; copies spread out.
"""

from functools import cache
from typing import Any

import parts

import lanewise as lw

TILING = parts.Tiling(BM=128, BN=128, BK=32, WM=64, WN=64, stages=4)


def in_rows(number: Any, tall: Any, wide: Any) -> tuple[Any, Any]:
    """Blocks row by row, as the grid counts them."""
    return number // wide, number % wide


@cache
def kernel(
    dtype: lw.Format,
    accumulate: lw.Format,
    tiling: parts.Tiling = TILING,
    order: Any = in_rows,
    rows: bool = False,
    matrices: bool = False,
) -> lw.Kernel:
    """The kernel for a format of A, B and C, one of the sums, and an order of the blocks."""
    mma = parts.instruction(dtype, accumulate)

    @lw.kernel(max_threads=tiling.threads)
    def double_buffered(
        A: lw.Ptr[dtype, 16], B: lw.Ptr[dtype, 16], C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
        T: lw.Constexpr, WHOLE: lw.Constexpr, WIDTH_A: lw.Constexpr, WIDTH_B: lw.Constexpr,
    ) -> None:  # fmt: skip
        wm, wn = T.warp()
        bm, bn = order(lw.block_idx.x, (M + T.BM - 1) // T.BM, (N + T.BN - 1) // T.BN)
        row, col = bm * T.BM, bn * T.BN
        As, Bs = parts.arrays(dtype, T)
        tile_a = parts.tile(A, K, (row, 0), As, (T.BM, T.BK), T.threads, WIDTH_A, None if WHOLE else (M, K))
        tile_b = parts.tile(B, N, (0, col), Bs, (T.BK, T.BN), T.threads, WIDTH_B, None if WHOLE else (K, N))
        places_a = parts.fragments_a(As, wm, T.WM, T.BK)
        places_b = parts.fragments_b(Bs, wn, T.WN, T.BK)
        for s in range(T.stages - 1):
            parts.fetch(tile_a, tile_b, lw.i32(s * T.BK), s * T.stage, K, N)
            lw.cp_async_commit()
        lw.cp_async_wait(T.stages - 2)
        lw.syncthreads()
        acc = T.sums(mma)
        a, b = parts.load_a(places_a, 0), parts.load_b(places_b, 0)
        read, write = lw.i32(0), lw.i32((T.stages - 1) * T.stage)
        steps = T.BK // 16
        for k in lw.range(0, K, T.BK):
            for step in range(steps):
                if step == steps - 1:
                    lw.cp_async_wait(T.stages - 2)
                    lw.syncthreads()
                    read = parts.next_stage(read, T)
                next_a = parts.load_a(places_a, (step + 1) % steps, read)
                next_b = parts.load_b(places_b, (step + 1) % steps, read)
                if step < steps - 1:
                    ahead = k + (T.stages - 1) * T.BK
                    parts.fetch(tile_a, tile_b, ahead, write, K, N, step, steps - 1)
                if step == steps - 2:
                    lw.cp_async_commit()
                    write = parts.next_stage(write, T)
                parts.multiply(mma, acc, a, b)
                a, b = next_a, next_b
        lw.cp_async_wait(0)
        limits = None if WHOLE else (M, N)
        if rows and WIDTH_B == 8:
            parts.store_rows(acc, C, N, row + wm, col + wn, limits, matrices)
        else:
            parts.store(acc, C, N, row + wm, col + wn, limits, WIDTH_B)

    return double_buffered


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, N and K."""
    return parts.prepared(kernel(parts.format_of(a), accumulate), TILING, a, b, c, flat=True)
