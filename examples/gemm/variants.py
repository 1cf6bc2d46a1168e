"""Rungs with one thing done another way: padding, fewer stages, stmatrix, WMMA over block tiles.

`ladder.py --variants` climbs and measures them beside the rungs.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import parts
import rung3_block_tile
import rung5_pipelined
import rung6_double_buffered
import rung7_rasterised

import lanewise as lw
from lanewise import wmma

Prepared = tuple[Any, tuple[Any, ...], dict[str, Any]]
#: Rows 16 bytes longer than their tile begin in other banks.
PADDED = replace(rung3_block_tile.TILING, padding=8)
WMMA = replace(PADDED, WM=32, WN=64)


def padded(a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32) -> Prepared:
    """Rung 4 with padded rows in place of the swizzle."""
    return parts.prepared(rung3_block_tile.kernel(parts.format_of(a), accumulate), PADDED, a, b, c)


def two_stages(a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32) -> Prepared:
    """Rung 5 with two stages: the copy of the next tile runs while one is multiplied."""
    tiling = replace(rung5_pipelined.TILING, stages=2)
    return parts.prepared(rung5_pipelined.kernel(parts.format_of(a), accumulate), tiling, a, b, c)


def stored_as_matrices(a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32) -> Prepared:
    """Rung 7 with stmatrix on the way of C to shared memory."""
    tiling = rung7_rasterised.TILING
    kernel = rung6_double_buffered.kernel(
        parts.format_of(a), accumulate, tiling, rung7_rasterised.in_groups, rows=True, matrices=True
    )
    return parts.prepared(kernel, tiling, a, b, c, flat=True)


@cache
def wmma_kernel(dtype: lw.Format, accumulate: lw.Format) -> lw.Kernel:
    """WMMA over padded tiles in shared memory: a warp computes 32 × 64 of C."""

    @lw.kernel(max_threads=WMMA.threads)
    def wmma_tiles(
        A: lw.Ptr[dtype, 32], B: lw.Ptr[dtype, 32], C: lw.Ptr[dtype, 32], M: lw.i32, N: lw.i32, K: lw.i32,
        T: lw.Constexpr, WHOLE: lw.Constexpr, WIDTH_A: lw.Constexpr, WIDTH_B: lw.Constexpr,
    ) -> None:  # fmt: skip
        wm, wn = T.warp()
        row, col = lw.block_idx.y * T.BM, lw.block_idx.x * T.BN
        As, Bs = parts.arrays(dtype, T, swizzled=False)
        tile_a = parts.tile(A, K, (row, 0), As, (T.BM, T.BK), T.threads, WIDTH_A, None)
        tile_b = parts.tile(B, N, (0, col), Bs, (T.BK, T.BN), T.threads, WIDTH_B, None)
        tall, wide = range(T.WM // 16), range(T.WN // 16)
        a = [wmma.fragment(wmma.matrix_a, 16, 16, 16, dtype, wmma.row_major) for _ in tall]
        b = wmma.fragment(wmma.matrix_b, 16, 16, 16, dtype, wmma.row_major)
        acc = [[wmma.fragment(wmma.accumulator, 16, 16, 16, accumulate) for _ in wide] for _ in tall]
        for fragment in [one for line in acc for one in line]:
            wmma.fill_fragment(fragment, 0.0)
        for k in lw.range(0, K, T.BK):
            parts.copy_now(tile_a, k, 0, k)
            parts.copy_now(tile_b, k * N, k, 0)
            lw.syncthreads()
            for step in range(0, T.BK, 16):
                for i in tall:
                    wmma.load_matrix_sync(a[i], As.ptr(wm + i * 16, step, 0).aligned(32), T.BK + T.padding)
                for j in wide:
                    wmma.load_matrix_sync(b, Bs.ptr(step, wn + j * 16, 0).aligned(32), T.BN + T.padding)
                    for i in tall:
                        wmma.mma_sync(acc[i][j], a[i], b, acc[i][j])
            lw.syncthreads()
        # C has the format of A and B, so the sums pass through shared memory to be rounded.
        own = lw.dynamic_shared(accumulate, lw.Layout((16, 16, T.threads // 32), (16, 1, 256)))
        warp, lane = lw.thread_idx.x // 32, lw.lane_id()
        for i in tall:
            for j in wide:
                wmma.store_matrix_sync(own.ptr(0, 0, warp).aligned(32), acc[i][j], 16, wmma.mem_row_major)
                lw.syncwarp()
                values = own.ptr(lane // 2, lane % 2 * 8, warp).load(8)
                place = C + (row + wm + i * 16 + lane // 2) * N + (col + wn + j * 16 + lane % 2 * 8)
                place.store([value.to(dtype) for value in values])
                lw.syncwarp()

    return wmma_tiles


def wmma_tiles(a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32) -> Prepared:
    """Rung 2 over block tiles; for multiples of 128 × 128 × 32."""
    (m, k), n = a.shape, b.shape[1]
    if not WMMA.whole(m, n, k):
        raise ValueError(f"this variant takes multiples of 128 × 128 × 32, not {m} × {n} × {k}")
    return parts.prepared(wmma_kernel(parts.format_of(a), accumulate), WMMA, a, b, c)
