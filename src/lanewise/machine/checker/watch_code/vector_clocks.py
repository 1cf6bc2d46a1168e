"""Compiled code of the vector clocks: blocks and epochs begin, and what the running warp knows of others.

What orders the lanes of a warp is in `warp_order.py`, barriers and fences are in `block_order.py`, and
`happens_before.py` answers which access happened before which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit import ir
from lanewise.jit.simd import Code, Value, Variable, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.checker.proxy_records import AsyncClock, RemoteAccess
from lanewise.machine.checker.records import (
    BlockWatch,
    LaneClocks,
    SiteRow,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record, zero_bytes

LANES = abi.LANES
NUMBER = ir.IntType(64)
FAR = 0x7FFF_FFFF


class WatchModule(ir.Module):
    """The functions of the checker: for kernels with asynchronous operations, or for those without."""

    def __init__(self, follows_async: bool) -> None:
        super().__init__("checker")
        self.follows_async = follows_async


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

    @contextmanager
    def while_any(self, left: Variable) -> Iterator[None]:
        """Repeat what is written in the body while a variable has bits left; the body clears some of them."""
        again, through, after = (self.function.append_basic_block() for _ in range(3))
        self.builder.branch(again)
        self.builder.position_at_end(again)
        self.builder.cbranch(left.get().differs(0).handle, through, after)
        self.builder.position_at_end(through)
        yield
        self.builder.branch(again)
        self.builder.position_at_end(after)

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


def alive_lanes(code: WatchCode, warp: Record) -> Value:
    """Return the lanes of a warp that have not exited, as bits."""
    alive = warp.get(WarpFrame.pcs, U32, LANES).differs(abi.EXITED)
    return Value(code, U32, code.builder.bitcast(alive.handle, ir.IntType(32)))


def clocks_of(code: WatchCode, observed: Record, warp: Record) -> tuple[Record, Record]:
    """Return the WarpClock and the LaneClocks of a warp."""
    index = warp.get(WarpFrame.index)
    return (
        Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES),
        Record(code, observed.get(BlockWatch.lane_clocks) + index * LaneClocks.BYTES),
    )


def complete_copies(code: WatchCode, lanes: Record, now: Value) -> Value:
    """Return the epoch up to which the asynchronous copies of all lanes of a warp are complete."""
    issued, copied = (lanes.get(each, U32, LANES) for each in (LaneClocks.issued, LaneClocks.copied))
    open_until = (issued > copied).select(copied, now.to(U32).spread(LANES))
    return code.intrinsic("vector.reduce.umin", U32, [open_until], of=open_until.type)


def warp_of(code: WatchCode, observed: Record, epoch: Value) -> Value:
    """Return the warp of an epoch, counted over all blocks of the watch."""
    log = observed.at(BlockWatch.watch).get(WatchRecord.log)
    return wide(Record(code, log).pointer(0, U32).load(epoch))


def in_cluster(code: WatchCode, observed: Record, epoch: Value) -> Value:
    """Return whether an epoch is one of a warp of a block's cluster."""
    number = warp_of(code, observed, epoch) - observed.get(BlockWatch.cluster_first)
    return ~(number < 0) & (number < observed.get(BlockWatch.warps) * observed.get(BlockWatch.cluster_blocks))


def rank_of(code: WatchCode, observed: Record, epoch: Value) -> Value:
    """Return the rank of the block in the cluster that an epoch belongs to."""
    number = warp_of(code, observed, epoch) - observed.get(BlockWatch.cluster_first)
    return Value(code, i64, code.builder.sdiv(number.handle, observed.get(BlockWatch.warps).handle))


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
        clock.set(WarpClock.index, index)
        clock.set(WarpClock.synced, now - 1)
        clock.set(WarpClock.least, warps.equals(1).select(code.number(FAR), 0))
        lanes = Record(code, observed.get(BlockWatch.lane_clocks) + index * LaneClocks.BYTES)
        for each in (LaneClocks.groups, LaneClocks.issued, LaneClocks.copied):
            lanes.pointer(each, U32).store(code.constant(U32.by(LANES), 0))
    observed.set(BlockWatch.own_after, now)
    observed.set(BlockWatch.followed_count, 0)
    with code.when(observed.get(BlockWatch.remote_accesses).differs(0)):
        size = warps * observed.get(BlockWatch.cluster_blocks) * RemoteAccess.BYTES
        zero_bytes(code, observed.get(BlockWatch.remote_accesses), size)
    with code.when(observed.get(BlockWatch.async_clocks).differs(0)):
        size = (warps + abi.BARRIERS) * AsyncClock.BYTES
        zero_bytes(code, observed.get(BlockWatch.async_clocks), size)
        zero_bytes(code, observed.get(BlockWatch.register_states), observed.get(BlockWatch.register_bytes))
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
    blocks = block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)
    first_warp = launch.get(WatchRecord.next_warp)
    with code.when(begins), code.loop(blocks) as rank:  # the blocks of a cluster begin together
        row = Record(code, block.get(BlockRecord.members) + rank * MemberRow.BYTES)
        member = row.at(MemberRow.block)
        member.at(BlockRecord.watch).set(BlockWatch.cluster_first, first_warp)
        code.call_number(
            module.functions["begin_block"],
            member.get(BlockRecord.watch),
            member.get(BlockRecord.linear),
        )
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
    known = least(acquired, synced)
    # Other blocks of a cluster may access shared memory too.
    in_block, in_all = clock.get(WarpClock.least), clock.get(WarpClock.cluster_known)
    shared_by_all = (observed.get(BlockWatch.cluster_blocks) > 1).select(least(in_block, in_all), in_block)
    earlier = most(most(acquired, shared_by_all), observed.get(BlockWatch.start) - 1)
    known_shared = least(earlier, synced)
    # What only some lanes have learnt, or by a release that was incomplete, is looked at access by access.
    some_lanes = clock.get(WarpClock.learnt_count).differs(0)
    with code.when(~some_lanes):
        clock.set(WarpClock.global_known, known)
        clock.set(WarpClock.shared_known, known_shared)
    incomplete = clock.get(WarpClock.incomplete_from)
    bound = incomplete.differs(0).select(incomplete, FAR)
    observed.set(BlockWatch.global_floor, least(least(known, clock.get(WarpClock.global_known)), bound))
    observed.set(
        BlockWatch.shared_floor, least(least(known_shared, clock.get(WarpClock.shared_known)), bound)
    )
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


def operand_of(
    code: WatchCode, warp: Record, row: Record, lane: Value, register_field: int, constant_field: int
) -> Value:
    """Return a 32-bit operand of an instruction, from the register or the constant in its row."""
    offset = row.get(register_field)
    held = code.variable(row.get(constant_field))
    with code.when(offset > 0):
        held.set(wide(Record(code, warp.address + offset).pointer(0, U32).load(lane)))
    return held.get()


def at_site(module: ir.Module, name: str) -> tuple[WatchCode, Record, Record, Record]:
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


def write_clocks(module: ir.Module) -> None:
    """Write the functions that begin blocks and epochs into a module."""
    begin_block(module)
    turn(module)
