"""Release and acquire: what a fence or a strong write publishes, and what an acquire makes known.

A cell keeps its last publication: an epoch of the warp that made it, and whether that warp knew all that its
block had done. A publication that rests on those of other blocks stands for everything up to its epoch.

A vector clock has the last release of each warp. If only some lanes of the warp made it, it does not stand
for an earlier release by other lanes, which is kept beside it: what lanes did before all of them arrived at
one mbarrier is known by that, also after one of them has arrived at another one.
"""

from lanewise.jit.lane_functions import address_of, any_lane, joined, lowest_bit, mask_of
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, PartialRelease, WarpClock
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    in_block,
    in_cluster,
    local_warp,
    set_floors,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import fenced_before_meeting
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LaneWords, follows_async


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
    those of its blocks count.
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
    shown = clock.glimpsed if for_all else 0
    clock.acquired = max(clock.acquired, shown)
    clock.glimpsed = shown
    if clock.foreign_count > 0:
        for index in range(records.FOREIGN_LENGTH):
            entry = clock.foreign[index]
            if entry & records.GLIMPSED != 0:
                counts = for_all | (for_cluster & in_cluster(watch, entry & records.PUBLISHED))
                clock.foreign[index] = entry & ~records.GLIMPSED if counts else 0
    set_floors(watch)


@compiled()
def add_foreign(clock: WarpClock, entry: int) -> None:
    """Keep a publication of another block; one that has to make way counts for everything."""
    for index in range(records.FOREIGN_LENGTH):
        if clock.foreign[index] == entry:
            return
    place = clock.foreign_count & (records.FOREIGN_LENGTH - 1)
    clock.acquired = max(clock.acquired, clock.foreign[place] & records.PUBLISHED)
    clock.foreign[place] = entry
    clock.foreign_count += 1
