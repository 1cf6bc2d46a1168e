"""Whether an earlier access happened before one of the running warp.

An access is known by its epoch, the lanes that made it, and one word (`who`): its lane, its flags and its
instruction. It happened before a lane of the running warp if all its lanes are ordered before that lane: by a
barrier, by a release that the lane has acquired, or because both are atomic or volatile and need no order.
"""

from lanewise.jit.lane_functions import mask_of
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.watch_code.clocks.publications import is_complete, is_learnt, release_covers
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    epochs_exhausted,
    in_block,
    local_warp,
    warp_of,
)
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LANES

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
    # Lanes of one instruction that wrote the same value are as good as this lane.
    is_alone = (who & records.SEVERAL != 0) | (lanes & ~mine == 0)
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
    return WEAKLY_ORDERED if in_step | (clock.converged >= epoch) else UNORDERED


@compiled()
def release_orders(watch: BlockWatch, release: int, epoch: int, lanes: int, me: int) -> int:
    """Return whether a release that the warp has acquired orders an access of some lanes before one lane.

    It orders it only weakly if another lane acquired the release, and the lanes have just met since.
    """
    if release < epoch or not is_complete(watch, release, epoch, lanes):
        return NO_ORDER
    if is_learnt(watch.clock, release, 1 << lane_of(me)):
        return ORDERED
    return WEAKLY_ORDERED if watch.clock.met_after_acquire != 0 else NO_ORDER


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
