"""mbarriers: where their life begins and ends, who arrived in a phase, who saw it complete, what that shows.

A bulk copy that an mbarrier counts is complete when its phase is, and a thread may rely on it once it, or a
thread that it has synchronised with, has seen that phase complete. A tcgen05.commit tells of everything that
its thread has issued to the pipe before: a thread may rely on an operation if it knows the phase of any later
commit of the same thread to be complete. By the PTX ISA it needs a tcgen05.fence::after_thread_sync as well
before an asynchronous instruction of its own.
"""

from lanewise.jit.lane_functions import address_of, joined, lanes_in, lowest_bit, mask_of, set_bits
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    BARRIERS_FOLLOWED,
    COMMITS_KEPT,
    HANDED_OVER,
    PHASES_KEPT,
    BarrierUse,
    FollowedBarrier,
    NotedOperation,
    PhaseRecord,
    TensorClock,
)
from lanewise.machine.checker.records import BlockWatch, Flag
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.clusters import (
    AWAY,
    AWAY_NARROWLY,
    HERE,
    note_remote_arrival,
    publish_to_phase,
)
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, UNORDERED, lanes_of, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    in_block,
    local_warp,
    operand_of,
    rank_of,
    row_of,
    suspect,
    watch_of,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import (
    async_clock,
    join_vectors,
    operation,
    publish_own,
    running_clock,
)
from lanewise.machine.checker.watch_code.watch_module import (
    LaneLongs,
    clear_bytes,
    load_long,
)
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.warp_ops.mbarrier import BEFORE, BEFORE_BITS, MOST, PENDING

#: The bit of an mbarrier object that is its parity.
PARITY_BIT = 63
#: The bit of the answer of `see_phase` that says that the phase is not complete.
NOT_COMPLETE = 1


@inlined
def followed_barrier(home: BlockWatch, number: int) -> FollowedBarrier:
    """Return an mbarrier of a block by its number in the block's table."""
    return FollowedBarrier.at(home.followed + number * FollowedBarrier.BYTES)


@inlined
def phase_of(barrier: FollowedBarrier, number: int) -> PhaseRecord:
    """Return the record of a phase of an mbarrier."""
    return barrier.phases[number & (PHASES_KEPT - 1)]


@inlined
def is_initialised(word: int) -> bool:
    """Return whether a word of memory is an mbarrier object that is in use."""
    return (word >> BEFORE) & ((1 << BEFORE_BITS) - 1) != 0


# which mbarriers there are ----------------------------------------------------------------------------------


@compiled()
def follow_barrier(home: BlockWatch, offset: int, word: int) -> int:
    """Return the number of an mbarrier, -1 if there are too many to follow.

    `word` is the object before the instruction; a phase that was completed since the last look is counted.
    """
    count, parity = home.followed_count, (word >> PARITY_BIT) & 1
    for number in range(count):
        known = followed_barrier(home, number)
        if known.offset == offset:
            if known.parity != parity:
                known.phase += 1
                known.parity = parity
                clear_bytes(address_of(phase_of(known, known.phase)), PhaseRecord.BYTES)
            return number
    if count >= BARRIERS_FOLLOWED:
        return -1
    made = followed_barrier(home, count)
    clear_bytes(address_of(made), FollowedBarrier.BYTES)
    made.offset = offset
    made.parity = parity
    made.phase = PHASES_KEPT  # no number of a phase is 0
    is_first = count == 0
    home.followed_from = offset if is_first else min(home.followed_from, offset)
    home.followed_to = max(0 if is_first else home.followed_to, offset + MBARRIER_BYTES)
    home.followed_count = count + 1
    return count


@compiled()
def live_barrier_at(home: BlockWatch, host: int, address: int) -> int:
    """Return the offset of the mbarrier in use that a byte of shared memory belongs to; -1 if it is of none.

    `host` is where the shared memory of the block lies.
    """
    offset = address & abi.OFFSET_MASK
    for number in range(home.followed_count):
        start = followed_barrier(home, number).offset
        is_there = (start >= 0) & (start <= offset) & (offset < start + MBARRIER_BYTES)
        if is_there and is_initialised(load_long(host + start)):
            return start
    return -1


@inlined
def owe(barrier: FollowedBarrier, row: int) -> None:
    """Note an asynchronous operation that will tell an mbarrier of bytes, or arrive, in this phase."""
    barrier.owed_phase = barrier.phase
    barrier.owed_row = row


@compiled()
def phase_of_commit(home: BlockWatch, number: int, word: int) -> int:
    """Return the phase that a tcgen05.commit arrives in, which is issued now; 0 if it is not followed.

    Commits that were issued before and have not arrived, at least as many as are not among the arrivals of
    the phase, come first: the phase may be complete without this one.
    """
    if number < 0:
        return 0
    barrier = followed_barrier(home, number)
    now, count, pending = barrier.phase, max(word & MOST, 1), (word >> PENDING) & MOST
    if barrier.commit_phase != now:
        barrier.commit_phase = now
        barrier.commits = 0
    under_way = max(barrier.commits - (count - pending), 0)
    barrier.commits += 1
    return now if under_way < pending else now + 1 + (under_way - pending) // count


@inlined
def check_commit(
    frame: WarpFrame, row: int, barrier: FollowedBarrier, phase: int, lane: int, word: int
) -> None:
    """Report a commit that arrives in a later phase: those under way complete this one without it."""
    if (phase > barrier.phase) & (watch_of(frame.block).cluster_blocks == 1):
        suspect(Suspicion.ARRIVAL_UNORDERED, frame, row, lane, barrier.offset, word & MOST, 0)


@inlined
def check_initialised(
    frame: WarpFrame, row: int, home: BlockWatch, number: int, lane: int, address: int
) -> None:
    """Report an operation that tells an mbarrier of another block something before its init is known.

    tcgen05.alloc of a pair of blocks waits for both of them, but orders no accesses.
    """
    watch, barrier = watch_of(frame.block), followed_barrier(home, number)
    epoch = barrier.init_epoch
    if (home is not watch) & (epoch > 0) and ordered(
        watch, epoch, 0, 1 << barrier.init_lane, lane
    ) == UNORDERED:
        suspect(Suspicion.BARRIER_INIT_UNORDERED, frame, row, lane, address, epoch, barrier.initialiser)


@compiled()
def used_by_copy(frame: WarpFrame, row: int, home: BlockWatch, number: int, lane: int) -> None:
    """A bulk copy is told to an mbarrier, which the asynchronous proxy has to see as it was initialised."""
    watch, barrier = watch_of(frame.block), followed_barrier(home, number)
    barrier.row = row
    barrier.copy_phase = barrier.phase
    barrier.copy_row = row
    owe(barrier, row)
    epoch = barrier.init_epoch
    if (home is watch) & (epoch > 0) & (barrier.visible == 0):
        barrier.visible = 1
        clock = async_clock(watch, barrier.init_warp)
        fenced = max(clock.init_fenced[barrier.init_lane], clock.last_fence[barrier.init_lane])
        if fenced < epoch:
            suspect(Suspicion.BARRIER_UNFENCED, frame, row, lane, barrier.offset, epoch, 0)


@inlined
def note_sent(watch: BlockWatch, barrier: FollowedBarrier, row: int, epoch: int) -> None:
    """Note a copy out of a block's own memory that an mbarrier of another block counts."""
    rank = rank_of(watch, epoch)
    barrier.sent_phase[rank] = barrier.phase
    barrier.sent_epoch[rank] = epoch
    barrier.sent_row[rank] = row
    barrier.sent_open[rank] = 1
    watch.sent = epoch


# what is known of a phase -----------------------------------------------------------------------------------


@compiled()
def phase_is_known(
    watch: BlockWatch, home: BlockWatch, number: int, phase: int, me: int, by_each: bool
) -> bool:
    """Return whether an access may rely on a phase being complete.

    Its thread has seen that, or it comes after a thread that has; the same for a later phase. Instructions of
    a whole warp come after what any of its lanes has seen, unless `by_each`: then each lane has to know it.
    """
    if phase == 0:
        return True  # there are too many mbarriers to follow this one
    barrier = followed_barrier(home, number)
    now = barrier.phase
    if phase >= now:
        return False
    if phase < now - (PHASES_KEPT - 1):
        return True  # too long ago to be on record
    mine = lanes_of(me)
    if me & records.COLLECTIVE != 0:
        mine = alive_lanes(WarpFrame.at(watch.watch.current))
    for later in range(phase, now):
        seen = phase_of(barrier, later)
        for warp in range(watch.warps):
            epoch, lanes = seen.witnessed[warp], seen.witnesses[warp]
            if epoch != 0:
                is_own = (warp == watch.clock.index) & (home is watch)
                is_seen = mine & ~lanes == 0 if by_each else lanes & mine != 0
                if is_own & is_seen:
                    return True
                if ordered(watch, epoch, 0, lanes, me) == ORDERED:
                    return True
    return False


@compiled()
def phase_is_over(watch: BlockWatch, number: int, phase: int, me: int) -> bool:
    """Return whether a lane knows that a phase is complete.

    It, or somebody before it, has seen that, or all arrivals of the phase happened before.
    """
    if phase_is_known(watch, watch, number, phase, me, by_each=False):
        return True
    arrivals = phase_of(followed_barrier(watch, number), phase)
    for warp in range(watch.warps):
        epoch, lanes = arrivals.arrived[warp], arrivals.arrivers[warp]
        if epoch != 0 and ordered(watch, epoch, 0, lanes, me) == UNORDERED:
            return False
    return True


# arriving ---------------------------------------------------------------------------------------------------


@inlined
def check_arrival(
    frame: WarpFrame, barrier: FollowedBarrier, number: int, word: int, site: int, lane: int, at_home: bool
) -> None:
    """Count an arrival, and report it if it may come in another phase than it is meant for."""
    watch, row = watch_of(frame.block), row_of(frame, site)
    count = operand_of(frame, lane, row.step_base, row.step)
    if count > 0:
        epoch, now = watch.epoch, barrier.phase
        begins = barrier.arrival_epoch != epoch
        before = 0 if begins else barrier.arrivals
        barrier.arrival_epoch = epoch
        barrier.arrivals = before + count
        pending = (word >> PENDING) & MOST
        if (pending >= before) & (pending < before + count):
            suspect(Suspicion.ARRIVALS_BEYOND_COUNT, frame, site, lane, barrier.offset, pending, 0)
        # Other blocks of a cluster may have arrived, whose clocks are not on record here.
        is_followed = begins & (now > PHASES_KEPT) & (watch.cluster_blocks == 1)
        if is_followed and not phase_is_over(watch, number, now - 1, lane):
            suspect(Suspicion.ARRIVAL_UNORDERED, frame, site, lane, barrier.offset, word & MOST, 0)
        if at_home:
            phase, index = phase_of(barrier, now), watch.clock.index
            phase.arrived[index] = epoch
            phase.arrivers[index] = phase.arrivers[index] | 1 << lane


@inlined
def tell_phase(watch: BlockWatch, phase: PhaseRecord) -> None:
    """Note what the running warp knows in a phase: it passes to those who see the phase complete."""
    index = watch.clock.index
    clock = publish_own(watch, index)
    join_vectors(address_of(phase), address_of(clock))
    # By custom, arrivals hand over what was read before them, without a fence between the proxies.
    phase.known[HANDED_OVER] = joined(phase.known[HANDED_OVER], watch.clock.seen)
    phase.known[HANDED_OVER][index] = watch.epoch


@compiled()
def arrive_at_phase(frame: WarpFrame, home: BlockWatch, offset: int, word: int, site: int, lane: int) -> None:
    """A thread arrives at an mbarrier, or tells it of bytes to come."""
    watch = watch_of(frame.block)
    number = follow_barrier(home, offset, word)
    if number < 0:
        return
    barrier = followed_barrier(home, number)
    barrier.row = site
    phase, at_home = phase_of(barrier, barrier.phase), home is watch
    if watch.cluster_blocks > 1:
        is_narrow = row_of(frame, site).flags & Flag.NARROW_PHASE != 0
        away = AWAY_NARROWLY if is_narrow else AWAY
        publish_to_phase(watch, phase, HERE if at_home else away)
    if row_of(frame, site).flags & Flag.ARRIVES_LATER != 0:
        owe(barrier, site)
    check_arrival(frame, barrier, number, word, site, lane, at_home)
    if at_home:
        tell_phase(watch, phase)
    else:
        note_remote_arrival(watch, home, lane, number, barrier.phase)


@compiled()
def see_phase(frame: WarpFrame, home: BlockWatch, offset: int, word: int, lane: int, asked: int) -> int:
    """A lane tests a phase by its parity.

    Return the address of the PhaseRecord of the last phase that is complete, 0 if that is not followed; with
    NOT_COMPLETE if the lane asks for the next one.
    """
    watch = watch_of(frame.block)
    number = follow_barrier(home, offset, word)
    if (number < 0) | (home is not watch):
        return 0
    barrier = followed_barrier(home, number)
    phase, index = phase_of(barrier, barrier.phase - 1), watch.clock.index
    if barrier.parity == asked & 1:
        return address_of(phase) | NOT_COMPLETE
    join_vectors(address_of(running_clock(watch)), address_of(phase))
    # Of one warp the first lanes count: what they tell others is known the sooner.
    if phase.witnessed[index] == 0:
        phase.witnessed[index] = watch.epoch
    phase.witnesses[index] = phase.witnesses[index] | 1 << lane
    return address_of(phase)


@inlined
def tensor_clock(watch: BlockWatch, index: int) -> TensorClock:
    """Return the TensorClock of a warp by its number in the block."""
    return TensorClock.at(watch.tensor_clocks + index * TensorClock.BYTES)


@compiled()
def tensor_is_complete(
    watch: BlockWatch, product: NotedOperation, epoch: int, me: int, by_each: bool
) -> bool:
    """Return whether an operation of the pipe of tcgen05 is known to be complete, to each lane or to some."""
    home = product.home
    # Another cluster, or an earlier one.
    if (home.cluster_first != watch.cluster_first) | (epoch < home.start):
        return True
    clock = tensor_clock(home, product.agent)
    count = clock.commit_count
    # What was committed longer ago than the commits go back counts as known.
    if count > COMMITS_KEPT and epoch < clock.commits[count & (COMMITS_KEPT - 1)].epoch:
        return True
    for number in range(max(count - COMMITS_KEPT, 0), count):
        commit = clock.commits[number & (COMMITS_KEPT - 1)]
        is_later = (commit.epoch > epoch) & (commit.lane == product.lane)
        if is_later and phase_is_known(watch, commit.home, commit.number, commit.phase, me, by_each):
            return True
    return False


@compiled()
def is_fenced(watch: BlockWatch, epoch: int) -> bool:
    """Return whether the running warp knew of an epoch at its last tcgen05.fence::after_thread_sync."""
    clock, now = tensor_clock(watch, watch.clock.index), watch.clock
    if clock.after_fence < epoch:
        return False
    local = local_warp(watch, epoch)
    if not in_block(watch, local):
        return True
    knows = (now.acquired >= epoch) | (now.seen[local] >= epoch)
    knew = (clock.after_acquired >= epoch) | (clock.after_seen[local] >= epoch)
    return knew | (not knows)  # known in another way, which is not followed back to the fence


@compiled()
def completion_is_fenced(watch: BlockWatch, epoch: int, me: int) -> bool:
    """Return whether the warp knew at its last fence that an operation of the pipe, complete now, was."""
    product, own = operation(watch, epoch), tensor_clock(watch, watch.clock.index)
    home = product.home
    if (product.epoch != epoch) | (home.cluster_first != watch.cluster_first) | (epoch < home.start):
        return True  # too long ago
    clock = tensor_clock(home, product.agent)
    for number in range(max(clock.commit_count - COMMITS_KEPT, 0), clock.commit_count):
        commit = clock.commits[number & (COMMITS_KEPT - 1)]
        if (commit.epoch > epoch) & (commit.lane == product.lane):
            barrier = followed_barrier(commit.home, commit.number)
            now = barrier.phase
            if (commit.phase == 0) | (commit.phase < now - (PHASES_KEPT - 1)):
                return True  # not on record
            for later in range(commit.phase, now):
                seen = phase_of(barrier, later)
                for warp in range(watch.warps):
                    at = seen.witnessed[warp]
                    is_own = (warp == watch.clock.index) & (commit.home is watch)
                    if (at != 0) & is_own & (at <= own.after_fence):
                        return True
                    # The warp knew at its fence of lanes of another one that saw the phase complete.
                    knew = (at != 0) & (not is_own) and is_fenced(watch, at)
                    if knew and ordered(watch, at, 0, seen.witnesses[warp], me) == ORDERED:
                        return True
    return False


@inlined
def initialise_barriers(
    frame: WarpFrame, site: int, home: BlockWatch, offsets: LaneLongs, active: int
) -> None:
    """Put the mbarriers that some lanes initialise on record."""
    for lane in set_bits(active):
        number = follow_barrier(home, offsets.longs[lane], 0)
        if number >= 0:
            made = followed_barrier(home, number)
            made.init_epoch = watch_of(frame.block).epoch
            made.init_warp = frame.index
            made.init_lane = lane
            made.initialiser = (row_of(frame, site).number << records.SITE_SHIFT) | lane


@inlined
def commit_is_known(watch: BlockWatch, barrier: FollowedBarrier, lane: int) -> bool:
    """Return whether a lane knows that the last tcgen05.commit to an mbarrier has arrived, or a later one."""
    epoch = barrier.commit_epoch
    commit = operation(watch, epoch)
    return (epoch == 0) | (commit.epoch != epoch) or tensor_is_complete(
        watch, commit, epoch - 1, lane, by_each=False
    )


@inlined
def check_invalidation(frame: WarpFrame, site: int, home: BlockWatch, number: int, lane: int) -> None:
    """Report a lane that ends an mbarrier which an asynchronous operation may still tell of something."""
    watch, barrier = watch_of(frame.block), followed_barrier(home, number)
    owed, start = barrier.owed_phase, barrier.offset
    if owed != 0 and not phase_is_known(watch, home, number, owed, lane, by_each=False):
        suspect(Suspicion.BARRIER_INVALIDATED, frame, site, lane, start, barrier.owed_row, 0)
    elif not commit_is_known(watch, barrier, lane):
        suspect(Suspicion.BARRIER_INVALIDATED, frame, site, lane, start, barrier.commit_row, 0)


@compiled()
def written_over(
    frame: WarpFrame,
    site: int,
    home: BlockWatch,
    offsets: LaneLongs,
    active: int,
    size: int,
    host: int,
    use: int,
) -> None:
    """Lanes access bytes near mbarriers; `use` says what for, a BarrierUse. What INIT makes is followed."""
    for number in range(home.followed_count):
        barrier = followed_barrier(home, number)
        start = barrier.offset
        above = (offsets.longs >= max(start - size + 1, 0)) & (offsets.longs < start + MBARRIER_BYTES)
        near = mask_of(lanes_in(active) & above)
        is_live = is_initialised(load_long(host + start)) & (start >= 0)
        if (near != 0) & (use != BarrierUse.INVAL) & is_live:
            suspect(Suspicion.BARRIER_OVERWRITTEN, frame, site, lowest_bit(near), start, use, 0)
        if (near != 0) & (use == BarrierUse.INVAL) & is_live:
            check_invalidation(frame, site, home, number, lowest_bit(near))
        # It ends if a new one begins, or other data is in its place.
        if (near != 0) & (use != BarrierUse.LOAD):
            barrier.offset = -MBARRIER_BYTES
    if use == BarrierUse.INIT:
        initialise_barriers(frame, site, home, offsets, active)
