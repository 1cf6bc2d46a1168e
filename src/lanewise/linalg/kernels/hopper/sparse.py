"""Products with a sparse A: the producer also loads metadata, the consumer multiplies by wgmma.sp.

wgmma takes a sparse A only. So the kernel's A is the transpose of the product's sparse B, and the result is
computed as its transpose. A stage has 64 bytes of each row of A, and metadata beside A and B.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.consumer import Consumer
from lanewise.linalg.kernels.hopper.producer import Producer
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits


def metadata_array(traits: Traits) -> Array:
    """Return the metadata in shared memory: (thread, word, which 64 rows, stage)."""
    words, blocks = traits.metadata_words, traits.bm // ROWS
    layout = Layout(
        (WARPGROUP, words, blocks, traits.plan.stages),
        (1, WARPGROUP, WARPGROUP * words, WARPGROUP * words * blocks),
    )
    return lw.dynamic_shared(lw.u32, layout, offset=SharedMemory(traits).offsets["metadata"])


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
