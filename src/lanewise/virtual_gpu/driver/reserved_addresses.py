"""Addresses that lead nowhere on the host: programs in C get them for memory of the device.

On a GPU, host code that follows a pointer of cudaMalloc dies of a segmentation fault. So it does here: the
address that the program gets is reserved and cannot be accessed, and the bytes lie elsewhere. Only whoever
asks the virtual GPU's memory finds them.
"""

import ctypes
import mmap
import os
import threading
from bisect import bisect_right, insort
from functools import cache

from lanewise.jit.host_memory import Bytes
from lanewise.virtual_gpu.driver.results import DriverError, Result

NO_ACCESS = 0  # PROT_NONE
#: Flags of a mapping that only reserves addresses: MAP_NORESERVE takes no memory of the host.
RESERVING = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
FIXED = 0x10  # MAP_FIXED
_FAILED = ctypes.c_size_t(-1).value
#: Addresses of freed memory that stay reserved, so that nothing else gets them soon: 1 TiB of 128.
_MOST_FREED_BYTES = 1 << 40
MOST_FREED = 128


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_size_t
    return system


def map_memory(address: int, bytes: int, access: int, flags: int, file: int = -1, offset: int = 0) -> int:
    """Return where the system maps memory; an error if it cannot."""
    place = _system().mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(bytes), access, flags, file, ctypes.c_int64(offset)
    )
    if place == _FAILED:
        raise DriverError(
            Result.OUT_OF_MEMORY, f"the host cannot map {bytes:,} bytes: {os.strerror(ctypes.get_errno())}"
        )
    return int(place)


def unmap_memory(address: int, bytes: int) -> None:
    """Give mapped addresses back to the system."""
    _system().munmap(ctypes.c_void_p(address), ctypes.c_size_t(bytes))


def protect_memory(address: int, bytes: int, access: int) -> None:
    """Set what the host may do with mapped addresses."""
    _system().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(bytes), access)


class ReservedAddresses:
    """Ranges of addresses that the host cannot access.

    >>> addresses = ReservedAddresses()
    >>> first = addresses.reserve(1000, guard=4096)
    >>> first % mmap.PAGESIZE
    0
    >>> addresses.give_back(first)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: What the system mapped, by the address that was given out; of what was freed lately, too.
        self._mapped: dict[int, tuple[int, int]] = {}
        self._freed: dict[int, tuple[int, int]] = {}
        self._freed_bytes = 0
        #: Where all of these begin, in order, and their bytes.
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        #: The bytes of what leads to memory, by its first address.
        self._shared: dict[int, int] = {}

    def reserve(self, size: int, guard: int) -> int:
        """Return the first of `size` addresses; `guard` addresses on both sides belong to nobody."""
        guard += -guard % mmap.PAGESIZE
        whole = size + -size % mmap.PAGESIZE + 2 * guard
        start = map_memory(0, whole, NO_ACCESS, RESERVING)
        with self._lock:
            self._mapped[start + guard] = start, whole
            insort(self._starts, start)
            self._sizes[start] = whole
        return start + guard

    def share(self, size: int, guard: int) -> tuple[int, Bytes]:
        """Return the first of `size` addresses that lead to memory, and the same memory as an array.

        The array stays accessible when these addresses do not.
        """
        import numpy as np

        first, whole = self.reserve(size, guard), size + -size % mmap.PAGESIZE
        try:
            file = os.memfd_create("lanewise")
        except OSError as error:
            raise DriverError(Result.OUT_OF_MEMORY, f"the host has no memory to share: {error}") from None
        try:
            os.ftruncate(file, whole)
            access = mmap.PROT_READ | mmap.PROT_WRITE
            map_memory(first, whole, access, mmap.MAP_SHARED | FIXED, file)
            memory = mmap.mmap(file, whole)
        except OSError as error:
            raise DriverError(Result.OUT_OF_MEMORY, f"the host has no {size:,} bytes: {error}") from None
        finally:
            os.close(file)
        self._shared[first] = whole
        return first, np.frombuffer(memory, np.uint8)

    def has(self, place: int) -> bool:
        """Return whether an address is reserved, or was until lately."""
        with self._lock:
            at = bisect_right(self._starts, place) - 1
            return at >= 0 and place < self._starts[at] + self._sizes[self._starts[at]]

    def keep_again(self, first: int) -> None:
        """Reserve addresses again that were given back: a graph has its memory at the same address."""
        with self._lock:
            known = self._freed.pop(first, None)
            if known is not None:
                self._freed_bytes -= known[1]
                self._mapped[first] = known

    def give_back(self, first: int) -> None:
        """Give back addresses. They stay reserved for a while, so that a late use does not meet others."""
        with self._lock:
            known = self._mapped.pop(first, None)
            if known is None:
                return
            if first in self._shared:
                map_memory(first, self._shared.pop(first), NO_ACCESS, RESERVING | FIXED)
            self._freed[first] = known
            self._freed_bytes += known[1]
            while self._freed_bytes > _MOST_FREED_BYTES or len(self._freed) > MOST_FREED:
                start, size = self._freed.pop(next(iter(self._freed)))
                self._freed_bytes -= size
                self._starts.remove(start)
                del self._sizes[start]
                unmap_memory(start, size)
