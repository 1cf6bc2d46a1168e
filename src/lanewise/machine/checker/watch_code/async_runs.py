"""Compiled code that looks at the bytes an asynchronous operation reads or writes, one run of them at a time.

A run that only complete operations and fenced, ordered stores came before costs a few vector instructions for
each 16 bytes. What may be wrong is examined cell by cell (`async_accesses.py`).
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import READS_VERIFIED, AsyncClock, AsyncFlag, RunView
from lanewise.machine.checker.records import (
    AllocationShadow,
    BlockWatch,
    ShadowPlane,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_accesses import reads_handed_over
from lanewise.machine.checker.watch_code.async_clocks import async_clock, running_index
from lanewise.machine.checker.watch_code.shadow_cells import Cell
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, least, most, warp_of, wide
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL


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
        found = self.code.variable(unknown)
        found.set(unknown)
        with self.code.when(writes):
            found.set(found.get() | self._read_before())
            for plane, field in (
                (ShadowPlane.ASYNC_READ_EPOCH, RunView.verified_reads),
                (ShadowPlane.ASYNC_EARLIER_EPOCH, RunView.verified_earlier),
            ):
                read = self.get(plane)
                good = read < start
                for number in range(READS_VERIFIED):
                    good = good | read.equals(self.spread(self.view.get(field + 4 * number, U32)))
                found.set(found.get() | (~good).any())
        return found.get()

    def _read_before(self) -> Value:
        """Return whether plain reads of the cells have to be examined before the cells are written."""
        handed_over, low = self.known(RunView.handed_over), self.known(RunView.floor)
        last, earlier = (self.get(each) for each in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH))
        found = self.code.variable(self.code.constant(BOOL, 0))
        found.set(self.code.constant(BOOL, 0))
        with self.code.when((last.max(earlier) > handed_over).any()):
            for read in (last, earlier):
                good = ~(read > handed_over)
                for number in range(READS_VERIFIED):
                    known = self.view.get(RunView.verified_plain_reads + 4 * number, U32)
                    good = good | (read.equals(self.spread(known)) & ~(read > low))
                found.set(found.get() | (~good).any())
        return found.get()

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

    def remember(self) -> None:
        """Keep what was examined: other cells of the run that are alike need not be."""
        first = Cell(self.code, self.cell.address, self.cell.stride)
        written = first.get(ShadowPlane.WRITE_EPOCH)
        fenced = self._whole_warp_fenced(wide(written & records.EPOCHS))
        with self.code.when((written & records.PENDING).differs(0) | fenced):
            self.view.set(RunView.verified, wide(written))
        count = self.view.get(RunView.verified_count)
        for plane, field in (
            (ShadowPlane.ASYNC_READ_EPOCH, RunView.verified_reads),
            (ShadowPlane.ASYNC_EARLIER_EPOCH, RunView.verified_earlier),
        ):
            self.view.pointer(field, U32).store(first.get(plane), count & (READS_VERIFIED - 1))
        self.view.set(RunView.verified_count, count + 1)
        for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH):
            self._remember_read(wide(first.get(plane)))

    def _remember_read(self, epoch: Value) -> None:
        """Keep an epoch of plain reads that the other proxy may write over, whichever lanes they are of."""
        code, view = self.code, self.view
        observed = Record(code, view.get(RunView.observed))
        handed_over = reads_handed_over(code, observed, epoch)
        new = (view.get(RunView.handed_over) < epoch) & ~(view.get(RunView.floor) < epoch)
        with code.when(new & handed_over):
            count = view.get(RunView.verified_plain_count)
            kept = view.pointer(RunView.verified_plain_reads, U32)
            kept.store(epoch.to(U32), count & (READS_VERIFIED - 1))
            view.set(RunView.verified_plain_count, count + 1)

    def _whole_warp_fenced(self, epoch: Value) -> Value:
        """Return whether all that a warp wrote in an epoch is ordered before and fenced, for every lane."""
        code, observed = self.code, Record(self.code, self.view.get(RunView.observed))
        clock = observed.at(BlockWatch.clock)
        index = clock.get(WarpClock.index)
        known = async_clock(code, observed, index)
        shared = (self.view.get(RunView.flags) & AsyncFlag.SHARED).differs(0)
        local = warp_of(code, observed, epoch) - observed.get(BlockWatch.first_warp)
        in_block = ~(local < 0) & (local < observed.get(BlockWatch.warps))
        place = in_block.select(local, 0)
        fenced = known.get(AsyncClock.fenced, U32, LANES)
        by_lanes = wide(code.intrinsic("vector.reduce.umin", U32, [fenced], of=fenced.type))
        own = ~(least(by_lanes, clock.get(WarpClock.synced)) < epoch)
        told = known.pointer(AsyncClock.fenced_of, U32).load(place)
        seen = clock.pointer(WarpClock.seen, U32).load(place)
        return shared & in_block & local.equals(index).select(own, ~(least(wide(told), wide(seen)) < epoch))

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

    def note_write(self) -> None:
        """Put a write on record, which is complete when its operation is."""
        self.cell.set(ShadowPlane.WRITE_EPOCH, self.known(RunView.epoch) | records.PENDING)
        self.cell.set(ShadowPlane.WRITER, self.known(RunView.who))


def write_begin_runs(module: ir.Module) -> ir.Function:
    """Write `begin_runs(view, frame, site, block, host, flags, epoch, who)`: fill a RunView.

    `block` is the record of the block whose shared memory it is; of global memory, `host` is any address of
    it. It returns 1, or 0 if nothing has to be looked at.
    """
    code = WatchCode(
        module, "begin_runs", ("view", "frame", "site", "block", "host", "flags", "epoch", "who")
    )  # fmt: skip
    view, frame = code.record("view"), code.record("frame")
    observed = frame.at(WarpFrame.block).at(BlockRecord.watch)
    launch = observed.at(BlockWatch.watch)
    for field, value in (
        (RunView.frame, frame.address),
        (RunView.site, code["site"]),
        (RunView.flags, code["flags"]),
        (RunView.epoch, code["epoch"]),
        (RunView.who, code["who"]),
        (RunView.observed, observed.address),
        (RunView.home, observed.address),
        (RunView.verified, code.number(-1)),  # no epoch
        (RunView.verified_count, code.number(0)),
        (RunView.verified_plain_count, code.number(0)),
        (RunView.swizzle, code.number(0)),
        (RunView.host, code.number(0)),
        (RunView.origin, code.number(0)),
    ):
        view.set(field, value)
    for field in (RunView.verified_reads, RunView.verified_earlier, RunView.verified_plain_reads):
        view.pointer(field, U32).store(code.constant(U32.by(READS_VERIFIED), 0))
    shared = (code["flags"] & AsyncFlag.SHARED).differs(0)
    clock = async_clock(code, observed, running_index(observed))
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    exists = Value(code, U32.by(LANES), counting) < observed.get(BlockWatch.warps).to(U32).spread(LANES)

    def lowest(vector: int) -> Value:
        known = exists.select(clock.get(vector, U32, LANES), -1)
        return wide(code.intrinsic("vector.reduce.umin", U32, [known], of=known.type))

    def settle(floor: Value, vector: int) -> None:
        # What was written up to here is ordered before, and visible to the asynchronous proxy.
        view.set(RunView.floor, floor)
        view.set(RunView.fenced, least(lowest(vector), floor))
        view.set(RunView.handed_over, floor)

    with code.when(shared):
        home = code.record("block").at(BlockRecord.watch)
        settle(observed.get(BlockWatch.shared_floor), AsyncClock.fenced_of)
        floor = most(lowest(AsyncClock.handed_over_of), home.get(BlockWatch.start) - 1)
        view.set(RunView.handed_over, least(floor, view.get(RunView.floor)))
        with code.when(observed.get(BlockWatch.cluster_blocks) > 1):  # others may have written there
            view.set(RunView.fenced, 0)
        for field, value in (
            (RunView.home, home.address),
            (RunView.plane, home.get(BlockWatch.shadow)),
            (RunView.stride, home.get(BlockWatch.stride)),
            (RunView.shift, home.get(BlockWatch.cell_shift)),
            (RunView.host, code.record("block").get(BlockRecord.shared)),
            (RunView.origin, code.record("block").get(BlockRecord.shared_first)),
            (RunView.start, home.get(BlockWatch.start)),
        ):
            view.set(field, value)
        code.done(1)
    settle(observed.get(BlockWatch.global_floor), AsyncClock.fenced_global_of)
    with code.loop(launch.get(WatchRecord.allocation_count)) as number:
        row = Record(code, launch.get(WatchRecord.allocations) + number * AllocationShadow.BYTES)
        offset = code["host"] - row.get(AllocationShadow.host)
        with code.when(offset.to(U64) < row.get(AllocationShadow.size, U64)):
            view.set(RunView.host, row.get(AllocationShadow.host))
            view.set(RunView.origin, row.get(AllocationShadow.first))
            with code.when(row.get(AllocationShadow.reads_recorded).equals(0)):
                with code.when((code["flags"] & AsyncFlag.WRITES).equals(0)):
                    code.done(0)
                zero = code.number(0)
                code.suspect(Suspicion.UNRECORDED_READS, frame.address, code["site"], zero, zero, zero, zero)
            with code.when(row.get(AllocationShadow.plane).equals(0)):  # it is too large to be watched
                code.done(0)
            # Which part of it is accessed is not followed: all of it may be.
            row.set(AllocationShadow.accessed_from, 0)
            row.set(AllocationShadow.accessed_to, row.get(AllocationShadow.size))
            row.set(AllocationShadow.flags, -1)
            for field, found in (
                (RunView.plane, AllocationShadow.plane),
                (RunView.stride, AllocationShadow.stride),
                (RunView.shift, AllocationShadow.cell_shift),
            ):
                view.set(field, row.get(found))
            view.set(RunView.start, 1)
            code.done(1)
    code.done(0)
    return code.function


def write_look_at_run(module: ir.Module) -> ir.Function:
    """Write `look_at_run(view, host, bytes)`: look at a run of bytes, given by its address on the host."""
    code = WatchCode(module, "look_at_run", ("view", "host", "bytes"))
    view = code.record("view")
    flags = view.get(RunView.flags)
    reads, writes = ((flags & each).differs(0) for each in (AsyncFlag.READS, AsyncFlag.WRITES))
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
                    code.call_number(
                        module.functions["examine_async"], view.get(RunView.frame),
                        view.get(RunView.observed), view.get(RunView.home), first + number * 4,
                        view.get(RunView.stride), view.get(RunView.who), view.get(RunView.site), address,
                        flags, view.get(RunView.swizzle),
                    )  # fmt: skip
                together.remember()
            with code.when(reads):
                together.note_read()
            with code.when(writes):
                together.note_write()
    code.done()
    return code.function


def write_async_runs(module: ir.Module) -> None:
    """Write the functions that look at runs of bytes into a module."""
    write_begin_runs(module)
    write_look_at_run(module)
