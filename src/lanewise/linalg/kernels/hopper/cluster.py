"""What blocks of a cluster do together: each loads for others, and nobody leaves while others need it."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.hopper.traits import Traits


class Place:
    """Where a block is in its cluster: its row and column among those that share loads, and its part of K."""

    def __init__(self, traits: Traits) -> None:
        across, split = traits.plan.cluster[0], traits.plan.split
        self.rank = lw.cluster.rank() if traits.cluster_size > 1 else 0
        self.multicast_rank = self.rank % traits.multicasting if split > 1 else self.rank
        self.first_of_multicast = self.rank - self.multicast_rank
        self.row: Scalar | int = 0
        self.column: Scalar | int = 0
        if traits.multicasting > 1:
            self.row, self.column = self.multicast_rank % across, self.multicast_rank // across

    def part(self, traits: Traits) -> Scalar | int:
        """Return the number of this block's part of K."""
        split, groups = traits.plan.split, traits.plan.groups
        part = self.rank // traits.multicasting if split > 1 else 0
        return part + lw.block_idx.z % groups * split if groups > 1 else part

    def first_element(self, traits: Traits, row, column) -> tuple[Scalar, Scalar]:
        """Return the first row and column of this block's part of a cluster's tile."""
        across, along = traits.plan.cluster
        return (row * across + self.row) * traits.bm, (column * along + self.column) * traits.bn

    def targets(self, traits: Traits) -> tuple[Scalar | int, Scalar | int]:
        """Return the blocks that this one loads for, a bit for each: A for those with the same rows, B for
        those with the same columns."""
        across, along = traits.plan.cluster
        of_a: Scalar | int = sum(1 << (row * across) for row in range(along))
        of_b: Scalar | int = (1 << across) - 1
        if traits.multicasting < traits.cluster_size or along > 1:
            of_a = lw.i32(of_a) << (self.row + self.first_of_multicast)
            of_b = lw.i32(of_b) << (self.column * across + self.first_of_multicast)
        return of_a, of_b


@lw.device
def await_releases(traits: Traits, pipeline, filling) -> None:
    """Wait until other blocks have released all stages of this one, which must not end before."""
    for _ in range(traits.plan.stages):
        pipeline.acquire(filling)
        filling = filling.next()


@lw.device
def leave_together() -> None:
    """Wait for all blocks of the cluster: nobody leaves while others still arrive at its barriers."""
    lw.cluster.arrive(relaxed=True)
    lw.cluster.wait()
