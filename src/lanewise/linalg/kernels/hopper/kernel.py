"""The kernel of products by TMA and wgmma: persistent blocks, warps with roles, clusters that share loads.

One warp of a block, the producer, loads tiles of A and B; one, two or three warpgroups, the consumers,
multiply. They share a tile ("cooperative"), or compute tiles of their own alternately ("pingpong"), so that
the epilogue of one overlaps the products of the other. Read on in `producer.py`, `consumer.py`, `mainloop.py`
and `epilogue.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lanewise import lang as lw
from lanewise.formats import f32, s32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.kernels.family import made_by_constants
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
from lanewise.linalg.kernels.parameters import Field, Sizes, Strides, epilogue_types


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


def struct_types(traits: Traits) -> tuple[Sizes, Strides, OfSomeKernels]:
    """Return the types of sizes, strides and of what some kernels have."""
    if traits.problem.sparse:
        of_sparse = OfSomeKernels(metadata=lw.Ptr[lw.i32, 16], stage_words=lw.i64)
        return Sizes(), Strides(ldo=lw.i64), of_sparse
    places, sums = lw.Ptr[lw.i32], lw.Ptr[lw.i32 if traits.problem.sums is s32 else f32, 16]
    strides = Strides(lda=lw.i64, ldo=lw.i64, batch_a=lw.i64, batch_out=lw.i64)
    return Sizes(batch=lw.i32), strides, OfSomeKernels(places, places, lw.i32, lw.i32, places, sums)


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
def scheduled(T, place, sizes, raster, experts):
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
        rows, raster = lw.cdiv(M, T.bm * across), lw.assume(raster, nonnegative=True)
        tiles = TileScheduler(rows, columns, batch if T.batched else None, raster, T.cluster_size)
    first_step, steps = 0, lw.cdiv(lw.assume(K, nonnegative=True), T.bk)
    parts = T.plan.split * T.plan.groups
    if parts > 1:  # this block's part of K
        share = lw.cdiv(steps, parts)
        first_step = lw.min(place.part(T) * share, steps)
        steps = lw.min(steps - first_step, share)
    return tiles, first_step, steps


def epilogue_of(traits: Traits, C, given, own, N, leading) -> TileEpilogue:
    """Return the epilogue of a consumer, by who stores its results."""
    if traits.store is Store.REGISTERS:
        return RegisterEpilogue(traits, C, given, N, leading)
    return TileEpilogue(traits, C, given, own, N, leading)


class OfSomeKernels(NamedTuple):
    """What kernels have beside operands, sizes and epilogue; few read them."""

    #: Of experts: where the rows of each begin and end, their number, whether the rest is cleared.
    starts: Field = None
    ends: Field = None
    experts: Field = None
    clears_rest: Field = None
    #: Of a K that clusters share: counters, and the memory of sums.
    counters: Field = None
    sums: Field = None
    #: Of a sparse A: its metadata, and the words of a stage.
    metadata: Field = None
    stage_words: Field = None


@lw.device
def compute(T, maps, sizes, raster, strides, given, more) -> None:
    """Compute a block's tiles: each warp has a role."""
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
    tiles, first_step, steps = scheduled(T, place, (M, N, K, batch), raster, experts)
    block_scales = BlockScales(T, given, M, N) if T.scaled_by_blocks else None
    held, of_a = metadata_array(T) if T.problem.sparse else None, (strides.lda, strides.batch_a)
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
                clear_rest(T, tiles, C, M, N, strides.ldo)
        if T.scaled_by_blocks:  # noqa: SIM102, decided while tracing
            if (thread >= 32) & (thread < 32 + COPYING):
                block_scales.copy(pipeline, tiles, steps, place)
        if T.loads_a_apart:  # noqa: SIM102, decided while tracing
            if (thread >= 32) & (T.threads_load_a | ((thread < 64) & lw.elect_one())):
                tile_a, all_steps = operand_tiles(T)[0], (first_step, steps)
                tile_a.run(T, pipeline, tiles, place, A, (M, K), of_a, all_steps)
    else:
        if T.moves_registers:
            lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
        consumer = (SparseConsumer if T.problem.sparse else Consumer)(
            T, role - 1, pipeline, tiles, steps, place
        )
        consumer.metadata = held
        consumer.lying_a = (A, of_a)
        consumer.epilogue = epilogue_of(T, C, given, role - 1, N, strides.ldo)
        consumer.split_in_cluster, consumer.block_scales = split, block_scales
        if T.plan.groups > 1:
            consumer.split_in_workspace = SplitInWorkspace(T, more.counters, more.sums)
        consumer.run(M, (strides.batch_out, given.residual_batch))
    lw.syncwarp()
    if T.plan.split > 1 and T.multicasting == 1:  # noqa: SIM102, decided while tracing
        if role == 0:
            lw.cluster.wait()  # consumers have done so before they sent their sums
    if T.cluster_size > 1 and (T.promotes or not T.one_tile):
        # nobody leaves while others of the cluster still arrive at its barriers
        lw.cluster.arrive(relaxed=True)
        lw.cluster.wait()


@made_by_constants
def compiled(T: Traits) -> Kernel:
    """Return the kernel for some constants."""
    require_possible(T)
    of_a, of_b, of_c = parameter_types(T)
    of_sizes, of_strides, of_more = struct_types(T)
    of_epilogue = epilogue_types(T.problem.epilogue, block_scales=not T.problem.sparse)

    cluster = T.cluster_size if T.cluster_size > 1 else None  # clusters of one take the host longer

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=cluster)
    def warpgroup(
        A: of_a, B: of_b, C: of_c, sizes: of_sizes, raster: lw.i32, strides: of_strides,
        epilogue: of_epilogue, more: of_more,
    ):  # fmt: skip
        compute(T, (A, B, C), sizes, raster, strides, epilogue, more)

    return warpgroup
