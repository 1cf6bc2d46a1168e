"""Accesses that no unordered access came before: a few vector instructions for several cells.

Cells that may be wrong are examined one by one (`shadow_memory.py`), by functions that these call. All of
this is written as LLVM IR, since most of the time of a check is spent here.
"""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Function, signature_only
from lanewise.jit.simd import Value
from lanewise.machine.checker import records
from lanewise.machine.checker.records import CELLS_TOGETHER, Flag, LastRequest
from lanewise.machine.checker.watch_code.accesses import Access
from lanewise.machine.checker.watch_code.shadow.shadow_cells import Cell, CellVector, View
from lanewise.machine.checker.watch_code.shadow.shadow_memory import (
    examine_read,
    examine_write,
    forget_ordered_readers,
    note_write,
)
from lanewise.machine.checker.watch_code.watch_module import LANES, WatchCode, lane_is_in, wide, written
from lanewise.machine.codegen.function_code import U8, U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL


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


# Their loops need all registers, so they are not inlined.


@written(lambda code: _Lanes(code, False, 1).write(), noinline=True)
def lanes_read_1(access: Access) -> None:
    """Examine a read lane by lane and put it on record, a cell at a time."""
    signature_only()


@written(lambda code: _Lanes(code, False, 4).write(), noinline=True)
def lanes_read_4(access: Access) -> None:
    """The same, four cells at a time."""
    signature_only()


@written(lambda code: _Lanes(code, True, 1).write(), noinline=True)
def lanes_write_1(access: Access) -> None:
    """Examine a write lane by lane and put it on record, a cell at a time."""
    signature_only()


@written(lambda code: _Lanes(code, True, 4).write(), noinline=True)
def lanes_write_4(access: Access) -> None:
    """The same, four cells at a time."""
    signature_only()
