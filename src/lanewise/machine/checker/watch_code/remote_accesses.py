"""Compiled code that follows accesses to the shared memory of other blocks of a cluster.

The memory of a block is gone when its last thread has exited. So each access by another block has to happen
before the exit of at least one thread of the block: it waits at the cluster's barrier, for a phase of an
mbarrier or for a flag that comes after the access. Whether it does follows from what its threads know when
they exit, and not from the order in which blocks happen to run. Copies by the asynchronous proxy are followed
by the phases of their mbarriers (`phases.py`).
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import RemoteAccess
from lanewise.machine.checker.records import BlockWatch, Flag, ShadowPlane, SiteRow, WarpClock, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.bank_model import lane_is_in
from lanewise.machine.checker.watch_code.happens_before import UNORDERED
from lanewise.machine.checker.watch_code.shadow_cells import Cell
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, warp_of, wide
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: The answers of `is_awaited`. Weakly: at the cluster's barrier, before which the other arrival was relaxed.
UNAWAITED, AWAITED, WEAKLY_AWAITED = 0, 1, 2
#: A phase and the number of its mbarrier in one word: the number plus one is in the low bits.
_NUMBER_BITS = 8


def is_in_cluster(observed: Record) -> Value:
    """Return whether a block has other blocks beside it that may access its memory."""
    return observed.get(BlockWatch.remote_accesses).differs(0)


def _of_warp(code: WatchCode, home: Record, warp: Value) -> Record:
    """Return the RemoteAccess of a warp, by its number in the cluster, to the memory of a block."""
    return Record(code, home.get(BlockWatch.remote_accesses) + warp * RemoteAccess.BYTES)


def _of_running_warp(code: WatchCode, observed: Record, home: Record) -> Record:
    """Return the RemoteAccess of the running warp to the memory of another block."""
    number = observed.get(BlockWatch.first_warp) - observed.get(BlockWatch.cluster_first)
    return _of_warp(code, home, number + observed.at(BlockWatch.clock).get(WarpClock.index))


def write_note_remote(module: ir.Module) -> None:
    """Write `note_remote(observed, home, site, addresses, active)`: lanes access another block's memory."""
    code = WatchCode(module, "note_remote", ("observed", "home", "site", "addresses", "active"))
    observed, home = code.record("observed"), code.record("home")
    noted = _of_running_warp(code, observed, home)
    lanes = Value(
        code,
        BOOL.by(LANES),
        code.builder.bitcast(code["active"].to(U32).handle, ir.VectorType(ir.IntType(1), LANES)),
    )
    epoch = observed.get(BlockWatch.epoch).to(U32)
    for field, value in (
        (RemoteAccess.epoch, epoch),
        (RemoteAccess.row, code["site"].to(U32)),
        (RemoteAccess.phase, code.constant(U32, 0)),
    ):
        words = noted.pointer(field, U32)
        words.store(lanes.select(value.spread(LANES), words.load(0, LANES)))
    kept = noted.pointer(RemoteAccess.address, U64)
    kept.store(lanes.select(code.record("addresses").get(0, U64, LANES), kept.load(0, LANES)))
    code.done()


def note_remote_arrival(
    code: WatchCode, observed: Record, home: Record, lane: Value, number: Value, phase: Value
) -> None:
    """Write that the access just noted is an arrival in a phase of an mbarrier of the other block."""
    with code.when(is_in_cluster(home)):
        noted = _of_running_warp(code, observed, home)
        tag = (phase << _NUMBER_BITS) | (number + 1)
        noted.pointer(RemoteAccess.phase, U32).store(tag.to(U32), lane)


def write_is_awaited(module: ir.Module) -> None:
    """Write `is_awaited(observed, source, noted, from_lane, me)`: whether a lane that exits knows an access.

    `observed` is of the block that is accessed, `source` is the clock of the warp that accesses it.
    """
    code = WatchCode(module, "is_awaited", ("observed", "source", "noted", "from_lane", "me"))
    observed, noted = code.record("observed"), code.record("noted")
    clock, me = observed.at(BlockWatch.clock), code["me"]
    epoch = wide(noted.pointer(RemoteAccess.epoch, U32).load(code["from_lane"]) & records.EPOCHS)
    tag = wide(noted.pointer(RemoteAccess.phase, U32).load(code["from_lane"]))
    with code.when(tag.differs(0)):
        number = (tag & ((1 << _NUMBER_BITS) - 1)) - 1
        known = code.call_number(
            module.functions["phase_is_known"], observed.address, observed.address, number,
            tag >> _NUMBER_BITS, me,
        )  # fmt: skip
        with code.when(known.differs(0)):
            code.done(AWAITED)
    # A lane that has arrived at the cluster's barrier and not waited learns nothing by its completion.
    unwaited = ((clock.get(WarpClock.cluster_unwaited) >> me) & 1).differs(0)
    by_barrier = ~(code.record("source").get(WarpClock.cluster_completed) < epoch)
    with code.when(unwaited & by_barrier):
        code.done(UNAWAITED)
    bit = code.number(1) << code["from_lane"]
    answer = code.call_number(module.functions["ordered"], observed.address, epoch, 0, bit, me)
    with code.when(answer.differs(UNORDERED)):
        code.done(AWAITED)
    passed = ~unwaited & ~(code.record("source").get(WarpClock.cluster_passed) < epoch)
    code.done(passed.select(code.number(WEAKLY_AWAITED), UNAWAITED))


def _is_polled(code: WatchCode, observed: Record, row: Record, address: Value, epoch: Value) -> Value:
    """Return whether a thread of the block has read by a strong access what was written in an epoch.

    Threads poll such a word: the block is there until the write is.
    """
    offset = address & abi.OFFSET_MASK
    place = observed.get(BlockWatch.shadow) + ((offset >> observed.get(BlockWatch.cell_shift)) << 2)
    cell = Cell(code, place, observed.get(BlockWatch.stride))

    def by_block(plane: ShadowPlane, who: ShadowPlane, flags: int) -> Value:
        later = wide(cell.get(plane) & records.EPOCHS)
        warp = warp_of(code, observed, later) - observed.get(BlockWatch.first_warp)
        inside = ~(warp < 0) & (warp < observed.get(BlockWatch.warps))
        return (epoch < later) & inside & (cell.get(who) & flags).differs(0)

    strong = records.STRONG | records.STRONG_IN_BLOCK
    read = by_block(ShadowPlane.READ_EPOCH, ShadowPlane.READER, strong)
    updated = by_block(ShadowPlane.WRITE_EPOCH, ShadowPlane.WRITER, records.ATOMIC)
    writes = (row.get(SiteRow.flags) & (Flag.WRITES | Flag.PHASES)).equals(Flag.WRITES)
    return writes & (read | updated)


def write_leave_remote(module: ir.Module) -> None:
    """Write `leave_remote(frame, active, ends)`: lanes exit, the last ones of their block if it `ends`.

    Accesses of other blocks that they know of are struck from the record; what is left when the block ends
    might as well come after that, and is reported.
    """
    code = WatchCode(module, "leave_remote", ("frame", "active", "ends"))
    block = code.record("frame").at(WarpFrame.block)
    observed, launch = block.at(BlockRecord.watch), block.at(BlockRecord.launch)
    warps = observed.get(BlockWatch.warps)
    own = observed.get(BlockWatch.first_warp) - observed.get(BlockWatch.cluster_first)
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    with code.loop(observed.get(BlockWatch.cluster_blocks)) as rank, code.when((rank * warps).differs(own)):
        member = Record(code, block.get(BlockRecord.members) + rank * MemberRow.BYTES).at(MemberRow.block)
        with code.loop(warps) as index:
            noted = _of_warp(code, observed, rank * warps + index)
            clocks = member.at(BlockRecord.watch).get(BlockWatch.clocks)
            some = noted.get(RemoteAccess.epoch, U32, LANES).differs(0).any()
            with code.when(some), code.loop(LANES) as lane:
                epochs = noted.pointer(RemoteAccess.epoch, U32)
                with code.loop(LANES) as me:
                    left = lane_is_in(me, code["active"].to(U32)) & epochs.load(lane).differs(0)
                    with code.when(left):
                        source = clocks + index * WarpClock.BYTES
                        known = code.call_number(
                            module.functions["is_awaited"], observed.address, source, noted.address, lane, me
                        )
                        with code.when(known.equals(AWAITED)):
                            epochs.store(code.constant(U32, 0), lane)
                        with code.when(known.equals(WEAKLY_AWAITED)):
                            epochs.store(epochs.load(lane) | records.PENDING, lane)
                weakly = (epochs.load(lane) & records.PENDING).differs(0)
                epoch = wide(epochs.load(lane) & records.EPOCHS)
                with code.when(code["ends"].differs(0) & epoch.differs(0)):
                    number = wide(noted.pointer(RemoteAccess.row, U32).load(lane))
                    row = Record(code, sites + number * SiteRow.BYTES)
                    address = noted.get(RemoteAccess.address + lane * 8)
                    with code.when(~_is_polled(code, observed, row, address, epoch)):
                        frames, size = member.get(BlockRecord.frames), launch.get(LaunchRecord.frame_bytes)
                        kinds = (weakly, Suspicion.TARGET_WEAKLY_KEPT), (~weakly, Suspicion.TARGET_MAY_EXIT)
                        for meant, kind in kinds:
                            with code.when(meant):
                                code.suspect(
                                    kind, frames + index * size, number, lane, address, epoch, code.number(0)
                                )
    code.done()


def write_cluster_wait(module: ir.Module) -> None:
    """Write `cluster_wait(frame, site, active)`: lanes wait at the barrier of their cluster."""
    code = WatchCode(module, "cluster_wait", ("frame", "site", "active"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    clock = Record(code, observed.get(BlockWatch.clocks) + warp.get(WarpFrame.index) * WarpClock.BYTES)
    clock.set(WarpClock.cluster_unwaited, clock.get(WarpClock.cluster_unwaited) & ~code["active"])
    code.done()


def write_remote_accesses(module: ir.Module) -> None:
    """Write the functions of accesses to other blocks into a module, those that no other function calls."""
    write_cluster_wait(module)
    write_note_remote(module)
    write_is_awaited(module)
    write_leave_remote(module)
