"""Compiled code of shadow memory: the last write and the last reads of each cell of 1, 2 or 4 bytes.

An access that no unordered access came before costs a few vector instructions. All others are examined cell
by cell, and what looks wrong is reported to Python, where `triage.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    MOST_ELEMENTS,
    BlockWatch,
    Flag,
    ShadowPlane,
    SiteRow,
    StoredElement,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import follows
from lanewise.machine.checker.watch_code.bank_model import lane_is_in
from lanewise.machine.checker.watch_code.happens_before import ORDERED, WEAKLY_ORDERED
from lanewise.machine.checker.watch_code.shadow_cells import Cell, CellVector, View, lane_of, lanes_of
from lanewise.machine.checker.watch_code.vector_clocks import (
    LANES,
    WatchCode,
    lane_seen,
    least,
    most,
    running_lane_clocks,
    wide,
)
from lanewise.machine.codegen.function_code import U8, U16, U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: The arguments of functions that handle one cell. `offsets` are those of all lanes' accesses, `offset` is
#: that of the cell, and `host` the address of its bytes.
_CELL = ("frame", "observed", "cell", "stride", "shift", "who", "site", "offsets", "offset", "origin", "host")


class _CellCode(WatchCode):
    """A function that handles one cell which a lane accesses."""

    def __init__(self, module: ir.Module, name: str, *further: str) -> None:
        super().__init__(module, name, (*_CELL, *further))
        self.observed = self.record("observed")
        self.cell = Cell(self, self["cell"], self["stride"])
        self.me = self["who"].to(U32)

    def tell(self, kind: int, when: Value, who: Value) -> None:
        """Report a suspicion about this cell and another access to it."""
        lane, address = wide(lane_of(self.me)), self["origin"] + self["offset"]
        self.suspect(kind, self["frame"], self["site"], lane, address, when, wide(who))

    def tell_unordered(self, answer: Value, kind: int, weak_kind: int, when: Value, who: Value) -> None:
        """Report that an earlier access is not ordered before, or only by what gives no guarantee."""
        with self.when(answer.equals(WEAKLY_ORDERED)):
            self.tell(weak_kind, when, who)
        with self.when(answer.differs(WEAKLY_ORDERED)):
            self.tell(kind, when, who)

    def stored(self, lane: Value) -> Value:
        """Return the bits that a lane of this store writes to the cell."""
        byte = self["offset"] - self.record("offsets").get(lane * 8)
        return self.call_number(
            self.module.functions["stored"], self["frame"], self["site"], lane, byte, self["shift"]
        )

    def writes_here(self, lane: Value) -> Value:
        """Return whether a lane writes the cell by this instruction, and not in an earlier round of a loop.

        Where the values are not known, neither is the lane: then it is taken for one that does.
        """
        byte = self["offset"] - self.record("offsets").get(lane * 8)
        covered = byte.to(U64) < self._row.get(SiteRow.access_size).to(U64)
        return covered | self.stored_count().equals(0) | self.is_by_word()

    def stored_count(self) -> Value:
        """Return how many elements decide on what a lane writes, 0: that is not known.

        The count is positive if they are what is written: then it is a plain store.
        """
        return self._row.get(SiteRow.stored_count)

    def is_by_word(self) -> Value:
        """Return whether a lane may write a cell twice: the words of two rows of stmatrix that it holds."""
        return (self._row.get(SiteRow.flags) & Flag.BY_WORD).differs(0)

    @property
    def _row(self) -> Record:
        sites = self.observed.at(BlockWatch.watch).get(WatchRecord.sites)
        return Record(self, sites + self["site"] * SiteRow.BYTES)

    def is_padding(self) -> Value:
        """Count the cell and return true if it lies where triage has seen padding of a structure before."""
        row, start = self._row, self.record("offsets").get(wide(lane_of(self.me)) * 8)
        byte = (self["offset"] - start) & 63

        def is_among(bytes: int) -> Value:
            return ((row.get(bytes).to(U64) >> byte.to(U64)) & 1).differs(0)

        known = self.variable(is_among(SiteRow.dropped_bytes))
        with self.when(~known.get() & is_among(SiteRow.copied_bytes)):
            block, size = row.get(SiteRow.padded_block), row.get(SiteRow.access_size)
            first, floor = start & (0 - block), self.observed.get(BlockWatch.start) - 1
            end = least(most(first + block, start + size), self.observed.get(BlockWatch.shared_bytes))
            with self.loop(end - first) as number:
                cells = ((first + number) >> self["shift"]) - (self["offset"] >> self["shift"])
                neighbour = Cell(self, self["cell"] + (cells << 2), self["stride"])
                written = wide(neighbour.get(ShadowPlane.WRITE_EPOCH) & records.EPOCHS)
                known.set(known.get() | (floor < written))
        count = SiteRow.counts + 8 * Suspicion.UNINITIALISED
        row.set(count, row.get(count) + known.get().to(U64).to(i64))
        return known.get()


def _write_stored(module: ir.Module) -> ir.Function:
    """`stored(frame, site, lane, byte, shift)`: the bits of a cell, from a byte of a lane's store on."""
    code = WatchCode(module, "stored", ("frame", "site", "lane", "byte", "shift"))
    watch = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch).at(BlockWatch.watch)
    row = Record(code, watch.get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    size = Record(code, row.get(SiteRow.stored)).get(StoredElement.bytes)
    index = Value(code, i64, code.builder.sdiv(code["byte"].handle, size.handle))
    element = Record(code, row.get(SiteRow.stored) + index * StoredElement.BYTES)
    bits = code.variable(element.get(StoredElement.constant))
    register = element.get(StoredElement.register)
    for type in (U8, U16, U32, U64):
        with code.when(~(register < 0) & element.get(StoredElement.register_bits).equals(type.bits)):
            held = Record(code, code["frame"] + register).pointer(0, type).load(code["lane"])
            bits.set(held.to(U64).to(i64))
    within = code["byte"] - index * size
    moved = (bits.get().to(U64) >> (within * 8).to(U64)).to(i64)
    cell_bits = code.number(8) << code["shift"]
    code.done(moved & ((code.number(1) << cell_bits) - 1))
    return code.function


def _write_content(module: ir.Module) -> ir.Function:
    """`content(host, shift)`: the bits that memory holds where a cell is."""
    code = WatchCode(module, "content", ("host", "shift"))
    for shift, type in enumerate((U8, U16, U32)):
        with code.when(code["shift"].equals(shift)):
            code.done(Record(code, code["host"]).get(0, type).to(U64).to(i64))
    code.done(0)
    return code.function


def _write_examine(module: ir.Module, writes: bool) -> ir.Function:
    """`examine_read/write(…)`: report unordered accesses to a cell that came before this one."""
    code = _CellCode(module, f"examine_{'write' if writes else 'read'}", "pending", "shared")
    observed, cell, me = code.observed, code.cell, code.me
    ordered = module.functions["ordered"]
    shared = code["shared"].differs(0)
    floor = shared.select(observed.get(BlockWatch.start) - 1, 0)
    stored = cell.get(ShadowPlane.WRITE_EPOCH)
    epoch, writer = wide(stored & records.EPOCHS), cell.get(ShadowPlane.WRITER)
    epoch_of_write = epoch

    needs_content = (me & records.ATOMIC).differs(0) if writes else code.constant(BOOL, 1)
    with code.when(shared & needs_content & ~(floor < epoch)):
        with code.when(code.is_padding()):
            code.done()
        code.tell(Suspicion.UNINITIALISED, code.number(0), code.constant(U32, 0))
        code.done()
    reader = cell.get(ShadowPlane.READER)
    constant, other, since = (
        (reader, reader, cell.get(ShadowPlane.READ_EPOCH)) if writes else (me, writer, stored)
    )
    written = stored.differs(0) if not writes else code.constant(BOOL, 1)
    with code.when((constant & records.CONSTANT_READ).differs(0) & written & ~shared):
        code.tell(Suspicion.NOT_CONSTANT, wide(since & records.EPOCHS), other)
        code.done()
    with code.when(floor < epoch):
        pending = (stored & records.PENDING).differs(0) & (writer & me & records.ATOMIC).equals(0)
        told = code.variable(code.constant(BOOL, 0))
        with code.when(pending):
            finished = code.call_number(
                module.functions["finished"], observed.address, epoch, wide(writer), wide(me)
            )
            with code.when(finished.equals(0)):
                code.tell(Suspicion.UNFINISHED_COPY, epoch, writer)
                told.set(code.constant(BOOL, 1))
        # An asynchronous operation that is known to be complete is known to have happened before.
        with code.when(~told.get() & (writer & records.ASYNC_PROXY).equals(0)):
            lanes = lanes_of(writer)
            earlier = wide(writer) if writes else wide(writer) | records.READ_OF_WRITTEN
            answer = code.call_number(ordered, observed.address, epoch, earlier, wide(lanes), wide(me))
            with code.when(answer.differs(ORDERED)):
                if writes:  # a store of the value that is there changes nothing
                    with code.when(code.stored_count() > 0):
                        there = code.call_number(module.functions["content"], code["host"], code["shift"])
                        with code.when(code.stored(wide(lane_of(me))).equals(there)):
                            code.done()
                code.tell_unordered(
                    answer, Suspicion.AFTER_WRITE, Suspicion.WEAKLY_AFTER_WRITE, epoch, writer
                )
                code.done()
    # An atomic before the last one: this thread may have made the last, and cannot know of the others. Or a
    # weak write that a strong one replaced: what does not race with the strong one may race with it.
    earlier = cell.get(ShadowPlane.EARLIER_READER)
    epoch = wide(cell.get(ShadowPlane.EARLIER_EPOCH) & records.EPOCHS)
    atomic, replaced = ((earlier & flag).differs(0) for flag in (records.ATOMIC, records.REPLACED_WRITE))
    with code.when((floor < epoch) & (atomic | replaced)):
        plain = earlier & ~code.constant(U32, records.REPLACED_WRITE)
        answer = code.call_number(
            ordered, observed.address, epoch, wide(plain), wide(lanes_of(plain)), wide(me)
        )
        with code.when(answer.differs(ORDERED)):
            with code.when(replaced):
                code.tell_unordered(answer, Suspicion.AFTER_WRITE, Suspicion.WEAKLY_AFTER_WRITE, epoch, plain)
                code.done()
            code.tell(Suspicion.WEAKLY_AFTER_WRITE, epoch, plain)
            code.done()
    if writes:
        with code.when(follows(observed)):
            for when, who in (
                (ShadowPlane.ASYNC_EARLIER_EPOCH, ShadowPlane.ASYNC_EARLIER_READER),
                (ShadowPlane.ASYNC_READ_EPOCH, ShadowPlane.ASYNC_READER),
            ):
                read = wide(cell.get(when))
                finished = code.call_number(
                    module.functions["async_finished"], observed.address, read, wide(me), 1
                )
                with code.when((floor < read) & finished.equals(0)):
                    code.tell(Suspicion.UNFINISHED_READ, read, cell.get(who))
                    code.done()
        # The earlier reader first: among lanes of one warp, the last one may be this lane.
        for when, who, several in (
            (ShadowPlane.EARLIER_EPOCH, ShadowPlane.EARLIER_READER, False),
            (ShadowPlane.READ_EPOCH, ShadowPlane.READER, True),
        ):
            read, reader = cell.get(when), cell.get(who)
            epoch = wide(read & records.EPOCHS)
            lanes = cell.get(ShadowPlane.READ_LANES) if several else lanes_of(reader)
            with code.when((floor < epoch) & (read & records.PENDING).differs(0)):
                finished = code.call_number(
                    module.functions["finished"], observed.address, epoch, wide(reader), wide(me)
                )
                with code.when(finished.equals(0)):
                    code.tell(Suspicion.UNFINISHED_COPY, epoch, reader)
                    code.done()
            no_reader = records.ATOMIC if several else records.ATOMIC | records.REPLACED_WRITE
            with code.when((floor < epoch) & (reader & no_reader).equals(0)):
                answer = code.call_number(
                    ordered, observed.address, epoch, wide(reader), wide(lanes), wide(me)
                )
                with code.when(answer.differs(ORDERED)):
                    others = cell.get(ShadowPlane.READ_EPOCH).equals(read) & (
                        cell.get(ShadowPlane.READ_LANES) & ~lanes_of(reader)
                    ).differs(0)
                    named = reader | others.select(code.constant(U32, records.SEVERAL), 0)
                    code.tell_unordered(
                        answer, Suspicion.AFTER_READ, Suspicion.WEAKLY_AFTER_READ, epoch, named
                    )
                    code.done()
    if writes:
        # Warps that read the cell between the first and the last reader: each of them did so in the first
        # epoch of a read or later, and is not ordered before if it was last seen before that.
        weak = (me & (records.STRONG | records.STRONG_IN_BLOCK)).equals(0)
        # Warps of other blocks of a cluster are not told apart from those of the own one.
        alone = observed.get(BlockWatch.cluster_blocks).equals(1)
        with code.when(shared & weak & alone):
            read_since = wide(cell.get(ShadowPlane.FIRST_READ))
            clock = observed.at(BlockWatch.clock)
            known = (epoch_of_write < read_since) & ~(read_since < observed.get(BlockWatch.start))
            with code.when(known), code.loop(observed.get(BlockWatch.warps)) as index:
                reads = ((cell.get(ShadowPlane.READ_WARPS) >> index.to(U32)) & 1).differs(0)
                seen = wide(clock.pointer(WarpClock.seen, U32).load(index))
                unknown = (seen < read_since) & (clock.get(WarpClock.acquired) < read_since)
                with code.when(reads & unknown & index.differs(clock.get(WarpClock.index))):
                    theirs = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
                    code.tell(Suspicion.AFTER_READ, theirs.get(WarpClock.last), cell.get(ShadowPlane.READER))
                    code.done()
    code.done()
    return code.function


def _write_note(module: ir.Module, writes: bool) -> ir.Function:
    """`note_read/write(…)`: put an access to a cell on record, which other lanes may have accessed too."""
    code = _CellCode(module, f"note_{'write' if writes else 'read'}", "pending", "shared")
    observed, cell, me = code.observed, code.cell, code.me
    view = View(observed, code["shared"].differs(0))
    now = view.now
    if writes:
        stored, earlier = cell.get(ShadowPlane.WRITE_EPOCH), cell.get(ShadowPlane.WRITER)
        same_site = (earlier >> records.SITE_SHIFT).equals(me >> records.SITE_SHIFT)
        other_lane = lane_of(earlier).differs(lane_of(me))
        strong = (me & (records.STRONG | records.STRONG_IN_BLOCK)).differs(0)
        several = code.variable(code.constant(U32, 0))
        # Another lane of this instruction has written the cell, or another row: do they write the same?
        another_row = other_lane | code.is_by_word()
        here = code.writes_here(wide(lane_of(earlier)))
        with code.when((stored & records.EPOCHS).equals(now) & same_site & another_row & here & ~strong):
            several.set(code.constant(U32, records.SEVERAL))
            equal = code.variable(code.constant(BOOL, 0))
            equal.set(code.constant(BOOL, 0))
            with code.when(code.stored_count().differs(0)):
                mine, theirs = (code.stored(wide(lane_of(each))) for each in (me, earlier))
                equal.set(mine.equals(theirs))
            with code.when(~equal.get()):
                code.tell(Suspicion.SAME_ADDRESS, wide(now), earlier)
        # Of several lanes the first is named.
        first = several.get().differs(0).select((me & ~(LANES - 1)) | lane_of(earlier), me)
        # Of atomics, one by another lane is kept beside the last: a plain access may race with it.
        another = ((me & earlier & records.ATOMIC).differs(0)) & (
            other_lane | ~CellVector(code, view, cell, 1).is_own(stored)
        )
        # So is a weak write that a strong one replaces: strong accesses of others may race with it.
        held = cell.get(ShadowPlane.EARLIER_READER) & records.REPLACED_WRITE
        held_on = held.differs(0) & (cell.get(ShadowPlane.EARLIER_EPOCH) > view.floor)
        not_weak = records.STRONG | records.STRONG_IN_BLOCK | records.ASYNC_PROXY
        weak_before = (earlier & not_weak).equals(0) & (stored > view.floor)
        replaces = strong & weak_before & (stored & records.PENDING).equals(0)
        with code.when((another & ~held_on) | replaces):
            cell.set(ShadowPlane.EARLIER_EPOCH, stored & records.EPOCHS)
            mark = replaces.select(code.constant(U32, records.REPLACED_WRITE), 0)
            cell.set(ShadowPlane.EARLIER_READER, earlier | mark)
        cell.set(ShadowPlane.WRITER, first | several.get())
        cell.set(ShadowPlane.WRITE_EPOCH, now | code["pending"].to(U32))
        code.done()
        return code.function
    # Lanes that read before and are ordered before this lane need not be kept: what comes after this read
    # comes after theirs.
    read = cell.get(ShadowPlane.READ_EPOCH)
    with code.when((read > view.own_after) & (me & records.COLLECTIVE).equals(0)):
        seen = lane_seen(code, running_lane_clocks(observed), wide(lane_of(me))).get(0, U32, LANES)
        ordered = ~(seen < read.spread(LANES))
        bits = Value(code, U32, code.builder.bitcast(ordered.handle, ir.IntType(32)))
        cell.set(ShadowPlane.READ_LANES, cell.get(ShadowPlane.READ_LANES) & ~bits)
    CellVector(code, view, cell, 1).note(me, False, code["pending"].to(U32))
    code.done()
    return code.function


def _write_tiled(module: ir.Module, writes: bool) -> ir.Function:
    """`tiled_read/write(…)`: an access that fills a range of cells exactly; 1 if nothing is suspicious.

    `lanes` is the address of a list with the lane of each cell.
    """
    name = f"tiled_{'write' if writes else 'read'}"
    arguments = ("observed", "cell", "stride", "who", "shared", "pending", "cells", "lanes")
    code = WatchCode(module, name, arguments)
    view = View(code.record("observed"), code["shared"].differs(0))
    who, pending = code["who"].to(U32), code["pending"].to(U32)
    count = CELLS_TOGETHER
    if not writes:  # which readers may be forgotten depends on the lane
        with code.when(view.partly_synced):
            code.done(0)

    def cells_at(index: Value) -> tuple[CellVector, Value]:
        lanes = Record(code, code["lanes"] + index * count).get(0, U8, count).to(U32.by(count))
        cells = CellVector(code, view, Cell(code, code["cell"] + index * (4 * count), code["stride"]), count)
        return cells, lanes | who.spread(count)

    vectors = code["cells"] >> (count.bit_length() - 1)
    with code.loop(vectors) as index:
        cells, me = cells_at(index)
        with code.when(cells.suspicious(me, writes)):
            code.done(0)
    with code.loop(vectors) as index:
        cells, me = cells_at(index)
        cells.note(me, writes, pending)
    code.done(1)
    return code.function


def _write_lanes(module: ir.Module, writes: bool, together: int) -> ir.Function:
    """`lanes_read/write_<together>(…)`: an access examined lane by lane, `together` cells at a time."""
    verb = "write" if writes else "read"
    code = WatchCode(
        module,
        f"lanes_{verb}_{together}",
        ("frame", "observed", "offsets", "active", "plane", "stride", "shift", "size", "who", "site",
         "shared", "origin", "host", "pending", "by_word"),
    )  # fmt: skip
    code.function.attributes.add("noinline")  # its loops need all registers
    observed, offsets, active = code.record("observed"), code.record("offsets"), code["active"].to(U32)
    view = View(observed, code["shared"].differs(0))
    who, pending, shift = code["who"].to(U32), code["pending"].to(U32), code["shift"]
    strong = (who & (records.STRONG | records.STRONG_IN_BLOCK)).differs(0)
    by_word = code["by_word"].differs(0)
    cells_of_a_word = code.number(2) - shift  # as a power of two

    def mine(lane: Value, number: Value) -> Value:
        if not writes:
            return who | lane.to(U32)
        # stmatrix: a word of a row comes from the lane that holds it, not from that of its address.
        holder = ((lane & 7) << 2) + (number >> cells_of_a_word)
        return who | by_word.select(holder, lane).to(U32)

    def one_by_one(function: ir.Operand, lane: Value, first: Value, start: Value) -> None:
        with code.loop(together) as step:
            number = first + step
            offset = start + (number << shift)
            code.call_number(
                function, code["frame"], observed.address, code["plane"] + ((offset >> shift) << 2),
                code["stride"], shift, wide(mine(lane, number)), code["site"], offsets.address, offset,
                code["origin"], code["host"] + offset, wide(pending), code["shared"],
            )  # fmt: skip

    # Up to the last active lane: often only half of a warp is active.
    lanes = LANES - wide(code.intrinsic("ctlz", U32, [active, code.constant(BOOL, 0)]))

    def all_cells(action: Callable[[CellVector, Value, Value, Value, Value], None]) -> None:
        with code.loop(lanes) as lane, code.when(lane_is_in(lane, active)):
            start = offsets.get(lane * 8)
            with code.loop((code["size"] >> shift) >> (together.bit_length() - 1)) as index:
                first = index * together
                me = mine(lane, first)
                if together > 1:
                    counting = ir.Constant(ir.VectorType(ir.IntType(32), together), list(range(together)))
                    further = Value(code, U32.by(together), counting) >> cells_of_a_word.to(U32).spread(
                        together
                    )
                    me = me.spread(together) + (by_word.mask(U32).spread(together) & further)
                address = code["plane"] + (((start >> shift) + first) << 2)
                cells = CellVector(code, view, Cell(code, address, code["stride"]), together)
                action(cells, me, lane, first, start)

    def examine(cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        with code.when(cells.suspicious(me, writes)):
            one_by_one(module.functions[f"examine_{verb}"], lane, first, start)

    def note(cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        slow = (strong | cells.written_now()) if writes else view.partly_synced
        with code.when(slow):
            one_by_one(module.functions[f"note_{verb}"], lane, first, start)
        with code.when(~slow):
            cells.note(me, writes, pending)

    def both(cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        examine(cells, me, lane, first, start)
        note(cells, me, lane, first, start)

    if writes:  # all lanes are examined before any of them is put on record
        all_cells(examine)
        all_cells(note)
    else:
        all_cells(both)
    code.done()
    return code.function


def _write_local(module: ir.Module) -> ir.Function:
    """`local(frame, site, offsets, active, size, writes)`: which bytes of local memory were ever written.

    Of a read the lanes are put on record for which some byte of an element was not.
    """
    code = WatchCode(module, "local", ("frame", "site", "offsets", "active", "size", "writes"))
    warp = code.record("frame")
    observed = warp.at(WarpFrame.block).at(BlockRecord.watch)
    offsets, size = code.record("offsets"), code["size"]
    row = Record(code, observed.at(BlockWatch.watch).get(WatchRecord.sites) + code["site"] * SiteRow.BYTES)
    element_bytes = row.get(SiteRow.element_bits) >> 3
    unwritten = observed.pointer(BlockWatch.unwritten_lanes, U32)
    unwritten.store(code.constant(U32.by(MOST_ELEMENTS), 0))
    unwritten.store(code.constant(U32, 0), MOST_ELEMENTS)
    padded = most(row.get(SiteRow.alignment), size)
    some = code.variable(code.constant(BOOL, 0))
    local_bytes = observed.get(BlockWatch.local_bytes)
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, code["active"].to(U32))):
        start = offsets.get(lane * 8)
        with code.when((start.to(U64) < local_bytes.to(U64)) & ~(local_bytes < start + size)):
            thread = warp.get(WarpFrame.index) * LANES + lane
            shadow = Record(
                code, observed.get(BlockWatch.local_shadow) + thread * (local_bytes >> 2)
            ).pointer(0, U8)
            some.set(code.constant(BOOL, 0))
            # Four bits of a byte of the shadow stand for a word.
            with code.loop(size) as number:
                byte = start + number
                bit = code.constant(U8, 1) << (byte & 3).to(U8)
                held = shadow.load(byte >> 2)
                with code.when(code["writes"].differs(0)):
                    shadow.store(held | bit, byte >> 2)
                with code.when(code["writes"].equals(0) & (held & bit).equals(0)):
                    element = Value(code, i64, code.builder.sdiv(number.handle, element_bytes.handle))
                    lanes = unwritten.load(element) | (code.constant(U32, 1) << lane.to(U32))
                    unwritten.store(lanes, element)
                    some.set(code.constant(BOOL, 1))
            with code.when(some.get()):
                first = start & (0 - padded)
                end = least(most(first + padded, start + size), local_bytes)
                some.set(code.constant(BOOL, 0))
                with code.loop(end - first) as number:
                    byte = first + number
                    bit = code.constant(U8, 1) << (byte & 3).to(U8)
                    some.set(some.get() | (shadow.load(byte >> 2) & bit).differs(0))
                with code.when(~some.get()):
                    lanes = unwritten.load(MOST_ELEMENTS) | (code.constant(U32, 1) << lane.to(U32))
                    unwritten.store(lanes, MOST_ELEMENTS)
    code.done()
    return code.function


def write_shadow(module: ir.Module) -> None:
    """Write all functions of shadow memory into a module."""
    _write_stored(module)
    _write_content(module)
    for writes in (False, True):
        _write_examine(module, writes)
        _write_note(module, writes)
        _write_tiled(module, writes)
        for together in (1, 4):
            _write_lanes(module, writes, together)
    _write_local(module)
