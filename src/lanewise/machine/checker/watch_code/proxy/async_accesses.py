"""The rules for asynchronous operations: what may come before one that reads or writes a cell of memory.

An earlier asynchronous operation has to be complete; an earlier plain access has to be ordered before, and a
fence.proxy.async has to lie between (`proxy_fences.py`).
"""

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
from lanewise.machine.checker.watch_code.clocks.vector_clocks import suspect
from lanewise.machine.checker.watch_code.proxy.async_clocks import operation
from lanewise.machine.checker.watch_code.proxy.completion import async_finished
from lanewise.machine.checker.watch_code.proxy.proxy_fences import (
    FENCED,
    FENCED_BY_ISSUER,
    UNFENCED,
    fenced,
    fenced_by_readers,
    fenced_since,
    reads_handed_over,
)
from lanewise.machine.checker.watch_code.watch_module import ShadowCell, cell_at


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
