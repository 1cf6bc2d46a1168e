"""Pipelines: stages that a producer fills and consumers empty, with an mbarrier for each.

`lw.Pipeline` is made of `lw.mbarrier` alone; a kernel with other needs can have a pipeline of its own of the
same size. Those of Blackwell are in `umma_pipeline.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.lang.hopper.mbarrier import Mbarrier, mbarrier
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import where
from lanewise.lang.trace.scalar import Scalar, literal
from lanewise.lang.trace.traced import Node
from lanewise.lang.trace.types import i32


class PipelineState(Node):
    """Which stage is next, `stage`, and the parity of its phase; `next()` is one stage further on."""

    __slots__ = ("phase", "stage", "stages")
    CHILDREN = ("stage", "phase")

    def __init__(self, stage: Any, phase: Any, stages: int) -> None:
        self.stage, self.phase, self.stages = stage, phase, stages

    def with_children(self, children: list[Any], fresh: bool = False) -> PipelineState:
        if isinstance(children[0], Scalar):
            children[0].nonnegative = True
        made: PipelineState = super().with_children(children, fresh)
        return made

    def next(self) -> PipelineState:
        """Return the state for the stage after this one."""
        further = self.stage + 1
        around = further == self.stages
        flipped = self.phase ^ literal(1, i32)
        return self.with_children([where(around, 0, further), where(around, flipped, self.phase)])

    def __str__(self) -> str:
        return f"the state of a pipeline of {self.stages} stages"


class Pipeline:
    """`stages` buffers between one producer and `consumers` arrivals each time a buffer is given back.

    The producer: `acquire(state)`, copies that complete on `barrier(state)`, `commit(state)`. A consumer:
    `wait(state)`, reads, `release(state)` by one thread. `bytes` arrive in each stage. In a cluster whose
    copies are multicast, consumers give a stage back to every block: `release(state, rank)`.
    """

    def __init__(self, stages: int, *, bytes: int, consumers: int = 1) -> None:
        if isinstance(stages, bool) or not isinstance(stages, int) or stages < 1:
            raise current().error(f"a pipeline has 1 stage or more, not {stages!r}")
        self.stages, self.bytes, self.consumers = stages, bytes, consumers
        self.full, self.empty = mbarrier(stages), mbarrier(stages)
        self.full.named("full")
        self.empty.named("empty")

    def init(self) -> None:
        """Prepare the barriers: one thread calls it, then lw.fence_mbarrier_init(), then all meet."""
        self.full.init(1)
        self.empty.init(self.consumers)

    def producer_state(self) -> PipelineState:
        """Return the producer's first state: every stage is empty, as if a phase had been given back."""
        return PipelineState(literal(0, i32), literal(1, i32), self.stages)

    def consumer_state(self) -> PipelineState:
        """Return a consumer's first state: no stage is full yet."""
        return PipelineState(literal(0, i32), literal(0, i32), self.stages)

    def barrier(self, state: PipelineState) -> Mbarrier:
        """Return the mbarrier on which the copies into a stage complete."""
        return self.full[state.stage]

    def acquire(self, state: PipelineState) -> None:
        """Wait until a stage is empty."""
        self.empty[state.stage].wait(state.phase)

    def commit(self, state: PipelineState) -> None:
        """Say that the stage's bytes are on their way: consumers go on when all have arrived."""
        self.full[state.stage].arrive(expect=self.bytes)

    def wait(self, state: PipelineState) -> None:
        """Wait until a stage is full."""
        self.full[state.stage].wait(state.phase)

    def release(self, state: PipelineState, rank: object = None) -> None:
        """Give a stage back to the producer of this block, or of the block with a rank in the cluster.

        A consumer has only read, and its reads are complete: a fence of the cluster would cost time alone.
        """
        barrier = self.empty[state.stage]
        (barrier if rank is None else barrier.remote(rank)).arrive(scope="block")
