"""A module on a device: loaded once a context, its kernels with what they need and allow, its variables."""

from __future__ import annotations

import ctypes
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

from lanewise.gpu.assemble import cubin
from lanewise.gpu.device import Context, context
from lanewise.gpu.driver import GpuError
from lanewise.isa.multiprocessor import PORTABLE_CLUSTER_BLOCKS
from lanewise.ptx import Shape, cluster_refusal

if TYPE_CHECKING:
    from lanewise.ptx import Entry, Module


#: Numbers of attributes of a function (CUfunction_attribute).
_MOST_THREADS, _SHARED, _REGISTERS, _MOST_DYNAMIC, _LARGE_CLUSTERS = 0, 1, 4, 8, 14
#: Shared memory that a block has without asking for more.
_PLAIN_SHARED = 48 * 1024

_MODULES: dict[tuple[int, int], int] = {}
_KERNELS: dict[tuple[int, str, int], Loaded] = {}


class Loaded:
    """A kernel on a device."""

    def __init__(self, name: str, function: int, context: Context) -> None:
        self.name, self.function, self.context = name, function, context
        self._dynamic = 0
        self._fitting: set[Shape] = set()

    def _attribute(self, number: int) -> int:
        with self.context.current():
            return self.context.driver.number("cuFuncGetAttribute", number, self.function)

    @cached_property
    def registers(self) -> int:
        """Registers of a thread."""
        return self._attribute(_REGISTERS)

    @cached_property
    def most_threads(self) -> int:
        """Threads that a block of it can have on this device."""
        return self._attribute(_MOST_THREADS)

    @cached_property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self._attribute(_SHARED)

    def fit(self, shape: Shape) -> None:
        """See to it that the device can launch a configuration, or say why it cannot."""
        if shape in self._fitting:
            return
        device = self.context.device
        if shape.threads > self.most_threads:
            raise GpuError(
                f"{self.name}: {shape.threads} threads a block are too many: with its {self.registers} "
                f"registers a thread, {device.name} runs {self.most_threads} at most; launch fewer, or bound "
                "the registers (.maxntid, __launch_bounds__)",
                self.name,
                "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            )
        wanted = self.shared_bytes + shape.shared_bytes
        if wanted > device.most_shared:
            raise GpuError(
                f"{self.name}: {wanted} bytes of shared memory a block ({self.shared_bytes} static, "
                f"{shape.shared_bytes} dynamic) are too many: {device.name} has {device.most_shared}",
                self.name,
                "CUDA_ERROR_INVALID_VALUE",
            )
        if wanted > _PLAIN_SHARED and shape.shared_bytes > self._dynamic:
            with self.context.current():
                self.context.driver(
                    "cuFuncSetAttribute", self.function, _MOST_DYNAMIC, shape.shared_bytes, kernel=self.name
                )
            self._dynamic = shape.shared_bytes
        if shape.cluster is not None:
            self._fit_cluster(shape)
        self._fitting.add(shape)

    def _fit_cluster(self, shape: Shape) -> None:
        """See to it that the device can launch clusters of this shape, or say why it cannot."""
        arch = self.context.device.arch
        refused = cluster_refusal(shape, arch, arch)
        if refused is not None:
            raise GpuError(f"{self.name}: {refused}", self.name, "CUDA_ERROR_INVALID_CLUSTER_SIZE")
        if shape.cluster_blocks > PORTABLE_CLUSTER_BLOCKS:
            with self.context.current():
                self.context.driver("cuFuncSetAttribute", self.function, _LARGE_CLUSTERS, 1, kernel=self.name)


def forget_contexts() -> None:
    """Forget all devices and what is loaded there: the driver has others from now on."""
    context.cache_clear()
    _MODULES.clear()
    _KERNELS.clear()


def loaded(entry: Entry, there: Context) -> Loaded:
    """A kernel on a device, loaded now if it was not before."""
    key = (id(entry.module), entry.name, there.ordinal)
    kernel = _KERNELS.get(key)
    if kernel is None:
        driver = there.driver
        with there.current():
            function = driver.handle(
                "cuModuleGetFunction",
                _module(entry.module, there, entry.name),
                entry.name.encode(),
                kernel=entry.name,
            )
        kernel = _KERNELS.setdefault(key, Loaded(entry.name, function, there))
        weakref.finalize(entry.module, _KERNELS.pop, key, None)
    return kernel


def loaded_on(module: Module) -> list[tuple[Context, int]]:
    """The devices on which a module is loaded, each with the module's handle there."""
    return [(context(ordinal), handle) for (key, ordinal), handle in _MODULES.items() if key == id(module)]


def _module(module: Module, there: Context, kernel: str) -> int:
    """The module's handle. A module has variables of its own, so two of the same text are loaded twice."""
    key = (id(module), there.ordinal)
    if key not in _MODULES:
        image = cubin(module, there, kernel)
        handle = there.driver.handle("cuModuleLoadData", image, kernel=kernel)
        for name, raw in module.written_globals.items():
            write_variable(there, handle, name, raw)
        _MODULES[key] = handle
        # It stays loaded: when the Module is forgotten, a kernel of it may still be running, and a captured
        # graph may launch one again, of which nobody tells us.
        weakref.finalize(module, _MODULES.pop, key, None)
    return _MODULES[key]


def _place(context: Context, module: int, name: str) -> tuple[int, int]:
    """Where a variable lies, and its bytes."""
    place, size = ctypes.c_uint64(), ctypes.c_size_t()
    context.driver("cuModuleGetGlobal_v2", ctypes.byref(place), ctypes.byref(size), module, name.encode())
    return place.value, size.value


def read_variable(context: Context, module: int, name: str, size: int) -> bytes:
    """The bytes of a variable, once all kernels that were launched before are done."""
    with context.current():
        context.driver("cuCtxSynchronize", kernel=context.last)
        place, there = _place(context, module, name)
        _require_size(name, there, size)
        raw = ctypes.create_string_buffer(size)
        context.driver("cuMemcpyDtoH_v2", raw, place, size)
        return raw.raw


def write_variable(context: Context, module: int, name: str, raw: bytes) -> None:
    """Write the bytes of a variable, once all kernels that were launched before are done."""
    with context.current():
        context.driver("cuCtxSynchronize", kernel=context.last)
        place, there = _place(context, module, name)
        _require_size(name, there, len(raw))
        context.driver("cuMemcpyHtoD_v2", place, raw, len(raw))


def _require_size(name: str, there: int, size: int) -> None:
    """An error if a variable has another size on the device than in the PTX."""
    if there != size:
        raise GpuError(f"{name} has {there} bytes on the device and {size} in the PTX")
