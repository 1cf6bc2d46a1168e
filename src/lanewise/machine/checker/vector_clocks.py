"""What happened before what: epochs of warps, barriers, fences, groups of asynchronous copies. Compiled code.

Shadow memory, which asks these clocks, is `shadow.py`'s.
"""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Code, Value, i64
from lanewise.machine import abi
from lanewise.machine.checker import records
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record
from lanewise.machine.codegen.instrumentation import FRESH
from lanewise.machine.codegen.lane_vectors import BOOL

LANES = abi.LANES
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
        observed = Record(self, warp).at(abi.BLOCK).at(abi.OBSERVED)
        launch = observed.at(records.WATCH)
        row = Record(self, launch.get(records.SITES) + site * records.SITE_BYTES)
        count, limit = records.COUNTS + 8 * kind, records.LIMITS + 8 * kind
        row.set(count, row.get(count) + 1)
        with self.when(row.get(limit) > 0):
            row.set(limit, row.get(limit) - 1)
            values = [self.number(kind), warp, site, lane, address, epoch, who]
            pointer = ir.FunctionType(ir.VoidType(), [NUMBER] * len(values)).as_pointer()
            function = self.builder.inttoptr(launch.get(records.CALLBACK).handle, pointer)
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
    launch = observed.at(records.WATCH)
    warps = observed.get(records.WARPS)
    observed.set(records.LINEAR, code["linear"])
    now = least(launch.get(records.NOW) + 1, launch.get(records.LOG_SIZE) - 1)
    launch.set(records.NOW, now)
    observed.set(records.START, now)
    observed.set(records.FIRST_WARP, launch.get(records.NEXT_WARP))
    begun = Value(code, i64, code.builder.sdiv(launch.get(records.NEXT_WARP).handle, warps.handle))
    Record(code, launch.get(records.BEGUN)).pointer(0, U32).store(code["linear"].to(U32), begun)
    launch.set(records.NEXT_WARP, launch.get(records.NEXT_WARP) + warps)
    zero_bytes(code, observed.get(records.CLOCKS), warps * records.CLOCK_BYTES)
    zero_bytes(
        code, observed.get(records.BARRIERS), code.number(records.BARRIER_COUNT * records.BARRIER_BYTES)
    )
    threads = warps * LANES
    zero_bytes(code, observed.get(records.LOCAL_SHADOW), threads * (observed.get(records.LOCAL_BYTES) >> 2))
    with code.when(warps.equals(1)):
        Record(code, observed.get(records.CLOCKS)).set(records.LEAST, FAR)
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
    block = warp.at(abi.BLOCK)
    observed = block.at(abi.OBSERVED)
    launch = observed.at(records.WATCH)
    begins = block.get(abi.LINEAR).differs(observed.get(records.LINEAR))
    with code.when(begins):
        code.call_number(module.globals["begin_block"], observed.address, block.get(abi.LINEAR))
    now = least(launch.get(records.NOW) + 1, launch.get(records.LOG_SIZE) - 1)
    launch.set(records.NOW, now)
    launch.set(records.CURRENT, warp.address)
    index = warp.get(abi.INDEX)
    Record(code, launch.get(records.LOG)).pointer(0, U32).store(
        (observed.get(records.FIRST_WARP) + index).to(U32), now
    )
    observed.set(records.EPOCH, now)
    observed.set(FRESH, 0)
    clock = Record(code, observed.get(records.CLOCKS) + index * records.CLOCK_BYTES)
    observed.set(records.CLOCK, clock.address)
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
    clock = observed.at(records.CLOCK)
    acquired, before = clock.get(records.ACQUIRED), observed.get(records.EPOCH) - 1
    observed.set(records.GLOBAL_FLOOR, least(acquired, before))
    earlier = most(most(acquired, clock.get(records.LEAST)), observed.get(records.START) - 1)
    observed.set(records.SHARED_FLOOR, least(earlier, before))
    with code.when(over(observed)):
        observed.set(records.SHARED_FLOOR, FAR)
        observed.set(records.GLOBAL_FLOOR, FAR)
    code.done()
    return code.function


def over(observed: Record) -> Value:
    """Whether time has run out: there are no more epochs to tell what came before what."""
    return observed.get(records.EPOCH).equals(observed.at(records.WATCH).get(records.LOG_SIZE) - 1)


def in_turn(code: WatchCode, warp: Record) -> Record:
    """The block's watch, after `turn` if that is needed."""
    block = warp.at(abi.BLOCK)
    observed = block.at(abi.OBSERVED)
    launch = observed.at(records.WATCH)
    needed = (
        launch.get(records.CURRENT).differs(warp.address)
        | observed.get(FRESH).differs(0)
        | block.get(abi.LINEAR).differs(observed.get(records.LINEAR))
    )
    with code.when(needed):
        code.call_number(code.module.globals["turn"], warp.address)
    return observed


def _join(target: Record, source: Record) -> None:
    for offset in (records.SEEN, records.SEEN_COPIES):
        both = target.get(offset, U32, LANES).max(source.get(offset, U32, LANES))
        target.pointer(offset, U32).store(both)
    for offset in (records.ACQUIRED, records.PUBLISHED):
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
    row = Record(code, observed.at(records.WATCH).get(records.SITES) + code["site"] * records.SITE_BYTES)
    with code.when((row.get(records.FLAGS) & records.EVERY_LANE).differs(0)):
        code.call_number(module.globals["members"], code["frame"], code["site"], code["active"])
        code.done()
    row.set(records.REQUESTS, row.get(records.REQUESTS) + 1)
    first = wide(code.intrinsic("cttz", U32, [code["active"].to(U32), code.constant(BOOL, 0)]))
    number = operand_of(code, warp, row, first, records.BASE, records.DISPLACEMENT) & (
        records.BARRIER_COUNT - 1
    )
    count = operand_of(code, warp, row, first, records.STEP_BASE, records.STEP)
    with code.when((count & (LANES - 1)).differs(0)):
        zero = code.number(0)
        code.suspect(records.BARRIER_COUNT_WRONG, warp.address, code["site"], first, count, zero, zero)
    barrier = Record(code, observed.get(records.BARRIERS) + number * records.BARRIER_BYTES)
    clock = observed.at(records.CLOCK)
    index = warp.get(abi.INDEX)
    clock.pointer(records.SEEN, U32).store(observed.get(records.EPOCH).to(U32), index)
    clock.pointer(records.SEEN_COPIES, U32).store(clock.get(records.COPIED).to(U32), index)
    with code.when(observed.get(records.WARPS) > 1):
        _join(barrier, clock)
    observed.set(FRESH, 1)
    # Lanes of this warp that are alive and not here yet.
    pcs = warp.get(abi.PCS, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    missing = wide(alive & ~code["active"].to(U32))
    with code.when(clock.get(records.PARTIAL).equals(0)):
        clock.set(records.PARTIAL, missing)
        clock.set(records.BROKEN, 0)
    code.done()


def release(module: ir.Module) -> None:
    """`release(block, barrier)`: those who wait at a barrier take what those who came have brought."""
    code = WatchCode(module, "release", ("block", "barrier"), external=True)
    block = code.record("block")
    launch = block.at(abi.LAUNCH)
    observed = block.at(abi.OBSERVED)
    barrier = Record(code, observed.get(records.BARRIERS) + code["barrier"] * records.BARRIER_BYTES)
    warps = observed.get(records.WARPS)
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    numbers = Value(code, U32.by(LANES), counting)
    with code.loop(warps) as index:
        warp = Record(code, block.get(abi.FRAMES) + index * launch.get(abi.FRAME_BYTES))
        pcs = warp.get(abi.PCS, U32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        here = parked & warp.get(abi.BARRIER, U32, LANES).equals(code["barrier"].to(U32).spread(LANES))
        with code.when(here.any()):
            clock = Record(code, observed.get(records.CLOCKS) + index * records.CLOCK_BYTES)
            with code.when(warps > 1):
                _join(clock, barrier)
            others = numbers.differs(index.to(U32).spread(LANES)) & (numbers < warps.to(U32).spread(LANES))
            seen = others.select(clock.get(records.SEEN, U32, LANES), FAR)
            clock.set(records.LEAST, wide(code.intrinsic("vector.reduce.umin", U32, [seen], of=seen.type)))
            highest = here.select(pcs, 0)
            place = code.intrinsic("vector.reduce.umax", U32, [highest], of=highest.type)
            elsewhere = pcs.differs(place.spread(LANES)) & pcs.differs(abi.EXITED)
            # Lanes that went on beside the barrier, did something and left.
            bits = Value(code, U32, code.builder.bitcast((~here).handle, ir.IntType(32)))
            left = (clock.get(records.PARTIAL) & wide(bits)).differs(0) & clock.get(records.BROKEN).differs(0)
            clock.set(records.PARTIAL, 0)
            clock.set(records.BROKEN, 0)
            with code.when(elsewhere.any() | left):
                zero = code.number(0)
                code.suspect(
                    records.SPLIT_BARRIER, warp.address, zero, zero, wide(place), code["barrier"], zero
                )
    with code.when(warps > 1):
        zero_bytes(code, barrier.address, code.number(records.BARRIER_BYTES))
    observed.at(records.WATCH).set(records.CURRENT, 0)
    code.done()


def order(module: ir.Module) -> None:
    """`order(frame, site, active)`: a fence, or a group of asynchronous copies committed or waited for."""
    code = WatchCode(module, "order", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    clock = observed.at(records.CLOCK)
    row = Record(code, observed.at(records.WATCH).get(records.SITES) + code["site"] * records.SITE_BYTES)
    what, epoch = row.get(records.FLAGS), observed.get(records.EPOCH)
    with code.when(what.equals(records.FENCE)):
        clock.set(records.PUBLISHED, epoch)
        observed.set(FRESH, 1)
    ring = Record(code, clock.address + records.RING)
    with code.when(what.equals(records.COMMIT)):
        ring.pointer(0, U32).store(epoch.to(U32), clock.get(records.GROUPS) & (records.RING_LENGTH - 1))
        clock.set(records.GROUPS, clock.get(records.GROUPS) + 1)
        # What is copied from now on belongs to the next group.
        observed.set(FRESH, 1)
    with code.when(what.equals(records.TRACK)):
        clock.set(records.TRACKED, epoch)
        observed.set(FRESH, 1)
    with code.when(what.equals(records.WAIT)):
        with code.when(row.get(records.DISPLACEMENT) < 0):  # for all, also those that no group has
            clock.set(records.COPIED, epoch)
            observed.set(FRESH, 1)
        with code.when(~(row.get(records.DISPLACEMENT) < 0)):
            group = clock.get(records.GROUPS) - 1 - row.get(records.DISPLACEMENT)
            with code.when(~(group < 0)):
                done = wide(ring.pointer(0, U32).load(group & (records.RING_LENGTH - 1)))
                clock.set(records.COPIED, most(clock.get(records.COPIED), done))
    code.done()


def members(module: ir.Module) -> None:
    """`members(frame, site, active)`: lanes that synchronise by a mask of who takes part."""
    code = WatchCode(module, "members", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    observed = warp.at(abi.BLOCK).at(abi.OBSERVED)
    launch = observed.at(records.WATCH)
    row = Record(code, launch.get(records.SITES) + code["site"] * records.SITE_BYTES)
    observed.set(FRESH, 1)
    active = code["active"].to(U32)
    gone = warp.get(abi.PCS, U32, LANES).equals(abi.EXITED)
    there = active | Value(code, U32, code.builder.bitcast(gone.handle, ir.IntType(32)))
    clock = Record(code, observed.get(records.CLOCKS) + warp.get(abi.INDEX) * records.CLOCK_BYTES)
    # Who left before the others came is not missed; who went on beside them and left is.
    strayed = clock.get(records.BROKEN).differs(0).select(clock.get(records.AWAITED), 0).to(U32)
    clock.set(records.AWAITED, 0)
    there = there & ~(strayed & ~active)
    # A barrier of the warp waits for who is not there yet; other instructions run only when all are.
    waits = (row.get(records.FLAGS) & records.EVERY_LANE).differs(0)
    with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        mask = operand_of(code, warp, row, lane, records.BASE, records.DISPLACEMENT).to(U32)
        zero = code.number(0)
        with code.when(((mask >> lane.to(U32)) & 1).equals(0)):
            code.suspect(records.NOT_A_MEMBER, warp.address, code["site"], lane, wide(mask), zero, zero)
        absent = mask & ~there
        with code.when(absent.differs(0) & ~waits):
            code.suspect(
                records.ABSENT_MEMBER, warp.address, code["site"], lane, wide(mask), wide(absent), zero
            )
    code.done()


def parted(module: ir.Module) -> None:
    """`parted(frame, site, active)`: lanes are about to wait for those that their masks name."""
    code = WatchCode(module, "parted", ("frame", "site", "active"), external=True)
    warp = code.record("frame")
    with code.when(code["active"].equals(0)):
        code.done()
    observed = in_turn(code, warp)
    clock = observed.at(records.CLOCK)
    row = Record(code, observed.at(records.WATCH).get(records.SITES) + code["site"] * records.SITE_BYTES)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    mask = operand_of(code, warp, row, first, records.BASE, records.DISPLACEMENT).to(U32)
    pcs = warp.get(abi.PCS, U32, LANES)
    alive = Value(code, U32, code.builder.bitcast(pcs.differs(abi.EXITED).handle, ir.IntType(32)))
    with code.when(clock.get(records.AWAITED).equals(0)):
        clock.set(records.AWAITED, wide(mask & alive & ~active))
        clock.set(records.BROKEN, 0)
    code.done()


def without_value(module: ir.Module) -> None:
    """`without_value(frame, site, lanes, register)`: lanes use a register that has no value."""
    code = WatchCode(module, "without_value", ("frame", "site", "lanes", "register"), external=True)
    first = wide(code.intrinsic("cttz", U32, [code["lanes"].to(U32), code.constant(BOOL, 0)]))
    zero = code.number(0)
    code.suspect(records.NO_VALUE, code["frame"], code["site"], first, code["register"], zero, zero)
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
