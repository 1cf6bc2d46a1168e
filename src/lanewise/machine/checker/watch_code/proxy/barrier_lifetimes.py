"""The life of an mbarrier: where it begins, and where mbarrier.inval or other data ends it."""

from lanewise.jit.lane_functions import lanes_in, lowest_bit, mask_of, set_bits
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import BarrierUse, FollowedBarrier
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import row_of, suspect, watch_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import operation
from lanewise.machine.checker.watch_code.proxy.phases import (
    follow_barrier,
    followed_barrier,
    is_initialised,
    phase_is_known,
)
from lanewise.machine.checker.watch_code.proxy.tensor_commits import tensor_is_complete
from lanewise.machine.checker.watch_code.watch_module import LaneLongs, load_long
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES


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
    return (epoch == 0) | (commit.epoch != epoch) or tensor_is_complete(watch, commit, epoch - 1, lane)


@inlined
def check_invalidation(frame: WarpFrame, site: int, home: BlockWatch, number: int, lane: int) -> None:
    """Report a lane that ends an mbarrier which an asynchronous operation may still tell of something."""
    watch, barrier = watch_of(frame.block), followed_barrier(home, number)
    owed, start = barrier.owed_phase, barrier.offset
    if owed != 0 and not phase_is_known(watch, home, number, owed, lane):
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
