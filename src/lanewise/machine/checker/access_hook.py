"""Requests: which bytes an instruction of a warp touches, before it does. Compiled code.

The lanes' addresses become places in shadow memory (`shadow.py`) and are counted (`banks.py`).
"""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.checker import records
from lanewise.machine.checker.bank_model import ROWS, lane_is_in, write_banks
from lanewise.machine.checker.shadow_memory import WHOLE, Word, write_shadow
from lanewise.machine.checker.vector_clocks import LANES, WatchCode, in_turn, least, most, wide, write_clocks
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.instrumentation import FRESH
from lanewise.machine.codegen.lane_vectors import BOOL


def _write_find(module: ir.Module) -> Any:
    """`find(launch, address)`: the allocation that has an address, or 0."""
    code = WatchCode(module, "find", ("launch", "address"))
    launch = code.record("launch")
    with code.loop(launch.get(records.ALLOCATION_COUNT)) as number:
        row = Record(code, launch.get(records.ALLOCATIONS) + number * records.ALLOCATION_BYTES)
        with code.when((code["address"] - row.get(records.FIRST)).to(U64) < row.get(records.SIZE, U64)):
            code.done(row.address)
    code.done(0)
    return code.function


def _write_access(module: ir.Module) -> None:
    """`access(frame, site, active)`: what every instruction that touches memory calls first."""
    code = WatchCode(module, "access", ("frame", "site", "active"), external=True)
    with code.when(code["active"].equals(0)):
        code.done()
    warp = code.record("frame")
    direct = warp.at(abi.BLOCK).at(abi.OBSERVED)
    launch = direct.at(records.WATCH)
    row = Record(code, launch.get(records.SITES) + code["site"] * records.SITE_BYTES)
    flags = row.get(records.FLAGS)
    matrix = (flags & (records.MATRIX | records.TILE)).differs(0)
    with code.when(matrix):
        direct.set(FRESH, 1)
    observed = in_turn(code, warp)
    clock = observed.at(records.CLOCK)
    with code.when((clock.get(records.PARTIAL) | clock.get(records.AWAITED)).differs(0)):
        clock.set(records.BROKEN, 1)
    addresses = code.room(8 * LANES)
    base, displacement = row.get(records.BASE), row.get(records.DISPLACEMENT)
    place = addresses.pointer(0, U64)
    with code.when(base < 0):
        place.store(displacement.to(U64).spread(LANES))
    with code.when(~(base < 0)):
        register = Record(code, warp.address + base)
        with code.when(row.get(records.BASE_BITS).equals(32)):
            words = register.get(0, U32, LANES) + displacement.to(U32).spread(LANES)
            place.store(words.to(U64))
        with code.when(row.get(records.BASE_BITS).equals(64)):
            place.store(register.get(0, U64, LANES) + displacement.to(U64).spread(LANES))
    active = code.variable(code["active"].to(U32))
    with code.when(matrix):
        code.call_number(module.globals["shape"], code["frame"], code["site"], addresses.address)
        active.set(row.get(records.LANES_READ).to(U32))
    row.set(records.REQUESTS, row.get(records.REQUESTS) + 1)
    lanes = wide(code.intrinsic("ctpop", U32, [active.get()]))
    row.set(records.THREADS, row.get(records.THREADS) + lanes)
    row.set(records.BYTES, row.get(records.BYTES) + lanes * row.get(records.ACCESS_SIZE))
    left = code.variable(active.get())
    again = code.function.append_basic_block("again")
    through = code.function.append_basic_block("through")
    after = code.function.append_basic_block("after_all")
    code.builder.branch(again)
    code.builder.position_at_end(again)
    code.builder.cbranch(left.get().differs(0).handle, through, after)
    code.builder.position_at_end(through)
    done = code.call_number(
        module.globals["region"], code["frame"], observed.address, code["site"], addresses.address,
        wide(left.get()),
    )  # fmt: skip
    left.set(left.get() & ~done.to(U32))
    code.builder.branch(again)
    code.builder.position_at_end(after)
    with code.when(matrix & (flags & records.BY_WORD).equals(0)):
        direct.set(FRESH, 1)
    code.done()


def _write_region(module: ir.Module) -> Any:
    """`region(frame, observed, site, addresses, active)`: lanes in one allocation."""
    code = WatchCode(module, "region", ("frame", "observed", "site", "addresses", "active"))
    observed, addresses = code.record("observed"), code.record("addresses")
    launch = observed.at(records.WATCH)
    row = Record(code, launch.get(records.SITES) + code["site"] * records.SITE_BYTES)
    flags, size = row.get(records.FLAGS), row.get(records.ACCESS_SIZE)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    address = addresses.get(first * 8)
    space = code.variable(row.get(records.SPACE))
    origin, limit = code.variable(code.number(0)), code.variable(code.number(0))
    plane, stride = code.variable(code.number(0)), code.variable(code.number(0))
    with code.when(space.get().equals(records.GENERIC)):
        space.set(code.number(records.GLOBAL))
        for window, meant in ((abi.SHARED_WINDOW, records.SHARED), (abi.LOCAL_WINDOW, records.LOCAL)):
            with code.when((address - window).to(U64) < abi.WINDOW_BYTES):
                space.set(code.number(meant))
                origin.set(code.number(window))
    shared, local = space.get().equals(records.SHARED), space.get().equals(records.LOCAL)
    with code.when(shared):
        limit.set(observed.get(records.SHARED_BYTES))
        plane.set(observed.get(records.SHADOW))
        stride.set(observed.get(records.STRIDE))
    with code.when(local):
        limit.set(observed.get(records.LOCAL_BYTES))
    with code.when(space.get().equals(records.GLOBAL)):
        kept = code.variable(row.get(records.KEPT))
        known = code.variable(code.constant(BOOL, 0))
        with code.when(kept.get().differs(0)):
            allocation = Record(code, kept.get())
            offset = (address - allocation.get(records.FIRST)).to(U64)
            known.set(offset < allocation.get(records.SIZE, U64))
        with code.when(~known.get()):
            kept.set(code.call_number(module.globals["find"], launch.address, address))
            row.set(records.KEPT, kept.get())
        with code.when(kept.get().equals(0)):  # a fault, or parameters
            code.done(code["active"])
        allocation = Record(code, kept.get())
        origin.set(allocation.get(records.FIRST))
        limit.set(allocation.get(records.SIZE))
        plane.set(allocation.get(records.PLANE))
        stride.set(allocation.get(records.PLANE_STRIDE))
    offsets = code.room(8 * LANES)
    relative = addresses.get(0, U64, LANES) - origin.get().to(U64).spread(LANES)
    offsets.pointer(0, U64).store(relative)
    # What was found for a request like the last of this instruction holds again some sectors further on, or
    # some rows of banks.
    memory = row.at(records.MEMORY)
    base = offsets.get(first * 8)
    pattern = relative - base.to(U64).spread(LANES)
    phase = base & shared.select(code.number(127), 31)
    key = wide(active) | (space.get() << 32) | (phase << 40)
    same = memory.get(0).equals(key) & ~memory.get(records.PATTERN, U64, LANES).differs(pattern).any()
    with code.when(~same):
        memory.set(0, key)
        memory.pointer(records.PATTERN, U64).store(pattern)
        _remember(code, module, row, memory, pattern, offsets, active, shared)
    chosen_lanes = code.variable(active)
    lowest, highest = base + memory.get(records.LEAST_OFFSET), base + memory.get(records.MOST_OFFSET) + size
    inside = ~(lowest < 0) & ~(limit.get() < highest)
    with code.when(inside & ~local):
        for place, field in records.REMEMBERED:
            row.set(field, row.get(field) + memory.get(place))
    with code.when(~inside):
        bound = limit.get().to(U64).spread(LANES)
        good = (relative < bound) & ((relative + (size - 1).to(U64).spread(LANES)) < bound)
        chosen_lanes.set(active & Value(code, U32, code.builder.bitcast(good.handle, ir.IntType(32))))
        with code.when(chosen_lanes.get().equals(0)):  # the first lane's is a fault
            code.done(code.number(1) << first)
        with code.when(~local):
            memory.set(0, 0)
            _count(code, module, row, memory, offsets, chosen_lanes.get(), shared)
            for place, field in records.REMEMBERED:
                row.set(field, row.get(field) + memory.get(place))
    chosen = chosen_lanes.get()
    with code.when(local):
        writes = (flags & records.WRITES).differs(0).to(U64).to(i64)
        code.call_number(
            module.globals["local"], code["frame"], code["site"], offsets.address, wide(chosen), size, writes
        )
        code.done(wide(chosen))
    strays = (lowest < row.get(records.LOWEST)) | (highest > row.get(records.HIGHEST))
    with code.when(shared & row.get(records.HIGHEST).differs(0) & strays):
        low, high = (row.get(each, U64).spread(LANES) for each in (records.LOWEST, records.HIGHEST))
        beyond = (relative < low) | ((relative + size.to(U64).spread(LANES)) > high)
        bits = chosen & Value(code, U32, code.builder.bitcast(beyond.handle, ir.IntType(32)))
        with code.when(bits.differs(0)):
            lane = wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))
            zero = code.number(0)
            code.suspect(
                records.OUTSIDE,
                code["frame"],
                code["site"],
                lane,
                origin.get() + offsets.get(lane * 8),
                zero,
                zero,
            )
    site = least(code["site"], records.MOST_ROWS)
    who = code.variable((site << records.SITE_SHIFT).to(U32))
    by_word = (flags & records.BY_WORD).differs(0)
    with code.when((flags & (records.MATRIX | records.TILE)).differs(0) & ~by_word):
        who.set(who.get() | records.SEVERAL)
    with code.when((flags & records.STRONG_ACCESS).differs(0)):
        volatile = (flags & records.VOLATILE_ACCESS).differs(0).select(code.number(records.VOLATILE), 0)
        who.set(who.get() | records.STRONG | volatile.to(U32))
        code.call_number(
            module.globals["strong"],
            observed.address,
            offsets.address,
            wide(chosen),
            plane.get(),
            stride.get(),
            flags,
        )
    pending = (flags & records.COPIES).differs(0).select(code.number(records.PENDING), 0)
    is_shared = shared.to(U64).to(i64)
    start = offsets.get(0)
    plain = (flags & (records.STRONG_ACCESS | records.MATRIX | records.TILE)).equals(0)
    side_by_side = memory.get(records.SIDE_BY_SIDE).differs(0)
    together = side_by_side & chosen.equals(-1) & plain & (start & 3).equals(0)
    finished = code.variable(code.constant(BOOL, 0))
    for verb, flag in (("read", records.READS), ("write", records.WRITES)):
        wanted = (flags & flag).differs(0)
        finished.set(code.constant(BOOL, 0))
        with code.when(wanted & together):
            for bytes_each in (1, 2, 4, 8, 16):
                several = records.SEVERAL if bytes_each < 4 else 0
                me = wide(who.get() | (WHOLE << records.MASK_SHIFT) | several)
                with code.when(size.equals(bytes_each)):
                    answer = code.call_number(
                        module.globals[f"whole_{bytes_each}_{verb}"], observed.address, plane.get() + start,
                        stride.get(), me, is_shared, pending,
                    )  # fmt: skip
                    finished.set(answer.differs(0))
        by_rows = (size & 15).equals(0)
        for words, fits in ((1, ~by_rows), (4, by_rows)):
            with code.when(wanted & ~finished.get() & fits):
                code.call_number(
                    module.globals[f"lanes_{verb}_{words}"], code["frame"], observed.address, offsets.address,
                    wide(chosen), plane.get(), stride.get(), size, wide(who.get()), code["site"], is_shared,
                    origin.get(), pending, by_word.to(U64).to(i64),
                )  # fmt: skip
    code.done(wide(chosen))
    return code.function


def _remember(
    code: WatchCode, module: ir.Module, row: Record, kept: Record, pattern: Value, offsets: Record,
    active: Value, shared: Value,
) -> None:  # fmt: skip
    """Of a new pattern of addresses: its extent, whether lanes follow one another, and what it costs."""
    lanes = Value(
        code, BOOL.by(LANES), code.builder.bitcast(active.handle, ir.VectorType(ir.IntType(1), LANES))
    )
    extent = lanes.select(pattern.view(i64), 0)
    for name, offset in (("smin", records.LEAST_OFFSET), ("smax", records.MOST_OFFSET)):
        kept.set(offset, code.intrinsic(f"vector.reduce.{name}", i64, [extent], of=extent.type))
    counting = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    steps = Value(code, U64.by(LANES), counting) * row.get(records.ACCESS_SIZE).to(U64).spread(LANES)
    kept.set(records.SIDE_BY_SIDE, (~pattern.differs(steps).any()).to(U64).to(i64))
    _count(code, module, row, kept, offsets, active, shared)


def _count(
    code: WatchCode,
    module: ir.Module,
    row: Record,
    kept: Record,
    offsets: Record,
    active: Value,
    shared: Value,
) -> None:
    """Wavefronts or sectors of a request."""
    size, lanes = row.get(records.ACCESS_SIZE), wide(active)
    wavefronts, ideal, sectors = (offset for offset, _ in records.REMEMBERED)
    with code.when(shared):
        rows = (row.get(records.FLAGS) & (records.MATRIX | records.TILE)).differs(0)
        for bytes_each, fits in (
            (4, size < 5),
            (8, size.equals(8)),
            (16, size.equals(16) & ~rows),
            (ROWS, rows),
        ):
            with code.when(fits):
                answer = code.call_number(module.globals[f"wavefronts_{bytes_each}"], offsets.address, lanes)
                kept.set(wavefronts, answer & 0xFFFFFFFF)
                kept.set(ideal, answer >> 32)
                kept.set(sectors, 0)
    with code.when(~shared):
        kept.set(wavefronts, 0)
        kept.set(ideal, 0)
        kept.set(sectors, code.call_number(module.globals["sectors"], offsets.address, lanes, size))


def _write_strong(module: ir.Module) -> Any:
    """`strong(observed, offsets, active, plane, stride, flags)`: what a word publishes, and who takes it."""
    code = WatchCode(module, "strong", ("observed", "offsets", "active", "plane", "stride", "flags"))
    observed = code.record("observed")
    clock = observed.at(records.CLOCK)
    flags = code["flags"]
    with code.when((flags & records.RELEASES).differs(0)):
        clock.set(records.PUBLISHED, observed.get(records.EPOCH))
    published, taken = clock.get(records.PUBLISHED), code.variable(code.number(0))
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        place = code["plane"] + (code.record("offsets").get(lane * 8) & ~3)
        word = Word(code, place, code["stride"])
        so_far = wide(word.get(records.PUBLICATION))
        with code.when((flags & records.READS).differs(0)):
            taken.set(most(taken.get(), so_far))
        with code.when((flags & records.WRITES).differs(0)):
            word.set(records.PUBLICATION, most(so_far, published).to(U32))
    clock.set(records.ACQUIRED, most(clock.get(records.ACQUIRED), taken.get()))
    code.call_number(module.globals["set_floors"], observed.address)
    with code.when((flags & records.VOLATILE_ACCESS).equals(0)):
        observed.set(FRESH, 1)
    code.done()
    return code.function


def _write_shape(module: ir.Module) -> Any:
    """`shape(frame, site, addresses)`: the rows of a matrix instruction in place of its lanes' addresses."""
    code = WatchCode(module, "shape", ("frame", "site", "addresses"))
    warp = code.record("frame")
    launch = warp.at(abi.BLOCK).at(abi.OBSERVED).at(records.WATCH)
    row = Record(code, launch.get(records.SITES) + code["site"] * records.SITE_BYTES)
    addresses = code.record("addresses").pointer(0, U64)
    flags = row.get(records.FLAGS)
    zero = code.number(0)

    def first_of(condition: Value) -> tuple[Value, Value]:
        bits = Value(code, U32, code.builder.bitcast(condition.handle, ir.IntType(32)))
        return bits.differs(0), wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))

    def tell(kind: int, lane: Value, number: Value) -> None:
        code.suspect(kind, code["frame"], code["site"], lane, number, zero, zero)

    all_lanes = addresses.load(0, LANES)
    with code.when((flags & records.EVERY_LANE).differs(0)):
        observed = warp.at(abi.BLOCK).at(abi.OBSERVED)
        offset = all_lanes
        generic = row.get(records.SPACE).equals(records.GENERIC)
        window = generic.select(code.number(abi.SHARED_WINDOW), 0).to(U64).spread(LANES)
        offset = offset - window
        limit = observed.get(records.SHARED_BYTES).to(U64).spread(LANES)
        for kind, wrong in (
            (records.IGNORED_ALIGNMENT, (offset & 15).differs(0)),
            (records.IGNORED_ADDRESS, ~((offset + 15) < limit) | ~(offset < limit)),
        ):
            some, lane = first_of(wrong)
            with code.when(some):
                tell(kind, lane, addresses.load(lane).to(i64))
    with code.when((flags & records.TILE).differs(0)):
        first = addresses.load(0)
        some, lane = first_of(all_lanes.differs(first.spread(LANES)))
        with code.when(some):
            tell(records.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        with code.when((first & 31).differs(0)):
            tell(records.TILE_ALIGNMENT, zero, first.to(i64))
        where, leading = row.get(records.STEP_BASE), code.variable(row.get(records.STEP))
        with code.when(where > 0):
            steps = Record(code, warp.address + where).get(0, U32, LANES)
            leading.set(wide(steps.lane(0)))
            some, lane = first_of(steps.differs(steps.lane(0).spread(LANES)))
            with code.when(some):
                tell(records.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        # LINES has the bits of an element; a line begins on a multiple of 16 bytes.
        pitch = leading.get() * row.get(records.LINES)
        with code.when((pitch & 127).differs(0)):
            tell(records.TILE_STRIDE, zero, leading.get())
        with code.loop(LANES) as line:
            addresses.store(first + ((line * pitch) >> 3).to(U64), line)
    code.done()
    return code.function


def write_watch() -> str:
    """The functions that kernels call while they are checked, as LLVM IR."""
    module = ir.Module("watch")
    write_clocks(module)
    write_banks(module)
    write_shadow(module)
    _write_find(module)
    _write_strong(module)
    _write_shape(module)
    _write_region(module)
    _write_access(module)
    return str(module)
