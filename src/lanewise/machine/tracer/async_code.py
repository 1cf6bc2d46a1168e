"""Compiled functions that log what asynchronous operations wrote: bulk copies, TMA, st.async, cp.async.

The machine calls them when an operation has taken effect. Of a tensor copy the walker of its box says which
bytes came from where.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.async_records import AsyncOperation, KeptCopy
from lanewise.machine.bulk_copies.box_walker import ATOM, DIMENSIONS, at, least, walk
from lanewise.machine.codegen.function_code import FunctionCode, Record, shared_routine
from lanewise.machine.tracer.records import (
    ASYNC_WRITE_POINT,
    FILLED,
    PAYLOAD_ALIGNMENT,
    AsyncRun,
    AsyncWrite,
    EntryHeader,
    TracerRecord,
)
from lanewise.machine.tracer.step_code import new_entry, of_the_block, tracer_of

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


def _begin(code: FunctionCode, block: Record, runs: Value, bytes: Value, issuer: Value, lane: Value) -> _Runs:
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
    runs = _begin(code, block, most.get(), bytes.get(), issuer, lane)
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
    runs = _begin(code, block, code.number(1), size, issuer, lane)
    host = kept.get(KeptCopy.target)
    runs.add(host - block.get(BlockRecord.shared) + abi.SHARED_WINDOW, code.number(0), size, host)
    _end(code, block)
