"""Compiled code of what orders the warps of a block: barriers, fences, and waits for asynchronous copies."""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.order_kinds import OrderKind
from lanewise.machine.checker.proxy_records import VECTORS
from lanewise.machine.checker.records import BlockWatch, Flag, LaneClocks, SiteRow, WarpClock, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import barrier_clock, follows
from lanewise.machine.checker.watch_code.cluster_order import arrive_at_cluster, write_cluster_order
from lanewise.machine.checker.watch_code.known_releases import share_releases
from lanewise.machine.checker.watch_code.publications import acquire, add_foreign, know_block, publish
from lanewise.machine.checker.watch_code.vector_clocks import (
    FAR,
    LANES,
    WatchCode,
    alive_lanes,
    at_site,
    clocks_of,
    complete_copies,
    least,
    most,
    operand_of,
    running_lane_clocks,
    wide,
)
from lanewise.machine.codegen.function_code import U32, U64, Record, zero_bytes
from lanewise.machine.codegen.lane_vectors import BOOL


def _join(code: WatchCode, target: Record, source: Record) -> None:
    """Join one vector clock into another: the maximum of each element."""
    share_releases(code, target, source)
    for offset in (WarpClock.seen, WarpClock.seen_copies):
        both = target.get(offset, U32, LANES).max(source.get(offset, U32, LANES))
        target.pointer(offset, U32).store(both)
    for offset in (
        WarpClock.acquired,
        WarpClock.glimpsed,
        WarpClock.phase_acquired,
        WarpClock.published,
        WarpClock.published_cluster,
        WarpClock.published_gpu,
    ):
        target.set(offset, most(target.get(offset), source.get(offset)))
    with code.when(source.get(WarpClock.foreign_count) > 0), code.loop(records.FOREIGN_LENGTH) as index:
        entry = source.pointer(WarpClock.foreign, U32).load(index)
        with code.when(entry.differs(0)):
            add_foreign(code, target, entry)


def arrive(module: ir.Module) -> None:
    """Write `arrive(frame, site, active)`: a warp arrives at a barrier of its block, or of itself."""
    code, warp, observed, row = at_site(module, "arrive")
    with code.when((row.get(SiteRow.flags) & Flag.EVERY_LANE).differs(0)):
        code.call_number(module.functions["members"], code["frame"], code["site"], code["active"])
        code.done()
    # A barrier orders what flags of the same block, read before it, have shown.
    clock = observed.at(BlockWatch.clock)
    know_block(code, observed, clock)
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
        _join(code, barrier, clock)
        # The fence came since the last barrier of the warp.
        fenced = (clock.get(WarpClock.synced) < clock.get(WarpClock.published_gpu)).to(U64).to(i64)
        barrier.set(WarpClock.fenced, barrier.get(WarpClock.fenced) + fenced)
        with code.when(follows(observed)):
            code.call_number(module.functions["arrive_async"], observed.address, index, number)
    observed.set(BlockWatch.fresh, 1)
    # Lanes of this warp that have neither exited nor arrived.
    alive = alive_lanes(code, warp)
    missing = wide(alive & ~code["active"].to(U32))
    with code.when(missing.equals(0) & (row.get(SiteRow.flags) & Flag.WAITS).differs(0)):
        code.call_number(module.functions["synchronise"], warp.address, code["active"])
    with code.when(clock.get(WarpClock.partial).equals(0)):
        clock.set(WarpClock.partial, missing)
        clock.set(WarpClock.broken, 0)
    code.done()


def row_of_waiting(pc: Value) -> Value:
    """Return the row that counts lanes which exited before a barrier: another one for each barrier.

    It follows from the basic block after the barrier, whose number is the program counter of those who wait;
    there are more rows than basic blocks. The row of the instruction with that number counts other kinds.
    """
    return (pc & (abi.PARKED - 1)) + 1


def release(module: ir.Module) -> None:
    """Write `check_release(block, barrier, counted)`: warps that wait at a barrier take over its clock.

    `counted` is how many threads it is for; 0 if it is for the whole block, or for its cluster.
    """
    code = WatchCode(module, "check_release", ("block", "barrier", "counted"), external=True)
    block = code.record("block")
    with code.when(code["barrier"].equals(abi.WAITS_FOR_CLUSTER)):
        code.call_number(module.functions["release_cluster"], block.address)
        code.done()
    launch = block.at(BlockRecord.launch)
    observed = block.at(BlockRecord.watch)
    barrier = Record(code, observed.get(BlockWatch.barriers) + code["barrier"] * WarpClock.BYTES)
    warps = observed.get(BlockWatch.warps)
    counting = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    numbers = Value(code, U32.by(LANES), counting)
    now = observed.at(BlockWatch.watch).get(WatchRecord.now)
    exited_warps = code.variable(code.number(0))
    exited_warps.set(code.number(0))
    # A warp that has exited has arrived at every barrier of the whole block.
    with code.when((warps > 1) & code["counted"].equals(0)), code.loop(warps) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        pcs = warp.get(WarpFrame.pcs, U32, LANES)
        with code.when(~pcs.differs(abi.EXITED).any()):
            clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
            clock.pointer(WarpClock.seen, U32).store(clock.get(WarpClock.last).to(U32), index)
            _join(code, barrier, clock)
            with code.when(follows(observed)):
                code.call_number(module.functions["arrive_async"], observed.address, index, code["barrier"])
            exited_warps.set(exited_warps.get() + 1)
    arrived_warps = code.variable(code.number(0))
    arrived_warps.set(code.number(0))
    with code.when(barrier.get(WarpClock.fenced) > 0), code.loop(warps) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        alive = warp.get(WarpFrame.pcs, U32, LANES).differs(abi.EXITED).any()
        arrived_warps.set(arrived_warps.get() + alive.to(U64).to(i64))
    all_fenced = (barrier.get(WarpClock.fenced) > 0) & barrier.get(WarpClock.fenced).equals(
        arrived_warps.get()
    )
    threads, smallest, largest, someone, place = (code.variable(code.number(0)) for _ in range(5))
    for each in (largest, someone, place):
        each.set(code.number(0))
    threads.set(block.get(code["barrier"] * 8 + BlockRecord.arrived))
    smallest.set(code.number(FAR))
    with code.loop(warps) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        pcs = warp.get(WarpFrame.pcs, U32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        here = parked & warp.get(WarpFrame.barrier, U32, LANES).equals(code["barrier"].to(U32).spread(LANES))
        with code.when(here.any()):
            clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
            with code.when(warps > 1):
                _join(code, clock, barrier)
                with code.when(follows(observed)):
                    code.call_number(
                        module.functions["released_async"], observed.address, index, code["barrier"]
                    )
            others = numbers.differs(index.to(U32).spread(LANES)) & (numbers < warps.to(U32).spread(LANES))
            seen = others.select(clock.get(WarpClock.seen, U32, LANES), FAR)
            oldest = wide(code.intrinsic("vector.reduce.umin", U32, [seen], of=seen.type))
            # After a barrier of the whole block, everything that its warps have done happened before.
            clock.set(WarpClock.least, code["counted"].equals(0).select(now, oldest))
            # Whole warps are counted, also by lanes that have exited.
            threads.set(threads.get() + LANES)
            wanted = warp.get(WarpFrame.barrier_argument, U32, LANES)
            for held, name, chosen in (
                (smallest, "umin", here.select(wanted, FAR)),
                (largest, "umax", here.select(wanted, 0)),
            ):
                extreme = wide(code.intrinsic(f"vector.reduce.{name}", U32, [chosen], of=chosen.type))
                held.set(least(held.get(), extreme) if name == "umin" else most(held.get(), extreme))
            # If all warps have come with a fence, any of them may publish what the block did.
            with code.when(all_fenced):
                for field in (WarpClock.published, WarpClock.published_cluster, WarpClock.published_gpu):
                    clock.set(field, now)
                clock.set(WarpClock.published_whole, 1)
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
            # A last warp may not have all lanes.
            there = (numbers + (index * LANES).to(U32).spread(LANES)) < launch.get(LaunchRecord.threads).to(
                U32
            ).spread(LANES)
            exited = (pcs.equals(abi.EXITED) & there).any()
            with code.when(elsewhere.any() | left | exited):
                zero = code.number(0)
                code.suspect(
                    Suspicion.SPLIT_BARRIER,
                    warp.address,
                    (elsewhere.any() | left).select(zero, row_of_waiting(wide(target))),
                    zero,
                    wide(target),
                    code["barrier"],
                    left.to(U64).to(i64),
                )
            someone.set(warp.address)
            place.set(wide(target))
    with code.when(someone.get().differs(0) & (exited_warps.get() > 0)):
        zero, row = code.number(0), row_of_waiting(place.get())
        code.suspect(Suspicion.EXITED_WARPS, someone.get(), row, zero, place.get(), exited_warps.get(), zero)
    expected = largest.get()
    overfull = (expected > 0) & (expected < threads.get())
    with code.when(someone.get().differs(0) & (overfull | smallest.get().differs(expected))):
        zero = code.number(0)
        code.suspect(
            Suspicion.BARRIER_OVERFULL,
            someone.get(),
            zero,
            threads.get(),
            place.get(),
            expected,
            smallest.get(),
        )
    with code.when(warps > 1):
        zero_bytes(code, barrier.address, code.number(WarpClock.BYTES))
        with code.when(follows(observed)):
            joined = barrier_clock(code, observed, code["barrier"])
            zero_bytes(code, joined.address, code.number(len(VECTORS) * 4 * LANES))
    observed.at(BlockWatch.watch).set(WatchRecord.current, 0)
    code.done()


def order(module: ir.Module) -> None:
    """Write `order(frame, site, active)`: a fence, or a commit or wait of asynchronous copies."""
    code, warp, observed, row = at_site(module, "order")
    clock = observed.at(BlockWatch.clock)
    lanes = running_lane_clocks(observed)
    kind, epoch = row.get(SiteRow.flags), observed.get(BlockWatch.epoch)
    fences = kind.equals(OrderKind.FENCE) | kind.equals(OrderKind.INIT_FENCE)
    for_cluster = kind.equals(OrderKind.CLUSTER_FENCE)
    with code.when(fences | for_cluster | kind.equals(OrderKind.BLOCK_FENCE)):
        publish(code, observed, code["active"].to(U32), fences, for_cluster)
        acquire(code, observed, fences, for_cluster)
        observed.set(BlockWatch.fresh, 1)
    relaxed = kind.equals(OrderKind.CLUSTER_ARRIVAL_RELAXED)
    with code.when(relaxed | kind.equals(OrderKind.CLUSTER_ARRIVAL)):
        arrive_at_cluster(code, observed, warp, relaxed)
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
                with code.when(~(behind < 0) & (behind < wide(count))):
                    # Of groups that are no longer kept, the oldest one that is counts.
                    kept = least(behind, code.number(records.RING_LENGTH - 1))
                    done = ring.load(slot(count - 1 - kept.to(U32)))
                    copied.store(copied.load(lane).max(done), lane)
    code.done()


def arrive_at_grid(module: ir.Module) -> None:
    """Write `arrive_at_grid(frame, site, lane)`: a thread arrives at the grid's barrier for its block."""
    code = WatchCode(module, "arrive_at_grid", ("frame", "site", "lane"))
    block = code.record("frame").at(WarpFrame.block)
    launch = block.at(BlockRecord.launch)
    left = code.variable(launch.get(LaunchRecord.threads))
    left.set(launch.get(LaunchRecord.threads))
    with code.loop(launch.get(LaunchRecord.warps)) as index:
        warp = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        left.set(left.get() - wide(code.intrinsic("ctpop", U32, [alive_lanes(code, warp)])))
    with code.when(left.get() > 0):
        zero = code.number(0)
        code.suspect(Suspicion.LEFT_GRID, code["frame"], code["site"], code["lane"], left.get(), zero, zero)
    code.done()


def write_block_order(module: ir.Module) -> None:
    """Write all functions of barriers and fences into a module."""
    write_cluster_order(module)
    arrive(module)
    arrive_at_grid(module)
    release(module)
    order(module)
