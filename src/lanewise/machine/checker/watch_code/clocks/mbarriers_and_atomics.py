"""Mbarriers, atomics and volatile accesses (strong accesses): their cells publish, and readers acquire.

A cell keeps its last publication. A strong write that follows a fence, or releases by itself, publishes what
happened before; a strong read is shown that, and knows it once it acquires or a fence follows.
"""

from lanewise.jit.lane_functions import address_of, joined, lowest_bit, mask_of, set_bits
from lanewise.jit.record_layout import RecordLayout, field, per_lane, pointer
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import PhaseRecord
from lanewise.machine.checker.records import Access, BlockWatch, Flag, WarpClock
from lanewise.machine.checker.watch_code.clocks.clusters import learn_members
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    acquire,
    add_foreign,
    keep_earlier,
    learn,
    learn_shown,
    partial_release,
    publish,
    see_releases,
    share_releases,
)
from lanewise.machine.checker.watch_code.clocks.observations import observe
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    in_block,
    in_cluster,
    lane_is_in,
    local_warp,
    rank_of,
    row_of,
    warp_of,
    watch_of,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import hand_over
from lanewise.machine.checker.watch_code.proxy.phases import NOT_COMPLETE, arrive_at_phase, see_phase
from lanewise.machine.checker.watch_code.watch_module import (
    LaneLongs,
    LaneWords,
    ShadowCell,
    cell_at,
    follows_async,
    load_long,
    shifted_right,
)

#: The scope of an access: the GPU, the cluster, or the block.
FOR_ALL, FOR_CLUSTER, FOR_BLOCK = 0, 1, 2


class StrongAccess(RecordLayout):
    """A strong access while its lanes are looked at."""

    access = pointer(lambda: Access)
    #: FOR_ALL, FOR_CLUSTER or FOR_BLOCK.
    scope = field()
    #: What is published: the epoch of the last fence or release, and bits of its scope and knowledge.
    published = field()
    marks = field()
    #: The lanes of the warp that learn: those that are active, and those that have exited.
    learners = field()
    #: The latest publication of a chain that was read.
    chained = field()
    #: What another warp knows of the block, shown to this one.
    shown = per_lane()


@inlined
def scope_of(flags: int) -> int:
    """Return the scope of an access."""
    if flags & Flag.IN_BLOCK != 0:
        return FOR_BLOCK
    return FOR_CLUSTER if flags & Flag.IN_CLUSTER != 0 else FOR_ALL


@inlined
def arrived_there(access: Access) -> int:
    """Return lanes of the warp that have arrived at the same mbarrier, and accessed nothing since.

    Those that arrive now are put on record beside them.
    """
    clock, first = access.watch.clock, access.offsets[lowest_bit(access.active)]
    is_one = mask_of(access.offsets != first) & access.active == 0
    place = access.host + first if is_one else 0
    is_same = (place != 0) & (clock.arrived_at == place)
    lanes = clock.arrived_lanes if is_same else 0
    clock.arrived_at = place
    clock.arrived_lanes = lanes | access.active
    return lanes


@inlined
def marks_of(clock: WarpClock, scope: int, phases: bool) -> int:
    """Return the bits of a publication: who sees it, whether the warp knew its whole block, and other blocks.

    A fence of the GPU's scope and a write of that scope publish to all blocks, others within the block, or
    the cluster.
    """
    marks = 0
    to_all = (scope == FOR_ALL) & (clock.published_gpu >= clock.published)
    to_cluster = (scope != FOR_BLOCK) & (clock.published_cluster >= clock.published) & (not phases)
    if not to_all:
        marks |= records.WITHIN_BLOCK
        if to_cluster:
            marks |= records.WITHIN_CLUSTER
    if clock.published_whole != 0:
        marks |= records.WHOLE
    if clock.acquired | clock.foreign_count != 0:
        marks |= records.CHAIN
    return marks


# reading a publication --------------------------------------------------------------------------------------


@inlined
def comes_back(clock: WarpClock, publisher: WarpClock, publication: int) -> None:
    """Another warp has published what it knows of this one."""
    index = clock.index
    known = max(publisher.seen[index], publisher.glimpsed_seen[index])
    if (publisher is not clock) & (known > clock.returning):
        clock.returning = known
        clock.returning_by = publication


@inlined
def show(watch: BlockWatch, shown: LaneWords, publisher: WarpClock, index: int, released: int) -> None:
    """Another warp shows this one what it knows of the block, a vector of epochs, and its own release."""
    clock = watch.clock
    share_releases(clock, publisher)
    shown.words[index] = max(shown.words[index], released)
    keep_earlier(watch, clock, clock.glimpsed_seen[index], released)
    see_releases(watch, clock, LaneWords.at(address_of(clock.glimpsed_seen)), shown)


@inlined
def show_known(watch: BlockWatch, shown: LaneWords, index: int, released: int) -> None:
    """Fill in what a warp knew of the block when it released, if that is on record: it may know more now."""
    noted = partial_release(watch, released)
    is_noted = (noted.released == released) & (local_warp(watch, released) == index)
    shown.words = noted.seen if is_noted else watch.clocks[index].seen
    shown.words[index] = released


@inlined
def know_own_lane(watch: BlockWatch, lane: int, epoch: int) -> None:
    """Another lane of this warp has published: what its warp did up to then is known to this lane."""
    watch.running_lanes.seen[lane] = joined(watch.running_lanes.seen[lane], epoch)
    watch.clock.partly_synced = watch.epoch


@compiled()
def take_phase(strong: StrongAccess, publication: int, lane: int, arrivals: int, phase: PhaseRecord) -> None:
    """A lane has seen that a phase of an mbarrier is complete; `arrivals` are the block's warps that arrived.

    All arrivals count. The epoch of the last is on record, and in the record of a phase that is followed the
    epoch of each warp's.
    """
    watch, epoch = strong.access.watch, publication & records.PUBLISHED
    if epoch == 0:
        return
    clock, shown = watch.clock, LaneWords.at(address_of(strong.shown))
    if lane_is_in(local_warp(watch, watch.epoch), arrivals):
        know_own_lane(watch, lane, epoch)
    learn(watch, strong.learners, epoch, warp_of(watch, epoch) == warp_of(watch, watch.epoch))
    clock.shown = 1
    clock.phase_acquired = max(clock.phase_acquired, epoch)
    for index in set_bits(arrivals):
        arrived = watch.clocks[index]
        released = min(arrived.published, epoch)
        # Its last access may be a complete_tx behind its arrival. A relaxed arrival releases nothing.
        is_last = index == local_warp(watch, epoch)
        if (address_of(phase) != 0) & (not is_last) and phase.arrived[index] != 0:
            released = min(released, phase.arrived[index])
        show_known(watch, shown, index, released)
        learn_shown(watch, shown, strong.learners)
        show(watch, shown, arrived, index, released)
        comes_back(clock, arrived, epoch)
        clock.glimpsed = max(clock.glimpsed, arrived.acquired)


@inlined
def glimpse(clock: WarpClock, epoch: int, is_mine: bool) -> None:
    """A flag of the cluster, or of the own block, has shown everything up to an epoch."""
    clock.glimpsed = max(clock.glimpsed, epoch)
    clock.glimpsed_in_cluster = max(clock.glimpsed_in_cluster, epoch)
    if is_mine:
        clock.glimpsed_in_block = max(clock.glimpsed_in_block, epoch)


@inlined
def glimpse_own_block(watch: BlockWatch, entry: int, publication: int) -> None:
    """Another block of the cluster has published what it knew of this one."""
    clock, epoch = watch.clock, entry & records.PUBLISHED
    local = local_warp(watch, epoch)
    if entry & records.WHOLE != 0:
        clock.glimpsed_seen = joined(clock.glimpsed_seen, epoch)
    else:
        clock.glimpsed_seen[local] = max(clock.glimpsed_seen[local], epoch)
    if (local == clock.index) & (epoch > clock.returning):
        clock.returning = epoch
        clock.returning_by = publication


@compiled()
def take_chain(strong: StrongAccess, publisher: WarpClock, publication: int, is_mine: bool) -> None:
    """A warp of the cluster, perhaps of the own block, has shown what it knew of other blocks.

    It may know more now than when it published; what came after that is left out.
    """
    watch, epoch = strong.access.watch, publication & records.PUBLISHED
    clock = watch.clock
    glimpse(clock, min(max(publisher.acquired, publisher.glimpsed), epoch), is_mine)
    for index in range(records.FOREIGN_LENGTH):
        entry = publisher.foreign[index] & ~(records.GLIMPSED | records.TOLD_IN_BLOCK)
        published = entry & records.PUBLISHED
        if (published != 0) & (published < epoch):
            if in_block(watch, local_warp(watch, published)):
                glimpse_own_block(watch, entry, epoch)
            elif in_cluster(watch, published) | is_mine:
                learn(watch, strong.learners, published, is_own=False)
                told = records.TOLD_IN_BLOCK if is_mine else 0
                add_foreign(clock, entry | records.GLIMPSED | told)
            else:
                glimpse(clock, published, is_mine=False)


@compiled()
def take(strong: StrongAccess, publication: int, lane: int) -> None:
    """A lane has read a cell with a publication by a strong access."""
    watch, epoch = strong.access.watch, publication & records.PUBLISHED
    if epoch == 0:
        return
    clock, local = watch.clock, local_warp(watch, epoch)
    is_own, is_mine = warp_of(watch, epoch) == warp_of(watch, watch.epoch), in_block(watch, local)
    if is_own:
        know_own_lane(watch, lane, epoch)
    learn(watch, strong.learners, epoch, is_own)
    clock.shown = 1
    is_chain = publication & records.CHAIN != 0
    to_all = publication & records.WITHIN_BLOCK == 0
    to_members = to_all | (publication & records.WITHIN_CLUSTER != 0)
    of_member = to_members & (strong.scope != FOR_BLOCK) & in_cluster(watch, epoch)
    counts = (to_all & (strong.scope == FOR_ALL)) | of_member | is_mine
    if is_chain & (of_member | is_mine):
        publishers = watch_of(strong.access.frame.block.members[rank_of(watch, epoch)].block)
        take_chain(strong, publishers.clocks[local_warp(publishers, epoch)], publication, is_mine)
    if counts & is_chain & (is_mine | (not of_member)):
        strong.chained = max(strong.chained, epoch)
    if is_mine:
        # What the warp that published knows of the block; an atomic goes on with what others have published
        # in the same place, whether a fence followed or not.
        publisher, shown = watch.clocks[local], LaneWords.at(address_of(strong.shown))
        comes_back(clock, publisher, epoch)
        show_known(watch, shown, local, epoch)
        learn_shown(watch, shown, strong.learners)
        show(watch, shown, publisher, local, epoch)
        if follows_async():
            hand_over(watch, shown.words)
        shown.words = publisher.glimpsed_seen
        shown.words[local] = epoch
        show(watch, shown, publisher, local, epoch)
        if follows_async():
            hand_over(watch, shown.words)
    elif counts & (of_member | (not is_chain)):
        add_foreign(clock, (publication & ~(records.NARROW | records.CHAIN)) | records.GLIMPSED)


# mbarriers --------------------------------------------------------------------------------------------------


@inlined
def parity_asked(frame: WarpFrame, site: int, lane: int) -> int:
    """Return the parity that a lane tests an mbarrier for: a constant, a register, or a state of 64 bits."""
    row = row_of(frame, site)
    if row.step_base > 0:
        place = address_of(frame) + row.step_base
        if row.element_bits == 64:
            return shifted_right(LaneLongs.at(place).longs[lane], 63)
        return LaneWords.at(place).words[lane]
    return row.step


@inlined
def follow_phase(strong: StrongAccess, offset: int, word: int, lane: int, waits: bool) -> int:
    """A lane arrives at an mbarrier, or tests a phase of it.

    Return the address of the record of the last phase that is complete, 0 if it is not asked for or followed.
    """
    access = strong.access
    frame, home, watch, site = access.frame, access.home, access.watch, access.site
    if waits:
        seen = see_phase(frame, home, offset, word, lane, parity_asked(frame, site, lane))
        if (watch.cluster_blocks > 1) & (seen & NOT_COMPLETE == 0):
            is_narrow = access.flags & Flag.NARROW_PHASE != 0
            learn_members(watch, PhaseRecord.at(seen), strong.learners, is_narrow)
        return seen & ~NOT_COMPLETE
    arrive_at_phase(frame, home, offset, word, site, lane)
    return 0


@inlined
def access_barrier(strong: StrongAccess, cell: ShadowCell, kept: ShadowCell, lane: int, offset: int) -> None:
    """A lane accesses an mbarrier.

    Arrivals publish when their phase is complete: then the object has the other parity. What earlier phases
    published is kept in the next cell.
    """
    access, watch = strong.access, strong.access.watch
    reads, writes = access.flags & Flag.READS != 0, access.flags & Flag.WRITES != 0
    word = load_long(access.host + offset)
    held, last = cell.publication, 0
    if follows_async():
        last = follow_phase(strong, offset, word, lane, reads)
    elif reads & (watch.cluster_blocks > 1):
        learn_members(watch, PhaseRecord.at(0), strong.learners, is_narrow=False)
    phase = records.ODD_PHASE if word < 0 else 0
    so_far = held & records.PUBLISHED
    is_complete = (so_far != 0) & ((held ^ phase) & records.ODD_PHASE != 0)
    if is_complete:
        kept.publication = held
        kept.publishers = cell.publishers
        cell.publishers = 0
    if reads:
        take_phase(strong, kept.publication, lane, kept.publishers, PhaseRecord.at(last))
    if writes:
        # Warps of other blocks of a cluster are told of by `publish_to_phase`.
        own = 1 << local_warp(watch, watch.epoch) if access.home is watch else 0
        cell.publishers = cell.publishers | own
        newest = strong.published if is_complete else max(so_far, strong.published)
        cell.publication = newest | strong.marks | phase
    elif is_complete:
        cell.publication = phase


@inlined
def access_flag(strong: StrongAccess, cell: ShadowCell, lane: int) -> None:
    """A lane reads or writes a word by a strong access."""
    watch, flags = strong.access.watch, strong.access.flags
    held = cell.publication
    so_far, reads = held & records.PUBLISHED, flags & Flag.READS != 0
    if reads:
        take(strong, held, lane)
    publishes = flags & (Flag.WRITES | Flag.POLLS) == Flag.WRITES
    if publishes & (so_far < strong.published):
        # An atomic goes on with what others have published in the same place.
        joins = reads & (so_far != 0) & (not in_block(watch, local_warp(watch, so_far)))
        cell.publication = strong.published | strong.marks | (records.CHAIN if joins else 0)


@compiled()
def access_strongly(access: Access) -> None:
    """Lanes access memory by atomics, volatile accesses, or operations on mbarriers.

    Their cells publish what happened before, and readers acquire it, at once or by a fence that follows.
    """
    watch, flags = access.watch, access.flags
    clock, scope, phases = watch.clock, scope_of(flags), flags & Flag.PHASES != 0
    arrived = 0
    if phases & (flags & Flag.WRITES != 0):
        arrived = arrived_there(access)
    if flags & Flag.RELEASES != 0:
        publish(watch, access.active | arrived, scope == FOR_ALL, scope == FOR_CLUSTER)
    strong = StrongAccess.on_stack()
    strong.access = access
    strong.scope = scope
    strong.published = clock.published
    strong.marks = marks_of(clock, scope, phases)
    strong.learners = access.active | mask_of(access.frame.pcs == abi.EXITED)
    strong.chained = 0
    for lane in set_bits(access.active):
        offset = access.offsets[lane]
        place = access.plane + ((offset >> access.shift) << 2)
        if phases:
            access_barrier(
                strong, cell_at(place, access.stride), cell_at(place + 4, access.stride), lane, offset
            )
        else:
            access_flag(strong, cell_at(place, access.stride), lane)
            observe(access, lane, offset)
    clock.glimpsed = max(clock.glimpsed, strong.chained)
    if flags & Flag.ACQUIRES != 0:
        acquire(watch, (scope == FOR_ALL) | phases, scope == FOR_CLUSTER)
    if flags & Flag.VOLATILE_ACCESS == 0:
        watch.fresh = 1
