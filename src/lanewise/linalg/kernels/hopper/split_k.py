"""Split-K: sums of parts of K, added up in order.

In a cluster, each block owns some columns of the tile. Every block sends its sums of those columns to the
owner, by plain stores into the owner's shared memory; the owner adds them in order of K. Two mbarriers for
each warpgroup say that all parts are there, and that all owners have read them.

Between clusters, each writes its sums to a workspace in global memory and counts itself; the one that finds
all others counted reads all of them and adds them in order of K. Nobody waits, and the result does not depend
on who was last. The last one sets the counter back to zero.

With many groups the cluster that comes last would read a megabyte alone. Then all clusters leave their sums
in the workspace and end; each block of a second kernel adds 64 rows (16, if there are many groups) and 8
columns of all groups, in order of K, and stores them after the epilogue. Nothing is counted.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import f32, s32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.hopper.epilogue import RegisterEpilogue
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits
from lanewise.linalg.kernels.parameters import Strides, epilogue_types


@lw.device
def added_parts(load, blocks: int, fours: int, parts: int):
    """Return a thread's sums, parts added in order: a list for each 64 rows; `load` loads four of a part."""
    totals = []
    for block in range(blocks):
        values = []
        for four in range(fours):
            added = list(load(block, four, 0))
            for part in range(1, parts):
                more = load(block, four, part)
                added = [added[i] + more[i] for i in range(4)]
            values += added
        totals.append(values)
    return totals


# in a cluster -----------------------------------------------------------------------------------------------


class SplitInCluster:
    """The exchange of one kernel; `send`, `sums` and `done` are called by all threads of a consumer."""

    def __init__(self, traits: Traits) -> None:
        T = self.traits = traits
        split = T.plan.split
        self.blocks = T.consumer_rows // ROWS
        #: Registers of a thread that go to one owner, of each 64 rows.
        self.slots = T.store_columns // 2
        per_part = self.slots * WARPGROUP * self.blocks
        # (four registers, thread, which four, block of 64 rows, part, consumer)
        self.array = lw.dynamic_shared(
            lw.i32 if T.problem.sums is s32 else f32,
            Layout(
                (4, WARPGROUP, self.slots // 4, self.blocks, split, T.consumers),
                (1, 4, 4 * WARPGROUP, self.slots * WARPGROUP, per_part, per_part * split),
            ),
            offset=SharedMemory(T).offsets["exchange"],
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

        def load(block: int, four: int, part: int):
            return self.array.ptr(0, thread, four, block, part, own).load(4)

        return added_parts(load, self.blocks, self.slots // 4, T.plan.split)

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


# between clusters, by the last one --------------------------------------------------------------------------


def workspace_bytes(traits: Traits, m: int, n: int, batch: int) -> int:
    """Return the bytes of all clusters' sums of a problem."""
    rows, columns = traits.tiles(m, n)
    tiles = rows * columns * traits.multicasting * batch
    return tiles * traits.bm * traits.bn * 4 * traits.plan.groups


def fragment_of(traits: Traits, memory, number, group, block, four, thread) -> Pointer:
    """Return where four sums of a thread lie: of a consumer's share of a tile, of one group's cluster."""
    blocks, slots = traits.consumer_rows // ROWS, traits.store_columns // 2
    start = (number * traits.plan.groups + group) * (blocks * slots * WARPGROUP)
    place = (block * (slots // 4) + four) * (4 * WARPGROUP) + 4 * thread
    return (memory + start + place).aligned(16)


class SplitInWorkspace:
    """The exchange between clusters; its methods are called by all threads of a consumer."""

    def __init__(self, traits: Traits, counters, memory) -> None:
        self.traits, self.counters, self.memory = traits, counters, memory
        self.blocks = traits.consumer_rows // ROWS
        self.slots = traits.store_columns // 2
        self.flags = lw.shared(lw.i32, traits.consumers)

    def _number(self, own, mine) -> Scalar:
        """Return the number of a consumer's share of a tile, the same in all clusters of the tile."""
        T = self.traits
        matrix = lw.block_idx.z // T.plan.groups
        place = (matrix * lw.grid_dim.y + lw.block_idx.y) * (lw.grid_dim.x // T.cluster_size)
        tile = (place + lw.block_idx.x // T.cluster_size) * T.multicasting
        if T.multicasting > 1:
            tile = tile + lw.cluster.rank() % T.multicasting
        return (tile * T.owners + mine) * T.consumers + own

    def _place(self, number, group, block: int, four: int) -> Pointer:
        """Return where four sums of this thread lie."""
        thread = lw.thread_idx.x % WARPGROUP
        return fragment_of(self.traits, self.memory, number, group, block, four, thread)

    @lw.device
    def leave(self, sums, own, mine) -> None:
        """Write this cluster's sums to the workspace."""
        number, group = self._number(own, mine), lw.block_idx.z % self.traits.plan.groups
        for block in range(self.blocks):
            for four in range(self.slots // 4):
                place = self._place(number, group, block, four)
                place.store([sums[block][4 * four + i] for i in range(4)])

    @lw.device
    def last(self, sums, own, mine):
        """Write this cluster's sums and return whether those of all others were there before."""
        T = self.traits
        number = self._number(own, mine)
        thread = lw.thread_idx.x % WARPGROUP
        self.leave(sums, own, mine)
        lw.barrier(1 + own, WARPGROUP)
        if thread == 0:
            # It releases what the barrier has shown to this thread; a fence before the barrier would not, by
            # the PTX memory model. It acquires the sums of others, for all who wait at the next barrier.
            before = lw.atomic_add(self.counters + number, 1, order="acq_rel")
            self.flags[own] = (before == T.plan.groups - 1).to(lw.i32)
            if before == T.plan.groups - 1:
                self.counters[number] = 0
        lw.barrier(1 + own, WARPGROUP)
        return self.flags[own] == 1

    @lw.device
    def sums(self, own, mine):
        """Return the sums of all clusters, added in order: a list for each 64 rows."""
        number = self._number(own, mine)

        def load(block: int, four: int, group: int):
            return self._place(number, group, block, four).load(4, cache="cg")

        return added_parts(load, self.blocks, self.slots // 4, self.traits.plan.groups)


# between clusters, by a second kernel -----------------------------------------------------------------------


#: Loads of four sums that a thread has in flight at most.
_IN_FLIGHT = 8
#: Sums of a warp for 16 rows and 8 columns.
_OF_WARP = 4 * 32


class Crew(NamedTuple):
    """Who adds the sums of one block of the second kernel: `teams` of some warps, 16 rows for each warp.

    Teams load different groups to shared memory, from which all are added in order.
    """

    warps: int
    teams: int

    @classmethod
    def of(cls, groups: int) -> Crew:
        """Return the crew for a number of groups; with many of them a block has few rows."""
        if groups <= _IN_FLIGHT:
            return cls(4, 1)
        return cls(4, 4) if groups <= 4 * _IN_FLIGHT else cls(1, 16)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps * self.teams

    @property
    def sums(self) -> int:
        """Sums that a block adds up."""
        return _OF_WARP * self.warps

    @property
    def parts(self) -> int:
        """Blocks that share 64 rows."""
        return 4 // self.warps

    def at_once(self, groups: int) -> int:
        """Return how many groups are in shared memory at the same time."""
        return min(_IN_FLIGHT, -(-groups // self.teams)) * self.teams


def chunks(traits: Traits) -> int:
    """Return the blocks that add the sums of one consumer of the first kernel."""
    return traits.consumer_rows // ROWS * traits.store_columns // 8 * Crew.of(traits.plan.groups).parts


def reduction_shape(traits: Traits, m: int, n: int, batch: int) -> tuple[tuple[int, int, int], int, int]:
    """Return the second kernel's grid, threads and bytes of shared memory.

    Columns, and who summed them, are along x; rows along y; the batch along z.
    """
    rows, columns = traits.tiles(m, n)
    grid = columns * traits.multicasting * traits.owners * traits.consumers * chunks(traits), rows, batch
    crew = Crew.of(traits.plan.groups)
    shared = crew.at_once(traits.plan.groups) * crew.sums * 4 if crew.teams > 1 else 0
    return grid, crew.threads, shared


@lw.device
def _added(groups, place):
    """Return this thread's four sums, all groups added in order; `place` tells where those of a group lie."""
    parts = [place(group).load(4, cache="cg") for group in range(groups)]
    added = list(parts[0])
    for part in parts[1:]:
        added = [added[i] + part[i] for i in range(4)]
    return added


@lw.device
def _added_by_teams(groups, place, crew):
    """Return the same: teams load different groups, and each thread adds one of the sums of all."""
    at_once, thread = crew.at_once(groups), lw.thread_idx.x
    team, within = lw.shfl_sync(thread // (32 * crew.warps), 0), thread % (32 * crew.warps)
    staged = lw.dynamic_shared(f32, Layout((crew.sums, at_once), (1, crew.sums)))
    total = f32(0.0)
    for start in range(0, groups, at_once):
        count = min(at_once, groups - start)
        each_loads = -(-count // crew.teams)
        parts = []
        for load in range(each_loads):  # groups beyond the last are loaded and left out
            group = lw.min(start + load * crew.teams + team, groups - 1)
            parts.append(place(group).load(4, cache="cg"))
        if start:
            lw.syncthreads()  # what was staged before has been added
        for load in range(each_loads):
            staged.ptr(4 * within, load * crew.teams + team).store(parts[load])
        lw.syncthreads()
        if thread < crew.sums:
            for part in range(count):
                value = staged[thread, part]
                total = value if start + part == 0 else total + value
    lw.syncthreads()
    if thread < crew.sums:
        staged[thread, 0] = total
    lw.syncthreads()
    return list(staged.ptr(4 * within, 0).load(4))


@made_by_constants
def reduction(T: Traits) -> Kernel:
    """Return the second kernel for some constants."""
    across, along = T.plan.cluster
    of_c, of_epilogue = lw.Ptr[T.out], epilogue_types(T.problem.epilogue)
    of_strides = Strides(ldo=lw.i64, batch_out=lw.i64)
    per_consumer, crew = chunks(T), Crew.of(T.plan.groups)
    per_block = T.store_columns // 8

    @lw.kernel(max_threads=crew.threads)
    def gather(
        C: of_c, M: lw.i32, N: lw.i32, strides: of_strides, epilogue: of_epilogue, sums: lw.Ptr[f32, 16]
    ):  # fmt: skip
        matrix = lw.block_idx.z
        number, chunk = lw.block_idx.x // per_consumer, lw.block_idx.x % per_consumer
        part, chunk = chunk % crew.parts, chunk // crew.parts
        block, four = chunk // per_block, chunk % per_block
        own, rest = number % T.consumers, number // T.consumers
        mine, tile = rest % T.owners, rest // T.owners
        rank, column = tile % T.multicasting, tile // T.multicasting
        row = (lw.block_idx.y * across + rank % across) * T.bm + own * T.consumer_rows + block * ROWS
        row = row + part * 16 if crew.parts > 1 else row
        column = (column * along + rank // across) * T.bn + mine * T.store_columns + four * 8
        number = (matrix * lw.grid_dim.y + lw.block_idx.y) * (lw.grid_dim.x // per_consumer) + number
        if T.batched:
            C = C + matrix.to(lw.i64) * strides.batch_out
            if T.problem.epilogue.residual is not None:
                epilogue.residual = epilogue.residual + matrix.to(lw.i64) * epilogue.residual_batch
        elements = RegisterEpilogue(T, C, epilogue, N, strides.ldo)
        elements.last_row, elements.batch = M, None
        thread = part * 32 + lw.thread_idx.x % (32 * crew.warps)

        def place(group) -> Pointer:
            return fragment_of(T, sums, number, group, block, four, thread)

        lw.wait_on_dependencies()
        if crew.teams == 1:
            elements.store_eight(_added(T.plan.groups, place), row, column)
        else:
            added = _added_by_teams(T.plan.groups, place, crew)
            if lw.thread_idx.x < 32 * crew.warps:
                elements.store_eight(added, row, column)

    return gather
