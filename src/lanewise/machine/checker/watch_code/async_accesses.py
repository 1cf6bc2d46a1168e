"""Compiled code that decides on one cell that an asynchronous operation reads or writes.

Is what came before complete, ordered and visible to the asynchronous proxy? What is not is reported.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    FENCES_KEPT,
    AsyncClock,
    AsyncFlag,
    AsyncKind,
    NotedOperation,
    WarpFence,
)
from lanewise.machine.checker.records import BlockWatch, ShadowPlane, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
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


def reads_handed_over(code: WatchCode, observed: Record, epoch: Value) -> Value:
    """Return whether the asynchronous proxy may write over what a warp of the block read in an epoch.

    A fence between the proxies lies between, or an mbarrier or a flag has told of the reads. Of other blocks
    it is not known, and counts as such.
    """
    local = warp_of(code, observed, epoch) - observed.get(BlockWatch.first_warp)
    in_block = ~(local < 0) & (local < observed.get(BlockWatch.warps))
    clock = async_clock(code, observed, running_index(observed))
    known = clock.pointer(AsyncClock.handed_over_of, U32).load(in_block.select(local, 0))
    return ~in_block | ~(wide(known) < epoch)


def _fenced_by_readers(code: WatchCode, observed: Record, epoch: Value, lanes: Value) -> Value:
    """Return whether lanes that read in an epoch belong to the running warp, and all have fenced since."""
    index = running_index(observed)
    own = warp_of(code, observed, epoch).equals(observed.get(BlockWatch.first_warp) + index)
    clock = async_clock(code, observed, index)
    chosen = Value(
        code,
        BOOL.by(LANES),
        code.builder.bitcast(lanes.to(U32).handle, ir.VectorType(ir.IntType(1), LANES)),
    )
    late = clock.get(AsyncClock.fenced, U32, LANES) < epoch.to(U32).spread(LANES)
    return own & ~(chosen & late).any()


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
    # Lanes of a warp that all issue one store write the same bytes to the same place (CUTLASS does so, and
    # the assembler makes a loop over the lanes).
    mine, theirs = (operation(code, observed, each) for each in (observed.get(BlockWatch.epoch), epoch))
    contents = mine.get(NotedOperation.contents)
    alike = contents.differs(0) & contents.equals(theirs.get(NotedOperation.contents))
    # A row of a box may end within a cell, in which the same operation then begins to fill in zeros.
    alike = alike | epoch.equals(observed.get(BlockWatch.epoch))
    with code.when((floor < epoch) & is_async & ~both_reduce & ~alike & ~finished(epoch, 0)):
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
        # All threads of a warpgroup execute wgmma, so that a fence of theirs behind the barrier is in time.
        in_time = fence.equals(FENCED) | fence.equals(FENCED_HERE) & (me & records.COLLECTIVE).differs(0)
        with code.when(~in_time):
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
            plain = (floor < read) & (reader & records.ATOMIC).equals(0)
            known = shared & ~(observed.get(BlockWatch.shared_floor) < read)
            with code.when(plain & ~known):
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
            with code.when(plain & shared & ~reads_handed_over(code, observed, read)):
                lanes = wide(lanes_of(reader))
                with code.when(~_fenced_by_readers(code, observed, read, lanes)):
                    tell(Suspicion.READ_UNFENCED, read, reader)
                    code.done()
    code.done()
    return code.function


def write_async_accesses(module: ir.Module) -> None:
    """Write the functions that examine cells into a module."""
    write_fenced(module)
    write_examine_async(module)
