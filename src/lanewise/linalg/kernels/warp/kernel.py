"""The kernel of the mma.sync family: tiles by cp.async, fragments by ldmatrix, sums in registers.

A block computes one tile of the result. Its warps each own a part of the tile; while they multiply one step
along K, ldmatrix brings the fragments of the next, and cp.async the tiles some stages ahead. Turing has no
cp.async: there each tile passes through registers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32, tf32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.warp.epilogue import store, store_lines
from lanewise.linalg.kernels.warp.tiles import LANES, fragment, share_out
from lanewise.linalg.kernels.warp.traits import WarpTraits


def in_groups(number, tall, wide, group: int) -> tuple[Any, Any]:
    """Some rows of tiles at a time, column by column: blocks that run together share rows and columns."""
    first = number // (wide * group) * group
    rest, size = number % (wide * group), lw.min(tall - first, group)
    return first + rest % size, rest // size


@cache
def compiled(T: WarpTraits) -> Kernel:
    """Return the kernel for some constants."""
    T.require_possible()
    (bm, bn, _), (wm, wn), stages = T.plan.tile, T.warp, T.plan.stages
    tile_a, tile_b = T.tiles
    width_a, width_b = tile_a.width(T.problem.a.alignment), tile_b.width(T.problem.b.alignment)
    shifted_a, shifted_b = T.shifted
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_a: Any = lw.Ptr[T.a, T.problem.a.alignment]
    of_b: Any = lw.Ptr[T.b, T.problem.b.alignment]
    of_out: Any = lw.Ptr[T.out, T.problem.out.alignment]
    wide: Any = T.wide

    @lw.kernel(max_threads=T.threads)
    def by_warps(
        A: of_a, B: of_b, Out: of_out,
        M: lw.i32, N: lw.i32, K: lw.i32,
        lda: lw.i64, ldb: lw.i64, ldo: lw.i64, batch_a: lw.i64, batch_b: lw.i64, batch_out: lw.i64,
        bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, residual_batch: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: wide, beta: wide, folded_rows: lw.i32,
    ):  # fmt: skip
        M, N, K = (lw.assume(each, nonnegative=True) for each in (M, N, K))
        lda, ldb = lw.assume(lda, multiple_of=width_a), lw.assume(ldb, multiple_of=width_b)
        batch_a, batch_b = lw.assume(batch_a, multiple_of=width_a), lw.assume(batch_b, multiple_of=width_b)
        batch = lw.block_idx.y.to(lw.i64)
        row, column = in_groups(lw.block_idx.x, lw.cdiv(M, bm), lw.cdiv(N, bn), T.plan.group)
        row, column = row * bm, column * bn
        warp = lw.thread_idx.x // LANES
        own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
        sA = tile_a.array(stages, 0)
        sB = tile_b.array(stages, stages * tile_a.elements * tile_a.size)
        copies = [
            share_out(tile, matrix, leading, first, (limit, K), array, T.threads, width, T.asynchronous)
            for tile, matrix, leading, first, limit, array, width in (
                (tile_a, A + batch * batch_a, lda, row, M, sA, 0 if shifted_a else width_a),
                (tile_b, B + batch * batch_b, ldb, column, N, sB, 0 if shifted_b else width_b),
            )
        ]
        acc = mainloop(T, copies, (sA, sB), (own_row, own_column), K)
        residual = residual + batch * residual_batch
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        matrix = Out + batch * batch_out
        if T.stages_results:
            store_lines(T, acc, matrix, ldo, (row, column), (own_row, own_column), M, N, given)
        else:
            store(T, acc, matrix, ldo, row + own_row, column + own_column, M, N, given)

    return by_warps


@lw.device
def mainloop(T, copies, shared, own, K):
    """Return a warp's sums over K: tiles are copied some stages ahead, fragments are loaded a step ahead."""
    mma, stages, bk = T.mma, T.plan.stages, T.plan.tile[2]
    (wm, wn), (tile_a, tile_b), (sA, sB), (own_row, own_column) = T.warp, T.tiles, shared, own
    steps, rounds = bk // mma.k, T.a is tf32

    def fetch(along_k, stage):
        waiting = [piece for each in copies for piece in each.start(along_k, stage)]
        if T.asynchronous:
            lw.cp_async_commit()
        return waiting

    def keep(waiting):
        for target, words in waiting:
            target.store(words)

    def load(step, stage):
        k = step * mma.k
        rows, columns = range(0, wm, mma.m), range(0, wn, mma.n)
        return (
            [fragment(mma.a, sA, tile_a, own_row + i, k, stage, rounds) for i in rows],
            [fragment(mma.b, sB, tile_b, own_column + j, k, stage, rounds) for j in columns],
        )

    for stage in range(stages - 1):
        keep(fetch(lw.i32(stage * bk), stage))
    if T.asynchronous:
        lw.cp_async_wait(stages - 2)
    lw.syncthreads()
    acc = [[mma.zeros() for _ in range(0, wn, mma.n)] for _ in range(0, wm, mma.m)]
    a, b = load(0, 0)
    read, write = lw.i32(0), lw.i32(stages - 1)
    for k in lw.range(0, K, bk):
        for step in range(steps):
            if step == 0:  # the stage that all warps have left
                waiting = fetch(k + (stages - 1) * bk, write)
                write = lw.where(write == stages - 1, 0, write + 1)
            if step == steps - 1:
                keep(waiting)
                if T.asynchronous:
                    lw.cp_async_wait(stages - 2)
                lw.syncthreads()
                read = lw.where(read == stages - 1, 0, read + 1)
            following = load((step + 1) % steps, read)
            for i in range(len(a)):
                for j in range(len(b)) if i % 2 == 0 else reversed(range(len(b))):
                    acc[i][j] = mma(a[i], b[j], acc[i][j])
            a, b = following
    if T.asynchronous:
        lw.cp_async_wait(0)
    return acc
