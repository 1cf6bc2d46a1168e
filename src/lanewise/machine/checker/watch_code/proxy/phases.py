"""The phases of mbarriers: who arrived, who saw a phase complete, what that shows.

A bulk copy that an mbarrier counts is complete when its phase is, and a thread may rely on it once it, or a
thread that it has synchronised with, has seen that phase complete.
"""

from lanewise.jit.lane_functions import address_of, joined
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    BARRIERS_FOLLOWED,
    PHASES_KEPT,
    VECTORS,
    AsyncClock,
    FollowedBarrier,
    PhaseRecord,
)
from lanewise.machine.checker.records import BlockWatch, Flag
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.cluster_order import (
    AWAY,
    AWAY_NARROWLY,
    HERE,
    publish_to_phase,
)
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, UNORDERED, lanes_of, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import operand_of, row_of, suspect, watch_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_clock, publish_own, running_clock
from lanewise.machine.checker.watch_code.proxy.remote_accesses import note_remote_arrival
from lanewise.machine.checker.watch_code.watch_module import (
    clear_bytes,
)
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.warp_ops.mbarrier import BEFORE, BEFORE_BITS, MOST, PENDING

#: The bit of an mbarrier object that is its parity.
PARITY_BIT = 63
#: The bit of the answer of `see_phase` that says that the phase is not complete.
NOT_COMPLETE = 1
# The vectors of an AsyncClock in a PhaseRecord.
FENCED_OF, FENCED_GLOBAL_OF, READS_OF, WRITES_OF, WGMMA_OF, HANDED_OVER_OF = (
    VECTORS.index(vector)
    for vector in (
        AsyncClock.fenced_of,
        AsyncClock.fenced_global_of,
        AsyncClock.reads_of,
        AsyncClock.writes_of,
        AsyncClock.wgmma_of,
        AsyncClock.handed_over_of,
    )
)


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


@inlined
def begin_phase(barrier: FollowedBarrier, parity: int) -> None:
    """Count a phase that was completed: another one is under way."""
    barrier.phase += 1
    barrier.parity = parity
    clear_bytes(address_of(phase_of(barrier, barrier.phase)), PhaseRecord.BYTES)


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
                begin_phase(known, parity)
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
def phase_of_barrier(home: BlockWatch, number: int) -> int:
    """Return the phase that an mbarrier is in; 0 if it is not followed."""
    return followed_barrier(home, number).phase if number >= 0 else 0


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


# what is known of a phase -----------------------------------------------------------------------------------


@compiled()
def phase_is_known(watch: BlockWatch, home: BlockWatch, number: int, phase: int, me: int) -> bool:
    """Return whether an access may rely on a phase being complete.

    Its thread has seen that, or it comes after a thread that has; the same for a later phase.
    """
    if phase == 0:
        return True  # there are too many mbarriers to follow this one
    barrier = followed_barrier(home, number)
    now = barrier.phase
    if phase >= now:
        return False
    if phase < now - (PHASES_KEPT - 1):
        return True  # too long ago to be on record
    is_collective = me & records.COLLECTIVE != 0
    for later in range(phase, now):
        seen = phase_of(barrier, later)
        for warp in range(watch.warps):
            epoch, lanes = seen.witnessed[warp], seen.witnesses[warp]
            if epoch != 0:
                is_own = (warp == watch.clock.index) & (home is watch)
                # Instructions of a whole warp come after what any of its lanes has seen.
                if is_own & (is_collective | (lanes & lanes_of(me) != 0)):
                    return True
                if ordered(watch, epoch, 0, lanes, me) == ORDERED:
                    return True
    return False


@compiled()
def phase_is_over(watch: BlockWatch, number: int, phase: int, me: int) -> bool:
    """Return whether a lane knows that a phase is complete.

    It, or somebody before it, has seen that, or all arrivals of the phase happened before.
    """
    if phase_is_known(watch, watch, number, phase, me):
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
    phase.known[FENCED_OF] = joined(phase.known[FENCED_OF], clock.fenced_of)
    phase.known[FENCED_GLOBAL_OF] = joined(phase.known[FENCED_GLOBAL_OF], clock.fenced_global_of)
    phase.known[READS_OF] = joined(phase.known[READS_OF], clock.reads_of)
    phase.known[WRITES_OF] = joined(phase.known[WRITES_OF], clock.writes_of)
    phase.known[WGMMA_OF] = joined(phase.known[WGMMA_OF], clock.wgmma_of)
    # By custom, arrivals hand over what was read before them, without a fence between the proxies.
    handed_over = joined(phase.known[HANDED_OVER_OF], clock.handed_over_of)
    phase.known[HANDED_OVER_OF] = joined(handed_over, watch.clock.seen)
    phase.known[HANDED_OVER_OF][index] = watch.epoch


@inlined
def learn_phase(watch: BlockWatch, phase: PhaseRecord) -> None:
    """Let the running warp know what those knew who arrived in a phase."""
    clock = running_clock(watch)
    clock.fenced_of = joined(clock.fenced_of, phase.known[FENCED_OF])
    clock.fenced_global_of = joined(clock.fenced_global_of, phase.known[FENCED_GLOBAL_OF])
    clock.reads_of = joined(clock.reads_of, phase.known[READS_OF])
    clock.writes_of = joined(clock.writes_of, phase.known[WRITES_OF])
    clock.wgmma_of = joined(clock.wgmma_of, phase.known[WGMMA_OF])
    clock.handed_over_of = joined(clock.handed_over_of, phase.known[HANDED_OVER_OF])


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
        is_narrow = row_of(frame, site).flags & Flag.NARROW_ARRIVAL != 0
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
    learn_phase(watch, phase)
    # Of one warp the first lanes count: what they tell others is known the sooner.
    if phase.witnessed[index] == 0:
        phase.witnessed[index] = watch.epoch
    phase.witnesses[index] = phase.witnesses[index] | 1 << lane
    return address_of(phase)
