"""The kernel of products by TMA and wgmma: persistent blocks, warps with roles, clusters that share loads.

One warp of a block loads tiles of A and B; one, two or three warpgroups multiply. They share a tile
("cooperative"), or compute tiles of their own by turns ("pingpong"), so that the epilogue of one overlaps the
products of the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.aside_stores import LOADING, AsideOutput, AsideStores
from lanewise.linalg.families.block_scales import COPYING, BlockScales
from lanewise.linalg.families.build import REGISTERS, SWIZZLED, WARPGROUP, Build
from lanewise.linalg.families.clusters import Place, await_returns, leave_together
from lanewise.linalg.families.consumer import Consumer
from lanewise.linalg.families.direct_output import DirectOutput
from lanewise.linalg.families.meeting import Meeting
from lanewise.linalg.families.output import Output
from lanewise.linalg.families.parts import Parts
from lanewise.linalg.families.shared_tiles import OperandTile
from lanewise.linalg.families.tile_order import GroupedTiles, OneTile, TileOrder, numbers


def operand_tiles(build: Build) -> tuple[OperandTile, OperandTile]:
    """Return how tiles of A and B lie in shared memory."""
    T = build
    across, along = T.cluster
    rows, columns = list(T.l2 or "--")
    return (
        OperandTile(T.a, T.bm, T.bk, T.stages, T.a_k_major, along, 0, T.planes, rows),
        OperandTile(
            T.b, T.bn, T.bk, T.stages, T.b_k_major, across, T.stages * T.a_bytes, T.planes, columns
        ),
    )  # fmt: skip


def output_type(build: Build) -> Any:
    """Return the type of the result's parameter: a tensor map, or a pointer where threads store."""
    if not build.store_by_tma:
        return lw.Ptr[build.out]
    wide = build.box_columns * build.out.bits // 8
    lead = (1,) if build.batched else ()
    swizzle = wide if wide in SWIZZLED else 0
    return lw.TensorMap[build.out, (*lead, build.box_rows, build.box_columns), swizzle]


@cache
def compiled(build: Build) -> Any:
    """Return the kernel for some constants."""
    build.require_possible()
    T = build
    across, along = T.cluster
    tile_a, tile_b = operand_tiles(T)
    planes = (T.planes,) if T.batched else ()
    of_a = lw.TensorMap[T.a, (*(() if T.grouped else planes), *tile_a.box), 128]
    of_b = lw.TensorMap[T.b, (*planes, *tile_b.box), 128]
    of_c = output_type(T)
    bias_dtype, residual_dtype = T.epilogue.added_dtypes

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=T.launched_in)
    def warpgroup(
        A: of_a, B: of_b, C: of_c,
        M: lw.i32, N: lw.i32, K: lw.i32, batch: lw.i32, group: lw.i32, leading: lw.i64, stride: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64, residual_stride: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        scale_row: lw.i32, scale_row_k: lw.i32, scale_column: lw.i32, scale_column_k: lw.i32,
        alpha: f32, beta: f32, starts: lw.Ptr[lw.i32], ends: lw.Ptr[lw.i32], experts: lw.i32,
        clears_rest: lw.i32, folded_rows: lw.i32,
        counters: lw.Ptr[lw.i32], sums: lw.Ptr[f32, 16],
    ):  # fmt: skip
        thread = lw.thread_idx.x
        role = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
        place = Place(T)
        arriving = T.consumers if T.schedule == "cooperative" else 1
        if T.scale_bytes:
            arriving = arriving * WARPGROUP // 32  # each warp gives a stage back
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=arriving * T.sharing)
        parts = Parts(T) if T.split > 1 else None
        if T.gather:
            lw.launch_dependents()
        if (thread < 32) & lw.elect_one():  # the thread that loads
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            if T.scale_bytes:  # a stage is full when its scales are there, too
                pipeline.full.init(1 + COPYING)
                pipeline.empty.init(pipeline.consumers)
            else:
                pipeline.init()
            if T.split > 1:
                parts.init()
            lw.fence_mbarrier_init()
            if T.store_by_tma:
                lw.tma.prefetch_map(C)
        if T.cluster_size > 1:
            lw.syncwarp()
            lw.cluster.arrive(relaxed=True)  # the fence has released the mbarriers
        if T.sharing > 1:
            lw.cluster.wait()
        elif T.scale_bytes:
            lw.barrier(0, T.threads)  # another warp copies scales to the stages
        elif role == 0:
            lw.arrive(0, T.threads)  # loads need nothing of the other threads
        else:
            lw.barrier(0, T.threads)
            if T.split > 1 and not T.single:
                lw.cluster.wait()
        M = lw.assume(M, nonnegative=True)
        N = lw.assume(N, nonnegative=True)
        columns = lw.cdiv(N, T.bn * along)
        if T.single:
            tiles = OneTile(T.cluster_size, T.batched, T.groups)
        elif T.grouped:
            tiles = GroupedTiles(T, place, (starts, ends), experts, M, columns)
        else:
            rows, group = lw.cdiv(M, T.bm * across), lw.assume(group, nonnegative=True)
            tiles = TileOrder(rows, columns, batch if T.batched else None, group, T.cluster_size)
        first_step, steps = 0, lw.cdiv(lw.assume(K, nonnegative=True), T.bk)
        if T.split * T.groups > 1:  # this block's part of K
            share = lw.cdiv(steps, T.split * T.groups)
            first_step = lw.min(place.part(T) * share, steps)
            steps = lw.min(steps - first_step, share)
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            (scale_row, scale_row_k, scale_column, scale_column_k), folded_rows,
        )  # fmt: skip
        block_scales = BlockScales(T, given, M, N) if T.scale_bytes else None
        if role == 0:
            if T.moves_registers:
                lw.setmaxnreg_dec(REGISTERS[T.consumers][0])
            if (thread < 32) & lw.elect_one():
                produce(T, pipeline, tiles, (first_step, steps), (tile_a, A), (tile_b, B), place)
            if T.grouped:  # noqa: SIM102, decided while tracing
                if (thread >= 32) & (clears_rest != 0):
                    clear_rest(T, tiles, C, M, N, leading)
            if T.scale_bytes:  # noqa: SIM102, decided while tracing
                if (thread >= 32) & (thread < 32 + COPYING):
                    block_scales.copy(pipeline, tiles, steps, place)
            if T.aside:  # noqa: SIM102, decided while tracing
                if thread >= LOADING:
                    AsideStores(T, C, N, M, leading, stride).run(tiles, place)
        else:
            if T.moves_registers:
                lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
            consumer = Consumer(T, role - 1, pipeline, tiles, steps, place)
            consumer.a, consumer.b = tile_a.descriptor(whole=False), tile_b.descriptor(whole=True)
            if T.direct:
                consumer.output = DirectOutput(T, C, given, N, leading)
            elif T.aside:
                consumer.output = AsideOutput(T, C, given, role - 1, N, leading)
            else:
                consumer.output = Output(T, C, given, role - 1, N, leading)
            consumer.parts, consumer.block_scales = parts, block_scales
            consumer.meeting = Meeting(T, counters, sums) if T.groups > 1 else None
            consumer.run(M, (stride, residual_stride))
        lw.syncwarp()
        if T.split > 1 and T.sharing == 1:  # noqa: SIM102, decided while tracing
            if role == 0:
                lw.cluster.wait()  # consumers have done so before they sent their sums
        if T.cluster_size > 1 and (T.promotes or not T.single):
            leave_together()

    return warpgroup


@lw.device
def clear_rest(T, tiles, C, M, N, leading):
    """Store zeros to the rows after those of the last expert, by the warps that neither load nor multiply."""
    each = 128 // T.out.bits if T.wide_stores else 1
    first, chunks = tiles.last_row().to(lw.i64), lw.cdiv(N, each).to(lw.i64)
    threads = WARPGROUP - 32
    begin = (lw.block_idx.x * threads + lw.thread_idx.x - 32).to(lw.i64)
    step = (lw.grid_dim.x * threads).to(lw.i64)
    for chunk in lw.range(begin, (M.to(lw.i64) - first) * chunks, step):
        row = chunk // chunks
        place = C + ((row + first) * leading + (chunk - row * chunks) * each)
        if T.wide_stores:
            lw.pointer(place.address, lw.u32, "global", 16).store((lw.u32(0),) * 4)
        else:
            place[0] = T.out(0)


@lw.device
def produce(T, pipeline, tiles, part, of_a, of_b, place):
    """Load A and B for all tiles of this block, one stage after the other; `part` is that of K."""
    across, along = T.cluster
    (tile_a, A), (tile_b, B), (first_step, steps) = of_a, of_b, part
    to_a, to_b = tile_a.target(), tile_b.target()
    mask_a, mask_b = place.targets(T)
    if T.after_copy:
        lw.wait_on_dependencies()
    filling = pipeline.producer_state()
    state = tiles.begin() if T.grouped else None
    for number in numbers(tiles, tiles.first, tiles.step):
        if T.grouped:
            state = tiles.move(number, state)
            if state[0] >= tiles.experts:
                break
            first_row, first_column, shares = tiles.place(number, state)
            matrix = state[0]
        else:
            row, column, matrix = tiles[number]
            first_row = (row * across + place.row) * T.bm
            first_column = (column * along + place.column) * T.bn
            shares = True  # all blocks of a cluster have tiles of the same columns
        for step in lw.range(steps):
            pipeline.acquire(filling)
            pipeline.commit(filling)
            full = pipeline.barrier(filling)
            k = (first_step + step) * T.bk
            at_a = (first_row, k, 0 if T.repeats_a else matrix)
            at_b = (first_column, k, 0 if T.repeats_b else matrix)
            tile_a.load(A, to_a, at_a, filling.stage, full, place.column, mask_a)
            if T.grouped and across > 1:
                if shares:
                    tile_b.load(B, to_b, at_b, filling.stage, full, place.row, mask_b)
                else:
                    for part in range(across):
                        tile_b.load(B, to_b, at_b, filling.stage, full, part, None)
            else:
                tile_b.load(B, to_b, at_b, filling.stage, full, place.row, mask_b)
            filling = filling.next()
    if T.sharing > 1 and not T.single:
        await_returns(T, pipeline, filling)
