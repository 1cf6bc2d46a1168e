"""Compiled code of what warps know of asynchronous operations: fences between proxies, groups, clocks.

Like vector clocks: an element of a vector is an epoch up to which something of another warp is known. What a
warp knows passes to others where they synchronise.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker.order_kinds import OrderKind
from lanewise.machine.checker.proxy_records import (
    FENCES_KEPT,
    GROUPS_KEPT,
    OPERATIONS_KEPT,
    VECTORS,
    AsyncClock,
    AsyncKind,
    NotedOperation,
    WarpFence,
)
from lanewise.machine.checker.records import BlockWatch, SiteRow, WarpClock, WatchRecord
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    WatchModule,
    alive_lanes,
    at_site,
    most,
    wide,
)
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: Warps of a warpgroup.
WARPGROUP = 4


def follows(observed: Record) -> Value:
    """Return whether the kernel has asynchronous operations, so that there are clocks for them.

    It is a constant: the functions are compiled for either kind of kernels.
    """
    module = observed.code.module
    return observed.code.constant(BOOL, int(isinstance(module, WatchModule) and module.follows_async))


def async_clock(code: WatchCode, observed: Record, index: Value) -> Record:
    """Return the AsyncClock of a warp by its number in the block; barriers follow the warps."""
    return Record(code, observed.get(BlockWatch.async_clocks) + index * AsyncClock.BYTES)


def barrier_clock(code: WatchCode, observed: Record, barrier: Value) -> Record:
    """Return the AsyncClock of one of the block's barriers."""
    return async_clock(code, observed, observed.get(BlockWatch.warps) + barrier)


def running_index(observed: Record) -> Value:
    """Return the number in its block of the warp that runs."""
    return observed.at(BlockWatch.clock).get(WarpClock.index)


def first_of_group(index: Value) -> Value:
    """Return the first warp of a warp's warpgroup."""
    return index & -WARPGROUP


def operation(code: WatchCode, observed: Record, epoch: Value) -> Record:
    """Return the record of an asynchronous operation by its epoch; another one may be there."""
    table = observed.at(BlockWatch.watch).get(WatchRecord.operations)
    return Record(code, table + (epoch & (OPERATIONS_KEPT - 1)) * NotedOperation.BYTES)


def join_async(target: Record, source: Record) -> None:
    """Write the join of one clock into another."""
    for vector in VECTORS:
        both = target.get(vector, U32, LANES).max(source.get(vector, U32, LANES))
        target.pointer(vector, U32).store(both)


def _least(code: WatchCode, values: Value) -> Value:
    """Return the smallest element of a vector."""
    return code.intrinsic("vector.reduce.umin", U32, [values], of=values.type)


def tell_own(code: WatchCode, observed: Record, index: Value) -> Record:
    """Write what a warp knows of its own operations into its clock, which is then joined into others."""
    clock = async_clock(code, observed, index)
    now = observed.get(BlockWatch.epoch).to(U32)
    for vector, begun, settled in (
        (AsyncClock.fenced_of, AsyncClock.wrote, AsyncClock.fenced),
        (AsyncClock.fenced_global_of, AsyncClock.wrote_global, AsyncClock.fenced_global),
        (AsyncClock.reads_of, AsyncClock.bulk_issued, AsyncClock.bulk_read),
        (AsyncClock.writes_of, AsyncClock.bulk_issued, AsyncClock.bulk_done),
    ):
        last, until = (clock.get(each, U32, LANES) for each in (begun, settled))
        clock.pointer(vector, U32).store(_least(code, (last > until).select(until, now.spread(LANES))), index)
    leader, known = first_of_group(index), clock.pointer(AsyncClock.wgmma_of, U32)
    known.store(known.load(leader).max(clock.get(AsyncClock.wgmma_done).to(U32)), leader)
    return clock


def _tell_at_barrier(code: WatchCode, observed: Record, index: Value) -> Record:
    """Write what a warp tells others at a barrier: the last fence of its lanes counts for all of them."""
    clock = tell_own(code, observed, index)
    fenced = clock.get(AsyncClock.fenced, U32, LANES)
    latest = code.intrinsic("vector.reduce.umax", U32, [fenced], of=fenced.type)
    handed = clock.pointer(AsyncClock.handed_over_of, U32)
    handed.store(handed.load(index).max(latest), index)
    return clock


def arrive_async(module: ir.Module) -> ir.Function:
    """Write `arrive_async(observed, index, barrier)`: a warp arrives at a barrier of its block."""
    code = WatchCode(module, "arrive_async", ("observed", "index", "barrier"))
    observed = code.record("observed")
    clock = _tell_at_barrier(code, observed, code["index"])
    join_async(barrier_clock(code, observed, code["barrier"]), clock)
    code.done()
    return code.function


def released_async(module: ir.Module) -> ir.Function:
    """Write `released_async(observed, index, barrier)`: a warp leaves a barrier that is complete."""
    code = WatchCode(module, "released_async", ("observed", "index", "barrier"))
    observed = code.record("observed")
    join_async(async_clock(code, observed, code["index"]), barrier_clock(code, observed, code["barrier"]))
    code.done()
    return code.function


def meet_async(module: ir.Module) -> ir.Function:
    """Write `meet_async(observed)`: all warps of a block have met at the barrier of their cluster."""
    code = WatchCode(module, "meet_async", ("observed",))
    observed = code.record("observed")
    joined = async_clock(code, observed, code.number(0))
    with code.loop(observed.get(BlockWatch.warps)) as index:
        join_async(joined, _tell_at_barrier(code, observed, index))
    with code.loop(observed.get(BlockWatch.warps)) as index:
        join_async(async_clock(code, observed, index), joined)
    code.done()
    return code.function


def note_written(code: WatchCode, observed: Record, lanes: Value, shared: Value) -> None:
    """Write that some lanes have written memory by the generic proxy."""
    clock = async_clock(code, observed, running_index(observed))
    now = observed.get(BlockWatch.epoch).to(U32).spread(LANES)
    chosen = _lane_mask(code, lanes)
    for field, wanted in ((AsyncClock.wrote, shared), (AsyncClock.wrote_global, ~shared)):
        with code.when(wanted):
            last = clock.pointer(field, U32)
            last.store(chosen.select(now, last.load(0, LANES)))


def _lane_mask(code: WatchCode, lanes: Value) -> Value:
    """Return lanes that are given as bits as a vector of conditions."""
    bits = code.builder.bitcast(lanes.handle, ir.VectorType(ir.IntType(1), LANES))
    return Value(code, BOOL.by(LANES), bits)


def async_order(module: ir.Module) -> None:
    """Write `async_order(frame, site, active)`: a proxy fence, or a commit or wait of a group."""
    code, warp, observed, row = at_site(module, "async_order")
    kind, epoch = row.get(SiteRow.flags), observed.get(BlockWatch.epoch)
    active, now = code["active"].to(U32), epoch.to(U32)
    index = warp.get(WarpFrame.index)
    clock = async_clock(code, observed, index)
    observed.set(BlockWatch.fresh, 1)  # what follows belongs to another group, and lies behind the fence
    for fence, fields in (
        (OrderKind.INIT_FENCE, (AsyncClock.init_fenced,)),
        (OrderKind.MAP_FENCE, (AsyncClock.map_fenced,)),
        (OrderKind.PROXY_FENCE, (AsyncClock.fenced, AsyncClock.fenced_global)),
        (OrderKind.PROXY_FENCE_SHARED, (AsyncClock.fenced,)),
        (OrderKind.PROXY_FENCE_GLOBAL, (AsyncClock.fenced_global,)),
    ):
        with code.when(kind.equals(fence)):
            chosen = _lane_mask(code, active)
            for field in fields:
                last = clock.pointer(field, U32)
                last.store(chosen.select(now.spread(LANES), last.load(0, LANES)))
            if fence in (OrderKind.INIT_FENCE, OrderKind.MAP_FENCE):
                continue
            table = observed.at(BlockWatch.watch).get(WatchRecord.fences)
            number = observed.get(BlockWatch.first_warp) + index
            last_fence = Record(code, table + (number & (FENCES_KEPT - 1)) * WarpFence.BYTES)
            last_fence.set(WarpFence.warp, (number + 1).to(U32))
            last_fence.set(WarpFence.epoch, now)
            # What other warps wrote, and this one has learnt of, is fenced here.
            here = clock.pointer(AsyncClock.fenced_here_of, U32)
            seen = observed.at(BlockWatch.clock).get(WarpClock.seen, U32, LANES)
            here.store(here.load(0, LANES).max(seen))
            if fence != OrderKind.PROXY_FENCE_GLOBAL:
                _fence_reads(code, observed, warp)
    _wgmma_groups(code, clock, row, kind)
    _bulk_groups(code, observed, clock, row, kind, active, now)
    code.done()


def fenced_before_meeting(code: WatchCode, observed: Record, lanes: Value) -> Value:
    """Return the epoch up to which lanes of the running warp fenced what they did, before all of them met.

    It is 0 if one of them has executed a fence between the proxies since, or none at all.
    """
    clock = async_clock(code, observed, running_index(observed))
    fenced, chosen = clock.get(AsyncClock.fenced, U32, LANES), _lane_mask(code, lanes)
    latest = code.intrinsic("vector.reduce.umax", U32, [chosen.select(fenced, 0)], of=fenced.type)
    met = ~(observed.at(BlockWatch.clock).get(WarpClock.converged) < wide(latest))
    return met.select(wide(_least(code, chosen.select(fenced, -1))), 0)


def hand_over(code: WatchCode, observed: Record, epochs: Value) -> None:
    """Write that the other proxy may write over plain reads, given by epochs of the block's warps."""
    clock = async_clock(code, observed, running_index(observed))
    handed = clock.pointer(AsyncClock.handed_over_of, U32)
    handed.store(handed.load(0, LANES).max(epochs))


def _fence_reads(code: WatchCode, observed: Record, warp: Record) -> None:
    """Write that a fence of the running warp comes after the plain reads that the warp knows of."""
    known = observed.at(BlockWatch.clock)
    hand_over(code, observed, known.get(WarpClock.seen, U32, LANES))
    # Of the lanes that do not execute the fence: what they did before they synchronised with the others.
    whole = (alive_lanes(code, warp) & ~code["active"].to(U32)).equals(0)
    own = whole.select(observed.get(BlockWatch.epoch), known.get(WarpClock.synced)).to(U32)
    index = running_index(observed)
    handed = async_clock(code, observed, index).pointer(AsyncClock.handed_over_of, U32)
    handed.store(handed.load(index).max(own), index)


def _wgmma_groups(code: WatchCode, clock: Record, row: Record, kind: Value) -> None:
    """Write commits and waits of wgmma groups, which each warp counts for its warpgroup."""
    count, done = (clock.get(each) for each in (AsyncClock.wgmma_groups, AsyncClock.wgmma_done))
    with code.when(kind.equals(OrderKind.WGMMA_FENCE)):
        clock.set(AsyncClock.fences, clock.get(AsyncClock.fences) + 1)
    with code.when(kind.equals(OrderKind.WGMMA_COMMIT)):
        clock.set(AsyncClock.wgmma_groups, count + 1)
    with code.when(kind.equals(OrderKind.WGMMA_WAIT)):
        clock.set(AsyncClock.wgmma_done, most(done, count - row.get(SiteRow.displacement)))


def _note_completed(code: WatchCode, observed: Record, lane: Value, after: Value, until: Value) -> None:
    """Write that the bulk copies of a lane, issued in a range of epochs, are complete: for other blocks."""
    index = running_index(observed)
    first = most(after, until - (OPERATIONS_KEPT - 1))
    with code.loop(until - first) as number:
        epoch = first + number + 1
        found = operation(code, observed, epoch)
        mine = wide(found.get(NotedOperation.epoch, U32)).equals(epoch)
        mine = mine & wide(found.get(NotedOperation.lane, U32)).equals(lane)
        with code.when(mine & wide(found.get(NotedOperation.agent, U32)).equals(index)):
            found.set(NotedOperation.completed, observed.get(BlockWatch.epoch).to(U32))


def _bulk_groups(
    code: WatchCode, observed: Record, clock: Record, row: Record, kind: Value, active: Value, now: Value
) -> None:
    """Write commits and waits of bulk groups, which each lane has for itself."""
    groups, ring = (clock.pointer(each, U32) for each in (AsyncClock.bulk_groups, AsyncClock.bulk_ring))
    behind = row.get(SiteRow.displacement)
    reads = kind.equals(OrderKind.BULK_WAIT_READ)
    waits = kind.equals(OrderKind.BULK_WAIT) | reads
    concerned = kind.equals(OrderKind.BULK_COMMIT) | waits
    with code.when(concerned), code.loop(LANES) as lane, code.when(((active >> lane.to(U32)) & 1).differs(0)):
        count = groups.load(lane)

        def slot(group: Value, lane: Value = lane) -> Value:
            return wide(group & (GROUPS_KEPT - 1)) * LANES + lane

        with code.when(kind.equals(OrderKind.BULK_COMMIT)):
            ring.store(now, slot(count))
            groups.store(count + 1, lane)
        with code.when(waits & (behind < wide(count))):
            done = ring.load(slot(count - 1 - behind.to(U32)))
            for until, at, wanted in (
                (AsyncClock.bulk_read, AsyncClock.bulk_read_at, waits),
                (AsyncClock.bulk_done, AsyncClock.bulk_done_at, ~reads),
            ):
                held, since = clock.pointer(until, U32), clock.pointer(at, U32)
                before = held.load(lane)
                with code.when(wanted & (before < done)):
                    held.store(done, lane)
                    since.store(now, lane)
                    if until == AsyncClock.bulk_done:
                        _note_completed(code, observed, lane, wide(before), wide(done))


def begin_operation(module: ir.Module) -> ir.Function:
    """Write `begin_operation(frame, kind, …)`: begin an operation; return its epoch."""
    code = WatchCode(
        module, "begin_operation", ("frame", "kind", "lane", "barrier", "phase", "swizzle", "home")
    )
    warp = code.record("frame")
    code.call_number(module.functions["turn"], warp.address)
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    epoch, index = observed.get(BlockWatch.epoch), warp.get(WarpFrame.index)
    is_wgmma = code["kind"].equals(AsyncKind.WGMMA)
    agent = is_wgmma.select(first_of_group(index), index)
    clock = async_clock(code, observed, index)
    phase = is_wgmma.select(clock.get(AsyncClock.wgmma_groups), code["phase"])
    made = operation(code, observed, epoch)
    for field, value in (
        (NotedOperation.epoch, epoch),
        (NotedOperation.kind, code["kind"]),
        (NotedOperation.agent, agent),
        (NotedOperation.lane, code["lane"]),
        (NotedOperation.barrier, code["barrier"]),
        (NotedOperation.phase, phase),
        (NotedOperation.completed, code.number(0)),
        (NotedOperation.swizzle, code["swizzle"]),
    ):
        made.set(field, value.to(U32))
    made.set(NotedOperation.home, code["home"])
    made.set(NotedOperation.contents, 0)
    with code.when(code["kind"].equals(AsyncKind.BULK_GROUP)):
        clock.pointer(AsyncClock.bulk_issued, U32).store(epoch.to(U32), code["lane"])
    observed.set(BlockWatch.fresh, 1)
    code.done(epoch)
    return code.function


def write_async_clocks(module: ir.Module) -> None:
    """Write all functions of asynchronous clocks into a module."""
    arrive_async(module)
    released_async(module)
    meet_async(module)
    async_order(module)
    begin_operation(module)
