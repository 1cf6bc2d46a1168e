"""What the lanes of a warp know of each other: barriers of the warp, masks, convergence."""

from lanewise.jit.lane_functions import address_of, choose, joined, lanes_in, lowest_bit, mask_of, set_bits
from lanewise.jit.record_layout import Words
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import EXITED, WarpFrame
from lanewise.machine.checker.records import BlockWatch, Flag, ShuffleMode, SiteRow, WarpClock
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    lane_is_in,
    operand_of,
    row_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import share_bulk_waits
from lanewise.machine.checker.watch_code.watch_module import (
    EVERY_LANE,
    LANES,
    LaneWords,
    follows_async,
    lane_numbers,
    words_of,
)


@inlined
def join_lanes(watch: BlockWatch, index: int, lanes: int) -> None:
    """Let lanes of a warp know of each other what each of them knows."""
    clocks = watch.lane_clocks[index]
    together = choose(lanes_in(lanes), watch.watch.now, words_of(0))
    for lane in set_bits(lanes):
        together = joined(together, clocks.seen[lane])
    for lane in set_bits(lanes):
        clocks.seen[lane] = together


@compiled()
def join_meetings(watch: BlockWatch, index: int, lanes: int) -> None:
    """Let lanes of a warp that meet know of each other what each of them knows, without an order."""
    clocks = watch.lane_clocks[index]
    together = choose(lanes_in(lanes), watch.watch.now, words_of(0))
    for lane in set_bits(lanes):
        together = joined(together, joined(clocks.met[lane], clocks.seen[lane]))
    for lane in set_bits(lanes):
        clocks.met[lane] = together


@compiled()
def synchronise(frame: WarpFrame, lanes: int) -> None:
    """Lanes of a warp have synchronised, with order of their accesses."""
    watch = watch_of(frame.block)
    clock, clocks = watch.clocks[frame.index], watch.lane_clocks[frame.index]
    clocks.copied_for_all = choose(lanes_in(lanes), clocks.copied, clocks.copied_for_all)
    watch.fresh = 1
    if alive_lanes(frame) & ~lanes == 0:
        clock.synced = watch.watch.now
        clock.touched = 0
        clock.learnt_count = 0
        if follows_async():
            share_bulk_waits(watch, frame.index)
    else:
        clock.partly_synced = watch.watch.now
        join_lanes(watch, frame.index, lanes)
        if clock.partly_met > clock.synced:
            join_meetings(watch, frame.index, lanes)


@inlined
def meet_learners(clock: WarpClock, lanes: int) -> None:
    """Lanes that meet learn, without an order, of releases that some of them have acquired."""
    for index in range(clock.learnt_count):
        if lanes & (clock.learners[index] | clock.met_learners[index]) != 0:
            clock.met_learners[index] = clock.met_learners[index] | lanes


@compiled()
def meet(frame: WarpFrame, active: int) -> None:
    """Lanes are at one instruction together, without order of their accesses."""
    watch = watch_of_running(frame)
    clock = watch.clocks[frame.index]
    meet_learners(clock, active)
    if alive_lanes(frame) & ~active == 0:
        clock.converged = watch.watch.now
    else:
        clock.partly_met = watch.watch.now
        join_meetings(watch, frame.index, active)
    watch.fresh = 1


@inlined
def operands_of(frame: WarpFrame, register: int, constant: int) -> Words:
    """Return a 32-bit operand of all lanes: of a register at an offset, else a constant."""
    return LaneWords.at(address_of(frame) + register).words if register > 0 else words_of(constant)


@inlined
def shuffle_sources(b: Words, c: Words, mode: int) -> Words:
    """Return the lane that each lane reads by shfl with the operands b and c."""
    lanes, lane_bits = lane_numbers(), LANES - 1
    segment = (c >> 8) & lane_bits
    high = (lanes & segment) | (c & lane_bits & ~segment)
    source = (lanes & segment) | (b & ~segment)
    if mode == ShuffleMode.UP:
        source = lanes - b  # below 0 it is a large number
    if mode == ShuffleMode.DOWN:
        source = lanes + b
    if mode == ShuffleMode.BUTTERFLY:
        source = lanes ^ b
    beyond = (source > lane_bits) | (source > high)
    if mode == ShuffleMode.UP:
        beyond = (source > lane_bits) | (source < high)
    return choose(beyond, lanes, source)


@compiled()
def shuffled(frame: WarpFrame, site: int, active: int) -> None:
    """Put on record which lane each lane reads."""
    watch, row = watch_of(frame.block), row_of(frame, site)
    b = operands_of(frame, row.step_base, row.step) & (LANES - 1)
    c = operands_of(frame, row.lowest, row.highest)
    source = shuffle_sources(b, c, row.element_bits)
    takes_part = (words_of(active) >> source) & 1 != 0
    sources = choose(takes_part, source, words_of(LANES))
    watch.shuffle_sources = choose(lanes_in(active), sources, watch.shuffle_sources)


# lanes that name each other in masks ------------------------------------------------------------------------


@inlined
def mask_given_by(frame: WarpFrame, row: SiteRow, lane: int) -> int:
    """Return the mask that a lane gives."""
    return operand_of(frame, lane, row.base, row.displacement) & EVERY_LANE


@inlined
def masks_differ(frame: WarpFrame, row: SiteRow, active: int) -> bool:
    """Return whether the active lanes give different masks."""
    if row.base > 0:
        first = mask_given_by(frame, row, lowest_bit(active))
        return mask_of(LaneWords.at(address_of(frame) + row.base).words != first) & active != 0
    return False


@inlined
def lanes_with_mask(frame: WarpFrame, row: SiteRow, lanes: int, mask: int) -> int:
    """Return which of some lanes give a mask, which is in a register."""
    return lanes & mask_of(LaneWords.at(address_of(frame) + row.base).words == mask)


@inlined
def is_good_mask(mask: int, active: int, gone: int, waits: bool) -> bool:
    """Return whether a mask that all lanes give names them all, and nobody who is missing."""
    is_whole = (mask & ~active == 0) | (waits & (mask & gone == 0))
    return is_whole & (active & ~mask == 0)


@compiled(noinline=True)
def check_masks(frame: WarpFrame, site: int, active: int, gone: int, waits: bool, are_mixed: bool) -> None:
    """Report what is wrong with the masks of lanes; `gone` are lanes that have exited and are not missed."""
    row, index = row_of(frame, site), frame.index
    # The last warp of a block may not have all lanes.
    existing = (1 << min(frame.block.launch.threads - index * LANES, LANES)) - 1
    for lane in set_bits(active):
        mask = mask_given_by(frame, row, lane)
        exited = mask & gone & existing
        if exited != 0:
            suspect(Suspicion.EXITED_MEMBER, frame, site, lane, mask, exited, 0)
        # Lanes that name each other have to give the same mask.
        if are_mixed:
            others = active & mask & ~lanes_with_mask(frame, row, active & mask, mask)
            if others != 0:
                suspect(Suspicion.MASKS_DIFFER, frame, site, lane, mask, others, 0)
        if not lane_is_in(lane, mask):
            suspect(Suspicion.NOT_A_MEMBER, frame, site, lane, mask, 0, 0)
        absent = mask & ~(active | gone)
        if (absent != 0) & (not waits):
            suspect(Suspicion.ABSENT_MEMBER, frame, site, lane, mask, absent, 0)


@inlined
def arrive_at_mask(frame: WarpFrame, clock: WarpClock, site: int, mask: int, lanes: int, gone: int) -> None:
    """Lanes arrive at a barrier of the warp, for the lanes of a mask.

    Lanes arrive one after the other, perhaps in several places; the last one completes the barrier.
    """
    arrived = clock.waiting | lanes
    if mask & ~(arrived | gone) == 0:
        clock.waiting = arrived & ~mask
        synchronise(frame, mask)
    else:
        if clock.waiting == 0:
            clock.waiting_mask = mask
            clock.waiting_row = site
            clock.strayed = 0
        clock.waiting = arrived


@compiled()
def members(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes synchronise with those that their masks name."""
    if active == 0:
        return
    watch = watch_of_running(frame)  # a block may begin with it
    row, clock = watch.watch.sites[site], watch.clocks[frame.index]
    # Lanes that bypassed the others, accessed memory and exited are missing. Hardware does not wait for lanes
    # that exited before, or did nothing else.
    strayed = clock.awaited if clock.broken != 0 else 0
    clock.awaited = 0
    gone = mask_of(frame.pcs == EXITED) & ~strayed & ~active
    # A barrier of the warp waits for lanes that have not arrived; other instructions run only when all have.
    waits = row.flags & Flag.EVERY_LANE != 0
    first, are_mixed = mask_given_by(frame, row, lowest_bit(active)), masks_differ(frame, row, active)
    if are_mixed | (not is_good_mask(first, active, gone, waits)):
        check_masks(frame, site, active, gone, waits, are_mixed)
    if row.flags & Flag.SHUFFLES != 0:
        shuffled(frame, site, active)
    # Lanes wait for those that they name, also where one instruction is executed with several masks. Only a
    # barrier of the warp orders their accesses.
    left = active
    while left != 0:
        mask = mask_given_by(frame, row, lowest_bit(left))
        together = lanes_with_mask(frame, row, left, mask) if are_mixed else left
        if waits:
            arrive_at_mask(frame, clock, site, mask, together, gone)
        else:
            meet(frame, together)
        left &= ~together


@compiled()
def left(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes exit, perhaps while others wait for them at their barrier.

    Lanes that have gone on since then have bypassed it; those that exit at once have returned early.
    """
    clock = watch_of(frame.block).clocks[frame.index]
    waiting, mask = clock.waiting, clock.waiting_mask
    named = mask & active & clock.strayed & ~waiting
    if (waiting != 0) & (named != 0):
        watch_of_running(frame)
        suspect(Suspicion.ABSENT_MEMBER, frame, clock.waiting_row, lowest_bit(waiting), mask, named, 0)


@compiled()
def parted(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes are about to wait for those that their masks name."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    clock, row = watch.clock, watch.watch.sites[site]
    if clock.awaited == 0:
        mask = mask_given_by(frame, row, lowest_bit(active))
        clock.awaited = mask & alive_lanes(frame) & ~active
        clock.broken = 0
