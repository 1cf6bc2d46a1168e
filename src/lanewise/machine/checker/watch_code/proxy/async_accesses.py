"""The rules for asynchronous operations: what may come before one that reads or writes a cell of memory.

An earlier asynchronous operation has to be complete; an earlier plain access has to be ordered before, and a
fence.proxy.async has to lie between, so that the asynchronous proxy sees what was written.
"""

from __future__ import annotations

from lanewise.jit.lane_functions import any_lane, choose, lanes_in, largest
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import AsyncFlag, RunView
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    ORDERED,
    UNORDERED,
    WEAKLY_ORDERED,
    lane_of,
    lanes_of,
    ordered,
)
from lanewise.machine.checker.watch_code.clocks.vector_clocks import in_block, local_warp, suspect, warp_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import (
    async_clock,
    operation,
    running_clock,
    warp_fence,
)
from lanewise.machine.checker.watch_code.proxy.completion import async_finished
from lanewise.machine.checker.watch_code.watch_module import ShadowCell, cell_at

#: The answers of `fenced`: no fence, one in the thread that wrote, one in the warp that issues the operation,
#: after it had learnt of the write.
UNFENCED, FENCED, FENCED_BY_ISSUER = 0, 1, 2


# fence.proxy.async ------------------------------------------------------------------------------------------


@inlined
def fenced_by_own_warp(watch: BlockWatch, epoch: int, lanes: int, shared: bool) -> int:
    """Return whether the lanes of the running warp that wrote in an epoch have fenced since."""
    clock = running_clock(watch)
    fences = clock.last_fence if shared else clock.last_global_fence
    if not any_lane(lanes_in(lanes) & (fences < epoch)):
        return FENCED
    # Another lane of the warp has fenced, after the lanes had synchronised.
    return FENCED_BY_ISSUER if largest(fences) >= epoch else UNFENCED


@inlined
def fenced_in_other_block(watch: BlockWatch, epoch: int, shared: bool) -> int:
    """Return whether a write of another block was fenced: by a warp of that block, or by the running warp."""
    writer, clock = warp_of(watch, epoch), running_clock(watch)
    first = writer - writer % watch.warps
    for warp in range(first, first + watch.warps):
        last = warp_fence(watch, warp)
        if (last.warp == warp + 1) & (last.epoch >= epoch):
            return FENCED
    fences = clock.last_fence if shared else clock.last_global_fence
    return FENCED if largest(fences) >= epoch else UNFENCED


@inlined
def fenced_by_writers(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> bool:
    """Return whether the lanes of another warp that wrote in an epoch have fenced, and `me` comes later."""
    clock, wrote = async_clock(watch, local_warp(watch, epoch)), lanes_in(lanes)
    fences = clock.last_fence if shared else clock.last_global_fence
    if any_lane(wrote & (fences < epoch)):
        return False
    return ordered(watch, largest(choose(wrote, fences, 0)), 0, lanes, me) == ORDERED


@compiled()
def fenced(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> int:
    """Return whether a plain write is visible to the asynchronous proxy: a fence.proxy.async lies between.

    The write was made in an epoch, by some lanes of that epoch's warp. The fence belongs after the write, in
    the thread that wrote, and `me` comes after the fence (FENCED). One that the issuing warp executes after
    it has learnt of the write works on hardware, but PTX does not promise it (FENCED_BY_ISSUER).
    """
    writer, clock = local_warp(watch, epoch), running_clock(watch)
    if not in_block(watch, writer):
        return fenced_in_other_block(watch, epoch, shared)
    if writer == watch.clock.index:
        return fenced_by_own_warp(watch, epoch, lanes, shared)
    # What the warp that wrote has told others at barriers of the fences of all of its lanes.
    known = clock.fenced_of[writer] if shared else clock.fenced_global_of[writer]
    if known >= epoch or fenced_by_writers(watch, epoch, lanes, shared, me):
        return FENCED
    by_issuer = clock.covered_by_own_fence[writer] if shared else clock.covered_by_own_global_fence[writer]
    return FENCED_BY_ISSUER if by_issuer >= epoch else UNFENCED


@inlined
def fenced_since(watch: BlockWatch, epoch: int) -> bool:
    """Return whether a warp of the block has executed a fence between the proxies after an epoch."""
    is_fenced = False
    for warp in range(watch.first_warp, watch.first_warp + watch.warps):
        last = warp_fence(watch, warp)
        is_fenced = is_fenced | ((last.warp == warp + 1) & (last.epoch > epoch))
    return is_fenced


@inlined
def reads_handed_over(watch: BlockWatch, epoch: int) -> bool:
    """Return whether the asynchronous proxy may write over what a warp of the block read in an epoch.

    A fence between the proxies lies between, or an mbarrier or a flag has told of the reads. Of other blocks
    it is not known, and counts as such.
    """
    reader = local_warp(watch, epoch)
    if in_block(watch, reader):
        return running_clock(watch).handed_over_of[reader] >= epoch
    return True


@inlined
def fenced_by_readers(watch: BlockWatch, epoch: int, lanes: int) -> bool:
    """Return whether lanes that read in an epoch belong to the running warp, and all have fenced since."""
    is_own = local_warp(watch, epoch) == watch.clock.index
    return is_own and not any_lane(lanes_in(lanes) & (running_clock(watch).last_fence < epoch))


# one cell ---------------------------------------------------------------------------------------------------


@inlined
def suspect_operation(view: RunView, kind: int, address: int, epoch: int, who: int) -> None:
    """Report a suspicion about an operation and an earlier access."""
    lane = 0 if view.who & records.COLLECTIVE != 0 else lane_of(view.who)
    suspect(kind, view.frame, view.site, lane, address, epoch, who)


@inlined
def is_same_copy(watch: BlockWatch, epoch: int) -> bool:
    """Return whether an earlier operation may write the same bytes again, without an order.

    Lanes of a warp that all issue one store write the same bytes to the same place (CUTLASS does so, and the
    assembler makes a loop over the lanes). A row of a box may end within a cell, in which the same operation
    then begins to fill in zeros.
    """
    contents = operation(watch, watch.epoch).contents
    is_alike = (contents != 0) & (contents == operation(watch, epoch).contents)
    return is_alike | (epoch == watch.epoch)


@inlined
def check_after_async_write(view: RunView, cell: ShadowCell, epoch: int, address: int) -> bool:
    """Report an earlier asynchronous write if it is not complete, or swizzled otherwise; true if not."""
    watch = view.observed
    reduce_both = cell.writer & view.who & records.ATOMIC != 0  # they may come in any order
    may_overlap = reduce_both or is_same_copy(watch, epoch)
    if not may_overlap and not async_finished(watch, epoch, view.who, reads=False):
        suspect_operation(view, Suspicion.UNFINISHED_COPY, address, epoch, cell.writer)
        return False
    noted, flags = operation(watch, epoch), view.flags
    is_on_record = noted.epoch == epoch  # else it is too long ago, and another operation is there
    is_generic = is_on_record & (noted.generic != 0)
    if is_generic & (flags & AsyncFlag.READS != 0) and not fenced_since(watch, epoch):
        suspect_operation(view, Suspicion.STORED_UNFENCED, address, epoch, cell.writer)
        return False
    swizzle = noted.swizzle
    if is_on_record & (swizzle != 0) & (view.swizzle != 0) & (swizzle != view.swizzle):
        suspect_operation(view, Suspicion.SWIZZLE_DIFFERS, address, epoch, cell.writer)
        return False
    if is_on_record & (noted.type != 0) & (view.type != 0) & (noted.type != view.type):
        suspect_operation(view, Suspicion.FORMAT_DIFFERS, address, epoch, cell.writer)
    return True


@inlined
def check_after_plain_write(view: RunView, cell: ShadowCell, epoch: int, address: int) -> bool:
    """Report an earlier plain write if it is not ordered before, or not fenced; true if it is good."""
    watch, writer, flags = view.observed, cell.writer, view.flags
    if writer & view.who & records.ATOMIC != 0:  # atomics and reductions may come in any order
        return True
    order = ordered(watch, epoch, writer, lanes_of(writer), view.who)
    if order != ORDERED:
        kind = Suspicion.WEAKLY_AFTER_WRITE if order == WEAKLY_ORDERED else Suspicion.AFTER_WRITE
        suspect_operation(view, kind, address, epoch, writer)
        return False
    if flags & AsyncFlag.GENERIC != 0:
        return True
    fence = fenced(watch, epoch, lanes_of(writer), flags & AsyncFlag.SHARED != 0, view.who)
    if (fence == UNFENCED) & (flags & AsyncFlag.READS != 0):
        suspect_operation(view, Suspicion.UNFENCED, address, epoch, writer)
        return False
    # All threads of a warpgroup execute wgmma, so that a fence of theirs behind the barrier is in time.
    in_time = (fence == FENCED_BY_ISSUER) & (view.who & records.COLLECTIVE != 0)
    if fence != FENCED and not in_time:
        suspect_operation(view, Suspicion.WEAKLY_FENCED, address, epoch, writer)
        return False
    return True


@inlined
def check_after_async_read(view: RunView, epoch: int, reader: int, floor: int, address: int) -> bool:
    """Report an earlier asynchronous read if it is not known to be done; true if it is good."""
    if epoch > floor and not async_finished(view.observed, epoch, view.who, reads=True):
        suspect_operation(view, Suspicion.UNFINISHED_READ, address, epoch, reader)
        return False
    return True


@inlined
def check_after_plain_read(view: RunView, held: int, reader: int, floor: int, address: int) -> bool:
    """Report an earlier plain read if it is not ordered before, or not handed over; true if it is good."""
    watch, shared, epoch = view.observed, view.flags & AsyncFlag.SHARED != 0, held & records.EPOCHS
    if (epoch <= floor) | (reader & records.ATOMIC != 0):
        return True
    if not (shared & (watch.shared_floor >= epoch)):
        order = ordered(watch, epoch, reader, lanes_of(reader), view.who)
        if order != ORDERED:
            kind = Suspicion.AFTER_READ if order == UNORDERED else Suspicion.WEAKLY_AFTER_READ
            suspect_operation(view, kind, address, epoch, reader)
            return False
    if (
        shared & (view.flags & AsyncFlag.GENERIC == 0)
        and not reads_handed_over(watch, epoch)
        and not fenced_by_readers(watch, epoch, lanes_of(reader))
    ):
        suspect_operation(view, Suspicion.READ_UNFENCED, address, epoch, reader)
        return False
    return True


@compiled()
def examine_async(view: RunView, place: int, address: int) -> None:
    """Report the first thing that is not complete, ordered or fenced before an operation accesses a cell.

    `place` is the cell in shadow memory, `address` that of its bytes on the device.
    """
    cell, flags = cell_at(place, view.stride), view.flags
    shared, reads = flags & AsyncFlag.SHARED != 0, flags & AsyncFlag.READS != 0
    floor = view.home.start - 1 if shared else 0
    epoch = cell.write_epoch & records.EPOCHS
    if epoch > floor:
        if cell.writer & records.ASYNC_PROXY != 0:
            if not check_after_async_write(view, cell, epoch, address):
                return
        elif not check_after_plain_write(view, cell, epoch, address):
            return
    elif shared & reads:
        suspect_operation(view, Suspicion.UNINITIALISED, address, 0, 0)
        return
    if flags & AsyncFlag.WRITES != 0:
        if not check_after_async_read(
            view, cell.async_earlier_epoch, cell.async_earlier_reader, floor, address
        ):
            return
        if not check_after_async_read(view, cell.async_read_epoch, cell.async_reader, floor, address):
            return
        if check_after_plain_read(view, cell.earlier_epoch, cell.earlier_reader, floor, address):
            check_after_plain_read(view, cell.read_epoch, cell.reader, floor, address)
