"""Compiled code of release and acquire: what a strong write publishes, and what a strong read shows.

A cell keeps its last publication: an epoch of the warp that made it, and whether that warp knew all that its
block had done. A publication that rests on those of other blocks stands for everything up to its epoch.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import (
    BlockWatch,
    Flag,
    PartialRelease,
    ShadowPlane,
    SiteRow,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.watch_code.async_clocks import fenced_before_meeting, follows, hand_over
from lanewise.machine.checker.watch_code.bank_model import lane_is_in
from lanewise.machine.checker.watch_code.known_releases import (
    keep_earlier,
    partial_release,
    see_releases,
    share_releases,
)
from lanewise.machine.checker.watch_code.shadow_cells import Cell
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    in_cluster,
    lane_seen,
    least,
    most,
    running_lane_clocks,
    warp_of,
    wide,
)
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: What `see_phase` answers if the phase is not complete; 0: it is not followed; else where its record is.
NOT_COMPLETE = -1


def publish(
    code: WatchCode,
    observed: Record,
    active: Value,
    for_all: Value,
    for_cluster: Value | None = None,
    released: Value | None = None,
) -> None:
    """Write what a fence or a release does to the running warp's clock.

    `for_all` says whether its scope is the GPU, `for_cluster` whether it is the cluster. `released` are lanes
    that have released all they did in the same place before.
    """
    clock, epoch = observed.at(BlockWatch.clock), observed.get(BlockWatch.epoch)
    _note_partial_release(code, observed, active if released is None else active | released)
    clock.set(WarpClock.published, epoch)
    with code.when(for_all):
        clock.set(WarpClock.published_gpu, epoch)
    with code.when(for_all if for_cluster is None else for_all | for_cluster):
        clock.set(WarpClock.published_cluster, epoch)
    whole = code.variable(code.number(1))
    whole.set(code.number(1))
    with code.loop(observed.get(BlockWatch.warps)) as index:
        other = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
        seen = wide(clock.pointer(WarpClock.seen, U32).load(index))
        unseen = other.address.differs(clock.address) & (seen < other.get(WarpClock.last))
        whole.set(unseen.select(code.number(0), whole.get()))
    clock.set(WarpClock.published_whole, whole.get())


def _note_partial_release(code: WatchCode, observed: Record, active: Value) -> None:
    """Write that a release by some lanes is put on record, if others have made accesses of their own."""
    clock, epoch = observed.at(BlockWatch.clock), observed.get(BlockWatch.epoch)
    others = code.variable(clock.get(WarpClock.touched).to(U32) & ~active)
    others.set(clock.get(WarpClock.touched).to(U32) & ~active)
    with code.when(others.get().differs(0)):
        # Lanes that have synchronised with the one that releases are known to it.
        first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
        seen = lane_seen(code, running_lane_clocks(observed), first).get(0, U32, LANES)
        met = seen > clock.get(WarpClock.synced).to(U32).spread(LANES)
        others.set(others.get() & ~Value(code, U32, code.builder.bitcast(met.handle, ir.IntType(32))))
    record = partial_release(code, observed, epoch)
    record.set(PartialRelease.epoch, others.get().differs(0).select(epoch, 0).to(U32))
    # Lanes that have fenced and then met count as synchronised.
    synced = code.variable(code.number(0))
    synced.set(most(clock.get(WarpClock.synced), clock.get(WarpClock.acquired_at)))
    with code.when(follows(observed)):
        synced.set(most(synced.get(), fenced_before_meeting(code, observed, others.get())))
    record.set(PartialRelease.synced, synced.get().to(U32))
    record.set(PartialRelease.others, others.get())
    record.set(PartialRelease.released, epoch.to(U32))
    record.pointer(PartialRelease.seen, U32).store(clock.get(WarpClock.seen, U32, LANES))


def release_covers(code: WatchCode, observed: Record, release: Value, warp: Value, epoch: Value) -> Value:
    """Return whether a release publishes what a warp of the same block, by its number there, did in an epoch.

    It does if the warp that released knew of it. A release that is too long ago to be on record counts.
    """
    record = partial_release(code, observed, release)
    kept = wide(record.get(PartialRelease.released, U32)).equals(release)
    return ~kept | ~(wide(record.pointer(PartialRelease.seen, U32).load(warp)) < epoch)


def is_complete(code: WatchCode, observed: Record, release: Value, epoch: Value, lanes: Value) -> Value:
    """Return whether a release publishes accesses that some lanes of its warp made in an epoch."""
    record = partial_release(code, observed, release)
    lacks = (
        wide(record.get(PartialRelease.epoch, U32)).equals(release)
        & (wide(record.get(PartialRelease.synced, U32)) < epoch)
        & (record.get(PartialRelease.others, U32) & lanes).differs(0)
    )
    return ~lacks


def is_learnt(code: WatchCode, clock: Record, release: Value, lanes: Value) -> Value:
    """Return whether lanes know of a release: they acquired it themselves, or have synchronised since."""
    answer = code.variable(code.constant(BOOL, 1))
    answer.set(code.constant(BOOL, 1))
    with code.when(clock.get(WarpClock.learnt_count) > 0), code.loop(records.LEARNT_LENGTH) as index:
        learnt = wide(clock.pointer(WarpClock.learnt, U32).load(index))
        learners = clock.pointer(WarpClock.learners, U32).load(index)
        counts = (index < clock.get(WarpClock.learnt_count)) & learnt.equals(release)
        with code.when(counts & (lanes & ~learners).differs(0)):
            answer.set(code.constant(BOOL, 0))
    return answer.get()


def _known_before(code: WatchCode, observed: Record, release: Value) -> Value:
    """Return whether the warp knew of a release by a barrier: then all of its lanes know of it."""
    clock = observed.at(BlockWatch.clock)
    local = warp_of(code, observed, release) - observed.get(BlockWatch.first_warp)
    mine = ~(local < 0) & (local < observed.get(BlockWatch.warps))
    found = code.variable(code.constant(BOOL, 0))
    found.set(code.constant(BOOL, 0))
    with code.when(mine):
        found.set(~(wide(clock.pointer(WarpClock.seen, U32).load(local)) < release))
    elsewhere = ~mine & (clock.get(WarpClock.foreign_count) > 0)
    with code.when(elsewhere), code.loop(records.FOREIGN_LENGTH) as index:
        entry = wide(clock.pointer(WarpClock.foreign, U32).load(index))
        same = (entry & records.PUBLISHED).equals(release) & (entry & records.GLIMPSED).equals(0)
        found.set(found.get() | same)
    return found.get()


def learn(code: WatchCode, observed: Record, active: Value, release: Value, own: Value) -> None:
    """Write that some lanes learn of a release, perhaps by their `own` warp; or all, if all are there."""
    clock = observed.at(BlockWatch.clock)
    record = partial_release(code, observed, release)
    with code.when(wide(record.get(PartialRelease.epoch, U32)).equals(release)):
        synced, so_far = wide(record.get(PartialRelease.synced, U32)), clock.get(WarpClock.incomplete_from)
        lower = so_far.equals(0) | (synced < so_far)
        clock.set(WarpClock.incomplete_from, lower.select(most(synced, code.number(1)), so_far))
    alone = (clock.get(WarpClock.touched).to(U32) & ~active).equals(0) & active.equals(-1)
    with code.when(~alone):
        count = clock.get(WarpClock.learnt_count)
        known = code.variable(code.number(0))
        known.set(code.number(0))
        learnt, learners = (clock.pointer(each, U32) for each in (WarpClock.learnt, WarpClock.learners))
        with code.loop(records.LEARNT_LENGTH) as index:
            # What the lane of this warp that published knows is not told apart from what others know.
            same = (index < count) & (wide(learnt.load(index)).equals(release) | own)
            with code.when(same):
                learners.store(learners.load(index) | active, index)
                known.set(wide(learnt.load(index)).equals(release).select(code.number(1), known.get()))
        fresh = known.get().equals(0) & ~_known_before(code, observed, release)
        with code.when(fresh & (count < records.LEARNT_LENGTH)):
            learnt.store(release.to(U32), count)
            learners.store(active, count)
            clock.set(WarpClock.learnt_count, count + 1)


def acquire(code: WatchCode, observed: Record, for_all: Value, for_cluster: Value | None = None) -> None:
    """Write what a fence or an acquire does: what strong reads have shown is known from now on.

    If its scope is only the block, what the flags of other blocks have shown is not; if it is the cluster
    (`for_cluster`), those of its blocks count.
    """
    clock = observed.at(BlockWatch.clock)
    know_block(code, observed, clock)
    clock.set(WarpClock.returned, clock.get(WarpClock.returning))
    clock.set(WarpClock.returned_by, clock.get(WarpClock.returning_by))
    # What lanes did before one of them acquired something is known to the one that published it.
    with code.when(clock.get(WarpClock.shown).differs(0)):
        clock.set(WarpClock.acquired_at, observed.get(BlockWatch.epoch))
        clock.set(WarpClock.touched, 0)
        clock.set(WarpClock.shown, 0)
    shown = for_all.select(clock.get(WarpClock.glimpsed), 0)
    clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), shown))
    clock.set(WarpClock.glimpsed, shown)
    with code.when(clock.get(WarpClock.foreign_count) > 0):
        entries = clock.pointer(WarpClock.foreign, U32)
        with code.loop(records.FOREIGN_LENGTH) as index:
            entry = entries.load(index)
            glimpsed = (entry & records.GLIMPSED).differs(0)
            counts = for_all
            if for_cluster is not None:
                counts |= for_cluster & in_cluster(code, observed, wide(entry) & records.PUBLISHED)
            kept = counts.select(entry & ~records.GLIMPSED, 0)
            entries.store(glimpsed.select(kept, entry), index)
    code.call_number(code.module.functions["set_floors"], observed.address)


def know_block(code: WatchCode, observed: Record, clock: Record) -> None:
    """Write that what strong reads have shown of the own block is known from now on."""
    see_releases(code, observed, clock, WarpClock.seen, clock.address + WarpClock.glimpsed_seen)


def add_foreign(code: WatchCode, clock: Record, entry: Value) -> None:
    """Write that a publication of another block is kept; one that has to make way counts for everything."""
    entries = clock.pointer(WarpClock.foreign, U32)
    count = clock.get(WarpClock.foreign_count)
    known = code.variable(code.number(0))
    known.set(code.number(0))
    with code.loop(records.FOREIGN_LENGTH) as index:
        known.set(known.get() | entries.load(index).equals(entry).to(U64).to(i64))
    with code.when(known.get().equals(0)):
        place = count & (records.FOREIGN_LENGTH - 1)
        old = wide(entries.load(place)) & records.PUBLISHED
        clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), old))
        entries.store(entry, place)
        clock.set(WarpClock.foreign_count, count + 1)


def _arrived_there(code: WatchCode, observed: Record, arrives: Value) -> Value:
    """Return lanes of the warp that have arrived at the same mbarrier, and accessed nothing since.

    Those that arrive now are put on record beside them.
    """
    clock, active = observed.at(BlockWatch.clock), code["active"].to(U32)
    lanes = code.variable(code.constant(U32, 0))
    lanes.set(code.constant(U32, 0))
    with code.when(arrives):
        first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
        offsets = code.record("offsets")
        elsewhere = offsets.get(0, U64, LANES).differs(offsets.get(first * 8, U64).spread(LANES))
        bits = Value(code, U32, code.builder.bitcast(elsewhere.handle, ir.IntType(32)))
        place = (bits & active).equals(0).select(code["host"] + offsets.get(first * 8), 0)
        same = place.differs(0) & clock.get(WarpClock.arrived_at).equals(place)
        lanes.set(same.select(clock.get(WarpClock.arrived_lanes).to(U32), 0))
        clock.set(WarpClock.arrived_at, place)
        clock.set(WarpClock.arrived_lanes, wide(lanes.get() | active))
    return lanes.get()


def _write_strong(module: ir.Module) -> ir.Function:
    """`strong(frame, observed, offsets, active, …)`: atomics and volatile accesses.

    Their cells publish what happened before, and readers acquire it, at once or by a fence that follows.
    """
    arguments = (
        "frame", "observed", "offsets", "active", "plane", "stride", "shift", "host", "flags", "home", "site",
    )  # fmt: skip
    code = WatchCode(module, "strong", arguments)
    observed = code.record("observed")
    clock = observed.at(BlockWatch.clock)
    flags, epoch = code["flags"], observed.get(BlockWatch.epoch)
    in_block, for_cluster = ((flags & flag).differs(0) for flag in (Flag.IN_BLOCK, Flag.IN_CLUSTER))
    for_all = ~in_block & ~for_cluster
    reads, writes, polls = ((flags & flag).differs(0) for flag in (Flag.READS, Flag.WRITES, Flag.POLLS))
    phases = (flags & Flag.PHASES).differs(0)
    arrived = _arrived_there(code, observed, phases & writes)
    with code.when((flags & Flag.RELEASES).differs(0)):
        publish(code, observed, code["active"].to(U32), for_all, for_cluster, arrived)
    log = Record(code, observed.at(BlockWatch.watch).get(WatchRecord.log)).pointer(0, U32)
    taken = code.variable(code.number(0))
    published = clock.get(WarpClock.published)
    # A fence of the GPU's scope and a write of that scope publish to all blocks, others within the block, or
    # the cluster.
    wide_scope = for_all & ~(clock.get(WarpClock.published_gpu) < published)
    to_cluster = ~in_block & ~(clock.get(WarpClock.published_cluster) < published) & ~phases
    knows_others = (clock.get(WarpClock.acquired) | clock.get(WarpClock.foreign_count)).differs(0)
    marks = (
        wide_scope.select(code.number(0), code.number(records.WITHIN_BLOCK))
        | (to_cluster & ~wide_scope).select(code.number(records.WITHIN_CLUSTER), 0)
        | clock.get(WarpClock.published_whole).differs(0).select(code.number(records.WHOLE), 0)
        | knows_others.select(code.number(records.CHAIN), 0)
    )
    at_home = code["home"].equals(observed.address)
    own_warp = log.load(epoch)
    pcs = code.record("frame").get(WarpFrame.pcs, U32, LANES)
    exited = Value(code, U32, code.builder.bitcast(pcs.equals(abi.EXITED).handle, ir.IntType(32)))
    active = code["active"].to(U32) | exited

    def local_of(epoch: Value) -> tuple[Value, Value]:
        """Return the warp of an epoch, counted from the first of this block, and whether it is of it."""
        local = wide(log.load(epoch)) - observed.get(BlockWatch.first_warp)
        return local, ~(local < 0) & (local < observed.get(BlockWatch.warps))

    def comes_back(publisher: Record, publication: Value) -> None:
        """Write that another warp has published what it knows of this one."""
        index = clock.get(WarpClock.index)
        known, shown = (
            wide(publisher.pointer(each, U32).load(index))
            for each in (WarpClock.seen, WarpClock.glimpsed_seen)
        )
        known = most(known, shown)
        newer = publisher.address.differs(clock.address) & (known > clock.get(WarpClock.returning))
        with code.when(newer):
            clock.set(WarpClock.returning, known)
            clock.set(WarpClock.returning_by, publication)

    shown = code.stack_bytes(4 * LANES)

    def show(publisher: Record, known: int, index: Value, released: Value) -> None:
        """Write that this warp is shown what another one knows of the block, and the other's own release."""
        share_releases(code, clock, publisher)
        epochs = shown.pointer(0, U32)
        epochs.store(publisher.get(known, U32, LANES))
        epochs.store(epochs.load(index).max(released.to(U32)), index)
        keep_earlier(code, observed, clock, WarpClock.glimpsed_seen, index, released)
        see_releases(code, observed, clock, WarpClock.glimpsed_seen, shown.address)

    def take(publication: Value, lane: Value, arrivals: Value) -> None:
        epoch = publication & records.PUBLISHED
        with code.when(epoch.differs(0)):
            local, mine = local_of(epoch)
            own_arrived = (
                (arrivals >> (own_warp - observed.get(BlockWatch.first_warp).to(U32))) & 1
            ).differs(0)
            with code.when((phases & own_arrived) | (~phases & log.load(epoch).equals(own_warp))):
                # Another lane of this warp has published: what its warp did up to then is known to this
                # lane. Of a phase all arrivals count, and the epoch of the last is on record.
                seen = lane_seen(code, running_lane_clocks(observed), lane).pointer(0, U32)
                seen.store(seen.load(0, LANES).max(epoch.to(U32).spread(LANES)))
                clock.set(WarpClock.partly_synced, observed.get(BlockWatch.epoch))
            learn(code, observed, active, epoch, log.load(epoch).equals(own_warp))
            clock.set(WarpClock.shown, 1)
            chain = (publication & records.CHAIN).differs(0)
            to_all = (publication & records.WITHIN_BLOCK).equals(0)
            to_members = to_all | (publication & records.WITHIN_CLUSTER).differs(0)
            member = ~phases & to_members & ~in_block & in_cluster(code, observed, epoch)
            counts = (to_all & for_all) | member | mine
            with code.when(counts & ~phases & chain):
                taken.set(most(taken.get(), epoch))
            with code.when(phases):
                clock.set(WarpClock.phase_acquired, most(clock.get(WarpClock.phase_acquired), epoch))
                with (
                    code.loop(observed.get(BlockWatch.warps)) as index,
                    code.when(((arrivals >> index.to(U32)) & 1).differs(0)),
                ):
                    arrived = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
                    released = least(arrived.get(WarpClock.published), epoch)
                    show(arrived, WarpClock.seen, index, released)
                    comes_back(arrived, epoch)
                    clock.set(
                        WarpClock.glimpsed,
                        most(clock.get(WarpClock.glimpsed), arrived.get(WarpClock.acquired)),
                    )
            with code.when(mine & ~phases):
                # What the warp that published knows of the block; an atomic goes on with what others have
                # published in the same place, whether a fence followed or not.
                publisher = Record(code, observed.get(BlockWatch.clocks) + local * WarpClock.BYTES)
                comes_back(publisher, epoch)
                for known in (WarpClock.seen, WarpClock.glimpsed_seen):
                    show(publisher, known, local, epoch)
                    with code.when(follows(observed)):
                        hand_over(code, observed, shown.get(0, U32, LANES))
            with code.when(counts & ~mine & ~phases & ~chain):
                add_foreign(code, clock, (publication.to(U32) & ~records.NARROW) | records.GLIMPSED)

    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        offset = code.record("offsets").get(lane * 8)
        address = code["plane"] + ((offset >> code["shift"]) << 2)
        cell, next_cell = (Cell(code, address + each, code["stride"]) for each in (0, 4))
        held = wide(cell.get(ShadowPlane.PUBLICATION))
        so_far = held & records.PUBLISHED
        with code.when(phases & follows(observed)):
            _follow_phase(code, observed, offset, lane, reads, active)
        with code.when(phases & reads & ~follows(observed) & (observed.get(BlockWatch.cluster_blocks) > 1)):
            code.call_number(module.functions["learn_members"], observed.address, 0, wide(active))
        with code.when(phases):
            # Arrivals publish when their phase is complete: then the object has the other parity. What
            # earlier phases published is kept in the next cell.
            parity = (Record(code, code["host"] + offset).get(0, U64) >> 63).to(i64)
            phase = parity.differs(0).select(code.number(records.ODD_PHASE), 0)
            complete = so_far.differs(0) & ((held ^ phase) & records.ODD_PHASE).differs(0)
            with code.when(complete):
                next_cell.set(ShadowPlane.PUBLICATION, held.to(U32))
                next_cell.set(ShadowPlane.PUBLISHERS, cell.get(ShadowPlane.PUBLISHERS))
                cell.set(ShadowPlane.PUBLISHERS, code.constant(U32, 0))
            with code.when(reads):
                publishers = next_cell.get(ShadowPlane.PUBLISHERS)
                take(wide(next_cell.get(ShadowPlane.PUBLICATION)), lane, publishers)
            with code.when(writes):
                # Warps of other blocks of a cluster are told of by `tell_members`.
                local = own_warp - observed.get(BlockWatch.first_warp).to(U32)
                bit = at_home.select(code.constant(U32, 1) << local, 0)
                cell.set(ShadowPlane.PUBLISHERS, cell.get(ShadowPlane.PUBLISHERS) | bit)
                newest = complete.select(published, most(so_far, published))
                cell.set(ShadowPlane.PUBLICATION, (newest | marks | phase).to(U32))
            with code.when(complete & ~writes):
                cell.set(ShadowPlane.PUBLICATION, phase.to(U32))
        with code.when(~phases & reads):
            take(held, lane, code.constant(U32, 0))
        with code.when(~phases & writes & ~polls & (so_far < published)):
            # An atomic goes on with what others have published in the same place.
            _, same_block = local_of(so_far)
            joins = reads & so_far.differs(0) & ~same_block
            chained = joins.select(code.number(records.CHAIN), 0)
            cell.set(ShadowPlane.PUBLICATION, (published | marks | chained).to(U32))
    clock.set(WarpClock.glimpsed, most(clock.get(WarpClock.glimpsed), taken.get()))
    with code.when((flags & Flag.ACQUIRES).differs(0)):
        acquire(code, observed, for_all | phases, for_cluster)
    with code.when((flags & Flag.VOLATILE_ACCESS).equals(0)):
        observed.set(BlockWatch.fresh, 1)
    code.done()
    return code.function


def _follow_phase(
    code: WatchCode, observed: Record, offset: Value, lane: Value, waits: Value, active: Value
) -> None:
    """Write that a lane arrives at an mbarrier, or tests a phase of it."""
    word = Record(code, code["host"] + offset).get(0, U64).to(i64)
    functions = code.module.functions
    with code.when(~waits):
        code.call_number(
            functions["arrive_at_phase"], code["frame"], code["home"], offset, word, code["site"], lane
        )
    with code.when(waits):
        sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
        row = Record(code, sites + code["site"] * SiteRow.BYTES)
        asked = code.variable(row.get(SiteRow.step))
        register = row.get(SiteRow.step_base)
        for type in (U32, U64):
            with code.when((register > 0) & row.get(SiteRow.element_bits).equals(type.bits)):
                held = Record(code, code["frame"] + register).pointer(0, type).load(lane).to(U64)
                asked.set((held >> (63 if type is U64 else 0)).to(i64))
        seen = code.call_number(
            functions["see_phase"], code["frame"], code["home"], offset, word, lane, asked.get()
        )
        in_cluster = observed.get(BlockWatch.cluster_blocks) > 1
        with code.when(in_cluster & seen.differs(NOT_COMPLETE)):
            code.call_number(functions["learn_members"], observed.address, seen, wide(active))


def write_publications(module: ir.Module) -> None:
    """Write the function of strong accesses into a module."""
    _write_strong(module)
