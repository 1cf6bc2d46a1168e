"""What a build of torch for CPUs lacks, where libraries ask for it directly: functions of C++, and libraries.

`torch.cuda._compile_kernel` asks the loader for the driver and for NVRTC by their names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from lanewise.ptx.tools.nvrtc_library import installed_libraries
from lanewise.virtual_gpu.frameworks.driver_library import install as load_driver_library
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


def _empty_strided(shape: Any, strides: Any, dtype: Any) -> Any:
    """Return an uninitialised tensor on the device."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _current_stream(*_: Any) -> int:
    """Return the handle of torch's current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def install_torch_extension(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch._C` answer for the virtual GPU, until the patches are taken back."""
    answers: dict[str, Callable[..., Any]] = {
        "_cuda_getCurrentRawStream": _current_stream,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda *_: None,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_synchronize": lambda *_: None,
        "_cuda_exchangeDevice": lambda *_: 0,
        "_cuda_maybeExchangeDevice": lambda *_: 0,
    }
    for name, answer in answers.items():
        patches.set(torch._C, name, answer)
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if guards is not None:
        patches.set(guards, "_empty_strided_cuda", _empty_strided)
    _install_libraries(gpu, patches)


def _install_libraries(gpu: FrameworkState, patches: Patches) -> None:
    """Let torch find the virtual GPU's driver, and NVRTC where it is installed as a package."""
    import torch.cuda._utils as utils

    loaded: list[bool] = []

    def driver(own: Callable[[], Any]) -> Any:
        if not loaded:
            load_driver_library(gpu, patches)
            loaded.append(True)
        return own()

    def compiler(own: Callable[[], Any]) -> Any:
        return CompilerLibrary(gpu, _compiler_library(own))

    patches.wrap(utils, "_get_cuda_library", driver)
    patches.wrap(utils, "_get_nvrtc_library", compiler)
    if not hasattr(torch.cuda.Stream, "_as_parameter_"):
        patches.set(torch.cuda.Stream, "_as_parameter_", property(_handle_of))


def _compiler_library(own: Callable[[], Any]) -> Any:
    """Return NVRTC as the loader finds it, or where it is installed as a package."""
    try:
        return own()
    except OSError:
        for path in installed_libraries():
            for builtins in path.parent.glob("libnvrtc-builtins.so*"):  # NVRTC asks for it by name
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(path))
        raise


class CompilerLibrary:
    """NVRTC; where a program takes a cubin of it, the driver is told the PTX."""

    def __init__(self, gpu: FrameworkState, library: Any) -> None:
        self._gpu, self._library = gpu, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvrtcGetCUBIN(self, program: Any, place: Any) -> int:
        """Write the cubin of a program."""
        result = int(self._library.nvrtcGetCUBIN(program, place))
        size, length = ctypes.c_size_t(), ctypes.c_size_t()
        self._library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        if not self._library.nvrtcGetPTXSize(program, ctypes.byref(length)) and length.value > 1:
            ptx = ctypes.create_string_buffer(length.value)
            self._library.nvrtcGetPTX(program, ptx)
            self._gpu.driver.know_ptx(ctypes.string_at(place, size.value), ptx.value.decode())
        return result


def _handle_of(stream: Any) -> ctypes.c_void_p:
    """Return a stream as ctypes passes it to C."""
    return ctypes.c_void_p(stream.cuda_stream)
