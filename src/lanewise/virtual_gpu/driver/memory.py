"""Memory of the virtual GPU: allocations by their device addresses.

A device address is the host's address of the bytes, unless host code is not to reach them, as it is in a
program in C. Every allocation is entered into the machine's address book, so that launches may access it.
Memory that another library owns, a tensor of torch's for instance, is adopted for as long as that library
keeps it.
"""

import ctypes
import mmap
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from lanewise.jit.host_memory import Bytes, address, as_bytes
from lanewise.machine.program.source_lines import short_place
from lanewise.machine.runtime.address_book import ADDRESSES
from lanewise.machine.runtime.device_memory import View
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.virtual_gpu.driver.reserved_addresses import MOST_FREED, ReservedAddresses
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.order.host_lines import host_line, line_of_calls, native_frames

#: What the address of an allocation is a multiple of, as cuMemAlloc has it.
ALIGNMENT = 256
#: What freed memory has.
_NO_BYTES = as_bytes(0, 0)
#: Bytes on both sides of an allocation that belong to nobody: an access there is out of bounds.
GUARD = 4096


@dataclass
class Allocation:
    """A range of memory that kernels may access; `bytes` keep it, unless another library does."""

    first: int
    size: int
    bytes: Bytes
    #: Whether the program allocated it, and is to give it back.
    is_allocated: bool = False
    is_managed: bool = False
    is_host: bool = False
    #: The line of the program that allocated it, if a check wants to know.
    line: str | None = None
    title: str = ""
    #: The frames of a program in C that allocated it, which lead to the line.
    frames: tuple[int, ...] = ()

    @property
    def made_at(self) -> str | None:
        """The line of the program that allocated it, as far as it is known."""
        return self.line or line_of_calls(self.frames)

    def has(self, place: int) -> bool:
        """Return whether an address lies in it."""
        return self.first <= place < self.first + self.size

    @property
    def is_shared(self) -> bool:
        """Whether host code reaches it, by addresses that can be taken from it for a while."""
        return (self.is_host or self.is_managed) and self.first != self.host

    @property
    def is_device(self) -> bool:
        """Whether host code does not reach it."""
        return not (self.is_host or self.is_managed)

    @property
    def host(self) -> int:
        """The host's address of its first byte."""
        return address(self.bytes)


@cache
def _mincore() -> Callable[[int, int, object], int] | None:
    """Return the C library's function that fails for addresses of no memory; None where there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if function is not None:
        function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    return function


def _is_mapped(place: int, size: int) -> bool:
    """Return whether the first and the last page of some host memory are there."""
    ask, resident = _mincore(), ctypes.c_char()
    pages = {address // mmap.PAGESIZE * mmap.PAGESIZE for address in (place, place + size - 1)}
    return ask is None or all(ask(page, mmap.PAGESIZE, ctypes.byref(resident)) == 0 for page in pages)


def _aligned_in(owner: Bytes) -> int:
    """Return the address at which an allocation begins in memory that has room for its guards."""
    start = address(owner) + GUARD
    return start + -start % ALIGNMENT


def _nearest(allocations: Iterable[Allocation], place: int) -> Allocation | None:
    """Return the allocation that an address lies in, or in whose guards it lies."""
    margin = GUARD + mmap.PAGESIZE
    near = [it for it in allocations if -margin <= place - it.first < it.size + margin]
    return min(near, key=lambda it: not it.has(place), default=None)


class Memory:
    """The allocations of a virtual GPU by their addresses, with the bytes that are in use."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used, self.peak = capacity, 0, 0
        #: Whether it is followed which bytes were written, and whether lines of the program are kept.
        self.is_followed = self.keeps_lines = False
        #: What gives addresses that host code cannot follow; None if device addresses are the host's.
        self.reserved: ReservedAddresses | None = None
        #: Allocations that were given back lately, with the frames of the program that did it.
        self._freed: deque[tuple[Allocation, tuple[int, ...]]] = deque(maxlen=MOST_FREED)
        self._lock = threading.RLock()
        self._starts: list[int] = []
        self._allocations: dict[int, Allocation] = {}

    def allocate(self, size: int, *, is_managed: bool = False, is_host: bool = False) -> int:
        """Return the address of new memory that is all zeros; an error if the GPU has not as much."""
        import numpy as np

        if size <= 0:
            raise DriverError(Result.INVALID_VALUE, f"an allocation has at least 1 byte, not {size}")
        if not is_host and self.used + size > self.capacity:
            raise DriverError(
                Result.OUT_OF_MEMORY,
                f"{size:,} bytes are asked for, and {self.capacity - self.used:,} of {self.capacity:,} are "
                "free; virtual_gpu(…, memory_gib=…) sets the memory of the device",
            )
        kind = "managed" if is_managed else "pinned host" if is_host else "device"
        try:
            if self.reserved is not None and kind != "device":
                start, owner = self.reserved.share(size, GUARD)
                host = address(owner)
            else:
                owner = np.zeros(size + 2 * GUARD + ALIGNMENT, np.uint8)
                start = host = _aligned_in(owner)
        except MemoryError:
            raise DriverError(
                Result.OUT_OF_MEMORY,
                f"the host has no {size:,} bytes, in which the virtual GPU would keep them",
            ) from None
        if self.reserved is not None and kind == "device":
            start = self.reserved.reserve(size, GUARD)
        line = host_line() if self.keeps_lines else None
        where = f", allocated at {short_place(line)}" if line else ""
        title = f"the {kind} memory at {start:#x} ({size:,} bytes{where})"
        self.adopt(start, size, title, owner, is_allocated=True, host=host)
        allocation = self._allocations[start]
        allocation.is_managed, allocation.is_host, allocation.line = is_managed, is_host, line
        if self.reserved is not None and line is None:
            allocation.frames = native_frames()
        if self.is_followed and kind == "device":
            INITIALISED.follow(start, size)
        if not is_host:
            self.used += size
            self.peak = max(self.peak, self.used)
        return start

    def adopt(
        self,
        start: int,
        size: int,
        title: str,
        owner: Bytes | None = None,
        *,
        is_allocated: bool = False,
        is_host: bool = False,
        host: int | None = None,
    ) -> None:
        """Let kernels access memory that is there already; `title` is what messages call it.

        `owner` is the array that the memory belongs to; None if another library keeps it. `host` is the
        host's address of the memory if it is not the device's.
        """
        if size <= 0:
            return
        with self._lock:
            known = self._allocations.get(start)
            if known is not None:
                if known.size == size:
                    return
                self._remove(start)
            # A launch keeps the view of all memory in the book. The view keeps its owner, so that the memory
            # is there until the launch has ended, even if this object is collected meanwhile.
            view = as_bytes(start if host is None else host, size, owner)
            ADDRESSES.adopt(view, start, (View(title, 0, size, True),))
            self._allocations[start] = Allocation(
                start, size, view, is_allocated, is_host=is_host, title=title
            )
            insort(self._starts, start)

    def release(self, start: int, is_host: bool | None = None) -> None:
        """Give back memory that `allocate` gave; `is_host` says which kind the call that does it is for."""
        with self._lock:
            known = self._allocations.get(start)
            if known is None or not known.is_allocated:
                raise DriverError(Result.INVALID_VALUE, self._why_not_freed(start))
            if is_host is not None and is_host != known.is_host:
                right = "cudaFreeHost" if known.is_host else "cudaFree"
                raise DriverError(Result.INVALID_VALUE, f"{known.title} is freed by {right}")
            if not known.is_host:
                self.used -= known.size
            if self.reserved is not None:
                self._freed.append((replace(known, bytes=_NO_BYTES), native_frames()))
            self._remove(start)

    def release_device(self) -> None:
        """Give back all memory of the device that host code cannot reach, as a reset of the device does."""
        with self._lock:
            for start, known in list(self._allocations.items()):
                if known.is_allocated and known.is_device:
                    self.release(start)

    def _why_not_freed(self, place: int) -> str:
        """Return why memory cannot be given back, in words."""
        known, freed = self.find(place), self.find_freed(place)
        if known is not None and known.first != place:
            return f"{place:#x} is byte {place - known.first:,} of {known.title}: only the whole is freed"
        if known is None and freed is not None and freed[0].first == place:
            where = f" at {short_place(freed[1])}" if freed[1] else ""
            return f"{freed[0].title} was freed already{where}"
        if known is None and not self.was_device(place) and self.reserved is not None:
            return f"no allocation begins at {place:#x}: it is no memory of the device"
        return f"no allocation begins at {place:#x}"

    def disown(self, start: int) -> None:
        """Forget adopted memory, which its library has given back."""
        with self._lock:
            if start in self._allocations:
                self._remove(start)

    def _remove(self, start: int) -> None:
        # Somebody may still have an array of it, an exception for instance: it must not be in the book.
        ADDRESSES.withdraw(self._allocations.pop(start).bytes)
        self._starts.remove(start)
        INITIALISED.forget(start)
        if self.reserved is not None:
            self.reserved.give_back(start)

    def is_on_device(self, place: int) -> bool:
        """Return whether an address lies in memory of the device that the host cannot use."""
        known = self.find(place)
        return known is not None and known.is_device

    def shared(self) -> list[Allocation]:
        """Return the memory that host and device share, of a program in C."""
        with self._lock:
            return [known for known in self._allocations.values() if known.is_shared]

    def was_device(self, place: int) -> bool:
        """Return whether an address is one of the device that leads nowhere, of freed memory for instance."""
        return self.reserved is not None and self.reserved.has(place)

    def is_near_shared(self, place: int, margin: int) -> bool:
        """Return whether an address lies within so many bytes of memory that the host reaches as well."""
        with self._lock:
            return any(
                -margin <= place - it.first < it.size + margin
                for it in self._allocations.values()
                if it.first == it.host
            )

    def title(self, place: int) -> str:
        """Return what messages call the memory at an address; empty if there is none."""
        known = self.find(place)
        return known.title if known is not None else ""

    def find(self, place: int) -> Allocation | None:
        """Return the allocation that an address lies in; None if there is none."""
        with self._lock:
            at = bisect_right(self._starts, place) - 1
            if at < 0:
                return None
            known = self._allocations[self._starts[at]]
            return known if known.has(place) else None

    def find_near(self, place: int) -> Allocation | None:
        """Return the allocation at an address, or the one that it is next to; None if there is none."""
        with self._lock:
            return _nearest(self._allocations.values(), place)

    def find_freed(self, place: int) -> tuple[Allocation, str] | None:
        """Return memory at an address that was freed lately, and the line that did it; None if none was."""
        with self._lock:
            known = _nearest((allocation for allocation, _ in reversed(self._freed)), place)
            frames = next((frames for allocation, frames in self._freed if allocation is known), ())
        return None if known is None else (known, line_of_calls(frames) or "")

    def range(self, place: int, size: int) -> Bytes:
        """Return bytes at an address for a copy: of the GPU, or of the host, which is trusted."""
        if size < 0:
            raise DriverError(Result.INVALID_VALUE, f"a copy has no {size} bytes")
        known = self.find(place)
        if known is not None and place + size > known.first + known.size:
            raise DriverError(
                Result.INVALID_VALUE,
                f"{size:,} bytes at {place:#x} reach beyond the allocation of {known.size:,} bytes at "
                f"{known.first:#x}",
            )
        if known is None and self.was_device(place):
            raise DriverError(Result.INVALID_VALUE, self._why_not_there(place))
        if size and (place < GUARD or (known is None and not _is_mapped(place, size))):
            raise DriverError(Result.INVALID_VALUE, f"{place:#x} is the address of no memory")
        return as_bytes(place if known is None else known.host + place - known.first, size)

    def _why_not_there(self, place: int) -> str:
        """Return why nothing is at a reserved address, in words."""
        freed = self.find_freed(place)
        if freed is not None and freed[0].has(place):
            where = f" at {short_place(freed[1])}" if freed[1] else ""
            return f"{place:#x} lies in {freed[0].title}, which was freed{where}"
        return f"{place:#x} lies in no memory of the device: an allocation begins or ends nearby"

    def host_address(self, place: int) -> int:
        """Return the host's address of the byte at an address, which may be the host's own."""
        known = self.find(place)
        return place if known is None else known.host + place - known.first

    def rest(self, place: int) -> Bytes | None:
        """Return the bytes from an address to the end of its allocation; None if it lies in none."""
        known = self.find(place)
        return None if known is None else known.bytes[place - known.first :]

    def leaks(self) -> list[str]:
        """Return notes on memory that was allocated and never given back, by the lines that allocated it."""
        by_line: dict[str, list[Allocation]] = {}
        with self._lock:
            for allocation in self._allocations.values():
                if allocation.is_allocated:
                    where = short_place(allocation.line) if allocation.line else "the program"
                    by_line.setdefault(where, []).append(allocation)
        notes = []
        for where, lost in by_line.items():
            total = sum(allocation.size for allocation in lost)
            many = f"{len(lost)} allocations, {total:,} bytes in all" if len(lost) > 1 else f"{total:,} bytes"
            notes.append(f"memory was never freed: {many}, allocated by {where}")
        return notes

    def clear(self) -> int:
        """Forget everything; return how many bytes were not given back by those who allocated them."""
        with self._lock:
            leaked = sum(
                allocation.size for allocation in self._allocations.values() if allocation.is_allocated
            )
            for start in list(self._allocations):
                self._remove(start)
            self.used = 0
            return leaked
