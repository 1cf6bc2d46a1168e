"""Variables of a module that is loaded on a device, read and written by the host."""

import ctypes

from lanewise.gpu.device import Context
from lanewise.gpu.faults import GpuError


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
