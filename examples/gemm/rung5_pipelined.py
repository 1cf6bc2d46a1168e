"""Rung 5: cp.async fetches tiles a few steps ahead, straight into shared memory, while the warps multiply.

The tile that is multiplied, the two on their way and the one that was just used up take turns in four stages.
"""

from functools import cache
from typing import Any

import parts

import lanewise as lw

TILING = parts.Tiling(BM=128, BN=128, BK=32, WM=64, WN=64, stages=4)


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = parts.instruction(dtype, accumulate)

    @lw.kernel(max_threads=TILING.threads)
    def pipelined(
        A: lw.Ptr[dtype, 16], B: lw.Ptr[dtype, 16], C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
        T: lw.Constexpr, WHOLE: lw.Constexpr, WIDTH_A: lw.Constexpr, WIDTH_B: lw.Constexpr,
    ) -> None:  # fmt: skip
        wm, wn = T.warp()
        row, col = lw.block_idx.y * T.BM, lw.block_idx.x * T.BN
        As, Bs = parts.arrays(dtype, T)
        tile_a = parts.tile(A, K, (row, 0), As, (T.BM, T.BK), T.threads, WIDTH_A, None if WHOLE else (M, K))
        tile_b = parts.tile(B, N, (0, col), Bs, (T.BK, T.BN), T.threads, WIDTH_B, None if WHOLE else (K, N))
        places_a = parts.fragments_a(As, wm, T.WM, T.BK)
        places_b = parts.fragments_b(Bs, wn, T.WN, T.BK)
        for s in range(T.stages - 1):  # fill the pipeline: a group of copies for each tile
            parts.fetch(tile_a, tile_b, lw.i32(s * T.BK), s * T.stage, K, N)
            lw.cp_async_commit()
        acc = T.sums(mma)
        read, write = lw.i32(0), lw.i32((T.stages - 1) * T.stage)
        for k in lw.range(0, K, T.BK):
            lw.cp_async_wait(T.stages - 2)  # this step's tile is here, for this thread's copies
            lw.syncthreads()  # and for everybody's; and the stage of the step before is free
            parts.fetch(tile_a, tile_b, k + (T.stages - 1) * T.BK, write, K, N)
            lw.cp_async_commit()
            for step in range(T.BK // 16):
                a, b = parts.load_a(places_a, step, read), parts.load_b(places_b, step, read)
                parts.multiply(mma, acc, a, b)
            read = parts.next_stage(read, T)
            write = parts.next_stage(write, T)
        lw.cp_async_wait(0)
        parts.store(acc, C, N, row + wm, col + wn, None if WHOLE else (M, N), WIDTH_B)

    return pipelined


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, N and K."""
    return parts.prepared(kernel(parts.format_of(a), accumulate), TILING, a, b, c)
