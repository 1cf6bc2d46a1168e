"""Called when an asynchronous operation is issued: which bytes it reads and writes, and whether it may.

The walkers of boxes and of matrix descriptors, which the machine copies and multiplies with, say which. The
bytes have to lie in the variable or array that the address was computed from; where the instructions do not
tell that, in the shared variable in which the operation begins. Of a matrix descriptor only what can hardly
be meant is reported: rows that lie in one another, a line that is left before its end, and elements of 16
bits that a tensor copy has written as those of the other format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lanewise.isa.matrix_descriptor import FIELD, PIECE_BYTES, Major
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, FIELDS, MAP_BYTES
from lanewise.jit.compiled_functions import signature_only
from lanewise.jit.lane_functions import largest, unsigned_less
from lanewise.jit.record_layout import RecordLayout, field
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.box_walker import walk
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import AsyncFlag, AsyncKind, RunView
from lanewise.machine.checker.records import AllocationShadow, BlockWatch, Flag
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    in_block,
    local_warp,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_accesses import begin_runs, look_at_run
from lanewise.machine.checker.watch_code.proxy.async_clocks import (
    async_clock,
    begin_operation,
    first_of_group,
    operation,
)
from lanewise.machine.checker.watch_code.proxy.phases import (
    check_initialised,
    follow_barrier,
    followed_barrier,
    used_by_copy,
)
from lanewise.machine.checker.watch_code.watch_module import (
    LANES,
    WatchCode,
    cell_at,
    least,
    load_long,
    most,
    written,
)
from lanewise.machine.codegen.function_code import U64, Record
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, Body, each_piece, field_of, swizzled_bits


@inlined
def report_outside(
    kind: int, frame: WarpFrame, row: int, lane: int, low: int, high: int, first: int, end: int
) -> None:
    """Report bytes from `low` to `high` that do not all lie between `first` and `end`."""
    if (low < first) | (high > end):
        # The first byte that lies outside.
        outside = low if low < first else max(low, end)
        suspect(kind, frame, row, lane, outside, first, end)


@compiled()
def hold(
    frame: WarpFrame, row: int, operand: int, lane: int, start: int, low: int, high: int, shared: bool
) -> None:
    """Report bytes that lie elsewhere than they should.

    `operand` is the number of the access in its instruction's record. Addresses of shared memory are offsets
    in a block's own.
    """
    launch = watch_of(frame.block).watch
    bounds = launch.sites[row].operand_bounds
    first, end = bounds[2 * operand], bounds[2 * operand + 1]
    if end != 0:
        report_outside(Suspicion.OUTSIDE, frame, row, lane, low, high, first, end)
        return
    if shared:
        for number in range(launch.extent_count):
            extent = launch.extents[number]
            if (extent.first <= start) & (start < extent.end):
                report_outside(Suspicion.RUNS_OUT, frame, row, lane, low, high, extent.first, extent.end)
                return


class Extent:
    """The first byte that an operation accesses in one memory, and the byte after its last."""

    def __init__(self, code: WatchCode, start: Value) -> None:
        self.code, self.start = code, start
        self.low, self.high = code.variable(start), code.variable(start)
        self.low.set(start)  # in a loop, each round has its own
        self.high.set(start)

    def add(self, first: Value, size: Value | int) -> None:
        """Take in a run of bytes."""
        self.low.set(least(self.low.get(), first))
        self.high.set(most(self.high.get(), first + size))

    def hold(self, row: Value, operand: Value | int, lane: Value, shared: bool) -> None:
        """Write that all bytes have to lie in the memory that the operand belongs to."""
        self.code.run(
            hold,
            frame=self.code.record("frame"),
            row=row,
            operand=operand,
            lane=lane,
            start=self.start,
            low=self.low.get(),
            high=self.high.get(),
            shared=shared,
        )


#: Rows of a group.
GROUP_ROWS = 8
#: The numbers of formats in a tensor map that products tell apart, and where in the map the number stands.
F16_TYPE, BF16_TYPE = ELEMENT_TYPES["f16"].code, ELEMENT_TYPES["bf16"].code
((TYPE_BIT, TYPE_BITS),) = next(field.parts for field in FIELDS if field.name == "type")
TYPE_WORD, TYPE_SHIFT, TYPE_MASK = TYPE_BIT // 64 * 8, TYPE_BIT % 64, (1 << TYPE_BITS) - 1


@inlined
def type_of_map(address: int) -> int:
    """Return the number of a tensor map's type, which lies at an address of the host; 0 of other types."""
    number = (load_long(address + TYPE_WORD) >> TYPE_SHIFT) & TYPE_MASK
    return number if (number == F16_TYPE) | (number == BF16_TYPE) else 0


@inlined
def bytes_of_line(swizzled: int) -> int:
    """Return the bytes of a line of a swizzle, by the bits of addresses that it changes plus one; 0: none."""
    if swizzled > 1 << 6:
        return 1 << 7
    return swizzled - 1 + PIECE_BYTES if swizzled > 1 else 0


@compiled()
def look_at_layout(
    frame: WarpFrame, row: int, lane: int, start: int, stride: int, swizzled: int, by_columns: int,
    groups: int, pieces: int,
) -> None:  # fmt: skip
    """A product reads a matrix of so many groups of eight lines, and pieces of a line."""
    line = bytes_of_line(swizzled)
    if line == 0:
        return
    size = GROUP_ROWS * line
    if (by_columns == 0) & (groups > 1) & (stride != 0) & (stride < size):
        suspect(Suspicion.MATRIX_ROWS_OVERLAP, frame, row, lane, start, stride, size)
    inside = start & (line - 1)
    if (by_columns != 0) & (inside != 0) & (inside + min(pieces * PIECE_BYTES, line) > line):
        suspect(Suspicion.MATRIX_LINE_LEFT, frame, row, lane, start, inside, line)


#: The accesses of a bulk copy by their number in its record.
_TARGET, _SOURCE, _BARRIER = range(3)
#: The multiplier and offset of the FNV-1a hash of 64 bits.
_FNV_PRIME, _FNV_OFFSET = 0x100000001B3, 0xCBF29CE484222325 - (1 << 64)
#: Bytes of a sector, and of a line of shared memory, at whose end TMA cuts a row.
_SECTOR, _LINE = 32, 128


class Issued(RecordLayout):
    """An operation that is issued: what its accesses are put on record with."""

    #: The number of its row in the site table.
    row = field()
    epoch = field()
    #: Its reads and its writes in one word each, and the AsyncFlags of a write.
    who = field()
    writer = field()
    writes = field()


# beginning an operation -------------------------------------------------------------------------------------


@inlined
def word_of(watch: BlockWatch, row: int, lane: int) -> int:
    """Return an access by the asynchronous proxy in one word."""
    return (watch.watch.sites[row].number << records.SITE_SHIFT) | records.ASYNC_PROXY | lane


@inlined
def check_map_in(frame: WarpFrame, row: int, copy: AsyncOperation, shadow: AllocationShadow) -> None:
    """Report a tensor map in an allocation that was changed, if no fences have followed."""
    offset, lane = copy.map - shadow.host, copy.lane
    newest, writer = 0, 0
    for index in range(MAP_BYTES >> shadow.cell_shift):
        place = shadow.plane + (((offset >> shadow.cell_shift) + index) << 2)
        cell = cell_at(place, shadow.stride)
        if cell.write_epoch & records.EPOCHS > newest:
            newest = cell.write_epoch & records.EPOCHS
            writer = cell.writer
    watch, first = watch_of(frame.block), shadow.first + offset
    acquired, released = 0, 0
    for index in range(watch.warps):
        # It need not be the warp that uses the map: Triton lets one acquire for all, before a barrier.
        acquired = max(acquired, largest(async_clock(watch, index).map_fenced))
        released = max(released, largest(async_clock(watch, index).map_released))
    # What other blocks have released is not known, and counts as such.
    is_of_block = in_block(watch, local_warp(watch, newest))
    if acquired < newest:
        suspect(Suspicion.MAP_UNFENCED, frame, row, lane, first, newest, writer)
    elif (newest > 0) & is_of_block & (released < newest):
        suspect(Suspicion.MAP_UNRELEASED, frame, row, lane, first, newest, writer)


@inlined
def check_map(frame: WarpFrame, watch: BlockWatch, row: int, copy: AsyncOperation) -> None:
    """Look at the tensor map of a copy: whether it was changed, and a fence followed."""
    launch = watch.watch
    for number in range(launch.allocation_count):
        shadow = launch.allocations[number]
        if (shadow.plane != 0) & unsigned_less(copy.map - shadow.host, shadow.size):
            check_map_in(frame, row, copy, shadow)


@inlined
def mixed(so_far: int, number: int) -> int:
    """Return a hash with one more number in it."""
    return (so_far ^ number) * _FNV_PRIME


@inlined
def contents_of(copy: AsyncOperation) -> int:
    """Return a number that is the same for copies of the same bytes to the same place; it is not 0."""
    is_box = copy.element_bytes != 0
    digest = mixed(mixed(mixed(_FNV_OFFSET, copy.source), copy.target), copy.size)
    digest = mixed(mixed(digest, copy.tensor if is_box else 0), copy.shared_address if is_box else 0)
    for axis in (0, 1, 2, 3, 4):
        digest = mixed(digest, copy.coordinates[axis] if is_box else 0)
    return digest | 1


@inlined
def begin_copy_to_phase(frame: WarpFrame, copy: AsyncOperation, row: int, swizzle: int) -> int:
    """Begin a copy that an mbarrier is told of; return its epoch."""
    home = watch_of(copy.barrier_block)
    offset = copy.barrier - copy.barrier_block.shared
    number = follow_barrier(home, offset, load_long(copy.barrier))
    phase = 0
    if number >= 0:
        used_by_copy(frame, row, home, number, copy.lane)
        check_initialised(frame, row, home, number, copy.lane, copy.barrier_address)
        phase = followed_barrier(home, number).phase
    return begin_operation(frame, AsyncKind.PHASE, copy.lane, number, phase, swizzle, home)


@compiled()
def begin_copy(frame: WarpFrame, copy: AsyncOperation, issued: Issued) -> None:
    """Begin a bulk copy or reduction, in an epoch of its own."""
    watch = watch_of_running(frame)
    row, lane, is_box, reduces = copy.site * MOST_ROWS, copy.lane, copy.element_bytes != 0, copy.combine != 0
    watch.watch.sites[row].requests += 1
    swizzle = copy.swizzle_mask + 1 if is_box else 0
    if is_box:
        check_map(frame, watch, row, copy)
    if copy.barrier != 0:
        issued.epoch = begin_copy_to_phase(frame, copy, row, swizzle)
    else:
        issued.epoch = begin_operation(frame, AsyncKind.BULK_GROUP, lane, 0, 0, swizzle, BlockWatch.at(0))
        # Lanes that all issue one load are wrong: their mbarrier counts the bytes of each.
        if not reduces:
            operation(watch, issued.epoch).contents = contents_of(copy)
    operation(watch, issued.epoch).type = type_of_map(copy.map) if is_box else 0
    who = word_of(watch, row, lane)
    issued.row = row
    issued.who = who
    # A reduction is to others what an atomic is.
    issued.writes = AsyncFlag.WRITES | AsyncFlag.REDUCES if reduces else AsyncFlag.WRITES
    if watch.watch.sites[row].flags & Flag.GENERIC_PROXY != 0:
        operation(watch, issued.epoch).generic = 1
        issued.writes |= AsyncFlag.GENERIC
    issued.writer = who | (records.ATOMIC | records.STRONG) if reduces else who


@compiled()
def begin_product(frame: WarpFrame, site: int, issued: Issued) -> None:
    """Begin the read of a matrix by wgmma, in an epoch of its own."""
    watch = watch_of_running(frame)
    agent = first_of_group(frame.index)
    issued.row = site * MOST_ROWS
    issued.epoch = begin_operation(frame, AsyncKind.WGMMA, 0, 0, 0, 0, BlockWatch.at(0))
    issued.who = word_of(watch, issued.row, (agent & (LANES - 1)) | records.COLLECTIVE)


# which bytes ------------------------------------------------------------------------------------------------


@inlined
def spanned(offset: int, size: int) -> int:
    """Return how many sectors some bytes take, if any, of which the first lies so far in its own."""
    return (offset + size + (_SECTOR - 1)) // _SECTOR if size != 0 else 0


@compiled()
def count_sectors(
    frame: WarpFrame, row: int, address: int, place: int, size: int, before: int, after: int
) -> None:
    """Count a row of bytes that an operation moves to or from global memory, at a place in shared memory.

    Rows, and pieces of a row that go to different lines of shared memory, take a sector each where they meet.
    What a load fills in, some bytes before and after the tensor, counts as if it were read.
    """
    counted = watch_of(frame.block).watch.sites[row]
    head = min((0 - place) & (_LINE - 1), size)
    lines, tail = (size - head) // _LINE, (size - head) & (_LINE - 1)
    offset = (address + head) & (_SECTOR - 1)
    ends = spanned(address & (_SECTOR - 1), head) + spanned(offset, tail)
    counted.sectors += lines * spanned(offset, _LINE) + ends + spanned(0, before) + spanned(0, after)
    counted.moved_bytes += size


class BegunOperation:
    """An operation that has begun; code is written that looks at its bytes."""

    def __init__(self, code: WatchCode) -> None:
        self.code, self.frame = code, code.record("frame")
        self.issued = code.stack_bytes(Issued.BYTES, Issued)
        self.block = self.frame.at(WarpFrame.block)

    @property
    def row(self) -> Value:
        """The number of its row."""
        return self.issued.get(Issued.row)

    def runs(self, block: Record, host: Value, flags: Value | int, who: int = Issued.who) -> Runs:
        """Return what looks at its runs in the memory of a block, or in an allocation."""
        return Runs(self, block, host, flags, self.issued.get(who))


class Runs:
    """Looks at the runs of one operation in one memory, if there is anything to look at."""

    def __init__(
        self, begun: BegunOperation, block: Record, host: Value, flags: Value | int, who: Value
    ) -> None:
        self.code = code = begun.code
        self.view = code.stack_bytes(RunView.BYTES, RunView)
        self.wanted = code.run(
            begin_runs,
            view=self.view,
            frame=begun.frame,
            site=begun.row,
            block=block,
            host=host,
            flags=flags,
            epoch=begun.issued.get(Issued.epoch),
            who=who,
        )

    def look(self, host: Value, size: Value | int) -> None:
        """Look at one run."""
        with self.code.when(self.wanted):
            self.code.run(look_at_run, view=self.view, host=host, bytes=size)

    def device_address(self, host: Value) -> Value:
        """Return the device address of a byte of global memory."""
        return host - self.view.get(RunView.host) + self.view.get(RunView.origin)


class _Copy(BegunOperation):
    """A bulk copy or reduction, of a box of a tensor or of bytes side by side."""

    def __init__(self, code: WatchCode) -> None:
        super().__init__(code)
        self.copy = code.record("operation")
        code.run(begin_copy, frame=self.frame, copy=self.copy, issued=self.issued)
        self.lane, self.size, self.source, self.target = (
            self.copy.get(field)
            for field in (
                AsyncOperation.lane,
                AsyncOperation.size,
                AsyncOperation.source,
                AsyncOperation.target,
            )
        )
        self.writes = self.issued.get(Issued.writes)
        self.target_block = self.copy.at(AsyncOperation.target_block)
        self.own = self.block.get(BlockRecord.shared)
        self.base, self.tensor_shift = (
            self.copy.get(field) for field in (AsyncOperation.shared_address, AsyncOperation.tensor_shift)
        )

    @property
    def first(self) -> Value:
        """The address of the tensor's first element on the host."""
        return self.copy.get(AsyncOperation.tensor) + self.tensor_shift

    def _count(
        self, address: Value, place: Value, size: Value, before: Value | int, after: Value | int
    ) -> None:
        """Write that a row of bytes is counted."""
        moved = {"address": address, "place": place, "size": size, "before": before, "after": after}
        self.code.run(count_sectors, frame=self.frame, row=self.row, **moved)

    def hold_barrier(self) -> None:
        """Write that the mbarrier that is told of the copy has to lie where it should."""
        barrier = Extent(self.code, self.copy.get(AsyncOperation.barrier_address) & abi.OFFSET_MASK)
        barrier.add(barrier.start, MBARRIER_BYTES)
        # st.async and red.async have no source.
        has_source = self.copy.get(AsyncOperation.element_bytes).differs(0) | self.source.differs(0)
        number = has_source.select(self.code.number(_BARRIER), _SOURCE)
        barrier.hold(self.row, number, self.lane, shared=True)

    def load_box(self) -> None:
        """Write that a box of a tensor is loaded into shared memory."""
        filled = Extent(self.code, self.copy.get(AsyncOperation.target_address))
        target = self.runs(self.target_block, self.target, AsyncFlag.WRITES | AsyncFlag.SHARED)
        tensor = self.runs(self.block, self.first, AsyncFlag.READS)

        def load(address: Value, place: Value, count: Value) -> None:
            outside(place, count)
            tensor.look(address + self.tensor_shift, count)

        def outside(place: Value, count: Value) -> None:
            filled.add(filled.start + (place - self.base), count)
            target.look(self.target + (place - self.base), count)

        walk(self.code, self.copy, False, load, outside, self._count)
        filled.hold(self.row, _TARGET, self.lane, shared=True)

    def store_box(self) -> None:
        """Write that a box of a tensor is stored from shared memory, or reduced into it."""
        emptied = Extent(self.code, self.source - self.own)
        source = self.runs(self.block, self.source, AsyncFlag.READS | AsyncFlag.SHARED)
        tensor = self.runs(self.block, self.first, self.writes, Issued.writer)

        def store(address: Value, place: Value, count: Value) -> None:
            emptied.add(emptied.start + (place - self.base), count)
            source.look(self.source + (place - self.base), count)
            tensor.look(address + self.tensor_shift, count)

        def count(address: Value, place: Value, size: Value, before: Value, after: Value) -> None:
            self._count(address, place, size, 0, 0)  # nothing is written outside of the tensor

        walk(self.code, self.copy, True, store, None, count)
        emptied.hold(self.row, _SOURCE, self.lane, shared=True)

    def _hold(self, operand: int, start: Value, shared: bool) -> None:
        extent = Extent(self.code, start)
        extent.add(start, self.size)
        extent.hold(self.row, operand, self.lane, shared)

    def read_bytes(self) -> None:
        """Write that bytes side by side are read, from shared or from global memory."""
        code = self.code
        limit = self.block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes)
        from_shared = (self.source - self.own).to(U64) < limit.to(U64)
        with code.when(from_shared):
            self.runs(self.block, self.source, AsyncFlag.READS | AsyncFlag.SHARED).look(
                self.source, self.size
            )
            self._hold(_SOURCE, self.source - self.own, shared=True)
        with code.when(~from_shared):
            read = self.runs(self.block, self.source, AsyncFlag.READS)
            read.look(self.source, self.size)
            address = read.device_address(self.source)
            self._count(address, self.copy.get(AsyncOperation.target_address), self.size, 0, 0)
            self._hold(_SOURCE, address, shared=False)

    def write_bytes(self) -> None:
        """Write that bytes side by side are written, to shared or to global memory."""
        code, to_shared = self.code, self.target_block.address.differs(0)
        with code.when(to_shared):
            flags = self.writes | AsyncFlag.SHARED
            self.runs(self.target_block, self.target, flags, Issued.writer).look(self.target, self.size)
            self._hold(_TARGET, self.copy.get(AsyncOperation.target_address), shared=True)
        with code.when(~to_shared):
            written_runs = self.runs(self.block, self.target, self.writes, Issued.writer)
            written_runs.look(self.target, self.size)
            address = written_runs.device_address(self.target)
            self._count(address, self.source - self.own, self.size, 0, 0)
            self._hold(_TARGET, address, shared=False)

    def write(self) -> None:
        """Write the function."""
        code = self.code
        is_box = self.copy.get(AsyncOperation.element_bytes).differs(0)
        with code.when(self.copy.get(AsyncOperation.barrier).differs(0)):
            self.hold_barrier()
        with code.when(is_box & self.target_block.address.differs(0)):
            self.load_box()
            code.done()
        with code.when(is_box):
            self.store_box()
            code.done()
        with code.when(self.source.differs(0)):
            self.read_bytes()
        self.write_bytes()
        code.done()


@written(lambda code: _Copy(code).write(), name="check_issued", external=True)
def copy_issued(frame: WarpFrame, operation: AsyncOperation) -> None:
    """A bulk copy or reduction is about to be issued."""
    signature_only()


# matrices ---------------------------------------------------------------------------------------------------


class Matrix(NamedTuple):
    """A matrix in shared memory as its descriptor names it."""

    start: Value
    stride: Value
    #: The bits of addresses that its swizzle changes, plus one; 0: not compared.
    swizzled: Value
    by_columns: Value
    #: Groups of eight lines, and pieces of 16 bytes of a line.
    groups: Value
    pieces: Value


def look_at_matrix(
    begun: BegunOperation,
    block: Record,
    operand: Value | int,
    lane: Value,
    matrix: Matrix,
    each: Callable[[Major, Body], None],
    lines: int = LINES_TOGETHER,
    size: Value | int = PIECE_BYTES,
    type: Value | int = 0,
) -> None:
    """Write that an operation reads the pieces of a matrix: of some of each eight lines, some bytes each.

    `operand` is the number of the access in its instruction's record; `each` writes loops over the pieces,
    for a layout; `type` is the number of the type in a tensor map, if it is to be compared.
    """
    code, memory = begun.code, block.get(BlockRecord.shared)
    limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes) - PIECE_BYTES
    runs = begun.runs(block, memory, AsyncFlag.READS | AsyncFlag.SHARED)
    runs.view.set(RunView.swizzle, matrix.swizzled)
    runs.view.set(RunView.type, type)
    code.run(look_at_layout, frame=begun.frame, row=begun.row, lane=lane, **matrix._asdict())
    extent = Extent(code, matrix.start)

    def body(group: Value, piece: Value, addresses: list[Value]) -> None:
        for address in addresses[:lines]:
            with code.when(~(address > limit)):  # else it is a fault
                extent.add(address, PIECE_BYTES)
                runs.look(memory + address, size)

    majors: tuple[Major, ...] = ("K", "MN")
    for number, major in enumerate(majors):
        with code.when(matrix.by_columns.equals(number)):
            each(major, body)
    extent.hold(begun.row, operand, lane, shared=True)


def _write_operand_read(code: WatchCode) -> None:
    """Write that wgmma reads the pieces of a matrix that its descriptor tells."""
    begun, descriptor = BegunOperation(code), code["descriptor"]
    code.run(begin_product, frame=begun.frame, site=code["site"], issued=begun.issued)
    start, stride = (field_of(descriptor, FIELD[name]) for name in ("start_address", "stride_byte_offset"))
    size = code["groups"], code["pieces"]
    matrix = Matrix(start, stride, swizzled_bits(code, descriptor) + 1, code["mn_major"], *size)

    def each(major: Major, body: Body) -> None:
        each_piece(code, descriptor, major, *size, body)

    look_at_matrix(begun, begun.block, code["number"], code.number(0), matrix, each)
    code.done()


@written(_write_operand_read, name="check_operand_read", external=True)
def operand_read(
    frame: WarpFrame, site: int, descriptor: int, groups: int, pieces: int, mn_major: int, number: int
) -> None:
    """wgmma is about to read a matrix: A, which is number 0, or B."""
    signature_only()
