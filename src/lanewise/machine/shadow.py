"""Shadow memory: who wrote and read each word last, asked and updated at every access. Compiled code.

An access that nothing unordered came before costs a few vector instructions; all else is looked at word by
word, and what looks wrong is told to Python (`suspicion.py`), which decides.
"""

from __future__ import annotations

from typing import Any

from lanewise.arith import ir
from lanewise.arith.simd import Type, Value, i64
from lanewise.machine import frame, watch
from lanewise.machine.banks import ROWS, lane_is_in, write_banks
from lanewise.machine.clocks import LANES, WatchCode, in_turn, least, most, over, wide, write_clocks
from lanewise.machine.code import U8, U32, U64, Record
from lanewise.machine.lanes import BOOL
from lanewise.machine.observe import FRESH

WHOLE = 0xF
INITIALISED = WHOLE << watch.INITIALISED_SHIFT
_WORD = ("frame", "observed", "place", "stride", "who", "site", "address")


class Word:
    """A word of shadow memory."""

    def __init__(self, code: WatchCode, place: Value, stride: Value) -> None:
        self.code, self.place, self.stride = code, place, stride

    def plane(self, plane: int) -> Record:
        """Where a plane has it."""
        return Record(self.code, self.place + self.stride * plane)

    def get(self, plane: int, lanes: int = 1) -> Value:
        """What a plane says of it, or of it and its neighbours."""
        return self.plane(plane).get(0, U32, lanes)

    def set(self, plane: int, value: Value) -> None:
        """Change what a plane says."""
        self.plane(plane).set(0, value)


def _mask(who: Value) -> Value:
    return (who >> watch.MASK_SHIFT) & WHOLE


def _lane(who: Value) -> Value:
    return who & (LANES - 1)


def _write_ordered(module: ir.Module) -> Any:
    """`ordered(observed, epoch, who, me)`: whether what `who` did then came before `me`."""
    code = WatchCode(module, "ordered", ("observed", "epoch", "who", "me"))
    observed = code.record("observed")
    clock, launch = observed.at(watch.CLOCK), observed.at(watch.WATCH)
    epoch, who, me = code["epoch"], code["who"].to(U32), code["me"].to(U32)
    strong = (who & me & watch.STRONG).differs(0)
    # Volatile accesses order nothing either: lanes of one warp that rely on running in step have to be told.
    in_step = (who & me & watch.VOLATILE).differs(0) & epoch.equals(observed.get(watch.EPOCH))
    with code.when((strong & ~in_step) | over(observed)):
        code.done(1)
    owner = wide(Record(code, launch.get(watch.LOG)).pointer(0, U32).load(epoch))
    local = owner - observed.get(watch.FIRST_WARP)
    mine = wide(Record(code, launch.get(watch.LOG)).pointer(0, U32).load(observed.get(watch.EPOCH)))
    with code.when(owner.equals(mine)):
        with code.when(epoch < observed.get(watch.EPOCH)):
            code.done(1)
        same = _lane(who).equals(_lane(me)) | ((who | me) & watch.SEVERAL).differs(0)
        code.done(same.to(U64).to(i64))
    with code.when(~(clock.get(watch.ACQUIRED) < epoch)):
        code.done(1)
    with code.when(~(local < 0) & (local < observed.get(watch.WARPS))):
        seen = wide(clock.pointer(watch.SEEN, U32).load(local))
        code.done((~(seen < epoch)).to(U64).to(i64))
    code.done(0)
    return code.function


def _write_examine(module: ir.Module, writes: bool) -> Any:
    """`examine_read/write(…)`: tell of what came before this access to a word without order."""
    code = WatchCode(module, f"examine_{'write' if writes else 'read'}", (*_WORD, "shared"))
    observed = code.record("observed")
    word = Word(code, code["place"], code["stride"])
    me, site = code["who"].to(U32), code["site"]
    shared = code["shared"].differs(0)
    floor = shared.select(observed.get(watch.START) - 1, 0)
    stored = word.get(watch.WRITE_EPOCH)
    epoch, writer = wide(stored & watch.EPOCHS), word.get(watch.WRITER)

    def tell(kind: int, when: Value, who: Value) -> None:
        lane = wide(_lane(me))
        code.suspect(kind, code["frame"], site, lane, code["address"], when, wide(who))

    if not writes:
        held = writer >> watch.INITIALISED_SHIFT
        missing = ~(floor < epoch) | (held & _mask(me)).equals(0)
        with code.when(shared & missing):
            tell(watch.UNINITIALISED, code.number(0), code.constant(U32, 0))
            code.done()
    with code.when((floor < epoch) & (_mask(writer) & _mask(me)).differs(0)):
        pending = (stored & watch.PENDING).differs(0)
        told = code.variable(code.constant(BOOL, 0))
        with code.when(pending):
            finished = code.call_number(module.globals["finished"], observed.address, epoch)
            with code.when(finished.equals(0)):
                tell(watch.UNFINISHED_COPY, epoch, writer)
                told.set(code.constant(BOOL, 1))
            with code.when(finished.differs(0)):
                word.set(watch.WRITE_EPOCH, stored & watch.EPOCHS)
        with code.when(~told.get()):
            fine = code.call_number(
                module.globals["ordered"], observed.address, epoch, wide(writer), wide(me)
            )
            with code.when(fine.equals(0)):
                tell(watch.AFTER_WRITE, epoch, writer)
                code.done()
    if writes:
        for when, who in (
            (watch.READ_EPOCH, watch.READER),
            (watch.EARLIER_EPOCH, watch.EARLIER_READER),
        ):
            epoch, reader = wide(word.get(when)), word.get(who)
            with code.when((floor < epoch) & (_mask(reader) & _mask(me)).differs(0)):
                fine = code.call_number(
                    module.globals["ordered"], observed.address, epoch, wide(reader), wide(me)
                )
                with code.when(fine.equals(0)):
                    tell(watch.AFTER_READ, epoch, reader)
                    code.done()
    code.done()
    return code.function


def _write_finished(module: ir.Module) -> Any:
    """`finished(observed, epoch)`: whether an asynchronous copy of an epoch is known to be complete here."""
    code = WatchCode(module, "finished", ("observed", "epoch"))
    observed = code.record("observed")
    clock, launch = observed.at(watch.CLOCK), observed.at(watch.WATCH)
    log = Record(code, launch.get(watch.LOG)).pointer(0, U32)
    owner, mine = (wide(log.load(each)) for each in (code["epoch"], observed.get(watch.EPOCH)))
    with code.when(owner.equals(mine)):
        code.done((~(clock.get(watch.COPIED) < code["epoch"])).to(U64).to(i64))
    local = owner - observed.get(watch.FIRST_WARP)
    with code.when(~(local < 0) & (local < observed.get(watch.WARPS))):
        seen = wide(clock.pointer(watch.SEEN_COPIES, U32).load(local))
        # Published, by an mbarrier for instance, after its own warp had waited for it.
        copier = Record(code, observed.get(watch.CLOCKS) + local * watch.CLOCK_BYTES)
        told = least(copier.get(watch.COPIED), clock.get(watch.ACQUIRED))
        code.done((~(most(seen, told) < code["epoch"])).to(U64).to(i64))
    code.done(1)
    return code.function


def _write_note(module: ir.Module, writes: bool) -> Any:
    """`note_read/write(…)`: put an access to a word on record. `who` may have PENDING for a copy."""
    code = WatchCode(module, f"note_{'write' if writes else 'read'}", (*_WORD, "pending"))
    observed = code.record("observed")
    word = Word(code, code["place"], code["stride"])
    me = code["who"].to(U32)
    now = observed.get(watch.EPOCH)
    when, who = (watch.WRITE_EPOCH, watch.WRITER) if writes else (watch.READ_EPOCH, watch.READER)
    stored, earlier = word.get(when), word.get(who)
    epoch = wide(stored & watch.EPOCHS)
    same_epoch = epoch.equals(now)
    other_lane = _lane(earlier).differs(_lane(me))
    if writes:
        same_site = (earlier >> watch.SITE_SHIFT).equals(me >> watch.SITE_SHIFT)
        overlap = (_mask(earlier) & _mask(me)).differs(0)
        single = ((earlier | me) & (watch.SEVERAL | watch.STRONG)).equals(0)
        with code.when(same_epoch & same_site & other_lane & overlap & single):
            lane = wide(_lane(me))
            code.suspect(
                watch.SAME_PLACE, code["frame"], code["site"], lane, code["address"], epoch, wide(earlier)
            )
        initialised = (epoch < observed.get(watch.START)).select(code.constant(U32, 0), earlier & INITIALISED)
        joined = me | initialised | (_mask(me) << watch.INITIALISED_SHIFT)
        merged = joined | (earlier & (WHOLE << watch.MASK_SHIFT)) | watch.SEVERAL
        joins = same_epoch & same_site & other_lane
        word.set(who, joins.select(merged, joined))
        word.set(when, (now | code["pending"]).to(U32))
    else:
        merged = me | (earlier & (WHOLE << watch.MASK_SHIFT)) | watch.SEVERAL
        word.set(who, (same_epoch & other_lane).select(merged, me))
        word.set(when, now.to(U32))
        kept = wide(word.get(watch.EARLIER_EPOCH))
        floor = observed.get(watch.GLOBAL_FLOOR)
        with code.when((floor < epoch) & ~same_epoch & ~(floor < kept)):
            word.set(watch.EARLIER_EPOCH, stored)
            word.set(watch.EARLIER_READER, earlier)
    code.done()
    return code.function


class View:
    """What the running warp knows of time, for shared or for other memory."""

    def __init__(self, observed: Record, shared: Value) -> None:
        self.floor = shared.select(observed.get(watch.SHARED_FLOOR), observed.get(watch.GLOBAL_FLOOR)).to(U32)
        self.start = shared.select(observed.get(watch.START), 0).to(U32)
        self.now = observed.get(watch.EPOCH).to(U32)
        self.shared = shared


class Row:
    """Neighbouring words that an access touches, looked at together."""

    def __init__(self, code: WatchCode, view: View, word: Word, count: int) -> None:
        self.code, self.word, self.count = code, word, count
        self.floor, self.start, self.now, self.shared = (
            self.spread(each) for each in (view.floor, view.start, view.now, view.shared)
        )

    def spread(self, value: Value) -> Value:
        """A number in every word."""
        return value.spread(self.count) if self.count > 1 else value

    def _unordered(self, when: int, who: int, me: Value) -> Value:
        epochs = self.word.get(when, self.count)
        own = epochs.equals(self.now) & (
            (self.word.get(who, self.count) ^ me) & (LANES - 1 | watch.SEVERAL | watch.STRONG)
        ).equals(0)
        return (epochs > self.floor) & ~own

    def suspicious(self, me: Value, writes: bool) -> Value:
        """Whether these words have to be looked at one by one."""
        word = self.word
        bad = self._unordered(watch.WRITE_EPOCH, watch.WRITER, me)
        if writes:
            bad = bad | self._unordered(watch.READ_EPOCH, watch.READER, me)
            bad = bad | (word.get(watch.EARLIER_EPOCH, self.count) > self.floor)
            return bad.any()
        initialised = (word.get(watch.WRITER, self.count) & INITIALISED).equals(INITIALISED)
        missing = (word.get(watch.WRITE_EPOCH, self.count) < self.start) | ~initialised
        return (bad | (missing & self.shared)).any()

    def note(self, me: Value, writes: bool, pending: Value) -> None:
        """Put an access on record that nothing speaks against; whole words."""
        word, count = self.word, self.count
        now = self.now
        if writes:
            word.plane(watch.WRITE_EPOCH).pointer(0, U32).store(now | self.spread(pending))
            word.plane(watch.WRITER).pointer(0, U32).store(me | INITIALISED)
            return
        epochs = word.get(watch.READ_EPOCH, count)
        held = word.get(watch.EARLIER_EPOCH, count)
        moves = (epochs > self.floor) & epochs.differs(now) & ~(held > self.floor)
        with self.code.when(moves.any()):
            earlier = word.plane(watch.EARLIER_READER).pointer(0, U32)
            earlier.store(moves.select(word.get(watch.READER, count), earlier.load(0, count)))
            word.plane(watch.EARLIER_EPOCH).pointer(0, U32).store(moves.select(epochs, held))
        word.plane(watch.READ_EPOCH).pointer(0, U32).store(now)
        word.plane(watch.READER).pointer(0, U32).store(me)


def _write_whole(module: ir.Module, size: int, writes: bool) -> Any:
    """`whole_<size>_…(observed, place, stride, who, shared, pending)`: lanes side by side; 1 if well."""
    name = f"whole_{size}_{'write' if writes else 'read'}"
    code = WatchCode(module, name, ("observed", "place", "stride", "who", "shared", "pending"))
    observed = code.record("observed")
    words = size * LANES // 4
    chunk = min(words, 32)
    view = View(observed, code["shared"].differs(0))
    who, pending = code["who"].to(U32), code["pending"].to(U32)

    def row(part: Value) -> tuple[Row, Value]:
        word = Word(code, code["place"] + part * (4 * chunk), code["stride"])
        lanes_each = max(4 // size, 1)
        first = ir.Constant(
            ir.VectorType(ir.IntType(32), chunk), [n * 4 * lanes_each // max(size, 4) for n in range(chunk)]
        )
        lanes = Value(code, U32.by(chunk), first) + (part * (chunk * 4 // size)).to(U32).spread(chunk)
        return Row(code, view, word, chunk), lanes | who.spread(chunk)

    with code.loop(words // chunk) as part:
        found, me = row(part)
        with code.when(found.suspicious(me, writes)):
            code.done(0)
    with code.loop(words // chunk) as part:
        found, me = row(part)
        found.note(me, writes, pending)
    code.done(1)
    return code.function


def _write_lanes(module: ir.Module, writes: bool, together: int) -> Any:
    """`lanes_<read or write>_<together>(…)`: lanes each with bytes of their own, so many words at a time."""
    verb = "write" if writes else "read"
    code = WatchCode(
        module,
        f"lanes_{verb}_{together}",
        ("frame", "observed", "offsets", "active", "plane", "stride", "size", "who", "site", "shared",
         "origin", "pending", "by_word"),
    )  # fmt: skip
    observed = code.record("observed")
    offsets = code.record("offsets")
    active = code["active"].to(U32)
    view = View(observed, code["shared"].differs(0))
    who, pending, size = code["who"].to(U32), code["pending"].to(U32), code["size"]
    strong = (who & watch.STRONG).differs(0)
    by_word = code["by_word"].differs(0)
    when = watch.WRITE_EPOCH if writes else watch.READ_EPOCH

    def mine(lane: Value, number: Value, place: Value) -> Value:
        # stmatrix: a word of a row comes from the lane that holds it, not from that of its address.
        holder = ((lane & 7) << 2) + number
        me = who | by_word.select(holder, lane).to(U32)
        mask = ((code.number(1) << size) - 1) << (place & 3)
        return me | ((size < 4).select(mask, code.number(WHOLE)).to(U32) << watch.MASK_SHIFT)

    def word_at(place: Value) -> Word:
        return Word(code, code["plane"] + (place & ~3), code["stride"])

    def one_by_one(function: Any, lane: Value, first: Value, start: Value, last: Value) -> None:
        with code.loop(together) as step:
            number = first + step
            place = start + number * 4
            word = word_at(place)
            me = wide(mine(lane, number, place))
            address = code["origin"] + place
            values = (
                code["frame"],
                observed.address,
                word.place,
                word.stride,
                me,
                code["site"],
                address,
                last,
            )
            code.call_number(function, *values)

    def all_words(action: Any) -> None:
        with code.loop(LANES) as lane, code.when(lane_is_in(lane, active)):
            start = offsets.get(lane * 8)
            steps = (size + 3) >> 2 if together == 1 else size >> 4
            with code.loop(steps) as part:
                first = part * together
                place = start + first * 4
                me = mine(lane, first, place)
                if together > 1:
                    counting = ir.Constant(ir.VectorType(ir.IntType(32), together), list(range(together)))
                    further = by_word.mask(Type("u", 32)).spread(together) & Value(
                        code, U32.by(together), counting
                    )
                    me = me.spread(together) + further
                action(Row(code, view, word_at(place), together), me, lane, first, start)

    def examine(row: Row, me: Value, lane: Value, first: Value, start: Value) -> None:
        with code.when(row.suspicious(me, writes)):
            one_by_one(module.globals[f"examine_{verb}"], lane, first, start, code["shared"])

    def note(row: Row, me: Value, lane: Value, first: Value, start: Value) -> None:
        stored = row.word.get(when, together) & watch.EPOCHS
        slow = strong | stored.equals(row.now).any() | (size < 4)
        with code.when(slow):
            one_by_one(module.globals[f"note_{verb}"], lane, first, start, wide(pending))
        with code.when(~slow):
            row.note(me, writes, pending)

    all_words(examine)
    all_words(note)
    code.done()
    return code.function


def _write_local(module: ir.Module) -> Any:
    """`local(frame, site, offsets, active, size, writes)`: was it written?"""
    code = WatchCode(module, "local", ("frame", "site", "offsets", "active", "size", "writes"))
    warp = code.record("frame")
    observed = warp.at(frame.BLOCK).at(frame.OBSERVED)
    offsets, size = code.record("offsets"), code["size"]
    each = observed.get(watch.LOCAL_BYTES)
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        start = offsets.get(lane * 8)
        with code.when((start.to(U64) < each.to(U64)) & ~(each < start + size)):
            thread = warp.get(frame.INDEX) * LANES + lane
            shadow = Record(code, observed.get(watch.LOCAL_SHADOW) + thread * (each >> 2)).pointer(0, U8)
            part = size < 4
            some = ((code.number(1) << size) - 1) << (start & 3)
            mask = part.select(some, code.number(WHOLE)).to(U8)
            known = code.variable(code.constant(U8, 0))
            known.set(code.constant(U8, 0))
            with code.loop((size + 3) >> 2) as number:
                place = (start >> 2) + number
                held = shadow.load(place)
                known.set(known.get() | (held & mask))
                with code.when(code["writes"].differs(0)):
                    shadow.store(held | mask, place)
            with code.when(code["writes"].equals(0) & known.get().equals(0)):
                zero = code.number(0)
                code.suspect(watch.UNINITIALISED_LOCAL, code["frame"], code["site"], lane, start, zero, zero)
    code.done()
    return code.function


def _write_find(module: ir.Module) -> Any:
    """`find(launch, address)`: the allocation that has an address, or 0."""
    code = WatchCode(module, "find", ("launch", "address"))
    launch = code.record("launch")
    with code.loop(launch.get(watch.ALLOCATION_COUNT)) as number:
        row = Record(code, launch.get(watch.ALLOCATIONS) + number * watch.ALLOCATION_BYTES)
        with code.when((code["address"] - row.get(watch.FIRST)).to(U64) < row.get(watch.SIZE, U64)):
            code.done(row.address)
    code.done(0)
    return code.function


def _write_access(module: ir.Module) -> None:
    """`access(frame, site, active)`: what every instruction that touches memory calls first."""
    code = WatchCode(module, "access", ("frame", "site", "active"), external=True)
    with code.when(code["active"].equals(0)):
        code.done()
    warp = code.record("frame")
    direct = warp.at(frame.BLOCK).at(frame.OBSERVED)
    launch = direct.at(watch.WATCH)
    row = Record(code, launch.get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    flags = row.get(watch.FLAGS)
    matrix = (flags & (watch.MATRIX | watch.TILE)).differs(0)
    with code.when(matrix):
        direct.set(FRESH, 1)
    observed = in_turn(code, warp)
    clock = observed.at(watch.CLOCK)
    with code.when((clock.get(watch.PARTIAL) | clock.get(watch.AWAITED)).differs(0)):
        clock.set(watch.BROKEN, 1)
    addresses = code.room(8 * LANES)
    base, displacement = row.get(watch.BASE), row.get(watch.DISPLACEMENT)
    place = addresses.pointer(0, U64)
    with code.when(base < 0):
        place.store(displacement.to(U64).spread(LANES))
    with code.when(~(base < 0)):
        register = Record(code, warp.address + base)
        with code.when(row.get(watch.BASE_BITS).equals(32)):
            words = register.get(0, U32, LANES) + displacement.to(U32).spread(LANES)
            place.store(words.to(U64))
        with code.when(row.get(watch.BASE_BITS).equals(64)):
            place.store(register.get(0, U64, LANES) + displacement.to(U64).spread(LANES))
    active = code.variable(code["active"].to(U32))
    with code.when(matrix):
        code.call_number(module.globals["shape"], code["frame"], code["site"], addresses.address)
        active.set(row.get(watch.LANES_READ).to(U32))
    row.set(watch.REQUESTS, row.get(watch.REQUESTS) + 1)
    lanes = wide(code.intrinsic("ctpop", U32, [active.get()]))
    row.set(watch.THREADS, row.get(watch.THREADS) + lanes)
    row.set(watch.BYTES, row.get(watch.BYTES) + lanes * row.get(watch.ACCESS_SIZE))
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
    with code.when(matrix & (flags & watch.BY_WORD).equals(0)):
        direct.set(FRESH, 1)
    code.done()


def _write_region(module: ir.Module) -> Any:
    """`region(frame, observed, site, addresses, active)`: lanes in one allocation."""
    code = WatchCode(module, "region", ("frame", "observed", "site", "addresses", "active"))
    observed, addresses = code.record("observed"), code.record("addresses")
    launch = observed.at(watch.WATCH)
    row = Record(code, launch.get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    flags, size = row.get(watch.FLAGS), row.get(watch.ACCESS_SIZE)
    active = code["active"].to(U32)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))
    address = addresses.get(first * 8)
    space = code.variable(row.get(watch.SPACE))
    origin, limit = code.variable(code.number(0)), code.variable(code.number(0))
    plane, stride = code.variable(code.number(0)), code.variable(code.number(0))
    with code.when(space.get().equals(watch.GENERIC)):
        space.set(code.number(watch.GLOBAL))
        for window, meant in ((frame.SHARED_WINDOW, watch.SHARED), (frame.LOCAL_WINDOW, watch.LOCAL)):
            with code.when((address - window).to(U64) < frame.WINDOW_BYTES):
                space.set(code.number(meant))
                origin.set(code.number(window))
    shared, local = space.get().equals(watch.SHARED), space.get().equals(watch.LOCAL)
    with code.when(shared):
        limit.set(observed.get(watch.SHARED_BYTES))
        plane.set(observed.get(watch.SHADOW))
        stride.set(observed.get(watch.STRIDE))
    with code.when(local):
        limit.set(observed.get(watch.LOCAL_BYTES))
    with code.when(space.get().equals(watch.GLOBAL)):
        kept = code.variable(row.get(watch.KEPT))
        known = code.variable(code.constant(BOOL, 0))
        with code.when(kept.get().differs(0)):
            allocation = Record(code, kept.get())
            offset = (address - allocation.get(watch.FIRST)).to(U64)
            known.set(offset < allocation.get(watch.SIZE, U64))
        with code.when(~known.get()):
            kept.set(code.call_number(module.globals["find"], launch.address, address))
            row.set(watch.KEPT, kept.get())
        with code.when(kept.get().equals(0)):  # a fault, or parameters
            code.done(code["active"])
        allocation = Record(code, kept.get())
        origin.set(allocation.get(watch.FIRST))
        limit.set(allocation.get(watch.SIZE))
        plane.set(allocation.get(watch.PLANE))
        stride.set(allocation.get(watch.PLANE_STRIDE))
    offsets = code.room(8 * LANES)
    relative = addresses.get(0, U64, LANES) - origin.get().to(U64).spread(LANES)
    offsets.pointer(0, U64).store(relative)
    bound = limit.get().to(U64)
    good = (relative < bound.spread(LANES)) & (
        (relative + (size - 1).to(U64).spread(LANES)) < bound.spread(LANES)
    )
    chosen = active & Value(code, U32, code.builder.bitcast(good.handle, ir.IntType(32)))
    with code.when(chosen.equals(0)):  # the first lane's is a fault
        code.done(code.number(1) << first)
    with code.when(~local):
        _count(code, module, row, offsets, wide(chosen), size, shared)
    with code.when(local):
        writes = (flags & watch.WRITES).differs(0).to(U64).to(i64)
        code.call_number(
            module.globals["local"], code["frame"], code["site"], offsets.address, wide(chosen), size, writes
        )
        code.done(wide(chosen))
    with code.when(shared & row.get(watch.HIGHEST).differs(0)):
        low, high = (row.get(each, U64).spread(LANES) for each in (watch.LOWEST, watch.HIGHEST))
        beyond = (relative < low) | ((relative + size.to(U64).spread(LANES)) > high)
        bits = chosen & Value(code, U32, code.builder.bitcast(beyond.handle, ir.IntType(32)))
        with code.when(bits.differs(0)):
            lane = wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))
            zero = code.number(0)
            code.suspect(
                watch.OUTSIDE,
                code["frame"],
                code["site"],
                lane,
                origin.get() + offsets.get(lane * 8),
                zero,
                zero,
            )
    site = least(code["site"], watch.MOST_ROWS)
    who = code.variable((site << watch.SITE_SHIFT).to(U32))
    by_word = (flags & watch.BY_WORD).differs(0)
    with code.when((flags & (watch.MATRIX | watch.TILE)).differs(0) & ~by_word):
        who.set(who.get() | watch.SEVERAL)
    with code.when((flags & watch.STRONG_ACCESS).differs(0)):
        volatile = (flags & watch.VOLATILE_ACCESS).differs(0).select(code.number(watch.VOLATILE), 0)
        who.set(who.get() | watch.STRONG | volatile.to(U32))
        code.call_number(
            module.globals["strong"],
            observed.address,
            offsets.address,
            wide(chosen),
            plane.get(),
            stride.get(),
            flags,
        )
    pending = (flags & watch.COPIES).differs(0).select(code.number(watch.PENDING), 0)
    is_shared = shared.to(U64).to(i64)
    start = offsets.get(0)
    counting = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    steps = Value(code, U64.by(LANES), counting) * size.to(U64).spread(LANES)
    side_by_side = ~relative.differs(relative.lane(0).spread(LANES) + steps).any()
    plain = (flags & (watch.STRONG_ACCESS | watch.MATRIX | watch.TILE)).equals(0)
    together = side_by_side & chosen.equals(-1) & plain & (start & 3).equals(0)
    finished = code.variable(code.constant(BOOL, 0))
    for verb, flag in (("read", watch.READS), ("write", watch.WRITES)):
        wanted = (flags & flag).differs(0)
        finished.set(code.constant(BOOL, 0))
        with code.when(wanted & together):
            for bytes_each in (1, 2, 4, 8, 16):
                several = watch.SEVERAL if bytes_each < 4 else 0
                me = wide(who.get() | (WHOLE << watch.MASK_SHIFT) | several)
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


def _count(
    code: WatchCode,
    module: ir.Module,
    row: Record,
    offsets: Record,
    active: Value,
    size: Value,
    shared: Value,
) -> None:
    """Wavefronts or sectors of a request; those of one like the last of this instruction are remembered."""
    kept = row.at(watch.MEMORY)
    # Addresses 128 bytes further on have the same banks and the same share of sectors.
    whole = offsets.get(0, U64, LANES)
    first = whole.lane(0)
    pattern = (whole - first.spread(LANES)) ^ (first & 127).spread(LANES)
    same = kept.get(0).equals(active) & ~kept.get(watch.PATTERN, U64, LANES).differs(pattern).any()
    with code.when(~same):
        kept.pointer(watch.PATTERN, U64).store(pattern)
        kept.set(0, active)
        with code.when(shared):
            rows = (row.get(watch.FLAGS) & (watch.MATRIX | watch.TILE)).differs(0)
            for bytes_each, fits in (
                (4, size < 5),
                (8, size.equals(8)),
                (16, size.equals(16) & ~rows),
                (ROWS, rows),
            ):
                with code.when(fits):
                    answer = code.call_number(
                        module.globals[f"wavefronts_{bytes_each}"], offsets.address, active
                    )
                    kept.set(8, answer & 0xFFFFFFFF)
                    kept.set(16, answer >> 32)
                    kept.set(24, 0)
        with code.when(~shared):
            kept.set(8, 0)
            kept.set(16, 0)
            kept.set(24, code.call_number(module.globals["sectors"], offsets.address, active, size))
    for offset, field in ((8, watch.WAVEFRONTS), (16, watch.IDEAL), (24, watch.SECTORS)):
        row.set(field, row.get(field) + kept.get(offset))


def _write_strong(module: ir.Module) -> Any:
    """`strong(observed, offsets, active, plane, stride, flags)`: what a word publishes, and who takes it."""
    code = WatchCode(module, "strong", ("observed", "offsets", "active", "plane", "stride", "flags"))
    observed = code.record("observed")
    clock = observed.at(watch.CLOCK)
    flags = code["flags"]
    with code.when((flags & watch.RELEASES).differs(0)):
        clock.set(watch.PUBLISHED, observed.get(watch.EPOCH))
    published, taken = clock.get(watch.PUBLISHED), code.variable(code.number(0))
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        place = code["plane"] + (code.record("offsets").get(lane * 8) & ~3)
        word = Word(code, place, code["stride"])
        so_far = wide(word.get(watch.PUBLICATION))
        with code.when((flags & watch.READS).differs(0)):
            taken.set(most(taken.get(), so_far))
        with code.when((flags & watch.WRITES).differs(0)):
            word.set(watch.PUBLICATION, most(so_far, published).to(U32))
    clock.set(watch.ACQUIRED, most(clock.get(watch.ACQUIRED), taken.get()))
    code.call_number(module.globals["set_floors"], observed.address)
    with code.when((flags & watch.VOLATILE_ACCESS).equals(0)):
        observed.set(FRESH, 1)
    code.done()
    return code.function


def _write_shape(module: ir.Module) -> Any:
    """`shape(frame, site, addresses)`: the rows of a matrix instruction in place of its lanes' addresses."""
    code = WatchCode(module, "shape", ("frame", "site", "addresses"))
    warp = code.record("frame")
    launch = warp.at(frame.BLOCK).at(frame.OBSERVED).at(watch.WATCH)
    row = Record(code, launch.get(watch.SITES) + code["site"] * watch.SITE_BYTES)
    addresses = code.record("addresses").pointer(0, U64)
    flags = row.get(watch.FLAGS)
    zero = code.number(0)

    def first_of(condition: Value) -> tuple[Value, Value]:
        bits = Value(code, U32, code.builder.bitcast(condition.handle, ir.IntType(32)))
        return bits.differs(0), wide(code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)]))

    def tell(kind: int, lane: Value, number: Value) -> None:
        code.suspect(kind, code["frame"], code["site"], lane, number, zero, zero)

    all_lanes = addresses.load(0, LANES)
    with code.when((flags & watch.EVERY_LANE).differs(0)):
        observed = warp.at(frame.BLOCK).at(frame.OBSERVED)
        offset = all_lanes
        generic = row.get(watch.SPACE).equals(watch.GENERIC)
        window = generic.select(code.number(frame.SHARED_WINDOW), 0).to(U64).spread(LANES)
        offset = offset - window
        limit = observed.get(watch.SHARED_BYTES).to(U64).spread(LANES)
        for kind, wrong in (
            (watch.IGNORED_ALIGNMENT, (offset & 15).differs(0)),
            (watch.IGNORED_ADDRESS, ~((offset + 15) < limit) | ~(offset < limit)),
        ):
            some, lane = first_of(wrong)
            with code.when(some):
                tell(kind, lane, addresses.load(lane).to(i64))
    with code.when((flags & watch.TILE).differs(0)):
        first = addresses.load(0)
        some, lane = first_of(all_lanes.differs(first.spread(LANES)))
        with code.when(some):
            tell(watch.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        with code.when((first & 31).differs(0)):
            tell(watch.TILE_ALIGNMENT, zero, first.to(i64))
        where, leading = row.get(watch.STEP_BASE), code.variable(row.get(watch.STEP))
        with code.when(where > 0):
            steps = Record(code, warp.address + where).get(0, U32, LANES)
            leading.set(wide(steps.lane(0)))
            some, lane = first_of(steps.differs(steps.lane(0).spread(LANES)))
            with code.when(some):
                tell(watch.TILE_UNIFORM, lane, addresses.load(lane).to(i64))
        # LINES has the bits of an element; a line begins on a multiple of 16 bytes.
        pitch = leading.get() * row.get(watch.LINES)
        with code.when((pitch & 127).differs(0)):
            tell(watch.TILE_STRIDE, zero, leading.get())
        with code.loop(LANES) as line:
            addresses.store(first + ((line * pitch) >> 3).to(U64), line)
    code.done()
    return code.function


def write_watch() -> str:
    """The functions that kernels call while they are checked, as LLVM IR."""
    module = ir.Module("watch")
    write_clocks(module)
    write_banks(module)
    _write_ordered(module)
    _write_finished(module)
    for writes in (False, True):
        _write_examine(module, writes)
        _write_note(module, writes)
        for size in (1, 2, 4, 8, 16):
            _write_whole(module, size, writes)
        for together in (1, 4):
            _write_lanes(module, writes, together)
    _write_local(module)
    _write_find(module)
    _write_strong(module)
    _write_shape(module)
    _write_region(module)
    _write_access(module)
    return str(module)
