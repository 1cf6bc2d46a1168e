"""Compiled code that is called when an asynchronous operation is issued: which bytes it reads and writes.

The walkers of boxes and of matrix descriptors, which the machine copies and multiplies with, say which.
"""

from __future__ import annotations

from lanewise.isa.matrix_descriptor import PIECE_BYTES, Major
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.box_walker import walk
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    AsyncClock,
    AsyncFlag,
    AsyncKind,
    NotedOperation,
    RunView,
)
from lanewise.machine.checker.records import AllocationShadow, BlockWatch, ShadowPlane, SiteRow, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import (
    async_clock,
    first_of_group,
    running_index,
)
from lanewise.machine.checker.watch_code.async_clocks import operation as noted
from lanewise.machine.checker.watch_code.extents import Extent
from lanewise.machine.checker.watch_code.shadow_cells import Cell
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, in_turn, least, wide
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.tensor_core.descriptors import each_piece, field_of, swizzled_bits

#: The functions that the machine calls when an operation is issued, and when a descriptor is read.
ISSUED, OPERAND_READ = "check_issued", "check_operand_read"
#: The accesses of a bulk copy by their number in its record.
_TARGET, _SOURCE, _BARRIER = range(3)
#: The multiplier and offset of the FNV-1a hash of 64 bits.
_FNV_PRIME, _FNV_OFFSET = 0x100000001B3, 0xCBF29CE484222325


#: Bytes of a sector, and of a line of shared memory, at whose end TMA cuts a row.
_SECTOR, _LINE = 32, 128


class _Costs:
    """Counts what an operation moves to or from global memory, at its instruction's row.

    Rows, and pieces of a row that go to different lines of shared memory, take a sector each where they meet.
    What a load fills in counts as if it were read.
    """

    def __init__(self, code: WatchCode, observed: Record, row: Value) -> None:
        sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
        self.row = Record(code, sites + row * SiteRow.BYTES)

    def add(self, address: Value, place: Value, size: Value) -> None:
        """Count the sectors of a row of bytes at an address, which lie at a place in shared memory."""
        head = least(0 - place & (_LINE - 1), size)
        lines, tail = (size - head) >> (_LINE.bit_length() - 1), (size - head) & (_LINE - 1)
        offset = (address + head) & (_SECTOR - 1)
        whole = _sectors(offset + _LINE)
        ends = _spanned(address & (_SECTOR - 1), head) + _spanned(offset, tail)
        self._count(lines * whole + ends, size)

    def load(self, address: Value, place: Value, size: Value, before: Value, after: Value) -> None:
        """Count a row of a box that is loaded, of which some bytes lie before and after the tensor."""
        self.add(address, place, size)
        self._count(_sectors(before) + _sectors(after), size * 0)

    def store(self, address: Value, place: Value, size: Value, before: Value, after: Value) -> None:
        """Count a row of a box that is stored: nothing is written outside of the tensor."""
        self.add(address, place, size)

    def _count(self, sectors: Value, moved: Value) -> None:
        for field, more in ((SiteRow.sectors, sectors), (SiteRow.moved_bytes, moved)):
            self.row.set(field, self.row.get(field) + more)


def _spanned(offset: Value, size: Value) -> Value:
    """Return how many sectors some bytes take, if any, of which the first lies so far in its own."""
    return size.differs(0).select(_sectors(offset + size), size * 0)


def _sectors(size: Value) -> Value:
    """Return how many sectors some bytes take that begin at one."""
    return (size + (_SECTOR - 1)) >> (_SECTOR.bit_length() - 1)


class _Runs:
    """Looks at the runs of one operation in one memory, if there is anything to look at."""

    def __init__(
        self,
        code: WatchCode,
        site: Value,
        block: Value,
        host: Value,
        flags: Value | int,
        epoch: Value,
        who: Value,
    ) -> None:
        self.code = code
        self.view = code.stack_bytes(RunView.BYTES)
        self.wanted = code.call_number(
            code.module.functions["begin_runs"], self.view.address, code["frame"], site, block, host,
            flags, epoch, who,
        ).differs(0)  # fmt: skip

    def look(self, host: Value, size: Value | int) -> None:
        """Look at one run."""
        with self.code.when(self.wanted):
            self.code.call_number(self.code.module.functions["look_at_run"], self.view.address, host, size)

    def device_address(self, host: Value) -> Value:
        """Return the device address of a byte of global memory."""
        return host - self.view.get(RunView.host) + self.view.get(RunView.origin)


def _row(code: WatchCode, observed: Record, site: Value) -> Value:
    """Return the number of an instruction's row, and count a request at it."""
    number = site * MOST_ROWS
    row = Record(code, observed.at(BlockWatch.watch).get(WatchRecord.sites) + number * SiteRow.BYTES)
    row.set(SiteRow.requests, row.get(SiteRow.requests) + 1)
    return number


def _who(code: WatchCode, observed: Record, row: Value, lane: Value) -> Value:
    """Return an access by the asynchronous proxy in one word."""
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    number = Record(code, sites + row * SiteRow.BYTES).get(SiteRow.number)
    return (number << records.SITE_SHIFT) | records.ASYNC_PROXY | lane


def _look_at_map(code: WatchCode, observed: Record, operation: Record, row: Value) -> None:
    """Write that the tensor map of a copy is looked at: whether it was changed, and a fence followed."""
    launch, host = observed.at(BlockWatch.watch), operation.get(AsyncOperation.map)
    clock = async_clock(code, observed, running_index(observed))
    lane = operation.get(AsyncOperation.lane)
    with code.loop(launch.get(WatchRecord.allocation_count)) as number:
        shadow = Record(code, launch.get(WatchRecord.allocations) + number * AllocationShadow.BYTES)
        offset, shift = host - shadow.get(AllocationShadow.host), shadow.get(AllocationShadow.cell_shift)
        watched = shadow.get(AllocationShadow.plane).differs(0)
        with code.when(watched & (offset.to(U64) < shadow.get(AllocationShadow.size, U64))):
            first = shadow.get(AllocationShadow.plane) + ((offset >> shift) << 2)
            newest, writer = (code.variable(code.constant(U32, 0)) for _ in range(2))
            newest.set(code.constant(U32, 0))
            writer.set(code.constant(U32, 0))
            with code.loop(code.number(MAP_BYTES) >> shift) as index:
                cell = Cell(code, first + index * 4, shadow.get(AllocationShadow.stride))
                written = cell.get(ShadowPlane.WRITE_EPOCH) & records.EPOCHS
                later = written > newest.get()
                writer.set(later.select(cell.get(ShadowPlane.WRITER), writer.get()))
                newest.set(later.select(written, newest.get()))
            fenced = clock.pointer(AsyncClock.map_fenced, U32).load(lane)
            with code.when(newest.get() > fenced):
                address = shadow.get(AllocationShadow.first) + offset
                code.suspect(
                    Suspicion.MAP_UNFENCED, code["frame"], row, lane, address, wide(newest.get()),
                    wide(writer.get()),
                )  # fmt: skip


def _contents(code: WatchCode, operation: Record) -> Value:
    """Return a number that is the same for copies of the same bytes to the same place."""
    fields = [AsyncOperation.source, AsyncOperation.target, AsyncOperation.size]
    boxes = [AsyncOperation.tensor, AsyncOperation.shared_address]
    boxes += [AsyncOperation.coordinates + 8 * number for number in range(5)]
    is_box = operation.get(AsyncOperation.element_bytes).differs(0)
    found = code.constant(U64, _FNV_OFFSET)
    for each in (*fields, *boxes):
        value = operation.get(each, U64)
        found = (found ^ (is_box.select(value, 0) if each in boxes else value)) * _FNV_PRIME
    return (found | 1).to(i64)


def write_issued(module: ir.Module) -> None:
    """Write `check_issued(frame, operation)`: a bulk copy or reduction is about to be issued."""
    code = WatchCode(module, ISSUED, ("frame", "operation"), external=True)
    warp, operation = code.record("frame"), code.record("operation")
    observed = in_turn(code, warp)
    site, lane = (operation.get(each) for each in (AsyncOperation.site, AsyncOperation.lane))
    row = _row(code, observed, site)
    barrier = operation.get(AsyncOperation.barrier)
    kind, number, phase, home = (code.variable(code.number(0)) for _ in range(4))
    home.set(code.number(0))
    kind.set(code.number(AsyncKind.BULK_GROUP))
    number.set(code.number(0))
    phase.set(code.number(0))
    with code.when(barrier.differs(0)):
        owner = operation.at(AsyncOperation.barrier_block)
        kind.set(code.number(AsyncKind.PHASE))
        home.set(owner.get(BlockRecord.watch))
        word = Record(code, barrier).get(0, U64).to(i64)
        offset = barrier - owner.get(BlockRecord.shared)
        number.set(
            code.call_number(module.functions["follow_barrier"], owner.get(BlockRecord.watch), offset, word)
        )
        with code.when(~(number.get() < 0)):
            code.call_number(
                module.functions["used_by_copy"], warp.address, row, owner.get(BlockRecord.watch),
                number.get(), lane,
            )  # fmt: skip
        phase.set(
            code.call_number(module.functions["phase_of_barrier"], owner.get(BlockRecord.watch), number.get())
        )
    swizzle = code.variable(code.number(0))
    swizzle.set(code.number(0))
    with code.when(operation.get(AsyncOperation.element_bytes).differs(0)):
        swizzle.set(operation.get(AsyncOperation.swizzle_mask) + 1)
        _look_at_map(code, observed, operation, row)
    epoch = code.call_number(
        module.functions["begin_operation"], warp.address, kind.get(), lane, number.get(), phase.get(),
        swizzle.get(), home.get(),
    )  # fmt: skip
    # Lanes that all issue one load are wrong: their mbarrier counts the bytes of each.
    copies = operation.get(AsyncOperation.combine).equals(0) & barrier.equals(0)
    with code.when(copies):
        noted(code, observed, epoch).set(NotedOperation.contents, _contents(code, operation))
    who = _who(code, observed, row, lane)
    block = warp.at(WarpFrame.block)
    is_box = operation.get(AsyncOperation.element_bytes).differs(0)
    to_shared = operation.get(AsyncOperation.target_block).differs(0)
    source, target = (operation.get(each) for each in (AsyncOperation.source, AsyncOperation.target))
    size = operation.get(AsyncOperation.size)
    # A reduction is to others what an atomic is.
    reduces = operation.get(AsyncOperation.combine).differs(0)
    writes = reduces.select(code.number(AsyncFlag.WRITES | AsyncFlag.REDUCES), AsyncFlag.WRITES)
    writer = who | reduces.select(code.number(records.ATOMIC | records.STRONG), 0)
    base, tensor_shift = (
        operation.get(each) for each in (AsyncOperation.shared_address, AsyncOperation.tensor_shift)
    )
    first = operation.get(AsyncOperation.tensor) + tensor_shift
    target_block = operation.get(AsyncOperation.target_block)
    costs = _Costs(code, observed, row)
    own = block.get(BlockRecord.shared)
    with code.when(barrier.differs(0)):
        told = Extent(code, operation.get(AsyncOperation.barrier_address) & abi.OFFSET_MASK)
        told.add(told.start, MBARRIER_BYTES)
        # st.async and red.async have no source.
        told.hold(row, (is_box | source.differs(0)).select(code.number(_BARRIER), _SOURCE), lane, shared=True)
    with code.when(is_box & to_shared):
        filled = Extent(code, operation.get(AsyncOperation.target_address))
        written = _Runs(code, row, target_block, target, AsyncFlag.WRITES | AsyncFlag.SHARED, epoch, who)
        read = _Runs(code, row, block.address, first, AsyncFlag.READS, epoch, who)

        def load(address: Value, place: Value, count: Value) -> None:
            outside(place, count)
            read.look(address + tensor_shift, count)

        def outside(place: Value, count: Value) -> None:
            filled.add(filled.start + (place - base), count)
            written.look(target + (place - base), count)

        walk(code, operation, False, load, outside, costs.load)
        filled.hold(row, _TARGET, lane, shared=True)
        code.done()
    with code.when(is_box):
        read = _Runs(code, row, block.address, source, AsyncFlag.READS | AsyncFlag.SHARED, epoch, who)
        written = _Runs(code, row, block.address, first, writes, epoch, writer)

        emptied = Extent(code, source - own)

        def store(address: Value, place: Value, count: Value) -> None:
            emptied.add(emptied.start + (place - base), count)
            read.look(source + (place - base), count)
            written.look(address + tensor_shift, count)

        walk(code, operation, True, store, None, costs.store)
        emptied.hold(row, _SOURCE, lane, shared=True)
        code.done()

    def hold(operand: int, start: Value, shared: bool) -> None:
        extent = Extent(code, start)
        extent.add(start, size)
        extent.hold(row, operand, lane, shared)

    limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes)
    from_shared = (source - own).to(U64) < limit.to(U64)
    with code.when(source.differs(0)):
        with code.when(from_shared):
            flags = AsyncFlag.READS | AsyncFlag.SHARED
            _Runs(code, row, block.address, source, flags, epoch, who).look(source, size)
            hold(_SOURCE, source - own, shared=True)
        with code.when(~from_shared):
            read = _Runs(code, row, block.address, source, AsyncFlag.READS, epoch, who)
            read.look(source, size)
            costs.add(read.device_address(source), operation.get(AsyncOperation.target_address), size)
            hold(_SOURCE, read.device_address(source), shared=False)
    with code.when(to_shared):
        _Runs(code, row, target_block, target, writes | AsyncFlag.SHARED, epoch, writer).look(target, size)
        hold(_TARGET, operation.get(AsyncOperation.target_address), shared=True)
    with code.when(~to_shared):
        written = _Runs(code, row, block.address, target, writes, epoch, writer)
        written.look(target, size)
        costs.add(written.device_address(target), source - own, size)
        hold(_TARGET, written.device_address(target), shared=False)
    code.done()


def write_operand_read(module: ir.Module) -> None:
    """Write `check_operand_read(frame, site, descriptor, groups, pieces, mn_major, number)`.

    wgmma is about to read a matrix: A, which is number 0, or B.
    """
    arguments = ("frame", "site", "descriptor", "groups", "pieces", "mn_major", "number")
    code = WatchCode(module, OPERAND_READ, arguments, external=True)
    warp = code.record("frame")
    observed = in_turn(code, warp)
    row = code["site"] * MOST_ROWS
    agent = first_of_group(warp.get(WarpFrame.index))
    zero = code.number(0)
    epoch = code.call_number(
        module.functions["begin_operation"], warp.address, AsyncKind.WGMMA, zero, zero, zero, zero, zero
    )
    block = warp.at(WarpFrame.block)
    who = _who(code, observed, row, (agent & (LANES - 1)) | records.COLLECTIVE)
    flags = AsyncFlag.READS | AsyncFlag.SHARED
    memory = block.get(BlockRecord.shared)
    limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes) - PIECE_BYTES
    runs = _Runs(code, row, block.address, memory, flags, epoch, who)
    runs.view.set(RunView.swizzle, swizzled_bits(code, code["descriptor"]) + 1)

    extent = Extent(code, field_of(code, code["descriptor"], "start_address"))

    def body(group: Value, piece: Value, addresses: list[Value]) -> None:
        for address in addresses:
            with code.when(~(address > limit)):  # a fault
                extent.add(address, PIECE_BYTES)
                runs.look(memory + address, PIECE_BYTES)

    majors: tuple[Major, ...] = ("K", "MN")
    for number, major in enumerate(majors):
        with code.when(code["mn_major"].equals(number)):
            each_piece(code, code["descriptor"], major, code["groups"], code["pieces"], body)
    extent.hold(row, code["number"], zero, shared=True)
    code.done()


def write_async_operations(module: ir.Module) -> None:
    """Write the functions that the machine calls into a module."""
    write_issued(module)
    write_operand_read(module)
