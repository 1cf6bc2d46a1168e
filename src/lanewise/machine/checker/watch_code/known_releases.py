"""Compiled code of the releases that a warp knows of the other warps of its block.

A vector clock has the last release of each warp. If only some lanes of the warp made it, it does not stand
for an earlier release by other lanes, which is kept beside it: what lanes did before all of them arrived at
one mbarrier is known by that, also after one of them has arrived at another one.
"""

from __future__ import annotations

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, PartialRelease, WarpClock, WatchRecord
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, warp_of, wide
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: Whether a release orders an access before the running lane.
Knows = Callable[[Value], Value]


def partial_release(code: WatchCode, observed: Record, epoch: Value) -> Record:
    """Return the record of a release by its epoch; another one may be there."""
    table = observed.at(BlockWatch.watch).get(WatchRecord.partial_releases)
    return Record(code, table + (epoch & (records.RELEASES_KEPT - 1)) * PartialRelease.BYTES)


def see_releases(code: WatchCode, observed: Record, clock: Record, field: int, epochs: Value) -> None:
    """Write that a clock learns of releases of the block's warps, a vector of epochs at an address."""
    later = Record(code, epochs).get(0, U32, LANES) > clock.get(field, U32, LANES)
    with code.when(later.any()):
        code.call_number(
            code.module.functions["see_releases"], observed.address, clock.address, clock.address + field,
            epochs,
        )  # fmt: skip


def _adds_to(code: WatchCode, observed: Record, before: Value, after: Value) -> Value:
    """Return whether a release stands for accesses that a later one of the same warp does not stand for."""
    record = partial_release(code, observed, after)
    partial = wide(record.get(PartialRelease.epoch, U32)).equals(after)
    return partial & (wide(record.get(PartialRelease.synced, U32)) < before)


def keep_earlier(
    code: WatchCode, observed: Record, clock: Record, field: int, index: Value, release: Value
) -> None:
    """Write that a clock learns of a release of a warp after a later one of the same warp."""
    known = wide(clock.pointer(field, U32).load(index))
    later = (release < known) & release.differs(0)
    with code.when(later), code.when(_adds_to(code, observed, release, known)):
        code.call_number(code.module.functions["keep_release"], clock.address, release)


def write_see_releases(module: ir.Module) -> None:
    """Write `see_releases(observed, clock, seen, epochs)`: a clock learns of later releases.

    A release by some lanes of a warp does not stand for an earlier one of other lanes, which is kept.
    """
    code = WatchCode(module, "see_releases", ("observed", "clock", "seen", "epochs"))
    observed, clock = code.record("observed"), code.record("clock")
    seen, epochs = (code.record(each).pointer(0, U32) for each in ("seen", "epochs"))
    with code.loop(observed.get(BlockWatch.warps)) as index:
        before, after = seen.load(index), epochs.load(index)
        later = (before < after) & before.differs(0)
        with code.when(later), code.when(_adds_to(code, observed, wide(before), wide(after))):
            code.call_number(module.functions["keep_release"], clock.address, wide(before))
    seen.store(seen.load(0, LANES).max(epochs.load(0, LANES)))
    code.done()


def write_keep_release(module: ir.Module) -> None:
    """Write `keep_release(clock, release)`: a release is kept beside the last one of its warp."""
    code = WatchCode(module, "keep_release", ("clock", "release"))
    clock = code.record("clock")
    kept, count = clock.pointer(WarpClock.known_releases, U32), clock.get(WarpClock.known_count)
    with (
        code.loop(records.RELEASES_KNOWN) as index,
        code.when(wide(kept.load(index)).equals(code["release"])),
    ):
        code.done()
    kept.store(code["release"].to(U32), count & (records.RELEASES_KNOWN - 1))
    clock.set(WarpClock.known_count, count + 1)
    code.done()


def share_releases(code: WatchCode, target: Record, source: Record) -> None:
    """Write that the releases which one clock keeps are known to another one."""
    with code.when(source.get(WarpClock.known_count) > 0), code.loop(records.RELEASES_KNOWN) as index:
        release = wide(source.pointer(WarpClock.known_releases, U32).load(index))
        with code.when(release.differs(0)):
            code.call_number(code.module.functions["keep_release"], target.address, release)


def keeps_release(code: WatchCode, observed: Record, clock: Record, owner: Value, knows: Knows) -> Value:
    """Return whether a clock keeps a release of a warp that orders an access before."""
    found = code.variable(code.constant(BOOL, 0))
    found.set(code.constant(BOOL, 0))
    with code.when(clock.get(WarpClock.known_count) > 0), code.loop(records.RELEASES_KNOWN) as index:
        release = wide(clock.pointer(WarpClock.known_releases, U32).load(index))
        with code.when(release.differs(0) & warp_of(code, observed, release).equals(owner)):
            found.set(found.get() | knows(release))
    return found.get()


def write_known_releases(module: ir.Module) -> None:
    """Write the functions of known releases into a module."""
    write_keep_release(module)
    write_see_releases(module)
