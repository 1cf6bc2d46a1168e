"""Compiled code that is called before each access: it finds the bytes that the lanes of a warp touch.

The lanes' addresses become offsets into shadow memory (`shadow_memory.py`), and their costs are counted
(`bank_model.py`).
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.bank_model import lane_is_in, write_banks
from lanewise.machine.checker.heap_checks import write_heap_check
from lanewise.machine.checker.records import (
    COSTS,
    AllocationShadow,
    BlockWatch,
    Flag,
    LastRequest,
    ShadowPlane,
    SiteRow,
    Space,
    Suspicion,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.request_pattern import count_costs, remember
from lanewise.machine.checker.shadow_memory import write_shadow
from lanewise.machine.checker.shadow_words import WHOLE, Word
from lanewise.machine.checker.vector_clocks import LANES, WatchCode, in_turn, least, most, wide, write_clocks
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL


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
        direct.set(BlockWatch.fresh, 1)
    observed = in_turn(code, warp)
    clock = observed.at(BlockWatch.clock)
    with code.when((clock.get(WarpClock.partial) | clock.get(WarpClock.awaited)).differs(0)):
        clock.set(WarpClock.broken, 1)
    addresses = code.stack_bytes(8 * LANES)
    base, displacement = row.get(SiteRow.base), row.get(SiteRow.displacement)
    pointer = addresses.pointer(0, U64)
    with code.when(base < 0):
        pointer.store(displacement.to(U64).spread(LANES))
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
    again = code.function.append_basic_block("again")
    through = code.function.append_basic_block("through")
    after = code.function.append_basic_block("after_all")
    code.builder.branch(again)
    code.builder.position_at_end(again)
    code.builder.cbranch(left.get().differs(0).handle, through, after)
    code.builder.position_at_end(through)
    done = code.call_number(
        module.functions["region"], code["frame"], observed.address, code["site"], addresses.address,
        wide(left.get()),
    )  # fmt: skip
    left.set(left.get() & ~done.to(U32))
    code.builder.branch(again)
    code.builder.position_at_end(after)
    with code.when(matrix & (flags & Flag.BY_WORD).equals(0)):
        direct.set(BlockWatch.fresh, 1)
    code.done()


def _write_region(module: ir.Module) -> ir.Function:
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
    plane, stride = code.variable(code.number(0)), code.variable(code.number(0))
    with code.when(space.get().equals(Space.GENERIC)):
        space.set(code.number(Space.GLOBAL))
        for window, meant in ((abi.SHARED_WINDOW, Space.SHARED), (abi.LOCAL_WINDOW, Space.LOCAL)):
            with code.when((address - window).to(U64) < abi.WINDOW_BYTES):
                space.set(code.number(meant))
                origin.set(code.number(window))
    shared, local = space.get().equals(Space.SHARED), space.get().equals(Space.LOCAL)
    with code.when(shared):
        limit.set(observed.get(BlockWatch.shared_bytes))
        plane.set(observed.get(BlockWatch.shadow))
        stride.set(observed.get(BlockWatch.stride))
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
            row.set(SiteRow.last_allocation, kept.get())
        with code.when(kept.get().equals(0)):  # a fault, or an access to parameters
            code.done(code["active"])
        allocation = Record(code, kept.get())
        origin.set(allocation.get(AllocationShadow.first))
        limit.set(allocation.get(AllocationShadow.size))
        plane.set(allocation.get(AllocationShadow.plane))
        stride.set(allocation.get(AllocationShadow.stride))
    offsets = code.stack_bytes(8 * LANES)
    relative = addresses.get(0, U64, LANES) - origin.get().to(U64).spread(LANES)
    offsets.pointer(0, U64).store(relative)
    # The result for the last request of this instruction holds for the same pattern some sectors further on,
    # or some rows of banks.
    memory = row.at(SiteRow.last_request)
    base = offsets.get(first * 8)
    pattern = relative - base.to(U64).spread(LANES)
    phase = base & shared.select(code.number(127), 31)
    key = wide(active) | (space.get() << 32) | (phase << 40)
    same = (
        memory.get(LastRequest.key).equals(key)
        & ~memory.get(LastRequest.pattern, U64, LANES).differs(pattern).any()
    )
    with code.when(~same):
        memory.set(LastRequest.key, key)
        memory.pointer(LastRequest.pattern, U64).store(pattern)
        remember(code, row, memory, offsets, base, active, shared)
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
            zero = code.number(0)
            code.suspect(
                Suspicion.OUTSIDE,
                code["frame"],
                code["site"],
                lane,
                origin.get() + offsets.get(lane * 8),
                zero,
                zero,
            )
    with code.when(space.get().equals(Space.GLOBAL)):
        allocation = Record(code, row.get(SiteRow.last_allocation))
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
    site = least(code["site"], records.MOST_ROWS)
    who = code.variable((site << records.SITE_SHIFT).to(U32))
    by_word = (flags & Flag.BY_WORD).differs(0)
    with code.when((flags & (Flag.MATRIX | Flag.TILE)).differs(0) & ~by_word):
        who.set(who.get() | records.SEVERAL)
    with code.when((flags & Flag.STRONG_ACCESS).differs(0)):
        volatile = (flags & Flag.VOLATILE_ACCESS).differs(0).select(code.number(records.VOLATILE), 0)
        who.set(who.get() | records.STRONG | volatile.to(U32))
        code.call_number(
            module.functions["strong"],
            observed.address,
            offsets.address,
            wide(chosen),
            plane.get(),
            stride.get(),
            flags,
        )
    pending = (flags & Flag.COPIES).differs(0).select(code.number(records.PENDING), 0)
    is_shared = shared.to(U64).to(i64)
    start = offsets.get(0)
    weak = (flags & Flag.STRONG_ACCESS).equals(0)
    plain = weak & (flags & (Flag.MATRIX | Flag.TILE)).equals(0)
    side_by_side = memory.get(LastRequest.side_by_side).differs(0) & chosen.equals(-1)
    together = side_by_side & plain & (start & 3).equals(0) & (size < 4)
    tiled_words = memory.get(LastRequest.tiled_words)
    tiled = inside & weak & tiled_words.differs(0) & (lowest & 3).equals(0)
    finished = code.variable(code.constant(BOOL, 0))
    for verb, flag in (("read", Flag.READS), ("write", Flag.WRITES)):
        wanted = (flags & flag).differs(0)
        finished.set(code.constant(BOOL, 0))
        whole = wide(who.get() | (WHOLE << records.MASK_SHIFT))
        with code.when(wanted & tiled):
            answer = code.call_number(
                module.functions[f"tiled_{verb}"], observed.address, plane.get() + lowest, stride.get(),
                whole, is_shared, pending, tiled_words, memory.address + LastRequest.lane_of_word,
            )  # fmt: skip
            finished.set(answer.differs(0))
        with code.when(wanted & together):
            for bytes_each in (1, 2):
                with code.when(size.equals(bytes_each)):
                    answer = code.call_number(
                        module.functions[f"whole_{bytes_each}_{verb}"], observed.address, plane.get() + start,
                        stride.get(), whole | records.SEVERAL, is_shared, pending,
                    )  # fmt: skip
                    finished.set(answer.differs(0))
        by_rows = (size & 15).equals(0)
        for words, fits in ((1, ~by_rows), (4, by_rows)):
            with code.when(wanted & ~finished.get() & fits):
                code.call_number(
                    module.functions[f"lanes_{verb}_{words}"], code["frame"], observed.address,
                    offsets.address, wide(chosen), plane.get(), stride.get(), size, wide(who.get()),
                    code["site"], is_shared, origin.get(), pending, by_word.to(U64).to(i64),
                )  # fmt: skip
    code.done(wide(chosen))
    return code.function


def _write_strong(module: ir.Module) -> ir.Function:
    """`strong(observed, offsets, active, plane, stride, flags)`: atomics and volatile accesses.

    Their words publish what happened before, and readers acquire it.
    """
    code = WatchCode(module, "strong", ("observed", "offsets", "active", "plane", "stride", "flags"))
    observed = code.record("observed")
    clock = observed.at(BlockWatch.clock)
    flags = code["flags"]
    with code.when((flags & Flag.RELEASES).differs(0)):
        clock.set(WarpClock.published, observed.get(BlockWatch.epoch))
    published, taken = clock.get(WarpClock.published), code.variable(code.number(0))
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        address = code["plane"] + (code.record("offsets").get(lane * 8) & ~3)
        word = Word(code, address, code["stride"])
        so_far = wide(word.get(ShadowPlane.PUBLICATION))
        with code.when((flags & Flag.READS).differs(0)):
            taken.set(most(taken.get(), so_far))
        with code.when((flags & Flag.WRITES).differs(0)):
            word.set(ShadowPlane.PUBLICATION, most(so_far, published).to(U32))
    clock.set(WarpClock.acquired, most(clock.get(WarpClock.acquired), taken.get()))
    code.call_number(module.functions["set_floors"], observed.address)
    with code.when((flags & Flag.VOLATILE_ACCESS).equals(0)):
        observed.set(BlockWatch.fresh, 1)
    code.done()
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
        with code.when((first & 31).differs(0)):
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


def write_watch() -> ir.Module:
    """Return a module with all functions behind the steps of a checked kernel."""
    module = ir.Module("checker")
    write_clocks(module)
    write_banks(module)
    write_shadow(module)
    write_heap_check(module)
    _write_find(module)
    _write_strong(module)
    _write_shape(module)
    _write_region(module)
    _write_access(module)
    return module
