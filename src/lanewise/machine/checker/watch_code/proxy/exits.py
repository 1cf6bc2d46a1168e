"""Threads exit, and blocks end: what they leave behind is looked at.

A block's memory is gone when its last thread has exited. Whether accesses of other blocks come before that
follows from what its threads know when they exit, and not from the order in which blocks happen to run.
Copies by the asynchronous proxy are followed by the phases of their mbarriers.
"""

from lanewise.jit.lane_functions import any_lane, lanes_in, lowest_bit, mask_of, set_bits
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.async_records import TENSOR_PIPE, PendingOperations
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import PHASES_KEPT, FollowedBarrier, RemoteAccess
from lanewise.machine.checker.records import BlockWatch, Flag, SiteRow, WarpClock
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.clusters import (
    NUMBER_BITS,
    is_in_cluster,
    remote_access,
)
from lanewise.machine.checker.watch_code.clocks.happens_before import UNORDERED, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    frame_of,
    in_block,
    lane_is_in,
    local_warp,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_clock
from lanewise.machine.checker.watch_code.proxy.phases import (
    followed_barrier,
    is_initialised,
    phase_is_known,
    phase_of,
)
from lanewise.machine.checker.watch_code.registers import registers_at_end
from lanewise.machine.checker.watch_code.tensor.cells import columns_at_end
from lanewise.machine.checker.watch_code.watch_module import (
    cell_at,
    follows_async,
    load_long,
)
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.warp_ops.mbarrier import BYTES, BYTES_BITS

#: The answers of `is_awaited`. Weakly: at the cluster's barrier, before which the other arrival was relaxed.
UNAWAITED, AWAITED, WEAKLY_AWAITED = 0, 1, 2


# accesses of other blocks -----------------------------------------------------------------------------------


@compiled()
def is_awaited(watch: BlockWatch, source: WarpClock, noted: RemoteAccess, from_lane: int, me: int) -> int:
    """Return whether a lane that exits knows an access to its block's memory.

    `watch` is of the block that is accessed, `source` is the clock of the warp that accesses it.
    """
    epoch, tag = noted.epoch[from_lane] & records.EPOCHS, noted.phase[from_lane]
    number = (tag & ((1 << NUMBER_BITS) - 1)) - 1
    if tag != 0 and phase_is_known(watch, watch, number, tag >> NUMBER_BITS, me):
        return AWAITED
    # A lane that has arrived at the cluster's barrier and not waited learns nothing by its completion.
    is_unwaited = lane_is_in(me, watch.clock.cluster_unwaited)
    if is_unwaited & (source.cluster_completed >= epoch):
        return UNAWAITED
    if ordered(watch, epoch, 0, 1 << from_lane, me) != UNORDERED:
        return AWAITED
    if is_unwaited:
        return UNAWAITED
    return WEAKLY_AWAITED if source.cluster_passed >= epoch else UNAWAITED


@inlined
def later_by_block(watch: BlockWatch, held: int, epoch: int) -> bool:
    """Return whether a warp of the block accessed a cell after an epoch, given what the cell holds."""
    later = held & records.EPOCHS
    return (epoch < later) & in_block(watch, local_warp(watch, later))


@inlined
def is_polled(watch: BlockWatch, row: SiteRow, address: int, epoch: int) -> bool:
    """Return whether a thread of the block has read by a strong access what was written in an epoch.

    Threads poll such a word: the block is there until the write is.
    """
    offset = address & abi.OFFSET_MASK
    cell = cell_at(watch.shadow + ((offset >> watch.cell_shift) << 2), watch.stride)
    is_strong = cell.reader & (records.STRONG | records.STRONG_IN_BLOCK) != 0
    was_read = later_by_block(watch, cell.read_epoch, epoch) & is_strong
    was_updated = later_by_block(watch, cell.write_epoch, epoch) & (cell.writer & records.ATOMIC != 0)
    writes = row.flags & (Flag.WRITES | Flag.PHASES) == Flag.WRITES
    return writes & (was_read | was_updated)


@inlined
def strike_known(watch: BlockWatch, source: WarpClock, noted: RemoteAccess, lane: int, exiting: int) -> None:
    """Strike an access of a lane of another block from the record if a lane that exits knows of it."""
    for me in set_bits(exiting):
        if noted.epoch[lane] != 0:
            known = is_awaited(watch, source, noted, lane, me)
            if known == AWAITED:
                noted.epoch[lane] = 0
            if known == WEAKLY_AWAITED:
                noted.epoch[lane] = noted.epoch[lane] | records.PENDING


@inlined
def report_unknown(watch: BlockWatch, frame: WarpFrame, noted: RemoteAccess, lane: int) -> None:
    """Report an access that might as well come after the block's end; `frame` is of the warp that made it."""
    held, number, address = noted.epoch[lane], noted.row[lane], noted.address[lane]
    epoch = held & records.EPOCHS
    if epoch != 0 and not is_polled(watch, watch.watch.sites[number], address, epoch):
        is_weak = held & records.PENDING != 0
        kind = Suspicion.TARGET_WEAKLY_KEPT if is_weak else Suspicion.TARGET_MAY_EXIT
        suspect(kind, frame, number, lane, address, epoch, 0)


@compiled()
def leave_remote(frame: WarpFrame, active: int, ends: bool) -> None:
    """Lanes exit, the last ones of their block if it `ends`.

    Accesses of other blocks that they know of are struck from the record; what is left when the block ends
    might as well come after that, and is reported.
    """
    block, watch = frame.block, watch_of(frame.block)
    warps, own = watch.warps, watch.first_warp - watch.cluster_first
    for rank in range(watch.cluster_blocks):
        if rank * warps != own:
            member = block.members[rank].block
            for index in range(warps):
                noted = remote_access(watch, rank * warps + index)
                source = watch_of(member).clocks[index]
                for lane in set_bits(mask_of(noted.epoch != 0)):
                    strike_known(watch, source, noted, lane, active)
                    if ends:
                        report_unknown(watch, frame_of(member, index), noted, lane)


# the end of a block -----------------------------------------------------------------------------------------


@inlined
def lanes_left(frame: WarpFrame, active: int) -> int:
    """Return the lanes that are left in some warp of the block when some lanes of one warp have exited."""
    block = frame.block
    left = 0
    for index in range(block.launch.warps):
        other = frame_of(block, index)
        left |= alive_lanes(other) & ~(active if other is frame else 0)
    return left


@inlined
def was_seen(barrier: FollowedBarrier) -> bool:
    """Return whether somebody has seen a phase complete in which the last copy was, or one after it."""
    last, now = barrier.copy_phase, barrier.phase
    if (last == 0) | (last < now - (PHASES_KEPT - 1)):
        return True
    is_seen = False
    for phase in range(last, now):
        is_seen = is_seen | any_lane(phase_of(barrier, phase).witnessed != 0)
    return is_seen


@inlined
def check_barriers(frame: WarpFrame, watch: BlockWatch) -> None:
    """Report mbarriers of a block that ends with copies nobody has seen complete, or bytes still to come."""
    for number in range(watch.followed_count):
        barrier = followed_barrier(watch, number)
        offset = barrier.offset
        if offset >= 0:
            word = load_long(frame.block.shared + offset)
            missing = (word << (64 - BYTES - BYTES_BITS)) >> (64 - BYTES_BITS)  # with its sign
            if is_initialised(word):
                if not was_seen(barrier):
                    suspect(Suspicion.ENDED_COPYING, frame, barrier.copy_row, 0, offset, 0, 0)
                if missing != 0:
                    suspect(Suspicion.BYTES_LEFT_OVER, frame, barrier.row, 0, offset, missing, 0)


@inlined
def check_kept_copies(frame: WarpFrame, block: BlockRecord) -> None:
    """Report copies into the block's memory, and commits, which the schedule has kept until it ends."""
    if block.pending != 0:
        pending = PendingOperations.at(block.pending)
        for number in range(pending.count):
            copy = pending.operations[number]
            if (copy.barrier != 0) & (copy.barrier_block is block):
                offset = copy.barrier - block.shared
                commits = copy.pipe == TENSOR_PIPE
                kind = Suspicion.ENDED_COMMITTING if commits else Suspicion.ENDED_COPYING
                suspect(kind, frame, copy.site * MOST_ROWS, 0, offset, 0, 0)


@compiled()
def exits(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes exit; what they leave behind is looked at."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    if not follows_async():
        return
    clock = async_clock(watch, frame.index)
    copying = mask_of(lanes_in(active) & (clock.bulk_issued > clock.bulk_read))
    if copying != 0:
        suspect(Suspicion.EXITED_COPYING, frame, site, lowest_bit(copying), 0, 0, 0)
    ends = lanes_left(frame, active) == 0
    if is_in_cluster(watch):
        leave_remote(frame, active, ends)
    if ends:
        registers_at_end(frame)
        check_barriers(frame, watch)
        check_kept_copies(frame, frame.block)
        columns_at_end(frame)
