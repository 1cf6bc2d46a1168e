"""A warpgroup that promotes the sums of one step while it multiplies the next, also from tile to tile."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.families.build import ROWS
from lanewise.linalg.families.consumer import Consumer
from lanewise.linalg.families.tile_order import numbers

#: A number of steps that no product has.
_NEVER = -1


class ConsumerByTurns(Consumer):
    """A consumer with two accumulators: a step is multiplied while the sums of the step before are promoted.

    The first step of the next tile is multiplied while a tile is stored.
    """

    @lw.device
    def run(self, M: Any, strides: Any) -> None:
        """Compute this consumer's tiles; `strides` are those of a batch: of result and residual."""
        T, tiles, steps = self.build, self.tiles, self.steps
        self.output.last_row = M
        residual, done = self.output.given.residual, lw.i32(0)
        total = lw.cdiv(tiles.count - tiles.first, tiles.step) * steps
        accs = [[self.mma.zeros() for _ in range(T.consumer_rows // ROWS)] for _ in range(2)]
        current = self.pipeline.consumer_state()
        self.pipeline.wait(current)
        place = self.block_scales.first() if self.block_scales is not None else None
        scales, place = self.scales(place, total > 1)
        accs[0] = self.multiply(accs[0], current.stage, False)
        following, further, place = self.await_step(current, place, done + 1, total)
        for number in numbers(tiles, tiles.first, tiles.step):
            totals = [[f32(0.0) for _ in range(T.bn // 2)] for _ in accs[0]]
            for _ in lw.range((steps - 1) // 2):
                for turn in range(2):
                    accs[1 - turn] = self.multiply(accs[1 - turn], following.stage, False)
                    lw.wgmma_wait(1)
                    self.give_back(current)
                    later, latest, place = self.await_step(following, place, done + 2, total)
                    totals = self.promote(totals, accs[turn], scales)
                    if steps == _NEVER:
                        lw.trap()  # without a way out, ptxas waits for each wgmma before the next (C7514)
                    current, following, done = following, later, done + 1
                    scales, further = further, latest
            if steps % 2 == 0:
                accs[1] = self.multiply(accs[1], following.stage, False)
                lw.wgmma_wait(1)
                self.give_back(current)
                totals = self.promote(totals, accs[0], scales)
                lw.wgmma_wait(0)
                self.give_back(following)
                totals = self.promote(totals, accs[1], further)
                following, further, place = self.await_step(following, place, done + 2, total)
                done = done + 2
            else:
                lw.wgmma_wait(0)
                self.give_back(current)
                totals = self.promote(totals, accs[0], scales)
                done = done + 1
            if not T.single:
                # The last step of the last tile is multiplied again, and nobody reads the result: ptxas
                # keeps wgmma asynchronous only if it is issued in any case.
                accs[0] = self.multiply(accs[0], following.stage, False)
                current, scales = following, further
            self.store_tile(totals, number, residual, strides)
            if not T.single:
                following, further, place = self.await_step(current, place, done + 1, total)
        lw.wgmma_wait(0)
        self.output.wait_for_reads(0)  # the block's shared memory is read before the block ends

    @lw.device
    def await_step(self, before: Any, place: Any, number: Any, total: Any) -> Any:
        """Wait until the stage of a step is full; return its state, its scales and the next one's place.

        `before` is the state of the step before it. After the last of all steps these are those of the last.
        """
        more, after = number < total, before.next()
        state = before.with_children(
            [lw.where(more, after.stage, before.stage), lw.where(more, after.phase, before.phase)]
        )
        self.pipeline.wait(state)
        scales, place = self.scales(place, number + 1 < total)
        return state, scales, place

    @lw.device
    def store_tile(self, totals: Any, number: Any, residual: Any, strides: Any) -> None:
        """Store the totals of a tile; `residual` is that of the first matrix of a batch."""
        T, output, (across, along) = self.build, self.output, self.build.cluster
        row, column, matrix = self.tiles[number]
        first_row = (row * across + self.place.row) * T.bm + self.own * T.consumer_rows
        output.batch, output.given.residual = matrix, residual
        if T.batched:
            if T.epilogue.residual is not None:
                output.given.residual = residual + matrix.to(lw.i64) * strides[1]
            if not T.store_by_tma:
                output.batch = matrix.to(lw.i64) * strides[0]
        output.ahead(first_row)
        output.store(totals, first_row, (column * along + self.place.column) * T.bn)
