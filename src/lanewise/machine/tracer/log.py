"""The log of a traced launch, as Python reads it: entries in order, and the registers and memory of each.

`records.py` explains its format. Values are copied out of the log by the offsets that a point gives.
"""

import builtins
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import Bytes
from lanewise.machine import abi
from lanewise.machine.abi import LANES
from lanewise.machine.program.instruction_record import Proxy
from lanewise.machine.program.operands import Register
from lanewise.machine.tracer.points import ADDRESS_BYTES, LoggedAccess, LoggedRegister, Point
from lanewise.machine.tracer.records import ASYNC_WRITE_POINT, ENTRY, AsyncRun, AsyncWrite
from lanewise.numpy_types import AnyArray
from lanewise.ptx import Shape

Numbers = npt.NDArray[np.int64]
#: What the offsets of entries and of what they hold are kept multiples of, when a log is copied.
ALIGNMENT = 64
#: The offset of bytes that the log has not kept, because there are too many.
NOT_KEPT = -1


class MemoryWrites(NamedTuple):
    """Accesses of many entries to memory, one element for each row that has an address, in order."""

    #: The block that it was done by, or in whose shared memory it lies.
    block: Numbers
    #: The number of the entry, the row (a lane, unless the instruction moves rows or tiles), the address.
    entry: Numbers
    row: Numbers
    address: npt.NDArray[np.uint64]
    #: The bytes of each, and their offset in the log, which may be NOT_KEPT.
    size: Numbers
    offset: Numbers
    #: Which of the instruction's accesses it is; of an asynchronous operation, which of `Log.runs`, or
    #: COMPLETION for the mbarrier at which it completes.
    access: Numbers


#: What stands for an access where an asynchronous operation has changed an mbarrier.
COMPLETION = -1


class AsyncRuns(NamedTuple):
    """What asynchronous operations have written, one element for each run of bytes that lie side by side."""

    #: The entry of the write, the block that it was done in, and who issued it: an entry (-1: not logged) and
    #: a lane.
    entry: Numbers
    block: Numbers
    issuer: Numbers
    lane: Numbers
    #: The entry before which its source was read.
    reader: Numbers
    #: Generic addresses (source: 0 where the issuer has it, FILLED beyond a tensor), bytes, offset in log.
    target: Numbers
    source: Numbers
    size: Numbers
    offset: Numbers


class Completions(NamedTuple):
    """Bytes or arrivals that asynchronous operations complete at mbarriers, one element for each."""

    entry: Numbers
    block: Numbers
    lane: Numbers
    address: Numbers
    offset: Numbers
    #: The entry that issued the operation; -1: not logged.
    issuer: Numbers


class Log:
    """The entries of a log, and the memory that they lie in."""

    def __init__(self, memory: Bytes, count: int, points: list[Point], is_full: bool, shape: Shape) -> None:
        self.memory, self.points, self.is_full, self.shape = memory, points, is_full, shape
        #: The entries, with the fields of an EntryHeader.
        self.entries = memory[: count * ENTRY.itemsize].view(ENTRY)

    def __len__(self) -> int:
        return len(self.entries)

    def __reduce__(self) -> Any:
        """Copy and pickle what was written alone: entries lie at the beginning, what they hold at the end."""
        count, held = len(self), self.entries["payload"]
        first = int(held.min()) // ALIGNMENT * ALIGNMENT if count else self.memory.size
        end = -(-self.entries.nbytes // ALIGNMENT) * ALIGNMENT
        memory = np.concatenate([np.zeros(end, np.uint8), self.memory[first:]])
        entries = memory[: self.entries.nbytes].view(ENTRY)
        entries[:] = self.entries
        entries["payload"] += end - first
        return Log, (memory, count, self.points, self.is_full, self.shape)

    def point(self, entry: int) -> Point:
        """Return the point of an entry."""
        return self.points[int(self.entries["point"][entry])]

    @property
    def bytes(self) -> int:
        """The bytes that the log takes."""
        lowest = int(self.entries["payload"].min()) if len(self) else self.memory.size
        return self.entries.nbytes + self.memory.size - lowest

    # registers ----------------------------------------------------------------------------------------------

    def register(self, entry: int, logged: LoggedRegister) -> AnyArray:
        """Return what an entry wrote to a register: 32 unsigned elements (two columns for 128 bits)."""
        start = int(self.entries["payload"][entry]) + logged.offset
        return as_lanes(self.memory[start : start + logged.bytes], logged.register)

    @cached_property
    def writers(self) -> dict[int, dict[int, LoggedRegister]]:
        """For each register, by its offset in the frame: the points that write it, and where they log it."""
        registers: dict[int, dict[int, LoggedRegister]] = {}
        for point in self.points:
            for logged in point.registers:
                registers.setdefault(logged.register.offset, {})[point.number] = logged
        return registers

    # memory -------------------------------------------------------------------------------------------------

    def addresses(self, entry: int, access: LoggedAccess) -> npt.NDArray[np.uint64]:
        """Return the generic addresses of an access; 0 in rows that have none."""
        start = int(self.entries["payload"][entry]) + access.addresses
        return self.memory[start : start + ADDRESS_BYTES].view(np.uint64)

    def bytes_of(self, entry: int, access: LoggedAccess, before: bool = False) -> Bytes:
        """Return the bytes of each row of an access, those before an atomic operation if asked for."""
        offset = access.before if before else access.bytes
        start = int(self.entries["payload"][entry]) + offset
        return self.memory[start : start + LANES * access.size].reshape(LANES, access.size)

    @cached_property
    def writes(self) -> MemoryWrites:
        """All writes to memory, in the order in which they were done."""
        parts = [
            self._rows(point.number, number)
            for point in self.points
            for number, access in enumerate(point.accesses)
            if access.located.access.writes
            and access.located.size
            and access.located.access.proxy is not Proxy.ASYNC
        ]
        runs, completions = self.runs, self.completions
        width = np.full(len(completions.entry), 8, np.int64)
        parts += [
            MemoryWrites(
                runs.block, runs.entry, runs.lane, runs.target.astype(np.uint64), runs.size, runs.offset,
                np.arange(len(runs.entry)),
            ),
            MemoryWrites(
                completions.block, completions.entry, completions.lane, completions.address.astype(np.uint64),
                width, completions.offset, np.full(len(completions.entry), COMPLETION),
            ),
        ]  # fmt: skip
        joined = MemoryWrites(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        order = np.lexsort((joined.row, joined.entry))
        return MemoryWrites._make(column[order] for column in joined)

    def written(self, write: int, address: int, size: int) -> builtins.bytes:
        """Return bytes that a write, by its number, has put at an address; none if they were not kept."""
        start = int(self.writes.offset[write])
        if start == NOT_KEPT:
            return b""
        start += address - int(self.writes.address[write])
        return self.memory[start : start + size].tobytes()

    @cached_property
    def _async_writes(self) -> tuple[Numbers, Numbers]:
        """The entries of asynchronous writes, and for each a row with the fields of an AsyncWrite."""
        entries = np.flatnonzero(self.entries["point"] == ASYNC_WRITE_POINT)
        starts = self.entries["payload"][entries]
        return entries, self.memory[starts[:, None] + np.arange(AsyncWrite.BYTES)].view(np.int64)

    @cached_property
    def completions(self) -> Completions:
        """What asynchronous operations have completed at mbarriers: their bytes, or an arrival."""
        entries, made = self._async_writes
        which = np.flatnonzero(made[:, AsyncWrite.barrier // 8])
        chosen = made[which]
        issuer = chosen[:, AsyncWrite.issuer // 8]
        return Completions(
            entries[which], chosen[:, AsyncWrite.barrier_block // 8], chosen[:, AsyncWrite.lane // 8],
            chosen[:, AsyncWrite.barrier // 8],
            self.entries["payload"][entries[which]] + AsyncWrite.barrier_word,
            np.where(issuer < 0, -1, issuer // ENTRY.itemsize),
        )  # fmt: skip

    @cached_property
    def runs(self) -> AsyncRuns:
        """What asynchronous operations have written."""
        entries, made = self._async_writes
        parts = [self._runs_of(int(entry), row) for entry, row in zip(entries, made, strict=True)]
        nothing = AsyncRuns(*(np.zeros(0, np.int64) for _ in AsyncRuns._fields))
        return AsyncRuns(*(np.concatenate(columns) for columns in zip(nothing, *parts, strict=True)))

    def _runs_of(self, entry: int, made: Numbers) -> AsyncRuns:
        """Return the runs of one asynchronous write."""
        count, lane = int(made[AsyncWrite.runs // 8]), int(made[AsyncWrite.lane // 8])
        issuer, reader = (
            int(made[field // 8]) // ENTRY.itemsize if made[field // 8] >= 0 else -1
            for field in (AsyncWrite.issuer, AsyncWrite.reader)
        )
        start = int(self.entries["payload"][entry]) + AsyncWrite.BYTES
        runs = (
            self.memory[start : start + count * AsyncRun.BYTES]
            .view(np.int64)
            .reshape(-1, AsyncRun.BYTES // 8)
        )
        size = runs[:, AsyncRun.size // 8].copy()
        target = runs[:, AsyncRun.target // 8].copy()
        if count and not target[0] and issuer >= 0:  # a copy to global memory
            target[0] = self.addresses(issuer, self.point(issuer).accesses[0])[lane].astype(np.int64)
        first = start - AsyncWrite.BYTES + int(made[AsyncWrite.bytes // 8])
        block = int(self.entries["block"][entry])

        def all_of(value: int) -> Numbers:
            return np.full(count, value, np.int64)

        return AsyncRuns(
            all_of(entry), all_of(block), all_of(issuer), all_of(lane),
            all_of(reader if reader >= 0 else entry), target, runs[:, AsyncRun.source // 8].copy(), size,
            first + np.cumsum(size) - size,
        )  # fmt: skip

    def owners(self, blocks: Numbers, addresses: npt.NDArray[np.uint64]) -> tuple[Numbers, Any]:
        """Return the blocks whose memory addresses lie in, and the addresses without a rank in a cluster."""
        inside = addresses.astype(np.int64) - abi.SHARED_WINDOW
        shared = (inside >= 0) & (inside < abi.WINDOW_BYTES)
        if self.shape.cluster_blocks == 1 or not shared.any():
            return blocks, addresses
        owners, plain = blocks.copy(), addresses.copy()
        ranks = inside >> abi.RANK_SHIFT
        for number in np.flatnonzero(shared):
            if ranks[number] < self.shape.cluster_blocks:
                owners[number] = cluster_member(self.shape, int(blocks[number]), int(ranks[number]))
        plain[shared] = ((inside & abi.OFFSET_MASK) + abi.SHARED_WINDOW)[shared].astype(np.uint64)
        return owners, plain

    def _rows(self, point: int, number: int) -> MemoryWrites:
        """Return one access of all entries of a point that are complete."""
        access = self.points[point].accesses[number]
        entries = np.flatnonzero((self.entries["point"] == point) & (self.entries["state"] != 0))
        starts = self.entries["payload"][entries]
        index = (starts + access.addresses)[:, None] + np.arange(ADDRESS_BYTES)
        addresses = self.memory[index].view(np.uint64)
        there = addresses != 0
        if access.located.access.asynchronous:  # those that were kept are logged when they take effect
            kept = self.entries["barrier"][entries].astype(np.int64)[:, None]
            there &= (kept >> np.arange(LANES)) & 1 == 0
        which, rows = np.nonzero(there)
        size = np.full(len(which), access.size or access.located.size, np.int64)
        kept = starts[which] + access.bytes + rows * access.size
        offset = kept if access.size else np.full(len(which), NOT_KEPT, np.int64)
        numbers = np.full(len(which), number, np.int64)
        blocks, offsets = self.owners(self.entries["block"][entries][which], addresses[which, rows])
        return MemoryWrites(blocks, entries[which], rows, offsets, size, offset, numbers)


def cluster_member(shape: Shape, block: int, rank: int) -> int:
    """Return the number in the grid of the block that has a rank in the cluster of a block.

    >>> cluster_member(Shape((4, 2, 1), (32, 1, 1), cluster=(2, 2, 1)), 7, 0)
    2
    """
    sizes, number, place = shape.cluster or (1, 1, 1), block, []
    for extent, size in zip(shape.grid, sizes, strict=True):
        own = rank % size
        rank //= size
        place.append(number % extent // size * size + own)
        number //= extent
    return place[0] + shape.grid[0] * (place[1] + shape.grid[1] * place[2])


def as_lanes(memory: Bytes, register: Register) -> AnyArray:
    """Return the bytes of a register of all lanes as 32 unsigned numbers; of 128 bits, as pairs of 64."""
    if register.bits == 128:
        return memory.view(np.uint64).reshape(LANES, 2)
    return memory.view(f"uint{register.bits}")
