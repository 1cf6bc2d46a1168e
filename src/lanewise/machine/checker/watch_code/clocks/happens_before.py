"""What happened before what: what a release publishes, what an acquire makes known, which access came first.

A cell keeps its last publication: an epoch of the warp that made it, and whether that warp knew all that its
block had done. A publication that rests on those of other blocks stands for everything up to its epoch. A
vector clock has the last release of each warp. If only some lanes of the warp made it, it does not stand for
an earlier release by other lanes, which is kept beside it: what lanes did before all of them arrived at one
mbarrier is known by that, also after one of them has arrived at another one.

An access is known by its epoch, the lanes that made it, and one word (`who`): its lane, its flags and its
instruction. It happened before a lane of the running warp if all its lanes are ordered before that lane: by a
barrier, by a release that the lane has acquired, or because both are atomic or volatile and need no order.
"""

from lanewise.jit.lane_functions import address_of, any_lane, joined, lowest_bit, mask_of
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, PartialRelease, WarpClock
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    epochs_exhausted,
    in_block,
    in_cluster,
    local_warp,
    set_floors,
    warp_of,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import fenced_before_meeting
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LANES, LaneWords, follows_async


@inlined
def partial_release(watch: BlockWatch, epoch: int) -> PartialRelease:
    """Return the record of a release by its epoch; another one may be there."""
    return watch.watch.partial_releases[epoch & (records.RELEASES_KEPT - 1)]


@inlined
def adds_to(watch: BlockWatch, before: int, after: int) -> bool:
    """Return whether a release stands for accesses that a later one of the same warp does not stand for."""
    release = partial_release(watch, after)
    return (release.epoch == after) & (release.synced < before)


@compiled()
def keep_release(clock: WarpClock, release: int) -> None:
    """Keep a release beside the last one of its warp."""
    for index in range(records.RELEASES_KNOWN):
        if clock.known_releases[index] == release:
            return
    clock.known_releases[clock.known_count & (records.RELEASES_KNOWN - 1)] = release
    clock.known_count += 1


@inlined
def keep_earlier(watch: BlockWatch, clock: WarpClock, known: int, release: int) -> None:
    """Keep a release that a clock learns of after a later one, `known`, of the same warp."""
    if (release < known) & (release != 0) and adds_to(watch, release, known):
        keep_release(clock, release)


@compiled()
def learn_releases(watch: BlockWatch, clock: WarpClock, seen: LaneWords, epochs: LaneWords) -> None:
    """Let a clock learn of later releases of the block's warps; `seen` is its vector of those it knows.

    A release by some lanes of a warp does not stand for an earlier one of other lanes, which is kept.
    """
    for index in range(watch.warps):
        before, after = seen.words[index], epochs.words[index]
        if (before < after) & (before != 0) and adds_to(watch, before, after):
            keep_release(clock, before)
    seen.words = joined(seen.words, epochs.words)


@inlined
def see_releases(watch: BlockWatch, clock: WarpClock, seen: LaneWords, epochs: LaneWords) -> None:
    """Let a clock learn of releases of the block's warps, a vector of epochs, if some are later."""
    if any_lane(epochs.words > seen.words):
        learn_releases(watch, clock, seen, epochs)


@inlined
def share_releases(target: WarpClock, source: WarpClock) -> None:
    """Let one clock know the releases which another one keeps."""
    if source.known_count > 0:
        for index in range(records.RELEASES_KNOWN):
            release = source.known_releases[index]
            if release != 0:
                keep_release(target, release)


@compiled()
def publish(watch: BlockWatch, lanes: int, for_all: bool, for_cluster: bool) -> None:
    """A fence or a release by lanes of the running warp, at the scope of the GPU, the cluster or the block.

    `lanes` are those that release, and those that have released all they did in the same place before.
    """
    clock, epoch = watch.clock, watch.epoch
    note_partial_release(watch, lanes)
    clock.published = epoch
    if for_all:
        clock.published_gpu = epoch
    if for_all | for_cluster:
        clock.published_cluster = epoch
    whole = 1
    for index in range(watch.warps):
        other = watch.clocks[index]
        if (other is not clock) & (clock.seen[index] < other.last):
            whole = 0
    clock.published_whole = whole


@inlined
def unreleased_lanes(watch: BlockWatch, lanes: int) -> int:
    """Return lanes that have made accesses of their own, which a release by others does not publish."""
    clock = watch.clock
    others = clock.touched & ~lanes
    if others != 0:
        # Lanes that have synchronised with the one that releases are known to it.
        met = watch.running_lanes.seen[lowest_bit(lanes)] > clock.synced
        return others & ~mask_of(met)
    return others


@inlined
def note_partial_release(watch: BlockWatch, lanes: int) -> None:
    """Put a release by some lanes on record, with those whose accesses it does not publish."""
    clock, epoch = watch.clock, watch.epoch
    others = unreleased_lanes(watch, lanes)
    release = partial_release(watch, epoch)
    if release.released == epoch:  # lanes of one instruction that release in different blocks
        others &= release.others
    release.epoch = epoch if others != 0 else 0
    synced = max(clock.synced, clock.acquired_at)
    if follows_async():
        # Lanes that have fenced and then met count as synchronised.
        release.synced = max(synced, fenced_before_meeting(watch, others))
    else:
        release.synced = synced
    release.others = others
    release.released = epoch
    release.seen = clock.seen


@inlined
def note_release_by_fences(watch: BlockWatch, epoch: int, barrier: WarpClock) -> None:
    """Put on record that an epoch releases what warps did before their fences in front of a barrier."""
    release = partial_release(watch, epoch)
    release.epoch = 0
    release.released = epoch
    release.seen = barrier.fences
    for index in range(watch.warps):
        fence = partial_release(watch, barrier.fences[index])
        if (fence.released == barrier.fences[index]) & (fence.released != 0):
            release.seen = joined(release.seen, fence.seen)


# what a release stands for ----------------------------------------------------------------------------------


@inlined
def release_covers(watch: BlockWatch, release: int, warp: int, epoch: int) -> bool:
    """Return whether a release publishes what a warp of the same block, by its number there, did in an epoch.

    It does if the warp that released knew of it. A release that is too long ago to be on record counts.
    """
    noted = partial_release(watch, release)
    return (noted.released != release) | (noted.seen[warp] >= epoch)


@inlined
def is_complete(watch: BlockWatch, release: int, epoch: int, lanes: int) -> bool:
    """Return whether a release publishes accesses that some lanes of its warp made in an epoch."""
    noted = partial_release(watch, release)
    is_partial = (noted.epoch == release) & (noted.synced < epoch)
    return not (is_partial & (noted.others & lanes != 0))


@inlined
def is_learnt(clock: WarpClock, release: int, lanes: int) -> bool:
    """Return whether lanes know of a release: they acquired it themselves, or have synchronised since."""
    for index in range(clock.learnt_count):
        if (clock.learnt[index] == release) & (lanes & ~clock.learners[index] != 0):
            return False
    return True


@inlined
def has_met_learners(clock: WarpClock, release: int, lanes: int) -> bool:
    """Return whether lanes have met others that acquired a release themselves."""
    for index in range(clock.learnt_count):
        if clock.learnt[index] == release:
            return lanes & ~(clock.learners[index] | clock.met_learners[index]) == 0
    return False


@inlined
def is_known_by_barrier(watch: BlockWatch, release: int) -> bool:
    """Return whether the warp knew of a release by a barrier: then all of its lanes know of it."""
    clock, local = watch.clock, local_warp(watch, release)
    if in_block(watch, local):
        return clock.seen[local] >= release
    if clock.foreign_count > 0:
        for index in range(records.FOREIGN_LENGTH):
            entry = clock.foreign[index]
            if (entry & records.PUBLISHED == release) & (entry & records.GLIMPSED == 0):
                return True
    return False


# learning ---------------------------------------------------------------------------------------------------


@compiled()
def learn(watch: BlockWatch, lanes: int, release: int, is_own: bool) -> None:
    """Some lanes learn of a release, perhaps by their own warp; or all, if all are there."""
    clock, noted = watch.clock, partial_release(watch, release)
    if noted.epoch == release:
        so_far = clock.incomplete_from
        if (so_far == 0) | (noted.synced < so_far):
            clock.incomplete_from = max(noted.synced, 1)
    # What all lanes know needs no note; of releases that some lanes know already, others may learn now.
    is_noted = (clock.touched & ~lanes == 0) & (lanes == EVERY_LANE)
    count = clock.learnt_count
    for index in range(count):
        # What the lane of this warp that published knows is not told apart from what others know.
        is_same = clock.learnt[index] == release
        if is_same | is_own:
            clock.learners[index] = clock.learners[index] | lanes
        is_noted = is_noted | is_same
    if (not is_noted) & (count < records.LEARNT_LENGTH) and not is_known_by_barrier(watch, release):
        local = local_warp(watch, release)
        clock.learnt[count] = release
        clock.learners[count] = lanes
        clock.met_learners[count] = 0
        clock.known_before[count] = clock.seen[local] if in_block(watch, local) else 0
        clock.learnt_count = count + 1


@inlined
def learn_shown(watch: BlockWatch, shown: LaneWords, lanes: int) -> None:
    """Some lanes learn of the releases that a warp knew of when it published, a vector of epochs."""
    clock = watch.clock
    for index in range(clock.learnt_count):
        release = clock.learnt[index]
        local = local_warp(watch, release)
        if in_block(watch, local) and shown.words[local] >= release:
            clock.learners[index] = clock.learners[index] | lanes


@inlined
def know_block(watch: BlockWatch, clock: WarpClock) -> None:
    """Know from now on what strong reads have shown of the own block."""
    seen, shown = LaneWords.at(address_of(clock.seen)), LaneWords.at(address_of(clock.glimpsed_seen))
    see_releases(watch, clock, seen, shown)


@compiled()
def acquire(watch: BlockWatch, for_all: bool, for_cluster: bool) -> None:
    """A fence or an acquire: what strong reads have shown is known from now on.

    If its scope is only the block, what the flags of other blocks have shown is not; if it is the cluster,
    those of its blocks count. What such a flag has shown of further blocks is known, too: causality order is
    transitive (PTX ISA, memory consistency model), whatever the scope of each step.
    """
    clock = watch.clock
    know_block(watch, clock)
    clock.returned = clock.returning
    clock.returned_by = clock.returning_by
    # What lanes did before one of them acquired something is known to the one that published it.
    if clock.shown != 0:
        clock.acquired_at = watch.epoch
        clock.touched = 0
        clock.shown = 0
    in_scope = clock.glimpsed_in_cluster if for_cluster else clock.glimpsed_in_block
    shown = clock.glimpsed if for_all else in_scope
    clock.acquired = max(clock.acquired, shown)
    clock.glimpsed = shown
    clock.glimpsed_in_cluster = shown
    clock.glimpsed_in_block = min(clock.glimpsed_in_block, shown)
    if clock.foreign_count > 0:
        for index in range(records.FOREIGN_LENGTH):
            entry = clock.foreign[index]
            if entry & records.GLIMPSED != 0:
                of_member = for_cluster & in_cluster(watch, entry & records.PUBLISHED)
                counts = for_all | of_member | (entry & records.TOLD_IN_BLOCK != 0)
                known = entry & ~(records.GLIMPSED | records.TOLD_IN_BLOCK)
                clock.foreign[index] = known if counts else 0
    set_floors(watch)


@compiled()
def add_foreign(clock: WarpClock, entry: int) -> None:
    """Keep a publication of another block; one that has to make way counts for everything."""
    known = entry & ~(records.GLIMPSED | records.TOLD_IN_BLOCK)
    for index in range(records.FOREIGN_LENGTH):
        if (clock.foreign[index] == entry) | (clock.foreign[index] == known):
            return
    place = clock.foreign_count & (records.FOREIGN_LENGTH - 1)
    clock.acquired = max(clock.acquired, clock.foreign[place] & records.PUBLISHED)
    clock.foreign[place] = entry
    clock.foreign_count += 1


# which access came first ------------------------------------------------------------------------------------

#: The answers of `ordered`. Weakly: lanes of a warp met, or a strong read without a fence saw a flag, which
#: hardware takes for an order and the PTX memory model does not.
UNORDERED, ORDERED, WEAKLY_ORDERED = 0, 1, 2
#: The answers of `release_orders`, beside these: it says nothing about the access.
NO_ORDER = UNORDERED


@inlined
def lane_of(who: int) -> int:
    """Return the lane of an access."""
    return who & (LANES - 1)


@inlined
def lanes_of(who: int) -> int:
    """Return the lanes that made an access, as bits: all of them for an instruction of the whole warp."""
    return EVERY_LANE if who & records.COLLECTIVE != 0 else 1 << (who & (LANES - 1))


@inlined
def need_no_order(watch: BlockWatch, epoch: int, who: int, me: int) -> bool:
    """Return whether two accesses are both strong, at scopes that include both threads: they do not race."""
    owner = warp_of(watch, epoch)
    warps = watch.warps * watch.cluster_blocks
    of_cluster = (owner >= watch.cluster_first) & (owner < watch.cluster_first + warps)
    is_narrower = (who | me) & records.STRONG_IN_BLOCK != 0
    at_large = (who & me & records.STRONG != 0) & (of_cluster | (not is_narrower))
    both = (who | who << 1) & (me | me << 1)
    return at_large | ((both & records.STRONG_IN_BLOCK != 0) & in_block(watch, owner - watch.first_warp))


@compiled()
def ordered_in_warp(watch: BlockWatch, epoch: int, who: int, lanes: int, me: int) -> int:
    """Return whether an access of the running warp happened before one of its lanes."""
    clock, mine = watch.clock, lanes_of(me)
    is_alone = lanes & ~mine == 0
    is_collective = (who | me) & records.COLLECTIVE != 0
    if (is_alone & (not is_collective)) | (clock.synced >= epoch):
        return ORDERED
    known = mask_of(watch.running_lanes.seen[lane_of(me)] >= epoch)
    if (lanes & ~(mine | known) == 0) & (not is_collective):
        return ORDERED
    # What the lanes did before a release that others have acquired, and told this lane of.
    returned = clock.returned
    if (
        returned >= epoch
        and is_complete(watch, returned, epoch, lanes)
        and is_learnt(clock, clock.returned_by, mine)
    ):
        return ORDERED
    # Volatile accesses of a warp are strong, but such code relies on lock step for its values.
    in_step = who & me & records.VOLATILE != 0
    met = mask_of(watch.running_lanes.met[lane_of(me)] >= epoch)
    have_met = (lanes & ~(mine | known | met) == 0) & (not is_collective)
    return WEAKLY_ORDERED if in_step | have_met | (clock.converged >= epoch) else UNORDERED


@compiled()
def release_orders(watch: BlockWatch, release: int, epoch: int, lanes: int, me: int) -> int:
    """Return whether a release that the warp has acquired orders an access of some lanes before one lane.

    It orders it only weakly if another lane acquired the release, and the lanes have just met since.
    """
    if release < epoch or not is_complete(watch, release, epoch, lanes):
        return NO_ORDER
    if is_learnt(watch.clock, release, 1 << lane_of(me)):
        return ORDERED
    return WEAKLY_ORDERED if has_met_learners(watch.clock, release, 1 << lane_of(me)) else NO_ORDER


@inlined
def orders_lane(watch: BlockWatch, epoch: int, lanes: int, me: int) -> bool:
    """Return whether a lane knows an access by a release that it, or its whole warp, has acquired.

    Other lanes of its warp may know of a later one, which stands in the vector clock.
    """
    clock, owner = watch.clock, warp_of(watch, epoch)
    for index in range(clock.learnt_count):
        release, before = clock.learnt[index], clock.known_before[index]
        if warp_of(watch, release) == owner:
            if release_orders(watch, release, epoch, lanes, me) == ORDERED:
                return True
            if release_orders(watch, before, epoch, lanes, me) == ORDERED:
                return True
    return False


@inlined
def ordered_in_block(watch: BlockWatch, epoch: int, lanes: int, me: int) -> int:
    """Return whether what the warp knows of another warp of its block orders an access of that before."""
    clock, owner, local = watch.clock, warp_of(watch, epoch), local_warp(watch, epoch)
    answer = release_orders(watch, clock.seen[local], epoch, lanes, me)
    if answer == ORDERED:
        return ORDERED
    if clock.known_count > 0:
        for index in range(records.RELEASES_KNOWN):
            release = clock.known_releases[index]
            if (release != 0) & (warp_of(watch, release) == owner):
                kept = release_orders(watch, release, epoch, lanes, me)
                if kept == ORDERED:
                    return ORDERED
                answer = max(answer, kept)
    if orders_lane(watch, epoch, lanes, me):
        return ORDERED
    # What a strong read without a fence has shown.
    shown = release_orders(watch, clock.glimpsed_seen[local], epoch, lanes, me)
    if (shown == WEAKLY_ORDERED) | ((shown == ORDERED) & (clock.seen[local] < epoch)):
        return WEAKLY_ORDERED
    return answer


@inlined
def ordered_by_foreign(watch: BlockWatch, epoch: int, who: int, lanes: int, me: int) -> int:
    """Return whether a publication of another block that the warp has read orders an access before."""
    clock, warps, owner = watch.clock, watch.warps, warp_of(watch, epoch)
    block = owner // warps
    reads_written = who & records.READ_OF_WRITTEN != 0
    answer = UNORDERED
    for index in range(records.FOREIGN_LENGTH):
        entry = clock.foreign[index]
        published = entry & records.PUBLISHED
        publisher = warp_of(watch, published)
        # A warp that published stands for another one of its block if it knew what that had done.
        knew = (entry & records.WHOLE != 0) | release_covers(watch, published, owner - block * warps, epoch)
        stands = (publisher == owner) | (knew & (publisher // warps == block))
        order = release_orders(watch, published, epoch, lanes, me)
        is_narrow = (entry & records.NARROW != 0) & reads_written
        if (order == ORDERED) & stands:
            if (entry & records.GLIMPSED == 0) & (not is_narrow):
                return ORDERED
            answer = WEAKLY_ORDERED
        if order == WEAKLY_ORDERED:
            answer = WEAKLY_ORDERED
    return answer


@compiled()
def ordered(watch: BlockWatch, epoch: int, who: int, lanes: int, me: int) -> int:
    """Return whether an access by some lanes happened before `me`: ORDERED, WEAKLY_ORDERED or UNORDERED."""
    clock = watch.clock
    is_same_warp = warp_of(watch, epoch) == warp_of(watch, watch.epoch)
    # Volatile accesses order nothing: lanes of one warp that rely on lock step are reported.
    in_step = (who & me & records.VOLATILE != 0) & is_same_warp
    if (need_no_order(watch, epoch, who, me) & (not in_step)) | epochs_exhausted(watch):
        return ORDERED
    if is_same_warp:
        return ordered_in_warp(watch, epoch, who, lanes, me)
    answer = release_orders(watch, clock.acquired, epoch, lanes, me)
    if answer == ORDERED:
        return ORDERED
    # What was only glimpsed gives no guarantee.
    if release_orders(watch, clock.glimpsed, epoch, lanes, me) != NO_ORDER:
        answer = WEAKLY_ORDERED
    if in_block(watch, local_warp(watch, epoch)):
        return stronger(answer, ordered_in_block(watch, epoch, lanes, me))
    if clock.foreign_count > 0:
        return stronger(answer, ordered_by_foreign(watch, epoch, who, lanes, me))
    return answer


@inlined
def stronger(weak: int, other: int) -> int:
    """Return the stronger of two orders, of which the first is not ORDERED."""
    return other if other != UNORDERED else weak
