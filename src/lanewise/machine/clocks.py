"""What happened before what: epochs of warps, barriers, fences, groups of asynchronous copies. Compiled code.

Shadow memory, which asks these clocks, is `shadow.py`'s.
"""

from __future__ import annotations

from typing import Any

from lanewise.arith import ir
from lanewise.arith.simd import Code, Value, i64
from lanewise.machine import frame, watch
from lanewise.machine.code import U32, U64, FunctionCode, Record
from lanewise.machine.lanes import BOOL
from lanewise.machine.observe import FRESH

LANES = frame.LANES
NUMBER = ir.IntType(64)
FAR = 0x7FFF_FFFF


class WatchCode(FunctionCode):
    """A function of the watch: numbers in, a number out; loops are left to LLVM."""

    loop = Code.loop

    def __init__(
        self, module: ir.Module, name: str, arguments: tuple[str, ...], external: bool = False
    ) -> None:
        super().__init__(module, name, arguments, NUMBER, "external" if external else "internal")

    def done(self, value: Value | int = 0) -> None:
        """Return."""
        self.give(self.number(value))

    def call_number(self, function: Any, *values: Value | int) -> Value:
        """Call a function of numbers."""
        handles = [self.number(each).handle for each in values]
        return Value(self, i64, self.builder.call(function, handles))

    def room(self, bytes: int) -> Record:
        """Bytes on the stack."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(ir.ArrayType(NUMBER, bytes // 8))
            place = self.builder.ptrtoint(slot, NUMBER)
        return Record(self, Value(self, i64, place))

    def suspect(
        self, kind: int, warp: Value, site: Value, lane: Value, address: Value, epoch: Value, who: Value
    ) -> None:
        """Count a suspicion at an instruction; tell Python of it as long as it wants to hear."""
        observed = Record(self, warp).at(frame.BLOCK).at(frame.OBSERVED)
        launch = observed.at(watch.WATCH)
        row = Record(self, launch.get(watch.SITES) + site * watch.SITE_BYTES)
        count, limit = watch.COUNTS + 8 * kind, watch.LIMITS + 8 * kind
        row.set(count, row.get(count) + 1)
        with self.when(row.get(limit) > 0):
            row.set(limit, row.get(limit) - 1)
            values = [self.number(kind), warp, site, lane, address, epoch, who]
            pointer = ir.FunctionType(ir.VoidType(), [NUMBER] * len(values)).as_pointer()
            function = self.builder.inttoptr(launch.get(watch.CALLBACK).handle, pointer)
            self.builder.call(function, [each.handle for each in values])


def wide(value: Value) -> Value:
    """A word as a number."""
    return value.to(U64).to(i64)


def least(a: Value, b: Value | int) -> Value:
    """The smaller, of numbers."""
    return (a < b).select(a, b)


def most(a: Value, b: Value) -> Value:
    """The larger, of numbers."""
    return (a < b).select(b, a)


def begin_block(module: ir.Module) -> Any:
    """`begin_block(observed, linear)`: fresh clocks."""
    code = WatchCode(module, "begin_block", ("observed", "linear"))
    observed = code.record("observed")
    launch = observed.at(watch.WATCH)
    warps = observed.get(watch.WARPS)
    observed.set(watch.LINEAR, code["linear"])
    now = least(launch.get(watch.NOW) + 1, launch.get(watch.LOG_SIZE) - 1)
    launch.set(watch.NOW, now)
    observed.set(watch.START, now)
    observed.set(watch.FIRST_WARP, launch.get(watch.NEXT_WARP))
    begun = Value(code, i64, code.builder.sdiv(launch.get(watch.NEXT_WARP).handle, warps.handle))
    Record(code, launch.get(watch.BEGUN)).pointer(0, U32).store(code["linear"].to(U32), begun)
    launch.set(watch.NEXT_WARP, launch.get(watch.NEXT_WARP) + warps)
    zero_bytes(code, observed.get(watch.CLOCKS), warps * watch.CLOCK_BYTES)
    zero_bytes(code, observed.get(watch.BARRIERS), code.number(watch.BARRIER_COUNT * watch.BARRIER_BYTES))
    threads = warps * LANES
    zero_bytes(code, observed.get(watch.LOCAL_SHADOW), threads * (observed.get(watch.LOCAL_BYTES) >> 2))
    with code.when(warps.equals(1)):
        Record(code, observed.get(watch.CLOCKS)).set(watch.LEAST, FAR)
    code.done()
    return code.function


def zero_bytes(code: FunctionCode, to: Value, size: Value) -> None:
    """Bytes set to zero."""
    pointer = ir.IntType(8).as_pointer()
    function = code.external(
        "llvm.memset.p0.i64", ir.VoidType(), [pointer, ir.IntType(8), NUMBER, ir.IntType(1)]
    )
    handle = code.builder.inttoptr(to.handle, pointer)
    code.builder.call(
        function, [handle, ir.Constant(ir.IntType(8), 0), size.handle, ir.Constant(ir.IntType(1), 0)]
    )


def turn(module: ir.Module) -> Any:
    """`turn(frame)`: an epoch of this warp's, a new one if its lanes have synchronised."""
    code = WatchCode(module, "turn", ("frame",))
    warp = code.record("frame")
    block = warp.at(frame.BLOCK)
    observed = block.at(frame.OBSERVED)
    launch = observed.at(watch.WATCH)
    begins = block.get(frame.LINEAR).differs(observed.get(watch.LINEAR))
    with code.when(begins):
        code.call_number(module.globals["begin_block"], observed.address, block.get(frame.LINEAR))
    now = least(launch.get(watch.NOW) + 1, launch.get(watch.LOG_SIZE) - 1)
    launch.set(watch.NOW, now)
    launch.set(watch.CURRENT, warp.address)
    index = warp.get(frame.INDEX)
    Record(code, launch.get(watch.LOG)).pointer(0, U32).store(
        (observed.get(watch.FIRST_WARP) + index).to(U32), now
    )
    observed.set(watch.EPOCH, now)
    observed.set(FRESH, 0)
    clock = Record(code, observed.get(watch.CLOCKS) + index * watch.CLOCK_BYTES)
    observed.set(watch.CLOCK, clock.address)
    code.call_number(set_floors(module), observed.address)
    code.done()
    return code.function


def set_floors(module: ir.Module) -> Any:
    """`set_floors(observed)`: the epochs up to which everything is known to have happened before."""
    existing = module.globals.get("set_floors")
    if existing is not None:
        return existing
    code = WatchCode(module, "set_floors", ("observed",))
    observed = code.record("observed")
    clock = observed.at(watch.CLOCK)
    acquired, before = clock.get(watch.ACQUIRED), observed.get(watch.EPOCH) - 1
    observed.set(watch.GLOBAL_FLOOR, least(acquired, before))
    earlier = most(most(acquired, clock.get(watch.LEAST)), observed.get(watch.START) - 1)
    observed.set(watch.SHARED_FLOOR, least(earlier, before))
    with code.when(over(observed)):
        observed.set(watch.SHARED_FLOOR, FAR)
        observed.set(watch.GLOBAL_FLOOR, FAR)
    code.done()
    return code.function


def over(observed: Record) -> Value:
    """Whether time has run out: there are no more epochs to tell what came before what."""
    return observed.get(watch.EPOCH).equals(observed.at(watch.WATCH).get(watch.LOG_SIZE) - 1)


def in_turn(code: WatchCode, warp: Record) -> Record:
    """The block's watch, after `turn` if that is needed."""
    block = warp.at(frame.BLOCK)
    observed = block.at(frame.OBSERVED)
    launch = observed.at(watch.WATCH)
    needed = (
        launch.get(watch.CURRENT).differs(warp.address)
        | observed.get(FRESH).differs(0)
        | block.get(frame.LINEAR).differs(observed.get(watch.LINEAR))
    )
    with code.when(needed):
        code.call_number(code.module.globals["turn"], warp.address)
    return observed


def _join(target: Record, source: Record) -> None:
    for offset in (watch.SEEN, watch.SEEN_COPIES):
        both = target.get(offset, U32, LANES).max(source.get(offset, U32, LANES))
        target.pointer(offset, U32).store(both)
    for offset in (watch.ACQUIRED, watch.PUBLISHED):
        target.set(offset, most(target.get(offset), source.get(offset)))


def operand_of(code: WatchCode, warp: Record, row: Record, lane: Value, place: int, constant: int) -> Value:
    """A 32-bit operand of an instruction: a register's place in the frame (or -1) and a constant."""
    where = row.get(place)
    held = code.variable(row.get(constant))
    with code.when(where > 0):
        held.set(wide(Record(code, warp.address + where).pointer(0, U32).load(lane)))
    return held.get()


def arrive(module: ir.Module) -> None:
    """`arrive(frame, site, active)`: a warp at a barrier of the block, or of the warp itself."""
    code = WatchCode(module, "arrive", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    row = Record(code, observed.at(watch.WATCH).get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    with code.when((row.get(watch.FLAGS) & watch.EVERY_LANE).differs(0)):
        code.call_number(module.globals["members"], code["frame"], code["site"], code["active"])
        code.done()
    row.set(watch.REQUESTS, row.get(watch.REQUESTS) + 1)
    first = wide(code.intrinsic("cttz", U32, [code["active"].to(U32), code.constant(BOOL, 0)]))
    number = operand_of(code, warp, row, first, watch.BASE, watch.DISPLACEMENT) & (watch.BARRIER_COUNT - 1)
    count = operand_of(code, warp, row, first, watch.STEP_BASE, watch.STEP)
    with code.when((count & (LANES - 1)).differs(0)):
        zero = code.number(0)
        code.suspect(watch.BARRIER_COUNT_WRONG, warp.address, code["site"], first, count, zero, zero)
    barrier = Record(code, observed.get(watch.BARRIERS) + number * watch.BARRIER_BYTES)
    clock = observed.at(watch.CLOCK)
    index = warp.get(frame.INDEX)
    clock.pointer(watch.SEEN, U32).store(observed.get(watch.EPOCH).to(U32), index)
    clock.pointer(watch.SEEN_COPIES, U32).store(clock.get(watch.COPIED).to(U32), index)
    with code.when(observed.get(watch.WARPS) > 1):
        _join(barrier, clock)
    observed.set(FRESH, 1)
    # Lanes of this warp that are alive and not here yet.
    pcs = warp.get(frame.PCS, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(frame.EXITED).handle, ir.IntType(32)))
    missing = wide(alive & ~code["active"].to(U32))
    with code.when(clock.get(watch.PARTIAL).equals(0)):
        clock.set(watch.PARTIAL, missing)
        clock.set(watch.BROKEN, 0)
    code.done()


def release(module: ir.Module) -> None:
    """`release(block, barrier)`: those who wait at a barrier take what those who came have brought."""
    code = WatchCode(module, "release", ("block", "barrier"), external=True)
    block = code.record("block")
    launch = block.at(frame.LAUNCH)
    observed = block.at(frame.OBSERVED)
    barrier = Record(code, observed.get(watch.BARRIERS) + code["barrier"] * watch.BARRIER_BYTES)
    warps = observed.get(watch.WARPS)
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    numbers = Value(code, U32.by(LANES), counting)
    with code.loop(warps) as index:
        warp = Record(code, block.get(frame.FRAMES) + index * launch.get(frame.FRAME_BYTES))
        pcs = warp.get(frame.PCS, U32, LANES)
        parked = (pcs > frame.PARKED - 1) & (pcs < frame.EXITED)
        here = parked & warp.get(frame.BARRIER, U32, LANES).equals(code["barrier"].to(U32).spread(LANES))
        with code.when(here.any()):
            clock = Record(code, observed.get(watch.CLOCKS) + index * watch.CLOCK_BYTES)
            with code.when(warps > 1):
                _join(clock, barrier)
            others = numbers.differs(index.to(U32).spread(LANES)) & (numbers < warps.to(U32).spread(LANES))
            seen = others.select(clock.get(watch.SEEN, U32, LANES), FAR)
            clock.set(watch.LEAST, wide(code.intrinsic("vector.reduce.umin", U32, [seen], of=seen.type)))
            highest = here.select(pcs, 0)
            place = code.intrinsic("vector.reduce.umax", U32, [highest], of=highest.type)
            elsewhere = pcs.differs(place.spread(LANES)) & pcs.differs(frame.EXITED)
            # Lanes that went on beside the barrier, did something and left.
            bits = Value(code, U32, code.builder.bitcast((~here).handle, ir.IntType(32)))
            left = (clock.get(watch.PARTIAL) & wide(bits)).differs(0) & clock.get(watch.BROKEN).differs(0)
            clock.set(watch.PARTIAL, 0)
            clock.set(watch.BROKEN, 0)
            with code.when(elsewhere.any() | left):
                zero = code.number(0)
                code.suspect(
                    watch.SPLIT_BARRIER, warp.address, zero, zero, wide(place), code["barrier"], zero
                )
    with code.when(warps > 1):
        zero_bytes(code, barrier.address, code.number(watch.BARRIER_BYTES))
    observed.at(watch.WATCH).set(watch.CURRENT, 0)
    code.done()


def order(module: ir.Module) -> None:
    """`order(frame, site, active)`: a fence, or a group of asynchronous copies committed or waited for."""
    code = WatchCode(module, "order", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    clock = observed.at(watch.CLOCK)
    row = Record(code, observed.at(watch.WATCH).get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    what, epoch = row.get(watch.FLAGS), observed.get(watch.EPOCH)
    with code.when(what.equals(watch.FENCE)):
        clock.set(watch.PUBLISHED, epoch)
        observed.set(FRESH, 1)
    ring = Record(code, clock.address + watch.RING)
    with code.when(what.equals(watch.COMMIT)):
        ring.pointer(0, U32).store(epoch.to(U32), clock.get(watch.GROUPS) & (watch.RING_LENGTH - 1))
        clock.set(watch.GROUPS, clock.get(watch.GROUPS) + 1)
        # What is copied from now on belongs to the next group.
        observed.set(FRESH, 1)
    with code.when(what.equals(watch.TRACK)):
        clock.set(watch.TRACKED, epoch)
        observed.set(FRESH, 1)
    with code.when(what.equals(watch.WAIT)):
        with code.when(row.get(watch.DISPLACEMENT) < 0):  # for all, also those that no group has
            clock.set(watch.COPIED, epoch)
            observed.set(FRESH, 1)
        with code.when(~(row.get(watch.DISPLACEMENT) < 0)):
            group = clock.get(watch.GROUPS) - 1 - row.get(watch.DISPLACEMENT)
            with code.when(~(group < 0)):
                done = wide(ring.pointer(0, U32).load(group & (watch.RING_LENGTH - 1)))
                clock.set(watch.COPIED, most(clock.get(watch.COPIED), done))
    code.done()


def members(module: ir.Module) -> None:
    """`members(frame, site, active)`: lanes that synchronise by a mask of who takes part."""
    code = WatchCode(module, "members", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    observed = warp.at(frame.BLOCK).at(frame.OBSERVED)
    launch = observed.at(watch.WATCH)
    row = Record(code, launch.get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    observed.set(FRESH, 1)
    active = code["active"].to(U32)
    gone = warp.get(frame.PCS, U32, LANES).equals(frame.EXITED)
    there = active | Value(code, U32, code.builder.bitcast(gone.handle, ir.IntType(32)))
    clock = Record(code, observed.get(watch.CLOCKS) + warp.get(frame.INDEX) * watch.CLOCK_BYTES)
    # Who left before the others came is not missed; who went on beside them and left is.
    strayed = clock.get(watch.BROKEN).differs(0).select(clock.get(watch.AWAITED), 0).to(U32)
    clock.set(watch.AWAITED, 0)
    there = there & ~(strayed & ~active)
    # A barrier of the warp waits for who is not there yet; other instructions run only when all are.
    waits = (row.get(watch.FLAGS) & watch.EVERY_LANE).differs(0)
    with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        mask = operand_of(code, warp, row, lane, watch.BASE, watch.DISPLACEMENT).to(U32)
        zero = code.number(0)
        with code.when(((mask >> lane.to(U32)) & 1).equals(0)):
            code.suspect(watch.NOT_A_MEMBER, warp.address, code["site"], lane, wide(mask), zero, zero)
        absent = mask & ~there
        with code.when(absent.differs(0) & ~waits):
            code.suspect(
                watch.ABSENT_MEMBER, warp.address, code["site"], lane, wide(mask), wide(absent), zero
            )
    code.done()


def parted(module: ir.Module) -> None:
    """`parted(frame, site, active)`: lanes are about to wait for those that their masks name."""
    code = WatchCode(module, "parted", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    clock = observed.at(watch.CLOCK)
    row = Record(code, observed.at(watch.WATCH).get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    mask = operand_of(code, warp, row, first, watch.BASE, watch.DISPLACEMENT).to(U32)
    pcs = warp.get(frame.PCS, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(frame.EXITED).handle, ir.IntType(32)))
    with code.when(clock.get(watch.AWAITED).equals(0)):
        clock.set(watch.AWAITED, wide(mask & alive & ~active))
        clock.set(watch.BROKEN, 0)
    code.done()


def without_value(module: ir.Module) -> None:
    """`without_value(frame, site, lanes, register)`: lanes use a register that has no value."""
    code = WatchCode(module, "without_value", ("frame", "site", "lanes", "register"), external=True)
    first = wide(code.intrinsic("cttz", U32, [code["lanes"].to(U32), code.constant(BOOL, 0)]))
    zero = code.number(0)
    code.suspect(watch.NO_VALUE, code["frame"], code["site"], first, code["register"], zero, zero)
    code.done()


def write_clocks(module: ir.Module) -> None:
    """All of it."""
    begin_block(module)
    turn(module)
    members(module)
    arrive(module)
    release(module)
    parted(module)
    without_value(module)
    order(module)
