"""Compiled code that is called before each access: it finds the bytes that the lanes of a warp touch.

The lanes' addresses become offsets into shadow memory (`shadow_memory.py`), and their costs are counted
(`bank_model.py`).
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.allocations.heap_checks import write_heap_check
from lanewise.machine.checker.proxy_records import BarrierUse
from lanewise.machine.checker.records import (
    COSTS,
    AllocationShadow,
    BlockWatch,
    Flag,
    LaneClocks,
    LastRequest,
    SiteRow,
    Space,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_accesses import write_async_accesses, write_async_finished
from lanewise.machine.checker.watch_code.async_clocks import follows, note_written, write_async_clocks
from lanewise.machine.checker.watch_code.async_operations import write_async_operations
from lanewise.machine.checker.watch_code.async_runs import write_async_runs
from lanewise.machine.checker.watch_code.bank_model import write_banks
from lanewise.machine.checker.watch_code.block_order import write_block_order
from lanewise.machine.checker.watch_code.extents import write_extents
from lanewise.machine.checker.watch_code.happens_before import write_completion, write_happens_before
from lanewise.machine.checker.watch_code.known_releases import write_known_releases
from lanewise.machine.checker.watch_code.phases import write_phases
from lanewise.machine.checker.watch_code.publications import write_publications
from lanewise.machine.checker.watch_code.register_pool import write_register_pool
from lanewise.machine.checker.watch_code.remote_accesses import is_in_cluster
from lanewise.machine.checker.watch_code.request_pattern import count_costs, keep_base, remember
from lanewise.machine.checker.watch_code.shadow_memory import write_shadow
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    WatchModule,
    in_turn,
    least,
    most,
    running_lane_clocks,
    wide,
    write_clocks,
)
from lanewise.machine.checker.watch_code.warp_order import write_warp_order
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: How often an instruction that reported a race reports races again in another array, and how many.
MOST_REOPENED, REPORTS_REOPENED = 256, 20
_REOPENED = (
    Suspicion.AFTER_WRITE, Suspicion.AFTER_READ, Suspicion.SAME_ADDRESS, Suspicion.WEAKLY_AFTER_WRITE,
    Suspicion.WEAKLY_AFTER_READ,
)  # fmt: skip


def _write_find(module: ir.Module) -> ir.Function:
    """`find(launch, address)`: the AllocationShadow of the allocation with an address, or 0."""
    code = WatchCode(module, "find", ("launch", "address"))
    launch = code.record("launch")
    with code.loop(launch.get(WatchRecord.allocation_count)) as number:
        row = Record(code, launch.get(WatchRecord.allocations) + number * AllocationShadow.BYTES)
        with code.when(
            (code["address"] - row.get(AllocationShadow.first)).to(U64) < row.get(AllocationShadow.size, U64)
        ):
            code.done(row.address)
    code.done(0)
    return code.function


def _write_access(module: ir.Module) -> None:
    """`access(frame, site, active)`: called before every instruction that accesses memory."""
    code = WatchCode(module, "access", ("frame", "site", "active"))
    with code.when(code["active"].equals(0)):
        code.done()
    warp = code.record("frame")
    direct = warp.at(WarpFrame.block).at(BlockRecord.watch)
    launch = direct.at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    flags = row.get(SiteRow.flags)
    matrix = (flags & (Flag.MATRIX | Flag.TILE)).differs(0)
    with code.when(matrix):
        code.call_number(module.functions["meet"], code["frame"], code["active"])
    observed = in_turn(code, warp)
    clock = observed.at(BlockWatch.clock)
    awaited = clock.get(WarpClock.partial) | clock.get(WarpClock.awaited) | clock.get(WarpClock.waiting)
    with code.when(awaited.differs(0)):
        clock.set(WarpClock.broken, 1)
        clock.set(WarpClock.strayed, clock.get(WarpClock.strayed) | code["active"])
    clock.set(WarpClock.touched, clock.get(WarpClock.touched) | code["active"])
    clock.set(WarpClock.arrived_lanes, clock.get(WarpClock.arrived_lanes) & ~code["active"])
    addresses = code.stack_bytes(8 * LANES)
    base, displacement = row.get(SiteRow.base), row.get(SiteRow.displacement)
    pointer = addresses.pointer(0, U64)
    with code.when(base < 0):
        # A variable in shared memory is that of the own block.
        first = warp.at(WarpFrame.block).get(BlockRecord.shared_first)
        start = displacement + row.get(SiteRow.space).equals(Space.SHARED).select(first, 0)
        pointer.store(start.to(U64).spread(LANES))
    with code.when(~(base < 0)):
        register = Record(code, warp.address + base)
        with code.when(row.get(SiteRow.base_bits).equals(32)):
            words = register.get(0, U32, LANES) + displacement.to(U32).spread(LANES)
            pointer.store(words.to(U64))
        with code.when(row.get(SiteRow.base_bits).equals(64)):
            pointer.store(register.get(0, U64, LANES) + displacement.to(U64).spread(LANES))
    active = code.variable(code["active"].to(U32))
    with code.when(matrix):
        code.call_number(module.functions["shape"], code["frame"], code["site"], addresses.address)
        active.set(row.get(SiteRow.lanes_read).to(U32))
    row.set(SiteRow.requests, row.get(SiteRow.requests) + 1)
    lanes = wide(code.intrinsic("ctpop", U32, [active.get()]))
    row.set(SiteRow.threads, row.get(SiteRow.threads) + lanes)
    row.set(SiteRow.moved_bytes, row.get(SiteRow.moved_bytes) + lanes * row.get(SiteRow.access_size))
    left = code.variable(active.get())
    with code.while_any(left):
        done = code.call_number(
            module.functions["region"], code["frame"], observed.address, code["site"], addresses.address,
            wide(left.get()),
        )  # fmt: skip
        left.set(left.get() & ~done.to(U32))
    with code.when(matrix):
        code.call_number(module.functions["meet"], code["frame"], code["active"])
    code.done()


def _reopen(code: WatchCode, row: Record, allocation: Value) -> None:
    """Let an instruction report races again, because it accesses another allocation than before."""
    changes = row.get(SiteRow.allocation_changes)
    another = row.get(SiteRow.last_allocation).differs(0) & allocation.differs(0)
    with code.when(another & (changes < MOST_REOPENED)):
        row.set(SiteRow.allocation_changes, changes + 1)
        for kind in _REOPENED:
            limit = SiteRow.limits + 8 * kind
            row.set(limit, most(row.get(limit), code.number(REPORTS_REOPENED)))


def _write_region(module: WatchModule) -> ir.Function:
    """`region(frame, observed, site, addresses, active)`: handle the lanes in one allocation.

    It returns the lanes that it has handled.
    """
    code = WatchCode(module, "region", ("frame", "observed", "site", "addresses", "active"))
    observed, addresses = code.record("observed"), code.record("addresses")
    launch = observed.at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    flags, size = row.get(SiteRow.flags), row.get(SiteRow.access_size)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    address = addresses.get(first * 8)
    space = code.variable(row.get(SiteRow.space))
    origin, limit = code.variable(code.number(0)), code.variable(code.number(0))
    plane, stride, shift, host = (code.variable(code.number(0)) for _ in range(4))
    home = code.variable(observed.address)
    with code.when(space.get().equals(Space.GENERIC)):
        space.set(code.number(Space.GLOBAL))
        for window, meant in ((abi.SHARED_WINDOW, Space.SHARED), (abi.LOCAL_WINDOW, Space.LOCAL)):
            with code.when((address - window).to(U64) < abi.WINDOW_BYTES):
                space.set(code.number(meant))
                origin.set(code.number(window))
    shared, local = space.get().equals(Space.SHARED), space.get().equals(Space.LOCAL)
    with code.when(shared):
        # The memory of the own block, or of another one of the cluster; without a limit it is a fault.
        block = code.record("frame").at(WarpFrame.block)
        rank = ((address - origin.get()).to(U64) >> abi.RANK_SHIFT).to(i64)
        with code.when(rank < block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)):
            member_row = Record(code, block.get(BlockRecord.members) + rank * MemberRow.BYTES)
            owner = member_row.at(MemberRow.block).at(BlockRecord.watch)
            origin.set(origin.get() + (rank << abi.RANK_SHIFT))
            limit.set(member_row.get(MemberRow.bytes))
            home.set(owner.address)
            plane.set(owner.get(BlockWatch.shadow))
            stride.set(owner.get(BlockWatch.stride))
            shift.set(owner.get(BlockWatch.cell_shift))
            host.set(member_row.get(MemberRow.shared))
    with code.when(local):
        limit.set(observed.get(BlockWatch.local_bytes))
    with code.when(space.get().equals(Space.GLOBAL)):
        kept = code.variable(row.get(SiteRow.last_allocation))
        known = code.variable(code.constant(BOOL, 0))
        with code.when(kept.get().differs(0)):
            allocation = Record(code, kept.get())
            offset = (address - allocation.get(AllocationShadow.first)).to(U64)
            known.set(offset < allocation.get(AllocationShadow.size, U64))
        with code.when(~known.get()):
            kept.set(code.call_number(module.functions["find"], launch.address, address))
            _reopen(code, row, kept.get())
            row.set(SiteRow.last_allocation, kept.get())
        with code.when(kept.get().equals(0)):  # a fault, or an access to parameters
            code.done(code["active"])
        allocation = Record(code, kept.get())
        origin.set(allocation.get(AllocationShadow.first))
        limit.set(allocation.get(AllocationShadow.size))
        plane.set(allocation.get(AllocationShadow.plane))
        stride.set(allocation.get(AllocationShadow.stride))
        shift.set(allocation.get(AllocationShadow.cell_shift))
        host.set(allocation.get(AllocationShadow.host))
    offsets = code.stack_bytes(8 * LANES)
    relative = addresses.get(0, U64, LANES) - origin.get().to(U64).spread(LANES)
    offsets.pointer(0, U64).store(relative)
    # The result for the last request of this instruction holds for the same pattern some sectors further on,
    # or some rows of banks.
    memory = row.at(SiteRow.last_request)
    base = offsets.get(first * 8)
    pattern = relative - base.to(U64).spread(LANES)
    phase = base & shared.select(code.number(127), 31)
    key = wide(active) | (space.get() << 32) | (shift.get() << 36) | (phase << 40)
    same = (
        memory.get(LastRequest.key).equals(key)
        & ~memory.get(LastRequest.pattern, U64, LANES).differs(pattern).any()
    )
    with code.when(~same):
        memory.set(LastRequest.key, key)
        memory.pointer(LastRequest.pattern, U64).store(pattern)
        remember(code, row, memory, offsets, base, active, shared, shift.get())
    keep_base(code, memory, base)
    chosen_lanes = code.variable(active)
    lowest, highest = (
        base + memory.get(LastRequest.least_offset),
        base + memory.get(LastRequest.most_offset) + size,
    )
    inside = ~(lowest < 0) & ~(limit.get() < highest)
    with code.when(inside & ~local):
        for cost, field in COSTS:
            row.set(field, row.get(field) + memory.get(cost))
    with code.when(~inside):
        bound = limit.get().to(U64).spread(LANES)
        good = (relative < bound) & ((relative + (size - 1).to(U64).spread(LANES)) < bound)
        chosen_lanes.set(active & Value(code, U32, code.builder.bitcast(good.handle, ir.IntType(32))))
        with code.when(chosen_lanes.get().equals(0)):  # the first lane's access is a fault
            code.done(code.number(1) << first)
        with code.when(~local):
            memory.set(LastRequest.key, 0)
            count_costs(code, row, memory, offsets, chosen_lanes.get(), shared)
            for cost, field in COSTS:
                row.set(field, row.get(field) + memory.get(cost))
    chosen = chosen_lanes.get()
    with code.when(local):
        writes = (flags & Flag.WRITES).differs(0).to(U64).to(i64)
        code.call_number(
            module.functions["local"],
            code["frame"],
            code["site"],
            offsets.address,
            wide(chosen),
            size,
            writes,
        )
        code.done(wide(chosen))
    strays = (lowest < row.get(SiteRow.lowest)) | (highest > row.get(SiteRow.highest))
    with code.when(row.get(SiteRow.highest).differs(0) & strays):
        low, high = (row.get(each, U64).spread(LANES) for each in (SiteRow.lowest, SiteRow.highest))
        beyond = (relative < low) | ((relative + size.to(U64).spread(LANES)) > high)
        bits = chosen & Value(code, U32, code.builder.bitcast(beyond.handle, ir.IntType(32)))
        with code.when(bits.differs(0)):
            lane = wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))
            code.suspect(
                Suspicion.OUTSIDE,
                code["frame"],
                code["site"],
                lane,
                origin.get() + offsets.get(lane * 8),
                row.get(SiteRow.lowest),
                row.get(SiteRow.highest),
            )
    with code.when(space.get().equals(Space.GLOBAL)):
        allocation = Record(code, row.get(SiteRow.last_allocation))
        start, end = (inside.select(each, whole) for each, whole in ((lowest, 0), (highest, limit.get())))
        allocation.set(
            AllocationShadow.accessed_from, least(allocation.get(AllocationShadow.accessed_from), start)
        )
        allocation.set(AllocationShadow.accessed_to, most(allocation.get(AllocationShadow.accessed_to), end))
        allocation.set(AllocationShadow.flags, allocation.get(AllocationShadow.flags) | flags)
        states = allocation.get(AllocationShadow.byte_states)
        with code.when(states.differs(0)):
            code.call_number(
                module.functions["heap"],
                code["frame"],
                code["site"],
                offsets.address,
                wide(chosen),
                size,
                flags,
                states,
            )
        with code.when(allocation.get(AllocationShadow.reads_recorded).equals(0)):
            only_reads = (flags & (Flag.READS | Flag.WRITES | Flag.STRONG_ACCESS)).equals(Flag.READS)
            with code.when(only_reads):
                code.done(wide(chosen))
            with code.when((flags & Flag.WRITES).differs(0)):
                zero = code.number(0)
                code.suspect(
                    Suspicion.UNRECORDED_READS, code["frame"], code["site"], first, address, zero, zero
                )
    with code.when(plane.get().equals(0)):  # it is too large to be watched
        code.done(wide(chosen))
    if module.follows_async:
        with code.when(home.get().differs(observed.address) & is_in_cluster(observed)):
            code.call_number(
                module.functions["note_remote"], observed.address, home.get(), code["site"],
                addresses.address, wide(chosen),
            )  # fmt: skip
    who = code.variable((row.get(SiteRow.number) << records.SITE_SHIFT).to(U32))

    def mark(flag: Value, bits: int) -> None:
        who.set(who.get() | flag.select(code.constant(U32, bits), 0))

    by_word = (flags & Flag.BY_WORD).differs(0)
    reads, writes = ((flags & flag).differs(0) for flag in (Flag.READS, Flag.WRITES))
    mark((flags & (Flag.MATRIX | Flag.TILE)).differs(0) & ~by_word, records.COLLECTIVE)
    mark(reads & writes, records.ATOMIC)
    mark((flags & Flag.CONSTANT).differs(0), records.CONSTANT_READ)
    weak = (flags & Flag.STRONG_ACCESS).equals(0)
    with code.when(~weak):
        # Operations on an mbarrier do not race with each other, wherever the threads are (CUTLASS arrives in
        # other blocks at the scope of the block, which is the default).
        within = (flags & (Flag.IN_BLOCK | Flag.PHASES)).equals(Flag.IN_BLOCK)
        in_cluster = (flags & (Flag.IN_CLUSTER | Flag.PHASES)).equals(Flag.IN_CLUSTER)
        mark(within | in_cluster, records.STRONG_IN_BLOCK)
        mark(~within, records.STRONG)
        mark((flags & Flag.VOLATILE_ACCESS).differs(0), records.VOLATILE)
        with code.when(origin.get().equals(abi.GRID_BASE) & writes):
            code.call_number(module.functions["arrive_at_grid"], code["frame"], code["site"], first)
        code.call_number(
            module.functions["strong"], code["frame"], observed.address, offsets.address, wide(chosen),
            plane.get(), stride.get(), shift.get(), host.get(), flags, home.get(), code["site"],
        )  # fmt: skip
    with code.when(follows(observed)):
        with code.when(writes):
            note_written(code, observed, chosen, shared)
        phases = (flags & Flag.PHASES).differs(0)
        initialises = phases & weak & writes
        owner = Record(code, home.get())
        # Accesses beyond the limits are looked at lane by lane.
        near = ~inside | (
            (lowest < owner.get(BlockWatch.followed_to)) & (owner.get(BlockWatch.followed_from) < highest)
        )
        others = ~phases & (reads | writes) & near & (owner.get(BlockWatch.followed_count) > 0)
        with code.when(shared & (initialises | others)):
            invalidates = (flags & Flag.INVALIDATES).differs(0)
            made = invalidates.select(code.number(BarrierUse.INVAL), BarrierUse.INIT)
            used = writes.select(code.number(BarrierUse.STORE), BarrierUse.LOAD)
            code.call_number(
                module.functions["written_over"], code["frame"], code["site"], home.get(), offsets.address,
                wide(chosen), size, host.get(), initialises.select(made, used),
            )  # fmt: skip
    copies = (flags & Flag.COPIES).differs(0)
    pending = copies.select(code.number(records.PENDING), 0)
    with code.when(copies):
        issued = running_lane_clocks(observed).pointer(LaneClocks.issued, U32)
        lanes = Value(
            code, BOOL.by(LANES), code.builder.bitcast(chosen.handle, ir.VectorType(ir.IntType(1), LANES))
        )
        now = observed.get(BlockWatch.epoch).to(U32).spread(LANES)
        issued.store(lanes.select(now, issued.load(0, LANES)))
    is_shared = shared.to(U64).to(i64)
    tiled_cells = memory.get(LastRequest.tiled_cells)
    tiled = (
        inside & weak & tiled_cells.differs(0) & (lowest & ((code.number(1) << shift.get()) - 1)).equals(0)
    )
    finished = code.variable(code.constant(BOOL, 0))
    # An atomic is one access: its write stands for both.
    for verb, wanted in (("read", reads & ~writes), ("write", writes)):
        finished.set(code.constant(BOOL, 0))
        with code.when(wanted & tiled):
            answer = code.call_number(
                module.functions[f"tiled_{verb}"], observed.address,
                plane.get() + ((lowest >> shift.get()) << 2), stride.get(), wide(who.get()), is_shared,
                pending, tiled_cells, memory.address + LastRequest.lane_of_cell,
            )  # fmt: skip
            finished.set(answer.differs(0))
        by_fours = ((size >> shift.get()) & 3).equals(0)
        for cells, fits in ((1, ~by_fours), (4, by_fours)):
            with code.when(wanted & ~finished.get() & fits):
                code.call_number(
                    module.functions[f"lanes_{verb}_{cells}"], code["frame"], observed.address,
                    offsets.address, wide(chosen), plane.get(), stride.get(), shift.get(), size,
                    wide(who.get()), code["site"], is_shared, origin.get(), host.get(), pending,
                    by_word.to(U64).to(i64),
                )  # fmt: skip
    code.done(wide(chosen))
    return code.function


def _write_shape(module: ir.Module) -> ir.Function:
    """`shape(frame, site, addresses)`: replace the lanes' addresses by those of a matrix's rows."""
    code = WatchCode(module, "shape", ("frame", "site", "addresses"))
    warp = code.record("frame")
    launch = warp.at(WarpFrame.block).at(BlockRecord.watch).at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    addresses = code.record("addresses").pointer(0, U64)
    flags = row.get(SiteRow.flags)
    zero = code.number(0)

    def first_of(condition: Value) -> tuple[Value, Value]:
        bits = Value(code, U32, code.builder.bitcast(condition.handle, ir.IntType(32)))
        return bits.differs(0), wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))

    def tell(kind: int, lane: Value, number: Value) -> None:
        code.suspect(kind, code["frame"], code["site"], lane, number, zero, zero)

    all_lanes = addresses.load(0, LANES)
    with code.when((flags & Flag.EVERY_LANE).differs(0)):
        observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
        offset = all_lanes
        generic = row.get(SiteRow.space).equals(Space.GENERIC)
        window = generic.select(code.number(abi.SHARED_WINDOW), 0).to(U64).spread(LANES)
        offset = offset - window
        limit = observed.get(BlockWatch.shared_bytes).to(U64).spread(LANES)
        for kind, wrong in (
            (Suspicion.IGNORED_ALIGNMENT, (offset & 15).differs(0)),
            (Suspicion.IGNORED_ADDRESS, ~((offset + 15) < limit) | ~(offset < limit)),
        ):
            any_lane, lane = first_of(wrong)
            with code.when(any_lane):
                tell(kind, lane, addresses.load(lane).to(i64))
    with code.when((flags & Flag.TILE).differs(0)):
        first = addresses.load(0)
        any_lane, lane = first_of(all_lanes.differs(first.spread(LANES)))
        with code.when(any_lane):
            tell(Suspicion.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        with code.when((first & (row.get(SiteRow.alignment) - 1).to(U64)).differs(0)):
            tell(Suspicion.TILE_ALIGNMENT, zero, first.to(i64))
        step_register, leading = row.get(SiteRow.step_base), code.variable(row.get(SiteRow.step))
        with code.when(step_register > 0):
            steps = Record(code, warp.address + step_register).get(0, U32, LANES)
            leading.set(wide(steps.lane(0)))
            any_lane, lane = first_of(steps.differs(steps.lane(0).spread(LANES)))
            with code.when(any_lane):
                tell(Suspicion.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        # A line has to begin on a multiple of 16 bytes, which are 128 bits.
        pitch = leading.get() * row.get(SiteRow.element_bits)
        with code.when((pitch & 127).differs(0)):
            tell(Suspicion.TILE_STRIDE, zero, leading.get())
        with code.loop(LANES) as line:
            addresses.store(first + ((line * pitch) >> 3).to(U64), line)
    code.done()
    return code.function


def write_watch(follows_async: bool) -> ir.Module:
    """Return a module with all functions behind the steps of a checked kernel.

    Functions that nobody calls in kernels without asynchronous operations are left out by the compiler.
    """
    module = WatchModule(follows_async)
    write_clocks(module)
    write_known_releases(module)
    write_async_clocks(module)
    write_warp_order(module)
    write_block_order(module)
    write_banks(module)
    write_happens_before(module)
    write_register_pool(module)
    write_phases(module)
    write_async_finished(module)
    write_completion(module)
    write_shadow(module)
    write_heap_check(module)
    _write_find(module)
    write_async_accesses(module)
    write_async_runs(module)
    if follows_async:
        write_extents(module)
        write_async_operations(module)
    write_publications(module)
    _write_shape(module)
    _write_region(module)
    _write_access(module)
    return module
