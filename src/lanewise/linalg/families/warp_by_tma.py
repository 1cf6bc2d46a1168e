"""The kernel of f64 products on Hopper: tiles by TMA, fragments from shared memory, sums in registers.

It is the mma.sync kernel of `warp_kernel.py` without the instructions that copy: one thread loads whole tiles.
TMA swizzles rows of 128 bytes by their number modulo 8, and a fragment's access has four rows. So the rows
0, 2, 4, 6 of eight are those of the first four groups of lanes, and 1, 3, 5, 7 those of the others: then the
four rows of an access lie in different banks. Which row of a tile a group of lanes has is up to the kernel,
as long as it stores the sums where they belong.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.shared_tiles import line_swizzle
from lanewise.linalg.families.warp_build import WarpBuild
from lanewise.linalg.families.warp_kernel import in_groups
from lanewise.linalg.families.warp_output import finished_sum
from lanewise.linalg.families.warp_tiles import LANES

#: Stages that are not filled ahead: the one that is read, and one that the slowest warps may still read.
SLACK = 2


def spread(index: Any) -> Any:
    """Return the row of a tile that a fragment's row is: 0, 2, 4, 6, 1, 3, 5, 7 of each eight."""
    within = index % 8
    return index - within + within % 4 * 2 + within // 4


@cache
def compiled(T: WarpBuild) -> Any:
    """Return the kernel of a build."""
    mma = T.mma
    (bm, bn, bk), (wm, wn), stages = T.tile, T.warp, T.stages
    epilogue = T.epilogue
    bias_type = epilogue.bias_dtype or f32
    residual_type = epilogue.residual.dtype if epilogue.residual is not None else f32
    of_a, of_b = lw.TensorMap[T.a, (bm, bk), 128], lw.TensorMap[T.b, (bn, bk), 128]
    of_out: Any = lw.Ptr[T.out, T.align_out]
    wide: Any = T.wide

    @lw.kernel(max_threads=T.threads)
    def by_warps(
        A: of_a, B: of_b, Out: of_out,
        M: lw.i32, N: lw.i32, K: lw.i32, ldo: lw.i64,
        bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type], residual_row: lw.i64, residual_column: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: wide, beta: wide,
    ):  # fmt: skip
        M, N, K = (lw.assume(each, nonnegative=True) for each in (M, N, K))
        row, column = in_groups(lw.block_idx.x, lw.cdiv(M, bm), lw.cdiv(N, bn), T.group)
        row, column = row * bm, column * bn
        warp = lw.shfl_sync(lw.thread_idx.x // LANES, 0)
        own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
        swizzle = line_swizzle(T.a.bits // 8)
        sA = lw.dynamic_shared(T.a, Layout((bm, bk, stages), (bk, 1, bm * bk)), swizzle=swizzle)
        offset = stages * bm * bk * T.a.bits // 8
        sB = lw.dynamic_shared(T.b, Layout((bn, bk, stages), (bk, 1, bn * bk)), swizzle=swizzle, offset=offset)
        pipeline = lw.Pipeline(stages, bytes=(bm + bn) * bk * T.a.bits // 8, consumers=T.threads // LANES)
        loads = (warp == 0) & lw.elect_one()
        if loads:
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()

        def fetch(k, filling):
            if loads:
                pipeline.acquire(filling)
                pipeline.commit(filling)
                full = pipeline.barrier(filling)
                lw.tma.load(sA[None, None, filling.stage], A, (row, k), full)
                lw.tma.load(sB[None, None, filling.stage], B, (column, k), full)

        def load(step, stage):
            return (
                [fragment(mma.a, sA, own_row + i, step * mma.k, stage) for i in range(0, wm, mma.m)],
                [fragment(mma.b, sB, own_column + j, step * mma.k, stage) for j in range(0, wn, mma.n)],
            )

        acc = summed(T, pipeline, lw.device(fetch), load, K)
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out
        )
        store(T, acc, Out, ldo, row + own_row, column + own_column, M, N, given)

    return by_warps


def fragment(operand: Any, array: Any, first: Any, along_k: int, stage: Any) -> Any:
    """A fragment of A or B from its tile: each lane loads its own elements."""
    found = operand.full(0)
    for index in range(len(found)):
        row, column = found.element(index)
        along, deep = (row, column) if operand.name == "A" else (column, row)
        found[index] = array[first + spread(along), along_k + deep, stage]
    return found


@lw.device
def summed(T, pipeline, fetch, load, K):
    """Return a warp's sums over K; each warp goes on when a stage is full, and says when it has left one."""
    (wm, wn), bk, mma, ahead = T.warp, T.tile[2], T.mma, T.stages - SLACK
    steps = bk // mma.k
    filling, reading = pipeline.producer_state(), pipeline.consumer_state()
    for number in range(ahead):
        fetch(number * bk, filling)
        filling = filling.next()
    pipeline.wait(reading)
    acc = [[mma.zeros() for _ in range(0, wn, mma.n)] for _ in range(0, wm, mma.m)]
    a, b = load(0, reading.stage)
    for k in lw.range(0, K, bk):
        for step in range(steps):
            if step == 0:
                fetch(k + ahead * bk, filling)
                filling = filling.next()
            if step == steps - 1:  # all fragments of the stage are in registers
                lw.syncwarp()
                if lw.lane_id() == 0:
                    pipeline.release(reading)
                reading = reading.next()
                pipeline.wait(reading)
            following = load((step + 1) % steps, reading.stage)
            for i in range(len(a)):
                for j in range(len(b)) if i % 2 == 0 else reversed(range(len(b))):
                    acc[i][j] = mma(a[i], b[j], acc[i][j])
            a, b = following
    for _ in range(ahead - 1):  # zeros beyond the end of K are still on their way
        reading = reading.next()
        pipeline.wait(reading)
    return acc


@lw.device
def store(T, acc, matrix, leading, row, column, M, N, given):
    """Store the sums of a warp, whose part of the tile begins at a row and a column."""
    mma = T.mma
    for i in range(len(acc)):
        for j in range(len(acc[i])):
            values = acc[i][j]
            for index in range(len(values)):
                r, c = values.element(index)
                r, c = row + i * mma.m + spread(r), column + j * mma.n + spread(c)
                value = finished_sum(T, given, values[index], r, c, M, N)
                if (r < M) & (c < N):
                    (matrix + r.to(lw.i64) * leading + c).store(value)
