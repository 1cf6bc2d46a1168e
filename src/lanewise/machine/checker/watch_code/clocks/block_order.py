"""What orders the warps of a block: barriers, fences, and waits for asynchronous copies."""

from lanewise.jit.lane_functions import (
    address_of,
    any_lane,
    choose,
    count_bits,
    joined,
    largest,
    lowest_bit,
    mask_of,
    set_bits,
    smallest,
)
from lanewise.jit.record_layout import RecordLayout, Words, field
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import AsyncVectors
from lanewise.machine.checker.records import BlockWatch, Flag, LaneClocks, OrderKind, WarpClock
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.clusters import arrive_at_cluster, release_cluster
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    acquire,
    add_foreign,
    know_block,
    note_release_by_fences,
    partial_release,
    publish,
    share_releases,
)
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    barrier_of,
    complete_copies,
    frame_of,
    has_exited,
    operand_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.clocks.warp_order import members, synchronise
from lanewise.machine.checker.watch_code.proxy.async_clocks import (
    arrive_async,
    barrier_clock,
    note_written,
    released_async,
)
from lanewise.machine.checker.watch_code.watch_module import (
    FAR,
    LANES,
    clear_bytes,
    follows_async,
    lane_numbers,
    words_of,
)


@compiled()
def join(target: WarpClock, source: WarpClock) -> None:
    """Join one vector clock into another: the maximum of each element."""
    share_releases(target, source)
    target.seen = joined(target.seen, source.seen)
    target.seen_copies = joined(target.seen_copies, source.seen_copies)
    target.acquired = max(target.acquired, source.acquired)
    target.glimpsed = max(target.glimpsed, source.glimpsed)
    target.glimpsed_in_cluster = max(target.glimpsed_in_cluster, source.glimpsed_in_cluster)
    target.glimpsed_in_block = max(target.glimpsed_in_block, source.glimpsed_in_block)
    target.phase_acquired = max(target.phase_acquired, source.phase_acquired)
    target.published = max(target.published, source.published)
    target.published_cluster = max(target.published_cluster, source.published_cluster)
    target.published_gpu = max(target.published_gpu, source.published_gpu)
    if source.foreign_count > 0:
        for index in range(records.FOREIGN_LENGTH):
            if source.foreign[index] != 0:
                add_foreign(target, source.foreign[index])


# arriving ---------------------------------------------------------------------------------------------------


@inlined
def is_unordered(barrier: WarpClock, clock: WarpClock) -> bool:
    """Return whether a warp that arrives cannot know that the barrier was complete the last time.

    It is complete when the threads have arrived that it is for (PTX ISA, "barrier"). A warp that has waited
    there, or has synchronised with one that has, knows of all these arrivals.
    """
    known = joined(clock.seen, words_of(max(clock.acquired, clock.glimpsed)))
    return any_lane(barrier.last_arrivals > known)


@compiled()
def arrive(frame: WarpFrame, site: int, active: int) -> None:
    """A warp arrives at a barrier of its block, or of itself."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    row = watch.watch.sites[site]
    if row.flags & Flag.EVERY_LANE != 0:
        members(frame, site, active)
        return
    # A barrier orders what flags of the same block, read before it, have shown.
    clock, index, first = watch.clock, frame.index, lowest_bit(active)
    know_block(watch, clock)
    row.requests += 1
    number = operand_of(frame, first, row.base, row.displacement) & (abi.BARRIERS - 1)
    count = operand_of(frame, first, row.step_base, row.step)
    if count & (LANES - 1) != 0:
        suspect(Suspicion.BARRIER_COUNT_WRONG, frame, site, first, count, 0, 0)
    clock.seen[index] = watch.epoch
    clock.seen_copies[index] = complete_copies(watch.lane_clocks[index], watch.epoch)
    if watch.warps > 1:
        barrier = barrier_of(watch, number)
        if is_unordered(barrier, clock):
            suspect(Suspicion.BARRIER_UNORDERED, frame, site, first, number, 0, 0)
        barrier.arrivals[index] = watch.epoch
        join(barrier, clock)
        # The fence came since the last barrier of the warp.
        barrier.fences[index] = clock.published_gpu if clock.synced < clock.published_gpu else 0
        if follows_async():
            arrive_async(watch, index, number)
    watch.fresh = 1
    # Lanes of this warp that have neither exited nor arrived.
    missing = alive_lanes(frame) & ~active
    if (missing == 0) & (row.flags & Flag.WAITS != 0):
        synchronise(frame, active)
    if clock.partial == 0:
        clock.partial = missing
        clock.broken = 0


@compiled()
def arrive_at_grid(frame: WarpFrame, site: int, lane: int) -> None:
    """A thread arrives at the grid's barrier for its block."""
    block = frame.block
    left = block.launch.threads
    for index in range(block.launch.warps):
        left -= count_bits(alive_lanes(frame_of(block, index)))
    if left > 0:
        suspect(Suspicion.LEFT_GRID, frame, site, lane, left, 0, 0)


# completing -------------------------------------------------------------------------------------------------


class BarrierRelease(RecordLayout):
    """What is found out while the warps that wait at a barrier are released."""

    #: The barrier's number, and how many threads it is for; 0 if it is for the whole block.
    barrier = field()
    counted = field()
    #: Whether all warps have come with a fence.
    all_fenced = field()
    #: The epoch of the last arrival, if all who have arrived fenced before with all their lanes; else 0.
    arrived_fenced = field()
    # The threads that have arrived, and the smallest and largest number that they have asked for.
    threads = field()
    smallest = field()
    largest = field()
    #: The frame of a warp that was released, and where it goes on; 0 if there is none.
    someone = field()
    place = field()


@inlined
def row_of_waiting(pc: int) -> int:
    """Return the row that counts lanes which exited before a barrier: another one for each barrier.

    It follows from the basic block after the barrier, whose number is the program counter of those who wait;
    there are more rows than basic blocks. The row of the instruction with that number counts other kinds.
    """
    return (pc & (abi.PARKED - 1)) + 1


@inlined
def join_exited(block: BlockRecord, barrier: int) -> int:
    """Let warps that have exited arrive, as they have at every barrier of the whole block; count them."""
    watch = watch_of(block)
    count = 0
    for index in range(watch.warps):
        if has_exited(frame_of(block, index)):
            clock = watch.clocks[index]
            clock.seen[index] = clock.last
            join(barrier_of(watch, barrier), clock)
            if follows_async():
                arrive_async(watch, index, barrier)
            count += 1
    return count


@inlined
def is_fenced_by_all(block: BlockRecord, barrier: WarpClock) -> bool:
    """Return whether all warps that have not exited have come to a barrier with a fence."""
    fenced = mask_of(barrier.fences != 0)
    if fenced == 0:
        return False
    alive = 0
    for index in range(watch_of(block).warps):
        alive |= int(not has_exited(frame_of(block, index))) << index
    return fenced == alive


@inlined
def fenced_arrival(watch: BlockWatch, barrier: WarpClock) -> int:
    """Return the epoch of the last arrival at a barrier; 0 if a warp has arrived that did not fence before.

    What the warps did before their fences is put on record as released in that epoch: an atomic behind the
    barrier publishes it. By the PTX memory model only fence.sc (membar) before a barrier has this effect;
    fence.acq_rel counts as well, as at a barrier of the whole block.
    """
    arrived = mask_of(barrier.arrivals != 0)
    if (arrived == 0) | (mask_of(barrier.fences != 0) != arrived):
        return 0
    for index in set_bits(arrived):
        fence = barrier.fences[index]
        if partial_release(watch, fence).epoch == fence:  # some lanes have not fenced
            return 0
    last = largest(barrier.arrivals)
    note_release_by_fences(watch, last, barrier)
    return last


@inlined
def oldest_seen(watch: BlockWatch, clock: WarpClock, index: int) -> int:
    """Return the epoch up to which a warp knows all other warps of its block."""
    numbers = lane_numbers()
    others = (numbers != index) & (numbers < watch.warps)
    return smallest(choose(others, clock.seen, FAR))


@inlined
def check_split(frame: WarpFrame, clock: WarpClock, here: int, pcs: Words, target: int, barrier: int) -> None:
    """Report lanes of a warp that do not wait with the others at a barrier."""
    elsewhere = any_lane((pcs != target) & (pcs != abi.EXITED))
    # Lanes that bypassed the barrier, accessed memory and exited.
    bypassed = (clock.partial & ~here != 0) & (clock.broken != 0)
    clock.partial = 0
    clock.broken = 0
    synchronise(frame, here)
    # A last warp may not have all lanes.
    exist = (lane_numbers() + frame.index * LANES) < frame.block.launch.threads
    exited = any_lane((pcs == abi.EXITED) & exist)
    if elsewhere | bypassed | exited:
        row = 0 if elsewhere | bypassed else row_of_waiting(target)
        suspect(Suspicion.SPLIT_BARRIER, frame, row, 0, target, barrier, int(bypassed))


@compiled()
def release_warp(block: BlockRecord, index: int, release: BarrierRelease) -> None:
    """A warp leaves a barrier that is complete, if it waits there, and takes over the barrier's clock."""
    watch, frame = watch_of(block), frame_of(block, index)
    pcs, now = frame.pcs, watch.watch.now
    is_parked = (pcs >= abi.PARKED) & (pcs < abi.EXITED)
    waits = is_parked & (frame.barrier == release.barrier)
    here = mask_of(waits)
    if here == 0:
        return
    clock = watch.clocks[index]
    if watch.warps > 1:
        join(clock, watch.barriers[release.barrier])
        if follows_async():
            released_async(watch, index, release.barrier)
    # After a barrier of the whole block, everything that its warps have done happened before.
    clock.least = now if release.counted == 0 else oldest_seen(watch, clock, index)
    # Whole warps are counted, also by lanes that have exited.
    release.threads += LANES
    release.smallest = min(release.smallest, smallest(choose(waits, frame.barrier_argument, FAR)))
    release.largest = max(release.largest, largest(choose(waits, frame.barrier_argument, 0)))
    # If all warps have come with a fence, any of them may publish what the block did.
    if release.all_fenced != 0:
        clock.published = now
        clock.published_cluster = now
        clock.published_gpu = now
        clock.published_whole = 1
    # If those who have arrived did, any of them may publish what they did before.
    elif release.arrived_fenced != 0:
        clock.published = release.arrived_fenced
        clock.published_cluster = release.arrived_fenced
        clock.published_gpu = release.arrived_fenced
        clock.published_whole = 0
    target = largest(choose(waits, pcs, 0))
    check_split(frame, clock, here, pcs, target, release.barrier)
    release.someone = address_of(frame)
    release.place = target


@inlined
def check_counts(release: BarrierRelease, exited_warps: int) -> None:
    """Report a barrier at which more threads have arrived than it is for, or warps were missing."""
    someone, place, expected = WarpFrame.at(release.someone), release.place, release.largest
    if exited_warps > 0:
        suspect(Suspicion.EXITED_WARPS, someone, row_of_waiting(place), 0, place, exited_warps, 0)
    is_overfull = (expected > 0) & (expected < release.threads)
    if is_overfull | (release.smallest != expected):
        suspect(Suspicion.BARRIER_OVERFULL, someone, 0, release.threads, place, expected, release.smallest)


@compiled(name="check_release", external=True)
def release_barrier(block: BlockRecord, barrier: int, counted: int) -> None:
    """Warps that wait at a barrier take over its clock.

    `counted` is how many threads it is for; 0 if it is for the whole block, or for its cluster.
    """
    if barrier == abi.WAITS_FOR_CLUSTER:
        release_cluster(block)
        return
    watch = watch_of(block)
    clock, warps = watch.barriers[barrier], watch.warps
    exited_warps = 0
    if (warps > 1) & (counted == 0):
        exited_warps = join_exited(block, barrier)
    release = BarrierRelease.on_stack()
    release.barrier = barrier
    release.counted = counted
    release.all_fenced = int(is_fenced_by_all(block, clock))
    release.arrived_fenced = 0
    if (release.all_fenced == 0) & (counted != 0):
        release.arrived_fenced = fenced_arrival(watch, clock)
    release.threads = block.arrived[barrier]
    release.smallest = FAR
    release.largest = 0
    release.someone = 0
    release.place = 0
    for index in range(warps):
        release_warp(block, index, release)
    if release.someone != 0:
        check_counts(release, exited_warps)
    if warps > 1:
        arrivals = clock.arrivals
        clear_bytes(address_of(clock), WarpClock.BYTES)
        clock.last_arrivals = arrivals
        if follows_async():
            clear_bytes(address_of(barrier_clock(watch, barrier)), AsyncVectors.BYTES)
    watch.watch.current = 0


# fences, and groups of copies -------------------------------------------------------------------------------


@inlined
def waited_until(lanes: LaneClocks, lane: int, epoch: int, behind: int) -> int:
    """Return the epoch up to which a lane's copies are complete, after a wait for all groups but the latest.

    A negative number of groups: it waits for all copies.
    """
    count = lanes.groups[lane]
    if behind < 0:  # also those in no group
        return epoch
    if behind >= count:
        return 0
    # Of groups that are no longer kept, the oldest one that is counts.
    kept = min(behind, records.RING_LENGTH - 1)
    return lanes.ring[(count - 1 - kept) & (records.RING_LENGTH - 1)][lane]


@inlined
def wait_for_groups(watch: BlockWatch, lane: int, behind: int) -> bool:
    """A lane has waited for its groups of copies but the latest ones; a negative number: for all copies.

    Return whether there were copies of which it did not know that they are complete.
    """
    lanes, epoch = watch.running_lanes, watch.epoch
    before, done = lanes.copied[lane], waited_until(lanes, lane, epoch, behind)
    if done <= before:
        return False
    lanes.copied[lane] = done
    if lanes.issued[lane] <= before:
        return False
    place = lanes.waits[lane] & (records.WAITS_KEPT - 1)
    lanes.waited_at[place][lane] = epoch
    lanes.waited_for[place][lane] = done
    lanes.waits[lane] += 1
    return True


@compiled()
def order(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes execute a fence, arrive at the cluster's barrier, or commit or wait for asynchronous copies."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    row = watch.watch.sites[site]
    kind, behind = row.flags, row.displacement
    for_all = (kind == OrderKind.FENCE) | (kind == OrderKind.INIT_FENCE)
    for_cluster = kind == OrderKind.CLUSTER_FENCE
    if for_all | for_cluster | (kind == OrderKind.BLOCK_FENCE):
        publish(watch, active, for_all, for_cluster)
        acquire(watch, for_all, for_cluster)
        watch.fresh = 1
    is_relaxed = kind == OrderKind.CLUSTER_ARRIVAL_RELAXED
    if is_relaxed | (kind == OrderKind.CLUSTER_ARRIVAL):
        arrive_at_cluster(watch, frame, site, active, is_relaxed)
    if kind == OrderKind.TRACK:
        watch.clock.tracked = watch.epoch
        watch.fresh = 1
    # What is copied from now on belongs to the next group.
    if kind == OrderKind.COMMIT:
        watch.fresh = 1
        lanes = watch.running_lanes
        for lane in set_bits(active):
            lanes.ring[lanes.groups[lane] & (records.RING_LENGTH - 1)][lane] = watch.epoch
            lanes.groups[lane] += 1
    if kind == OrderKind.WAIT:
        watch.fresh = 1
        waited = 0
        for lane in set_bits(active):
            if wait_for_groups(watch, lane, behind):
                waited |= 1 << lane
        # What the copies wrote counts as written now: a fence between the proxies has to follow.
        if follows_async():
            note_written(watch, waited, shared=True)
