"""Compiled code that looks at the bytes an asynchronous operation reads or writes, one run of them at a time.

A run that only complete operations and fenced, ordered stores came before costs a few vector instructions for
each 16 bytes. What may be wrong is examined cell by cell and reported to Python.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    FENCES_KEPT,
    READS_VERIFIED,
    AsyncClock,
    AsyncFlag,
    AsyncKind,
    NotedOperation,
    RunView,
    WarpFence,
)
from lanewise.machine.checker.records import (
    AllocationShadow,
    BlockWatch,
    ShadowPlane,
    Suspicion,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.watch_code.async_clocks import (
    async_clock,
    first_of_group,
    operation,
    running_index,
)
from lanewise.machine.checker.watch_code.happens_before import ORDERED, UNORDERED, WEAKLY_ORDERED
from lanewise.machine.checker.watch_code.shadow_cells import Cell, lane_of, lanes_of
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    in_cluster,
    least,
    most,
    warp_of,
    wide,
)
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: The answers of `fenced`: no fence, one in the thread that wrote, one in a thread that learnt of the write.
UNFENCED, FENCED, FENCED_HERE = 0, 1, 2


def write_async_finished(module: ir.Module) -> ir.Function:
    """Write `async_finished(observed, epoch, me, reads)`: whether the running warp knows of a completion.

    `reads`: it is enough that the operation has read its source.
    """
    code = WatchCode(module, "async_finished", ("observed", "epoch", "me", "reads"))
    observed, epoch, me = code.record("observed"), code["epoch"], code["me"].to(U32)
    found = operation(code, observed, epoch)

    def part(field: int) -> Value:
        return wide(found.get(field, U32))

    local = warp_of(code, observed, epoch) - observed.get(BlockWatch.first_warp)
    elsewhere = (local < 0) | ~(local < observed.get(BlockWatch.warps))
    with code.when(part(NotedOperation.epoch).differs(epoch)):
        code.done(1)  # it is too long ago to be on record
    kind = part(NotedOperation.kind)
    with code.when(kind.equals(AsyncKind.PHASE)):
        home = found.at(NotedOperation.home)
        # Another cluster, or an earlier one: its mbarriers are not followed here.
        same = home.get(BlockWatch.cluster_first).equals(observed.get(BlockWatch.cluster_first))
        with code.when(~same | (epoch < home.get(BlockWatch.start))):
            code.done(1)
        barrier, phase = part(NotedOperation.barrier), part(NotedOperation.phase)
        code.done(
            code.call_number(
                module.functions["phase_is_known"], observed.address, home.address, barrier, phase, wide(me)
            )
        )
    with code.when(elsewhere):
        # Of another block of the cluster: at least it has to be issued before.
        issued = code.call_number(module.functions["ordered"], observed.address, epoch, 0, 0, wide(me))
        with code.when(in_cluster(code, observed, epoch) & issued.equals(UNORDERED)):
            code.done(0)
        code.done(_known_elsewhere(code, found, me))
    index, agent, phase = running_index(observed), part(NotedOperation.agent), part(NotedOperation.phase)
    clock = async_clock(code, observed, index)
    with code.when(kind.equals(AsyncKind.WGMMA)):
        known = wide(clock.pointer(AsyncClock.wgmma_of, U32).load(agent))
        own = first_of_group(index).equals(agent)
        known = own.select(most(known, clock.get(AsyncClock.wgmma_done)), known)
        code.done((phase < known).to(U64).to(i64))
    for wanted, of, until, at in (
        (1, AsyncClock.reads_of, AsyncClock.bulk_read, AsyncClock.bulk_read_at),
        (0, AsyncClock.writes_of, AsyncClock.bulk_done, AsyncClock.bulk_done_at),
    ):
        with code.when(code["reads"].equals(wanted)):
            with code.when(agent.differs(index)):
                seen = wide(clock.pointer(of, U32).load(agent))
                code.done((~(seen < epoch)).to(U64).to(i64))
            lane = part(NotedOperation.lane)
            waited = ~(wide(clock.pointer(until, U32).load(lane)) < epoch)
            same = lane.equals(wide(lane_of(me))) & (me & records.COLLECTIVE).equals(0)
            bit = wide(code.constant(U32, 1) << lane.to(U32))
            with code.when(waited & ~same):
                when = wide(clock.pointer(at, U32).load(lane))
                answer = code.call_number(
                    module.functions["ordered"], observed.address, when, 0, bit, wide(me)
                )
                code.done(answer.equals(ORDERED).to(U64).to(i64))
            code.done(waited.to(U64).to(i64))
    code.done(1)
    return code.function


def _known_elsewhere(code: WatchCode, found: Record, me: Value) -> Value:
    """Return whether an operation of another block is known to be complete: a bulk group that was waited for.

    What other blocks only read, or an mbarrier of theirs is told of, is taken for complete.
    """
    observed = code.record("observed")
    completed = wide(found.get(NotedOperation.completed, U32))
    lane = wide(code.constant(U32, 1) << found.get(NotedOperation.lane, U32))
    answer = code.call_number(
        code.module.functions["ordered"], observed.address, completed, 0, lane, wide(me)
    )
    in_group = found.get(NotedOperation.kind, U32).equals(AsyncKind.BULK_GROUP) & code["reads"].equals(0)
    known = completed.differs(0) & answer.differs(0)
    return (~in_group | known).to(U64).to(i64)


def write_fenced(module: ir.Module) -> ir.Function:
    """Write `fenced(observed, epoch, lanes, shared)`: whether a plain write is visible to the other proxy."""
    code = WatchCode(module, "fenced", ("observed", "epoch", "lanes", "shared"))
    observed, epoch = code.record("observed"), code["epoch"]
    owner = warp_of(code, observed, epoch)
    local = owner - observed.get(BlockWatch.first_warp)
    index = running_index(observed)
    clock = async_clock(code, observed, index)
    shared = code["shared"].differs(0)
    with code.when((local < 0) | ~(local < observed.get(BlockWatch.warps))):
        # Of another block: the last fence of its warps is on record, or a thread of this one has fenced.
        table = observed.at(BlockWatch.watch).get(WatchRecord.fences)
        warps = observed.get(BlockWatch.warps)
        first = owner - Value(code, i64, code.builder.srem(owner.handle, warps.handle))
        with code.loop(warps) as number:
            last = Record(code, table + ((first + number) & (FENCES_KEPT - 1)) * WarpFence.BYTES)
            known = wide(last.get(WarpFence.warp, U32)).equals(first + number + 1)
            with code.when(known & ~(wide(last.get(WarpFence.epoch, U32)) < epoch)):
                code.done(FENCED)
        here = shared.select(
            clock.get(AsyncClock.fenced, U32, LANES), clock.get(AsyncClock.fenced_global, U32, LANES)
        )
        fenced_here = ~(wide(code.intrinsic("vector.reduce.umax", U32, [here], of=here.type)) < epoch)
        code.done(fenced_here.select(code.number(FENCED), UNFENCED))
    chosen = Value(
        code,
        BOOL.by(LANES),
        code.builder.bitcast(code["lanes"].to(U32).handle, ir.VectorType(ir.IntType(1), LANES)),
    )
    when = epoch.to(U32).spread(LANES)
    for mine, theirs, wanted in (
        (AsyncClock.fenced, AsyncClock.fenced_of, shared),
        (AsyncClock.fenced_global, AsyncClock.fenced_global_of, ~shared),
    ):
        with code.when(wanted & local.equals(index)):
            open_lanes = chosen & (clock.get(mine, U32, LANES) < when)
            with code.when(~open_lanes.any()):
                code.done(FENCED)
            # Another lane of the warp has fenced, after the lanes had synchronised.
            latest = code.intrinsic(
                "vector.reduce.umax", U32, [clock.get(mine, U32, LANES)], of=U32.by(LANES)
            )
            code.done((wide(latest) < epoch).select(code.number(UNFENCED), FENCED_HERE))
        with code.when(wanted & ~(wide(clock.pointer(theirs, U32).load(local)) < epoch)):
            code.done(FENCED)
    here = wide(clock.pointer(AsyncClock.fenced_here_of, U32).load(local))
    code.done((here < epoch).select(code.number(UNFENCED), FENCED_HERE))
    return code.function


def write_examine_async(module: ir.Module) -> ir.Function:
    """Write `examine_async(…)`: report what is not complete, ordered or fenced before an operation."""
    code = WatchCode(
        module, "examine_async",
        ("frame", "observed", "home", "cell", "stride", "who", "site", "address", "flags", "swizzle"),
    )  # fmt: skip
    observed, home = code.record("observed"), code.record("home")
    cell, me = Cell(code, code["cell"], code["stride"]), code["who"].to(U32)
    flags = code["flags"]
    shared, reads, writes = (
        (flags & each).differs(0) for each in (AsyncFlag.SHARED, AsyncFlag.READS, AsyncFlag.WRITES)
    )
    floor = shared.select(home.get(BlockWatch.start) - 1, 0)

    def tell(kind: int, when: Value, who: Value) -> None:
        lane = wide((me & records.COLLECTIVE).differs(0).select(code.constant(U32, 0), lane_of(me)))
        code.suspect(kind, code["frame"], code["site"], lane, code["address"], when, wide(who))

    def finished(epoch: Value, reading: int) -> Value:
        answer = code.call_number(
            module.functions["async_finished"], observed.address, epoch, wide(me), reading
        )
        return answer.differs(0)

    stored, writer = cell.get(ShadowPlane.WRITE_EPOCH), cell.get(ShadowPlane.WRITER)
    epoch = wide(stored & records.EPOCHS)
    with code.when(shared & reads & ~(floor < epoch)):
        tell(Suspicion.UNINITIALISED, code.number(0), code.constant(U32, 0))
        code.done()
    is_async = (writer & records.ASYNC_PROXY).differs(0)
    # Atomics and reductions may come in any order.
    both_reduce = (writer & me & records.ATOMIC).differs(0)
    with code.when((floor < epoch) & is_async & ~both_reduce & ~finished(epoch, 0)):
        tell(Suspicion.UNFINISHED_COPY, epoch, writer)
        code.done()
    swizzle = wide(operation(code, observed, epoch).get(NotedOperation.swizzle, U32))
    differs = swizzle.differs(0) & code["swizzle"].differs(0) & swizzle.differs(code["swizzle"])
    with code.when((floor < epoch) & is_async & differs):
        tell(Suspicion.SWIZZLE_DIFFERS, epoch, writer)
        code.done()
    with code.when((floor < epoch) & ~is_async & ~both_reduce):
        lanes = wide(lanes_of(writer))
        answer = code.call_number(
            module.functions["ordered"], observed.address, epoch, wide(writer), lanes, wide(me)
        )
        with code.when(answer.equals(WEAKLY_ORDERED)):
            tell(Suspicion.WEAKLY_AFTER_WRITE, epoch, writer)
            code.done()
        with code.when(answer.differs(ORDERED)):
            tell(Suspicion.AFTER_WRITE, epoch, writer)
            code.done()
        fence = code.call_number(
            module.functions["fenced"], observed.address, epoch, lanes, shared.to(U64).to(i64)
        )
        with code.when(fence.equals(UNFENCED) & reads):
            tell(Suspicion.UNFENCED, epoch, writer)
            code.done()
        with code.when(fence.differs(FENCED)):
            tell(Suspicion.WEAKLY_FENCED, epoch, writer)
            code.done()
    with code.when(writes):
        for when, who in (
            (ShadowPlane.ASYNC_EARLIER_EPOCH, ShadowPlane.ASYNC_EARLIER_READER),
            (ShadowPlane.ASYNC_READ_EPOCH, ShadowPlane.ASYNC_READER),
        ):
            read = wide(cell.get(when))
            with code.when((floor < read) & ~finished(read, 1)):
                tell(Suspicion.UNFINISHED_READ, read, cell.get(who))
                code.done()
        for when, who in (
            (ShadowPlane.EARLIER_EPOCH, ShadowPlane.EARLIER_READER),
            (ShadowPlane.READ_EPOCH, ShadowPlane.READER),
        ):
            read, reader = wide(cell.get(when) & records.EPOCHS), cell.get(who)
            with code.when((floor < read) & (reader & records.ATOMIC).equals(0)):
                answer = code.call_number(
                    module.functions["ordered"], observed.address, read, wide(reader),
                    wide(lanes_of(reader)), wide(me),
                )  # fmt: skip
                with code.when(answer.equals(0)):
                    tell(Suspicion.AFTER_READ, read, reader)
                    code.done()
                with code.when(answer.differs(ORDERED)):
                    tell(Suspicion.WEAKLY_AFTER_READ, read, reader)
                    code.done()
    code.done()
    return code.function


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
            low = self.known(RunView.floor)
            for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH):
                found.set(found.get() | (self.get(plane) > low).any())
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

    def _whole_warp_fenced(self, epoch: Value) -> Value:
        """Return whether all that a warp wrote in an epoch is ordered before, and fenced, whatever the lane."""
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
        (RunView.swizzle, code.number(0)),
    ):
        view.set(field, value)
    for field in (RunView.verified_reads, RunView.verified_earlier):
        view.pointer(field, U32).store(code.constant(U32.by(READS_VERIFIED), 0))
    shared = (code["flags"] & AsyncFlag.SHARED).differs(0)
    clock = async_clock(code, observed, running_index(observed))
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    exists = Value(code, U32.by(LANES), counting) < observed.get(BlockWatch.warps).to(U32).spread(LANES)

    def settle(floor: Value, vector: int) -> None:
        # What was written up to here is ordered before, and visible to the asynchronous proxy.
        known = exists.select(clock.get(vector, U32, LANES), -1)
        lowest = wide(code.intrinsic("vector.reduce.umin", U32, [known], of=known.type))
        view.set(RunView.floor, floor)
        view.set(RunView.fenced, least(lowest, floor))

    with code.when(shared):
        home = code.record("block").at(BlockRecord.watch)
        settle(observed.get(BlockWatch.shared_floor), AsyncClock.fenced_of)
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
            with code.when(row.get(AllocationShadow.reads_recorded).equals(0)):
                with code.when((code["flags"] & AsyncFlag.WRITES).equals(0)):
                    code.done(0)
                zero = code.number(0)
                code.suspect(Suspicion.UNRECORDED_READS, frame.address, code["site"], zero, zero, zero, zero)
            # Which part of it is accessed is not followed: all of it may be.
            row.set(AllocationShadow.accessed_from, 0)
            row.set(AllocationShadow.accessed_to, row.get(AllocationShadow.size))
            for field, found in (
                (RunView.plane, AllocationShadow.plane),
                (RunView.stride, AllocationShadow.stride),
                (RunView.shift, AllocationShadow.cell_shift),
                (RunView.host, AllocationShadow.host),
                (RunView.origin, AllocationShadow.first),
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
                with code.loop(count) as step:
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


def write_async_accesses(module: ir.Module) -> None:
    """Write the functions that look at runs of bytes into a module."""
    write_fenced(module)
    write_examine_async(module)
    write_begin_runs(module)
    write_look_at_run(module)
