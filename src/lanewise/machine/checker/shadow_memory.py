"""Compiled code of shadow memory: the last write and the last reads of each word.

An access that no unordered access came before costs a few vector instructions. All others are examined word
by word, and what looks wrong is reported to Python, where `triage.py` decides.
"""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.bank_model import lane_is_in
from lanewise.machine.checker.records import (
    WORDS_TOGETHER,
    BlockWatch,
    ShadowPlane,
    Suspicion,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.shadow_words import INITIALISED, WHOLE, View, Word, WordVector
from lanewise.machine.checker.vector_clocks import LANES, WatchCode, epochs_exhausted, least, most, wide
from lanewise.machine.codegen.function_code import U8, U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

_WORD = ("frame", "observed", "word", "stride", "who", "site", "address")


def _mask(who: Value) -> Value:
    """Return the bytes of a word that an access touched, as four bits."""
    return (who >> records.MASK_SHIFT) & WHOLE


def _lane(who: Value) -> Value:
    """Return the lane of an access."""
    return who & (LANES - 1)


def _write_ordered(module: ir.Module) -> ir.Function:
    """`ordered(observed, epoch, who, me)`: whether the access `who` in an epoch happened before `me`."""
    code = WatchCode(module, "ordered", ("observed", "epoch", "who", "me"))
    observed = code.record("observed")
    clock, launch = observed.at(BlockWatch.clock), observed.at(BlockWatch.watch)
    epoch, who, me = code["epoch"], code["who"].to(U32), code["me"].to(U32)
    strong = (who & me & records.STRONG).differs(0)
    # Volatile accesses order nothing either: lanes of one warp that rely on lock step are reported.
    in_step = (who & me & records.VOLATILE).differs(0) & epoch.equals(observed.get(BlockWatch.epoch))
    with code.when((strong & ~in_step) | epochs_exhausted(observed)):
        code.done(1)
    owner = wide(Record(code, launch.get(WatchRecord.log)).pointer(0, U32).load(epoch))
    local = owner - observed.get(BlockWatch.first_warp)
    mine = wide(
        Record(code, launch.get(WatchRecord.log)).pointer(0, U32).load(observed.get(BlockWatch.epoch))
    )
    with code.when(owner.equals(mine)):
        with code.when(epoch < observed.get(BlockWatch.epoch)):
            code.done(1)
        same = _lane(who).equals(_lane(me)) | ((who | me) & records.SEVERAL).differs(0)
        code.done(same.to(U64).to(i64))
    with code.when(~(clock.get(WarpClock.acquired) < epoch)):
        code.done(1)
    with code.when(~(local < 0) & (local < observed.get(BlockWatch.warps))):
        seen = wide(clock.pointer(WarpClock.seen, U32).load(local))
        code.done((~(seen < epoch)).to(U64).to(i64))
    code.done(0)
    return code.function


def _write_examine(module: ir.Module, writes: bool) -> ir.Function:
    """`examine_read/write(…)`: report unordered accesses to a word that came before this one."""
    code = WatchCode(module, f"examine_{'write' if writes else 'read'}", (*_WORD, "shared"))
    observed = code.record("observed")
    word = Word(code, code["word"], code["stride"])
    me, site = code["who"].to(U32), code["site"]
    shared = code["shared"].differs(0)
    floor = shared.select(observed.get(BlockWatch.start) - 1, 0)
    stored = word.get(ShadowPlane.WRITE_EPOCH)
    epoch, writer = wide(stored & records.EPOCHS), word.get(ShadowPlane.WRITER)

    def tell(kind: int, when: Value, who: Value) -> None:
        lane = wide(_lane(me))
        code.suspect(kind, code["frame"], site, lane, code["address"], when, wide(who))

    if not writes:
        held = writer >> records.INITIALISED_SHIFT
        missing = ~(floor < epoch) | (held & _mask(me)).equals(0)
        with code.when(shared & missing):
            tell(Suspicion.UNINITIALISED, code.number(0), code.constant(U32, 0))
            code.done()
    with code.when((floor < epoch) & (_mask(writer) & _mask(me)).differs(0)):
        pending = (stored & records.PENDING).differs(0)
        told = code.variable(code.constant(BOOL, 0))
        with code.when(pending):
            finished = code.call_number(module.functions["finished"], observed.address, epoch)
            with code.when(finished.equals(0)):
                tell(Suspicion.UNFINISHED_COPY, epoch, writer)
                told.set(code.constant(BOOL, 1))
            with code.when(finished.differs(0)):
                word.set(ShadowPlane.WRITE_EPOCH, stored & records.EPOCHS)
        with code.when(~told.get()):
            fine = code.call_number(
                module.functions["ordered"], observed.address, epoch, wide(writer), wide(me)
            )
            with code.when(fine.equals(0)):
                tell(Suspicion.AFTER_WRITE, epoch, writer)
                code.done()
    if writes:
        for when, who in (
            (ShadowPlane.READ_EPOCH, ShadowPlane.READER),
            (ShadowPlane.EARLIER_EPOCH, ShadowPlane.EARLIER_READER),
        ):
            epoch, reader = wide(word.get(when)), word.get(who)
            with code.when((floor < epoch) & (_mask(reader) & _mask(me)).differs(0)):
                fine = code.call_number(
                    module.functions["ordered"], observed.address, epoch, wide(reader), wide(me)
                )
                with code.when(fine.equals(0)):
                    tell(Suspicion.AFTER_READ, epoch, reader)
                    code.done()
    code.done()
    return code.function


def _write_finished(module: ir.Module) -> ir.Function:
    """`finished(observed, epoch)`: whether an asynchronous copy of an epoch is known to be complete."""
    code = WatchCode(module, "finished", ("observed", "epoch"))
    observed = code.record("observed")
    clock, launch = observed.at(BlockWatch.clock), observed.at(BlockWatch.watch)
    log = Record(code, launch.get(WatchRecord.log)).pointer(0, U32)
    owner, mine = (wide(log.load(each)) for each in (code["epoch"], observed.get(BlockWatch.epoch)))
    acquired = clock.get(WarpClock.acquired)
    with code.when(owner.equals(mine)):
        # Waited for, or tracked by an mbarrier that was tested since.
        done = most(clock.get(WarpClock.copied), least(clock.get(WarpClock.tracked), acquired))
        code.done((~(done < code["epoch"])).to(U64).to(i64))
    local = owner - observed.get(BlockWatch.first_warp)
    with code.when(~(local < 0) & (local < observed.get(BlockWatch.warps))):
        seen = wide(clock.pointer(WarpClock.seen_copies, U32).load(local))
        # Published, after its own warp had waited for it or by the mbarrier that tracks it.
        copier = Record(code, observed.get(BlockWatch.clocks) + local * WarpClock.BYTES)
        told = least(most(copier.get(WarpClock.copied), copier.get(WarpClock.tracked)), acquired)
        code.done((~(most(seen, told) < code["epoch"])).to(U64).to(i64))
    code.done(1)
    return code.function


def _of_first_lane(who: Value, earlier: Value) -> Value:
    """Return an access with the lane of an earlier one: of several lanes the first one is named."""
    return (who & ~(LANES - 1)) | (earlier & (LANES - 1))


def _write_note(module: ir.Module, writes: bool) -> ir.Function:
    """`note_read/write(…)`: put an access to a word on record. `who` may have PENDING for a copy."""
    code = WatchCode(module, f"note_{'write' if writes else 'read'}", (*_WORD, "pending"))
    observed = code.record("observed")
    word = Word(code, code["word"], code["stride"])
    me = code["who"].to(U32)
    now = observed.get(BlockWatch.epoch)
    when, who = (
        (ShadowPlane.WRITE_EPOCH, ShadowPlane.WRITER)
        if writes
        else (ShadowPlane.READ_EPOCH, ShadowPlane.READER)
    )
    stored, earlier = word.get(when), word.get(who)
    epoch = wide(stored & records.EPOCHS)
    same_epoch = epoch.equals(now)
    other_lane = _lane(earlier).differs(_lane(me))
    if writes:
        same_site = (earlier >> records.SITE_SHIFT).equals(me >> records.SITE_SHIFT)
        overlap = (_mask(earlier) & _mask(me)).differs(0)
        single = ((earlier | me) & (records.SEVERAL | records.STRONG)).equals(0)
        with code.when(same_epoch & same_site & other_lane & overlap & single):
            lane = wide(_lane(me))
            code.suspect(
                Suspicion.SAME_ADDRESS,
                code["frame"],
                code["site"],
                lane,
                code["address"],
                epoch,
                wide(earlier),
            )
        initialised = (epoch < observed.get(BlockWatch.start)).select(
            code.constant(U32, 0), earlier & INITIALISED
        )
        joined = me | initialised | (_mask(me) << records.INITIALISED_SHIFT)
        merged = _of_first_lane(joined, earlier) | (earlier & (WHOLE << records.MASK_SHIFT)) | records.SEVERAL
        joins = same_epoch & same_site & other_lane
        word.set(who, joins.select(merged, joined))
        word.set(when, (now | code["pending"]).to(U32))
    else:
        merged = _of_first_lane(me, earlier) | (earlier & (WHOLE << records.MASK_SHIFT)) | records.SEVERAL
        word.set(who, (same_epoch & other_lane).select(merged, me))
        word.set(when, now.to(U32))
        kept = wide(word.get(ShadowPlane.EARLIER_EPOCH))
        floor = observed.get(BlockWatch.global_floor)
        with code.when((floor < epoch) & ~same_epoch & ~(floor < kept)):
            word.set(ShadowPlane.EARLIER_EPOCH, stored)
            word.set(ShadowPlane.EARLIER_READER, earlier)
    code.done()
    return code.function


def _write_tiled(module: ir.Module, writes: bool) -> ir.Function:
    """`tiled_read/write(…)`: an access that fills a range of words exactly; 1 if nothing is suspicious.

    `lanes` is the address of a list with the lane of each word.
    """
    name = f"tiled_{'write' if writes else 'read'}"
    arguments = ("observed", "word", "stride", "who", "shared", "pending", "words", "lanes")
    code = WatchCode(module, name, arguments)
    view = View(code.record("observed"), code["shared"].differs(0))
    who, pending = code["who"].to(U32), code["pending"].to(U32)
    count = WORDS_TOGETHER

    def words_at(index: Value) -> tuple[WordVector, Value]:
        start = index * (4 * count)
        lanes = Record(code, code["lanes"] + start).get(0, U32, count)
        words = WordVector(code, view, Word(code, code["word"] + start, code["stride"]), count)
        return words, lanes | who.spread(count)

    vectors = code["words"] >> (count.bit_length() - 1)
    with code.loop(vectors) as index:
        words, me = words_at(index)
        with code.when(words.suspicious(me, writes)):
            code.done(0)
    with code.loop(vectors) as index:
        words, me = words_at(index)
        words.note(me, writes, pending)
    code.done(1)
    return code.function


def _write_whole(module: ir.Module, size: int, writes: bool) -> ir.Function:
    """`whole_<size>_read/write(…)`: an access of consecutive lanes; 1 if nothing is suspicious."""
    name = f"whole_{size}_{'write' if writes else 'read'}"
    code = WatchCode(module, name, ("observed", "word", "stride", "who", "shared", "pending"))
    observed = code.record("observed")
    words = size * LANES // 4
    chunk = min(words, 32)
    view = View(observed, code["shared"].differs(0))
    who, pending = code["who"].to(U32), code["pending"].to(U32)

    def words_at(index: Value) -> tuple[WordVector, Value]:
        word = Word(code, code["word"] + index * (4 * chunk), code["stride"])
        lanes_each = max(4 // size, 1)
        first = ir.Constant(
            ir.VectorType(ir.IntType(32), chunk), [n * 4 * lanes_each // max(size, 4) for n in range(chunk)]
        )
        lanes = Value(code, U32.by(chunk), first) + (index * (chunk * 4 // size)).to(U32).spread(chunk)
        return WordVector(code, view, word, chunk), lanes | who.spread(chunk)

    with code.loop(words // chunk) as index:
        vector, me = words_at(index)
        with code.when(vector.suspicious(me, writes)):
            code.done(0)
    with code.loop(words // chunk) as index:
        vector, me = words_at(index)
        vector.note(me, writes, pending)
    code.done(1)
    return code.function


def _write_lanes(module: ir.Module, writes: bool, together: int) -> ir.Function:
    """`lanes_read/write_<together>(…)`: an access examined lane by lane, `together` words at a time."""
    verb = "write" if writes else "read"
    code = WatchCode(
        module,
        f"lanes_{verb}_{together}",
        ("frame", "observed", "offsets", "active", "plane", "stride", "size", "who", "site", "shared",
         "origin", "pending", "by_word"),
    )  # fmt: skip
    code.function.attributes.add("noinline")  # its loops need all registers
    observed = code.record("observed")
    offsets = code.record("offsets")
    active = code["active"].to(U32)
    view = View(observed, code["shared"].differs(0))
    who, pending, size = code["who"].to(U32), code["pending"].to(U32), code["size"]
    strong = (who & records.STRONG).differs(0)
    by_word = code["by_word"].differs(0)
    when = ShadowPlane.WRITE_EPOCH if writes else ShadowPlane.READ_EPOCH

    def mine(lane: Value, number: Value, offset: Value) -> Value:
        me = who | lane.to(U32)
        if writes:
            # stmatrix: a word of a row comes from the lane that holds it, not from that of its address.
            holder = ((lane & 7) << 2) + number
            me = who | by_word.select(holder, lane).to(U32)
        mask = ((code.number(1) << size) - 1) << (offset & 3)
        return me | ((size < 4).select(mask, code.number(WHOLE)).to(U32) << records.MASK_SHIFT)

    def word_at(offset: Value) -> Word:
        return Word(code, code["plane"] + (offset & ~3), code["stride"])

    def one_by_one(function: ir.Operand, lane: Value, first: Value, start: Value, last: Value) -> None:
        with code.loop(together) as step:
            number = first + step
            offset = start + number * 4
            word = word_at(offset)
            me = wide(mine(lane, number, offset))
            address = code["origin"] + offset
            values = (
                code["frame"],
                observed.address,
                word.address,
                word.stride,
                me,
                code["site"],
                address,
                last,
            )
            code.call_number(function, *values)

    # Up to the last active lane: often only half of a warp is active.
    lanes = LANES - wide(code.intrinsic("ctlz", U32, [active, code.constant(BOOL, 0)]))

    def all_words(action: Any) -> None:
        with code.loop(lanes) as lane, code.when(lane_is_in(lane, active)):
            start = offsets.get(lane * 8)
            steps = (size + 3) >> 2 if together == 1 else size >> 4
            with code.loop(steps) as index:
                first = index * together
                offset = start + first * 4
                me = mine(lane, first, offset)
                if together > 1 and not writes:
                    me = me.spread(together)
                elif together > 1:
                    counting = ir.Constant(ir.VectorType(ir.IntType(32), together), list(range(together)))
                    further = by_word.mask(Type("u", 32)).spread(together) & Value(
                        code, U32.by(together), counting
                    )
                    me = me.spread(together) + further
                action(WordVector(code, view, word_at(offset), together), me, lane, first, start)

    def examine(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        with code.when(words.suspicious(me, writes)):
            one_by_one(module.functions[f"examine_{verb}"], lane, first, start, code["shared"])

    def note(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        stored = words.word.get(when, together) & records.EPOCHS
        slow = strong | stored.equals(words.now).any() | (size < 4)
        with code.when(slow):
            one_by_one(module.functions[f"note_{verb}"], lane, first, start, wide(pending))
        with code.when(~slow):
            words.note(me, writes, pending)

    def both(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        examine(words, me, lane, first, start)
        note(words, me, lane, first, start)

    if together > 1:
        doubt = code.variable(code.constant(U32.by(together), 0))

        def look(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
            doubt.set(doubt.get() | (words.doubts(me, writes) | words.busy(writes)).mask(U32.by(together)))

        def put(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
            words.put(me, writes, pending)

        def again(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
            doubt.set(doubt.get() | (words.word.get(ShadowPlane.WRITER, together) ^ (me | INITIALISED)))

        def skim(words: WordVector, me: Value, lane: Value, first: Value, start: Value) -> None:
            doubt.set(doubt.get() | words.stirred().mask(U32.by(together)))

        if writes:
            all_words(look)
        else:
            with code.when(code["shared"].equals(0)):
                all_words(skim)
            with code.when(code["shared"].differs(0) | doubt.get().differs(0).any()):
                doubt.set(code.constant(U32.by(together), 0))
                all_words(look)
        with code.when(~doubt.get().differs(0).any() & ~strong):
            all_words(put)
            if writes:
                all_words(again)
                with code.when(doubt.get().differs(0).any()):  # two lanes wrote one word
                    all_words(note)
            code.done()

    if writes:  # all lanes are examined before any of them is put on record
        all_words(examine)
        all_words(note)
    else:
        all_words(both)
    code.done()
    return code.function


def _write_local(module: ir.Module) -> ir.Function:
    """`local(frame, site, offsets, active, size, writes)`: report reads of local memory never written."""
    code = WatchCode(module, "local", ("frame", "site", "offsets", "active", "size", "writes"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    offsets, size = code.record("offsets"), code["size"]
    local_bytes = observed.get(BlockWatch.local_bytes)
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        start = offsets.get(lane * 8)
        with code.when((start.to(U64) < local_bytes.to(U64)) & ~(local_bytes < start + size)):
            thread = warp.get(WarpFrame.index) * LANES + lane
            shadow = Record(
                code, observed.get(BlockWatch.local_shadow) + thread * (local_bytes >> 2)
            ).pointer(0, U8)
            narrow = size < 4
            bytes_touched = ((code.number(1) << size) - 1) << (start & 3)
            mask = narrow.select(bytes_touched, code.number(WHOLE)).to(U8)
            known = code.variable(code.constant(U8, 0))
            known.set(code.constant(U8, 0))
            with code.loop((size + 3) >> 2) as number:
                index = (start >> 2) + number
                held = shadow.load(index)
                known.set(known.get() | (held & mask))
                with code.when(code["writes"].differs(0)):
                    shadow.store(held | mask, index)
            with code.when(code["writes"].equals(0) & known.get().equals(0)):
                zero = code.number(0)
                code.suspect(
                    Suspicion.UNINITIALISED_LOCAL, code["frame"], code["site"], lane, start, zero, zero
                )
    code.done()
    return code.function


def write_shadow(module: ir.Module) -> None:
    """Write all functions of shadow memory into a module."""
    _write_ordered(module)
    _write_finished(module)
    for writes in (False, True):
        _write_examine(module, writes)
        _write_note(module, writes)
        _write_tiled(module, writes)
        for size in (1, 2):
            _write_whole(module, size, writes)
        for together in (1, 4):
            _write_lanes(module, writes, together)
    _write_local(module)
