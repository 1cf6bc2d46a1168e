"""What blocks of a cluster do together: each loads for others, and nobody leaves while others need it."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.linalg.families.build import Build


class Place:
    """Where a block is in its cluster: its row and column among those that share loads, and its part of K."""

    def __init__(self, build: Build) -> None:
        across = build.cluster[0]
        self.rank = lw.cluster.rank() if build.cluster_size > 1 else 0
        self.sharing_rank = self.rank % build.sharing if build.split > 1 else self.rank
        self.first_of_sharing = self.rank - self.sharing_rank
        self.row: Any = 0
        self.column: Any = 0
        if build.sharing > 1:
            self.row, self.column = self.sharing_rank % across, self.sharing_rank // across

    def part(self, build: Build) -> Any:
        """Return the number of this block's part of K."""
        part = self.rank // build.sharing if build.split > 1 else 0
        return part + lw.block_idx.z % build.groups * build.split if build.groups > 1 else part

    def targets(self, build: Build) -> tuple[Any, Any]:
        """Return the blocks that this one loads for, a bit for each: A for those with the same rows, B for
        those with the same columns."""
        across, along = build.cluster
        of_a: Any = sum(1 << (each * across) for each in range(along))
        of_b: Any = (1 << across) - 1
        if build.sharing < build.cluster_size or along > 1:
            of_a = lw.i32(of_a) << (self.row + self.first_of_sharing)
            of_b = lw.i32(of_b) << (self.column * across + self.first_of_sharing)
        return of_a, of_b


@lw.device
def await_returns(build: Build, pipeline: Any, filling: Any) -> None:
    """Wait until other blocks have given all stages back to this one, which must not end before."""
    for _ in range(build.stages):
        pipeline.acquire(filling)
        filling = filling.next()


@lw.device
def leave_together() -> None:
    """Wait for all blocks of the cluster: nobody leaves while others still arrive at its barriers."""
    lw.cluster.arrive(relaxed=True)
    lw.cluster.wait()
