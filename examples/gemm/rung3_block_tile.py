"""Rung 3: a block of four warps shares tiles of A and B in shared memory; every warp computes 64 × 64 of C.

A tile of A now serves 128 columns of C and one of B 128 rows: a twelfth of the bytes that rung 1 reads.
Rows of 64 bytes put the eight rows that one phase of ldmatrix reads into few banks: count the conflicts.
"""

from functools import cache
from typing import Any

import parts

import lanewise as lw

TILING = parts.Tiling(BM=128, BN=128, BK=32, WM=64, WN=64)


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, swizzled: bool = False) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = parts.instruction(dtype, accumulate)

    @lw.kernel(max_threads=TILING.threads)
    def block_tile(
        A: lw.Ptr[dtype, 16], B: lw.Ptr[dtype, 16], C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
        T: lw.Constexpr, WHOLE: lw.Constexpr, WIDTH_A: lw.Constexpr, WIDTH_B: lw.Constexpr,
    ) -> None:  # fmt: skip
        wm, wn = T.warp()
        row, col = lw.block_idx.y * T.BM, lw.block_idx.x * T.BN
        As, Bs = parts.arrays(dtype, T, swizzled)
        tile_a = parts.tile(A, K, (row, 0), As, (T.BM, T.BK), T.threads, WIDTH_A, None if WHOLE else (M, K))
        tile_b = parts.tile(B, N, (0, col), Bs, (T.BK, T.BN), T.threads, WIDTH_B, None if WHOLE else (K, N))
        places_a = parts.fragments_a(As, wm, T.WM, T.BK)
        places_b = parts.fragments_b(Bs, wn, T.WN, T.BK)
        acc = T.sums(mma)
        for k in lw.range(0, K, T.BK):
            parts.copy_now(tile_a, k, 0, k)
            parts.copy_now(tile_b, k * N, k, 0)
            lw.syncthreads()
            for step in range(T.BK // 16):
                parts.multiply(mma, acc, parts.load_a(places_a, step), parts.load_b(places_b, step))
            lw.syncthreads()
        parts.store(acc, C, N, row + wm, col + wn, None if WHOLE else (M, N), WIDTH_B)

    return block_tile


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, N and K."""
    return parts.prepared(kernel(parts.format_of(a), accumulate), TILING, a, b, c)
