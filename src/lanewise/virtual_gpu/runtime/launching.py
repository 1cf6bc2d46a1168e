"""Entry points of the runtime about kernels: what nvcc registers, launches, attributes, streams."""

import ctypes
from math import prod
from typing import Annotated

from lanewise.isa.multiprocessor import LARGEST_BLOCK, LARGEST_GRID, MOST_THREADS
from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer, Text
from lanewise.virtual_gpu.driver.state import PerThread
from lanewise.virtual_gpu.runtime.entry_points import Dim3
from lanewise.virtual_gpu.runtime.registered import Registered

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


class LaunchCalls:
    """Kernels of the program and their launches, in the runtime's words."""

    driver: Driver
    registered: Registered

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)  # type: ignore[call-arg]  # of the class that it is mixed into
        self._calls = PerThread()

    # what nvcc writes ---------------------------------------------------------------------------------------

    def nvcc_RegisterFatBinary(self, image: Pointer) -> int:
        """Keep a fatbin; return its handle."""
        return self.registered.add_fatbin(image)

    def nvcc_RegisterFatBinaryEnd(self, fatbin: Handle) -> None:
        """Do nothing: a fatbin is loaded when something of it is used."""

    def nvcc_UnregisterFatBinary(self, fatbin: Handle) -> None:
        """Do nothing: the program is at its end."""

    def nvcc_RegisterFunction(self, fatbin: int, host: int, device: str, name: str, *limits: int) -> None:
        """Keep a kernel under the address of its host function."""
        self.registered.add_function(fatbin, host, device)

    def nvcc_RegisterVar(self, fatbin: int, host: int, device: str, name: str, *sizes: int) -> None:
        """Keep a variable under the address of its host variable."""
        self.registered.add_variable(fatbin, host, device)

    def nvcc_RegisterManagedVar(self, fatbin: int, host: int, device: str, name: str, *sizes: int) -> None:
        """Keep a managed variable, which the host finds by an address in memory."""
        self.registered.add_managed(fatbin, host, device)

    def nvcc_InitModule(self, fatbin: Handle) -> int:
        """Load a fatbin, so that managed variables have an address; return that it is done."""
        self.registered.load_handle(fatbin)
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
        handle = self.registered.function(function)
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
        handle = self.registered.function(function)
        self.driver.cuLaunchCooperativeKernel(handle, *grid, *block, shared_bytes, stream, parameters)

    def cudaLaunchKernelExC(self, config: Pointer, function: Pointer, parameters: Pointer) -> None:
        """Launch a kernel as a record says, which is the driver's."""
        self.driver.cuLaunchKernelEx(config, self.registered.function(function), parameters, 0)

    # functions ----------------------------------------------------------------------------------------------

    def cudaGetKernel(self, function: Pointer) -> Annotated[Handle, "kernel"]:
        """Return the handle of a kernel."""
        return self.registered.function(function)

    nvcc_GetKernel = cudaGetKernel

    def cudaGetFuncBySymbol(self, symbol: Pointer) -> Annotated[Handle, "function"]:
        """Return the handle of a kernel."""
        return self.registered.function(symbol)

    def cudaFuncGetAttributes(self, attributes: Pointer, function: Pointer) -> None:
        """Write the attributes of a kernel."""
        handle = self.registered.function(function)
        target = _Attributes.from_address(attributes)
        ctypes.memset(attributes, 0, ctypes.sizeof(_Attributes))
        numbers = {
            "threads": 0, "shared_bytes": 1, "constant_bytes": 2, "local_bytes": 3, "registers": 4,
            "ptx_version": 5, "binary_version": 6, "cache_mode": 7, "dynamic_bytes": 8, "carveout": 9,
        }  # fmt: skip
        for name, number in numbers.items():
            setattr(target, name, self.driver.cuFuncGetAttribute(number, handle))

    def cudaFuncSetAttribute(self, function: Pointer, attribute: I32, value: I32) -> None:
        """Keep an attribute of a kernel."""
        self.driver.cuFuncSetAttribute(self.registered.function(function), attribute, value)

    def cudaFuncSetCacheConfig(self, function: Pointer, config: I32) -> None:
        """Do nothing: the machine has no cache."""
        self.registered.function(function)

    cudaFuncSetSharedMemConfig = cudaFuncSetCacheConfig

    def cudaFuncGetName(self, function: Pointer) -> Annotated[Pointer, "name"]:
        """Return the address of the name of a kernel."""
        return self.driver.cuFuncGetName(self.registered.function(function))

    def cudaFuncGetParamInfo(
        self, function: Pointer, index: U64
    ) -> Annotated[tuple[U64, U64], "offset bytes", 2]:
        """Return the offset and the bytes of a parameter."""
        return self.driver.cuFuncGetParamInfo(self.registered.function(function), index)

    # occupancy ----------------------------------------------------------------------------------------------

    def cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: Pointer, threads: I32, shared_bytes: U64
    ) -> Annotated[I32, "blocks"]:
        """Return how many blocks of a kernel a multiprocessor holds; 0 if not even one fits."""
        handle = self.registered.function(function)
        return self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, threads, shared_bytes)

    def cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, function: Pointer, threads: I32, shared_bytes: U64, flags: U32
    ) -> Annotated[I32, "blocks"]:
        """Return how many blocks of a kernel a multiprocessor holds; flags are about its caches."""
        return self.cudaOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared_bytes)

    def cudaOccupancyAvailableDynamicSMemPerBlock(
        self, function: Pointer, blocks: I32, threads: I32
    ) -> Annotated[U64, "bytes"]:
        """Return the bytes of dynamic shared memory that a block may have beside others."""
        handle = self.registered.function(function)
        return self.driver.cuOccupancyAvailableDynamicSMemPerBlock(handle, blocks, threads)

    def cudaOccupancyMaxPotentialClusterSize(
        self, function: Pointer, config: Pointer
    ) -> Annotated[I32, "size"]:
        """Return the blocks of the largest cluster that is portable."""
        return 8

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
