"""Split-K in a cluster: sums of parts of K, added up in order through distributed shared memory.

Each block owns some columns of the tile. Every block sends its sums of those columns to the owner, by plain
stores into the owner's shared memory; the owner adds them in order of K. Two mbarriers for each warpgroup
say that all parts are there, and that all owners have read them.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import f32, s32
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits


class SplitInCluster:
    """The exchange of one kernel; `send`, `sums` and `done` are called by all threads of a consumer."""

    def __init__(self, traits: Traits) -> None:
        T = self.traits = traits
        split = T.plan.split
        self.blocks = T.consumer_rows // ROWS
        #: Registers of a thread that go to one owner, of each 64 rows.
        self.slots = T.store_columns // 2
        dtype = s32 if T.problem.sums is s32 else f32
        per_part = self.slots * WARPGROUP * self.blocks
        # (four registers, thread, which four, block of 64 rows, part, consumer)
        self.array = lw.dynamic_shared(
            lw.i32 if dtype is s32 else dtype,
            Layout(
                (4, WARPGROUP, self.slots // 4, self.blocks, split, T.consumers),
                (1, 4, 4 * WARPGROUP, self.slots * WARPGROUP, per_part, per_part * split),
            ),
            offset=SharedMemory(T).exchange_offset,
        )
        self.ready, self.free = lw.mbarrier(T.consumers), lw.mbarrier(T.consumers)

    def init(self) -> None:
        """Prepare the barriers: an arrival from each block that splits K, and one from each owner."""
        self.ready.init(self.traits.plan.split)
        self.free.init(self.traits.owners)

    @lw.device
    def send(self, accumulators, own, part, within, any_steps, tiles_done) -> None:
        """Send this block's sums to their owners; zeros if its part of K is empty."""
        T = self.traits
        thread = lw.thread_idx.x % WARPGROUP
        self.free[own].wait((tiles_done + 1) & 1, scope="cluster")  # owners have read what was sent before
        for owner in range(T.owners):
            for block in range(self.blocks):
                for four in range(self.slots // 4):
                    place = self.array.ptr(0, thread, four, block, part, own)
                    there = lw.cluster.map(place, within + owner * T.multicasting)
                    start = owner * self.slots + 4 * four
                    there.store([lw.where(any_steps, accumulators[block][start + i], 0) for i in range(4)])
        lw.barrier(1 + own, WARPGROUP)
        if thread < T.owners:
            self.ready[own].remote(within + thread * T.multicasting).arrive()

    @lw.device
    def sums(self, own, tiles_done):
        """Return the sums of this block's columns, parts added in order: a list for each 64 rows."""
        T = self.traits
        thread = lw.thread_idx.x % WARPGROUP
        self.ready[own].wait(tiles_done & 1, scope="cluster")
        totals = []
        for block in range(self.blocks):
            values = []
            for four in range(self.slots // 4):
                added = list(self.array.ptr(0, thread, four, block, 0, own).load(4))
                for part in range(1, T.plan.split):
                    more = self.array.ptr(0, thread, four, block, part, own).load(4)
                    added = [added[i] + more[i] for i in range(4)]
                values += added
            totals.append(values)
        return totals

    @lw.device
    def done(self, own, within) -> None:
        """Say that this warpgroup has read its parts, to all blocks that send."""
        T = self.traits
        thread = lw.thread_idx.x % WARPGROUP
        lw.barrier(1 + own, WARPGROUP)
        mine = lw.cluster.rank() // T.multicasting
        if (thread < T.plan.split) & (mine < T.owners):
            self.free[own].remote(within + thread * T.multicasting).arrive(scope="block")

    @lw.device
    def wait_for_readers(self, own, tiles_done) -> None:
        """Wait until all owners have read what was sent last: their arrivals find this block at work."""
        self.free[own].wait((tiles_done + 1) & 1, scope="cluster")
