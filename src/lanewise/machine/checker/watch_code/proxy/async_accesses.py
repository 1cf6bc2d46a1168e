"""The rules for asynchronous operations: what may come before one that reads or writes memory.

An earlier asynchronous operation has to be complete; an earlier plain access has to be ordered before, and a
fence.proxy.async has to lie between (`proxy_fences.py`). The bytes are looked at one run at a time: a run
that only complete operations and fenced, ordered stores came before costs a few vector instructions for each
16 bytes, and what may be wrong is examined cell by cell.
"""

from lanewise.jit.compiled_functions import signature_only
from lanewise.jit.lane_functions import address_of, choose, smallest, unsigned_less
from lanewise.jit.record_layout import Words
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import READS_VERIFIED, AsyncFlag, BarrierUse, RunView
from lanewise.machine.checker.records import AllocationShadow, BlockWatch, Flag, ShadowPlane
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    ORDERED,
    UNORDERED,
    WEAKLY_ORDERED,
    lane_of,
    lanes_of,
    ordered,
)
from lanewise.machine.checker.watch_code.clocks.vector_clocks import in_block, local_warp, suspect, watch_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import operation, running_clock
from lanewise.machine.checker.watch_code.proxy.completion import (
    async_finished,
    copies_are_known,
    finished,
    landed,
    last_wait,
)
from lanewise.machine.checker.watch_code.proxy.phases import live_barrier_at
from lanewise.machine.checker.watch_code.proxy.proxy_fences import (
    FENCED,
    FENCED_BY_ISSUER,
    UNFENCED,
    fenced,
    fenced_by_block,
    fenced_by_readers,
    reads_handed_over,
)
from lanewise.machine.checker.watch_code.shadow.shadow_memory import all_written, mark_written
from lanewise.machine.checker.watch_code.shadow.shadow_vectors import Cell
from lanewise.machine.checker.watch_code.watch_module import (
    LANES,
    ByteArray,
    ShadowCell,
    WatchCode,
    cell_at,
    clear_bytes,
    lane_numbers,
    written,
)
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL


@inlined
def suspect_operation(view: RunView, kind: int, address: int, epoch: int, who: int) -> None:
    """Report a suspicion about an operation and an earlier access."""
    lane = 0 if view.who & records.COLLECTIVE != 0 else lane_of(view.who)
    suspect(kind, view.frame, view.site, lane, address, epoch, who)


@inlined
def is_same_copy(watch: BlockWatch, epoch: int) -> bool:
    """Return whether an earlier operation may write the same bytes again, without an order.

    Lanes of a warp that all issue one store write the same bytes to the same place (CUTLASS does so, and the
    assembler makes a loop over the lanes); so may blocks, as by plain stores of one value. A row of a box may
    end within a cell, in which the same operation then begins to fill in zeros.
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
    if is_generic & (flags & AsyncFlag.READS != 0) and not fenced_by_block(
        watch, watch.first_warp, epoch + 1
    ):
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
    writes_shared = AsyncFlag.WRITES | AsyncFlag.SHARED
    if writer & view.who & records.ATOMIC != 0:  # atomics and reductions may come in any order
        return True
    order = ordered(watch, epoch, writer, lanes_of(writer), view.who)
    if order != ORDERED:
        kind = Suspicion.WEAKLY_AFTER_WRITE if order == WEAKLY_ORDERED else Suspicion.AFTER_WRITE
        suspect_operation(view, kind, address, epoch, writer)
        return False
    written = epoch
    if cell.write_epoch & records.PENDING != 0:  # by cp.async
        if not finished(watch, epoch, writer, view.who):
            suspect_operation(view, Suspicion.UNFINISHED_COPY, address, epoch, writer)
            return False
        written = landed(watch, epoch, lane_of(writer))
    if flags & AsyncFlag.GENERIC != 0:
        return True
    fence = fenced(watch, written, lanes_of(writer), flags & AsyncFlag.SHARED != 0, view.who)
    if (fence == UNFENCED) & (flags & AsyncFlag.READS != 0):
        suspect_operation(view, Suspicion.UNFENCED, address, epoch, writer)
        return False
    # All threads of a warpgroup execute wgmma, so that a fence of theirs behind the barrier is in time.
    in_time = (fence == FENCED_BY_ISSUER) & (view.who & records.COLLECTIVE != 0)
    if fence != FENCED and not in_time:
        barrier = (
            live_barrier_at(view.home, view.host, address) if flags & writes_shared == writes_shared else -1
        )
        if barrier >= 0:
            suspect_operation(view, Suspicion.BARRIER_OVERWRITTEN, barrier, BarrierUse.STORE, 0)
        else:
            suspect_operation(view, Suspicion.WEAKLY_FENCED, address, epoch, writer)
        return False
    return True


@inlined
def check_after_reduction(view: RunView, cell: ShadowCell, floor: int, address: int) -> bool:
    """Report a reduction by a bulk copy, before the last write, that is not complete; true if it is."""
    epoch, earlier = cell.earlier_epoch & records.EPOCHS, cell.earlier_reader
    reduction = records.ASYNC_PROXY | records.ATOMIC
    if (epoch <= floor) | (earlier & reduction != reduction) | (view.who & records.ATOMIC != 0):
        return True
    if not async_finished(view.observed, epoch, view.who, reads=False):
        suspect_operation(view, Suspicion.UNFINISHED_COPY, address, epoch, earlier)
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
    if not check_after_reduction(view, cell, floor, address):
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


# what was examined before -----------------------------------------------------------------------------------


@inlined
def whole_warp_fenced(view: RunView, held: int) -> bool:
    """Return whether all that a warp wrote in an epoch is ordered before and fenced, for every lane.

    `held` is the epoch, with PENDING if cp.async wrote.
    """
    watch, epoch = view.observed, held & records.EPOCHS
    clock, known, writer = watch.clock, running_clock(watch), local_warp(watch, epoch)
    if (view.flags & AsyncFlag.SHARED == 0) | (not in_block(watch, writer)):
        return False
    if held & records.PENDING != 0:
        if not copies_are_known(watch, epoch):
            return False
        epoch = max(epoch, last_wait(watch, epoch))
    if writer == clock.index:
        return min(smallest(known.last_fence), clock.synced) >= epoch
    return min(known.fenced_of[writer], clock.seen[writer]) >= epoch


@inlined
def remember_read(view: RunView, epoch: int) -> None:
    """Keep an epoch of plain reads that the other proxy may write over, whichever lanes they are of."""
    is_new = (view.handed_over < epoch) & (view.floor >= epoch)
    if is_new and reads_handed_over(view.observed, epoch):
        view.verified_plain_reads[view.verified_plain_count & (READS_VERIFIED - 1)] = epoch
        view.verified_plain_count += 1


@compiled()
def remember_cell(view: RunView, place: int) -> None:
    """Keep what was examined: other cells of the run that are alike need not be."""
    cell = cell_at(place, view.stride)
    held = cell.write_epoch
    if cell.writer & records.ASYNC_PROXY != 0 or whole_warp_fenced(view, held):
        view.verified = held
    number = view.verified_count & (READS_VERIFIED - 1)
    view.verified_reads[number] = cell.async_read_epoch
    view.verified_earlier[number] = cell.async_earlier_epoch
    view.verified_count += 1
    remember_read(view, cell.read_epoch)
    remember_read(view, cell.earlier_epoch)


# cells ------------------------------------------------------------------------------------------------------


class _Cells:
    """Some neighbouring cells of a run."""

    def __init__(self, code: WatchCode, view: Record, index: Value, count: int) -> None:
        self.code, self.view, self.count = code, view, count
        self.cell = Cell(code, index, view.get(RunView.stride))

    def spread(self, value: Value) -> Value:
        """Return a vector with a number in every element."""
        return value.spread(self.count) if self.count > 1 else value

    def known(self, field: int) -> Value:
        """Return an epoch of the view in every element."""
        return self.spread(self.view.get(field).to(U32))

    def get(self, plane: int) -> Value:
        """Return the cells in one plane."""
        return self.cell.get(plane, self.count)

    def doubtful(self, reads: Value, writes: Value) -> Value:
        """Return whether the cells have to be examined one by one."""
        written, start = self.get(ShadowPlane.WRITE_EPOCH), self.known(RunView.start)
        fresh = written < start
        settled = ~(written > self.known(RunView.fenced)) & ~fresh
        same = written.equals(self.known(RunView.verified))
        # What is read from shared memory has to be written before.
        shared = (self.view.get(RunView.flags) & AsyncFlag.SHARED).differs(0)
        unknown = (~(same | settled) & ~(fresh & self.spread(~(reads & shared)))).any()
        is_doubtful = self.code.variable(unknown)
        is_doubtful.set(unknown)
        with self.code.when(writes):
            is_doubtful.set(is_doubtful.get() | self._read_before())
            for plane, field in (
                (ShadowPlane.ASYNC_READ_EPOCH, RunView.verified_reads),
                (ShadowPlane.ASYNC_EARLIER_EPOCH, RunView.verified_earlier),
            ):
                read = self.get(plane)
                good = read < start
                for number in range(READS_VERIFIED):
                    good = good | read.equals(self.spread(self.view.get(field + 4 * number, U32)))
                is_doubtful.set(is_doubtful.get() | (~good).any())
        return is_doubtful.get()

    def _read_before(self) -> Value:
        """Return whether plain reads of the cells have to be examined before the cells are written."""
        handed_over, low = self.known(RunView.handed_over), self.known(RunView.floor)
        last, earlier = (self.get(plane) for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH))
        is_doubtful = self.code.variable(self.code.constant(BOOL, 0))
        is_doubtful.set(self.code.constant(BOOL, 0))
        with self.code.when((last.max(earlier) > handed_over).any()):
            for read in (last, earlier):
                good = ~(read > handed_over)
                for number in range(READS_VERIFIED):
                    known = self.view.get(RunView.verified_plain_reads + 4 * number, U32)
                    good = good | (read.equals(self.spread(known)) & ~(read > low))
                is_doubtful.set(is_doubtful.get() | (~good).any())
        return is_doubtful.get()

    def to_examine(self, writes: Value) -> Value:
        """Return how many of the cells have to be examined: the first alone if all were accessed alike."""
        code = self.code
        if self.count == 1:
            return code.number(1)

        def differ(plane: int) -> Value:
            cells = self.get(plane)
            return cells.differs(cells.lane(0).spread(self.count)).any()

        unlike = differ(ShadowPlane.WRITE_EPOCH) | differ(ShadowPlane.WRITER)
        for plane in (
            ShadowPlane.READ_EPOCH,
            ShadowPlane.READER,
            ShadowPlane.EARLIER_EPOCH,
            ShadowPlane.ASYNC_READ_EPOCH,
            ShadowPlane.ASYNC_EARLIER_EPOCH,
        ):
            unlike = unlike | (differ(plane) & writes)
        return unlike.select(code.number(self.count), 1)

    def note_read(self) -> None:
        """Put a read on record; the last one by somebody else is kept beside it."""
        last, reader = self.get(ShadowPlane.ASYNC_READ_EPOCH), self.get(ShadowPlane.ASYNC_READER)
        me = self.known(RunView.who)
        other = ((reader ^ me) & (LANES - 1 | records.COLLECTIVE)).differs(0) & last.differs(0)
        with self.code.when(other.any()):
            for plane, value in (
                (ShadowPlane.ASYNC_EARLIER_EPOCH, last),
                (ShadowPlane.ASYNC_EARLIER_READER, reader),
            ):
                self.cell.set(plane, other.select(value, self.get(plane)))
        self.cell.set(ShadowPlane.ASYNC_READ_EPOCH, self.known(RunView.epoch))
        self.cell.set(ShadowPlane.ASYNC_READER, me)

    def keep_reduction(self) -> None:
        """Keep the last reduction by another thread: what is read has to wait for both."""
        last, writer = self.get(ShadowPlane.WRITE_EPOCH) & records.EPOCHS, self.get(ShadowPlane.WRITER)
        own = self.view.at(RunView.observed).get(BlockWatch.own_after).to(U32)
        reduction = records.ASYNC_PROXY | records.ATOMIC
        other = (writer & reduction).equals(reduction) & ~(last > self.spread(own)) & last.differs(0)
        with self.code.when(other.any()):
            for plane, value in ((ShadowPlane.EARLIER_EPOCH, last), (ShadowPlane.EARLIER_READER, writer)):
                self.cell.set(plane, other.select(value, self.get(plane)))

    def note_write(self) -> None:
        """Put a write on record, which is complete when its operation is."""
        self.cell.set(ShadowPlane.WRITE_EPOCH, self.known(RunView.epoch) | records.PENDING)
        self.cell.set(ShadowPlane.WRITER, self.known(RunView.who))


# runs -------------------------------------------------------------------------------------------------------


@inlined
def lowest_of_warps(watch: BlockWatch, epochs: Words) -> int:
    """Return the smallest epoch of a vector that has one for each warp of the block."""
    exists = lane_numbers() < watch.warps
    return smallest(choose(exists, epochs, -1))


@inlined
def settle(view: RunView, floor: int, fenced: int) -> None:
    """Note the epochs up to which writes are ordered before, and visible to the asynchronous proxy."""
    view.floor = floor
    view.fenced = min(fenced, floor)
    view.handed_over = floor


@inlined
def view_shared(view: RunView, block: BlockRecord) -> None:
    """Fill a RunView for the shared memory of a block."""
    watch, home, clock = view.observed, watch_of(block), running_clock(view.observed)
    settle(view, watch.shared_floor, lowest_of_warps(watch, clock.fenced_of))
    handed_over = max(lowest_of_warps(watch, clock.handed_over_of), home.start - 1)
    view.handed_over = min(handed_over, view.floor)
    if watch.cluster_blocks > 1:  # others may have written there
        view.fenced = 0
    view.home = home
    view.plane = home.shadow
    view.stride = home.stride
    view.shift = home.cell_shift
    view.host = block.shared
    view.origin = block.shared_first
    view.start = home.start


@inlined
def view_allocation(view: RunView, shadow: AllocationShadow) -> bool:
    """Fill a RunView for an allocation; false if nothing has to be looked at."""
    view.host = shadow.host
    view.origin = shadow.first
    view.initialised = shadow.initialised
    if shadow.reads_recorded == 0:
        if view.flags & AsyncFlag.WRITES == 0:
            return False
        suspect(Suspicion.UNRECORDED_READS, view.frame, view.site, 0, 0, 0, 0)
    if shadow.plane == 0:  # it is too large to be watched
        return False
    # Which part of it is accessed is not followed: all of it may be.
    shadow.accessed_from = 0
    shadow.accessed_to = shadow.size
    shadow.flags = shadow.flags | Flag.ASYNC_READS
    if view.flags & AsyncFlag.REDUCES != 0:  # as atomics, which keep earlier ones
        shadow.flags = shadow.flags | Flag.STRONG_ACCESS
    view.plane = shadow.plane
    view.stride = shadow.stride
    view.shift = shadow.cell_shift
    view.start = 1
    return True


@compiled()
def begin_runs(
    view: RunView,
    frame: WarpFrame,
    site: int,
    block: BlockRecord,
    host: int,
    flags: int,
    epoch: int,
    who: int,
) -> bool:
    """Fill a RunView; return whether anything has to be looked at.

    `block` is the block whose shared memory it is; of global memory, `host` is any address of it.
    """
    watch = watch_of(frame.block)
    clear_bytes(address_of(view), RunView.BYTES)
    view.frame = frame
    view.site = site
    view.flags = flags
    view.epoch = epoch
    view.who = who
    view.observed = watch
    view.home = watch
    view.verified = -1  # no epoch
    if flags & AsyncFlag.SHARED != 0:
        view_shared(view, block)
        return True
    settle(view, watch.global_floor, lowest_of_warps(watch, running_clock(watch).fenced_global_of))
    for number in range(watch.watch.allocation_count):
        shadow = watch.watch.allocations[number]
        if unsigned_less(host - shadow.host, shadow.size):
            return view_allocation(view, shadow)
    return False


@compiled()
def follow_run(view: RunView, offset: int, bytes: int) -> None:
    """Report a run that is read and has a byte that was never written; mark a run that is written."""
    marks = ByteArray.at(view.initialised)
    if view.flags & AsyncFlag.READS != 0 and not all_written(marks, offset, offset + bytes):
        lane = 0 if view.who & records.COLLECTIVE != 0 else lane_of(view.who)
        suspect(Suspicion.NEVER_WRITTEN, view.frame, view.site, lane, view.origin + offset, -1, 0)
    if view.flags & AsyncFlag.WRITES != 0:
        mark_written(marks, offset, offset + bytes)


def _write_look_at_run(code: WatchCode) -> None:
    """Write that the cells of a run are looked at, four at a time if there are as many."""
    view = code.record("view")
    flags = view.get(RunView.flags)
    reads, writes, reduces = (
        (flags & flag).differs(0) for flag in (AsyncFlag.READS, AsyncFlag.WRITES, AsyncFlag.REDUCES)
    )
    shift, offset = view.get(RunView.shift), code["host"] - view.get(RunView.host)
    cells = (code["bytes"] + ((code.number(1) << shift) - 1)) >> shift
    first = view.get(RunView.plane) + ((offset >> shift) << 2)
    by_fours = (cells & 3).equals(0)
    for count, wanted in ((4, by_fours), (1, ~by_fours)):
        with code.when(wanted), code.loop(cells >> (count.bit_length() - 1)) as index:
            together = _Cells(code, view, first + index * (4 * count), count)
            with code.when(together.doubtful(reads, writes)):
                with code.loop(together.to_examine(writes)) as step:
                    number = index * count + step
                    address = view.get(RunView.origin) + offset + (number << shift)
                    code.run(examine_async, view=view, place=first + number * 4, address=address)
                code.run(remember_cell, view=view, place=together.cell.address)
            with code.when(reads):
                together.note_read()
            with code.when(reduces):
                together.keep_reduction()
            with code.when(writes):
                together.note_write()
    with code.when(view.get(RunView.initialised).differs(0)):
        code.run(follow_run, view=view, offset=offset, bytes=code["bytes"])
    code.done()


@written(_write_look_at_run)
def look_at_run(view: RunView, host: int, bytes: int) -> None:
    """Look at a run of bytes, given by its address on the host."""
    signature_only()
