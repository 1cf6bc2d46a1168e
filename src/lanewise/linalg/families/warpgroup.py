"""Products by TMA and wgmma on sm_90a: persistent blocks, warps with roles, clusters that share loads.

One warp of a block loads tiles of A and B; one, two or three warpgroups multiply. They share a tile
("cooperative"), or compute tiles of their own by turns ("pingpong"), so that the epilogue of one overlaps the
products of the other. The result's rows are contiguous; `launch` turns other problems round.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32, tf32
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.build import ROWS, WARPGROUP, Build, build_of
from lanewise.linalg.families.output import staging, store_tile
from lanewise.linalg.families.parts import Parts
from lanewise.linalg.families.shared_tiles import OperandTile
from lanewise.linalg.families.tile_order import OneTile, TileOrder, numbers
from lanewise.linalg.orientation import transposed, transposed_pointers
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import Pointers
from lanewise.linalg.problem import Problem

#: Registers of a thread that loads and of one that multiplies, by the number of consumers.
_REGISTERS = {1: (56, 256), 2: (40, 232), 3: (32, 160)}


@cache
def compiled(build: Build) -> Any:
    """Return the kernel for some constants."""
    build.require_possible()
    T = build
    mma = T.instruction
    across, along = T.cluster
    tile_a = OperandTile(T.a, T.bm, T.bk, T.stages, T.a_k_major, along, 0)
    tile_b = OperandTile(T.b, T.bn, T.bk, T.stages, T.b_k_major, across, T.stages * T.a_bytes)
    lead = (1,) if T.batched else ()
    size = T.out.bits // 8
    of_c = lw.TensorMap[
        T.out, (*lead, T.box_rows, T.box_columns), T.box_columns * size if T.box_columns * size > 16 else 0
    ]
    if not T.store_by_tma:
        of_c = lw.Ptr[T.out]
    epilogue = T.epilogue
    bias_dtype = epilogue.bias_dtype or f32
    residual_dtype = epilogue.residual.dtype if epilogue.residual is not None else f32

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=T.cluster_size)
    def warpgroup(
        A: lw.TensorMap[T.a, (*lead, *tile_a.box), 128],
        B: lw.TensorMap[T.b, (*lead, *tile_b.box), 128],
        C: of_c,
        M: lw.i32, N: lw.i32, K: lw.i32, batch: lw.i32, group: lw.i32,
        leading: lw.i64, stride: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64, residual_stride: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: f32, beta: f32,
    ):  # fmt: skip
        thread = lw.thread_idx.x
        role = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
        rank = lw.cluster.rank() if T.cluster_size > 1 else 0
        arriving = T.consumers if T.schedule == "cooperative" else 1
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=arriving * T.sharing)
        parts = Parts(T) if T.split > 1 else None
        if thread == 0:
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            if T.store_by_tma:
                lw.tma.prefetch_map(C)
            pipeline.init()
            if T.split > 1:
                parts.init()
            lw.fence_mbarrier_init()
        if T.cluster_size > 1:
            if thread < 32:
                lw.cluster.arrive()
            else:
                lw.cluster.arrive(relaxed=True)  # a release is a fence of the whole GPU
            lw.cluster.wait()
        else:
            lw.syncthreads()
        M = lw.assume(M, nonnegative=True)
        N = lw.assume(N, nonnegative=True)
        K = lw.assume(K, nonnegative=True)
        if T.single:
            tiles = OneTile(T.cluster_size, T.batched)
        else:
            tiles = TileOrder(
                lw.cdiv(M, T.bm * across), lw.cdiv(N, T.bn * along), batch if T.batched else None,
                lw.assume(group, nonnegative=True), T.cluster_size,
            )  # fmt: skip
        steps = lw.cdiv(K, T.bk)
        first_step, sharing_rank = 0, rank
        if T.split > 1:  # this block's part of K
            part, sharing_rank = rank // T.sharing, rank % T.sharing
            share = lw.cdiv(steps, T.split)
            first_step = lw.min(part * share, steps)
            steps = lw.min(steps - first_step, share)
        rank_m, rank_n = (sharing_rank % across, sharing_rank // across) if T.sharing > 1 else (0, 0)
        first_of_sharing = rank - sharing_rank
        if role == 0:
            if not T.single:
                lw.setmaxnreg_dec(_REGISTERS[T.consumers][0])
            if (thread < 32) & lw.elect_one():
                produce(
                    T,
                    pipeline,
                    tiles,
                    first_step,
                    steps,
                    tile_a,
                    tile_b,
                    A,
                    B,
                    rank_m,
                    rank_n,
                    first_of_sharing,
                )
        else:
            if T.consumers > 1 and not T.single:
                lw.setmaxnreg_inc(_REGISTERS[T.consumers][1])
            given = EpilogueValues(
                alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out
            )
            consume(
                T, mma, pipeline, parts, tiles, steps, tile_a, tile_b, C, given, role - 1, rank, first_of_sharing,
                rank_m, rank_n, M, N, leading, stride, residual_stride,
            )  # fmt: skip
        lw.syncwarp()
        if T.cluster_size > 1:
            lw.cluster.arrive(relaxed=True)  # nobody leaves while others still arrive at its barriers
            lw.cluster.wait()

    return warpgroup


@lw.device
def produce(T, pipeline, tiles, first_step, steps, tile_a, tile_b, A, B, rank_m, rank_n, first_of_sharing):
    """Load the tiles of A and B of all tiles of this block, one stage after the other."""
    across, along = T.cluster
    to_a, to_b = tile_a.target(), tile_b.target()
    # A's part goes to the blocks of the cluster with the same rows, B's to those with the same columns.
    mask_a = sum(1 << (each * across) for each in range(along))
    mask_b = (1 << across) - 1
    if T.sharing < T.cluster_size or along > 1:
        mask_a = lw.i32(mask_a) << (rank_m + first_of_sharing)
        mask_b = lw.i32(mask_b) << (rank_n * across + first_of_sharing)
    filling = pipeline.producer_state()
    for number in numbers(tiles, tiles.first, tiles.step):
        row, column, matrix = tiles[number]
        first_row, first_column = (row * across + rank_m) * T.bm, (column * along + rank_n) * T.bn
        for step in lw.range(steps):
            pipeline.acquire(filling)
            pipeline.commit(filling)
            full = pipeline.barrier(filling)
            k = (first_step + step) * T.bk
            tile_a.load(A, to_a, first_row, k, matrix, filling.stage, full, rank_n, mask_a)
            tile_b.load(B, to_b, first_column, k, matrix, filling.stage, full, rank_m, mask_b)
            filling = filling.next()


@lw.device
def multiply_step(T, mma, a, b, accs, own, stage, further):
    """Issue the products of one stage, 64 rows by the tile's columns each, in order of K; begin unless `further`."""
    blocks = T.consumer_rows // ROWS
    first = own * blocks if T.schedule == "cooperative" else 0
    lw.wgmma_fence()
    for k in range(0, T.bk, 32 // T.element_bytes):
        for block in range(blocks):
            at = first + block
            accs[block] = mma(
                a[0, k, at, stage], b[0, k, stage], accs[block], accumulate=further if k == 0 else True
            )
    lw.wgmma_commit()
    return accs


@lw.device
def give_back(T, pipeline, state, first_of_sharing):
    """Give a stage back to all producers that load into it."""
    thread = lw.thread_idx.x % WARPGROUP
    if thread < T.sharing:
        if T.cluster_size == 1:
            pipeline.release(state)
        elif T.sharing == 1:
            pipeline.release(state)
        else:
            pipeline.release(state, thread + first_of_sharing)


@lw.device
def consume(T, mma, pipeline, parts, tiles, steps, tile_a, tile_b, C, given, own, rank, first_of_sharing, rank_m, rank_n, M, N, leading, stride, residual_stride):  # fmt: skip
    """What a warpgroup does: the products of a tile, two stages in flight, then its rows of the result."""
    thread = lw.thread_idx.x % WARPGROUP
    across, along = T.cluster
    warp = lw.shfl_sync(thread // 32, 0)
    a, b = tile_a.descriptor(whole=False), tile_b.descriptor(whole=True)
    sC = staging(T, T.stages * T.stage_bytes)
    reading = pipeline.consumer_state()
    accs = [mma.zeros() for _ in range(T.consumer_rows // ROWS)]
    first, step = tiles.first, tiles.step
    if T.schedule == "pingpong":
        first = first + own * tiles.step
        step = 2 * tiles.step
        reading = skipped(T, pipeline, reading, own * steps)
        if (own == 1) & (tiles.first < tiles.count):
            lw.arrive(8, 2 * WARPGROUP)  # the other begins
    residual_base = given.residual
    turn = lw.i32(0)
    for number in numbers(tiles, first, step):
        row, column, matrix = tiles[number]
        if T.schedule == "pingpong":
            lw.barrier(8 + own, 2 * WARPGROUP)
        elif T.skew:
            # With more steps than stages the first cannot be a whole tile ahead: the barrier counts right.
            if (own == 1) & (steps > T.stages):
                lw.barrier(8, 2 * WARPGROUP)
        before = reading
        for done in lw.range(steps):
            if T.skew:
                if (own == 0) & (done == T.skew) & (steps > T.stages):
                    lw.arrive(8, 2 * WARPGROUP)
            pipeline.wait(reading)
            accs = multiply_step(T, mma, a, b, accs, own, reading.stage, done > 0)
            lw.wgmma_wait(1)  # the stage before is done: give it back
            if done > 0:
                give_back(T, pipeline, before, first_of_sharing)
            before = reading
            reading = reading.next()
        if T.schedule == "pingpong":
            if number + tiles.step < tiles.count:
                lw.arrive(9 - own, 2 * WARPGROUP)
            reading = skipped(T, pipeline, reading, steps)
        lw.wgmma_wait(0)
        if T.split > 1:
            if steps > 0:
                give_back(T, pipeline, before, first_of_sharing)
        else:
            give_back(T, pipeline, before, first_of_sharing)
        first_row = (row * across + rank_m) * T.bm
        if T.schedule == "cooperative":
            first_row = first_row + own * T.consumer_rows
        first_column = (column * along + rank_n) * T.bn
        place, given.residual = matrix, residual_base
        if T.batched:
            if T.epilogue.residual is not None:
                given.residual = residual_base + matrix.to(lw.i64) * residual_stride
            if not T.store_by_tma:
                place = matrix.to(lw.i64) * stride
        if T.split > 1:
            mine = rank // T.sharing
            parts.send(accs, own, mine, first_of_sharing, rank_m + rank_n * across, steps > 0, turn)
            if mine < T.owners:
                sums = parts.sums(own, turn)
                first_column = first_column + mine * T.store_columns
                store_tile(T, C, sC, given, sums, first_row, first_column, place, own, M, N, leading)
            parts.done(own, rank_m + rank_n * across)
            turn = turn + 1
        else:
            store_tile(T, C, sC, given, accs, first_row, first_column, place, own, M, N, leading)
    if T.store_by_tma:
        if (warp == 0) & lw.elect_one():
            lw.tma.wait(0, read=True)  # the block's shared memory is read before the block ends


@lw.device
def skipped(T, pipeline, state, steps):
    """Return the state `steps` stages further on: those of a tile that the other consumer computes."""
    ahead = state.stage + steps
    around = ahead // T.stages
    return state.with_children([ahead - around * T.stages, (state.phase + around) & 1])


def grid(build: Build, m: int, n: int, batch: int, multiprocessors: int) -> tuple[int, int, int]:
    """Return how many blocks are launched: one (or a cluster) for each tile, or as many as run at the same time."""
    across, along = build.cluster
    rows, columns = -(-m // (build.bm * across)), -(-n // (build.bn * along))
    if build.single:
        return columns * build.cluster_size, rows, batch
    return min(rows * columns * batch, multiprocessors // build.cluster_size) * build.cluster_size, 1, 1


def for_shape(build: Build, m: int, n: int, batch: int, multiprocessors: int) -> Build:
    """Return the build for a shape: with one tile for each block if all of them run at the same time."""
    across, along = build.cluster
    tiles = -(-m // (build.bm * across)) * -(-n // (build.bn * along)) * batch
    if build.schedule == "cooperative" and tiles * build.cluster_size <= multiprocessors:
        return replace(build, single=True, skew=0)
    return build


_SWIZZLES = {128: "128B", 64: "64B", 32: "32B", 16: "none"}


def tensor_maps(build: Build, a: Any, b: Any, out: Any, l2: Any = None) -> tuple[Any, Any, Any]:
    """Return the tensor maps of A, B and the result (the array itself if it is not stored by TMA)."""
    from lanewise.tensor_maps import tensor_map

    T = build
    lead = (1,) if T.batched else ()
    tile_a = OperandTile(T.a, T.bm, T.bk, T.stages, T.a_k_major, T.cluster[1], 0)
    tile_b = OperandTile(T.b, T.bn, T.bk, T.stages, T.b_k_major, T.cluster[0], 0)
    kind: Any = {"dtype": "tf32"} if T.a is tf32 else {}
    kind["l2_promotion"] = l2
    rows_a = a if T.a_k_major else a.swapaxes(-1, -2)
    rows_b = b.swapaxes(-1, -2) if T.b_k_major else b
    rows_out = out.swapaxes(-1, -2) if T.transposed else out
    of_out = rows_out
    if T.store_by_tma:
        wide: Any = _SWIZZLES[T.box_columns * T.out.bits // 8]
        of_out = tensor_map(rows_out, (*lead, T.box_rows, T.box_columns), swizzle=wide)
    return (
        tensor_map(rows_a, (*lead, *tile_a.box), swizzle="128B", **kind),
        tensor_map(rows_b, (*lead, *tile_b.box), swizzle="128B", **kind),
        of_out,
    )


def kernel(problem: Problem, plan: Plan) -> Any:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(build_of(transposed(problem) if turned(problem, plan) else problem, plan))


def turned(problem: Problem, plan: Plan) -> bool:
    """Return whether the transpose is computed: rows of the result are contiguous, unless the plan swaps."""
    return problem.out.k_major == plan.swap


def launch(
    problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None, multiprocessors: int = 132
) -> None:
    """Compute a problem by a plan, on the GPU of the arrays or, for NumPy's, on the CPU machine."""
    configured, arguments = prepared(problem, plan, pointers, multiprocessors)
    configured(*arguments, stream=stream)


def prepared(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments: to be launched, or checked."""
    if turned(problem, plan):
        problem, pointers = transposed(problem), transposed_pointers(pointers)
    build = for_shape(build_of(problem, plan), problem.m, problem.n, problem.batch, multiprocessors)
    blocks = grid(build, problem.m, problem.n, problem.batch, multiprocessors)
    residual = problem.epilogue.residual
    strides = (0, 0, 0)
    if residual is not None:
        steps = (residual.leading, 1) if residual.k_major else (1, residual.leading)
        strides = (*steps, residual.batch_stride)
    arguments = (
        *tensor_maps(build, pointers.a, pointers.b, pointers.out),
        problem.m, problem.n, problem.k, problem.batch, plan.group,
        problem.out.leading, problem.out.batch_stride,
        _or_null(pointers.bias), _or_null(pointers.residual), *strides,
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta),
    )  # fmt: skip
    return compiled(build)[blocks, build.threads, build.shared_bytes], arguments


def _or_null(array: Any) -> Any:
    """Return an array, or the address that a kernel never reads."""
    return 0 if array is None else array
