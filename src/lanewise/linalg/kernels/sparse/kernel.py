"""The kernel of products with a sparse A: the Hopper kernel's stages, with metadata beside A and B.

wgmma takes a sparse A only. So the kernel's A is the transpose of the product's sparse B, and the result is
computed as its transpose. A stage has 64 bytes of each row of A.
"""

from __future__ import annotations

from functools import cache

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.hopper.consumer import Consumer
from lanewise.linalg.kernels.hopper.epilogue import TileEpilogue
from lanewise.linalg.kernels.hopper.kernel import begin, leave_together, parameter_types, scheduled
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.producer import Producer
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.tile_scheduler import Place
from lanewise.linalg.kernels.hopper.traits import REGISTERS, ROWS, WARPGROUP, Traits


def _metadata_array(traits: Traits) -> Array:
    """Return the metadata in shared memory: (thread, word, which 64 rows, stage)."""
    words, blocks = traits.metadata_words, traits.bm // ROWS
    layout = Layout(
        (WARPGROUP, words, blocks, traits.plan.stages),
        (1, WARPGROUP, WARPGROUP * words, WARPGROUP * words * blocks),
    )
    return lw.dynamic_shared(lw.u32, layout, offset=SharedMemory(traits).metadata_offset)


class SparseProducer(Producer):
    """A producer that also loads the metadata of A."""

    #: Set by the kernel: the metadata in shared memory and in global memory, and the words of a stage.
    held: Array | None = None
    metadata: Pointer | None = None
    stage_words: Scalar | None = None
    _words: Pointer | None = None

    @lw.device
    def begin_tile(self, first_row) -> None:
        """Find the metadata of a tile's rows."""
        words = WARPGROUP * self.traits.metadata_words
        self._words = self.metadata + (first_row // ROWS * words).to(lw.i64)

    @lw.device
    def load_more(self, step, stage, full) -> None:
        """Load the metadata of a stage."""
        source = (self._words + step.to(lw.i64) * self.stage_words).aligned(16)
        bytes_ = SharedMemory(self.traits).metadata_bytes
        lw.tma.copy(self.held.ptr(0, 0, 0, stage).aligned(16), source, bytes_, full)


class SparseConsumer(Consumer):
    """A warpgroup that multiplies with a sparse A."""

    #: Set by the kernel: the metadata of all stages.
    metadata: Array | None = None

    @lw.device
    def multiply(self, accumulators, stage, further):
        """Issue the products of one stage in order of K, 64 rows at once; sums begin unless `further`."""
        T, a, b, depth = self.traits, self.a, self.b, self.mma.k
        blocks = T.consumer_rows // ROWS
        first = self.own * blocks
        words = [
            [self.metadata[self.thread, word, first + block, stage] for word in range(T.metadata_words)]
            for block in range(blocks)
        ]
        lw.wgmma_fence()
        begun = further
        steps = T.bk // depth
        for number in range(steps):
            k = number * depth
            for block in range(blocks):
                # Of 16-bit types, half of the lanes have the metadata of one instruction, and half of the
                # next; of 8-bit types all lanes have that of one, in a word of its own.
                word, selector = divmod(number * T.metadata_words, steps)
                accumulators[block] = self.mma(
                    a[0, k // 2, first + block, 0, stage], b[0, k, 0, stage], accumulators[block],
                    accumulate=begun, metadata=words[block][word], selector=selector,
                )  # fmt: skip
            begun = True
        lw.wgmma_commit()
        return accumulators

    @lw.device
    def summed(self, accumulators, reading):
        """Return the sums of a tile, two stages in flight, its last stage's state and the one after it.

        A wgmma in flight may still read its metadata from registers. So two stages alternate, each with
        registers of its own.
        """
        steps = self.steps
        before = reading
        for pair in lw.range(steps // 2):
            for which in range(2):
                self.pipeline.wait(reading)
                accumulators = self.multiply(accumulators, reading.stage, True if which else pair > 0)
                lw.wgmma_wait(1)  # the stage before is done: release it
                if which or pair > 0:
                    self.release(before)
                before = reading
                reading = reading.next()
        if steps % 2 == 1:
            self.pipeline.wait(reading)
            accumulators = self.multiply(accumulators, reading.stage, steps > 1)
            lw.wgmma_wait(1)
            if steps > 1:
                self.release(before)
            before = reading
            reading = reading.next()
        return accumulators, before, reading

    @lw.device
    def release(self, state) -> None:
        """Release a stage to all producers that load into it; one lane of each warp does."""
        lw.syncwarp()
        lane = lw.lane_id()
        if lane < self.traits.multicasting:
            if self.traits.multicasting == 1:
                self.pipeline.release(state)
            else:
                self.pipeline.release(state, lane)


@cache
def compiled(traits: Traits) -> Kernel:
    """Return the kernel for some constants."""
    require_possible(traits)
    T = traits
    of_a, of_b, of_c = parameter_types(T)
    bias_dtype, residual_dtype = T.problem.epilogue.added_dtypes
    loaded_bytes = SharedMemory(T).loaded_bytes

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
        pipeline = lw.Pipeline(T.plan.stages, bytes=loaded_bytes, consumers=T.releases * T.multicasting)
        begin(T, pipeline, None, (A, B, C), thread, role)
        M = lw.assume(M, nonnegative=True)
        N = lw.assume(N, nonnegative=True)
        tiles, first_step, steps = scheduled(T, place, (M, N, K, None), group, None)
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            (0, 0, 0, 0), folded_rows,
        )  # fmt: skip
        held = _metadata_array(T)
        if role == 0:
            if T.moves_registers:
                lw.setmaxnreg_dec(REGISTERS[T.consumers][0])
            if (thread < 32) & lw.elect_one():
                producer = SparseProducer(T, pipeline, tiles, (A, B), place)
                producer.held, producer.metadata, producer.stage_words = held, metadata, stage_words
                producer.run(first_step, steps)
        else:
            if T.moves_registers:
                lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
            consumer = SparseConsumer(T, role - 1, pipeline, tiles, steps, place)
            consumer.metadata = held
            consumer.epilogue = TileEpilogue(T, C, given, role - 1, N, leading)
            consumer.run(M, (0, 0))
        lw.syncwarp()
        if T.cluster_size > 1:
            leave_together()

    return sparse_warpgroup
