"""Compiled code of the vector clocks: epochs of warps, barriers, fences, asynchronous copies.

They decide which access happened before which; `shadow_memory.py` asks them.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Code, Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import (
    BlockWatch,
    Flag,
    LaneClocks,
    OrderKind,
    SiteRow,
    Suspicion,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record, zero_bytes
from lanewise.machine.codegen.lane_vectors import BOOL

LANES = abi.LANES
NUMBER = ir.IntType(64)
FAR = 0x7FFF_FFFF


class WatchCode(FunctionCode):
    """A function of the checker that takes and returns 64-bit numbers; loops are not unrolled here."""

    loop = Code.loop

    def __init__(
        self, module: ir.Module, name: str, arguments: tuple[str, ...], external: bool = False
    ) -> None:
        super().__init__(module, name, arguments, NUMBER, "external" if external else "internal")

    def done(self, value: Value | int = 0) -> None:
        """Return a value from the function."""
        self.give(self.number(value))

    def call_number(self, function: ir.Operand, *values: Value | int) -> Value:
        """Call a function of 64-bit numbers and return its result."""
        handles = [self.number(each).handle for each in values]
        return Value(self, i64, self.builder.call(function, handles))

    def stack_bytes(self, bytes: int) -> Record:
        """Allocate bytes on the stack and return them as a record."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(ir.ArrayType(NUMBER, bytes // 8))
            address = self.builder.ptrtoint(slot, NUMBER)
        return Record(self, Value(self, i64, address))

    def suspect(
        self, kind: int, warp: Value, site: Value, lane: Value, address: Value, epoch: Value, who: Value
    ) -> None:
        """Count a suspicion at an instruction, and report it to Python up to the row's limit."""
        observed = Record(self, warp).at(WarpFrame.block).at(BlockRecord.watch)
        launch = observed.at(BlockWatch.watch)
        row = Record(self, launch.get(WatchRecord.sites) + site * SiteRow.BYTES)
        count, limit = SiteRow.counts + 8 * kind, SiteRow.limits + 8 * kind
        row.set(count, row.get(count) + 1)
        with self.when(row.get(limit) > 0):
            row.set(limit, row.get(limit) - 1)
            values = [self.number(kind), warp, site, lane, address, epoch, who]
            pointer = ir.FunctionType(ir.VoidType(), [NUMBER] * len(values)).as_pointer()
            function = self.builder.inttoptr(launch.get(WatchRecord.callback).handle, pointer)
            self.builder.call(function, [each.handle for each in values])


def wide(value: Value) -> Value:
    """Return an unsigned word zero-extended to a 64-bit number."""
    return value.to(U64).to(i64)


def least(a: Value, b: Value | int) -> Value:
    """Return the smaller of two numbers."""
    return (a < b).select(a, b)


def most(a: Value, b: Value) -> Value:
    """Return the larger of two numbers."""
    return (a < b).select(b, a)


def running_lane_clocks(observed: Record) -> Record:
    """Return the LaneClocks of the running warp."""
    return observed.at(BlockWatch.running_lanes)


def lane_seen(code: WatchCode, lane_clocks: Record, lane: Value) -> Record:
    """Return the epochs up to which the accesses of every lane happened before those of one lane."""
    return Record(code, lane_clocks.address + lane * (4 * LANES) + LaneClocks.seen)


def clocks_of(code: WatchCode, observed: Record, warp: Record) -> tuple[Record, Record]:
    """Return the WarpClock and the LaneClocks of a warp."""
    index = warp.get(WarpFrame.index)
    return (
        Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES),
        Record(code, observed.get(BlockWatch.lane_clocks) + index * LaneClocks.BYTES),
    )


def begin_block(module: ir.Module) -> ir.Function:
    """Write `begin_block(observed, linear)`: begin a thread block with fresh clocks."""
    code = WatchCode(module, "begin_block", ("observed", "linear"))
    observed = code.record("observed")
    launch = observed.at(BlockWatch.watch)
    warps = observed.get(BlockWatch.warps)
    observed.set(BlockWatch.linear, code["linear"])
    now = least(launch.get(WatchRecord.now) + 1, launch.get(WatchRecord.log_size) - 1)
    launch.set(WatchRecord.now, now)
    observed.set(BlockWatch.start, now)
    observed.set(BlockWatch.first_warp, launch.get(WatchRecord.next_warp))
    begun = Value(code, i64, code.builder.sdiv(launch.get(WatchRecord.next_warp).handle, warps.handle))
    Record(code, launch.get(WatchRecord.begun)).pointer(0, U32).store(code["linear"].to(U32), begun)
    launch.set(WatchRecord.next_warp, launch.get(WatchRecord.next_warp) + warps)
    zero_bytes(code, observed.get(BlockWatch.clocks), warps * WarpClock.BYTES)
    with code.when(warps > 1):  # a warp alone brings nothing to barriers
        zero_bytes(code, observed.get(BlockWatch.barriers), code.number(abi.BARRIERS * WarpClock.BYTES))
    threads = warps * LANES
    zero_bytes(
        code, observed.get(BlockWatch.local_shadow), threads * (observed.get(BlockWatch.local_bytes) >> 2)
    )
    with code.loop(warps) as index:
        clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
        clock.set(WarpClock.synced, now - 1)
        clock.set(WarpClock.least, warps.equals(1).select(code.number(FAR), 0))
        lanes = Record(code, observed.get(BlockWatch.lane_clocks) + index * LaneClocks.BYTES)
        for each in (LaneClocks.groups, LaneClocks.issued, LaneClocks.copied):
            lanes.pointer(each, U32).store(code.constant(U32.by(LANES), 0))
    observed.set(BlockWatch.own_after, now)
    code.done()
    return code.function


def turn(module: ir.Module) -> ir.Function:
    """Write `turn(frame)`: begin a new epoch of a warp."""
    code = WatchCode(module, "turn", ("frame",))
    warp = code.record("frame")
    block = warp.at(WarpFrame.block)
    observed = block.at(BlockRecord.watch)
    launch = observed.at(BlockWatch.watch)
    begins = block.get(BlockRecord.linear).differs(observed.get(BlockWatch.linear))
    with code.when(begins):
        code.call_number(module.functions["begin_block"], observed.address, block.get(BlockRecord.linear))
    switches = begins | launch.get(WatchRecord.current).differs(warp.address)
    with code.when(switches):
        observed.set(BlockWatch.own_after, launch.get(WatchRecord.now))
    now = least(launch.get(WatchRecord.now) + 1, launch.get(WatchRecord.log_size) - 1)
    launch.set(WatchRecord.now, now)
    launch.set(WatchRecord.current, warp.address)
    index = warp.get(WarpFrame.index)
    Record(code, launch.get(WatchRecord.log)).pointer(0, U32).store(
        (observed.get(BlockWatch.first_warp) + index).to(U32), now
    )
    observed.set(BlockWatch.epoch, now)
    observed.set(BlockWatch.fresh, 0)
    clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
    clock.set(WarpClock.last, now)
    observed.set(BlockWatch.clock, clock.address)
    observed.set(BlockWatch.running_lanes, observed.get(BlockWatch.lane_clocks) + index * LaneClocks.BYTES)
    code.call_number(set_floors(module), observed.address)
    code.done()
    return code.function


def set_floors(module: ir.Module) -> ir.Function:
    """Write `set_floors(observed)`: compute the epochs up to which everything happened before."""
    existing: ir.Function | None = module.functions.get("set_floors")
    if existing is not None:
        return existing
    code = WatchCode(module, "set_floors", ("observed",))
    observed = code.record("observed")
    clock = observed.at(BlockWatch.clock)
    acquired, synced = clock.get(WarpClock.acquired), clock.get(WarpClock.synced)
    observed.set(BlockWatch.global_floor, least(acquired, synced))
    earlier = most(most(acquired, clock.get(WarpClock.least)), observed.get(BlockWatch.start) - 1)
    observed.set(BlockWatch.shared_floor, least(earlier, synced))
    with code.when(epochs_exhausted(observed)):
        observed.set(BlockWatch.shared_floor, FAR)
        observed.set(BlockWatch.global_floor, FAR)
    code.done()
    return code.function


def epochs_exhausted(observed: Record) -> Value:
    """Return whether there are no more epochs, so that nothing can be ordered any more."""
    return observed.get(BlockWatch.epoch).equals(observed.at(BlockWatch.watch).get(WatchRecord.log_size) - 1)


def in_turn(code: WatchCode, warp: Record) -> Record:
    """Return the watch of a warp's block, after `turn` if a new epoch has to begin."""
    block = warp.at(WarpFrame.block)
    observed = block.at(BlockRecord.watch)
    launch = observed.at(BlockWatch.watch)
    needed = (
        launch.get(WatchRecord.current).differs(warp.address)
        | observed.get(BlockWatch.fresh).differs(0)
        | block.get(BlockRecord.linear).differs(observed.get(BlockWatch.linear))
    )
    with code.when(needed):
        code.call_number(code.module.functions["turn"], warp.address)
    return observed


def _join(target: Record, source: Record) -> None:
    """Join one vector clock into another: the maximum of each element."""
    for offset in (WarpClock.seen, WarpClock.seen_copies):
        both = target.get(offset, U32, LANES).max(source.get(offset, U32, LANES))
        target.pointer(offset, U32).store(both)
    for offset in (WarpClock.acquired, WarpClock.published, WarpClock.published_gpu):
        target.set(offset, most(target.get(offset), source.get(offset)))


def operand_of(
    code: WatchCode, warp: Record, row: Record, lane: Value, register_field: int, constant_field: int
) -> Value:
    """Return a 32-bit operand of an instruction, from the register or the constant in its row."""
    offset = row.get(register_field)
    held = code.variable(row.get(constant_field))
    with code.when(offset > 0):
        held.set(wide(Record(code, warp.address + offset).pointer(0, U32).load(lane)))
    return held.get()


def _at_site(module: ir.Module, name: str) -> tuple[WatchCode, Record, Record, Record]:
    """Begin a function of (frame, site, active) that ends at once if no lane is active.

    It returns the function's code and the records of the warp, of its block's watch and of the site.
    """
    code = WatchCode(module, name, ("frame", "site", "active"))
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    return code, warp, observed, Record(code, sites + code["site"] * SiteRow.BYTES)


def arrive(module: ir.Module) -> None:
    """Write `arrive(frame, site, active)`: a warp arrives at a barrier of its block, or of itself."""
    code, warp, observed, row = _at_site(module, "arrive")
    with code.when((row.get(SiteRow.flags) & Flag.EVERY_LANE).differs(0)):
        code.call_number(module.functions["members"], code["frame"], code["site"], code["active"])
        code.done()
    # A barrier orders what the flags that were read before it have shown.
    clock = observed.at(BlockWatch.clock)
    clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), clock.get(WarpClock.glimpsed)))
    row.set(SiteRow.requests, row.get(SiteRow.requests) + 1)
    first = wide(code.intrinsic("cttz", U32, [code["active"].to(U32), code.constant(BOOL, 0)]))
    number = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement) & (abi.BARRIERS - 1)
    count = operand_of(code, warp, row, first, SiteRow.step_base, SiteRow.step)
    with code.when((count & (LANES - 1)).differs(0)):
        zero = code.number(0)
        code.suspect(Suspicion.BARRIER_COUNT_WRONG, warp.address, code["site"], first, count, zero, zero)
    barrier = Record(code, observed.get(BlockWatch.barriers) + number * WarpClock.BYTES)
    index = warp.get(WarpFrame.index)
    clock.pointer(WarpClock.seen, U32).store(observed.get(BlockWatch.epoch).to(U32), index)
    copied = complete_copies(code, clocks_of(code, observed, warp)[1], observed.get(BlockWatch.epoch))
    clock.pointer(WarpClock.seen_copies, U32).store(copied, index)
    with code.when(observed.get(BlockWatch.warps) > 1):
        _join(barrier, clock)
    observed.set(BlockWatch.fresh, 1)
    # Lanes of this warp that have neither exited nor arrived.
    pcs = warp.get(WarpFrame.pcs, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    missing = wide(alive & ~code["active"].to(U32))
    with code.when(missing.equals(0) & (row.get(SiteRow.flags) & Flag.WAITS).differs(0)):
        code.call_number(module.functions["synchronise"], warp.address, code["active"])
    with code.when(clock.get(WarpClock.partial).equals(0)):
        clock.set(WarpClock.partial, missing)
        clock.set(WarpClock.broken, 0)
    code.done()


def complete_copies(code: WatchCode, lanes: Record, now: Value) -> Value:
    """Return the epoch up to which the asynchronous copies of all lanes of a warp are complete."""
    issued, copied = (lanes.get(each, U32, LANES) for each in (LaneClocks.issued, LaneClocks.copied))
    open_until = (issued > copied).select(copied, now.to(U32).spread(LANES))
    return code.intrinsic("vector.reduce.umin", U32, [open_until], of=open_until.type)


def synchronise(module: ir.Module) -> ir.Function:
    """Write `synchronise(frame, lanes)`: lanes of a warp have synchronised, with order of their accesses."""
    code = WatchCode(module, "synchronise", ("frame", "lanes"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    now = observed.at(BlockWatch.watch).get(WatchRecord.now)
    clock, lane_clocks = clocks_of(code, observed, warp)
    lanes = code["lanes"].to(U32)
    pcs = warp.get(WarpFrame.pcs, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    chosen = Value(
        code, BOOL.by(LANES), code.builder.bitcast(lanes.handle, ir.VectorType(ir.IntType(1), LANES))
    )
    copied, for_all = (
        lane_clocks.get(each, U32, LANES) for each in (LaneClocks.copied, LaneClocks.copied_for_all)
    )
    lane_clocks.pointer(LaneClocks.copied_for_all, U32).store(chosen.select(copied, for_all))
    observed.set(BlockWatch.fresh, 1)
    with code.when((alive & ~lanes).equals(0)):
        clock.set(WarpClock.synced, now)
        code.done()
    clock.set(WarpClock.partly_synced, now)
    joined = code.variable(code.constant(U32.by(LANES), 0))
    joined.set(chosen.select(now.to(U32).spread(LANES), 0))
    with code.loop(LANES) as lane, code.when(((lanes >> lane.to(U32)) & 1).differs(0)):
        joined.set(
            joined.get().max(
                Record(code, lane_clocks.address + lane * (4 * LANES)).get(LaneClocks.seen, U32, LANES)
            )
        )
    with code.loop(LANES) as lane, code.when(((lanes >> lane.to(U32)) & 1).differs(0)):
        Record(code, lane_clocks.address + lane * (4 * LANES)).pointer(LaneClocks.seen, U32).store(
            joined.get()
        )
    code.done()
    return code.function


def release(module: ir.Module) -> None:
    """Write `check_release(block, barrier)`: warps that wait at a barrier take over its clock."""
    code = WatchCode(module, "check_release", ("block", "barrier"), external=True)
    block = code.record("block")
    launch = block.at(BlockRecord.launch)
    observed = block.at(BlockRecord.watch)
    barrier = Record(code, observed.get(BlockWatch.barriers) + code["barrier"] * WarpClock.BYTES)
    warps = observed.get(BlockWatch.warps)
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    numbers = Value(code, U32.by(LANES), counting)
    # A warp that has exited has arrived at every barrier.
    with code.when(warps > 1), code.loop(warps) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        pcs = warp.get(WarpFrame.pcs, U32, LANES)
        with code.when(~pcs.differs(abi.EXITED).any()):
            clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
            clock.pointer(WarpClock.seen, U32).store(clock.get(WarpClock.last).to(U32), index)
            _join(barrier, clock)
    with code.loop(warps) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        pcs = warp.get(WarpFrame.pcs, U32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        here = parked & warp.get(WarpFrame.barrier, U32, LANES).equals(code["barrier"].to(U32).spread(LANES))
        with code.when(here.any()):
            clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
            with code.when(warps > 1):
                _join(clock, barrier)
            others = numbers.differs(index.to(U32).spread(LANES)) & (numbers < warps.to(U32).spread(LANES))
            seen = others.select(clock.get(WarpClock.seen, U32, LANES), FAR)
            clock.set(WarpClock.least, wide(code.intrinsic("vector.reduce.umin", U32, [seen], of=seen.type)))
            highest = here.select(pcs, 0)
            target = code.intrinsic("vector.reduce.umax", U32, [highest], of=highest.type)
            elsewhere = pcs.differs(target.spread(LANES)) & pcs.differs(abi.EXITED)
            # Lanes that bypassed the barrier, accessed memory and exited.
            bits = Value(code, U32, code.builder.bitcast((~here).handle, ir.IntType(32)))
            left = (clock.get(WarpClock.partial) & wide(bits)).differs(0) & clock.get(
                WarpClock.broken
            ).differs(0)
            clock.set(WarpClock.partial, 0)
            clock.set(WarpClock.broken, 0)
            lanes_here = Value(code, U32, code.builder.bitcast(here.handle, ir.IntType(32)))
            code.call_number(module.functions["synchronise"], warp.address, wide(lanes_here))
            with code.when(elsewhere.any() | left):
                zero = code.number(0)
                code.suspect(
                    Suspicion.SPLIT_BARRIER, warp.address, zero, zero, wide(target), code["barrier"], zero
                )
    with code.when(warps > 1):
        zero_bytes(code, barrier.address, code.number(WarpClock.BYTES))
    observed.at(BlockWatch.watch).set(WatchRecord.current, 0)
    code.done()


def order(module: ir.Module) -> None:
    """Write `order(frame, site, active)`: a fence, or a commit or wait of asynchronous copies."""
    code, _, observed, row = _at_site(module, "order")
    clock = observed.at(BlockWatch.clock)
    lanes = running_lane_clocks(observed)
    kind, epoch = row.get(SiteRow.flags), observed.get(BlockWatch.epoch)
    fences = kind.equals(OrderKind.FENCE)
    with code.when(fences | kind.equals(OrderKind.BLOCK_FENCE)):
        clock.set(WarpClock.published, epoch)
        clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), clock.get(WarpClock.glimpsed)))
        code.call_number(module.functions["set_floors"], observed.address)
        observed.set(BlockWatch.fresh, 1)
    with code.when(fences):
        clock.set(WarpClock.published_gpu, epoch)
    with code.when(kind.equals(OrderKind.TRACK)):
        clock.set(WarpClock.tracked, epoch)
        observed.set(BlockWatch.fresh, 1)
    active = code["active"].to(U32)
    groups, copied = lanes.pointer(LaneClocks.groups, U32), lanes.pointer(LaneClocks.copied, U32)
    ring = lanes.pointer(LaneClocks.ring, U32)
    behind = row.get(SiteRow.displacement)
    with code.when(kind.equals(OrderKind.COMMIT) | kind.equals(OrderKind.WAIT)):
        # What is copied from now on belongs to the next group.
        observed.set(BlockWatch.fresh, 1)
        with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
            count = groups.load(lane)

            def slot(group: Value, lane: Value = lane) -> Value:
                return wide(group & (records.RING_LENGTH - 1)) * LANES + lane

            with code.when(kind.equals(OrderKind.COMMIT)):
                ring.store(epoch.to(U32), slot(count))
                groups.store(count + 1, lane)
            with code.when(kind.equals(OrderKind.WAIT)):
                with code.when(behind < 0):  # for all copies, also those in no group
                    copied.store(epoch.to(U32), lane)
                waits = ~(behind < 0) & (behind < records.RING_LENGTH) & (behind < wide(count))
                with code.when(waits):
                    done = ring.load(slot(count - 1 - behind.to(U32)))
                    copied.store(copied.load(lane).max(done), lane)
    code.done()


def members(module: ir.Module) -> None:
    """Write `members(frame, site, active)`: lanes synchronise with those that their masks name."""
    code = WatchCode(module, "members", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    launch = observed.at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    active = code["active"].to(U32)
    gone = warp.get(WarpFrame.pcs, U32, LANES).equals(abi.EXITED)
    there = active | Value(code, U32, code.builder.bitcast(gone.handle, ir.IntType(32)))
    clock = Record(code, observed.get(BlockWatch.clocks) + warp.get(WarpFrame.index) * WarpClock.BYTES)
    # Lanes that exited before the others arrived are not missing; those that bypassed them and exited are.
    strayed = clock.get(WarpClock.broken).differs(0).select(clock.get(WarpClock.awaited), 0).to(U32)
    clock.set(WarpClock.awaited, 0)
    there = there & ~(strayed & ~active)
    # A barrier of the warp waits for lanes that have not arrived; other instructions run only when all have.
    waits = (row.get(SiteRow.flags) & Flag.EVERY_LANE).differs(0)
    with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        mask = operand_of(code, warp, row, lane, SiteRow.base, SiteRow.displacement).to(U32)
        zero = code.number(0)
        with code.when(((mask >> lane.to(U32)) & 1).equals(0)):
            code.suspect(Suspicion.NOT_A_MEMBER, warp.address, code["site"], lane, wide(mask), zero, zero)
        absent = mask & ~there
        with code.when(absent.differs(0) & ~waits):
            code.suspect(
                Suspicion.ABSENT_MEMBER, warp.address, code["site"], lane, wide(mask), wide(absent), zero
            )
    with code.when(~waits):
        code.call_number(module.functions["meet"], code["frame"], code["active"])
        code.done()
    # Only a barrier of the warp orders accesses, and only those of the lanes that name each other.
    left = code.variable(active)
    again = code.function.append_basic_block("again")
    through = code.function.append_basic_block("through")
    after = code.function.append_basic_block("after_all")
    code.builder.branch(again)
    code.builder.position_at_end(again)
    code.builder.cbranch(left.get().differs(0).handle, through, after)
    code.builder.position_at_end(through)
    first = wide(code.intrinsic("cttz", U32, [left.get(), code.constant(BOOL, 0)]))
    mask = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement).to(U32)
    together = code.variable(code.constant(U32, 0))
    together.set(code.constant(U32, 0))
    with code.loop(LANES) as lane, code.when(((left.get() >> lane.to(U32)) & 1).differs(0)):
        other = operand_of(code, warp, row, lane, SiteRow.base, SiteRow.displacement).to(U32)
        bit = code.constant(U32, 1) << lane.to(U32)
        together.set(together.get() | other.equals(mask).select(bit, 0))
    code.call_number(module.functions["synchronise"], code["frame"], wide(together.get() & mask))
    left.set(left.get() & ~together.get())
    code.builder.branch(again)
    code.builder.position_at_end(after)
    code.done()


def meet(module: ir.Module) -> ir.Function:
    """Write `meet(frame, active)`: lanes are at one instruction together, without order of their accesses."""
    code = WatchCode(module, "meet", ("frame", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    clock, _ = clocks_of(code, observed, warp)
    pcs = warp.get(WarpFrame.pcs, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    with code.when((alive & ~code["active"].to(U32)).equals(0)):
        clock.set(WarpClock.converged, observed.at(BlockWatch.watch).get(WatchRecord.now))
        observed.set(BlockWatch.fresh, 1)
    code.done()
    return code.function


def parted(module: ir.Module) -> None:
    """Write `parted(frame, site, active)`: lanes are about to wait for those that their masks name."""
    code, warp, observed, row = _at_site(module, "parted")
    clock = observed.at(BlockWatch.clock)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    mask = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement).to(U32)
    pcs = warp.get(WarpFrame.pcs, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    with code.when(clock.get(WarpClock.awaited).equals(0)):
        clock.set(WarpClock.awaited, wide(mask & alive & ~active))
        clock.set(WarpClock.broken, 0)
    code.done()


def without_value(module: ir.Module) -> None:
    """Write `without_value(frame, site, lanes, register)`: lanes use an unassigned register."""
    code = WatchCode(module, "without_value", ("frame", "site", "lanes", "register"))
    first = wide(code.intrinsic("cttz", U32, [code["lanes"].to(U32), code.constant(BOOL, 0)]))
    zero = code.number(0)
    code.suspect(Suspicion.NO_VALUE, code["frame"], code["site"], first, code["register"], zero, zero)
    code.done()


def write_clocks(module: ir.Module) -> None:
    """Write all functions of the vector clocks into a module."""
    begin_block(module)
    turn(module)
    synchronise(module)
    meet(module)
    members(module)
    arrive(module)
    release(module)
    parted(module)
    without_value(module)
    order(module)
