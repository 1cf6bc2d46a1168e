"""Compiled code that follows the phases of mbarriers: who arrived, who saw a phase complete, what that shows.

A bulk copy that an mbarrier counts is complete when its phase is, and a thread may rely on it once it, or a
thread that it has synchronised with, has seen that phase complete.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import AsyncOperation, PendingOperations
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    BARRIERS_FOLLOWED,
    PHASES_KEPT,
    VECTORS,
    AsyncClock,
    BarrierUse,
    FollowedBarrier,
    PhaseRecord,
)
from lanewise.machine.checker.records import BlockWatch, Flag, SiteRow, WarpClock, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import async_clock, follows, running_index, tell_own
from lanewise.machine.checker.watch_code.cluster_order import AWAY, AWAY_NARROWLY, HERE
from lanewise.machine.checker.watch_code.happens_before import ORDERED, UNORDERED
from lanewise.machine.checker.watch_code.publications import NOT_COMPLETE
from lanewise.machine.checker.watch_code.remote_accesses import (
    is_in_cluster,
    note_remote_arrival,
    write_remote_accesses,
)
from lanewise.machine.checker.watch_code.shadow_cells import lanes_of
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    alive_lanes,
    at_site,
    least,
    most,
    operand_of,
    wide,
)
from lanewise.machine.codegen.function_code import U32, U64, Record, zero_bytes
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.warp_ops.mbarrier import BYTES, BYTES_BITS, MOST, PENDING, READY

#: The bit of an mbarrier object that is its parity.
PARITY_BIT = 63


def _phase(code: WatchCode, barrier: Record, number: Value) -> Record:
    """Return the record of a phase of an mbarrier."""
    place = (number & (PHASES_KEPT - 1)) * PhaseRecord.BYTES
    return Record(code, barrier.address + FollowedBarrier.phases + place)


def _barrier(code: WatchCode, home: Record, number: Value) -> Record:
    """Return an mbarrier of a block by its number in the block's table."""
    return Record(code, home.get(BlockWatch.followed) + number * FollowedBarrier.BYTES)


def write_follow_barrier(module: ir.Module) -> ir.Function:
    """Write `follow_barrier(home, offset, word)`: the number of an mbarrier, -1 if there are too many.

    `word` is the object before the instruction; a phase that was completed since the last look is counted.
    """
    code = WatchCode(module, "follow_barrier", ("home", "offset", "word"))
    home = code.record("home")
    count, parity = home.get(BlockWatch.followed_count), wide((code["word"].to(U64) >> PARITY_BIT).to(U32))
    with code.loop(count) as number:
        known = _barrier(code, home, number)
        with code.when(known.get(FollowedBarrier.offset).equals(code["offset"])):
            with code.when(known.get(FollowedBarrier.parity).differs(parity)):
                following = known.get(FollowedBarrier.phase) + 1
                known.set(FollowedBarrier.phase, following)
                known.set(FollowedBarrier.parity, parity)
                zero_bytes(code, _phase(code, known, following).address, code.number(PhaseRecord.BYTES))
            code.done(number)
    with code.when(~(count < BARRIERS_FOLLOWED)):
        code.done(-1)
    made = _barrier(code, home, count)
    zero_bytes(code, made.address, code.number(FollowedBarrier.BYTES))
    made.set(FollowedBarrier.offset, code["offset"])
    made.set(FollowedBarrier.parity, parity)
    made.set(FollowedBarrier.phase, code.number(PHASES_KEPT))  # no number of a phase is 0
    alone = count.equals(0)
    start, end = home.get(BlockWatch.followed_from), home.get(BlockWatch.followed_to)
    home.set(BlockWatch.followed_from, alone.select(code["offset"], least(start, code["offset"])))
    home.set(BlockWatch.followed_to, most(alone.select(code.number(0), end), code["offset"] + MBARRIER_BYTES))
    home.set(BlockWatch.followed_count, count + 1)
    code.done(count)
    return code.function


def write_phase_of_barrier(module: ir.Module) -> ir.Function:
    """Write `phase_of_barrier(home, number)`: the phase that an mbarrier is in."""
    code = WatchCode(module, "phase_of_barrier", ("home", "number"))
    with code.when(code["number"] < 0):
        code.done(0)
    code.done(_barrier(code, code.record("home"), code["number"]).get(FollowedBarrier.phase))
    return code.function


def _note_arrival(code: WatchCode, observed: Record, home: Record, number: Value) -> None:
    """Write that an arrival is counted, and told if it may come in another phase than it is meant for."""
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    row = Record(code, sites + code["site"] * SiteRow.BYTES)
    count = operand_of(code, code.record("frame"), row, code["lane"], SiteRow.step_base, SiteRow.step)
    barrier, epoch = _barrier(code, home, number), observed.get(BlockWatch.epoch)

    def tell(kind: Suspicion, wanted: Value) -> None:
        offset, zero = barrier.get(FollowedBarrier.offset), code.number(0)
        code.suspect(kind, code["frame"], code["site"], code["lane"], offset, wanted, zero)

    with code.when(count > 0):
        begins = barrier.get(FollowedBarrier.arrival_epoch).differs(epoch)
        before = begins.select(code.number(0), barrier.get(FollowedBarrier.arrivals))
        barrier.set(FollowedBarrier.arrival_epoch, epoch)
        barrier.set(FollowedBarrier.arrivals, before + count)
        word = code["word"].to(U64)
        expected = (word & MOST).to(i64)
        pending = ((word >> PENDING) & MOST).to(i64)
        with code.when(~(pending < before) & (pending < before + count)):
            tell(Suspicion.ARRIVALS_BEYOND_COUNT, pending)
        # Other blocks of a cluster may have arrived, whose clocks are not on record here.
        now = barrier.get(FollowedBarrier.phase)
        alone = observed.get(BlockWatch.cluster_blocks).equals(1)
        with code.when(alone & begins & (now > PHASES_KEPT)):
            known = code.call_number(
                code.module.functions["phase_is_over"], observed.address, number, now - 1, code["lane"]
            )
            with code.when(known.equals(0)):
                tell(Suspicion.ARRIVAL_UNORDERED, expected)
        with code.when(alone):
            index, phase = running_index(observed), _phase(code, barrier, now)
            epochs, lanes = (phase.pointer(each, U32) for each in (PhaseRecord.arrived, PhaseRecord.arrivers))
            epochs.store(epoch.to(U32), index)
            lanes.store(lanes.load(index) | (code.constant(U32, 1) << code["lane"].to(U32)), index)


def write_phase_is_over(module: ir.Module) -> ir.Function:
    """Write `phase_is_over(observed, barrier, phase, me)`: whether a lane knows that a phase is complete.

    It, or somebody before it, has seen that, or all arrivals of the phase happened before.
    """
    code = WatchCode(module, "phase_is_over", ("observed", "barrier", "phase", "me"))
    observed = code.record("observed")
    seen = code.call_number(
        module.functions["phase_is_known"], observed.address, observed.address, code["barrier"],
        code["phase"], code["me"],
    )  # fmt: skip
    with code.when(seen.differs(0)):
        code.done(1)
    phase = _phase(code, _barrier(code, observed, code["barrier"]), code["phase"])
    with code.loop(observed.get(BlockWatch.warps)) as warp:
        epoch = wide(phase.pointer(PhaseRecord.arrived, U32).load(warp))
        lanes = wide(phase.pointer(PhaseRecord.arrivers, U32).load(warp))
        with code.when(epoch.differs(0)):
            answer = code.call_number(
                module.functions["ordered"], observed.address, epoch, 0, lanes, code["me"]
            )
            with code.when(answer.equals(UNORDERED)):
                code.done(0)
    code.done(1)
    return code.function


def write_arrive_at_phase(module: ir.Module) -> ir.Function:
    """Write `arrive_at_phase(frame, home, offset, word, site, lane)`: a thread arrives at an mbarrier.

    Or it tells the mbarrier of bytes to come.
    """
    code = WatchCode(module, "arrive_at_phase", ("frame", "home", "offset", "word", "site", "lane"))
    home = code.record("home")
    observed = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    number = code.call_number(module.functions["follow_barrier"], home.address, code["offset"], code["word"])
    with code.when(number < 0):
        code.done()
    barrier = _barrier(code, home, number)
    barrier.set(FollowedBarrier.row, code["site"])
    phase = _phase(code, barrier, barrier.get(FollowedBarrier.phase))
    at_home = home.address.equals(observed.address)
    with code.when(observed.get(BlockWatch.cluster_blocks) > 1):
        sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
        flags = Record(code, sites + code["site"] * SiteRow.BYTES).get(SiteRow.flags)
        narrow = (flags & Flag.NARROW_ARRIVAL).differs(0)
        away = at_home.select(code.number(HERE), narrow.select(code.number(AWAY_NARROWLY), code.number(AWAY)))
        code.call_number(module.functions["tell_members"], observed.address, phase.address, away)
    _note_arrival(code, observed, home, number)
    with code.when(~at_home):
        current = barrier.get(FollowedBarrier.phase)
        note_remote_arrival(code, observed, home, code["lane"], number, current)
    with code.when(at_home):
        clock = tell_own(code, observed, running_index(observed))
        for place, vector in enumerate(VECTORS):
            known = phase.pointer(PhaseRecord.known + 4 * LANES * place, U32)
            known.store(known.load(0, LANES).max(clock.get(vector, U32, LANES)))
        # By custom, arrivals hand over what was read before them, without a fence between the proxies.
        known = phase.pointer(PhaseRecord.known + 4 * LANES * VECTORS.index(AsyncClock.handed_over_of), U32)
        known.store(known.load(0, LANES).max(observed.at(BlockWatch.clock).get(WarpClock.seen, U32, LANES)))
        known.store(observed.get(BlockWatch.epoch).to(U32), running_index(observed))
    code.done()
    return code.function


def write_see_phase(module: ir.Module) -> ir.Function:
    """Write `see_phase(frame, home, offset, word, lane, asked)`: a lane tests a phase by its parity.

    It returns the PhaseRecord of the phase, 0 if that is not followed, or NOT_COMPLETE.
    """
    code = WatchCode(module, "see_phase", ("frame", "home", "offset", "word", "lane", "asked"))
    home = code.record("home")
    observed = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    number = code.call_number(module.functions["follow_barrier"], home.address, code["offset"], code["word"])
    with code.when((number < 0) | home.address.differs(observed.address)):
        code.done(0)
    barrier = _barrier(code, home, number)
    with code.when(barrier.get(FollowedBarrier.parity).equals(code["asked"] & 1)):
        code.done(NOT_COMPLETE)
    phase = _phase(code, barrier, barrier.get(FollowedBarrier.phase) - 1)
    index = running_index(observed)
    clock = async_clock(code, observed, index)
    for place, vector in enumerate(VECTORS):
        known = clock.pointer(vector, U32)
        shown = phase.get(PhaseRecord.known + 4 * LANES * place, U32, LANES)
        known.store(known.load(0, LANES).max(shown))
    bit = code.constant(U32, 1) << code["lane"].to(U32)
    epochs, lanes = (phase.pointer(each, U32) for each in (PhaseRecord.witnessed, PhaseRecord.witnesses))
    # Of one warp the first lanes count: what they tell others is known the sooner.
    now = observed.get(BlockWatch.epoch).to(U32)
    first = epochs.load(index).equals(0)
    with code.when(first):
        epochs.store(now, index)
    lanes.store(lanes.load(index) | bit, index)
    code.done(phase.address)
    return code.function


def write_phase_is_known(module: ir.Module) -> ir.Function:
    """Write `phase_is_known(observed, home, barrier, phase, me)`: whether an access may rely on a phase."""
    code = WatchCode(module, "phase_is_known", ("observed", "home", "barrier", "phase", "me"))
    observed, home, me = code.record("observed"), code.record("home"), code["me"].to(U32)
    with code.when(code["phase"].equals(0)):
        code.done(1)  # there are too many mbarriers to follow this one
    barrier = _barrier(code, home, code["barrier"])
    now = barrier.get(FollowedBarrier.phase)
    with code.when(~(code["phase"] < now)):
        code.done(0)
    with code.when(code["phase"] < now - (PHASES_KEPT - 1)):
        code.done(1)  # too long ago to be on record
    index, collective = running_index(observed), (me & records.COLLECTIVE).differs(0)
    with code.loop(now - code["phase"]) as later:
        phase = _phase(code, barrier, code["phase"] + later)
        with code.loop(observed.get(BlockWatch.warps)) as warp:
            epoch = phase.pointer(PhaseRecord.witnessed, U32).load(warp)
            lanes = phase.pointer(PhaseRecord.witnesses, U32).load(warp)
            with code.when(epoch.differs(0)):
                own = warp.equals(index) & home.address.equals(observed.address)
                # Instructions of a whole warp come after what any of its lanes has seen.
                with code.when(own & (collective | (lanes & lanes_of(me)).differs(0))):
                    code.done(1)
                answer = code.call_number(
                    module.functions["ordered"], observed.address, wide(epoch), 0, wide(lanes), wide(me)
                )
                with code.when(answer.equals(ORDERED)):
                    code.done(1)
    code.done(0)
    return code.function


#: Where an mbarrier object keeps the bytes still to come, a signed number; and that it is initialised.
_BYTES_FIRST, _BYTES_BITS, _READY_BIT = BYTES, BYTES_BITS, READY


def write_written_over(module: ir.Module) -> None:
    """Write `written_over(frame, site, home, offsets, active, size, host, init)`: accesses near mbarriers.

    `init` says what they are, a BarrierUse; what INIT makes is put on record.
    """
    arguments = ("frame", "site", "home", "offsets", "active", "size", "host", "init")
    code = WatchCode(module, "written_over", arguments)
    home, frame = code.record("home"), code.record("frame")
    observed = frame.at(WarpFrame.block).at(BlockRecord.watch)
    offsets = code.record("offsets")
    all_offsets = offsets.get(0, U64, LANES)
    active = Value(
        code,
        BOOL.by(LANES),
        code.builder.bitcast(code["active"].to(U32).handle, ir.VectorType(ir.IntType(1), LANES)),
    )
    zero = code.number(0)
    with code.loop(home.get(BlockWatch.followed_count)) as number:
        barrier = _barrier(code, home, number)
        start = barrier.get(FollowedBarrier.offset)
        low = most(start - code["size"] + 1, zero).to(U64)
        high = (start + MBARRIER_BYTES).to(U64)
        near = active & ~(all_offsets < low.spread(LANES)) & (all_offsets < high.spread(LANES))
        live = ((Record(code, code["host"] + start).get(0, U64) >> _READY_BIT) & 1).differs(0)
        with code.when(near.any() & code["init"].differs(BarrierUse.INVAL) & live & ~(start < 0)):
            bits = Value(code, U32, code.builder.bitcast(near.handle, ir.IntType(32)))
            lane = wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))
            kind = code["init"]
            code.suspect(Suspicion.BARRIER_OVERWRITTEN, frame.address, code["site"], lane, start, kind, zero)
        # It ends if a new one begins, or other data is in its place.
        with code.when(near.any() & code["init"].differs(BarrierUse.LOAD)):
            barrier.set(FollowedBarrier.offset, -MBARRIER_BYTES)
    with code.when(code["init"].differs(BarrierUse.INIT)):
        code.done()
    with code.loop(LANES) as lane, code.when(((code["active"] >> lane) & 1).differs(0)):
        made = code.call_number(module.functions["follow_barrier"], home.address, offsets.get(lane * 8), zero)
        with code.when(~(made < 0)):
            fresh = _barrier(code, home, made)
            fresh.set(FollowedBarrier.init_epoch, observed.get(BlockWatch.epoch))
            fresh.set(FollowedBarrier.init_warp, frame.get(WarpFrame.index))
            fresh.set(FollowedBarrier.init_lane, lane)
    code.done()


def write_used_by_copy(module: ir.Module) -> None:
    """Write `used_by_copy(frame, row, home, number, lane)`: a bulk copy is told to an mbarrier."""
    code = WatchCode(module, "used_by_copy", ("frame", "row", "home", "number", "lane"))
    home = code.record("home")
    observed = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    barrier = _barrier(code, home, code["number"])
    barrier.set(FollowedBarrier.row, code["row"])
    barrier.set(FollowedBarrier.copy_phase, barrier.get(FollowedBarrier.phase))
    barrier.set(FollowedBarrier.copy_row, code["row"])
    epoch = barrier.get(FollowedBarrier.init_epoch)
    own = home.address.equals(observed.address)
    with code.when(own & (epoch > 0) & barrier.get(FollowedBarrier.visible).equals(0)):
        barrier.set(FollowedBarrier.visible, 1)
        clock = async_clock(code, observed, barrier.get(FollowedBarrier.init_warp))
        lane = barrier.get(FollowedBarrier.init_lane)
        fenced = code.variable(code.number(0))
        fenced.set(code.number(0))
        for field in (AsyncClock.init_fenced, AsyncClock.fenced):
            fenced.set(most(fenced.get(), wide(clock.pointer(field, U32).load(lane))))
        with code.when(fenced.get() < epoch):
            code.suspect(
                Suspicion.BARRIER_UNFENCED, code["frame"], code["row"], code["lane"],
                barrier.get(FollowedBarrier.offset), epoch, code.number(0),
            )  # fmt: skip
    code.done()


def _tell_unseen_copy(code: WatchCode, barrier: Record, warp: Record) -> None:
    """Write that a copy is reported which nobody has seen complete when its block ends."""
    last, now = barrier.get(FollowedBarrier.copy_phase), barrier.get(FollowedBarrier.phase)
    seen = code.variable(code.constant(BOOL, 0))
    seen.set(last.equals(0) | (last < now - (PHASES_KEPT - 1)))
    with code.when(~seen.get()), code.loop(now - last) as later:
        epochs = _phase(code, barrier, last + later).get(PhaseRecord.witnessed, U32, LANES)
        seen.set(seen.get() | epochs.differs(0).any())
    with code.when(~seen.get()):
        zero = code.number(0)
        row, offset = barrier.get(FollowedBarrier.copy_row), barrier.get(FollowedBarrier.offset)
        code.suspect(Suspicion.ENDED_COPYING, warp.address, row, zero, offset, zero, zero)


def _tell_kept_copies(code: WatchCode, block: Record, warp: Record) -> None:
    """Write that copies into the block's memory are reported which the schedule has kept until it ends."""
    pending = block.get(BlockRecord.pending)
    with (
        code.when(pending.differs(0)),
        code.loop(Record(code, pending).get(PendingOperations.count)) as number,
    ):
        first = Record(code, pending).get(PendingOperations.operations)
        operation = Record(code, first + number * AsyncOperation.BYTES)
        mine = operation.get(AsyncOperation.barrier_block).equals(block.address)
        with code.when(operation.get(AsyncOperation.barrier).differs(0) & mine):
            row, zero = operation.get(AsyncOperation.site) * MOST_ROWS, code.number(0)
            offset = operation.get(AsyncOperation.barrier) - block.get(BlockRecord.shared)
            code.suspect(Suspicion.ENDED_COPYING, warp.address, row, zero, offset, zero, zero)


def write_exits(module: ir.Module) -> None:
    """Write `exits(frame, site, active)`: lanes exit; what they leave behind is looked at."""
    code, warp, observed, _ = at_site(module, "exits")
    with code.when(~follows(observed)):
        code.done()
    active = code["active"].to(U32)
    chosen = Value(
        code, BOOL.by(LANES), code.builder.bitcast(active.handle, ir.VectorType(ir.IntType(1), LANES))
    )
    clock = async_clock(code, observed, warp.get(WarpFrame.index))
    issued, read = (clock.get(each, U32, LANES) for each in (AsyncClock.bulk_issued, AsyncClock.bulk_read))
    bits = Value(code, U32, code.builder.bitcast((chosen & (issued > read)).handle, ir.IntType(32)))
    zero = code.number(0)
    with code.when(bits.differs(0)):
        lane = wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))
        code.suspect(Suspicion.EXITED_COPYING, warp.address, code["site"], lane, zero, zero, zero)
    block = warp.at(WarpFrame.block)
    launch = block.at(BlockRecord.launch)
    left = code.variable(code.constant(U32, 0))
    left.set(code.constant(U32, 0))
    with code.loop(launch.get(LaunchRecord.warps)) as index:
        other = Record(code, block.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
        alive = alive_lanes(code, other)
        gone = other.address.equals(warp.address).select(active, 0)
        left.set(left.get() | (alive & ~gone))
    with code.when(is_in_cluster(observed)):
        ends = left.get().equals(0).select(code.number(1), 0)
        code.call_number(module.functions["leave_remote"], warp.address, wide(active), ends)
    with code.when(left.get().differs(0)):
        code.done()
    # The block ends.
    code.call_number(module.functions["registers_at_end"], warp.address)
    with code.loop(observed.get(BlockWatch.followed_count)) as number:
        barrier = _barrier(code, observed, number)
        offset = barrier.get(FollowedBarrier.offset)
        with code.when(~(offset < 0)):
            word = Record(code, block.get(BlockRecord.shared) + offset).get(0, U64)
            shifted = (word << (64 - _BYTES_FIRST - _BYTES_BITS)).to(i64)
            count = shifted >> (64 - _BYTES_BITS)
            live = ((word >> _READY_BIT) & 1).differs(0)
            with code.when(live):
                _tell_unseen_copy(code, barrier, warp)
            with code.when(live & count.differs(0)):
                row = barrier.get(FollowedBarrier.row)
                code.suspect(Suspicion.BYTES_LEFT_OVER, warp.address, row, zero, offset, count, zero)
    _tell_kept_copies(code, block, warp)
    code.done()


def write_phases(module: ir.Module) -> None:
    """Write all functions of mbarriers into a module."""
    write_follow_barrier(module)
    write_written_over(module)
    write_used_by_copy(module)
    write_phase_of_barrier(module)
    write_see_phase(module)
    write_phase_is_known(module)
    write_remote_accesses(module)
    write_exits(module)
    write_phase_is_over(module)
    write_arrive_at_phase(module)
