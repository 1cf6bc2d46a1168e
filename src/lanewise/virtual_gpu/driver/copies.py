"""Entry points about memory: allocations, copies, fills, and what a pointer is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated

import numpy as np

from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.memory import Allocation
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.streams import DEFAULT, StreamCalls

#: What the pitch of cuMemAllocPitch is a multiple of.
_PITCH = 512
#: Attributes of a pointer, by the numbers of cuda.h.
_CONTEXT, _MEMORY_TYPE, _DEVICE_POINTER, _HOST_POINTER = 1, 2, 3, 4
_BUFFER_ID, _IS_MANAGED, _DEVICE_ORDINAL, _RANGE_START, _RANGE_SIZE, _MAPPED = 7, 8, 9, 11, 12, 13
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2
#: CU_DEVICE_INVALID of cuda.h.
_NO_DEVICE = -2
#: The type of each attribute, and its value for an address in an allocation.
_POINTER_ATTRIBUTES: dict[int, tuple[type[ctypes._SimpleCData[int]], Callable[[Allocation, int], int]]] = {
    _CONTEXT: (ctypes.c_uint64, lambda *_: 1),
    _MEMORY_TYPE: (ctypes.c_uint32, lambda it, _: _HOST_MEMORY if it.is_host else _DEVICE_MEMORY),
    _DEVICE_POINTER: (ctypes.c_uint64, lambda _, address: address),
    _HOST_POINTER: (ctypes.c_uint64, lambda _, address: address),
    _BUFFER_ID: (ctypes.c_uint64, lambda it, _: it.first),
    _IS_MANAGED: (ctypes.c_uint32, lambda it, _: int(it.is_managed)),
    _DEVICE_ORDINAL: (ctypes.c_int32, lambda *_: 0),
    _RANGE_START: (ctypes.c_uint64, lambda it, _: it.first),
    _RANGE_SIZE: (ctypes.c_uint64, lambda it, _: it.size),
    _MAPPED: (ctypes.c_uint32, lambda *_: 1),
}


#: Attributes of a memory pool that are numbers of 32 bits; the others have 64.
_SHORT_POOL_ATTRIBUTES = (1, 2, 3)
_USED_NOW, _USED_MOST = 7, 8


class Pool:
    """A pool of memory, with the attributes that a program set; all pools are one memory."""

    def __init__(self) -> None:
        self.attributes: dict[int, int] = {}


class MemoryCalls(StreamCalls):
    """Memory of the device, which lies in host memory under the same addresses."""

    _default_pool: int = 0

    def cuMemGetInfo_v2(self) -> Annotated[tuple[U64, U64], "free total"]:
        """Return the bytes that are free, and all bytes."""
        return self.memory.capacity - self.memory.used, self.memory.capacity

    def cuMemAlloc_v2(self, bytes: U64) -> Annotated[U64, "address"]:
        """Return the address of new memory."""
        return self.memory.allocate(bytes)

    def cuMemAllocPitch_v2(
        self, width: U64, height: U64, element_bytes: U32
    ) -> Annotated[tuple[U64, U64], "address pitch"]:
        """Return the address of new memory for rows, and the bytes from one row to the next."""
        pitch = -(-width // _PITCH) * _PITCH
        return self.memory.allocate(pitch * height), pitch

    def cuMemAllocManaged(self, bytes: U64, flags: U32) -> Annotated[U64, "address"]:
        """Return the address of new memory that host and device use."""
        return self.memory.allocate(bytes, is_managed=True)

    def cuMemAllocHost_v2(self, bytes: U64) -> Annotated[U64, "address"]:
        """Return the address of new host memory that the device can access."""
        return self.memory.allocate(bytes, is_host=True)

    def cuMemHostAlloc(self, bytes: U64, flags: U32) -> Annotated[U64, "address"]:
        """Return the address of new host memory that the device can access."""
        return self.memory.allocate(bytes, is_host=True)

    def cuMemAllocAsync(self, bytes: U64, stream: Handle) -> Annotated[U64, "address"]:
        """Return the address of new memory, which is there for the stream from now on."""
        place = self.memory.allocate(bytes)
        self.filled_by("the allocation", place, bytes, stream)
        return place

    def cuMemAllocFromPoolAsync(self, bytes: U64, pool: Handle, stream: Handle) -> Annotated[U64, "address"]:
        """Return the address of new memory; all pools are one."""
        return self.cuMemAllocAsync(bytes, stream)

    def cuDeviceGetDefaultMemPool(self, device: I32) -> Annotated[Handle, "pool"]:
        """Return the pool of the device."""
        if not self._default_pool:
            self._default_pool = self.handle(Pool())
        return self._default_pool

    cuDeviceGetMemPool = cuDeviceGetDefaultMemPool

    def cuMemPoolCreate(self, properties: Pointer) -> Annotated[Handle, "pool"]:
        """Return a new pool."""
        return self.handle(Pool())

    def cuMemPoolDestroy(self, pool: Handle) -> None:
        """Forget a pool: its handle is none from now on."""
        self.forget(pool, Pool)

    def cuMemPoolGetAttribute(self, pool: Handle, attribute: I32, value: Pointer) -> None:
        """Write an attribute of a pool: what was set, or the bytes in use."""
        in_use = {_USED_NOW: self.memory.used, _USED_MOST: self.memory.peak}
        number = self.known(pool, Pool).attributes.get(attribute, in_use.get(attribute, 0))
        _pool_attribute(attribute).from_address(value).value = number

    def cuMemPoolSetAttribute(self, pool: Handle, attribute: I32, value: Pointer) -> None:
        """Keep an attribute of a pool."""
        number = _pool_attribute(attribute).from_address(value).value
        self.known(pool, Pool).attributes[attribute] = int(number)

    def cuMemPoolTrimTo(self, pool: Handle, bytes: U64) -> None:
        """Do nothing: memory that is given back is free at once."""
        self.known(pool, Pool)

    def cuMemFree_v2(self, address: U64) -> None:
        """Give back memory when all work is done; a null pointer is none."""
        if address:
            self.wait_for()
            self._release(address, is_host=False)

    def _release(self, address: int, is_host: bool | None = None) -> None:
        known = self.memory.find(address)
        self.memory.release(address, is_host)
        if known is not None:
            self.unfinished.forget(known)
        if self.races is not None:
            self.races.forget(address)

    def cuMemFreeHost(self, address: U64) -> None:
        """Give back host memory when all work is done; a null pointer is none."""
        if address:
            self.wait_for()
            self._release(address, is_host=True)

    def cuMemFreeAsync(self, address: U64, stream: Handle) -> None:
        """Give back memory when the work of the stream so far is done; a null pointer is none."""
        if not address:
            return
        known = self.memory.find(address)
        if known is not None:
            self.filled_by("the free", known.first, known.size, stream)
        self._release(address)

    def cuMemHostRegister_v2(self, address: U64, bytes: U64, flags: U32) -> None:
        """Let kernels access host memory of the program."""
        title = f"the registered host memory at {address:#x} ({bytes:,} bytes)"
        self.memory.adopt(address, bytes, title, is_host=True)

    def cuMemHostUnregister(self, address: U64) -> None:
        """Forget registered host memory."""
        known = self.memory.find(address)
        if known is None or known.first != address or not known.is_host:
            raise DriverError(
                Result.HOST_MEMORY_NOT_REGISTERED, f"no registered host memory begins at {address:#x}"
            )
        self.memory.disown(address)

    def cuMemHostGetDevicePointer_v2(self, host: U64, flags: U32) -> Annotated[U64, "address"]:
        """Return the same address: it is valid on both sides."""
        self._at(host)
        return host

    def _at(self, address: int) -> Allocation:
        """Return the allocation at an address; an error if there is none."""
        allocation = self.memory.find(address)
        if allocation is None:
            raise DriverError(Result.INVALID_VALUE, f"{address:#x} lies in no memory of the device")
        return allocation

    def cuMemGetAddressRange_v2(self, address: U64) -> Annotated[tuple[U64, U64], "base bytes"]:
        """Return the begin and the bytes of the allocation at an address."""
        allocation = self._at(address)
        return allocation.first, allocation.size

    def cuPointerGetAttribute(self, value: Pointer, attribute: I32, address: U64) -> None:
        """Write an attribute of a pointer."""
        _write_attribute(value, attribute, address, self._at(address))

    def cuPointerGetAttributes(self, count: U32, attributes: Pointer, values: Pointer, address: U64) -> None:
        """Write attributes of a pointer; those of memory that is none of the device are zero."""
        allocation = self.memory.find(address)
        asked = (ctypes.c_int32 * count).from_address(attributes)
        for attribute, value in zip(asked, (ctypes.c_uint64 * count).from_address(values), strict=True):
            _write_attribute(value, attribute, address, allocation)

    def cuMemPrefetchAsync(self, address: U64, bytes: U64, device: I32, stream: Handle) -> None:
        """Do nothing: memory is where both sides use it."""
        self._at(address)

    def cuMemAdvise(self, address: U64, bytes: U64, advice: I32, device: I32) -> None:
        """Do nothing: memory is where both sides use it."""
        self._at(address)

    # copies -------------------------------------------------------------------------------------------------

    def _copy(self, target: int, source: int, bytes: int, stream: int, is_async: bool) -> None:
        if bytes:
            read = self.memory.range(source, bytes)
            written = self.memory.range(target, bytes)
            ctypes.memmove(written.ctypes.data, read.ctypes.data, bytes)
            self.copied(target, source, bytes, stream, is_async)

    def cuMemcpy(self, target: U64, source: U64, bytes: U64) -> None:
        """Copy bytes; both addresses are those of the device or of the host."""
        self._copy(target, source, bytes, DEFAULT, is_async=False)

    def cuMemcpyHtoD_v2(self, target: U64, source: U64, bytes: U64) -> None:
        """Copy bytes to memory of the device."""
        self.require_on_device(bytes, target)
        self.cuMemcpy(target, source, bytes)

    def cuMemcpyDtoH_v2(self, target: U64, source: U64, bytes: U64) -> None:
        """Copy bytes from memory of the device."""
        self.require_on_device(bytes, source)
        self.cuMemcpy(target, source, bytes)

    def cuMemcpyDtoD_v2(self, target: U64, source: U64, bytes: U64) -> None:
        """Copy bytes from one place on the device to another."""
        self.require_on_device(bytes, target, source)
        self.cuMemcpy(target, source, bytes)

    def require_on_device(self, bytes: int, *addresses: int) -> None:
        """Raise an error if bytes lie in no memory of the device, because it was freed, say."""
        for address in addresses if bytes else ():
            self._at(address)

    def _fill(self, address: int, value: int, count: int, size: int, stream: int = DEFAULT) -> None:
        """Write a number of some bytes again and again."""
        if address % size:
            raise DriverError(Result.INVALID_VALUE, f"{address:#x} is not a multiple of {size}")
        if count:
            self._at(address)  # host memory is none of a memset's, unless it is pinned or managed
        memory = self.memory.range(address, count * size)
        memory.view(f"u{size}")[:] = np.array(value % (1 << 8 * size), f"u{size}")
        self.filled(address, count * size, stream)

    def cuMemsetD8_v2(self, address: U64, value: U32, count: U64) -> None:
        """Fill memory with a byte."""
        self._fill(address, value, count, 1)

    def cuMemsetD16_v2(self, address: U64, value: U32, count: U64) -> None:
        """Fill memory with a number of two bytes."""
        self._fill(address, value, count, 2)

    def cuMemsetD32_v2(self, address: U64, value: U32, count: U64) -> None:
        """Fill memory with a number of four bytes."""
        self._fill(address, value, count, 4)


def _pool_attribute(attribute: int) -> type[ctypes.c_int32] | type[ctypes.c_uint64]:
    """Return the type of an attribute of a pool."""
    return ctypes.c_int32 if attribute in _SHORT_POOL_ATTRIBUTES else ctypes.c_uint64


def _write_attribute(value: int, attribute: int, address: int, allocation: Allocation | None) -> None:
    """Write an attribute of a pointer into an allocation; without one, what CUDA says of host memory."""
    if attribute not in _POINTER_ATTRIBUTES:
        raise DriverError(Result.NOT_SUPPORTED, f"attribute {attribute} of a pointer is not supported")
    kind, number = _POINTER_ATTRIBUTES[attribute]
    if allocation is not None:
        kind.from_address(value).value = number(allocation, address)
    else:
        kind.from_address(value).value = _NO_DEVICE if attribute == _DEVICE_ORDINAL else 0
