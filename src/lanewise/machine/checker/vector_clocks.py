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
    with code.when(warps.equals(1)):
        Record(code, observed.get(BlockWatch.clocks)).set(WarpClock.least, FAR)
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
    observed.set(BlockWatch.clock, clock.address)
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
    acquired, before = clock.get(WarpClock.acquired), observed.get(BlockWatch.epoch) - 1
    observed.set(BlockWatch.global_floor, least(acquired, before))
    earlier = most(most(acquired, clock.get(WarpClock.least)), observed.get(BlockWatch.start) - 1)
    observed.set(BlockWatch.shared_floor, least(earlier, before))
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
    for offset in (WarpClock.acquired, WarpClock.published):
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
    row.set(SiteRow.requests, row.get(SiteRow.requests) + 1)
    first = wide(code.intrinsic("cttz", U32, [code["active"].to(U32), code.constant(BOOL, 0)]))
    number = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement) & (abi.BARRIERS - 1)
    count = operand_of(code, warp, row, first, SiteRow.step_base, SiteRow.step)
    with code.when((count & (LANES - 1)).differs(0)):
        zero = code.number(0)
        code.suspect(Suspicion.BARRIER_COUNT_WRONG, warp.address, code["site"], first, count, zero, zero)
    barrier = Record(code, observed.get(BlockWatch.barriers) + number * WarpClock.BYTES)
    clock = observed.at(BlockWatch.clock)
    index = warp.get(WarpFrame.index)
    clock.pointer(WarpClock.seen, U32).store(observed.get(BlockWatch.epoch).to(U32), index)
    clock.pointer(WarpClock.seen_copies, U32).store(clock.get(WarpClock.copied).to(U32), index)
    with code.when(observed.get(BlockWatch.warps) > 1):
        _join(barrier, clock)
    observed.set(BlockWatch.fresh, 1)
    # Lanes of this warp that have neither exited nor arrived.
    pcs = warp.get(WarpFrame.pcs, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    missing = wide(alive & ~code["active"].to(U32))
    with code.when(clock.get(WarpClock.partial).equals(0)):
        clock.set(WarpClock.partial, missing)
        clock.set(WarpClock.broken, 0)
    code.done()


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
    kind, epoch = row.get(SiteRow.flags), observed.get(BlockWatch.epoch)
    with code.when(kind.equals(OrderKind.FENCE)):
        clock.set(WarpClock.published, epoch)
        observed.set(BlockWatch.fresh, 1)
    ring = Record(code, clock.address + WarpClock.ring)
    with code.when(kind.equals(OrderKind.COMMIT)):
        ring.pointer(0, U32).store(epoch.to(U32), clock.get(WarpClock.groups) & (records.RING_LENGTH - 1))
        clock.set(WarpClock.groups, clock.get(WarpClock.groups) + 1)
        # What is copied from now on belongs to the next group.
        observed.set(BlockWatch.fresh, 1)
    with code.when(kind.equals(OrderKind.TRACK)):
        clock.set(WarpClock.tracked, epoch)
        observed.set(BlockWatch.fresh, 1)
    with code.when(kind.equals(OrderKind.WAIT)):
        with code.when(row.get(SiteRow.displacement) < 0):  # for all copies, also those in no group
            clock.set(WarpClock.copied, epoch)
            observed.set(BlockWatch.fresh, 1)
        with code.when(~(row.get(SiteRow.displacement) < 0)):
            group = clock.get(WarpClock.groups) - 1 - row.get(SiteRow.displacement)
            with code.when(~(group < 0)):
                done = wide(ring.pointer(0, U32).load(group & (records.RING_LENGTH - 1)))
                clock.set(WarpClock.copied, most(clock.get(WarpClock.copied), done))
    code.done()


def members(module: ir.Module) -> None:
    """Write `members(frame, site, active)`: lanes synchronise with those that their masks name."""
    code = WatchCode(module, "members", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    launch = observed.at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    observed.set(BlockWatch.fresh, 1)
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
    code.done()


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
    members(module)
    arrive(module)
    release(module)
    parted(module)
    without_value(module)
    order(module)
