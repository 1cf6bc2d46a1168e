"""The kernel of products with a sparse A: the warpgroup family's stages, with metadata beside A and B."""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.build import REGISTERS, ROWS, WARPGROUP
from lanewise.linalg.families.clusters import Place, await_returns, leave_together
from lanewise.linalg.families.consumer import Consumer
from lanewise.linalg.families.output import Output
from lanewise.linalg.families.shared_tiles import OperandTile
from lanewise.linalg.families.sparse.sparse_build import SparseBuild
from lanewise.linalg.families.tile_order import TileOrder, numbers
from lanewise.linalg.families.warpgroup_kernel import operand_tiles, output_type

#: Warps of a warpgroup, each of which gives a stage back: its metadata is read by each warp on its own.
_WARPS = WARPGROUP // 32


class ValuesTile(OperandTile):
    """What is kept of a sparse A: rows of 64 bytes in each stage, swizzled as such."""

    def _array(self, shape: Any, strides: Any) -> Any:
        swizzle = Swizzle(2, 4 - (self.size.bit_length() - 1), 3)
        return lw.dynamic_shared(self.dtype, Layout(shape, strides), swizzle=swizzle, offset=self.offset)


def sparse_tiles(build: SparseBuild) -> tuple[ValuesTile, OperandTile]:
    """Return how tiles of A and B lie in shared memory."""
    T = build
    values = ValuesTile(T.a, T.bm, T.bk // 2, T.stages, True, T.cluster[1], 0, l2=T.l2[:1] or "-")
    return values, operand_tiles(T)[1]


def _metadata_array(build: SparseBuild) -> Any:
    """Return the metadata in shared memory: (thread, word, which 64 rows, stage)."""
    T, blocks = build, build.bm // ROWS
    layout = Layout(
        (WARPGROUP, T.words, blocks, T.stages),
        (1, WARPGROUP, WARPGROUP * T.words, WARPGROUP * T.words * blocks),
    )
    return lw.dynamic_shared(lw.u32, layout, offset=T.stages * (T.a_bytes + T.b_bytes))


class SparseConsumer(Consumer):
    """A warpgroup that multiplies with a sparse A."""

    build: SparseBuild
    #: Set by the kernel: the metadata of all stages.
    metadata: Any = None

    @lw.device
    def multiply(self, accs: Any, stage: Any, further: Any) -> Any:
        """Issue the products of one stage in order of K, 64 rows at once; sums begin unless `further`."""
        T, a, b = self.build, self.a, self.b
        blocks = T.consumer_rows // ROWS
        first = self.own * blocks
        words = [
            [self.metadata[self.thread, word, first + block, stage] for word in range(T.words)]
            for block in range(blocks)
        ]
        lw.wgmma_fence()
        begun = further
        steps = T.bk // T.step
        for number in range(steps):
            k = number * T.step
            for block in range(blocks):
                # Of 16-bit types, half of the lanes have the metadata of one instruction, and half of the
                # next; of 8-bit types all lanes have that of one, in a word of its own.
                word, selector = divmod(number * T.words, steps)
                accs[block] = self.mma(
                    a[0, k // 2, first + block, 0, stage], b[0, k, 0, stage], accs[block], accumulate=begun,
                    metadata=words[block][word], selector=selector,
                )  # fmt: skip
            begun = True
        lw.wgmma_commit()
        return accs

    @lw.device
    def summed(self, accs: Any, reading: Any) -> Any:
        """Return the sums of a tile, two stages in flight, its last stage's state and the one after it.

        A wgmma in flight may still read its metadata from registers. So two stages take turns with registers
        of their own.
        """
        steps = self.steps
        before = reading
        for pair in lw.range(steps // 2):
            for turn in range(2):
                self.pipeline.wait(reading)
                accs = self.multiply(accs, reading.stage, True if turn else pair > 0)
                lw.wgmma_wait(1)  # the stage before is done: give it back
                if turn or pair > 0:
                    self.give_back(before)
                before = reading
                reading = reading.next()
        if steps % 2 == 1:
            self.pipeline.wait(reading)
            accs = self.multiply(accs, reading.stage, steps > 1)
            lw.wgmma_wait(1)
            if steps > 1:
                self.give_back(before)
            before = reading
            reading = reading.next()
        return accs, before, reading

    @lw.device
    def give_back(self, state: Any) -> None:
        """Give a stage back to all producers that load into it; one lane of each warp does."""
        lw.syncwarp()
        lane = lw.lane_id()
        if lane < self.build.sharing:
            if self.build.sharing == 1:
                self.pipeline.release(state)
            else:
                self.pipeline.release(state, lane)


@cache
def compiled(build: SparseBuild) -> Any:
    """Return the kernel for some constants."""
    build.require_possible()
    T = build
    across, along = T.cluster
    tile_a, tile_b = sparse_tiles(T)
    of_a = lw.TensorMap[T.a, tile_a.box, 64]
    of_b = lw.TensorMap[T.b, tile_b.box, 128]
    of_c = output_type(T)
    bias_dtype, residual_dtype = T.epilogue.added_dtypes

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=T.launched_in)
    def sparse_warpgroup(
        A: of_a, B: of_b, C: of_c, metadata: lw.Ptr[lw.i32, 16],
        M: lw.i32, N: lw.i32, K: lw.i32, stage_words: lw.i64, group: lw.i32, leading: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        thread = lw.thread_idx.x
        role = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
        place = Place(T)
        pipeline = lw.Pipeline(T.stages, bytes=T.loaded_bytes, consumers=_WARPS * T.consumers * T.sharing)
        if (thread < 32) & lw.elect_one():  # the thread that loads
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            pipeline.init()
            lw.fence_mbarrier_init()
            if T.store_by_tma:
                lw.tma.prefetch_map(C)
        if T.cluster_size > 1:
            lw.syncwarp()
            lw.cluster.arrive(relaxed=True)  # the fence has released the mbarriers
            lw.cluster.wait()
        else:
            lw.barrier(0, T.threads)
        M = lw.assume(M, nonnegative=True)
        N = lw.assume(N, nonnegative=True)
        rows, columns = lw.cdiv(M, T.bm * across), lw.cdiv(N, T.bn * along)
        tiles = TileOrder(rows, columns, None, lw.assume(group, nonnegative=True), T.cluster_size)
        steps = lw.cdiv(lw.assume(K, nonnegative=True), T.bk)
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            (0, 0, 0, 0), folded_rows,
        )  # fmt: skip
        held = _metadata_array(T)
        if role == 0:
            if T.moves_registers:
                lw.setmaxnreg_dec(REGISTERS[T.consumers][0])
            if (thread < 32) & lw.elect_one():
                of_metadata = (held, metadata, stage_words)
                produce(T, pipeline, tiles, steps, (tile_a, A), (tile_b, B), of_metadata, place)
        else:
            if T.moves_registers:
                lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
            consumer = SparseConsumer(T, role - 1, pipeline, tiles, steps, place)
            consumer.a, consumer.b = tile_a.descriptor(whole=False), tile_b.descriptor(whole=True)
            consumer.metadata = held
            consumer.output = Output(T, C, given, role - 1, N, leading)
            consumer.run(M, (0, 0))
        lw.syncwarp()
        if T.cluster_size > 1:
            leave_together()

    return sparse_warpgroup


@lw.device
def produce(T, pipeline, tiles, steps, of_a, of_b, of_metadata, place):
    """Load A, its metadata and B for all tiles of this block, one stage after the other."""
    across, along = T.cluster
    (tile_a, A), (tile_b, B), (held, metadata, stage_words) = of_a, of_b, of_metadata
    to_a, to_b = tile_a.target(), tile_b.target()
    mask_a, mask_b = place.targets(T)
    if T.after_copy:
        lw.wait_on_dependencies()
    filling = pipeline.producer_state()
    for number in numbers(tiles, tiles.first, tiles.step):
        row, column, _ = tiles[number]
        first_row, first_column = (row * across + place.row) * T.bm, (column * along + place.column) * T.bn
        words = metadata + (first_row // ROWS * (WARPGROUP * T.words)).to(lw.i64)
        for step in lw.range(steps):
            pipeline.acquire(filling)
            pipeline.commit(filling)
            full = pipeline.barrier(filling)
            at_a, at_b = (first_row, step * (T.bk // 2), 0), (first_column, step * T.bk, 0)
            tile_a.load(A, to_a, at_a, filling.stage, full, place.column, mask_a)
            tile_b.load(B, to_b, at_b, filling.stage, full, place.row, mask_b)
            source = (words + step.to(lw.i64) * stage_words).aligned(16)
            lw.tma.copy(held.ptr(0, 0, 0, filling.stage).aligned(16), source, T.metadata_bytes, full)
            filling = filling.next()
    if T.sharing > 1:
        await_returns(T, pipeline, filling)
