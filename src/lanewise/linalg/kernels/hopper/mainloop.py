"""The mainloop of a consumer: products of one stage after the other, summed in its accumulators.

Sums that are promoted are added to totals after each stage, scaled by blocks or not (`block_scales.promote`).
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.kernels.hopper.block_scales import promote
from lanewise.linalg.kernels.hopper.operand_tiles import operand_tiles
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits
from lanewise.linalg.sum_order import plane_products

#: Named barriers: of each consumer's own threads (1, 2, 3), and of the order of consumers (8, 9, 10).
ORDER = 8


class Mainloop:
    """The products of one consumer, a warpgroup; `place` says where its block is in the cluster."""

    def __init__(self, traits: Traits, own, pipeline, steps, place) -> None:
        self.traits, self.own, self.pipeline, self.steps = traits, own, pipeline, steps
        self.place = place
        self.mma = traits.instruction
        self.thread = lw.thread_idx.x % WARPGROUP
        tile_a, tile_b = operand_tiles(traits)
        self.tile_a, self.b = tile_a, tile_b.descriptor(whole=True)
        #: The first of this consumer's blocks of 64 rows in the tile.
        self.first = 0 if traits.pingpong else own * (traits.consumer_rows // ROWS)
        #: Where products find A; of one that lies at any address it depends on the tile.
        self.a: Any = None
        if not traits.plan.a_in_registers:
            self.a = tile_a.descriptor(whole=False)
        elif not traits.threads_load_a:
            self.a = tile_a.source(self.first * ROWS)
        #: Set by the kernel.
        self.epilogue: Any = None
        self.block_scales: Any = None

    @lw.device
    def multiply(self, accumulators, stage, further, column=0, part=0):
        """Issue the products of one stage in order of K, 64 rows at once; sums begin unless `further`.

        `column` is the first of a piece of the tile, if the accumulators are for this piece alone; `part` is
        which of the stage's parts along K is multiplied, if there are several.
        """
        T, a, b = self.traits, self.a, self.b
        blocks = T.consumer_rows // ROWS
        pieces = len(accumulators) // blocks
        deep = T.bk // T.stage_parts
        depths = range(part * deep, (part + 1) * deep, self.mma.k)
        fragments = None
        if T.plan.a_in_registers:
            fragments = [self.tile_a.fragments(a, block, stage, depths) for block in range(blocks)]
        lw.wgmma_fence()
        begun = further if part == 0 else True
        for plane_a, plane_b in plane_products(T.planes, T.problem.is_transpose):
            for step, k in enumerate(depths):
                for number in range(len(accumulators)):
                    block = number // pieces
                    from_b = b[column + number % pieces * T.piece, k, plane_b, stage]
                    if fragments is None:
                        from_a = a[0, k, self.first + block, plane_a, stage]
                    else:
                        from_a = fragments[block][plane_a][step]
                    accumulators[number] = self.mma(from_a, from_b, accumulators[number], accumulate=begun)
                begun = True
        lw.wgmma_commit()
        return accumulators

    @lw.device
    def release(self, state) -> None:
        """Release a stage to all producers that load into it.

        One thread speaks for the warpgroup, whose wgmma are complete. Scales, and an A that goes through
        registers, are read by each warp on its own: then one of each warp does.
        """
        T, thread = self.traits, self.thread
        if T.releases_by_warps:
            lw.syncwarp()
            thread = lw.lane_id()
        if thread < T.multicasting:
            if T.multicasting == 1:
                self.pipeline.release(state)
            else:
                self.pipeline.release(state, thread + self.place.first_of_multicast)

    @lw.device
    def skipped(self, state, steps):
        """Return the state `steps` stages further on: those of a tile that the other consumer computes."""
        ahead = state.stage + steps
        around = ahead // self.traits.plan.stages
        return state.with_children([ahead - around * self.traits.plan.stages, (state.phase + around) & 1])

    @lw.device
    def summed(self, accumulators, reading):
        """Return the sums of a tile, two stages in flight, its last stage's state and the one after it.

        With `skew`, a consumer waits before the last stages of a tile until the consumer before it has issued
        all of its products. It multiplies these stages while that one stores its results, and the first
        multiplies stages of the next tile while the last stores.
        """
        T, steps = self.traits, self.steps
        stages, skew = T.plan.stages, T.plan.skew
        before, pause = reading, -1
        if skew:
            # With more steps than stages nobody is a whole tile ahead: the barrier counts right.
            pause = lw.where((self.own > 0) & (steps > stages), steps - skew, -1)
        for done in lw.range(steps):
            if skew:  # noqa: SIM102, decided while tracing
                if done == pause:
                    lw.wgmma_wait(0)
                    self.release(before)  # the others need the stages that are loaded now
                    lw.barrier(ORDER + self.own, 2 * WARPGROUP)
            self.pipeline.wait(reading)
            accumulators = self.multiply(accumulators, reading.stage, done > 0)
            lw.wgmma_wait(1)  # the stage before is done: release it
            if T.one_tile:
                # Nobody fills a stage of the last ones again. So all arrivals from other blocks are waited
                # for, and a block can leave when it is done.
                if (done > 0) & (done + stages <= steps):
                    self.release(before)
            elif skew:
                if (done > 0) & (done != pause):
                    self.release(before)
            elif done > 0:
                self.release(before)
            for part in range(1, T.stage_parts):
                accumulators = self.multiply(accumulators, reading.stage, True, part=part)
                lw.wgmma_wait(1)  # the part before is done: its registers are loaded again
            before = reading
            reading = reading.next()
        if skew:  # noqa: SIM102, decided while tracing
            if (self.own < T.consumers - 1) & (steps > stages):
                lw.arrive(ORDER + 1 + self.own, 2 * WARPGROUP)
        return accumulators, before, reading

    @lw.device
    def passed(self, reading):
        """Release all stages of a tile that has no rows for this warpgroup; the others multiply faster."""
        for _ in lw.range(self.steps):
            self.pipeline.wait(reading)
            self.release(reading)
            reading = reading.next()
        return reading

    @lw.device
    def scales(self, stage):
        """Return the scales of this thread's rows and columns in a stage that is full; empty without them."""
        if self.block_scales is None:
            return [], []
        return self.block_scales.of_stage(stage, self.own, self.epilogue.warp)

    def _zero_totals(self, accumulators) -> Any:
        return [[f32(0.0) for _ in range(self.traits.bn // 2)] for _ in accumulators]

    @lw.device
    def promoted(self, accumulators, reading):
        """Return a tile's sums that are promoted after each stage, and the pipeline's state after it.

        A stage's products begin at zero. With block scales, their sum times the scale of its rows and
        columns, whose product is rounded first, is added by fma; else it is added, rounded to nearest.
        """
        T = self.traits
        totals = self._zero_totals(accumulators)
        for _ in lw.range(self.steps):
            self.pipeline.wait(reading)
            scales = self.scales(reading.stage)
            for column in range(0, T.bn, T.piece):
                accumulators = self.multiply(accumulators, reading.stage, False, column)
                lw.wgmma_wait(0)
                if column + T.piece == T.bn:
                    self.release(reading)
                totals = promote(T, totals, accumulators, scales, column)
            reading = reading.next()
        return totals, reading

    @lw.device
    def promoted_with_two(self, accumulators, others, reading):
        """Return the same, with two accumulators: a stage is multiplied while the last one is promoted."""
        T, steps = self.traits, self.steps
        totals = self._zero_totals(accumulators)
        self.pipeline.wait(reading)
        scales = self.scales(reading.stage)
        accumulators = self.multiply(accumulators, reading.stage, False)
        before = reading
        reading = reading.next()
        for _ in lw.range((steps - 1) // 2):
            for which in range(2):
                self.pipeline.wait(reading)
                further = self.scales(reading.stage)
                if which == 0:
                    others = self.multiply(others, reading.stage, False)
                else:
                    accumulators = self.multiply(accumulators, reading.stage, False)
                lw.wgmma_wait(1)
                self.release(before)
                totals = promote(T, totals, accumulators if which == 0 else others, scales)
                scales, before = further, reading
                reading = reading.next()
        if steps % 2 == 0:
            self.pipeline.wait(reading)
            further = self.scales(reading.stage)
            others = self.multiply(others, reading.stage, False)
            lw.wgmma_wait(1)
            self.release(before)
            totals = promote(T, totals, accumulators, scales)
            lw.wgmma_wait(0)
            self.release(reading)
            totals = promote(T, totals, others, further)
            reading = reading.next()
        else:
            lw.wgmma_wait(0)
            self.release(before)
            totals = promote(T, totals, accumulators, scales)
        return totals, reading
