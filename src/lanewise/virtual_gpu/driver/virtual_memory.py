"""Entry points of virtual memory management: addresses and memory, and which leads to which.

Memory is an anonymous file of the host, so that it can be mapped to several addresses at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from functools import cached_property

from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState

#: What sizes and addresses are multiples of, as on GPUs.
GRANULARITY = 2 << 20
_FIXED = 0x10  # MAP_FIXED
_NO_ACCESS = 0  # PROT_NONE
_NOT_RESERVED = 0x4000  # MAP_NORESERVE
_FAILED = ctypes.c_size_t(-1).value
#: The bytes of a CUmemAllocationProp: what a program asks of memory, such as that it be compressible.
_PROPERTY_BYTES = 32


@dataclass(eq=False)
class PhysicalMemory:
    """Memory without an address: a file, and how often it is in use."""

    file: int
    size: int
    properties: bytes
    uses: int = 1


class VirtualMemoryCalls(DriverState):
    """Addresses, memory, and where memory is mapped."""

    @cached_property
    def _mapped(self) -> dict[int, tuple[int, PhysicalMemory]]:
        """What is mapped, by its first address: bytes and memory."""
        return {}

    def cuMemGetAllocationGranularity(self, properties: int, option: int) -> int:
        """Return what sizes and addresses are multiples of."""
        return GRANULARITY

    def cuMemCreate(self, bytes: int, properties: int, flags: int) -> int:
        """Return new memory without an address."""
        if bytes <= 0 or bytes % GRANULARITY:
            raise DriverError(Result.INVALID_VALUE, f"{bytes:,} bytes are no multiple of {GRANULARITY:,}")
        if self.memory.used + bytes > self.memory.capacity:
            raise DriverError(
                Result.OUT_OF_MEMORY,
                f"{bytes:,} bytes are asked for, and {self.memory.capacity - self.memory.used:,} are free",
            )
        file = os.memfd_create("lanewise")
        os.ftruncate(file, bytes)
        self.memory.used += bytes
        asked = ctypes.string_at(properties, _PROPERTY_BYTES) if properties else b"\0" * _PROPERTY_BYTES
        return self.handle(PhysicalMemory(file, bytes, asked))

    def cuMemGetAllocationPropertiesFromHandle(self, properties: int, handle: int) -> None:
        """Write what a program asked of memory when it was made: all of it was granted."""
        ctypes.memmove(properties, self.known(handle, PhysicalMemory).properties, _PROPERTY_BYTES)

    def cuMemRelease(self, handle: int) -> None:
        """Give back memory once it is mapped nowhere."""
        self._drop(self.forget(handle, PhysicalMemory))

    def _drop(self, memory: PhysicalMemory) -> None:
        memory.uses -= 1
        if not memory.uses:
            os.close(memory.file)
            self.memory.used -= memory.size

    def cuMemAddressReserve(self, bytes: int, alignment: int, address: int, flags: int) -> int:
        """Return addresses that nothing else gets."""
        step = max(alignment, GRANULARITY)
        start = _map(0, bytes + step, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NOT_RESERVED)
        return start + -start % step

    def cuMemAddressFree(self, address: int, bytes: int) -> None:
        """Give back addresses that were reserved."""
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(bytes))

    def cuMemMap(self, address: int, bytes: int, offset: int, handle: int, flags: int) -> None:
        """Let addresses lead to memory; kernels may access it once cuMemSetAccess allows it."""
        memory = self.known(handle, PhysicalMemory)
        if offset + bytes > memory.size:
            raise DriverError(Result.INVALID_VALUE, f"{bytes:,} bytes at {offset:,} of {memory.size:,}")
        access = mmap.PROT_READ | mmap.PROT_WRITE
        _map(address, bytes, access, mmap.MAP_SHARED | _FIXED, memory.file, offset)
        memory.uses += 1
        self._mapped[address] = (bytes, memory)

    def cuMemSetAccess(self, address: int, bytes: int, access: int, count: int) -> None:
        """Let kernels access what is mapped in a range, each mapping as an allocation of its own."""
        inside = [each for each in self._mapped if address <= each < address + bytes]
        if not inside:
            raise DriverError(Result.INVALID_VALUE, f"nothing is mapped at {address:#x}")
        # Mappings that follow each other are one allocation for a kernel.
        size = sum(self._mapped[each][0] for each in inside)
        self.memory.adopt(min(inside), size, f"the mapped memory at {min(inside):#x} ({size:,} bytes)")

    def cuMemUnmap(self, address: int, bytes: int) -> None:
        """Let addresses lead nowhere again."""
        self.memory.disown(address)
        for start in [each for each in self._mapped if address <= each < address + bytes]:
            size, memory = self._mapped.pop(start)
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NOT_RESERVED | _FIXED
            _map(start, size, _NO_ACCESS, flags)
            self._drop(memory)


def _map(address: int, bytes: int, access: int, flags: int, file: int = -1, offset: int = 0) -> int:
    """Return where the system maps memory; an error if it cannot."""
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_size_t
    place = system.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(bytes), access, flags, file, ctypes.c_int64(offset)
    )
    if place == _FAILED:
        raise DriverError(
            Result.OUT_OF_MEMORY, f"the host cannot map {bytes:,} bytes: {os.strerror(ctypes.get_errno())}"
        )
    return int(place)
