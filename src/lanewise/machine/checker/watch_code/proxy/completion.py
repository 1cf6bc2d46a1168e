"""Whether the running warp may rely on an asynchronous operation being complete."""

from lanewise.jit.lane_functions import choose, largest, smallest
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import AsyncKind, NotedOperation
from lanewise.machine.checker.records import BlockWatch, LaneClocks
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, UNORDERED, lane_of, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import in_block, in_cluster, local_warp, warp_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import first_of_group, operation, running_clock
from lanewise.machine.checker.watch_code.proxy.phases import phase_is_known, tensor_is_complete
from lanewise.machine.checker.watch_code.watch_module import follows_async


@inlined
def phase_is_complete(watch: BlockWatch, copy: NotedOperation, epoch: int, me: int) -> bool:
    """Return whether a copy that an mbarrier counts is known to be complete: its phase is."""
    home = copy.home
    # Another cluster, or an earlier one: its mbarriers are not followed here.
    if (home.cluster_first != watch.cluster_first) | (epoch < home.start):
        return True
    return phase_is_known(watch, home, copy.barrier, copy.phase, me)


@inlined
def complete_elsewhere(watch: BlockWatch, copy: NotedOperation, epoch: int, me: int, reads: bool) -> bool:
    """Return whether an operation of another block is known to be complete: a bulk group that was waited for.

    What other blocks only read, or an mbarrier of theirs is told of, is taken for complete.
    """
    # In the cluster, at least it has to be issued before.
    if in_cluster(watch, epoch) and ordered(watch, epoch, 0, 0, me) == UNORDERED:
        return False
    if (copy.kind != AsyncKind.BULK_GROUP) | reads:
        return True
    return copy.completed != 0 and ordered(watch, copy.completed, 0, 1 << copy.lane, me) != UNORDERED


@inlined
def wgmma_is_complete(watch: BlockWatch, product: NotedOperation) -> bool:
    """Return whether a wgmma is known to be complete: its warpgroup has waited for its group."""
    clock, agent = running_clock(watch), product.agent
    known = clock.wgmma_of[agent]
    if first_of_group(watch.clock.index) == agent:
        return product.phase < max(known, clock.wgmma_done)
    return product.phase < known


@inlined
def group_is_complete(watch: BlockWatch, copy: NotedOperation, epoch: int, me: int, reads: bool) -> bool:
    """Return whether a copy of a bulk group of this block is known to be complete, or to have read.

    The lane that issued it has waited for the group, and what `me` does comes after that.
    """
    clock, lane = running_clock(watch), copy.lane
    if copy.agent != watch.clock.index:
        return (clock.reads_of[copy.agent] if reads else clock.writes_of[copy.agent]) >= epoch
    if (clock.bulk_read[lane] if reads else clock.bulk_done[lane]) < epoch:
        return False
    if (lane == lane_of(me)) & (me & records.COLLECTIVE == 0):
        return True
    waited_at = clock.bulk_read_at[lane] if reads else clock.bulk_done_at[lane]
    return ordered(watch, waited_at, 0, 1 << lane, me) == ORDERED


@compiled()
def async_finished(watch: BlockWatch, epoch: int, me: int, reads: bool) -> bool:
    """Return whether the running warp knows that an asynchronous operation is complete.

    `reads`: it is enough that the operation has read its source.
    """
    noted = operation(watch, epoch)
    if noted.epoch != epoch:
        return True  # it is too long ago to be on record
    if noted.kind == AsyncKind.PHASE:
        return phase_is_complete(watch, noted, epoch, me)
    if noted.kind == AsyncKind.TENSOR:
        return tensor_is_complete(watch, noted, epoch, me)
    if not in_block(watch, local_warp(watch, epoch)):
        return complete_elsewhere(watch, noted, epoch, me, reads)
    if noted.kind == AsyncKind.WGMMA:
        return wgmma_is_complete(watch, noted)
    return group_is_complete(watch, noted, epoch, me, reads)


@inlined
def copied_by(watch: BlockWatch, lanes: LaneClocks, lane: int, time: int) -> int:
    """Return the epoch up to which a lane of the block knew its copies to be complete, at an earlier epoch.

    If so many waits came since that those before are not on record, the last one counts.
    """
    count = lanes.waits[lane]
    for age in range(records.WAITS_KEPT):
        place = (count - 1 - age) & (records.WAITS_KEPT - 1)
        if lanes.waited_at[place][lane] < watch.start:  # there are no more in this block
            return 0
        if lanes.waited_at[place][lane] <= time:
            return lanes.waited_for[place][lane]
    return lanes.copied[lane]


@compiled()
def landed(watch: BlockWatch, epoch: int, lane: int) -> int:
    """Return the epoch in which a lane of the block waited for the copy that it issued in an epoch.

    If no wait for the copy is on record (an mbarrier may track it), that is the epoch of the copy.
    """
    local = local_warp(watch, epoch)
    if not in_block(watch, local):
        return epoch
    lanes = watch.lane_clocks[local]
    count, waited = lanes.waits[lane], epoch
    for age in range(records.WAITS_KEPT):
        place = (count - 1 - age) & (records.WAITS_KEPT - 1)
        if lanes.waited_for[place][lane] < epoch:  # or there are no more in this block
            return waited
        waited = lanes.waited_at[place][lane]
    return epoch


@inlined
def last_wait(watch: BlockWatch, epoch: int) -> int:
    """Return the epoch of the last wait for copies by a lane of the warp that an epoch of the block is of."""
    lanes, last = watch.lane_clocks[local_warp(watch, epoch)], 0
    for place in range(records.WAITS_KEPT):
        last = max(last, largest(lanes.waited_at[place]))
    return last


@compiled()
def finished(watch: BlockWatch, epoch: int, who: int, me: int) -> bool:
    """Return whether `me` may rely on an asynchronous copy: by cp.async, or by the other proxy."""
    if follows_async() and who & records.ASYNC_PROXY != 0:
        return async_finished(watch, epoch, me, reads=False)
    clock, lane, acquired = watch.clock, lane_of(who), watch.clock.phase_acquired
    if warp_of(watch, epoch) == warp_of(watch, watch.epoch):
        # The lane that copied has waited, and the lanes have synchronised since; or an mbarrier tracks the
        # copy and was tested.
        is_own = (lane == lane_of(me)) & (me & records.COLLECTIVE == 0)
        lanes = watch.running_lanes
        waited = lanes.copied[lane] if is_own else lanes.copied_for_all[lane]
        return max(waited, min(clock.tracked, acquired)) >= epoch
    local = local_warp(watch, epoch)
    if in_block(watch, local):
        # Published after its own lane had waited for it, or by the mbarrier that tracks it.
        shown = max(clock.seen[local], clock.glimpsed_seen[local])
        waited = copied_by(watch, watch.lane_clocks[local], lane, max(shown, clock.acquired))
        tracked = min(watch.clocks[local].tracked, max(acquired, clock.glimpsed_seen[local]))
        return max(clock.seen_copies[local], waited, tracked) >= epoch
    return True


@compiled()
def copies_are_known(watch: BlockWatch, epoch: int) -> bool:
    """Return whether all lanes of the running warp may rely on all copies that cp.async made in an epoch.

    `finished` answers the same for one lane and one copy, and knows more: it is asked if this says no.
    """
    if warp_of(watch, epoch) == warp_of(watch, watch.epoch):
        lanes = watch.running_lanes
        known = lanes.copied_for_all
        return smallest(choose(lanes.issued > known, known, watch.epoch)) >= epoch
    local = local_warp(watch, epoch)
    return watch.clock.seen_copies[local] >= epoch if in_block(watch, local) else True
