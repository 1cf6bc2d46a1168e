"""The device and contexts: entry points, and attributes by the numbers of cuda.h, from the table of GPUs.

There is one device, and its contexts share everything."""

from __future__ import annotations

import ctypes
import hashlib
from typing import TYPE_CHECKING, Annotated

from lanewise.isa.multiprocessor import (
    LARGEST_BLOCK,
    LARGEST_GRID,
    MOST_REGISTERS,
    MOST_THREADS,
    REGISTERS,
    STATIC_SHARED_BYTES,
    WARP,
)
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DRIVER_VERSION, write_text
from lanewise.virtual_gpu.driver.streams import StreamCalls

if TYPE_CHECKING:
    from lanewise.virtual_gpu.devices import Device

#: Bytes of constant memory of a module.
CONSTANT_BYTES = 65536


def device_attributes(device: Device) -> dict[int, int]:
    """Return the attributes of a device (CUdevice_attribute) by number.

    >>> from lanewise.virtual_gpu.devices import find_device
    >>> attributes = device_attributes(find_device("H100"))
    >>> attributes[16], attributes[75], attributes[97]
    (132, 9, 232448)
    """
    unit = device.multiprocessor
    major, minor = device.capability
    hopper = int(major >= 9)
    return {
        1: MOST_THREADS,  # threads of a block
        2: LARGEST_BLOCK[0], 3: LARGEST_BLOCK[1], 4: LARGEST_BLOCK[2],
        5: LARGEST_GRID[0], 6: LARGEST_GRID[1], 7: LARGEST_GRID[2],
        8: STATIC_SHARED_BYTES,  # shared memory of a block without the opt-in
        9: CONSTANT_BYTES,
        10: WARP,
        11: 2**31 - 1,  # the pitch of a copy
        12: REGISTERS,  # registers of a block
        13: device.clock_khz,
        14: 512, 30: 512, 51: 32,  # alignment of textures, of surfaces, of the pitch of textures
        21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384,  # textures of 1, 2, 3 dimensions
        27: 32768, 28: 32768, 29: 2048, 42: 32768, 43: 2048,  # textures with layers
        52: 32768, 53: 32768, 54: 2046,  # textures of cube maps
        69: 2**28, 70: 131072, 71: 65000, 72: 2097120,  # textures of linear memory
        55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384,  # surfaces
        61: 32768, 62: 2048, 63: 32768, 64: 32768, 65: 2048,  # surfaces with layers
        66: 32768, 67: 32768, 68: 2046,  # surfaces of cube maps
        15: 1,  # copies overlap with kernels
        16: device.multiprocessors,
        17: 0,  # no limit of time on kernels
        18: 0,  # not integrated
        19: 1,  # host memory can be mapped
        20: 0,  # compute mode: default
        31: 1,  # kernels run at the same time
        32: 0,  # no ECC
        33: 1, 34: 0, 50: 0,  # PCI bus, device and domain
        35: 0,  # TCC driver
        36: device.memory_clock_khz,
        37: device.bus_bits,
        38: device.l2_bytes,
        39: unit.warps * WARP,  # threads of a multiprocessor
        40: 2,  # copy engines
        41: 1,  # unified addressing
        75: major, 76: minor,
        78: 1,  # stream priorities
        79: 1, 80: 1,  # caching in L1
        81: unit.shared_bytes,  # shared memory of a multiprocessor
        82: REGISTERS,  # registers of a multiprocessor
        83: 1,  # managed memory
        84: 0, 85: 0,  # one GPU on one board
        87: 2 if major < 10 else 64,  # single to double precision
        88: 0,  # kernels cannot access host memory that no call registered
        89: 1,  # managed memory is used by both sides at once
        91: 1,  # host pointers of registered memory
        95: 1,  # cooperative launches
        97: device.shared_bytes,  # shared memory of a block with the opt-in
        98: 1,  # flushing of remote writes
        99: 1, 100: 0, 101: 1,  # host memory registered, page tables shared, direct managed access
        102: 1,  # virtual memory management
        106: unit.blocks,  # blocks of a multiprocessor
        107: int(major >= 8),  # compressible memory, which a program cannot tell from other memory
        108: device.l2_bytes * 5 // 8 if major >= 8 else 0,  # L2 that can be kept for persisting accesses
        109: 2**27 - 4096 if major >= 8 else 0,  # the window of an access policy
        111: unit.reserved_bytes,  # reserved shared memory of a block
        115: 1,  # memory pools
        120: hopper,  # clusters
        127: hopper,  # tensor maps
    }  # fmt: skip


def function_attributes(shared_bytes: int, constant_bytes: int, registers: int, arch: int) -> dict[int, int]:
    """Return the attributes of a function (CUfunction_attribute) by number, before any is set."""
    return {
        0: MOST_THREADS,
        1: shared_bytes,
        2: constant_bytes,
        3: 0,  # local memory
        4: min(registers, MOST_REGISTERS),
        5: arch,  # version of the PTX
        6: arch,  # version of the binary
        7: 0,
        8: STATIC_SHARED_BYTES - shared_bytes,  # dynamic shared memory
        9: -1,  # preferred shared memory
        14: 0,  # non-portable clusters
    }


#: Limits of a context by the numbers of cuda.h: stack, printf buffer, heap, and so on.
_LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20, 3: 2, 4: 2048, 5: 64, 6: 0}


class Context:
    """A context of the device, with its limits."""

    def __init__(self, flags: int = 0) -> None:
        self.flags, self.limits = flags, dict(_LIMITS)


class DeviceCalls(StreamCalls):
    """The device, its attributes, and contexts."""

    _primary: int = 0

    def cuInit(self, flags: U32) -> None:
        """Do nothing: the device is there."""

    def cuDriverGetVersion(self) -> Annotated[I32, "version"]:
        """Return the version of the driver."""
        return DRIVER_VERSION

    def cuGetErrorString(self, error: I32) -> Annotated[Pointer, "text", 1]:
        """Return the address of the sentence of a result."""
        return self.text_address(_result(error).sentence)

    def cuGetErrorName(self, error: I32) -> Annotated[Pointer, "text", 1]:
        """Return the address of the name of a result."""
        return self.text_address(_result(error).title)

    def require_device(self, device: int) -> None:
        """Raise an error for the number of a device that is not there."""
        if device != 0:
            raise DriverError(
                Result.INVALID_DEVICE, f"there is no device {device}: the virtual GPU is device 0"
            )

    def cuDeviceGet(self, ordinal: I32) -> Annotated[I32, "device"]:
        """Return the device of a number."""
        self.require_device(ordinal)
        return 0

    def cuDeviceGetCount(self) -> Annotated[I32, "count"]:
        """Return how many devices there are: one."""
        return 1

    def cuDeviceGetName(self, name: Pointer, length: I32, device: I32) -> None:
        """Write the name of the device."""
        self.require_device(device)
        write_text(name, length, self.device.title)

    def cuDeviceGetUuid(self, uuid: Pointer, device: I32) -> None:
        """Write sixteen bytes that belong to the name of the device."""
        self.require_device(device)
        ctypes.memmove(uuid, hashlib.sha256(self.device.title.encode()).digest(), 16)

    cuDeviceGetUuid_v2 = cuDeviceGetUuid

    def cuDeviceTotalMem_v2(self, device: I32) -> Annotated[U64, "bytes"]:
        """Return the bytes of memory of the device."""
        self.require_device(device)
        return self.device.memory_bytes

    def cuDeviceGetAttribute(self, attribute: I32, device: I32) -> Annotated[I32, "value"]:
        """Return an attribute; those that are not in the table are 0, as for what a device does not have."""
        self.require_device(device)
        return device_attributes(self.device).get(attribute, 0)

    def cuDeviceComputeCapability(self, device: I32) -> Annotated[tuple[I32, I32], "major minor"]:
        """Return the compute capability."""
        self.require_device(device)
        return self.device.capability

    def cuDeviceGetPCIBusId(self, id: Pointer, length: I32, device: I32) -> None:
        """Write the address of the device on its bus."""
        self.require_device(device)
        write_text(id, length, "0000:01:00.0")

    def cuDeviceCanAccessPeer(self, device: I32, peer: I32) -> Annotated[I32, "can"]:
        """Return 0: there is no other device."""
        return 0

    # contexts -----------------------------------------------------------------------------------------------

    def _stack(self) -> list[int]:
        """Return the current contexts of this thread, the last on top."""
        if not hasattr(self.thread, "contexts"):
            self.thread.contexts = []
        contexts: list[int] = self.thread.contexts
        return contexts

    def cuDevicePrimaryCtxRetain(self, device: I32) -> Annotated[Handle, "context"]:
        """Return the primary context."""
        self.require_device(device)
        if not self._primary:
            self._primary = self.handle(Context())
        return self._primary

    def cuDevicePrimaryCtxRelease_v2(self, device: I32) -> None:
        """Do nothing: the primary context stays until the end."""
        self.require_device(device)

    cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxRelease_v2

    def cuDevicePrimaryCtxSetFlags_v2(self, device: I32, flags: U32) -> None:
        """Do nothing: flags say how a host thread waits, and nothing is waited for."""
        self.require_device(device)

    def cuDevicePrimaryCtxGetState(self, device: I32) -> Annotated[tuple[U32, I32], "flags active", 1]:
        """Return the flags of the primary context and whether it is there."""
        self.require_device(device)
        return 0, int(bool(self._primary))

    def cuCtxCreate_v2(self, flags: U32, device: I32) -> Annotated[Handle, "context"]:
        """Return a new context, which is current from now on."""
        self.require_device(device)
        context = self.handle(Context(flags))
        self._stack().append(context)
        return context

    def cuCtxCreate_v4(self, parameters: Pointer, flags: U32, device: I32) -> Annotated[Handle, "context"]:
        """Return a new context, which is current from now on; parameters are not supported."""
        if parameters and any((ctypes.c_uint64 * 3).from_address(parameters)):
            raise DriverError(Result.NOT_SUPPORTED, "parameters of a context are not supported")
        return self.cuCtxCreate_v2(flags, device)

    def cuCtxDestroy_v2(self, context: Handle) -> None:
        """Forget a context: its handle is none from now on."""
        self.forget(context, Context)
        self.thread.contexts = [other for other in self._stack() if other != context]

    def cuCtxGetCurrent(self) -> Annotated[Handle, "context"]:
        """Return the current context of this thread; 0 if there is none."""
        return self._stack()[-1] if self._stack() else 0

    def cuCtxSetCurrent(self, context: Handle) -> None:
        """Make a context the current one of this thread; 0 takes it away."""
        if context:
            self.known(context, Context)
        self.thread.contexts = [*self._stack()[:-1], *([context] if context else [])]

    def cuCtxPushCurrent_v2(self, context: Handle) -> None:
        """Make a context the current one, on top of those that are."""
        self.known(context, Context)
        self._stack().append(context)

    def cuCtxPopCurrent_v2(self) -> Annotated[Handle, "context"]:
        """Return the current context, which is current no more."""
        if not self._stack():
            raise DriverError(Result.INVALID_CONTEXT, "this thread has no current context")
        return self._stack().pop()

    def cuCtxGetDevice(self) -> Annotated[I32, "device"]:
        """Return the device of the current context."""
        return 0

    def cuCtxGetFlags(self) -> Annotated[U32, "flags"]:
        """Return the flags of the current context."""
        return self._current().flags

    def cuCtxGetId(self, context: Handle) -> Annotated[U64, "id", 1]:
        """Return a number of a context."""
        return context or self.cuCtxGetCurrent()

    def cuCtxGetApiVersion(self, context: Handle) -> Annotated[U32, "version", 1]:
        """Return the version of the driver."""
        return DRIVER_VERSION

    def _current(self) -> Context:
        current = self.cuCtxGetCurrent() or self.cuDevicePrimaryCtxRetain(0)
        return self.known(current, Context)

    def cuCtxGetLimit(self, limit: I32) -> Annotated[U64, "value"]:
        """Return a limit of the current context."""
        if limit not in _LIMITS:
            raise DriverError(Result.INVALID_VALUE, f"no limit has the number {limit}")
        return self._current().limits[limit]

    def cuCtxSetLimit(self, limit: I32, value: U64) -> None:
        """Keep a limit, so that it can be asked for; the machine has none of them."""
        if limit not in _LIMITS:
            raise DriverError(Result.INVALID_VALUE, f"no limit has the number {limit}")
        self._current().limits[limit] = value

    def cuCtxGetCacheConfig(self) -> Annotated[I32, "config"]:
        """Return that nothing is preferred of shared memory and cache."""
        return 0

    def cuCtxSetCacheConfig(self, config: I32) -> None:
        """Do nothing: the machine has no cache."""

    def cuCtxGetStreamPriorityRange(self) -> Annotated[tuple[I32, I32], "least greatest"]:
        """Return the priorities that a stream may have."""
        return 0, -5

    def cuCtxSynchronize(self) -> None:
        """Return at once: all work has been done when its call returned."""
        self.wait_for()


def _result(error: int) -> Result:
    """Return a result by its number."""
    try:
        return Result(error)
    except ValueError:
        raise DriverError(Result.INVALID_VALUE, f"no result has the number {error}") from None
