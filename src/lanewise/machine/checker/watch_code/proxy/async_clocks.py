"""What warps know of asynchronous operations: groups, clocks; `proxy_fences.py` has fences between proxies.

Like vector clocks: an element of a vector is an epoch up to which something of another warp is known. What a
warp knows passes to others where they synchronise.
"""

from lanewise.jit.lane_functions import address_of, choose, joined, lanes_in, largest, set_bits, smallest
from lanewise.jit.record_layout import Words
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WARPGROUP, WarpFrame
from lanewise.machine.checker.proxy_records import (
    FENCES_KEPT,
    GROUPS_KEPT,
    OPERATIONS_KEPT,
    AsyncClock,
    AsyncKind,
    AsyncVectors,
    NotedOperation,
    WarpFence,
)
from lanewise.machine.checker.records import BlockWatch, OrderKind
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    begin_epoch,
    warp_of,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.watch_module import clear_bytes


@inlined
def async_clock(watch: BlockWatch, index: int) -> AsyncClock:
    """Return the AsyncClock of a warp by its number in the block; barriers follow the warps."""
    return AsyncClock.at(watch.async_clocks + index * AsyncClock.BYTES)


@inlined
def barrier_clock(watch: BlockWatch, barrier: int) -> AsyncClock:
    """Return the AsyncClock of one of the block's barriers."""
    return async_clock(watch, watch.warps + barrier)


@inlined
def running_clock(watch: BlockWatch) -> AsyncClock:
    """Return the AsyncClock of the warp that runs."""
    return async_clock(watch, watch.clock.index)


@inlined
def first_of_group(index: int) -> int:
    """Return the first warp of a warp's warpgroup."""
    return index & -WARPGROUP


@inlined
def operation(watch: BlockWatch, epoch: int) -> NotedOperation:
    """Return the record of an asynchronous operation by its epoch; another one may be there."""
    number = epoch & (OPERATIONS_KEPT - 1)
    return NotedOperation.at(watch.watch.operations + number * NotedOperation.BYTES)


@inlined
def warp_fence(watch: BlockWatch, warp: int) -> WarpFence:
    """Return where the last fence of a warp, counted over all blocks, is kept; another's may be there."""
    return WarpFence.at(watch.watch.fences + (warp & (FENCES_KEPT - 1)) * WarpFence.BYTES)


# what passes from warp to warp ------------------------------------------------------------------------------


@inlined
def join_async(target: AsyncClock, source: AsyncClock) -> None:
    """Join one clock into another."""
    join_vectors(address_of(target), address_of(source))


@inlined
def join_vectors(target: int, source: int) -> None:
    """Join AsyncVectors, given by their addresses."""
    for number in (0, 1, 2, 3, 4, 5):
        known = AsyncVectors.at(target).vectors[number]
        AsyncVectors.at(target).vectors[number] = joined(known, AsyncVectors.at(source).vectors[number])


@inlined
def done_until(begun: Words, done: Words, now: int) -> int:
    """Return the epoch up to which everything that the lanes began is done; `now` if nothing is open.

    `begun` has the epoch of each lane's last one, `done` the epoch up to which those of the lane are done.
    """
    return smallest(choose(begun > done, done, now))


@inlined
def publish_own(watch: BlockWatch, index: int) -> AsyncClock:
    """Put what a warp knows of its own operations into its clock, which is then joined into others."""
    clock, now = async_clock(watch, index), watch.epoch
    clock.fenced_of[index] = done_until(clock.wrote, clock.last_fence, now)
    clock.fenced_global_of[index] = done_until(clock.wrote_global, clock.last_global_fence, now)
    clock.reads_of[index] = done_until(clock.bulk_issued, clock.bulk_read, now)
    clock.writes_of[index] = done_until(clock.bulk_issued, clock.bulk_done, now)
    leader = first_of_group(index)
    clock.wgmma_of[leader] = max(clock.wgmma_of[leader], clock.wgmma_done)
    return clock


@inlined
def publish_at_barrier(watch: BlockWatch, index: int) -> AsyncClock:
    """Put what a warp tells others at a barrier into its clock: its lanes' last fence counts for all."""
    clock = publish_own(watch, index)
    clock.handed_over_of[index] = max(clock.handed_over_of[index], largest(clock.last_fence))
    return clock


@compiled()
def arrive_async(watch: BlockWatch, index: int, barrier: int) -> None:
    """A warp arrives at a barrier of its block."""
    join_async(barrier_clock(watch, barrier), publish_at_barrier(watch, index))


@compiled()
def released_async(watch: BlockWatch, index: int, barrier: int) -> None:
    """A warp leaves a barrier that is complete."""
    join_async(async_clock(watch, index), barrier_clock(watch, barrier))


@compiled()
def meet_async(watch: BlockWatch) -> None:
    """All warps of a block have met at the barrier of their cluster."""
    first = async_clock(watch, 0)
    for index in range(watch.warps):
        join_async(first, publish_at_barrier(watch, index))
    for index in range(watch.warps):
        join_async(async_clock(watch, index), first)


@inlined
def note_written(watch: BlockWatch, lanes: int, shared: bool) -> None:
    """Note that some lanes have written memory by the generic proxy."""
    clock, chosen = running_clock(watch), lanes_in(lanes)
    if shared:
        clock.wrote = choose(chosen, watch.epoch, clock.wrote)
    else:
        clock.wrote_global = choose(chosen, watch.epoch, clock.wrote_global)


@inlined
def hand_over(watch: BlockWatch, epochs: Words) -> None:
    """Let the other proxy write over plain reads, given by epochs of the block's warps."""
    clock = running_clock(watch)
    clock.handed_over_of = joined(clock.handed_over_of, epochs)


@inlined
def fenced_before_meeting(watch: BlockWatch, lanes: int) -> int:
    """Return the epoch up to which lanes of the running warp fenced what they did, before all of them met.

    It is 0 if one of them has executed a fence between the proxies since, or none at all.
    """
    fenced, chosen = running_clock(watch).last_fence, lanes_in(lanes)
    has_met = watch.clock.converged >= largest(choose(chosen, fenced, 0))
    earliest = smallest(choose(chosen, fenced, -1))
    return earliest if has_met else 0


# groups -----------------------------------------------------------------------------------------------------


@inlined
def order_wgmma_groups(clock: AsyncClock, kind: int, behind: int) -> None:
    """Follow fences, commits and waits of wgmma groups, which each warp counts for its warpgroup."""
    if kind == OrderKind.WGMMA_FENCE:
        clock.fences += 1
    if kind == OrderKind.WGMMA_COMMIT:
        clock.wgmma_groups += 1
    if kind == OrderKind.WGMMA_WAIT:
        clock.wgmma_done = max(clock.wgmma_done, clock.wgmma_groups - behind)


@inlined
def note_completed(watch: BlockWatch, lane: int, after: int, until: int) -> None:
    """Note for other blocks that the bulk copies of a lane, issued in a range of epochs, are complete."""
    first = max(after + 1, watch.start, until - (OPERATIONS_KEPT - 2))
    warp = warp_of(watch, watch.epoch)
    for epoch in range(first, until + 1):
        copy = operation(watch, epoch)
        if (copy.epoch == epoch) & (copy.lane == lane) and warp_of(watch, epoch) == warp:
            copy.completed = watch.epoch


@inlined
def wait_for_bulk_groups(
    watch: BlockWatch, clock: AsyncClock, lane: int, behind: int, only_reads: bool
) -> None:
    """A lane has waited for its bulk groups but the latest; `only_reads`: until their sources are read."""
    count = clock.bulk_groups[lane]
    if behind < count:
        done = clock.bulk_ring[(count - 1 - behind) & (GROUPS_KEPT - 1)][lane]
        if clock.bulk_read[lane] < done:
            clock.bulk_read[lane] = done
            clock.bulk_read_at[lane] = watch.epoch
        before = clock.bulk_done[lane]
        if (not only_reads) & (before < done):
            clock.bulk_done[lane] = done
            clock.bulk_done_at[lane] = watch.epoch
            note_completed(watch, lane, before, done)


@inlined
def order_bulk_groups(watch: BlockWatch, clock: AsyncClock, kind: int, behind: int, active: int) -> None:
    """Follow commits and waits of bulk groups, which each lane has for itself."""
    only_reads = kind == OrderKind.BULK_WAIT_READ
    if kind == OrderKind.BULK_COMMIT:
        for lane in set_bits(active):
            clock.bulk_ring[clock.bulk_groups[lane] & (GROUPS_KEPT - 1)][lane] = watch.epoch
            clock.bulk_groups[lane] += 1
    if (kind == OrderKind.BULK_WAIT) | only_reads:
        for lane in set_bits(active):
            wait_for_bulk_groups(watch, clock, lane, behind, only_reads)


@compiled()
def async_order(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes execute a fence of mbarriers or tensor maps, or a commit or wait of a group."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    row = watch.watch.sites[site]
    kind, behind = row.flags, row.displacement
    clock, lanes = async_clock(watch, frame.index), lanes_in(active)
    # What follows belongs to another group, and lies behind the fence; but not the copy of a map itself.
    if kind != OrderKind.MAP_COPY:
        watch.fresh = 1
    if kind == OrderKind.INIT_FENCE:
        clock.init_fenced = choose(lanes, watch.epoch, clock.init_fenced)
    if kind == OrderKind.MAP_FENCE:
        clock.map_fenced = choose(lanes, watch.epoch, clock.map_fenced)
    if (kind == OrderKind.MAP_RELEASE) | (kind == OrderKind.MAP_COPY):
        clock.map_released = choose(lanes, watch.epoch, clock.map_released)
    order_wgmma_groups(clock, kind, behind)
    order_bulk_groups(watch, clock, kind, behind, active)


@compiled()
def begin_operation(
    frame: WarpFrame, kind: int, lane: int, barrier: int, phase: int, swizzle: int, home: BlockWatch
) -> int:
    """Begin an operation in an epoch of its own, and return that."""
    begin_epoch(frame)
    watch = watch_of(frame.block)
    epoch, index = watch.epoch, frame.index
    is_wgmma = kind == AsyncKind.WGMMA
    clock = async_clock(watch, index)
    made = operation(watch, epoch)
    clear_bytes(address_of(made), NotedOperation.BYTES)
    made.epoch = epoch
    made.kind = kind
    made.agent = first_of_group(index) if is_wgmma else index
    made.lane = lane
    made.barrier = barrier
    made.phase = clock.wgmma_groups if is_wgmma else phase
    made.swizzle = swizzle
    made.home = home
    if kind == AsyncKind.BULK_GROUP:
        clock.bulk_issued[lane] = epoch
    watch.fresh = 1
    return epoch
