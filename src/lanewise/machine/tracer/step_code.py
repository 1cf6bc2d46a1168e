"""The compiled steps that write a log; all kernels share them.

`enter` begins an entry before an instruction of a warp, with the addresses that it is about to access, and
`leave` completes it with registers and bytes. `note` writes entries of instructions that have run already,
because nothing that they wrote has changed since.

What asynchronous operations wrote (bulk copies, TMA, st.async, cp.async) is logged by functions that the
machine calls when an operation has taken effect. Of a tensor copy the walker of its box says which bytes came
from where.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u8, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import AsyncOperation, KeptCopy
from lanewise.machine.bulk_copies.box_walker import ATOM, DIMENSIONS, at, least, walk
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    guarded,
    shared_function,
    shared_routine,
)
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS
from lanewise.machine.tracer.records import (
    ASYNC_WRITE_POINT,
    BARRIER_POINT,
    FILLED,
    PAYLOAD_ALIGNMENT,
    AsyncRun,
    AsyncWrite,
    BlockChoice,
    EntryHeader,
    EntryState,
    TracerRecord,
)
from lanewise.machine.warp_ops.addresses import locate

# Words of an access for `enter`: the base's offset (-1: none) and bits, what is added to it, its window, the
# rows, the bytes of each, where its addresses go, where the bytes before it go (-1: nowhere), the flags for
# `locate`; for lines of a tile the bytes of an element (0: rows are lanes), and their distance in elements as
# a register or a constant.
(
    ENTER_BASE, ENTER_BITS, ENTER_DISPLACEMENT, ENTER_WINDOW, ENTER_ROWS, ENTER_SIZE, ENTER_ADDRESSES,
    ENTER_BEFORE, ENTER_FLAGS, ENTER_SITE, ENTER_ELEMENT_BITS, ENTER_STEP_BASE, ENTER_STEP, ENTER_WORDS,
) = range(0, 14 * 8, 8)  # fmt: skip
#: Words of an access for `leave`.
LEAVE_ADDRESSES, LEAVE_SIZE, LEAVE_BYTES, LEAVE_FLAGS, LEAVE_SITE, LEAVE_WORDS = range(0, 48, 8)
#: Words of a register: its offset in the frame, the bytes of all lanes, its offset in the payload.
REGISTER_FRAME, REGISTER_BYTES, REGISTER_PAYLOAD, REGISTER_WORDS = range(0, 32, 8)


def tracer_of(block: Record) -> Record:
    """Return the record of the tracer."""
    return block.at(BlockRecord.launch).at(LaunchRecord.tracer)


@shared_routine("trace_begin", ("frame", "active", "point", "size", "always"), ir.LONG)
def _begin(code: FunctionCode) -> None:
    """`trace_begin(frame, active, point, size, always)`: the payload of a new entry; 0 if none is."""
    code.function.attributes.add("noinline")
    warp = code.record("frame")
    block = warp.at(WarpFrame.block)
    tracer, index = tracer_of(block), warp.get(WarpFrame.index)
    chosen = Record(code, tracer.get(TracerRecord.warps) + index).get(0, u8).differs(0)
    choice = Record(code, tracer.get(TracerRecord.blocks) + block.get(BlockRecord.linear)).get(0, u8)
    chosen = chosen & choice.equals(BlockChoice.EVERYTHING)
    with code.when(~chosen & code["always"].equals(0)):
        code.give(0)
    payload = new_entry(code, block, tracer, code["size"])
    entry = Record(code, tracer.get(TracerRecord.next_entry) - EntryHeader.BYTES)
    for field, value in (
        (EntryHeader.point, code["point"]),
        (EntryHeader.warp, index),
        (EntryHeader.lanes, warp.get(WarpFrame.mask, u32)),
        (EntryHeader.active, code["active"]),
        (EntryHeader.state, code.number(EntryState.BEGUN)),
        (EntryHeader.barrier, code.number(0)),
    ):
        entry.set(field, value.to(u32))
    tracer.set(TracerRecord.current_entry, entry.address)
    tracer.set(TracerRecord.current, payload)
    block.set(BlockRecord.log_entry, entry.address)
    code.give(payload)


def new_entry(code: FunctionCode, block: Record, tracer: Record, size: Value) -> Value:
    """Write code that begins an entry, and gives 0 where the block is not logged or the log is full."""
    linear = block.get(BlockRecord.linear)
    with code.when(Record(code, tracer.get(TracerRecord.blocks) + linear).get(0, u8).equals(0)):
        code.give(0)
    with code.when(tracer.get(TracerRecord.full).differs(0)):
        code.give(0)
    entry = tracer.get(TracerRecord.next_entry)
    payload = tracer.get(TracerRecord.last_payload) - size
    with code.when(payload < entry + EntryHeader.BYTES):
        tracer.set(TracerRecord.full, 1)
        code.give(0)
    tracer.set(TracerRecord.next_entry, entry + EntryHeader.BYTES)
    tracer.set(TracerRecord.last_payload, payload)
    header = Record(code, entry)
    header.set(EntryHeader.payload, payload - tracer.get(TracerRecord.base))
    header.set(EntryHeader.block, linear)
    return payload


def _begin_call(code: BlockCode, active: Value, point: Value, size: Value, always: Value) -> Value:
    """Write a call of `trace_begin`."""
    return code.invoke(_begin(code.module), code["frame"], active, point, size, always)


def _complete(code: BlockCode, tracer: Record) -> None:
    """Write code that completes the entry that was begun; asynchronous writes may have been logged since."""
    entry = Record(code, tracer.get(TracerRecord.current_entry))
    entry.set(EntryHeader.state, code.constant(u32, EntryState.COMPLETE))
    tracer.set(TracerRecord.current, 0)
    code.block.set(BlockRecord.log_entry, 0)


def _copy_registers(code: BlockCode, payload: Value, words: Value, count: Value) -> None:
    """Write code that copies registers from the frame to a payload."""
    with code.loop(count) as number:
        register = Record(code, words + number * REGISTER_WORDS)
        code.copy_bytes(
            payload + register.get(REGISTER_PAYLOAD),
            code["frame"] + register.get(REGISTER_FRAME),
            register.get(REGISTER_BYTES),
        )


def _located(code: BlockCode, address: Value, size: Value, flags: Value, site: Value, lane: Value) -> Value:
    """Write a call of `locate`: the host address of a generic one; 0 if it is not good."""
    return code.invoke(locate(code.module), code["frame"], address, size, 1, flags, site, lane)


def _copy_rows(
    code: BlockCode, addresses: Record, bytes: Value, rows: Value, size: Value, flags: Value, site: Value
) -> None:
    """Write code that copies the bytes at each row's address to a payload."""
    with code.when(size > 0), code.each_lane(rows) as row:
        host = _located(code, addresses.get(row * 8), size, flags, site, row)
        with code.when(host.differs(0)):
            code.copy_bytes(bytes + row * size, host, size)


@shared_function("trace_enter", STEP_ARGUMENTS)
def enter(code: BlockCode) -> None:
    """Operands: point, payload's bytes, whether all warps log it, how many accesses, their words."""
    words, active = code.record("operands"), code["active"].to(u32)
    payload = _begin_call(code, active, words.get(0), words.get(8), words.get(16))
    with code.when(payload.equals(0)):
        code.give(0)
    with code.loop(words.get(24)) as number:
        _write_addresses(code, Record(code, words.address + 32 + number * ENTER_WORDS), payload, active)


def _write_addresses(code: BlockCode, access: Record, payload: Value, active: Value) -> None:
    """Write code that stores the addresses of an access, and the bytes before an atomic operation."""
    addresses = Record(code, payload + access.get(ENTER_ADDRESSES))
    rows = access.get(ENTER_ROWS).to(u32)
    is_tile = access.get(ENTER_ELEMENT_BITS).differs(0)
    first = code.first_lane(active)
    step = code.variable(access.get(ENTER_STEP))
    with code.when(is_tile & ~(access.get(ENTER_STEP_BASE) < 0) & (first < abi.LANES)):
        step.set(code.frame.pointer(access.get(ENTER_STEP_BASE), u32).load(first).to(u64).to(i64))
    line_bytes = (step.get() * access.get(ENTER_ELEMENT_BITS)) >> 3
    chosen = code.variable(active & rows)
    with code.when(is_tile):
        chosen.set(active.equals(0).select(code.constant(u32, 0), rows))
    with code.loop(abi.LANES) as row:
        lane = is_tile.select(first & (abi.LANES - 1), row)
        base = code.variable(code.constant(u64, 0))
        displacement, offset = access.get(ENTER_DISPLACEMENT).to(u64), access.get(ENTER_BASE)
        with code.when(~(offset < 0)):
            with code.when(access.get(ENTER_BITS).equals(32)):
                narrow = code.frame.pointer(offset, u32).load(lane) + displacement.to(u32)
                base.set(narrow.to(u64))
            with code.when(access.get(ENTER_BITS).equals(64)):
                base.set(code.frame.pointer(offset, u64).load(lane) + displacement)
        with code.when(offset < 0):
            # A variable in shared memory lies where the memory of the block begins in that of its cluster.
            first = code.block.get(BlockRecord.shared_first, u64)
            is_shared = access.get(ENTER_WINDOW).equals(abi.SHARED_WINDOW)
            base.set(displacement + is_shared.select(first, 0))
        address = base.get().to(i64) + access.get(ENTER_WINDOW)
        address = address + is_tile.select(row * line_bytes, code.number(0))
        there = ((chosen.get() >> row.to(u32)) & 1).differs(0)
        addresses.set(row * 8, there.select(address, code.number(0)))
    before = access.get(ENTER_BEFORE)
    with code.when(~(before < 0)):
        _copy_rows(
            code, addresses, payload + before, chosen.get(), access.get(ENTER_SIZE),
            access.get(ENTER_FLAGS), access.get(ENTER_SITE),
        )  # fmt: skip


@shared_function("trace_leave", STEP_ARGUMENTS)
def leave(code: BlockCode) -> None:
    """Operands: how many registers and accesses, their words. Complete the entry that `enter` has begun."""
    words, tracer = code.record("operands"), tracer_of(code.block)
    payload = tracer.get(TracerRecord.current)
    with code.when(payload.equals(0)):
        code.give(0)
    count = words.get(0)
    _copy_registers(code, payload, words.address + 16, count)
    rest = words.address + 16 + count * REGISTER_WORDS
    with code.loop(words.get(8)) as number:
        access = Record(code, rest + number * LEAVE_WORDS)
        addresses = Record(code, payload + access.get(LEAVE_ADDRESSES))
        there = code.bits(addresses.get(0, u64, abi.LANES).differs(0))
        _copy_rows(
            code, addresses, payload + access.get(LEAVE_BYTES), there, access.get(LEAVE_SIZE),
            access.get(LEAVE_FLAGS), access.get(LEAVE_SITE),
        )  # fmt: skip
    _complete(code, tracer)


@shared_function("trace_note", STEP_ARGUMENTS)
def note(code: BlockCode) -> None:
    """Operands: how many instructions; for each its point, payload's bytes, guard, negation, registers."""
    words, tracer = code.record("operands"), tracer_of(code.block)
    position = code.variable(words.address + 8)
    with code.loop(words.get(0)):
        entry = Record(code, position.get())
        register, count = entry.get(16), entry.get(32)
        active = code.variable(code.mask_bits())
        with code.when(register.differs(0)):
            active.set(code.invoke(guarded(code.module), code["frame"], register, entry.get(24)))
        payload = _begin_call(code, active.get(), entry.get(0), entry.get(8), code.number(0))
        with code.when(payload.differs(0)):
            _copy_registers(code, payload, entry.address + 40, count)
            _complete(code, tracer)
        position.set(entry.address + 40 + count * REGISTER_WORDS)


def barrier_done(code: FunctionCode, block: Record, barrier: Value) -> None:
    """Write a call of `trace_barrier(block, barrier)`, which logs that a barrier is complete."""
    code.invoke(_trace_barrier(code.module), block.address, barrier)


@shared_routine("trace_barrier", ("block", "barrier"), ir.LONG)
def _trace_barrier(code: FunctionCode) -> None:
    block = code.record("block")
    tracer = tracer_of(block)
    new_entry(code, block, tracer, code.number(0))
    of_the_block(code, tracer, BARRIER_POINT, code["barrier"])


def of_the_block(code: FunctionCode, tracer: Record, point: int, barrier: Value) -> None:
    """Write the header of an entry that belongs to no warp, and return from the function."""
    entry = Record(code, tracer.get(TracerRecord.next_entry) - EntryHeader.BYTES)
    for field, value in (
        (EntryHeader.point, code.number(point)),
        (EntryHeader.warp, code.number(-1)),
        (EntryHeader.lanes, code.number(0)),
        (EntryHeader.active, code.number(0)),
        (EntryHeader.state, code.number(EntryState.COMPLETE)),
        (EntryHeader.barrier, barrier),
    ):
        entry.set(field, value.to(u32))
    code.give(0)


#: The functions that are called when an operation has taken effect; and when a cp.async is kept or has.
ASYNC_WRITTEN, COPY_KEPT = "trace_written", "trace_copy"


class _Runs:
    """The runs of an operation while the code that logs them is written."""

    def __init__(self, code: FunctionCode, payload: Value, most: Value) -> None:
        self.code, self.header = code, Record(code, payload)
        self.next_run = code.variable(payload + AsyncWrite.BYTES)
        first = most * AsyncRun.BYTES + AsyncWrite.BYTES
        self.next_byte = code.variable(payload + first)
        self.header.set(AsyncWrite.runs, 0)
        self.header.set(AsyncWrite.bytes, first)

    def add(self, target: Value, source: Value, size: Value, host: Value) -> None:
        """Write that a run is logged; its bytes are there already."""
        run = Record(self.code, self.next_run.get())
        run.set(AsyncRun.target, target)
        run.set(AsyncRun.source, source)
        run.set(AsyncRun.size, size)
        self.code.copy_bytes(self.next_byte.get(), host, size)
        self.next_run.set(run.address + AsyncRun.BYTES)
        self.next_byte.set(self.next_byte.get() + size)
        self.header.set(AsyncWrite.runs, self.header.get(AsyncWrite.runs) + 1)


def _begin_runs(
    code: FunctionCode, block: Record, runs: Value, bytes: Value, issuer: Value, lane: Value
) -> _Runs:
    """Write code that begins an entry, and returns from the function if it is not logged."""
    tracer = tracer_of(block)
    size = runs * AsyncRun.BYTES + bytes + (AsyncWrite.BYTES + PAYLOAD_ALIGNMENT - 1)
    payload = new_entry(code, block, tracer, size & -PAYLOAD_ALIGNMENT)
    logged = _Runs(code, payload, runs)
    logged.header.set(AsyncWrite.issuer, _offset(code, tracer, issuer))
    logged.header.set(AsyncWrite.reader, code.number(-1))
    logged.header.set(AsyncWrite.lane, lane)
    for field in (AsyncWrite.barrier, AsyncWrite.barrier_block, AsyncWrite.barrier_word):
        logged.header.set(field, 0)
    return logged


def _offset(code: FunctionCode, tracer: Record, entry: Value) -> Value:
    """Return the offset of an entry in the log; -1 if there is none."""
    return entry.equals(0).select(code.number(-1), entry - tracer.get(TracerRecord.base))


def _end(code: FunctionCode, block: Record) -> None:
    """Write the header of the entry, and return from the function."""
    tracer = tracer_of(block)
    during = tracer.get(TracerRecord.current).differs(0)
    of_the_block(code, tracer, ASYNC_WRITE_POINT, during.to(u64).to(i64))


def _in_window(address: Value) -> Value:
    """Return the generic address of a shared one, in the memory of its own block."""
    return (address & abi.OFFSET_MASK) + abi.SHARED_WINDOW


# operations -------------------------------------------------------------------------------------------------


@shared_routine(ASYNC_WRITTEN, ("operation",), ir.LONG)
def written(code: FunctionCode) -> None:
    """`trace_written(operation)`: an asynchronous operation has taken effect, which is logged."""
    operation = code.record("operation")
    to_shared = operation.get(AsyncOperation.target_block).differs(0)
    owner = to_shared.select(operation.get(AsyncOperation.target_block), operation.get(AsyncOperation.block))
    block = Record(code, owner)
    is_tensor = operation.get(AsyncOperation.element_bytes).differs(0)
    most, bytes = code.variable(code.number(1)), code.variable(operation.get(AsyncOperation.size))
    with code.when(is_tensor):
        width = operation.get(AsyncOperation.boxes) * operation.get(AsyncOperation.element_bytes)
        rows = code.number(1)
        for dimension in range(1, DIMENSIONS):
            rows = rows * operation.get(at(AsyncOperation.boxes, dimension))
        # A row is cut into pieces of 16 bytes, and where the tensor begins and ends.
        most.set(rows * (((width + (ATOM - 1)) >> 4) + 2))
        bytes.set(rows * (width + ATOM))
    issuer, lane = operation.get(AsyncOperation.issue_entry), operation.get(AsyncOperation.lane)
    runs = _begin_runs(code, block, most.get(), bytes.get(), issuer, lane)
    reader = operation.get(AsyncOperation.read_entry)
    runs.header.set(AsyncWrite.reader, _offset(code, tracer_of(block), reader))
    with code.when(operation.get(AsyncOperation.barrier).differs(0)):
        runs.header.set(AsyncWrite.barrier, _in_window(operation.get(AsyncOperation.barrier_address)))
        there = operation.at(AsyncOperation.barrier_block)
        runs.header.set(AsyncWrite.barrier_block, there.get(BlockRecord.linear))
        word = operation.at(AsyncOperation.barrier).get(0)
        runs.header.set(AsyncWrite.barrier_word, word)
    with code.builder.if_else(is_tensor.handle) as (box, contiguous):
        with box, code.builder.if_else(to_shared.handle) as (load, store):
            with load:
                _load_runs(code, operation, runs)
            with store:
                _store_runs(code, operation, runs)
        with contiguous:
            target = code.variable(_in_window(operation.get(AsyncOperation.target_address)))
            # Of a copy to global memory the entry of its issue has the address.
            with code.when(~to_shared):
                target.set(code.number(0))
            host = operation.get(AsyncOperation.target)
            runs.add(target.get(), code.number(0), operation.get(AsyncOperation.size), host)
    _end(code, block)


def _load_runs(code: FunctionCode, box: Record, runs: _Runs) -> None:
    """Write code that logs the runs of a tensor load."""
    shift = box.get(AsyncOperation.target) - box.get(AsyncOperation.shared_address)

    def inside(address: Value, place: Value, size: Value) -> None:
        runs.add(_in_window(place), address, size, place + shift)

    def outside(place: Value, size: Value) -> None:
        runs.add(_in_window(place), code.number(FILLED), size, place + shift)

    walk(code, box, False, inside, outside)


def _store_runs(code: FunctionCode, box: Record, runs: _Runs) -> None:
    """Write code that logs the runs of a tensor store or reduction, as `tensor_copy.py` carries it out."""
    shift, end = box.get(AsyncOperation.tensor_shift), box.get(AsyncOperation.tensor_end)

    def inside(address: Value, place: Value, size: Value) -> None:
        # The source keeps the rank of its block.
        runs.add(address, place + abi.SHARED_WINDOW, least(size, end - address), address + shift)

    walk(code, box, True, inside, None)


# cp.async ---------------------------------------------------------------------------------------------------


@shared_routine(COPY_KEPT, ("block", "copy", "done"), ir.LONG)
def copied(code: FunctionCode) -> None:
    """`trace_copy(block, copy, done)`: a cp.async is kept, or has taken effect, which is logged."""
    block, kept = code.record("block"), code.record("copy")
    lane, issuer, size = (kept.get(field) for field in (KeptCopy.lane, KeptCopy.issue_entry, KeptCopy.size))
    with code.when(code["done"].equals(0)):
        with code.when(issuer.differs(0)):
            entry = Record(code, issuer)
            bit = code.constant(u32, 1) << lane.to(u32)
            entry.set(EntryHeader.barrier, entry.get(EntryHeader.barrier, u32) | bit)
        code.give(0)
    runs = _begin_runs(code, block, code.number(1), size, issuer, lane)
    host = kept.get(KeptCopy.target)
    runs.add(host - block.get(BlockRecord.shared) + abi.SHARED_WINDOW, code.number(0), size, host)
    _end(code, block)
