"""Compiled code that follows the phases of mbarriers: who arrived, who saw a phase complete, what that shows.

A bulk copy that an mbarrier counts is complete when its phase is, and a thread may rely on it once it, or a
thread that it has synchronised with, has seen that phase complete.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    BARRIERS_FOLLOWED,
    PHASES_KEPT,
    VECTORS,
    FollowedBarrier,
    PhaseRecord,
)
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.watch_code.async_clocks import async_clock, running_index, tell_own
from lanewise.machine.checker.watch_code.happens_before import ORDERED
from lanewise.machine.checker.watch_code.shadow_cells import lanes_of
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, wide
from lanewise.machine.codegen.function_code import U32, U64, Record, zero_bytes

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


def write_arrive_at_phase(module: ir.Module) -> ir.Function:
    """Write `arrive_at_phase(frame, home, offset, word)`: a thread arrives at an mbarrier of its block."""
    code = WatchCode(module, "arrive_at_phase", ("frame", "home", "offset", "word"))
    home = code.record("home")
    observed = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    number = code.call_number(module.functions["follow_barrier"], home.address, code["offset"], code["word"])
    with code.when(~(number < 0) & home.address.equals(observed.address)):
        barrier = _barrier(code, home, number)
        phase = _phase(code, barrier, barrier.get(FollowedBarrier.phase))
        clock = tell_own(code, observed, running_index(observed))
        for place, vector in enumerate(VECTORS):
            known = phase.pointer(PhaseRecord.known + 4 * LANES * place, U32)
            known.store(known.load(0, LANES).max(clock.get(vector, U32, LANES)))
    code.done()
    return code.function


def write_see_phase(module: ir.Module) -> ir.Function:
    """Write `see_phase(frame, home, offset, word, lane, asked)`: a lane tests a phase by its parity."""
    code = WatchCode(module, "see_phase", ("frame", "home", "offset", "word", "lane", "asked"))
    home = code.record("home")
    observed = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch)
    number = code.call_number(module.functions["follow_barrier"], home.address, code["offset"], code["word"])
    with code.when((number < 0) | home.address.differs(observed.address)):
        code.done()
    barrier = _barrier(code, home, number)
    with code.when(barrier.get(FollowedBarrier.parity).equals(code["asked"] & 1)):
        code.done()  # the phase is not complete
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
    code.done()
    return code.function


def write_phase_is_known(module: ir.Module) -> ir.Function:
    """Write `phase_is_known(observed, barrier, phase, me)`: whether an access may rely on a phase."""
    code = WatchCode(module, "phase_is_known", ("observed", "barrier", "phase", "me"))
    observed, me = code.record("observed"), code["me"].to(U32)
    with code.when(code["phase"].equals(0)):
        code.done(1)  # there are too many mbarriers to follow this one
    barrier = _barrier(code, observed, code["barrier"])
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
                own = warp.equals(index)
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


def write_phases(module: ir.Module) -> None:
    """Write all functions of mbarriers into a module."""
    write_follow_barrier(module)
    write_phase_of_barrier(module)
    write_arrive_at_phase(module)
    write_see_phase(module)
    write_phase_is_known(module)
