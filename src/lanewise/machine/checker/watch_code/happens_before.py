"""Compiled code that decides whether an earlier access happened before one of the running warp."""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, LaneClocks, WarpClock
from lanewise.machine.checker.watch_code.async_clocks import follows
from lanewise.machine.checker.watch_code.known_releases import keeps_release
from lanewise.machine.checker.watch_code.publications import is_complete, is_learnt, release_covers
from lanewise.machine.checker.watch_code.shadow_cells import lane_of, lanes_of
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    epochs_exhausted,
    lane_seen,
    least,
    most,
    running_lane_clocks,
    warp_of,
    wide,
)
from lanewise.machine.codegen.function_code import U32, U64, Record

#: The answers of `ordered`. Weakly: lanes of a warp met, or a strong read without a fence saw a flag, which
#: hardware takes for an order and the PTX memory model does not.
UNORDERED, ORDERED, WEAKLY_ORDERED = 0, 1, 2


def _write_ordered(module: ir.Module) -> ir.Function:
    """`ordered(observed, epoch, who, lanes, me)`: whether an access by some lanes happened before `me`."""
    code = WatchCode(module, "ordered", ("observed", "epoch", "who", "lanes", "me"))
    observed = code.record("observed")
    clock = observed.at(BlockWatch.clock)
    epoch, who, me = code["epoch"], code["who"].to(U32), code["me"].to(U32)
    reads_written = (code["who"] & records.READ_OF_WRITTEN).differs(0)
    owner = warp_of(code, observed, epoch)
    local = owner - observed.get(BlockWatch.first_warp)
    in_block = ~(local < 0) & (local < observed.get(BlockWatch.warps))
    first = observed.get(BlockWatch.cluster_first)
    of_cluster = observed.get(BlockWatch.warps) * observed.get(BlockWatch.cluster_blocks)
    same_warp = owner.equals(warp_of(code, observed, observed.get(BlockWatch.epoch)))
    # Volatile accesses order nothing: lanes of one warp that rely on lock step are reported.
    in_step = (who & me & records.VOLATILE).differs(0) & same_warp
    in_cluster = ~(owner < first) & (owner < first + of_cluster)
    narrower = ((who | me) & records.STRONG_IN_BLOCK).differs(0)
    strong = ((who & me & records.STRONG).differs(0) & (~narrower | in_cluster)) | (
        ((who | who << 1) & (me | me << 1) & records.STRONG_IN_BLOCK).differs(0) & in_block
    )
    with code.when((strong & ~in_step) | epochs_exhausted(observed)):
        code.done(ORDERED)
    lanes = code["lanes"].to(U32)
    with code.when(same_warp):
        lane = lane_of(me)
        mine = lanes_of(me)
        # Lanes of one instruction that wrote the same value are as good as this lane.
        alone = (who & records.SEVERAL).differs(0) | (code["lanes"].to(U32) & ~mine).equals(0)
        collective = ((who | me) & records.COLLECTIVE).differs(0)
        with code.when((alone & ~collective) | ~(clock.get(WarpClock.synced) < epoch)):
            code.done(ORDERED)
        seen = lane_seen(code, running_lane_clocks(observed), wide(lane)).get(0, U32, LANES)
        known = ~(seen < epoch.to(U32).spread(LANES))
        known_lanes = Value(code, U32, code.builder.bitcast(known.handle, ir.IntType(32)))
        with code.when((code["lanes"].to(U32) & ~(mine | known_lanes)).equals(0) & ~collective):
            code.done(ORDERED)
        # What the lanes did before a release that others have acquired, and told this lane of.
        returned = clock.get(WarpClock.returned)
        with code.when(~(returned < epoch) & is_complete(code, observed, returned, epoch, lanes)):
            learnt = is_learnt(code, clock, clock.get(WarpClock.returned_by), mine)
            with code.when(learnt):
                code.done(ORDERED)
        # Volatile accesses of a warp are strong, but such code relies on lock step for its values.
        met = ~(clock.get(WarpClock.converged) < epoch) | in_step
        code.done(met.select(code.number(WEAKLY_ORDERED), UNORDERED))
    mine = code.constant(U32, 1) << lane_of(me)
    answer = code.variable(code.number(UNORDERED))
    weakly = code.number(WEAKLY_ORDERED)
    answer.set(code.number(UNORDERED))
    met = clock.get(WarpClock.met_after_acquire).differs(0)

    def knows(release: Value) -> Value:
        """Return whether a release orders the access before this lane; only weakly if its lanes just met."""
        reaches = ~(release < epoch) & is_complete(code, observed, release, epoch, lanes)
        learnt = is_learnt(code, clock, release, mine)
        answer.set((reaches & ~learnt & met).select(weakly, answer.get()))
        return reaches & learnt

    with code.when(knows(clock.get(WarpClock.acquired))):
        code.done(ORDERED)
    answer.set(knows(clock.get(WarpClock.glimpsed)).select(weakly, answer.get()))
    with code.when(in_block):
        seen_epoch, shown = (
            wide(clock.pointer(each, U32).load(local)) for each in (WarpClock.seen, WarpClock.glimpsed_seen)
        )
        with code.when(knows(seen_epoch)):
            code.done(ORDERED)
        with code.when(keeps_release(code, observed, clock, owner, knows)):
            code.done(ORDERED)
        answer.set((knows(shown) & (seen_epoch < epoch)).select(weakly, answer.get()))
    with code.when(~in_block & (clock.get(WarpClock.foreign_count) > 0)):
        warps = observed.get(BlockWatch.warps)

        def block_of(warp: Value) -> Value:
            return Value(code, i64, code.builder.sdiv(warp.handle, warps.handle))

        place = owner - block_of(owner) * warps

        with code.loop(records.FOREIGN_LENGTH) as index:
            entry = wide(clock.pointer(WarpClock.foreign, U32).load(index))
            published = entry & records.PUBLISHED
            publisher = warp_of(code, observed, published)
            whole = (entry & records.WHOLE).differs(0)
            told = whole | release_covers(code, observed, published, place, epoch)
            covers = publisher.equals(owner) | (told & block_of(publisher).equals(block_of(owner)))
            with code.when(published.differs(0) & covers & knows(published)):
                narrow = (entry & records.NARROW).differs(0) & reads_written
                with code.when((entry & records.GLIMPSED).equals(0) & ~narrow):
                    code.done(ORDERED)
                answer.set(weakly)
    code.done(answer.get())
    return code.function


def _write_finished(module: ir.Module) -> ir.Function:
    """`finished(observed, epoch, who, me)`: whether `me` may rely on an asynchronous copy being complete."""
    code = WatchCode(module, "finished", ("observed", "epoch", "who", "me"))
    observed = code.record("observed")
    clock = observed.at(BlockWatch.clock)
    epoch, lane = code["epoch"], wide(lane_of(code["who"].to(U32)))
    with code.when((code["who"] & records.ASYNC_PROXY).differs(0) & follows(observed)):
        answer = code.call_number(module.functions["async_finished"], observed.address, epoch, code["me"], 0)
        code.done(answer)
    owner = warp_of(code, observed, epoch)
    acquired = clock.get(WarpClock.phase_acquired)
    with code.when(owner.equals(warp_of(code, observed, observed.get(BlockWatch.epoch)))):
        # The lane that copied has waited, and the lanes have synchronised since; or an mbarrier tracks the
        # copy and was tested.
        clocks = running_lane_clocks(observed)
        own = lane.equals(wide(lane_of(code["me"].to(U32)))) & (
            code["me"].to(U32) & records.COLLECTIVE
        ).equals(0)
        waited, by_all = (
            wide(clocks.pointer(each, U32).load(lane))
            for each in (LaneClocks.copied, LaneClocks.copied_for_all)
        )
        done = most(own.select(waited, by_all), least(clock.get(WarpClock.tracked), acquired))
        code.done((~(done < epoch)).to(U64).to(i64))
    local = owner - observed.get(BlockWatch.first_warp)
    with code.when(~(local < 0) & (local < observed.get(BlockWatch.warps))):
        seen = wide(clock.pointer(WarpClock.seen_copies, U32).load(local))
        # Published after its own lane had waited for it, or by the mbarrier that tracks it.
        copier = Record(code, observed.get(BlockWatch.clocks) + local * WarpClock.BYTES)
        lanes = Record(code, observed.get(BlockWatch.lane_clocks) + local * LaneClocks.BYTES)
        waited = wide(lanes.pointer(LaneClocks.copied, U32).load(lane))
        shown = wide(clock.pointer(WarpClock.glimpsed_seen, U32).load(local))
        told = least(most(waited, copier.get(WarpClock.tracked)), most(acquired, shown))
        code.done((~(most(seen, told) < epoch)).to(U64).to(i64))
    code.done(1)
    return code.function


def write_happens_before(module: ir.Module) -> None:
    """Write the function that decides on order into a module."""
    _write_ordered(module)


def write_completion(module: ir.Module) -> None:
    """Write the function that decides on asynchronous copies into a module."""
    _write_finished(module)
