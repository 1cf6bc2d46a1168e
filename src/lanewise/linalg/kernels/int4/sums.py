"""A block's tile of the results: which part of K each block or team sums, and how all parts are added.

Sums are written to the shared memory of their blocks, and added in the order of the parts.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.kernels.int4.packing import COLUMNS
from lanewise.linalg.kernels.int4.traits import LANES
from lanewise.linalg.kernels.int4.unpacking import own_column
from lanewise.linalg.kernels.warp.epilogue import finished_sum


class ResultTile:
    """A tile of results, which the blocks of a cluster compute; `given` are the values of its epilogue."""

    def __init__(self, T, Out, strides, sizes, given) -> None:
        self.T, self.Out, self.strides, self.given = T, Out, strides, given
        self.M, self.N, self.chunks = sizes
        #: The first of its rows, 0 for teams, which multiply all; the first of its tiles of columns.
        self.first_row = lw.i32(0) if T.tile.teams else lw.block_idx.y * T.tile.rows
        self.first_tile = lw.block_idx.x // T.tile.split * T.tile.tiles
        #: Chunks of a part of K; the last parts have fewer, or none.
        self.share = lw.cdiv(self.chunks, T.tile.parts)

    def part(self, team):
        """Return the first chunk of K that a team of this block sums, and how many it sums."""
        T = self.T
        part = team + lw.cluster.rank() * T.tile.block_parts if T.tile.split > 1 else team
        first = lw.min(part * self.share, self.chunks)
        return first, lw.min(self.chunks - first, self.share)

    @lw.device
    def finish(self, acc) -> None:
        """Add a thread's sums to those of the other parts of K, and store a share of the tile's results."""
        T, lane, thread = self.T, lw.lane_id(), lw.thread_idx.x
        sums = lw.dynamic_shared(f32, T.sums)
        lw.barrier(1, T.consumers)  # nobody reads the stages any more, which are overwritten
        team, column = thread // T.team_threads, own_column(thread % T.team_threads // LANES)
        for i in range(T.tile.rows // 2):
            row = i // 4 * 8 + lane % 4 * 2 + i % 2
            sums[row, column + i // 2 % 2 * 8, team] = acc[i]
        if T.tile.split == 1:
            lw.barrier(1, T.consumers)
        meet(T)
        self.store(sums)

    @lw.device
    def store(self, sums) -> None:
        """Add the sums of all parts of K, in order, and store a share of the results."""
        T, M, N = self.T, self.M, self.N
        rank = lw.cluster.rank() if T.tile.split > 1 else 0
        across = T.columns // T.width
        count = lw.min(M - self.first_row, T.tile.rows) * across
        for piece in lw.range(lw.thread_idx.x + rank * T.consumers, count, T.tile.split * T.consumers):
            row, column = piece // across, piece % across * T.width
            teams = [sums.ptr(row, column, team).aligned(4 * T.width) for team in range(T.tile.block_parts)]
            places = [
                lw.cluster.map(place, part) if T.tile.split > 1 else place
                for part in range(T.tile.split)
                for place in teams
            ]
            values = [place.load(T.width) if T.width > 1 else [place.load()] for place in places]
            row, column = self.first_row + row, self.first_tile * COLUMNS + column
            results = []
            for i in range(T.width):
                total = values[0][i]
                for part in range(1, T.tile.parts):
                    total = lw.where(part * self.share < self.chunks, total + values[part][i], total)
                results.append(finished_sum(T, self.given, total, row, column + i, M, N).to(T.out))
            target = self.Out + (row.to(lw.i64) * self.strides[0] + column.to(lw.i64) * self.strides[1])
            if column + (T.width - 1) < N:
                target.aligned(T.width * T.out.bits // 8).store(results)
            else:
                for i in range(T.width - 1):
                    if column + i < N:
                        target[i] = results[i]


@lw.device
def meet(T) -> None:
    """Wait for all blocks of the cluster."""
    if T.tile.split > 1:
        lw.cluster.sync()
