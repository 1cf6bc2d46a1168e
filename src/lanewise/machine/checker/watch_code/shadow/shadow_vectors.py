"""Accesses that no unordered access came before: a few vector instructions for several cells.

A cell stands for 1, 2 or 4 bytes of memory: as many as the smallest access to that memory has, so that no
access ends inside a cell. Cells that may be wrong are examined one by one (`shadow_memory.py`), by functions
that these call. All of this is written as LLVM IR, since most of the time of a check is spent here.
"""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Function, signature_only
from lanewise.jit.simd import Value
from lanewise.machine.checker import records
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    Access,
    BlockWatch,
    Flag,
    LastRequest,
    ShadowPlane,
    WarpClock,
)
from lanewise.machine.checker.watch_code.proxy.completion import copies_are_known
from lanewise.machine.checker.watch_code.shadow.shadow_memory import (
    examine_read,
    examine_write,
    forget_ordered_readers,
    note_write,
)
from lanewise.machine.checker.watch_code.watch_module import (
    LANES,
    WatchCode,
    WatchModule,
    lane_is_in,
    wide,
    written,
)
from lanewise.machine.codegen.function_code import U8, U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL


class Cell:
    """The code that reads and writes one cell of shadow memory, in all planes."""

    def __init__(self, code: WatchCode, address: Value, stride: Value) -> None:
        self.code, self.address, self.stride = code, address, stride

    def plane(self, plane: int) -> Record:
        """Return the cell in one plane as a record."""
        return Record(self.code, self.address + self.stride * plane)

    def plane_at(self, plane: Value) -> Record:
        """Return the cell in a plane that is not known before."""
        return Record(self.code, self.address + self.stride * plane)

    def get(self, plane: int, lanes: int = 1) -> Value:
        """Load the cell from a plane, or a vector that begins with it."""
        return self.plane(plane).get(0, U32, lanes)

    def set(self, plane: int, value: Value) -> None:
        """Store the cell, or a vector that begins with it, in a plane."""
        self.plane(plane).pointer(0, U32).store(value)


def lane_of(who: Value) -> Value:
    """Return the lane of an access."""
    return who & (LANES - 1)


def lanes_of(who: Value) -> Value:
    """Return the lanes that made an access, as bits: all of them for an instruction of the whole warp."""
    ones = who ^ who
    collective = (who & records.COLLECTIVE).differs(0)
    return collective.select(ones - 1, (ones + 1) << lane_of(who))


class View:
    """The epochs that the running warp compares with, for shared or for other memory."""

    def __init__(self, observed: Record, shared: Value) -> None:
        self.shared, self.observed = shared, observed
        self.floor = shared.select(
            observed.get(BlockWatch.shared_floor), observed.get(BlockWatch.global_floor)
        ).to(U32)
        self.start = shared.select(observed.get(BlockWatch.start), 0).to(U32)
        self.now = observed.get(BlockWatch.epoch).to(U32)
        self.own_after = observed.get(BlockWatch.own_after).to(U32)
        clock = observed.at(BlockWatch.clock)
        index = clock.get(WarpClock.index)
        #: The running warp as a bit among those of its block.
        self.warp_bit = observed.code.constant(U32, 1) << index.to(U32)
        self.synced, self.converged = (
            clock.get(field).to(U32) for field in (WarpClock.synced, WarpClock.converged)
        )
        #: Whether the kernel has asynchronous operations.
        module = observed.code.module
        assert isinstance(module, WatchModule)
        self.follows = observed.code.constant(BOOL, int(module.follows_async))
        #: Whether some lanes of the warp have synchronised, or met, since all of them last synchronised.
        synced = clock.get(WarpClock.synced)
        self.partly_synced = (clock.get(WarpClock.partly_synced) > synced) | (
            clock.get(WarpClock.partly_met) > synced
        )


class CellVector:
    """Neighbouring cells of shadow memory that an access touches, processed as one vector."""

    def __init__(self, code: WatchCode, view: View, cell: Cell, count: int) -> None:
        self.code, self.cell, self.count, self.view = code, cell, count, view
        self.floor, self.start, self.now, self.own_after, self.synced = (
            self.spread(value) for value in (view.floor, view.start, view.now, view.own_after, view.synced)
        )

    def spread(self, value: Value) -> Value:
        """Return a vector with a number in every element."""
        return value.spread(self.count) if self.count > 1 else value

    def _get(self, plane: int) -> Value:
        return self.cell.get(plane, self.count)

    def is_own(self, epochs: Value) -> Value:
        """Return which epochs are of the running warp, since it has its turn."""
        return (epochs > self.own_after) & ~(epochs > self.now)

    def _unordered(self, epochs: Value) -> Value:
        """Return which accesses may not be ordered before now, as far as epochs and warps tell."""
        synchronised = (epochs > self.own_after) & ~(epochs > self.synced)
        return (epochs > self.floor) & ~synchronised

    def _written(self) -> Value:
        """Return the epochs of the last writes, without PENDING if these are copies known to be complete.

        One instruction fills neighbouring cells in one epoch: mostly one answer is for all of them.
        """
        held = self._get(ShadowPlane.WRITE_EPOCH)
        first = held.lane(0) if self.count > 1 else held
        known = self.code.variable(held)
        known.set(held)
        proxy = (self._get(ShadowPlane.WRITER) & records.ASYNC_PROXY).differs(0)
        is_copy = (first & records.PENDING).differs(0) & ~(held.differs(self.spread(first)) | proxy).any()
        with self.code.when(is_copy):
            epoch = first & records.EPOCHS
            complete = self.code.run(copies_are_known, watch=self.view.observed, epoch=wide(epoch))
            with self.code.when(complete.differs(0)):
                known.set(self.spread(epoch))
        return known.get()

    def doubts(self, written: Value, me: Value, writes: bool) -> Value:
        """Return which cells have to be examined: somebody's access may not be ordered before this one.

        `written` are the epochs of their last writes.
        """
        writer = self._get(ShadowPlane.WRITER)
        same_lane = lane_of(writer ^ me).equals(0) & ((writer | me) & records.COLLECTIVE).equals(0)
        if writes:  # of several lanes that wrote the same, this one alone is not all
            same_lane = same_lane & (writer & records.SEVERAL).equals(0)
        bad = self._unordered(written) & ~(self.is_own(written) & same_lane)
        if not writes:
            # Others may have accessed the cell by atomics before the last one.
            atomics = (writer & records.ATOMIC).differs(0) & (written > self.floor)
            return bad | atomics | self._other_doubts(written, me, writes)
        read = self._get(ShadowPlane.READ_EPOCH)
        only_me = self._get(ShadowPlane.READ_LANES).equals(lanes_of(me)) & (me & records.COLLECTIVE).equals(0)
        bad = bad | (self._unordered(read) & ~(self.is_own(read) & only_me))
        bad = bad | self._unordered(self._get(ShadowPlane.EARLIER_EPOCH))
        return bad | self._other_doubts(written, me, writes)

    def _other_doubts(self, written: Value, me: Value, writes: bool) -> Value:
        """Return which cells have to be examined although all accesses may be ordered before this one."""
        # What is read has to be written before; shared memory has been, since the block began.
        unwritten = written < self.start
        if not writes:
            return unwritten | ((me & records.CONSTANT_READ).differs(0) & written.differs(0))
        constant = (self._get(ShadowPlane.READER) & records.CONSTANT_READ).differs(0)
        # Asynchronous reads, if the kernel has any; else a plane that is at hand.
        plane = self.view.follows.select(self.code.number(ShadowPlane.ASYNC_READ_EPOCH), 0)
        read = self.cell.plane_at(plane).get(0, U32, self.count)
        # No barrier says that they are complete.
        flying = ~(read < self.start) & read.differs(0) & self.spread(self.view.follows)
        return constant | flying | (unwritten & (me & records.ATOMIC).differs(0))

    def suspicious(self, me: Value, writes: bool) -> Value:
        """Return whether these cells have to be examined one by one.

        Mostly all accesses are ordered before now, as epochs tell alone: then little else is looked at.
        """
        written = self._written()
        late = written > self.floor
        if writes:
            for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH):
                late = late | (self._get(plane) > self.floor)
        is_doubtful = self.code.variable(self.code.constant(BOOL, 0))
        some_late = late.any()
        with self.code.when(some_late):
            is_doubtful.set(self.doubts(written, me, writes).any())
        with self.code.when(~some_late):
            is_doubtful.set(self._other_doubts(written, me, writes).any())
        return is_doubtful.get()

    def written_now(self) -> Value:
        """Return whether a cell was written in this epoch, perhaps by another lane of this instruction."""
        return (self._get(ShadowPlane.WRITE_EPOCH) & records.EPOCHS).equals(self.now).any()

    def _note_warp(self) -> None:
        """Put on record that the running warp has read the cells since they were written."""
        first = self._get(ShadowPlane.FIRST_READ)
        begins = ~(first > (self._get(ShadowPlane.WRITE_EPOCH) & records.EPOCHS))
        self.cell.set(ShadowPlane.FIRST_READ, begins.select(self.now, first))
        warps = begins.select(self.now ^ self.now, self._get(ShadowPlane.READ_WARPS))
        self.cell.set(ShadowPlane.READ_WARPS, warps | self.spread(self.view.warp_bit))

    def note(self, me: Value, writes: bool, pending: Value) -> None:
        """Put an access on record.

        Earlier readers that are not ordered before this one are kept: lanes of this warp as bits, and one
        reader of another warp.
        """
        if writes:
            self.cell.set(ShadowPlane.WRITE_EPOCH, self.now | self.spread(pending))
            self.cell.set(ShadowPlane.WRITER, me)
            return
        read = self._get(ShadowPlane.READ_EPOCH)
        # Mostly the cells were not read since all accesses to them were ordered before now.
        others = self.code.variable(self.now ^ self.now)
        others.set(self.now ^ self.now)
        with self.code.when((read > self.floor).any()):
            others.set(self._keep_readers(read, me))
        with self.code.when(self.view.shared):
            self._note_warp()
        self.cell.set(ShadowPlane.READ_LANES, lanes_of(me) | others.get())
        self.cell.set(ShadowPlane.READ_EPOCH, self.now | self.spread(pending))
        self.cell.set(ShadowPlane.READER, me)

    def _keep_readers(self, read: Value, me: Value) -> Value:
        """Put the last reader on record as an earlier one where it may not be ordered before this read.

        Return the lanes of the running warp that are not.
        """
        held, reader = self._get(ShadowPlane.EARLIER_EPOCH), self._get(ShadowPlane.READER)
        unordered, own = self._unordered(read), self.is_own(read)
        moves = unordered & ~(own & lane_of(reader ^ me).equals(0)) & ~self._unordered(held)
        with self.code.when(moves.any()):
            earlier = self._get(ShadowPlane.EARLIER_READER)
            self.cell.set(ShadowPlane.EARLIER_READER, moves.select(reader, earlier))
            self.cell.set(ShadowPlane.EARLIER_EPOCH, moves.select(read, held))
        # Those that have met since are ordered on hardware, unlike this lane: they are not put together.
        apart = unordered & own & (read > self.spread(self.view.converged))
        return apart.select(self._get(ShadowPlane.READ_LANES), 0)


def _write_tiled(code: WatchCode, writes: bool) -> None:
    """Write the examination of an access that fills a range of cells exactly."""
    access, count = code.record("access"), CELLS_TOGETHER
    view = View(access.at(Access.watch), access.get(Access.shared).differs(0))
    who, pending = access.get(Access.who).to(U32), access.get(Access.pending).to(U32)
    if not writes:  # which readers may be forgotten depends on the lane
        with code.when(view.partly_synced):
            code.done(False)
    first = (access.get(Access.lowest) >> access.get(Access.shift)) << 2
    plane, stride = access.get(Access.plane) + first, access.get(Access.stride)
    request = code.record("request")
    lane_of_cell = request.address + LastRequest.lane_of_cell
    vectors = request.get(LastRequest.tiled_cells) >> (count.bit_length() - 1)

    def cells_at(index: Value) -> tuple[CellVector, Value]:
        lanes = Record(code, lane_of_cell + index * count).get(0, U8, count).to(U32.by(count))
        cells = CellVector(code, view, Cell(code, plane + index * (4 * count), stride), count)
        return cells, lanes | who.spread(count)

    with code.loop(vectors) as index:
        cells, me = cells_at(index)
        with code.when(cells.suspicious(me, writes)):
            code.done(False)
    with code.loop(vectors) as index:
        cells, me = cells_at(index)
        cells.note(me, writes, pending)
    code.done(True)


@written(lambda code: _write_tiled(code, writes=False))
def tiled_read(access: Access, request: LastRequest) -> bool:
    """Put a read of a whole range of cells on record; false if something is suspicious, and nothing was done.

    `request` has the number of cells and the lane of each.
    """
    signature_only()


@written(lambda code: _write_tiled(code, writes=True))
def tiled_write(access: Access, request: LastRequest) -> bool:
    """Put a write of a whole range of cells on record; false if something is suspicious."""
    signature_only()


class _Lanes:
    """An access examined lane by lane, some cells at a time."""

    def __init__(self, code: WatchCode, writes: bool, together: int) -> None:
        self.code, self.writes, self.together = code, writes, together
        self.access = access = code.record("access")
        self.view = View(access.at(Access.watch), access.get(Access.shared).differs(0))
        self.offsets = Record(code, access.address + Access.offsets)
        self.who, self.active, self.pending = (
            access.get(field).to(U32) for field in (Access.who, Access.active, Access.pending)
        )
        self.shift, self.size = access.get(Access.shift), access.get(Access.size)
        self.plane, self.stride = access.get(Access.plane), access.get(Access.stride)
        self.by_word = (access.get(Access.flags) & Flag.BY_WORD).differs(0)
        self.cells_of_a_word = code.number(2) - self.shift  # as a power of two
        self.strong = (self.who & (records.STRONG | records.STRONG_IN_BLOCK)).differs(0)

    def accessor(self, lane: Value, number: Value) -> Value:
        """Return the access to a cell in one word, given its number in the bytes of a lane."""
        if not self.writes:
            return self.who | lane.to(U32)
        # stmatrix: a word of a row comes from the lane that holds it, not from that of its address.
        holder = ((lane & 7) << 2) + (number >> self.cells_of_a_word)
        return self.who | self.by_word.select(holder, lane).to(U32)

    def accessors(self, lane: Value, first: Value) -> Value:
        """Return the same for neighbouring cells, as a vector."""
        code, together, me = self.code, self.together, self.accessor(lane, first)
        if together == 1:
            return me
        counting = ir.Constant(ir.VectorType(ir.IntType(32), together), list(range(together)))
        words = Value(code, U32.by(together), counting) >> self.cells_of_a_word.to(U32).spread(together)
        return me.spread(together) + (self.by_word.mask(U32).spread(together) & words)

    def one_by_one(self, function: Function[..., None], lane: Value, first: Value, start: Value) -> None:
        """Write a call of a function for each of the cells."""
        with self.code.loop(self.together) as step:
            number = first + step
            offset = start + (number << self.shift)
            me = wide(self.accessor(lane, number))
            self.code.run(function, access=self.access, me=me, offset=offset)

    def all_cells(self, action: Callable[[CellVector, Value, Value, Value, Value], None]) -> None:
        """Write an action for all cells of all lanes."""
        code, together = self.code, self.together
        # Up to the last active lane: often only half of a warp is active.
        lanes = LANES - wide(code.intrinsic("ctlz", U32, [self.active, code.constant(BOOL, 0)]))
        with code.loop(lanes) as lane, code.when(lane_is_in(lane, self.active)):
            start = self.offsets.get(lane * 8)
            with code.loop((self.size >> self.shift) >> (together.bit_length() - 1)) as index:
                first = index * together
                address = self.plane + (((start >> self.shift) + first) << 2)
                cells = CellVector(code, self.view, Cell(code, address, self.stride), together)
                action(cells, self.accessors(lane, first), lane, first, start)

    def examine(self, cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        """Write that cells are examined one by one if they are suspicious."""
        with self.code.when(cells.suspicious(me, self.writes)):
            self.one_by_one(examine_write if self.writes else examine_read, lane, first, start)

    def note(self, cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        """Write that the access is put on record."""
        if not self.writes:
            with self.code.when(self.view.partly_synced):
                self.one_by_one(forget_ordered_readers, lane, first, start)
            cells.note(me, False, self.pending)
            return
        slow = self.strong | cells.written_now()
        with self.code.when(slow):
            self.one_by_one(note_write, lane, first, start)
        with self.code.when(~slow):
            cells.note(me, True, self.pending)

    def both(self, cells: CellVector, me: Value, lane: Value, first: Value, start: Value) -> None:
        """Write both."""
        self.examine(cells, me, lane, first, start)
        self.note(cells, me, lane, first, start)

    def write(self) -> None:
        """Write the function: all lanes of a write are examined before any of them is put on record."""
        for action in (self.examine, self.note) if self.writes else (self.both,):
            self.all_cells(action)
        self.code.done()


def _by_lanes(name: str, writes: bool, together: int) -> Function[[Access], None]:
    """Return a function that examines an access lane by lane, some cells at a time, and puts it on record.

    Its loops need all registers, so it is not inlined.
    """

    @written(lambda code: _Lanes(code, writes, together).write(), name=name, noinline=True)
    def by_lanes(access: Access) -> None:
        signature_only()

    return by_lanes


lanes_read_1, lanes_read_4 = (_by_lanes(f"lanes_read_{cells}", False, cells) for cells in (1, 4))
lanes_write_1, lanes_write_4 = (_by_lanes(f"lanes_write_{cells}", True, cells) for cells in (1, 4))
