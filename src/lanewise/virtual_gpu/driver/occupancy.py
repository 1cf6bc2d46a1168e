"""Entry points that ask for the best block of a function, and which functions a module has."""

from __future__ import annotations

import ctypes

from lanewise.isa.multiprocessor import WARP
from lanewise.virtual_gpu.driver.launches import LaunchCalls
from lanewise.virtual_gpu.driver.modules import LoadedModule
from lanewise.virtual_gpu.driver.results import DriverError

#: Attributes of a function: the threads that a block may have, and the bytes of its static shared memory.
_MOST_THREADS, _STATIC_SHARED = 0, 1
#: The state of a function that is loaded (CUfunctionLoadingState).
_LOADED = 1
_SHARED_BYTES = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32)


class OccupancyCalls(LaunchCalls):
    """Occupancy of functions, and functions of modules."""

    def cuOccupancyMaxPotentialBlockSize(
        self, function: int, shared_of: int, shared_bytes: int, limit: int
    ) -> tuple[int, int]:
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
        self, function: int, shared_of: int, shared_bytes: int, limit: int, flags: int
    ) -> tuple[int, int]:
        """Return the blocks that fill the device and the threads of a block that occupy it most."""
        return self.cuOccupancyMaxPotentialBlockSize(function, shared_of, shared_bytes, limit)

    def cuModuleGetFunctionCount(self, module: int) -> int:
        """Return how many functions a module has."""
        return len(self.known(module, LoadedModule).module.entries)

    def cuModuleEnumerateFunctions(self, functions: int, count: int, module: int) -> None:
        """Write handles of the functions of a module, as many as there is room for."""
        names = list(self.known(module, LoadedModule).module.entries)[:count]
        target = (ctypes.c_uint64 * len(names)).from_address(functions)
        target[:] = [self.cuModuleGetFunction(module, name) for name in names]

    def cuFuncIsLoaded(self, function: int) -> int:
        """Return that a function is loaded."""
        return _LOADED

    def cuFuncLoad(self, function: int) -> None:
        """Do nothing: a function is loaded with its module."""
