"""The log of a traced launch, as Python reads it: entries in order, and the registers and memory of each.

`records.py` explains its format. Values are copied out of the log by the offsets that a point gives.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import Bytes
from lanewise.machine.abi import LANES
from lanewise.machine.program.operands import Register
from lanewise.machine.tracer.points import ADDRESS_BYTES, LoggedAccess, LoggedRegister, Point
from lanewise.machine.tracer.records import ENTRY

Numbers = npt.NDArray[np.int64]
#: The offset of bytes that the log has not kept, because there are too many.
NOT_KEPT = -1


class MemoryWrites(NamedTuple):
    """Accesses of many entries to memory, one element for each row that has an address, in order."""

    #: The number of the entry, the row (a lane, unless the instruction moves rows or tiles), the address.
    entry: Numbers
    row: Numbers
    address: npt.NDArray[np.uint64]
    #: The bytes of each, and their offset in the log, which may be NOT_KEPT.
    size: Numbers
    offset: Numbers
    #: Which of the instruction's accesses it is.
    access: Numbers


class Log:
    """The entries of a log, and the memory that they lie in."""

    def __init__(self, memory: Bytes, count: int, points: list[Point], is_full: bool) -> None:
        self.memory, self.points, self.is_full = memory, points, is_full
        #: The entries, with the fields of an EntryHeader.
        self.entries = memory[: count * ENTRY.itemsize].view(ENTRY)

    def __len__(self) -> int:
        return len(self.entries)

    def point(self, entry: int) -> Point:
        """Return the point of an entry."""
        return self.points[int(self.entries["point"][entry])]

    @property
    def bytes(self) -> int:
        """The bytes that the log takes."""
        lowest = int(self.entries["payload"].min()) if len(self) else self.memory.size
        return self.entries.nbytes + self.memory.size - lowest

    # registers ----------------------------------------------------------------------------------------------

    def register(self, entry: int, logged: LoggedRegister) -> npt.NDArray[Any]:
        """Return what an entry wrote to a register: 32 unsigned elements (two columns for 128 bits)."""
        start = int(self.entries["payload"][entry]) + logged.offset
        return as_lanes(self.memory[start : start + logged.bytes], logged.register)

    @cached_property
    def writers(self) -> dict[int, dict[int, LoggedRegister]]:
        """For each register, by its offset in the frame: the points that write it, and where they log it."""
        found: dict[int, dict[int, LoggedRegister]] = {}
        for point in self.points:
            for logged in point.registers:
                found.setdefault(logged.register.offset, {})[point.number] = logged
        return found

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
        ]
        if not parts:
            nothing = np.zeros(0, np.int64)
            return MemoryWrites(nothing, nothing, nothing.astype(np.uint64), nothing, nothing, nothing)
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        order = np.lexsort((joined[1], joined[0]))
        return MemoryWrites(*(each[order] for each in joined))

    def _rows(self, point: int, number: int) -> MemoryWrites:
        """Return one access of all entries of a point that are complete."""
        access = self.points[point].accesses[number]
        entries = np.flatnonzero((self.entries["point"] == point) & (self.entries["state"] != 0))
        starts = self.entries["payload"][entries]
        index = (starts + access.addresses)[:, None] + np.arange(ADDRESS_BYTES)
        addresses = self.memory[index].view(np.uint64)
        which, rows = np.nonzero(addresses)
        size = np.full(len(which), access.size or access.located.size, np.int64)
        kept = starts[which] + access.bytes + rows * access.size
        offset = kept if access.size else np.full(len(which), NOT_KEPT, np.int64)
        return MemoryWrites(
            entries[which], rows, addresses[which, rows], size, offset, np.full(len(which), number, np.int64)
        )


def as_lanes(memory: Bytes, register: Register) -> npt.NDArray[Any]:
    """Return the bytes of a register of all lanes as 32 unsigned numbers; of 128 bits, as pairs of 64."""
    if register.bits == 128:
        return memory.view(np.uint64).reshape(LANES, 2)
    return memory.view(f"uint{register.bits}")
