"""Entry points of virtual memory management: addresses and memory, and which leads to which.

Memory is an anonymous file of the host, so that it can be mapped to several addresses at once.
"""

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import Annotated

from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.entry_points import I32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.reserved_addresses import (
    FIXED,
    NO_ACCESS,
    RESERVING,
    map_memory,
    unmap_memory,
)
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState, Launcher, plain_launch

#: What sizes and addresses are multiples of, as on GPUs.
GRANULARITY = 2 << 20
#: The bytes of a CUmemAllocationProp: what a program asks of memory, such as that it be compressible.
_PROPERTY_BYTES = 32
#: Where these say the kind of place that the memory is to be in, and CU_MEM_LOCATION_TYPE_DEVICE.
_LOCATION_AT, _ON_DEVICE = 8, 1


@dataclass(eq=False)
class PhysicalMemory:
    """Memory without an address: a file, and how often it is in use."""

    file: int
    size: int
    properties: bytes
    uses: int = 1

    @property
    def is_on_device(self) -> bool:
        """Whether it is memory of the device; a program may ask for memory of the host as well."""
        location = int.from_bytes(self.properties[_LOCATION_AT : _LOCATION_AT + 4], "little")
        return location in (0, _ON_DEVICE)


@dataclass(eq=False)
class Mapping:
    """Addresses that lead to memory; kernels may use them once the program has allowed it."""

    size: int
    memory: PhysicalMemory
    #: Where the host maps the same memory: at the same address, unless host code cannot follow that.
    host: int
    is_accessible: bool = False


@dataclass(frozen=True)
class Reservation:
    """Addresses that nothing else gets, and what the host mapped for them: some more."""

    size: int
    host_start: int
    host_size: int
    #: What an address of the host has more, at which memory is mapped that host code cannot reach.
    shift: int = 0


class VirtualMemoryCalls(DriverState):
    """Addresses, memory, and where memory is mapped."""

    def __init__(self, device: Device, launcher: Launcher = plain_launch) -> None:
        super().__init__(device, launcher)
        #: What is mapped and what is reserved, by the first address; where what kernels may access begins.
        self._mapped: dict[int, Mapping] = {}
        self._reserved: dict[int, Reservation] = {}
        self._adopted: list[int] = []

    def cuMemGetAllocationGranularity(self, properties: Pointer, option: I32) -> Annotated[U64, "bytes"]:
        """Return what sizes and addresses are multiples of."""
        return GRANULARITY

    def cuMemCreate(self, bytes: U64, properties: Pointer, flags: U64) -> Annotated[Handle, "memory"]:
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

    def cuMemGetAllocationPropertiesFromHandle(self, properties: Pointer, handle: Handle) -> None:
        """Write what a program asked of memory when it was made: all of it was granted."""
        ctypes.memmove(properties, self.known(handle, PhysicalMemory).properties, _PROPERTY_BYTES)

    def cuMemRelease(self, handle: Handle) -> None:
        """Give back memory once it is mapped nowhere."""
        self._drop(self.forget(handle, PhysicalMemory))

    def _drop(self, memory: PhysicalMemory) -> None:
        memory.uses -= 1
        if not memory.uses:
            os.close(memory.file)
            self.memory.used -= memory.size

    def cuMemAddressReserve(
        self, bytes: U64, alignment: U64, address: U64, flags: U64
    ) -> Annotated[U64, "address"]:
        """Return addresses that nothing else gets."""
        if bytes <= 0 or bytes % GRANULARITY:
            raise DriverError(Result.INVALID_VALUE, f"{bytes:,} bytes are no multiple of {GRANULARITY:,}")
        step = max(alignment, GRANULARITY)
        start = map_memory(0, bytes + step, NO_ACCESS, RESERVING)
        first, shift = start + -start % step, 0
        if self.memory.reserved is not None:
            shift = map_memory(0, bytes, NO_ACCESS, RESERVING) - first
        self._reserved[first] = Reservation(bytes, start, bytes + step, shift)
        return first

    def cuMemAddressFree(self, address: U64, bytes: U64) -> None:
        """Give back addresses that were reserved, all of a reservation, once nothing is mapped there."""
        known = self._reserved.get(address)
        if known is None or known.size != bytes:
            raise DriverError(
                Result.INVALID_VALUE, f"no reservation of {bytes:,} bytes begins at {address:#x}"
            )
        if self._mapped_in(address, bytes):
            raise DriverError(
                Result.INVALID_VALUE, f"memory is still mapped at {address:#x}: cuMemUnmap first"
            )
        del self._reserved[address]
        unmap_memory(known.host_start, known.host_size)
        if known.shift:
            unmap_memory(address + known.shift, bytes)

    def _mapped_in(self, address: int, bytes: int) -> list[int]:
        """Return the first addresses of what is mapped in a range or reaches into it."""
        return [
            start
            for start, mapping in self._mapped.items()
            if start < address + bytes and address < start + mapping.size
        ]

    def cuMemMap(self, address: U64, bytes: U64, offset: U64, handle: Handle, flags: U64) -> None:
        """Let addresses lead to memory; kernels may access it once cuMemSetAccess allows it."""
        memory = self.known(handle, PhysicalMemory)
        if bytes <= 0 or bytes % GRANULARITY or offset < 0 or offset + bytes > memory.size:
            raise DriverError(Result.INVALID_VALUE, f"{bytes:,} bytes at {offset:,} of {memory.size:,}")
        shift = next(
            (
                reservation.shift
                for first, reservation in self._reserved.items()
                if first <= address and address + bytes <= first + reservation.size
            ),
            None,
        )
        if shift is None:
            raise DriverError(
                Result.INVALID_VALUE,
                f"{bytes:,} bytes at {address:#x} lie in no reservation: cuMemAddressReserve first",
            )
        if self._mapped_in(address, bytes):
            raise DriverError(Result.INVALID_VALUE, f"memory is mapped at {address:#x} already")
        access, host = mmap.PROT_READ | mmap.PROT_WRITE, address
        if memory.is_on_device:
            host += shift
        map_memory(host, bytes, access, mmap.MAP_SHARED | FIXED, memory.file, offset)
        memory.uses += 1
        self._mapped[address] = Mapping(bytes, memory, host)

    def cuMemSetAccess(self, address: U64, bytes: U64, access: Pointer, count: U64) -> None:
        """Let kernels access what is mapped in a range."""
        inside = self._mapped_in(address, bytes)
        if not inside:
            raise DriverError(Result.INVALID_VALUE, f"nothing is mapped at {address:#x}")
        for start in inside:
            self._mapped[start].is_accessible = True
        self._adopt()

    def cuMemUnmap(self, address: U64, bytes: U64) -> None:
        """Let addresses lead nowhere again; mappings are taken back as a whole."""
        inside = self._mapped_in(address, bytes)
        if any(start < address or address + bytes < start + self._mapped[start].size for start in inside):
            raise DriverError(
                Result.INVALID_VALUE,
                f"{bytes:,} bytes at {address:#x} are only a part of what is mapped there",
            )
        gone = [self._mapped.pop(start) for start in inside]
        self._adopt()
        for mapping in gone:
            map_memory(mapping.host, mapping.size, NO_ACCESS, RESERVING | FIXED)
            self._drop(mapping.memory)

    def _adopt(self) -> None:
        """Let kernels access what they may by now: mappings that follow each other are one allocation."""
        for start in self._adopted:
            self.memory.disown(start)
        runs: list[tuple[int, int, int]] = []  # first address, size, and the shift of the host's address
        for start, mapping in sorted(self._mapped.items(), key=lambda item: item[0]):
            if not mapping.is_accessible:
                continue
            shift = mapping.host - start
            if runs and runs[-1][0] + runs[-1][1] == start and runs[-1][2] == shift:
                runs[-1] = (runs[-1][0], runs[-1][1] + mapping.size, shift)
            else:
                runs.append((start, mapping.size, shift))
        for start, size, shift in runs:
            title = f"the mapped memory at {start:#x} ({size:,} bytes)"
            self.memory.adopt(start, size, title, host=start + shift)
        self._adopted = [start for start, *_ in runs]
