"""A warpgroup that multiplies: 64 queries with all keys that they see, from the last tile to the first.

The tensor cores compute the scores of a tile and add the values of the tile before it; while they finish the
latter, the warpgroup computes exponentials of the scores.
"""

from __future__ import annotations

import numpy as np

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.isa import instruction
from lanewise.linalg.kernels.attention.softmax import Softmax, lse_of, of_seen, over_row, share_of
from lanewise.linalg.kernels.attention.traits import Traits, along_depth, along_keys, results
from lanewise.linalg.kernels.fused_epilogue import LOG2_E
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP
from lanewise.linalg.sum_order import wgmma_name

#: The first named barrier by which consumers take turns; those before it gather results.
ORDER = 8


def wgmma(T: Traits, columns: int, from_registers: bool):
    """Return the matrix instruction with so many columns; A comes from registers or from shared memory."""
    name = wgmma_name(columns, "f32", T.dtype.name, T.dtype.name)
    return instruction(name, a_source="registers") if from_registers else instruction(name)


class Consumer:
    """One warpgroup; `own` is its number among the consumers."""

    def __init__(self, traits: Traits, own, pipelines, lengths, scale) -> None:
        T = self.traits = traits
        self.own, self.lengths, self.scale = own, lengths, scale
        self.of_queries, self.of_keys, self.of_values = pipelines
        self.score, self.sum = wgmma(T, T.tile.keys, False), wgmma(T, T.depth, True)
        self.q = lw.make_gmma_desc(along_depth(T, T.tile.queries, 1, 0))
        self.k = lw.make_gmma_desc(along_depth(T, T.tile.keys, T.tile.stages, T.keys_offset))
        self.v = lw.make_gmma_desc(along_keys(T))
        self.thread = lw.thread_idx.x % WARPGROUP
        self.lane, self.warp = lw.lane_id(), lw.shfl_sync(self.thread // 32, 0)

    @lw.device
    def run(self, tiles, Out, lse, heads) -> None:
        """Compute all tiles of queries of the block; `lse` is where logarithms go, or null."""
        T = self.traits
        if T.tile.ordered and self.own == T.tile.consumers - 1:
            lw.arrive(ORDER, 2 * WARPGROUP)  # the first consumer may begin
        reading, queries = self.of_keys.consumer_state(), self.of_queries.consumer_state()
        self.of_queries.wait(queries)
        head, first = tiles.receive(queries) if T.tile.persistent else tiles.place(lw.block_idx.x)
        while head >= 0:
            query = first + self.own * ROWS
            sums, highest, total, reading = self.attend(tiles, query, tiles.part(first), queries, reading)
            if lse != 0:
                self.store_lse(lse, head, query, highest, total)
            self.store(Out, head // heads, head % heads, query, sums, total)
            if T.in_place and (self.warp == 0) & lw.elect_one():
                lw.tma.wait(0, read=True)
                self.of_queries.release(queries)
            queries = queries.next()
            if T.tile.persistent:
                self.of_queries.wait(queries)
                head, first = tiles.receive(queries)
            else:
                head = -1
        if T.tile.ordered and self.own == 0:
            lw.barrier(ORDER, 2 * WARPGROUP)  # the last consumer's last arrival
        if (self.warp == 0) & lw.elect_one():
            lw.tma.wait(0, read=True)

    @lw.device
    def run_part(self, tiles, partial) -> None:
        """Compute the block's part of the keys of a tile of queries, and keep its sums in memory."""
        reading, queries = self.of_keys.consumer_state(), self.of_queries.consumer_state()
        head, first = tiles.place(lw.block_idx.y)
        begin, end = tiles.part(first)
        query = first + self.own * ROWS
        if begin < end:
            self.of_queries.wait(queries)
            sums, highest, total, _ = self.attend(tiles, query, (begin, end), queries, reading)
            self.store_part(partial, head, query, sums, highest, total)
        else:
            self.store_part(partial, head, query, self.sum.zeros(), [f32(-np.inf)] * 2, [f32(0.0)] * 2)

    # the mainloop -------------------------------------------------------------------------------------------

    @lw.device
    def attend(self, tiles, query, part, queries, reading):
        """Return the sums over some tiles of keys, not yet divided, the highest scores and totals of this
        lane's two rows, and the stage after the last one; `part` is the first tile and the one after the
        last."""
        T = self.traits
        row = query + self.warp * 16 + self.lane // 4  # and the eighth after it
        softmax = Softmax(T, self.scale * LOG2_E, row, self.lengths)
        begin, end = part
        if not T.same_tiles:
            seen = tiles.seen(query + ROWS)
            reading = self.passed(reading, end - seen)
            end = seen
        steps = end - begin
        s, o = self.score.zeros(), self.sum.zeros()
        self.of_keys.wait(reading)
        lw.wgmma_fence()
        s = self.multiply_keys(s, reading.stage)
        lw.wgmma_commit()
        lw.wgmma_wait(0)
        self.release_keys(reading, queries, steps == 1)
        highest, total = softmax.begin()
        powers, highest, total, _ = softmax.step(s, highest, total, (end - 1) * T.tile.keys, True)
        p, before = self.packed(powers), reading
        reading = reading.next()
        masked = lw.min(tiles.masked(query, end), steps)
        for hides in (True, False) if T.masks_more else (False,):
            for done in lw.range(1, masked) if hides else lw.range(masked, steps):
                self.of_keys.wait(reading)
                if T.tile.ordered:
                    lw.barrier(ORDER + self.own, 2 * WARPGROUP)
                lw.wgmma_fence()
                s = self.multiply_keys(s, reading.stage)
                lw.wgmma_commit()
                self.of_values.wait(before)
                o = self.multiply_values(p, o, before.stage)
                lw.wgmma_commit()
                self.pass_order()
                lw.wgmma_wait(1)
                self.release_keys(reading, queries, done == steps - 1)
                first_key = (end - 1 - done) * T.tile.keys
                powers, highest, total, factors = softmax.step(s, highest, total, first_key, hides)
                lw.wgmma_wait(0)
                if self.thread == 0:
                    self.of_values.release(before)
                for i in range(len(o)):
                    o[i] = o[i] * factors[i // 2 % 2]
                p, before = self.packed(powers), reading
                reading = reading.next()
        self.of_values.wait(before)
        lw.wgmma_fence()
        o = self.multiply_values(p, o, before.stage)
        lw.wgmma_commit()
        lw.wgmma_wait(0)
        if self.thread == 0:
            self.of_values.release(before)
        return o, highest, [over_row(lambda a, b: a + b, row_total) for row_total in total], reading

    @lw.device
    def passed(self, reading, count):
        """Pass over tiles of keys that only the consumers after this one see; return the stage after them."""
        for _ in lw.range(count):
            if self.traits.tile.ordered:  # the last consumer sees all tiles, so there is one after this
                lw.barrier(ORDER + self.own, 2 * WARPGROUP)
                lw.arrive(ORDER + 1 + self.own, 2 * WARPGROUP)
            for pipeline in (self.of_keys, self.of_values):
                pipeline.wait(reading)  # else this would release the tile before it a second time
                if self.thread == 0:
                    pipeline.release(reading)
            reading = reading.next()
        return reading

    @lw.device
    def pass_order(self) -> None:
        """Let the next consumer multiply, if they take turns."""
        T = self.traits
        if T.tile.ordered:
            last = self.own == T.tile.consumers - 1
            lw.arrive(lw.where(last, ORDER, ORDER + 1 + self.own), 2 * WARPGROUP)

    @lw.device
    def release_keys(self, reading, queries, last) -> None:
        """Release a stage of keys, and after the last one the queries, unless results come in their place."""
        if self.thread == 0:
            self.of_keys.release(reading)
            if not self.traits.in_place and last:
                self.of_queries.release(queries)

    def multiply_keys(self, s, stage):
        """Begin the scores of 64 queries and a tile of keys."""
        for column in range(0, self.traits.depth, 16):
            s = self.score(
                self.q[self.own * ROWS, column, 0], self.k[0, column, stage], s, accumulate=column > 0
            )
        return s

    def multiply_values(self, p, o, stage):
        """Begin to add the values of a tile, weighted by p."""
        for number, weights in enumerate(p):
            o = self.sum(weights, self.v[0, number * 16, stage], o)
        return o

    def packed(self, powers):
        """Return weights as registers of A, a fragment for every 16 keys: an accumulator lies as they do."""
        pairs = [lw.pack(powers[i], powers[i + 1], self.traits.dtype) for i in range(0, len(powers), 2)]
        return [tuple(pairs[i : i + 4]) for i in range(0, len(pairs), 4)]

    # the epilogue -------------------------------------------------------------------------------------------

    @lw.device
    def store(self, Out, batch, head, query, sums, total) -> None:
        """Divide by the totals and store 64 rows by way of shared memory; rows that saw no key are zero."""
        T = self.traits
        shares = [share_of(row_total) for row_total in total]
        divided = [sums[i] * shares[i // 2 % 2] for i in range(len(sums))]
        if T.causal:
            divided = [of_seen(total[i // 2 % 2], quotient) for i, quotient in enumerate(divided)]
        for first in range(0, T.depth, T.result_columns):
            self.store_columns(Out, (batch, head, query), first, divided[first // 2 :])

    @lw.device
    def store_columns(self, Out, place, first, values) -> None:
        """Store the columns of results that are gathered at a time; this lane's values begin with theirs."""
        T, gathered = self.traits, results(self.traits)
        if not T.in_place and (self.warp == 0) & lw.elect_one():
            lw.tma.wait(0, read=True)  # what was gathered before has left
        lw.barrier(1 + self.own, WARPGROUP)
        for column in range(0, T.result_columns, 16):
            at = column // 8 * 4
            four = [lw.pack(values[at + i], values[at + i + 1], T.dtype) for i in range(0, 8, 2)]
            panel, within = divmod(column, T.width)
            rows = gathered.ptr(
                0, 0, self.warp * 16 + self.lane % 16, within + self.lane // 16 * 8, panel, self.own
            )
            lw.stmatrix(rows, four)
        lw.fence_proxy_async()
        lw.barrier(1 + self.own, WARPGROUP)
        if (self.warp == 0) & lw.elect_one():
            for panel in range(T.result_columns // T.width):
                box = gathered[None, None, None, None, panel, self.own]
                lw.tma.store(Out, (*place, first + panel * T.width), box)
            lw.tma.commit()

    @lw.device
    def store_part(self, partial, head, query, sums, highest, total) -> None:
        """Store the sums of this lane's two rows, for `split_keys` to add them to those of other parts."""
        length = self.lengths[0]
        for half in range(2):
            row = query + self.warp * 16 + self.lane // 4 + 8 * half
            if row < length:
                own = [sums[i + n] for i in range(2 * half, len(sums), 4) for n in range(2)]
                partial.store(lw.block_idx.x, head * length + row, own, highest[half], total[half])

    @lw.device
    def store_lse(self, lse, head, query, highest, total) -> None:
        """Store ln(Σ exp(scale · score)) of this lane's rows; -inf for rows that saw no key."""
        length = self.lengths[0]
        for half in range(2):
            row = query + self.warp * 16 + self.lane // 4 + 8 * half
            if (self.lane % 4 == 0) & (row < length):
                place = head.to(lw.i64) * length.to(lw.i64) + row.to(lw.i64)
                lse[place] = lse_of(highest[half], total[half], self.scale)
