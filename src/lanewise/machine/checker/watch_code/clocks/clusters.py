"""Clusters: what orders their blocks, accesses to the memory of other blocks, requests for another block.

What a warp knows of other blocks is a publication of each of them: everything that the block did up to an
epoch. So of a block whose warps arrive one after the other, the last arrival counts for all.

The memory of a block is gone when its last thread has exited. So each access by another block has to happen
before the exit of at least one thread of the block: it waits at the cluster's barrier, for a phase of an
mbarrier or for a flag that comes after the access. `exits.py` looks at that when threads exit.
"""

from lanewise.jit.lane_functions import address_of, choose, joined, lanes_in, lowest_bit, mask_of, set_bits
from lanewise.jit.record_layout import RecordLayout, field
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.bulk_copies.launch_control import RESPONSE_BYTES, SUCCESS_BIT
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import PhaseRecord, RemoteAccess
from lanewise.machine.checker.records import BlockWatch, WarpClock
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    UNORDERED,
    add_foreign,
    learn,
    ordered,
    publish,
)
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    begin_epoch,
    complete_copies,
    frame_of,
    has_exited,
    in_cluster,
    local_warp,
    rank_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.clocks.warp_order import synchronise
from lanewise.machine.checker.watch_code.proxy.async_clocks import meet_async
from lanewise.machine.checker.watch_code.watch_module import FAR, LaneLongs, follows_async, load_byte

#: Where the mbarrier is that a warp arrives at: in its block; in another one; the same at the block's scope.
HERE, AWAY, AWAY_NARROWLY = 0, 1, 2


class ClusterArrival(RecordLayout):
    """What all arrivals at a cluster's barrier have in common when it is complete."""

    #: The earliest epoch that an arrival releases, and that up to which some warp knew other clusters.
    earliest = field()
    acquired = field()


@compiled()
def arrive_at_cluster(watch: BlockWatch, frame: WarpFrame, site: int, active: int, relaxed: bool) -> None:
    """The running warp arrives at the barrier of its cluster.

    If it is `relaxed`, only what came before the last fence is released, such as fence.mbarrier_init.
    """
    clock = watch.clock
    twice = frame.cluster_arrived & active
    if twice != 0:
        suspect(Suspicion.CLUSTER_ARRIVED_TWICE, frame, site, lowest_bit(twice), 0, 0, 0)
    clock.cluster_unwaited = clock.cluster_unwaited | active
    clock.cluster_reached = watch.epoch
    clock.cluster_arrival = clock.published
    if not relaxed:
        # Lanes that have arrived before have released what they did.
        publish(watch, active | frame.cluster_arrived, for_all=True, for_cluster=True)
        # The arrival has an epoch of its own: others may learn of what was published in another way.
        begin_epoch(frame)
        clock.cluster_arrival = watch.epoch
        clock.seen[frame.index] = watch.epoch
        clock.seen_copies[frame.index] = complete_copies(watch.running_lanes, watch.epoch)
    watch.fresh = 1


@inlined
def released_by_arrival(block: BlockRecord, index: int) -> int:
    """Return the epoch that a warp's arrival releases, 0: none; of one that has exited, its last access."""
    clock = watch_of(block).clocks[index]
    return clock.last if has_exited(frame_of(block, index)) else clock.cluster_arrival


@inlined
def known_of_others(watch: BlockWatch, clock: WarpClock) -> int:
    """Return the epoch up to which a warp knows other clusters: what came from them counts for everything."""
    known = clock.acquired
    for number in range(records.FOREIGN_LENGTH):
        entry = clock.foreign[number]
        published = entry & records.PUBLISHED
        is_known = (entry != 0) & (entry & records.GLIMPSED == 0)
        if is_known and not in_cluster(watch, published):
            known = max(known, published)
    return known


@inlined
def gather_arrivals(block: BlockRecord) -> ClusterArrival:
    """Put the arrivals of all blocks of a cluster on record, and return what they have in common."""
    common = ClusterArrival.on_stack()
    common.earliest = FAR
    common.acquired = 0
    for rank in range(block.launch.cluster_blocks):
        member = block.members[rank].block
        watch = watch_of(member)
        watch.cluster_arrival = 0
        for index in range(block.launch.warps):
            arrival, clock = released_by_arrival(member, index), watch.clocks[index]
            common.earliest = min(common.earliest, arrival)
            clock.cluster_completed = arrival
            clock.cluster_passed = clock.cluster_reached
            watch.cluster_arrival = max(watch.cluster_arrival, arrival)
            if arrival != 0:
                common.acquired = max(common.acquired, known_of_others(watch, clock))
    return common


@inlined
def join_seen(target: WarpClock, source: WarpClock) -> None:
    """Let another clock know what one warp knows of its block."""
    target.seen = joined(target.seen, source.seen)
    target.seen_copies = joined(target.seen_copies, source.seen_copies)


@inlined
def replace_foreign(watch: BlockWatch, clock: WarpClock, rank: int, epoch: int) -> None:
    """Let a warp know what a block of its cluster did up to an epoch, and forget what it knew before."""
    for index in range(records.FOREIGN_LENGTH):
        old = clock.foreign[index] & records.PUBLISHED
        if (old != 0) & in_cluster(watch, old) and rank_of(watch, old) == rank:
            clock.foreign[index] = 0
    add_foreign(clock, epoch | records.WHOLE)


@compiled()
def release_block_of_cluster(block: BlockRecord, rank: int, common: ClusterArrival) -> None:
    """The warps of one block, by its rank, leave the barrier of their cluster."""
    watch, warps = watch_of(block), block.launch.warps
    common_clock = WarpClock.on_stack()
    common_clock.seen = 0
    common_clock.seen_copies = 0
    for index in range(warps):
        arrival = released_by_arrival(block, index)
        if arrival != 0:
            watch.clocks[index].seen[index] = arrival
            join_seen(common_clock, watch.clocks[index])
    for index in range(warps):
        clock = watch.clocks[index]
        join_seen(clock, common_clock)
        clock.acquired = max(clock.acquired, common.acquired)
        clock.least = max(clock.least, common.earliest)
        clock.cluster_known = max(clock.cluster_known, common.earliest)
        for other in range(block.launch.cluster_blocks):
            arrival_of_other = watch_of(block.members[other].block).cluster_arrival
            if (other != rank) & (arrival_of_other != 0):
                replace_foreign(watch, clock, other, arrival_of_other)
        frame = frame_of(block, index)
        is_parked = (frame.pcs >= abi.PARKED) & (frame.pcs < abi.EXITED)
        lanes = mask_of(is_parked & (frame.barrier == abi.WAITS_FOR_CLUSTER))
        if lanes != 0:
            synchronise(frame, lanes)
        watch.fresh = 1
    if follows_async():
        meet_async(watch)


@compiled()
def release_cluster(block: BlockRecord) -> None:
    """The barrier of a cluster is complete; `block` is one of its blocks."""
    common = gather_arrivals(block)
    for rank in range(block.launch.cluster_blocks):
        member = block.members[rank].block
        if member.ended == 0:
            release_block_of_cluster(member, rank, common)
    watch_of(block).watch.current = 0


# arrivals at mbarriers of the cluster -----------------------------------------------------------------------


@inlined
def note_published(watch: BlockWatch, phase: PhaseRecord, epoch: int) -> None:
    """Note in a phase that those who arrived knew a block of the cluster up to an epoch."""
    rank = rank_of(watch, epoch)
    phase.members[rank] = max(phase.members[rank], epoch)


@compiled()
def publish_to_phase(watch: BlockWatch, phase: PhaseRecord, away: int) -> None:
    """The running warp arrives at an mbarrier of its cluster.

    What it knows of the blocks is noted for those who see the phase complete. `away` says whether the
    mbarrier belongs to another block: HERE, AWAY or AWAY_NARROWLY.
    """
    clock = watch.clock
    if away == AWAY:
        note_published(watch, phase, clock.published)
    if away == AWAY_NARROWLY:
        rank = rank_of(watch, clock.published)
        phase.narrow_members[rank] = max(phase.narrow_members[rank], clock.published)
    phase.acquired = max(phase.acquired, clock.acquired)
    for number in range(records.FOREIGN_LENGTH):
        entry = clock.foreign[number]
        epoch = entry & records.PUBLISHED
        if (epoch != 0) & (entry & records.GLIMPSED == 0):
            if in_cluster(watch, epoch):
                note_published(watch, phase, epoch)
            else:
                phase.acquired = max(phase.acquired, epoch)


@inlined
def learn_member(watch: BlockWatch, rank: int, epoch: int, active: int) -> None:
    """Some lanes learn of what a block of their cluster did up to an epoch."""
    clock = watch.clock
    learn(watch, active, epoch, is_own=False)
    clock.shown = 1
    if rank == rank_of(watch, watch.epoch):
        clock.glimpsed_seen = joined(clock.glimpsed_seen, epoch)
    else:
        add_foreign(clock, epoch | (records.WHOLE | records.GLIMPSED))


@compiled()
def learn_members(watch: BlockWatch, phase: PhaseRecord, active: int) -> None:
    """Some lanes have seen a phase of an mbarrier complete.

    What those who arrived knew of the blocks of the cluster is known to them; if the phase is not followed,
    and has the address 0, everything is.
    """
    clock = watch.clock
    if address_of(phase) == 0:
        clock.acquired = watch.epoch
        return
    clock.glimpsed = max(clock.glimpsed, phase.acquired)
    for rank in range(watch.cluster_blocks):
        epoch, narrow = phase.members[rank], phase.narrow_members[rank]
        if epoch != 0:
            learn_member(watch, rank, epoch, active)
        if epoch < narrow:
            learn(watch, active, narrow, is_own=False)
            clock.shown = 1
            add_foreign(clock, narrow | (records.WHOLE | records.GLIMPSED | records.NARROW))


# accesses to the memory of other blocks ---------------------------------------------------------------------

#: A phase and the number of its mbarrier in one word: the number plus one is in the low bits.
NUMBER_BITS = 8


@inlined
def is_in_cluster(watch: BlockWatch) -> bool:
    """Return whether a block has other blocks beside it that may access its memory."""
    return watch.remote_accesses != 0


@inlined
def remote_access(home: BlockWatch, warp: int) -> RemoteAccess:
    """Return the RemoteAccess of a warp, by its number in the cluster, to the memory of a block."""
    return RemoteAccess.at(home.remote_accesses + warp * RemoteAccess.BYTES)


@inlined
def running_remote_access(watch: BlockWatch, home: BlockWatch) -> RemoteAccess:
    """Return the RemoteAccess of the running warp to the memory of another block."""
    return remote_access(home, watch.first_warp - watch.cluster_first + watch.clock.index)


@compiled()
def note_remote(watch: BlockWatch, home: BlockWatch, site: int, addresses: LaneLongs, active: int) -> None:
    """Lanes access another block's memory."""
    noted, lanes = running_remote_access(watch, home), lanes_in(active)
    noted.epoch = choose(lanes, watch.epoch, noted.epoch)
    noted.row = choose(lanes, site, noted.row)
    noted.phase = choose(lanes, 0, noted.phase)
    noted.address = choose(lanes, addresses.longs, noted.address)


@inlined
def note_remote_arrival(watch: BlockWatch, home: BlockWatch, lane: int, number: int, phase: int) -> None:
    """Note that the access just noted is an arrival in a phase of an mbarrier of the other block."""
    if is_in_cluster(home):
        running_remote_access(watch, home).phase[lane] = (phase << NUMBER_BITS) | (number + 1)


@compiled()
def cluster_wait(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes wait at the barrier of their cluster."""
    clock = watch_of(frame.block).clocks[frame.index]
    clock.cluster_unwaited = clock.cluster_unwaited & ~active


# requests for another block ---------------------------------------------------------------------------------


@inlined
def lanes_with_block(frame: WarpFrame, answer: int, lanes: int) -> int:
    """Return those of some lanes whose answer, a register of 128 bits at an offset, names a block."""
    naming = 0
    for lane in set_bits(lanes):
        place = address_of(frame) + answer + lane * RESPONSE_BYTES
        naming |= ((load_byte(place + SUCCESS_BIT // 8) >> SUCCESS_BIT % 8) & 1) << lane
    return naming


@compiled()
def note_refusal(frame: WarpFrame, row: int, answer: int, active: int) -> None:
    """Lanes have learnt whether an answer, at an offset, names a block: for some, none may be left."""
    lanes = active & ~lanes_with_block(frame, answer, active)
    if lanes != 0:
        watch = watch_of_running(frame)
        if watch.refused < watch.start:  # the first one counts: others learn of it the sooner
            watch.refused = watch.epoch
            watch.refused_lanes = lanes
            watch.refused_row = row


@compiled()
def ask_for_block(frame: WarpFrame, site: int, active: int) -> None:
    """A thread executes clusterlaunchcontrol.try_cancel.

    What its warp has learnt it knows, too; what another warp has, if something orders that before.
    """
    if active == 0:
        return
    watch, lane = watch_of_running(frame), lowest_bit(active)
    refused = watch.refused
    if refused >= watch.start:
        is_own = local_warp(watch, refused) == watch.clock.index
        if is_own or ordered(watch, refused, 0, watch.refused_lanes, lane) != UNORDERED:
            suspect(Suspicion.ASKED_AGAIN, frame, site, lane, 0, 0, watch.refused_row)
