"""The kernel of products by TMA and tcgen05: persistent blocks whose warps have roles, sums in tensor memory.

One warp loads tiles of A and B, one multiplies, and four bring the sums to memory (`epilogue.py`). Tensor
memory has two accumulators, so that the products of one tile overlap the stores of the one before it. Sums
that are promoted go to the four warps after each stage, and are added up in their registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32, s32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.blackwell.block_scales import ScaleFactors
from lanewise.linalg.kernels.blackwell.epilogue import RowEpilogue
from lanewise.linalg.kernels.blackwell.traits import (
    ACCUMULATORS,
    EPILOGUE_THREADS,
    LOADER,
    MULTIPLIER,
    ROWS,
    THREADS,
    BlackwellTraits,
)
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.hopper.operand_tiles import OperandTile
from lanewise.linalg.kernels.hopper.tile_scheduler import TileScheduler
from lanewise.linalg.kernels.parameters import Sizes, Strides, epilogue_types


def operand_tiles(traits: BlackwellTraits) -> tuple[OperandTile, OperandTile]:
    """Return how tiles of A and B lie in shared memory."""
    T: Any = traits
    of_a, of_b = T.stored
    tiles = (
        OperandTile(T, of_a, (ROWS, T.depth), T.problem.a.k_major, 1, 0, "-"),
        OperandTile(T, of_b, (T.loaded_columns, T.depth), T.problem.b.k_major, 1, T.b_offset, "-"),
    )
    if T.pair > 1:  # the first block of the pair counts the bytes of both
        for tile in tiles:
            tile.cache = {"cta_group": T.pair}
    return tiles


class Roles:
    """What the warps of a block share: the stages, the accumulators, the tiles, and the steps along K."""

    def __init__(self, traits: BlackwellTraits, tiles, steps) -> None:
        self.traits, self.tiles, self.steps = traits, tiles, steps
        #: Which block of the pair this is; the first one counts the bytes of both, and multiplies for both.
        self.rank = lw.cluster.rank() if traits.pair > 1 else 0
        self.pipeline = lw.Pipeline(traits.plan.stages, bytes=traits.pair * traits.stage_bytes)
        #: The accumulators: complete sums, and sums that were read.
        self.full, self.empty = lw.mbarrier(ACCUMULATORS), lw.mbarrier(ACCUMULATORS)
        self.factors = ScaleFactors(traits)

    @lw.device
    def init(self) -> None:
        """Prepare the mbarriers; one thread calls it."""
        self.pipeline.init()
        self.full.init(1)
        self.empty.init(self.traits.pair)
        lw.fence_mbarrier_init()

    def sums_of_tile(self) -> Iterable[Scalar | int]:
        """Return the loop over the accumulations of a tile: one, or one for each step that is promoted."""
        return lw.range(self.steps) if self.traits.promotes else range(1)

    @lw.device
    def load(self, A, B, factor_maps) -> None:
        """Load all stages of this block's tiles; one thread calls it."""
        T, pipeline = self.traits, self.pipeline
        tile_a, tile_b = operand_tiles(T)
        to_a, to_b = tile_a.target(), tile_b.target()
        filling = pipeline.producer_state()
        for number in lw.range(self.tiles.first, self.tiles.count, self.tiles.step):
            row, column, matrix = self.tiles[number]
            of_a = 0 if T.repeats(T.problem.a) else matrix
            of_b = 0 if T.repeats(T.problem.b) else matrix
            first_row, first_column = self.first_row(row), column * T.bn + self.rank * T.loaded_columns
            for step in lw.range(self.steps):
                pipeline.acquire(filling)
                full = pipeline.barrier(filling)
                if T.pair == 1:
                    pipeline.commit(filling)
                else:
                    if self.rank == 0:
                        pipeline.commit(filling)
                    full = full.remote(0)
                tile_a.load(A, to_a, (first_row, step * T.depth, of_a), filling.stage, full, 0, None)
                tile_b.load(B, to_b, (first_column, step * T.depth, of_b), filling.stage, full, 0, None)
                if T.block_format is not None:
                    self.factors.load(factor_maps, (row, column), step, filling.stage, full)
                filling = filling.next()

    @lw.device
    def multiply(self, memory) -> None:
        """Multiply all stages of this block's tiles; one thread calls it."""
        T, pipeline, mma = self.traits, self.pipeline, self.traits.mma
        tile_a, tile_b = operand_tiles(T)
        a, b = (lw.make_umma_desc(tile.read(whole=True)) for tile in (tile_a, tile_b))
        reading, count = pipeline.consumer_state(), lw.i32(0)
        for _ in lw.range(self.tiles.first, self.tiles.count, self.tiles.step):
            for _ in self.sums_of_tile():
                which = count % ACCUMULATORS
                self.empty[which].wait((count // ACCUMULATORS + 1) % 2)
                lw.tcgen05.fence_after()
                acc = memory.accumulator(mma, column=which * T.bn)
                for step in range(1) if T.promotes else lw.range(self.steps):
                    pipeline.wait(reading)
                    lw.tcgen05.fence_after()
                    if T.block_format is not None:
                        self.factors.copy(memory, reading.stage)
                    for number in range(len(T.products)):
                        for k in range(0, T.bk, mma.k):
                            adds = (step != 0) if number == 0 and k == 0 else True
                            operands = self.operands(a, b, number, k, reading.stage)
                            scales = self.factors.of_product(memory, k) if T.block_format is not None else {}
                            mma(*operands, acc, accumulate=adds, **scales)
                    self.commit(pipeline.empty[reading.stage])  # gives the stage back when it was read
                    reading = reading.next()
                self.commit(self.full[which])
                count = count + 1

    def first_row(self, row) -> Scalar:
        """Return the first row of this block's part of a tile."""
        return row * ROWS if self.traits.pair == 1 else (row * self.traits.pair + self.rank) * ROWS

    def commit(self, barrier) -> None:
        """Let an mbarrier, of a pair that of each block, count when the products so far are complete."""
        pair = self.traits.pair
        if pair == 1:
            lw.tcgen05.commit(barrier)
        else:
            lw.tcgen05.commit(barrier, cta_group=pair, multicast=(1 << pair) - 1)

    def operands(self, a, b, number, k, stage) -> list[Descriptor | Scalar]:
        """Return the descriptors of A and B for the products of a stage that begin at an element of K."""
        planes, first = self.traits.products[number], k * self.traits.depth // self.traits.bk
        descriptors = [operand[0, first, plane, stage] for operand, plane in zip((a, b), planes, strict=True)]
        return [descriptor.bits for descriptor in descriptors] if self.traits.packed else descriptors

    @lw.device
    def store(self, memory, epilogue) -> None:
        """Bring the sums of this block's tiles to memory; the threads of four warps call it."""
        T = self.traits
        count = lw.i32(0)
        for number in lw.range(self.tiles.first, self.tiles.count, self.tiles.step):
            row, column, matrix = self.tiles[number]
            epilogue.begin(self.first_row(row), column * T.bn, matrix)
            totals = [f32(0.0) for _ in range(T.bn if T.promotes else 0)]
            for step in self.sums_of_tile():
                acc = self.acquired(memory, count)
                if T.promotes:
                    totals = epilogue.promoted(acc, totals, step)
                else:
                    epilogue.store(acc)
                self.release(count)
                count = count + 1
            if T.promotes:
                epilogue.store_totals(totals)

    @lw.device
    def acquired(self, memory, count):
        """Return the next accumulator, when its sums are complete."""
        which = count % ACCUMULATORS
        self.full[which].wait(count // ACCUMULATORS % 2)
        lw.tcgen05.fence_after()
        return memory.accumulator(self.traits.mma, column=which * self.traits.bn)

    @lw.device
    def release(self, count) -> None:
        """Give an accumulator back, when all four warps have loaded it."""
        lw.tcgen05.fence_before()
        lw.barrier(1, EPILOGUE_THREADS)
        if lw.thread_idx.x == 0:
            read = self.empty[count % ACCUMULATORS]
            (read if self.traits.pair == 1 else read.remote(0)).arrive()


def parameter_types(T: BlackwellTraits) -> tuple[Any, Any]:
    """Return the types of A and B: tensor maps."""
    tile_a, tile_b = operand_tiles(T)
    planes = (T.planes,) if T.batched else ()
    return (
        lw.TensorMap[T.stored[0], (*planes, *tile_a.box), tile_a.line],
        lw.TensorMap[T.stored[1], (*planes, *tile_b.box), tile_b.line],
    )


@made_by_constants
def compiled(T: BlackwellTraits) -> Kernel:
    """Return the kernel for some constants."""
    T.require_possible()
    of_a, of_b = parameter_types(T)
    of_c, of_sizes, of_strides = lw.Ptr[T.out], Sizes(batch=lw.i32), Strides(ldo=lw.i64, batch_out=lw.i64)
    of_epilogue = epilogue_types(T.problem.epilogue, block_scales=True)
    of_factors = lw.Ptr[lw.i32]  # null
    if T.block_format is not None:
        of_factors = lw.TensorMap[s32, ScaleFactors(T).box, 0]

    @lw.kernel(max_threads=THREADS, min_blocks=1, cluster=T.pair if T.pair > 1 else None)
    def blackwell(
        A: of_a, B: of_b, factors_a: of_factors, factors_b: of_factors, C: of_c,
        sizes: of_sizes, raster: lw.i32, strides: of_strides, epilogue: of_epilogue,
    ):  # fmt: skip
        M, N, K = (lw.assume(size, nonnegative=True) for size in sizes[:3])
        warp = lw.shfl_sync(lw.warp_id(), 0)  # the same in a warp, and the compiler knows
        tiles = TileScheduler(
            lw.cdiv(M, ROWS * T.pair), lw.cdiv(N, T.bn), sizes.batch if T.batched else None,
            lw.assume(raster, nonnegative=True), T.pair,
        )  # fmt: skip
        roles = Roles(T, tiles, lw.cdiv(K, T.bk))
        if lw.thread_idx.x == 0:
            roles.init()
        memory = lw.tmem.alloc(T.columns, cta_group=T.pair)  # all threads meet in it, of a pair those of both
        if (warp == LOADER) & lw.elect_one():
            roles.load(A, B, (factors_a, factors_b))
        if (warp == MULTIPLIER) & (roles.rank == 0) & lw.elect_one():
            roles.multiply(memory)
        if warp < LOADER:
            roles.store(memory, RowEpilogue(T, C, epilogue, (M, N), strides))
        lw.syncwarp()
        memory.free()

    return blackwell
