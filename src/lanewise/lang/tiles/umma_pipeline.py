"""Pipelines of Blackwell, under CUTLASS's names: `lw.Pipeline` with other arrivals.

tcgen05.commit arrives when products are complete, in both blocks of a pair; the epilogue arrives in the block
that multiplies; answers of cluster launch control arrive in every block.
"""

from __future__ import annotations

from typing import Any

from lanewise.lang.blackwell import clc, tcgen05
from lanewise.lang.hopper import cluster
from lanewise.lang.hopper.mbarrier import Mbarrier
from lanewise.lang.intrinsics.sync import fence_proxy_async
from lanewise.lang.matrix.tensor_memory import group_word
from lanewise.lang.memory.array import shared
from lanewise.lang.tiles.copy import guard_since
from lanewise.lang.tiles.pipeline import Pipeline, PipelineState
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import u64

#: Blocks of a pair, and the mask of both if they are the first two of the cluster.
PAIR, BOTH = 2, 0b11


def _leader() -> Any:
    """Return the rank in the cluster of the pair's first block, which multiplies."""
    rank = cluster.rank()
    return rank - rank % PAIR


class PipelineTmaUmmaAsync(Pipeline):
    """Stages of shared memory that TMA fills and tcgen05.mma reads: releasing one is a tcgen05.commit.

    With cta_group=2, `bytes` are those that a block loads, and the first block of the pair counts for both:
    loads of both complete on `barrier(state)`, which is there, and `release` gives the stage back in both.
    `multicast` is a mask of blocks, if loads of others are read, too.
    """

    def __init__(
        self, stages: int, *, bytes: int, cta_group: int = 1, multicast: object = None, consumers: int = 1
    ) -> None:
        group_word(cta_group)
        super().__init__(stages, bytes=bytes * cta_group, consumers=consumers)
        self.cta_group, self.multicast = cta_group, multicast

    def barrier(self, state: PipelineState) -> Mbarrier:
        """Return the mbarrier on which the copies into a stage complete: that of the pair's first block."""
        own = self.full[state.stage]
        return own if self.cta_group == 1 else own.remote(_leader())

    def commit(self, state: PipelineState) -> None:
        """Say that the stage's bytes are on their way; of a pair, the first block says it for both."""
        if self.cta_group == 1:
            super().commit(state)
            return
        is_leader, start = cluster.rank() % PAIR == 0, len(current().code)
        super().commit(state)
        guard_since(start, is_leader)

    def wait(self, state: PipelineState) -> None:
        """Wait until a stage is full."""
        super().wait(state)
        tcgen05.fence_after()

    def release(self, state: PipelineState, rank: object = None) -> None:
        """Give a stage back when the products that this thread has issued are complete."""
        if rank is not None:
            raise current().error("tcgen05.commit gives a stage back to a mask of blocks: multicast=mask")
        _commit(self.empty[state.stage], self.cta_group, self.multicast)


def _commit(barrier: object, cta_group: int, multicast: object) -> None:
    """Arrive when the products of this thread are complete: in this block, or in those of a mask."""
    if multicast is None and cta_group == PAIR:
        multicast = BOTH << _leader()  # this pair's blocks in the cluster
    tcgen05.commit(barrier, cta_group=cta_group, multicast=multicast)


class PipelineUmmaAsync(Pipeline):
    """Accumulators in tensor memory that one thread's products fill and an epilogue empties.

    The producer: `acquire(state)`, products, `commit(state)`. Each of `consumers` threads of a block:
    `wait(state)`, loads, `release(state)`; with cta_group=2 they are those of both blocks.
    """

    def __init__(self, stages: int, *, consumers: int, cta_group: int = 1) -> None:
        group_word(cta_group)
        super().__init__(stages, bytes=0, consumers=consumers * cta_group)
        self.cta_group = cta_group

    def acquire(self, state: PipelineState) -> None:
        """Wait until an accumulator is empty."""
        super().acquire(state)
        tcgen05.fence_after()

    def commit(self, state: PipelineState) -> None:
        """Let the epilogue begin when the products that this thread has issued are complete."""
        _commit(self.full[state.stage], self.cta_group, None)

    def wait(self, state: PipelineState) -> None:
        """Wait until an accumulator is complete."""
        super().wait(state)
        tcgen05.fence_after()

    def release(self, state: PipelineState, rank: object = None) -> None:
        """Give an accumulator back after this thread's loads; each consumer calls it."""
        tcgen05.fence_before()
        barrier = self.empty[state.stage]
        if rank is None and self.cta_group == 1:
            barrier.arrive()
        else:
            barrier.remote(_leader() if rank is None else rank).arrive()


class PipelineCLCFetchAsync(Pipeline):
    """Answers of cluster launch control that one thread asks for and all consumers read.

    The producer, one thread of the cluster's first block: `acquire(state)`, `fetch(state)`. Each of
    `consumers` threads of every block: `wait(state)`, `goes_on, x, y, z = read(state)`, `release(state)`.
    `blocks` is how many blocks the cluster has.
    """

    def __init__(self, stages: int, *, consumers: int, blocks: int = 1) -> None:
        if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1:
            raise current().error(f"blocks= is how many blocks a cluster has, not {describe(blocks)}")
        super().__init__(stages, bytes=clc.BYTES, consumers=consumers * blocks)
        self.blocks = blocks
        self._answers = shared(u64, 2 * stages, align=clc.BYTES).pointer

    def response(self, state: PipelineState) -> clc.Response:
        """Return the answer of a stage."""
        return clc.Response(self._answers.at(state.stage * 2))

    def commit(self, state: PipelineState) -> None:
        """Announce the answer's bytes in every block of the cluster."""
        if self.blocks == 1:
            super().commit(state)
            return
        for rank in range(self.blocks):
            self.full[state.stage].remote(rank).arrive(expect=clc.BYTES)

    def fetch(self, state: PipelineState) -> None:
        """Ask for the next cluster; every block gets the answer."""
        self.commit(state)
        clc.try_cancel(self.response(state), self.full[state.stage], multicast=self.blocks > 1)

    def read(self, state: PipelineState) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Return whether there is more work, and the x, y and z of its first block."""
        return self.response(state).read()

    def release(self, state: PipelineState, rank: object = None) -> None:
        """Give an answer back to be overwritten, after it was read; each consumer calls it."""
        fence_proxy_async()
        barrier = self.empty[state.stage]
        (barrier if self.blocks == 1 else barrier.remote(0 if rank is None else rank)).arrive()
