"""What a warpgroup that multiplies does: the products of its tiles, and what becomes of their sums."""

from __future__ import annotations

from math import gcd
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.families.build import ROWS, WARPGROUP, Build
from lanewise.linalg.families.tile_order import numbers
from lanewise.linalg.order import plane_products

#: Named barriers: of each consumer's own threads (1, 2, 3), and of whose turn it is (8, 9, 10). Those from 4
#: and from 10 on belong to warps that store aside, where no warpgroup waits for its turn.
TURN = 8


class Consumer:
    """One warpgroup; `place` says where its block is in the cluster."""

    def __init__(self, build: Build, own: Any, pipeline: Any, tiles: Any, steps: Any, place: Any) -> None:
        self.build, self.own, self.pipeline, self.tiles, self.steps = build, own, pipeline, tiles, steps
        self.place = place
        self.mma = build.instruction
        self.thread = lw.thread_idx.x % WARPGROUP
        #: Set by the kernel: descriptors, stores, how parts of K are added up, and block scales.
        self.a: Any = None
        self.b: Any = None
        self.output: Any = None
        self.parts: Any = None
        self.meeting: Any = None
        self.block_scales: Any = None

    @lw.device
    def multiply(self, accs: Any, stage: Any, further: Any, column: Any = 0) -> Any:
        """Issue the products of one stage in order of K, 64 rows at once; sums begin unless `further`.

        `column` is the first of a piece of the tile.
        """
        T, a, b = self.build, self.a, self.b
        blocks = T.consumer_rows // ROWS
        first = self.own * blocks if T.schedule == "cooperative" else 0
        lw.wgmma_fence()
        begun = further
        for plane_a, plane_b in plane_products(T.planes, T.turned):
            for k in range(0, T.bk, self.mma.k):
                for block in range(blocks):
                    from_a, from_b = a[0, k, first + block, plane_a, stage], b[column, k, plane_b, stage]
                    accs[block] = self.mma(from_a, from_b, accs[block], accumulate=begun)
                begun = True
        lw.wgmma_commit()
        return accs

    @lw.device
    def give_back(self, state: Any) -> None:
        """Give a stage back to all producers that load into it.

        One thread speaks for the warpgroup, whose wgmma are complete. Scales are read by each warp on its
        own: then one of each warp does.
        """
        T, thread = self.build, self.thread
        if T.scale_bytes:
            lw.syncwarp()
            thread = lw.lane_id()
        if thread < T.sharing:
            if T.sharing == 1:
                self.pipeline.release(state)
            else:
                self.pipeline.release(state, thread + self.place.first_of_sharing)

    @lw.device
    def skipped(self, state: Any, steps: Any) -> Any:
        """Return the state `steps` stages further on: those of a tile that the other consumer computes."""
        ahead = state.stage + steps
        around = ahead // self.build.stages
        return state.with_children([ahead - around * self.build.stages, (state.phase + around) & 1])

    @lw.device
    def summed(self, accs: Any, reading: Any) -> Any:
        """Return the sums of a tile, two stages in flight, its last stage's state and the one after it.

        With `skew`, a warpgroup waits before the last stages of a tile until the warpgroup before it has
        issued all of its products. It multiplies these stages while that one stores its results, and the
        first multiplies stages of the next tile while the last stores.
        """
        T, steps = self.build, self.steps
        before, pause = reading, -1
        if T.skew:
            # With more steps than stages nobody is a whole tile ahead: the barrier counts right.
            pause = lw.where((self.own > 0) & (steps > T.stages), steps - T.skew, -1)
        for done in lw.range(steps):
            if T.skew:  # noqa: SIM102, decided while tracing
                if done == pause:
                    lw.wgmma_wait(0)
                    self.give_back(before)  # the others need the stages that are loaded now
                    lw.barrier(TURN + self.own, 2 * WARPGROUP)
            self.pipeline.wait(reading)
            accs = self.multiply(accs, reading.stage, done > 0)
            lw.wgmma_wait(1)  # the stage before is done: give it back
            if T.single:
                # Nobody fills a stage of the last ones again. So all arrivals from other blocks are waited
                # for, and a block can leave when it is done.
                if (done > 0) & (done + T.stages <= steps):
                    self.give_back(before)
            elif T.skew:
                if (done > 0) & (done != pause):
                    self.give_back(before)
            elif done > 0:
                self.give_back(before)
            before = reading
            reading = reading.next()
        if T.skew:  # noqa: SIM102, decided while tracing
            if (self.own < T.consumers - 1) & (steps > T.stages):
                lw.arrive(TURN + 1 + self.own, 2 * WARPGROUP)
        return accs, before, reading

    @lw.device
    def passed(self, reading: Any) -> Any:
        """Give all stages of a tile back that has no rows for this warpgroup; the others multiply faster."""
        for _ in lw.range(self.steps):
            self.pipeline.wait(reading)
            self.give_back(reading)
            reading = reading.next()
        return reading

    @lw.device
    def scales(self, stage: Any) -> Any:
        """Return the scales of this thread's rows and columns in a stage that is full; empty without them."""
        if self.block_scales is None:
            return [], []
        return self.block_scales.of_stage(stage, self.own, self.output.warp)

    @lw.device
    def promote(self, totals: Any, accs: Any, scales: Any, column: Any = 0) -> Any:
        """Return the totals with one stage's sums: by fma with the product of their scales, or added.

        `column` is the first of a piece of the tile.
        """
        of_rows, of_columns = scales
        _, columns_per_scale = self.build.promote or (0, 0)
        for block in range(len(accs)):
            for number in range(self.build.piece // 2):
                i = column // 2 + number
                if not of_rows:
                    totals[block][i] = totals[block][i] + accs[block][number]
                    continue
                which = i // 4 * 2 + i % 2
                if columns_per_scale > 1:
                    which = i // 4 * 8 // gcd(self.build.bn, columns_per_scale)
                scale = of_rows[2 * block + i // 2 % 2] * of_columns[which]
                totals[block][i] = lw.fma(accs[block][number], scale, totals[block][i])
        return totals

    @lw.device
    def promoted(self, accs: Any, reading: Any) -> Any:
        """Return a tile's sums that are promoted after each stage, and the pipeline's state after it.

        A stage's products begin at zero. With block scales, their sum times the scale of its rows and
        columns, whose product is rounded first, is added by fma; else it is added, rounded to nearest.
        """
        totals = [[f32(0.0) for _ in range(self.build.bn // 2)] for _ in accs]
        for _ in lw.range(self.steps):
            self.pipeline.wait(reading)
            scales = self.scales(reading.stage)
            for column in range(0, self.build.bn, self.build.piece):
                accs = self.multiply(accs, reading.stage, False, column)
                lw.wgmma_wait(0)
                if column + self.build.piece == self.build.bn:
                    self.give_back(reading)
                totals = self.promote(totals, accs, scales, column)
            reading = reading.next()
        return totals, reading

    @lw.device
    def promoted_by_turns(self, accs: Any, others: Any, reading: Any) -> Any:
        """Return the same, by two accumulators: a stage is multiplied while the last one is promoted."""
        steps = self.steps
        totals = [[f32(0.0) for _ in range(self.build.bn // 2)] for _ in accs]
        self.pipeline.wait(reading)
        scales = self.scales(reading.stage)
        accs = self.multiply(accs, reading.stage, False)
        before = reading
        reading = reading.next()
        for _ in lw.range((steps - 1) // 2):
            for turn in range(2):
                self.pipeline.wait(reading)
                further = self.scales(reading.stage)
                if turn == 0:
                    others = self.multiply(others, reading.stage, False)
                else:
                    accs = self.multiply(accs, reading.stage, False)
                lw.wgmma_wait(1)
                self.give_back(before)
                totals = self.promote(totals, accs if turn == 0 else others, scales)
                scales, before = further, reading
                reading = reading.next()
        if steps % 2 == 0:
            self.pipeline.wait(reading)
            further = self.scales(reading.stage)
            others = self.multiply(others, reading.stage, False)
            lw.wgmma_wait(1)
            self.give_back(before)
            totals = self.promote(totals, accs, scales)
            lw.wgmma_wait(0)
            self.give_back(reading)
            totals = self.promote(totals, others, further)
            reading = reading.next()
        else:
            lw.wgmma_wait(0)
            self.give_back(before)
            totals = self.promote(totals, accs, scales)
        return totals, reading

    @lw.device
    def finish(self, accs: Any, first_row: Any, first_column: Any, turn: Any, values: Any) -> None:
        """Add up what other blocks have of a tile, where K is split, and store this block's share."""
        T = self.build
        if T.split > 1:
            mine, within = self.place.rank // T.sharing, self.place.sharing_rank
            if T.sharing == 1 and T.single:
                lw.cluster.wait()  # the other blocks' barriers are ready
            self.parts.send(accs, self.own, mine, within, self.steps > 0, turn)
            if mine < T.owners:
                sums = self.parts.sums(self.own, turn)
                column = first_column + mine * T.store_columns
                if T.groups > 1:
                    self.meet(sums, mine, first_row, column)
                else:
                    self.output.store(sums, first_row, column)
            if not T.single:
                self.parts.done(self.own, within)
        elif T.groups > 1:
            sums = [[lw.where(self.steps > 0, acc[i], 0) for i in range(T.bn // 2)] for acc in accs]
            self.meet(sums, 0, first_row, first_column)
        elif not T.promotes:  # totals have been stored
            self.output.store(accs, first_row, first_column, values)

    @lw.device
    def meet(self, sums: Any, mine: Any, first_row: Any, first_column: Any) -> None:
        """Leave the sums in the workspace; the last to come, or a second kernel, adds and stores them."""
        if self.build.gather:
            self.meeting.leave(sums, self.own, mine)
        elif self.meeting.last(sums, self.own, mine):
            self.output.store(self.meeting.sums(self.own, mine), first_row, first_column)

    @lw.device
    def run(self, M: Any, strides: Any) -> None:
        """Compute this consumer's tiles; `strides` are those of a batch: of result and residual."""
        T, tiles, own, steps = self.build, self.tiles, self.own, self.steps
        across, along = T.cluster
        output, given = self.output, self.output.given
        reading = self.pipeline.consumer_state()
        accs = [self.mma.zeros() for _ in range(T.consumer_rows // ROWS)]
        others = [self.mma.zeros() for _ in accs] if T.by_turns else None
        first, step = tiles.first, tiles.step
        if T.schedule == "pingpong":
            first = first + own * tiles.step
            step = 2 * tiles.step
            reading = self.skipped(reading, own * steps)
            if (own == 1) & (tiles.first < tiles.count):
                lw.arrive(TURN, 2 * WARPGROUP)  # the other begins
        residual, turn = given.residual, lw.i32(0)
        state = tiles.begin() if T.grouped else None
        output.last_row = M
        for number in numbers(tiles, first, step):
            if T.grouped:
                state = tiles.move(number, state)
                if state[0] >= tiles.experts:
                    break
                first_row, first_column, _ = tiles.place(number, state)
                matrix, output.last_row = 0, state[3]
            else:
                row, column, matrix = tiles[number]
                first_row = (row * across + self.place.row) * T.bm
                first_column = (column * along + self.place.column) * T.bn
            if T.schedule == "cooperative":
                first_row = first_row + own * T.consumer_rows
            if T.grouped and T.consumers * T.sharing > 1:  # noqa: SIM102, decided while tracing
                if (first_row >= output.last_row) | (first_column >= output.N):
                    reading = self.passed(reading)
                    continue
            output.batch, given.residual = matrix, residual
            if T.batched and not T.grouped:
                if T.epilogue.residual is not None:
                    given.residual = residual + matrix.to(lw.i64) * strides[1]
                if not T.store_by_tma:
                    output.batch = matrix.to(lw.i64) * strides[0]
            output.ahead(first_row)
            if T.promotes:
                if T.by_turns:
                    totals, reading = self.promoted_by_turns(accs, others, reading)
                else:
                    totals, reading = self.promoted(accs, reading)
                output.store(totals, first_row, first_column)
                continue
            if T.schedule == "pingpong":
                lw.barrier(TURN + own, 2 * WARPGROUP)
            accs, before, reading = self.summed(accs, reading)
            if T.schedule == "pingpong":
                if number + tiles.step < tiles.count:
                    lw.arrive(TURN + 1 - own, 2 * WARPGROUP)
                reading = self.skipped(reading, steps)
            values = None
            if T.split * T.groups == 1:
                values = output.column_values(first_column)
            lw.wgmma_wait(0)
            if not T.single:  # noqa: SIM102, decided while tracing
                if steps > 0:
                    self.give_back(before)
            self.finish(accs, first_row, first_column, turn, values)
            turn = turn + 1
        if T.split > 1 and not T.single:
            self.parts.wait_for_readers(own, turn)
        output.wait_for_reads(0)  # the block's shared memory is read before the block ends
