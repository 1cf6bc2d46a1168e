"""Compiled code that judges barriers: whether anything before one is read or overwritten after it.

What a block accesses between two barriers is a phase. Of shared memory a phase keeps the range of bytes that
were read and written, of global memory the arrays. A barrier was needed if its two phases may conflict, or if
one of them has fences or atomics, by which it may be part of a longer order. If it was not needed, the phases
on both sides count as one. So a barrier is called needless only if all such barriers can be taken out.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.checker.records import AllocationShadow, BlockWatch, Flag, PhaseAccesses, SiteRow
from lanewise.machine.checker.watch_code.vector_clocks import FAR, WatchCode, least, most
from lanewise.machine.codegen.function_code import U64, Record

_FROMS = (PhaseAccesses.read_from, PhaseAccesses.written_from)
_TOS = (PhaseAccesses.read_to, PhaseAccesses.written_to)
_BITS = (PhaseAccesses.read_arrays, PhaseAccesses.written_arrays, PhaseAccesses.publishes)


def _phase(observed: Record, field: int) -> Record:
    """Return one of the two phases of a block."""
    return Record(observed.code, observed.address + field)


def _empty(phase: Record) -> None:
    """Write code that forgets the accesses of a phase."""
    for field in _FROMS:
        phase.set(field, FAR)
    for field in (*_TOS, *_BITS):
        phase.set(field, 0)


def note_access(
    code: WatchCode,
    observed: Record,
    flags: Value,
    shared: Value,
    lowest: Value,
    highest: Value,
    allocation: Value,
) -> None:
    """Write code that adds a request to the phase: bytes from `lowest` to `highest`, or an allocation."""
    phase = _phase(observed, BlockWatch.phase)
    for flag, start, end, arrays in zip((Flag.READS, Flag.WRITES), _FROMS, _TOS, _BITS, strict=False):
        does = (flags & flag).differs(0)
        with code.when(does & shared):
            phase.set(start, least(phase.get(start), lowest))
            phase.set(end, most(phase.get(end), highest))
        with code.when(does & ~shared & allocation.differs(0)):
            bit = Record(code, allocation).get(AllocationShadow.phase_bit)
            phase.set(arrays, phase.get(arrays) | bit)
    with code.when((flags & (Flag.STRONG_ACCESS | Flag.PHASES)).differs(0)):
        phase.set(PhaseAccesses.publishes, 1)


def note_fence(observed: Record) -> None:
    """Write code that adds a fence to the phase."""
    _phase(observed, BlockWatch.phase).set(PhaseAccesses.publishes, 1)


def _needs(earlier: Record, later: Record) -> Value:
    """Return whether two phases have to be kept apart by a barrier."""

    def overlap(one: tuple[int, int], other: tuple[int, int]) -> Value:
        return (earlier.get(one[0]) < later.get(other[1])) & (later.get(other[0]) < earlier.get(one[1]))

    read, written = zip(_FROMS, _TOS, strict=True)
    shared = overlap(written, read) | overlap(written, written) | overlap(read, written)
    wrote, reads, writes = (
        earlier.get(PhaseAccesses.written_arrays),
        later.get(PhaseAccesses.read_arrays),
        later.get(PhaseAccesses.written_arrays),
    )
    arrays = (wrote & (reads | writes)) | (earlier.get(PhaseAccesses.read_arrays) & writes)
    publishes = earlier.get(PhaseAccesses.publishes) | later.get(PhaseAccesses.publishes)
    return shared | (arrays | publishes).differs(0)


def _write_judge(module: ir.Module) -> None:
    """Write `judge_barrier(observed)`: the phase is over; judge the barrier before it, begin another one."""
    code = WatchCode(module, "judge_barrier", ("observed",))
    observed = code.record("observed")
    earlier, phase = (_phase(observed, each) for each in (BlockWatch.earlier_phase, BlockWatch.phase))
    judged = observed.get(BlockWatch.judged_barrier)
    with code.when(judged.differs(0)):
        row = Record(code, judged)
        needed = _needs(earlier, phase)
        count = needed.to(U64).to(i64)
        row.set(SiteRow.barriers_needed, row.get(SiteRow.barriers_needed) + count)
        row.set(SiteRow.barriers_needless, row.get(SiteRow.barriers_needless) + (code.number(1) - count))
        with code.when(needed):
            _empty(earlier)
    for field in _FROMS:
        earlier.set(field, least(earlier.get(field), phase.get(field)))
    for field in _TOS:
        earlier.set(field, most(earlier.get(field), phase.get(field)))
    for field in _BITS:
        earlier.set(field, earlier.get(field) | phase.get(field))
    _empty(phase)
    observed.set(BlockWatch.judged_barrier, observed.get(BlockWatch.arrived_barrier))
    observed.set(BlockWatch.arrived_barrier, 0)
    code.done()


def _write_begin(module: ir.Module) -> None:
    """Write `begin_phases(observed)`: the last block has ended, and another one begins."""
    code = WatchCode(module, "begin_phases", ("observed",))
    observed = code.record("observed")
    code.call_number(module.functions["judge_barrier"], observed.address)
    for field in (BlockWatch.phase, BlockWatch.earlier_phase):
        _empty(_phase(observed, field))
    observed.set(BlockWatch.judged_barrier, 0)
    code.done()


def write_barrier_phases(module: ir.Module) -> None:
    """Write the functions that judge barriers into a module."""
    _write_judge(module)
    _write_begin(module)
