"""The kernel of products by TMA and wgmma: persistent blocks, warps with roles, clusters that share loads.

One warp of a block, the producer, loads tiles of A and B; one, two or three warpgroups, the consumers,
multiply. They share a tile ("cooperative"), or compute tiles of their own alternately ("pingpong"), so that
the epilogue of one overlaps the products of the other. Read on in `producer.py`, `consumer.py`, `mainloop.py`
and `epilogue.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32, s32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.hopper.block_scales import COPYING, BlockScales
from lanewise.linalg.kernels.hopper.consumer import Consumer
from lanewise.linalg.kernels.hopper.epilogue import RegisterEpilogue, TileEpilogue
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.operand_tiles import operand_tiles
from lanewise.linalg.kernels.hopper.producer import Producer, clear_rest
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.sparse import SparseConsumer, SparseProducer, metadata_array
from lanewise.linalg.kernels.hopper.split_k import SplitInCluster, SplitInWorkspace
from lanewise.linalg.kernels.hopper.tile_scheduler import (
    GroupedTiles,
    OneTile,
    Place,
    TileScheduler,
)
from lanewise.linalg.kernels.hopper.traits import REGISTERS, WARPGROUP, Store, Traits


def parameter_types(traits: Traits) -> tuple[Any, Any, Any]:
    """Return the types of A, B and the result: tensor maps, and a pointer where threads store."""
    T, memory = traits, SharedMemory(traits)
    tile_a, tile_b = operand_tiles(T)
    planes, lead = ((T.planes,), (1,)) if T.batched else ((), ())
    of_c: Any = lw.Ptr[T.out]
    if T.store is Store.TMA:
        of_c = lw.TensorMap[T.out, (*lead, memory.box_rows, memory.box_columns), memory.box_swizzle]
    kind_a: Any
    if T.threads_load_a:
        kind_a = lw.Ptr[f32 if T.splits_a else T.a, T.problem.a.alignment]
    elif T.splits_a:
        kind_a = lw.TensorMap[f32, (*lead, *tile_a.box), tile_a.line]
    else:
        kind_a = lw.TensorMap[T.a, (*(() if T.grouped else planes), *tile_a.box), tile_a.line]
    return (
        kind_a,
        lw.TensorMap[T.b, (*planes, *tile_b.box), tile_b.line],
        of_c,
    )


@lw.device
def begin(T, pipeline, split, maps, thread, role) -> None:
    """Prepare the barriers, and wait for those that others need."""
    A, B, C = maps
    if (thread < 32) & lw.elect_one():  # the thread that loads
        if not T.threads_load_a:
            lw.tma.prefetch_map(A)
        lw.tma.prefetch_map(B)
        if T.scaled_by_blocks or T.loads_a_apart:  # a stage is full when what others load is there, too
            pipeline.full.init(1 + (COPYING if T.scaled_by_blocks else operand_tiles(T)[0].arrivals))
            pipeline.empty.init(pipeline.consumers)
        else:
            pipeline.init()
        if split is not None:
            split.init()
        lw.fence_mbarrier_init()
        if T.store is Store.TMA:
            lw.tma.prefetch_map(C)
    if T.cluster_size > 1:
        lw.syncwarp()
        lw.cluster.arrive(relaxed=True)  # the fence has released the mbarriers
    if T.multicasting > 1:
        lw.cluster.wait()
    elif T.releases_by_warps and not T.transposes_a:
        lw.barrier(0, T.threads)  # other warps load scales, or A, to the stages
        if split is not None and not T.one_tile:  # noqa: SIM102, decided while tracing
            if role > 0:
                lw.cluster.wait()
    elif role == 0:
        lw.arrive(0, T.threads)  # loads need nothing of the other threads
    else:
        lw.barrier(0, T.threads)
        if split is not None and not T.one_tile:
            lw.cluster.wait()


@lw.device
def scheduled(T, place, sizes, group, experts):
    """Return the tile scheduler, the first stage of K of this block, and how many stages it multiplies."""
    M, N, K, batch = sizes
    across, along = T.plan.cluster
    columns = lw.cdiv(lw.max(N - T.overlap, 1) if T.overlap else N, T.column_step * along)
    if T.one_tile:
        tiles = OneTile(T.cluster_size, T.batched, T.plan.groups)
    elif T.grouped:
        starts, ends, count = experts
        tiles = GroupedTiles(T, place, (starts, ends), count, M, columns)
    else:
        rows, group = lw.cdiv(M, T.bm * across), lw.assume(group, nonnegative=True)
        tiles = TileScheduler(rows, columns, batch if T.batched else None, group, T.cluster_size)
    first_step, steps = 0, lw.cdiv(lw.assume(K, nonnegative=True), T.bk)
    parts = T.plan.split * T.plan.groups
    if parts > 1:  # this block's part of K
        share = lw.cdiv(steps, parts)
        first_step = lw.min(place.part(T) * share, steps)
        steps = lw.min(steps - first_step, share)
    return tiles, first_step, steps


@lw.device
def leave_together() -> None:
    """Wait for all blocks of the cluster: nobody leaves while others still arrive at its barriers."""
    lw.cluster.arrive(relaxed=True)
    lw.cluster.wait()


def epilogue_of(traits: Traits, C, given, own, N, leading) -> TileEpilogue:
    """Return the epilogue of a consumer, by who stores its results."""
    if traits.store is Store.REGISTERS:
        return RegisterEpilogue(traits, C, given, N, leading)
    return TileEpilogue(traits, C, given, own, N, leading)


@dataclass
class OfSomeKernels:
    """What kernels have beside operands, sizes and epilogue: traced pointers and numbers; few read them."""

    #: Of experts: where the rows of each begin and end, their number, whether the rest is cleared.
    starts: Pointer | None = None
    ends: Pointer | None = None
    experts: Scalar | None = None
    clears_rest: Scalar | None = None
    #: Of a K that clusters share: counters, and the memory of sums.
    counters: Pointer | None = None
    sums: Pointer | None = None
    #: Of an A that other warps load: its strides.
    a_strides: tuple[Scalar, ...] = ()
    #: Of a sparse A: its metadata, and the words of a stage.
    metadata: Pointer | None = None
    stage_words: Scalar | None = None


@lw.device
def compute(T, maps, sizes, group, given, leading, strides, more) -> None:
    """Compute a block's tiles: each warp has a role. `strides` are those of a batch: of result, residual."""
    (A, B, C), (M, N, K, batch) = maps, sizes
    thread = lw.thread_idx.x
    role = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
    place = Place(T)
    pipeline = lw.Pipeline(
        T.plan.stages, bytes=SharedMemory(T).loaded_bytes, consumers=T.releases * T.multicasting
    )
    split = SplitInCluster(T) if T.plan.split > 1 else None
    if T.plan.gather:
        lw.launch_dependents()
    begin(T, pipeline, split, maps, thread, role)
    M = lw.assume(M, nonnegative=True)
    N = lw.assume(N, nonnegative=True)
    experts = (more.starts, more.ends, more.experts)
    tiles, first_step, steps = scheduled(T, place, (M, N, K, batch), group, experts)
    block_scales = BlockScales(T, given, M, N) if T.scaled_by_blocks else None
    held = metadata_array(T) if T.problem.sparse else None
    if role == 0:
        if T.moves_registers:
            lw.setmaxnreg_dec(REGISTERS[T.consumers][0])
        if (thread < 32) & lw.elect_one():
            producer = (SparseProducer if T.problem.sparse else Producer)(T, pipeline, tiles, (A, B), place)
            if T.problem.sparse:
                producer.held, producer.metadata, producer.stage_words = held, more.metadata, more.stage_words
            producer.run(first_step, steps)
        if T.grouped:  # noqa: SIM102, decided while tracing
            if (thread >= 32) & (more.clears_rest != 0):
                clear_rest(T, tiles, C, M, N, leading)
        if T.scaled_by_blocks:  # noqa: SIM102, decided while tracing
            if (thread >= 32) & (thread < 32 + COPYING):
                block_scales.copy(pipeline, tiles, steps, place)
        if T.loads_a_apart:  # noqa: SIM102, decided while tracing
            if (thread >= 32) & (T.threads_load_a | ((thread < 64) & lw.elect_one())):
                tile_a, all_steps = operand_tiles(T)[0], (first_step, steps)
                tile_a.run(T, pipeline, tiles, place, A, (M, K), more.a_strides, all_steps)
    else:
        if T.moves_registers:
            lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
        consumer = (SparseConsumer if T.problem.sparse else Consumer)(
            T, role - 1, pipeline, tiles, steps, place
        )
        consumer.metadata = held
        consumer.lying_a = (A, more.a_strides)
        consumer.epilogue = epilogue_of(T, C, given, role - 1, N, leading)
        consumer.split_in_cluster, consumer.block_scales = split, block_scales
        if T.plan.groups > 1:
            consumer.split_in_workspace = SplitInWorkspace(T, more.counters, more.sums)
        consumer.run(M, strides)
    lw.syncwarp()
    if T.plan.split > 1 and T.multicasting == 1:  # noqa: SIM102, decided while tracing
        if role == 0:
            lw.cluster.wait()  # consumers have done so before they sent their sums
    if T.cluster_size > 1 and (T.promotes or not T.one_tile):
        leave_together()


@cache
def compiled(traits: Traits) -> Kernel:
    """Return the kernel for some constants."""
    require_possible(traits)
    T = traits
    of_a, of_b, of_c = parameter_types(T)
    bias_dtype, residual_dtype = T.problem.epilogue.added_dtypes
    of_sums = lw.i32 if T.problem.sums is s32 else f32
    options = {"max_threads": T.threads, "min_blocks": 1, "cluster": T.launched_in}

    @lw.kernel(**options)
    def warpgroup(
        A: of_a, B: of_b, C: of_c,
        M: lw.i32, N: lw.i32, K: lw.i32, batch: lw.i32, group: lw.i32, leading: lw.i64, stride: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64, residual_stride: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        scale_row: lw.i32, scale_row_k: lw.i32, scale_column: lw.i32, scale_column_k: lw.i32,
        alpha: f32, beta: f32, starts: lw.Ptr[lw.i32], ends: lw.Ptr[lw.i32], experts: lw.i32,
        clears_rest: lw.i32, folded_rows: lw.i32,
        counters: lw.Ptr[lw.i32], sums: lw.Ptr[of_sums, 16], a_leading: lw.i64, a_stride: lw.i64,
    ):  # fmt: skip
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            (scale_row, scale_row_k, scale_column, scale_column_k), folded_rows,
        )  # fmt: skip
        more = OfSomeKernels(starts, ends, experts, clears_rest, counters, sums, (a_leading, a_stride))
        sizes, strides = (M, N, K, batch), (stride, residual_stride)
        compute(T, (A, B, C), sizes, group, given, leading, strides, more)

    @lw.kernel(**options)
    def sparse_warpgroup(
        A: of_a, B: of_b, C: of_c, metadata: lw.Ptr[lw.i32, 16],
        M: lw.i32, N: lw.i32, K: lw.i32, stage_words: lw.i64, group: lw.i32, leading: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        more = OfSomeKernels(metadata=metadata, stage_words=stage_words)
        compute(T, (A, B, C), (M, N, K, None), group, given, leading, (0, 0), more)

    return sparse_warpgroup if T.problem.sparse else warpgroup
