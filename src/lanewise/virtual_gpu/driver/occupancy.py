"""Entry points that ask how many blocks and clusters of a function fit, and which functions a module has."""

import ctypes
from math import prod
from typing import Annotated

from lanewise.isa.multiprocessor import WARP
from lanewise.virtual_gpu.driver.entry_points import I32, U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.launches import (
    _ATTRIBUTE_BYTES,
    _CLUSTER,
    _VALUE_OFFSET,
    LaunchCalls,
    _LaunchConfig,
)
from lanewise.virtual_gpu.driver.modules import LoadedFunction, LoadedModule
from lanewise.virtual_gpu.driver.results import DriverError, Result

#: Attributes of a function: the threads that a block may have, and the bytes of its static shared memory.
_MOST_THREADS, _STATIC_SHARED = 0, 1
#: The state of a function that is loaded (CUfunctionLoadingState).
_LOADED = 1
_SHARED_BYTES = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32)


class OccupancyCalls(LaunchCalls):
    """Occupancy of functions, and functions of modules."""

    def cuOccupancyMaxPotentialBlockSize(
        self, function: Handle, shared_of: Pointer, shared_bytes: U64, limit: I32
    ) -> Annotated[tuple[I32, I32], "blocks threads"]:
        """Return the blocks that fill the device and the threads of a block that occupy it most.

        `shared_of` is the address of a function of the program that says how much dynamic shared memory a
        block of some threads has; 0 if every block has `shared_bytes`.
        """
        most = self.cuFuncGetAttribute(_MOST_THREADS, function)
        if limit:
            most = min(most, limit)
        best_threads, best_blocks = 0, 0
        for threads in range(-(-most // WARP) * WARP, 0, -WARP):
            threads = min(threads, most)
            shared = _SHARED_BYTES(shared_of)(threads) if shared_of else shared_bytes
            try:
                blocks = self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
            except DriverError:
                continue  # not one block of so many threads fits
            if blocks * threads > best_blocks * best_threads:
                best_threads, best_blocks = threads, blocks
        return best_blocks * self.device.multiprocessors, best_threads

    def cuOccupancyMaxPotentialBlockSizeWithFlags(
        self, function: Handle, shared_of: Pointer, shared_bytes: U64, limit: I32, flags: U32
    ) -> Annotated[tuple[I32, I32], "blocks threads"]:
        """Return the blocks that fill the device and the threads of a block that occupy it most."""
        return self.cuOccupancyMaxPotentialBlockSize(function, shared_of, shared_bytes, limit)

    def cuModuleGetFunctionCount(self, module: Handle) -> Annotated[U32, "count"]:
        """Return how many functions a module has."""
        return len(self.known(module, LoadedModule).module.entries)

    def cuModuleEnumerateFunctions(self, functions: Pointer, count: U32, module: Handle) -> None:
        """Write handles of the functions of a module, as many as there is room for."""
        names = list(self.known(module, LoadedModule).module.entries)[:count]
        target = (ctypes.c_uint64 * len(names)).from_address(functions)
        target[:] = [self.cuModuleGetFunction(module, name) for name in names]

    def cuFuncIsLoaded(self, function: Handle) -> Annotated[I32, "state"]:
        """Return that a function is loaded."""
        return _LOADED

    def cuFuncLoad(self, function: Handle) -> None:
        """Do nothing: a function is loaded with its module."""

    def cuLibraryGetKernelCount(self, library: Handle) -> Annotated[U32, "count"]:
        """Return how many kernels a library has."""
        return len(self.known(library, LoadedModule).module.entries)

    def cuLibraryEnumerateKernels(self, kernels: Pointer, count: U32, library: Handle) -> None:
        """Write the handles of a library's first kernels."""
        names = list(self.known(library, LoadedModule).module.entries)[:count]
        places = (ctypes.c_uint64 * len(names)).from_address(kernels)
        places[:] = [self.cuLibraryGetKernel(library, name) for name in names]

    def cuOccupancyAvailableDynamicSMemPerBlock(
        self, function: Handle, blocks: I32, threads: I32
    ) -> Annotated[U64, "bytes"]:
        """Return the dynamic shared memory of a block if so many blocks share a multiprocessor."""
        if blocks < 1:
            raise DriverError(Result.INVALID_VALUE, f"a multiprocessor with {blocks} blocks")
        static = self.cuFuncGetAttribute(_STATIC_SHARED, function)
        whole = self.device.multiprocessor.shared_bytes // blocks - self.device.multiprocessor.reserved_bytes
        return max(0, min(whole, self.device.shared_bytes) - static)

    def cuOccupancyMaxActiveClusters(self, function: Handle, config: Pointer) -> Annotated[I32, "clusters"]:
        """Return how many clusters of a launch the device holds at once."""
        self.known(function, LoadedFunction)
        asked = _LaunchConfig.from_address(config)
        blocks = self.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, prod(asked.block), asked.shared_bytes
        )
        size = 1
        for number in range(asked.count):
            place = asked.attributes + number * _ATTRIBUTE_BYTES
            if ctypes.c_uint32.from_address(place).value == _CLUSTER:
                size = prod((ctypes.c_uint32 * 3).from_address(place + _VALUE_OFFSET))
        return blocks * self.device.multiprocessors // size
