"""Compiled code of what orders the blocks of a cluster: its barrier, arrivals at another block's mbarrier.

What a warp knows of other blocks is a publication of each of them: everything that the block did up to an
epoch. So of a block whose warps arrive one after the other, the last arrival counts for all.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import PhaseRecord
from lanewise.machine.checker.records import BlockWatch, WarpClock, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import follows
from lanewise.machine.checker.watch_code.publications import add_foreign, learn, publish
from lanewise.machine.checker.watch_code.vector_clocks import (
    FAR,
    LANES,
    WatchCode,
    complete_copies,
    in_cluster,
    least,
    most,
    rank_of,
    running_lane_clocks,
    wide,
)
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: What the vector clocks of warps of one block are joined in.
_SEEN = (WarpClock.seen, WarpClock.seen_copies)
#: Where the mbarrier is that a warp arrives at: in its block; in another one; the same at the block's scope.
HERE, AWAY, AWAY_NARROWLY = 0, 1, 2


def arrive_at_cluster(code: WatchCode, observed: Record, warp: Record, relaxed: Value) -> None:
    """Write that the running warp arrives at the barrier of its cluster.

    If it is `relaxed`, only what came before the last fence is released, such as fence.mbarrier_init.
    """
    clock, active = observed.at(BlockWatch.clock), code["active"].to(U32)
    twice = warp.get(WarpFrame.cluster_arrived, U32) & active
    with code.when(twice.differs(0)):
        lane, zero = wide(code.intrinsic("cttz", U32, [twice, code.constant(BOOL, 0)])), code.number(0)
        code.suspect(Suspicion.CLUSTER_ARRIVED_TWICE, warp.address, code["site"], lane, zero, zero, zero)
    clock.set(WarpClock.cluster_unwaited, clock.get(WarpClock.cluster_unwaited) | code["active"])
    clock.set(WarpClock.cluster_reached, observed.get(BlockWatch.epoch))
    clock.set(WarpClock.cluster_arrival, clock.get(WarpClock.published))
    with code.when(~relaxed):
        # Lanes that have arrived before have released what they did.
        arrived = active | warp.get(WarpFrame.cluster_arrived, U32)
        publish(code, observed, arrived, code.constant(BOOL, 1))
        # The arrival has an epoch of its own: others may learn of what was published in another way.
        code.call_number(code.module.functions["turn"], warp.address)
        epoch = observed.get(BlockWatch.epoch)
        clock.set(WarpClock.cluster_arrival, epoch)
        index = warp.get(WarpFrame.index)
        clock.pointer(WarpClock.seen, U32).store(epoch.to(U32), index)
        copied = complete_copies(code, running_lane_clocks(observed), epoch)
        clock.pointer(WarpClock.seen_copies, U32).store(copied, index)
    observed.set(BlockWatch.fresh, 1)


class _Cluster:
    """The blocks of a cluster whose barrier is complete."""

    def __init__(self, code: WatchCode) -> None:
        self.code, self.block = code, code.record("block")
        self.launch = self.block.at(BlockRecord.launch)
        self.count = self.launch.get(LaunchRecord.cluster_blocks)
        self.warps = self.launch.get(LaunchRecord.warps)

    def member(self, rank: Value) -> Record:
        """Return the record of a block by its rank."""
        return Record(self.code, self.block.get(BlockRecord.members) + rank * MemberRow.BYTES).at(
            MemberRow.block
        )

    def frame(self, member: Record, index: Value) -> Record:
        """Return the frame of a warp of a block."""
        size = self.launch.get(LaunchRecord.frame_bytes)
        return Record(self.code, member.get(BlockRecord.frames) + index * size)

    def clock(self, member: Record, index: Value) -> Record:
        """Return the clock of a warp of a block."""
        return Record(
            self.code, member.at(BlockRecord.watch).get(BlockWatch.clocks) + index * WarpClock.BYTES
        )

    def arrival(self, member: Record, index: Value) -> Value:
        """Return the epoch that an arrival releases, 0: none; of a warp that has exited, its last access."""
        clock = self.clock(member, index)
        gone = ~self.frame(member, index).get(WarpFrame.pcs, U32, LANES).differs(abi.EXITED).any()
        return gone.select(clock.get(WarpClock.last), clock.get(WarpClock.cluster_arrival))


def write_release_cluster(module: ir.Module) -> None:
    """Write `release_cluster(block)`: the barrier of a cluster is complete; `block` is one of its blocks."""
    code = WatchCode(module, "release_cluster", ("block",))
    cluster = _Cluster(code)
    joined = code.stack_bytes(WarpClock.BYTES)
    lowest, acquired = (code.variable(code.number(0)) for _ in range(2))
    lowest.set(code.number(FAR))
    acquired.set(code.number(0))
    with code.loop(cluster.count) as rank:
        member = cluster.member(rank)
        observed = member.at(BlockRecord.watch)
        observed.set(BlockWatch.cluster_arrival, 0)
        with code.loop(cluster.warps) as index:
            arrival, clock = cluster.arrival(member, index), cluster.clock(member, index)
            lowest.set(least(lowest.get(), arrival))
            clock.set(WarpClock.cluster_completed, arrival)
            clock.set(WarpClock.cluster_passed, clock.get(WarpClock.cluster_reached))
            last = observed.get(BlockWatch.cluster_arrival)
            observed.set(BlockWatch.cluster_arrival, most(last, arrival))
            with code.when(arrival.differs(0)):
                acquired.set(most(acquired.get(), clock.get(WarpClock.acquired)))
                with code.loop(records.FOREIGN_LENGTH) as number:
                    # What came from other clusters counts for everything up to then.
                    entry = wide(clock.pointer(WarpClock.foreign, U32).load(number))
                    outside = ~in_cluster(code, observed, entry & records.PUBLISHED)
                    known = outside & entry.differs(0) & (entry & records.GLIMPSED).equals(0)
                    newer = most(acquired.get(), entry & records.PUBLISHED)
                    acquired.set(known.select(newer, acquired.get()))
    with code.loop(cluster.count) as rank, code.when(cluster.member(rank).get(BlockRecord.ended).equals(0)):
        member = cluster.member(rank)
        observed = member.at(BlockRecord.watch)
        for each in _SEEN:
            joined.pointer(each, U32).store(code.constant(U32.by(LANES), 0))
        with code.loop(cluster.warps) as index:
            arrival, clock = cluster.arrival(member, index), cluster.clock(member, index)
            with code.when(arrival.differs(0)):
                clock.pointer(WarpClock.seen, U32).store(arrival.to(U32), index)
                _join_seen(joined, clock)
        with code.loop(cluster.warps) as index:
            clock, warp = cluster.clock(member, index), cluster.frame(member, index)
            _join_seen(clock, joined)
            clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), acquired.get()))
            for each in (WarpClock.least, WarpClock.cluster_known):
                clock.set(each, most(clock.get(each), lowest.get()))
            with code.loop(cluster.count) as other, code.when(other.differs(rank)):
                arrival = cluster.member(other).at(BlockRecord.watch).get(BlockWatch.cluster_arrival)
                with code.when(arrival.differs(0)):
                    _replace_foreign(code, observed, clock, other, arrival)
            pcs = warp.get(WarpFrame.pcs, U32, LANES)
            parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
            here = parked & warp.get(WarpFrame.barrier, U32, LANES).equals(abi.WAITS_FOR_CLUSTER)
            lanes = Value(code, U32, code.builder.bitcast(here.handle, ir.IntType(32)))
            with code.when(lanes.differs(0)):
                code.call_number(module.functions["synchronise"], warp.address, wide(lanes))
            observed.set(BlockWatch.fresh, 1)
        with code.when(follows(observed)):
            code.call_number(module.functions["meet_async"], observed.address)
    cluster.block.at(BlockRecord.watch).at(BlockWatch.watch).set(WatchRecord.current, 0)
    code.done()


def _join_seen(target: Record, source: Record) -> None:
    """Write that what one warp knows of its block is known to another clock."""
    for each in _SEEN:
        both = target.get(each, U32, LANES).max(source.get(each, U32, LANES))
        target.pointer(each, U32).store(both)


def _replace_foreign(code: WatchCode, observed: Record, clock: Record, rank: Value, epoch: Value) -> None:
    """Write that a warp knows what a block of its cluster did up to an epoch, and forget older ones."""
    entries = clock.pointer(WarpClock.foreign, U32)
    with code.loop(records.FOREIGN_LENGTH) as index:
        old = wide(entries.load(index)) & records.PUBLISHED
        same = in_cluster(code, observed, old) & rank_of(code, observed, old).equals(rank)
        with code.when(old.differs(0) & same):
            entries.store(code.constant(U32, 0), index)
    add_foreign(code, clock, (epoch | records.WHOLE).to(U32))


def write_tell_members(module: ir.Module) -> None:
    """Write `tell_members(observed, phase, away)`: the running warp arrives at an mbarrier of its cluster.

    What it knows of the blocks is noted for those who see the phase complete. `away` says whether the
    mbarrier belongs to another block: HERE, AWAY or AWAY_NARROWLY.
    """
    code = WatchCode(module, "tell_members", ("observed", "phase", "away"))
    observed, phase = code.record("observed"), code.record("phase")
    clock = observed.at(BlockWatch.clock)

    def tell(epoch: Value, members: int = PhaseRecord.members) -> None:
        rank, ranks = rank_of(code, observed, epoch), phase.pointer(members, U32)
        ranks.store(ranks.load(rank).max(epoch.to(U32)), rank)

    with code.when(code["away"].equals(AWAY)):
        tell(clock.get(WarpClock.published))
    with code.when(code["away"].equals(AWAY_NARROWLY)):
        tell(clock.get(WarpClock.published), PhaseRecord.narrow_members)
    phase.set(PhaseRecord.acquired, most(phase.get(PhaseRecord.acquired), clock.get(WarpClock.acquired)))
    with code.loop(records.FOREIGN_LENGTH) as number:
        entry = wide(clock.pointer(WarpClock.foreign, U32).load(number))
        epoch = entry & records.PUBLISHED
        with code.when(epoch.differs(0) & (entry & records.GLIMPSED).equals(0)):
            inside = in_cluster(code, observed, epoch)
            with code.when(inside):
                tell(epoch)
            with code.when(~inside):
                phase.set(PhaseRecord.acquired, most(phase.get(PhaseRecord.acquired), epoch))
    code.done()


def write_learn_members(module: ir.Module) -> None:
    """Write `learn_members(observed, phase, active)`: some lanes have seen a phase of an mbarrier complete.

    What those who arrived knew of the blocks of the cluster is known to them; 0 for a phase that is not
    followed: then everything is.
    """
    code = WatchCode(module, "learn_members", ("observed", "phase", "active"))
    observed, phase = code.record("observed"), code.record("phase")
    clock, active = observed.at(BlockWatch.clock), code["active"].to(U32)
    with code.when(code["phase"].equals(0)):
        clock.set(WarpClock.acquired, observed.get(BlockWatch.epoch))
        code.done()
    clock.set(WarpClock.glimpsed, most(clock.get(WarpClock.glimpsed), phase.get(PhaseRecord.acquired)))
    no = code.constant(BOOL, 0)
    own = rank_of(code, observed, observed.get(BlockWatch.epoch))
    with code.loop(observed.get(BlockWatch.cluster_blocks)) as rank:
        epoch = wide(phase.pointer(PhaseRecord.members, U32).load(rank))
        with code.when(epoch.differs(0)):
            learn(code, observed, active, epoch, no)
            clock.set(WarpClock.shown, 1)
            with code.when(rank.equals(own)):
                glimpsed = clock.pointer(WarpClock.glimpsed_seen, U32)
                glimpsed.store(glimpsed.load(0, LANES).max(epoch.to(U32).spread(LANES)))
            with code.when(rank.differs(own)):
                add_foreign(code, clock, (epoch | (records.WHOLE | records.GLIMPSED)).to(U32))
        narrow = wide(phase.pointer(PhaseRecord.narrow_members, U32).load(rank))
        with code.when(epoch < narrow):
            learn(code, observed, active, narrow, no)
            clock.set(WarpClock.shown, 1)
            marks = records.WHOLE | records.GLIMPSED | records.NARROW
            add_foreign(code, clock, (narrow | marks).to(U32))
    code.done()


def write_cluster_order(module: ir.Module) -> None:
    """Write the functions of clusters into a module."""
    write_release_cluster(module)
    write_tell_members(module)
    write_learn_members(module)
