"""A warpgroup that multiplies: its tiles one after the other, the mainloop, split-K, and the epilogue."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.linalg.kernels.hopper.mainloop import ORDER, Mainloop
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Store, Traits


class Consumer(Mainloop):
    """One warpgroup with its mainloop; `tiles` is the tile scheduler."""

    def __init__(self, traits: Traits, own, pipeline, tiles, steps, place) -> None:
        super().__init__(traits, own, pipeline, steps, place)
        self.tiles = tiles
        #: Set by the kernel: A as it lies, and its strides; how parts of K are added up.
        self.lying_a: Any = None
        self.split_in_cluster: Any = None
        self.split_in_workspace: Any = None

    @lw.device
    def run(self, M, strides) -> None:
        """Compute this consumer's tiles; `strides` are those of a batch: of result and residual."""
        T, tiles, own, steps = self.traits, self.tiles, self.own, self.steps
        epilogue, given = self.epilogue, self.epilogue.given
        reading = self.pipeline.consumer_state()
        accumulators = [self.mma.zeros() for _ in range(T.accumulators)]
        others = [self.mma.zeros() for _ in accumulators] if T.two_accumulators else None
        first, step = tiles.first, tiles.step
        if T.pingpong:
            first = first + own * tiles.step
            step = 2 * tiles.step
            reading = self.skipped(reading, own * steps)
            if (own == 1) & (tiles.first < tiles.count):
                lw.arrive(ORDER, 2 * WARPGROUP)  # the other begins
        residual, tiles_done = given.residual, lw.i32(0)
        state = tiles.begin() if T.grouped else None
        epilogue.last_row = M
        for number in numbers(tiles, first, step):
            if T.grouped:
                state = tiles.move(number, state)
                if state.expert >= tiles.experts:
                    break
                first_row, first_column, _ = tiles.first_element(number, state)
                matrix, epilogue.last_row = 0, state.end
            else:
                row, column, matrix = tiles[number]
                first_row, first_column = self.place.first_element(T, row, column)
            if T.threads_load_a:
                self.a = self.tile_a.source(self.first * ROWS, *self.lying_a, (first_row, matrix))
            if not T.pingpong:
                first_row = first_row + own * T.consumer_rows
            if T.grouped and T.consumers * T.multicasting > 1:  # noqa: SIM102, decided while tracing
                if (first_row >= epilogue.last_row) | (first_column >= epilogue.N):
                    reading = self.passed(reading)
                    continue
            self.begin_epilogue(first_row, matrix, residual, strides)
            values = None
            if T.promotes:
                if T.two_accumulators:
                    sums, reading = self.promoted_with_two(accumulators, others, reading)
                else:
                    sums, reading = self.promoted(accumulators, reading)
            else:
                if T.pingpong:
                    lw.barrier(ORDER + own, 2 * WARPGROUP)
                accumulators, before, reading = self.summed(accumulators, reading)
                if T.pingpong:
                    if number + tiles.step < tiles.count:
                        lw.arrive(ORDER + 1 - own, 2 * WARPGROUP)
                    reading = self.skipped(reading, steps)
                if T.plan.split * T.plan.groups == 1:
                    values = epilogue.column_values(first_column)
                lw.wgmma_wait(0)
                if not T.one_tile:  # noqa: SIM102, decided while tracing
                    if steps > 0:
                        self.release(before)
                sums = accumulators
                if T.piece < T.bn:
                    sums = self.joined(accumulators)
            self.finish(sums, first_row, first_column, tiles_done, values)
            tiles_done = tiles_done + 1
        if T.plan.split > 1 and not T.one_tile:
            self.split_in_cluster.wait_for_readers(own, tiles_done)
        epilogue.wait_for_reads(0)  # the block's shared memory is read before the block ends

    def joined(self, accumulators) -> list[list[object]]:
        """Return the sums of a wide tile, 64 rows at once: those of the first columns, then of the others."""
        T = self.traits
        pieces = T.bn // T.piece
        return [
            [acc[i] for acc in accumulators[first : first + pieces] for i in range(T.piece // 2)]
            for first in range(0, len(accumulators), pieces)
        ]

    @lw.device
    def begin_epilogue(self, first_row, matrix, residual, strides) -> None:
        """Tell the epilogue of the matrix of the batch, and load what its rows need."""
        T, epilogue, given = self.traits, self.epilogue, self.epilogue.given
        epilogue.batch, given.residual = matrix, residual
        if T.batched and not T.grouped:
            if T.problem.epilogue.residual is not None:
                given.residual = residual + matrix.to(lw.i64) * strides[1]
            if T.store is not Store.TMA:
                epilogue.batch = matrix.to(lw.i64) * strides[0]
        epilogue.load_row_terms(first_row)

    @lw.device
    def finish(self, accumulators, first_row, first_column, tiles_done, values) -> None:
        """Add up what other blocks have of a tile, where K is split, and store this block's share."""
        T, plan = self.traits, self.traits.plan
        if plan.split > 1:
            mine, within = self.place.rank // T.multicasting, self.place.multicast_rank
            if T.multicasting == 1 and T.one_tile:
                lw.cluster.wait()  # the other blocks' barriers are ready
            self.split_in_cluster.send(accumulators, self.own, mine, within, self.steps > 0, tiles_done)
            if mine < T.owners:
                sums = self.split_in_cluster.sums(self.own, tiles_done)
                column = first_column + mine * T.store_columns
                if plan.groups > 1:
                    self.reduce(sums, mine, first_row, column)
                else:
                    self.epilogue.store(sums, first_row, column)
            if not T.one_tile:
                self.split_in_cluster.done(self.own, within)
        elif plan.groups > 1:
            sums = [[lw.where(self.steps > 0, acc[i], 0) for i in range(T.bn // 2)] for acc in accumulators]
            self.reduce(sums, 0, first_row, first_column)
        else:
            self.epilogue.store(accumulators, first_row, first_column, values)

    @lw.device
    def reduce(self, sums, mine, first_row, first_column) -> None:
        """Leave the sums in the workspace; the last to come, or a second kernel, adds and stores them."""
        if self.traits.plan.gather:
            self.split_in_workspace.leave(sums, self.own, mine)
        elif self.split_in_workspace.last(sums, self.own, mine):
            self.epilogue.store(self.split_in_workspace.sums(self.own, mine), first_row, first_column)
