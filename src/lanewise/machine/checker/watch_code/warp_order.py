"""Compiled code of what the lanes of a warp know of each other: barriers of the warp, masks, convergence."""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.checker.records import (
    BlockWatch,
    Flag,
    LaneClocks,
    ShuffleMode,
    SiteRow,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    alive_lanes,
    at_site,
    clocks_of,
    in_turn,
    least,
    operand_of,
    wide,
)
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL


def synchronise(module: ir.Module) -> ir.Function:
    """Write `synchronise(frame, lanes)`: lanes of a warp have synchronised, with order of their accesses."""
    code = WatchCode(module, "synchronise", ("frame", "lanes"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    now = observed.at(BlockWatch.watch).get(WatchRecord.now)
    clock, lane_clocks = clocks_of(code, observed, warp)
    lanes = code["lanes"].to(U32)
    alive = alive_lanes(code, warp)
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
        for each in (WarpClock.touched, WarpClock.learnt_count, WarpClock.met_after_acquire):
            clock.set(each, 0)
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


def meet(module: ir.Module) -> ir.Function:
    """Write `meet(frame, active)`: lanes are at one instruction together, without order of their accesses."""
    code = WatchCode(module, "meet", ("frame", "active"))
    warp = code.record("frame")
    observed = in_turn(code, warp)
    clock, _ = clocks_of(code, observed, warp)
    alive = alive_lanes(code, warp)
    with code.when((alive & ~code["active"].to(U32)).equals(0)):
        clock.set(WarpClock.converged, observed.at(BlockWatch.watch).get(WatchRecord.now))
        clock.set(WarpClock.met_after_acquire, clock.get(WarpClock.learnt_count))
        observed.set(BlockWatch.fresh, 1)
    code.done()
    return code.function


def shuffled(module: ir.Module) -> ir.Function:
    """Write `shuffled(frame, site, active)`: put on record which lane each lane reads."""
    code = WatchCode(module, "shuffled", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    row = Record(code, sites + code["site"] * SiteRow.BYTES)
    active = code["active"].to(U32)
    mode = row.get(SiteRow.element_bits)
    with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        b = operand_of(code, warp, row, lane, SiteRow.step_base, SiteRow.step) & (LANES - 1)
        c = operand_of(code, warp, row, lane, SiteRow.lowest, SiteRow.highest)
        segment, clamp = (c >> 8) & (LANES - 1), c & (LANES - 1)
        low, high = lane & segment, (lane & segment) | (clamp & ~segment)
        source = code.variable(low | (b & ~segment))
        for number, moved in (
            (ShuffleMode.UP, lane - b),
            (ShuffleMode.DOWN, lane + b),
            (ShuffleMode.BUTTERFLY, lane ^ b),
        ):
            with code.when(mode.equals(number)):
                source.set(moved)
        beyond = mode.equals(ShuffleMode.UP).select(source.get() < high, source.get() > high)
        with code.when(beyond | (source.get() < 0)):
            source.set(lane)
        absent = ((active >> source.get().to(U32)) & 1).equals(0)
        read = absent.select(code.number(LANES), source.get())
        observed.pointer(BlockWatch.shuffle_sources, U32).store(read.to(U32), lane)
    code.done()
    return code.function


def members(module: ir.Module) -> None:
    """Write `members(frame, site, active)`: lanes synchronise with those that their masks name."""
    code = WatchCode(module, "members", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = in_turn(code, warp)  # a block may begin with it
    launch = observed.at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    active = code["active"].to(U32)
    gone = warp.get(WarpFrame.pcs, U32, LANES).equals(abi.EXITED)
    there = active | Value(code, U32, code.builder.bitcast(gone.handle, ir.IntType(32)))
    clock = Record(code, observed.get(BlockWatch.clocks) + warp.get(WarpFrame.index) * WarpClock.BYTES)
    # Lanes that bypassed the others, accessed memory and exited are missing. Hardware does not wait for lanes
    # that exited before, or did nothing else.
    strayed = clock.get(WarpClock.broken).differs(0).select(clock.get(WarpClock.awaited), 0).to(U32)
    clock.set(WarpClock.awaited, 0)
    there = there & ~(strayed & ~active)
    # A barrier of the warp waits for lanes that have not arrived; other instructions run only when all have.
    waits = (row.get(SiteRow.flags) & Flag.EVERY_LANE).differs(0)
    gone_bits = there & ~active
    # The last warp of a block may not have all lanes.
    threads = warp.at(WarpFrame.block).at(BlockRecord.launch).get(LaunchRecord.threads)
    behind = least(threads - warp.get(WarpFrame.index) * LANES, LANES)
    existing = ((code.number(1) << behind) - 1).to(U32)
    first_active = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    first_mask = operand_of(code, warp, row, first_active, SiteRow.base, SiteRow.displacement).to(U32)
    mixed = code.variable(code.constant(BOOL, 0))
    mixed.set(code.constant(BOOL, 0))
    with code.when(row.get(SiteRow.base) > 0):
        masks = Record(code, warp.address + row.get(SiteRow.base)).get(0, U32, LANES)
        unlike = masks.differs(first_mask.spread(LANES))
        bits = Value(code, U32, code.builder.bitcast(unlike.handle, ir.IntType(32)))
        mixed.set((bits & active).differs(0))
    with code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        mask = operand_of(code, warp, row, lane, SiteRow.base, SiteRow.displacement).to(U32)
        zero = code.number(0)
        exited = mask & gone_bits & existing
        with code.when(exited.differs(0)):
            code.suspect(
                Suspicion.EXITED_MEMBER, warp.address, code["site"], lane, wide(mask), wide(exited), zero
            )
        # Lanes that name each other have to give the same mask.
        with code.when(mixed.get()):
            others = code.variable(code.constant(U32, 0))
            others.set(code.constant(U32, 0))
            with code.loop(LANES) as member, code.when((((active & mask) >> member.to(U32)) & 1).differs(0)):
                own = operand_of(code, warp, row, member, SiteRow.base, SiteRow.displacement).to(U32)
                bit = code.constant(U32, 1) << member.to(U32)
                others.set(others.get() | own.differs(mask).select(bit, 0))
            with code.when(others.get().differs(0)):
                code.suspect(
                    Suspicion.MASKS_DIFFER, warp.address, code["site"], lane, wide(mask),
                    wide(others.get()), zero,
                )  # fmt: skip
        with code.when(((mask >> lane.to(U32)) & 1).equals(0)):
            code.suspect(Suspicion.NOT_A_MEMBER, warp.address, code["site"], lane, wide(mask), zero, zero)
        absent = mask & ~there
        with code.when(absent.differs(0) & ~waits):
            code.suspect(
                Suspicion.ABSENT_MEMBER, warp.address, code["site"], lane, wide(mask), wide(absent), zero
            )
    with code.when((row.get(SiteRow.flags) & Flag.SHUFFLES).differs(0)):
        code.call_number(module.functions["shuffled"], code["frame"], code["site"], code["active"])
    with code.when(~waits):
        code.call_number(module.functions["meet"], code["frame"], code["active"])
        code.done()
    # Only a barrier of the warp orders accesses, and only those of the lanes that name each other.
    left = code.variable(active)
    with code.while_any(left):
        first = wide(code.intrinsic("cttz", U32, [left.get(), code.constant(BOOL, 0)]))
        mask = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement).to(U32)
        together = code.variable(code.constant(U32, 0))
        together.set(code.constant(U32, 0))
        with code.loop(LANES) as lane, code.when(((left.get() >> lane.to(U32)) & 1).differs(0)):
            other = operand_of(code, warp, row, lane, SiteRow.base, SiteRow.displacement).to(U32)
            bit = code.constant(U32, 1) << lane.to(U32)
            together.set(together.get() | other.equals(mask).select(bit, 0))
        # Lanes arrive one after the other, perhaps in several places; the last one completes the barrier.
        arrived = clock.get(WarpClock.waiting).to(U32) | together.get()
        complete = (mask & ~(arrived | gone_bits)).equals(0)
        with code.when(~complete & clock.get(WarpClock.waiting).equals(0)):
            clock.set(WarpClock.waiting_mask, wide(mask))
            clock.set(WarpClock.waiting_row, code["site"])
            clock.set(WarpClock.strayed, 0)
        clock.set(WarpClock.waiting, wide(complete.select(arrived & ~mask, arrived)))
        with code.when(complete):
            code.call_number(module.functions["synchronise"], code["frame"], wide(mask))
        left.set(left.get() & ~together.get())
    code.done()


def left(module: ir.Module) -> None:
    """Write `left(frame, site, active)`: lanes exit, perhaps while others wait for them at their barrier.

    Lanes that have gone on since then have bypassed it; those that exit at once have returned early.
    """
    code = WatchCode(module, "left", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    clock, _ = clocks_of(code, observed, warp)
    waiting, mask = (clock.get(each).to(U32) for each in (WarpClock.waiting, WarpClock.waiting_mask))
    named = mask & code["active"].to(U32) & clock.get(WarpClock.strayed).to(U32) & ~waiting
    with code.when(waiting.differs(0) & named.differs(0)):
        in_turn(code, warp)
        lane = wide(code.intrinsic("cttz", U32, [waiting, code.constant(BOOL, 0)]))
        code.suspect(
            Suspicion.ABSENT_MEMBER, warp.address, clock.get(WarpClock.waiting_row), lane, wide(mask),
            wide(named), code.number(0),
        )  # fmt: skip
    code.done()


def parted(module: ir.Module) -> None:
    """Write `parted(frame, site, active)`: lanes are about to wait for those that their masks name."""
    code, warp, observed, row = at_site(module, "parted")
    clock = observed.at(BlockWatch.clock)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    mask = operand_of(code, warp, row, first, SiteRow.base, SiteRow.displacement).to(U32)
    alive = alive_lanes(code, warp)
    with code.when(clock.get(WarpClock.awaited).equals(0)):
        clock.set(WarpClock.awaited, wide(mask & alive & ~active))
        clock.set(WarpClock.broken, 0)
    code.done()


def without_value(module: ir.Module) -> None:
    """Write `without_value(frame, site, lanes, register)`: lanes use an unassigned register."""
    code = WatchCode(module, "without_value", ("frame", "site", "lanes", "register"))
    first = wide(code.intrinsic("cttz", U32, [code["lanes"].to(U32), code.constant(BOOL, 0)]))
    zero = code.number(0)
    watch = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    origin = watch.get(BlockWatch.undelivered_by)
    code.suspect(Suspicion.NO_VALUE, code["frame"], code["site"], first, code["register"], origin, zero)
    code.done()


def register_suspected(module: ir.Module) -> None:
    """Write `register_suspected(frame, row, register, other, kind)`: report a register of wgmma."""
    code = WatchCode(module, "register_suspected", ("frame", "row", "register", "other", "kind"))
    in_turn(code, code.record("frame"))
    zero = code.number(0)
    for kind in (Suspicion.REGISTER_IN_FLIGHT, Suspicion.REGISTER_UNFENCED, Suspicion.NO_WGMMA_FENCE):
        with code.when(code["kind"].equals(kind)):
            code.suspect(kind, code["frame"], code["row"], zero, code["register"], code["other"], zero)
    code.done()


def write_warp_order(module: ir.Module) -> None:
    """Write all functions of the lanes of a warp into a module."""
    synchronise(module)
    meet(module)
    shuffled(module)
    members(module)
    left(module)
    parted(module)
    without_value(module)
    register_suspected(module)
