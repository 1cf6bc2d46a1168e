"""The product of rows with 4-bit weights by wgmma.

It is computed as its transpose: wgmma takes its first operand from registers, in which a warpgroup unpacks
the weights of a stage while the tensor cores multiply those of the stage before. One warp loads rows by TMA,
weights and scales by bulk copies. Blocks of a cluster sum parts of K, which are added in order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.layout import Layout
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.sums import meet, put_sums, store_sums
from lanewise.linalg.kernels.int4.traits import DEEP, LANES, LINE, MOVES_REGISTERS, WARPGROUP, Traits
from lanewise.linalg.kernels.int4.unpacking import scale_pairs, unpacked

#: Registers of a thread of a warpgroup that loads, and of one that multiplies.
_REGISTERS = (40, 232)


class Stages:
    """The arrays of all stages in shared memory."""

    def __init__(self, T: Traits) -> None:
        of_rows, of_weights, _ = T.piece_bytes
        columns, rows = T.columns, T.tile.rows
        #: (row, element, which half of K, stage)
        self.x = lw.dynamic_shared(
            T.dtype, Layout((rows, LINE, 2, T.stages), (LINE, 1, rows * LINE, rows * CHUNK)),
            swizzle=line_swizzle(2),
        )  # fmt: skip
        #: (word, lane, warp, which half of K, tile of columns, stage)
        self.words = lw.dynamic_shared(
            lw.u32,
            Layout(
                (4, LANES, 4, 2, T.tile.tiles, T.stages),
                (1, 4, 4 * LANES, TILE_WORDS // 2, TILE_WORDS, T.tile.tiles * TILE_WORDS),
            ),
            offset=T.stages * of_rows,
        )
        #: (column, group of K, stage)
        self.scales = lw.dynamic_shared(
            T.dtype, Layout((columns, T.groups, T.stages), (1, columns, columns * T.groups)),
            offset=T.stages * (of_rows + of_weights),
        )  # fmt: skip


@lw.device
def produce(T, pipeline, X, W, scales, first_row, steps, sizes) -> None:
    """Load all stages of a block: `steps` are the first and how many, `sizes` all of K's stages, elements of
    a group in units of 64, and groups."""
    first, count = steps
    chunks, per_group, groups = sizes
    stages, filling = Stages(T), pipeline.producer_state()
    block = lw.block_idx.x // T.tile.split
    weights = W + (block * T.tile.tiles).to(lw.i64) * chunks.to(lw.i64) * TILE_WORDS
    first_tile = block * T.tile.tiles
    for step in lw.range(count):
        chunk, stage = first + step, filling.stage
        pipeline.acquire(filling)
        pipeline.commit(filling)
        full = pipeline.barrier(filling)
        for tile in range(T.tile.tiles):
            place = (chunks * tile + chunk).to(lw.i64) * TILE_WORDS
            target = stages.words.ptr(0, 0, 0, 0, tile, stage).aligned(16)
            lw.tma.copy(target, (weights + place).aligned(16), TILE_WORDS * 4, full)
        for half in range(2):
            lw.tma.load(stages.x[None, None, half, stage], X, (first_row, chunk * CHUNK + half * LINE), full)
        for number in range(T.groups):
            group = (chunk * 2 + number) // per_group
            for tile in range(T.tile.tiles):
                place = ((first_tile + tile) * groups + group).to(lw.i64) * COLUMNS
                target = stages.scales.ptr(tile * COLUMNS, number, stage).aligned(16)
                lw.tma.copy(target, (scales + place).aligned(16), COLUMNS * 2, full)
        filling = filling.next()


@lw.device
def mainloop(T, pipeline, steps):
    """Return a thread's sums over its block's stages of K."""
    mma, stages = T.instruction, Stages(T)
    x = lw.make_gmma_desc(stages.x)
    lane, thread = lw.lane_id(), lw.thread_idx.x
    tile, warp = thread // WARPGROUP, thread % WARPGROUP // LANES
    column = thread // LANES * 16 + lane // 4
    acc = mma.zeros()
    reading = pipeline.consumer_state()
    before = reading
    for done in lw.range(steps):
        pipeline.wait(reading)
        stage = reading.stage
        words = [stages.words.ptr(0, lane, warp, half, tile, stage).aligned(16).load(4) for half in range(2)]
        pairs = [scale_pairs(stages.scales.ptr(column, number, stage)) for number in range(T.groups)]
        for half in range(2):
            # Each half has registers of its own: a wgmma in flight still reads those of the other one.
            fragments = [unpacked(T.dtype, word, pairs[half % T.groups]) for word in words[half]]
            lw.wgmma_fence()
            for number, fragment in enumerate(fragments):
                further = True if half + number > 0 else done > 0
                acc = mma(tuple(fragment), x[0, number * DEEP, half, stage], acc, accumulate=further)
            lw.wgmma_commit()
            lw.wgmma_wait(1)
            if half == 0:  # noqa: SIM102, decided while tracing
                if done > 0:  # the stage before is done
                    lw.syncwarp()
                    if lane == 0:
                        pipeline.release(before)
        before = reading
        reading = reading.next()
    lw.wgmma_wait(0)
    return acc


@cache
def product(T: Traits) -> Kernel:
    """Return the kernel of a product; the grid is (tiles of columns · blocks that share K, tiles of rows)."""
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_rows: Any = lw.TensorMap[T.dtype, (T.tile.rows, LINE), 2 * LINE]
    of_scales: Any = lw.Ptr[T.dtype, 16]
    of_results: Any = lw.Ptr[T.out]

    @lw.kernel(
        max_threads=T.threads, min_blocks=T.tile.at_once, cluster=T.tile.split if T.tile.split > 1 else None
    )
    def int4_by_warpgroups(
        X: of_rows, W: lw.Ptr[lw.i32, 16], scales: of_scales, Out: of_results,
        M: lw.i32, N: lw.i32, chunks: lw.i32, per_group: lw.i32, groups: lw.i32,
        out_row: lw.i64, out_column: lw.i64, bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        if T.width > 1:
            out_row, out_column = lw.assume(out_row, multiple_of=T.width), lw.i64(1)
        thread = lw.thread_idx.x
        warp = lw.shfl_sync(thread // LANES, 0)  # the same in a warp, and the compiler knows
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=T.consumers // LANES)
        if thread == T.consumers:
            lw.tma.prefetch_map(X)
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        share = lw.cdiv(chunks, T.tile.split)
        part = lw.cluster.rank() if T.tile.split > 1 else 0
        first = lw.min(part * share, chunks)
        steps = lw.min(chunks - first, share)
        first_row = lw.block_idx.y * T.tile.rows
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, None, None, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        if warp >= T.consumers // LANES:
            if T.tile.rows >= MOVES_REGISTERS:
                lw.setmaxnreg_dec(_REGISTERS[0])
            if (warp == T.consumers // LANES) & lw.elect_one():
                sizes = (chunks, per_group, groups)
                produce(T, pipeline, X, W, scales, first_row, (first, steps), sizes)
            lw.syncwarp()
            meet(T)
        else:
            if T.tile.rows >= MOVES_REGISTERS:
                lw.setmaxnreg_inc(_REGISTERS[1])
            put_sums(T, mainloop(T, pipeline, steps), steps)
            if T.tile.split == 1:
                lw.barrier(1, T.consumers)
            meet(T)
            parts = lw.cdiv(chunks, share)
            store_sums(T, Out, (out_row, out_column), given, first_row, parts, (M, N))
        meet(T)  # nobody leaves while others read its sums

    return int4_by_warpgroups
