"""Entry points about the kernels of a library, and how many of their blocks and clusters fit."""

from __future__ import annotations

import ctypes
from math import prod

from lanewise.virtual_gpu.driver.launches import (
    _ATTRIBUTE_BYTES,
    _CLUSTER,
    _VALUE_OFFSET,
    LaunchCalls,
    _LaunchConfig,
)
from lanewise.virtual_gpu.driver.modules import LoadedFunction, LoadedModule
from lanewise.virtual_gpu.driver.results import DriverError, Result


class LibraryKernelCalls(LaunchCalls):
    """The kernels of a library by number, and occupancy by clusters."""

    def cuLibraryGetKernelCount(self, library: int) -> int:
        """Return how many kernels a library has."""
        return len(self.known(library, LoadedModule).module.entries)

    def cuLibraryEnumerateKernels(self, kernels: int, count: int, library: int) -> None:
        """Write the handles of a library's first kernels."""
        names = list(self.known(library, LoadedModule).module.entries)[:count]
        places = (ctypes.c_uint64 * len(names)).from_address(kernels)
        places[:] = [self.cuLibraryGetKernel(library, name) for name in names]

    def cuOccupancyAvailableDynamicSMemPerBlock(self, function: int, blocks: int, threads: int) -> int:
        """Return the dynamic shared memory of a block if so many blocks share a multiprocessor."""
        if blocks < 1:
            raise DriverError(Result.INVALID_VALUE, f"a multiprocessor with {blocks} blocks")
        static = self.cuFuncGetAttribute(1, function)
        whole = self.device.multiprocessor.shared_bytes // blocks - self.device.multiprocessor.reserved_bytes
        return max(0, min(whole, self.device.shared_bytes) - static)

    def cuOccupancyMaxActiveClusters(self, function: int, config: int) -> int:
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
