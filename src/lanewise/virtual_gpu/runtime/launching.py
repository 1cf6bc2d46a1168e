"""Entry points of the runtime about kernels: what nvcc registers before main(), launches, streams."""

import ctypes
from dataclasses import dataclass, field
from math import prod
from typing import Annotated

from lanewise.isa.multiprocessor import LARGEST_BLOCK, LARGEST_GRID, MOST_THREADS
from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer, Text
from lanewise.virtual_gpu.driver.state import PerThread
from lanewise.virtual_gpu.runtime.entry_points import Dim3

Three = tuple[int, int, int]


class _Attributes(ctypes.Structure):
    """The first fields of cudaFuncAttributes."""

    _fields_ = (
        ("shared_bytes", ctypes.c_size_t),
        ("constant_bytes", ctypes.c_size_t),
        ("local_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in (
            "threads", "registers", "ptx_version", "binary_version", "cache_mode", "dynamic_bytes",
            "carveout",
            "needs_cluster", "cluster_x", "cluster_y", "cluster_z", "policy", "large_clusters",
        )),
    )  # fmt: skip


@dataclass
class Fatbin:
    """A fatbin of the program, whose PTX is loaded when something of it is first used."""

    place: int
    #: The address of this is the handle that the program keeps.
    cell: ctypes.c_uint64 = field(default_factory=ctypes.c_uint64)
    module: int | None = None
    #: Managed variables: where the host keeps their address, and their names.
    managed: list[tuple[int, str]] = field(default_factory=list)


class LaunchCalls:
    """Kernels and variables of the program, launches, streams, in the runtime's words."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._fatbins: dict[int, Fatbin] = {}
        #: Kernels and variables by their host addresses.
        self._names: dict[int, tuple[Fatbin, str]] = {}
        self._variables: dict[int, tuple[Fatbin, str]] = {}
        self._functions: dict[int, int] = {}
        self._calls = PerThread()

    def load(self, fatbin: Fatbin) -> int:
        """Return the handle of a fatbin's module, and tell the host where managed variables are."""
        if fatbin.module is None:
            fatbin.module = self.driver.cuModuleLoadData(fatbin.place)
            for host, name in fatbin.managed:
                address, _ = self.driver.cuModuleGetGlobal_v2(fatbin.module, name)
                ctypes.c_uint64.from_address(host).value = address
        return fatbin.module

    def load_handle(self, handle: int) -> None:
        """Load a fatbin by its handle."""
        self.load(self._fatbins[handle])

    def function(self, host: int) -> int:
        """Return the handle of a kernel by its host address; a handle is returned as it is."""
        if not host:  # nvcc's code asked for a kernel that has no PTX; that was told when it asked
            raise DriverError(Result.NO_BINARY_FOR_GPU, "")
        known = self._functions.get(host)
        if known is None:
            if host not in self._names:
                if self.driver.is_function(host):
                    return host
                raise DriverError(Result.INVALID_DEVICE_FUNCTION, f"{host:#x} is no kernel of the program")
            fatbin, name = self._names[host]
            known = self._functions[host] = self.driver.cuModuleGetFunction(self.load(fatbin), name)
        return known

    def variable(self, host: int) -> tuple[int, int]:
        """Return the address and the bytes of a variable by its host address."""
        if host not in self._variables:
            raise DriverError(Result.INVALID_SYMBOL, f"{host:#x} is no variable of the device")
        fatbin, name = self._variables[host]
        return self.driver.cuModuleGetGlobal_v2(self.load(fatbin), name)

    # what nvcc writes ---------------------------------------------------------------------------------------

    def nvcc_RegisterFatBinary(self, image: Pointer) -> int:
        """Keep a fatbin; return its handle."""
        fatbin = Fatbin(image)
        handle = ctypes.addressof(fatbin.cell)
        self._fatbins[handle] = fatbin
        return handle

    def nvcc_RegisterFunction(self, fatbin: int, host: int, device: str, name: str, *limits: int) -> None:
        """Keep a kernel under the address of its host function."""
        self._names[host] = (self._fatbins[fatbin], device)

    def nvcc_RegisterVar(self, fatbin: int, host: int, device: str, name: str, *sizes: int) -> None:
        """Keep a variable under the address of its host variable."""
        self._variables[host] = (self._fatbins[fatbin], device)

    def nvcc_RegisterManagedVar(self, fatbin: int, host: int, device: str, name: str, *sizes: int) -> None:
        """Keep a managed variable, which the host finds by an address in memory."""
        self._fatbins[fatbin].managed.append((host, device))
        self._variables[host] = (self._fatbins[fatbin], device)

    def nvcc_InitModule(self, fatbin: Handle) -> int:
        """Load a fatbin, so that managed variables have an address; return that it is done."""
        self.load(self._fatbins[fatbin])
        return 1

    def nvcc_PushCallConfiguration(self, grid: Dim3, block: Dim3, shared_bytes: U64, stream: Handle) -> int:
        """Keep what stands between <<< and >>> until the kernel's host function asks for it."""
        self._configurations().append((grid, block, shared_bytes, stream))
        return 0

    def nvcc_PopCallConfiguration(
        self, grid: Pointer, block: Pointer
    ) -> Annotated[tuple[U64, Handle], "shared_bytes stream", 2]:
        """Write and return what stood between <<< and >>>."""
        own_grid, own_block, shared_bytes, stream = self._configurations().pop()
        (ctypes.c_uint32 * 3).from_address(grid)[:] = list(own_grid)
        (ctypes.c_uint32 * 3).from_address(block)[:] = list(own_block)
        return shared_bytes, stream

    def _configurations(self) -> list[tuple[Three, Three, int, int]]:
        if not hasattr(self._calls, "stack"):
            self._calls.stack = []
        stack: list[tuple[Three, Three, int, int]] = self._calls.stack
        return stack

    # launches -----------------------------------------------------------------------------------------------

    def cudaLaunchKernel(
        self,
        function: Pointer,
        grid: Dim3,
        block: Dim3,
        parameters: Pointer,
        shared_bytes: U64,
        stream: Handle,
    ) -> None:
        """Launch a kernel by the address of its host function."""
        _require_sizes(grid, block)
        handle = self.function(function)
        self.driver.cuLaunchKernel(handle, *grid, *block, shared_bytes, stream, parameters, 0)

    nvcc_LaunchKernel = cudaLaunchKernel

    def cudaLaunchCooperativeKernel(
        self,
        function: Pointer,
        grid: Dim3,
        block: Dim3,
        parameters: Pointer,
        shared_bytes: U64,
        stream: Handle,
    ) -> None:
        """Launch a kernel whose blocks wait for each other."""
        _require_sizes(grid, block)
        handle = self.function(function)
        self.driver.cuLaunchCooperativeKernel(handle, *grid, *block, shared_bytes, stream, parameters)

    def cudaLaunchKernelExC(self, config: Pointer, function: Pointer, parameters: Pointer) -> None:
        """Launch a kernel as a record says, which is the driver's."""
        self.driver.cuLaunchKernelEx(config, self.function(function), parameters, 0)

    # functions ----------------------------------------------------------------------------------------------

    def cudaGetKernel(self, function: Pointer) -> Annotated[Handle, "kernel"]:
        """Return the handle of a kernel."""
        return self.function(function)

    nvcc_GetKernel = cudaGetKernel

    def cudaGetFuncBySymbol(self, symbol: Pointer) -> Annotated[Handle, "function"]:
        """Return the handle of a kernel."""
        return self.function(symbol)

    def cudaFuncGetAttributes(self, attributes: Pointer, function: Pointer) -> None:
        """Write the attributes of a kernel."""
        handle = self.function(function)
        target = _Attributes.from_address(attributes)
        ctypes.memset(attributes, 0, ctypes.sizeof(_Attributes))
        numbers = {
            "threads": 0, "shared_bytes": 1, "constant_bytes": 2, "local_bytes": 3, "registers": 4,
            "ptx_version": 5, "binary_version": 6, "cache_mode": 7, "dynamic_bytes": 8, "carveout": 9,
        }  # fmt: skip
        for name, number in numbers.items():
            setattr(target, name, self.driver.cuFuncGetAttribute(number, handle))

    # occupancy ----------------------------------------------------------------------------------------------

    def cudaOccupancyMaxActiveClusters(
        self, function: Pointer, config: Pointer
    ) -> Annotated[I32, "clusters"]:
        """Return how many clusters of a launch fit: one for every 16 multiprocessors."""
        return max(1, self.driver.device.multiprocessors // 16)

    # streams ------------------------------------------------------------------------------------------------

    def cudaStreamCreate(self) -> Annotated[Handle, "stream"]:
        """Return a new stream that waits for the default stream."""
        return self.driver.cuStreamCreate(0)

    def cudaEventCreate(self) -> Annotated[Handle, "event"]:
        """Return a new event that keeps its time."""
        return self.driver.cuEventCreate(0)

    def cudaStreamGetId(self, stream: Handle) -> Annotated[U64, "id", 1]:
        """Return the handle of a stream, which is a number of its own."""
        self.driver.stream(stream)
        return stream

    def cudaStreamGetDevice(self, stream: Handle) -> Annotated[I32, "device", 1]:
        """Return device 0, which is the only one."""
        self.driver.stream(stream)
        return 0

    def cudaStreamSetAttribute(self, stream: Handle, attribute: I32, value: Pointer) -> None:
        """Do nothing: attributes are about caches and priorities."""
        self.driver.stream(stream)

    def cudaStreamAddCallback(self, stream: Handle, function: Pointer, data: Pointer, flags: U32) -> None:
        """Call a function of the host at once, with the stream and that there was no error."""
        self.driver.stream(stream)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
        kind(function)(stream, 0, data)
        self.driver.host_waited()

    def cudaGetDriverEntryPoint(
        self, symbol: Text, flags: U64, status: Pointer
    ) -> Annotated[Pointer, "function", 1]:
        """Return the address of an entry point of the driver."""
        return self.cudaGetDriverEntryPointByVersion(symbol, 13000, flags, status)

    def cudaGetDriverEntryPointByVersion(
        self, symbol: Text, version: U32, flags: U64, status: Pointer
    ) -> Annotated[Pointer, "function", 1]:
        """Return the address of an entry point of the driver; 0 and a status if there is none."""
        place = self.driver.entry_point(symbol, version)
        if status:
            ctypes.c_int32.from_address(status).value = 0 if place else 1
        return place


def _require_sizes(grid: Three, block: Three) -> None:
    """Raise an error for a grid or a block that no GPU can launch."""
    is_legal = prod(block) <= MOST_THREADS and all(
        0 < size <= most for size, most in zip((*grid, *block), (*LARGEST_GRID, *LARGEST_BLOCK), strict=True)
    )
    if not is_legal:
        raise DriverError(
            Result.INVALID_CONFIGURATION,
            f"a grid of {grid} and a block of {block}: each size is at least 1, those of a block are at most "
            f"{LARGEST_BLOCK} and {MOST_THREADS:,} threads in all, those of a grid at most {LARGEST_GRID}",
        )
