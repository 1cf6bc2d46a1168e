"""What a build of torch for CPUs lacks, where libraries ask for it directly: functions of C++, and libraries.

`torch.cuda._compile_kernel` asks the loader for the driver and for NVRTC by their names.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from lanewise.virtual_gpu.frameworks.driver_library import install as load_driver_library
from lanewise.virtual_gpu.frameworks.patches import Patches
from lanewise.virtual_gpu.library.runtime_compiler import CompilerLibrary, load_compiler

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


def _empty_strided(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialised tensor on the device."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _current_stream(*_: object) -> int:
    """Return the handle of torch's current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def install_torch_extension(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch._C` answer for the virtual GPU, until the patches are taken back."""
    answers: dict[str, Callable[..., object]] = {
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

    @functools.cache
    def load() -> None:
        load_driver_library(gpu, patches)

    def driver(own: Callable[[], object]) -> object:
        load()
        return own()

    def compiler(own: Callable[[], object]) -> CompilerLibrary:
        return CompilerLibrary(gpu.driver, _compiler_library(own))

    patches.wrap(utils, "_get_cuda_library", driver)
    patches.wrap(utils, "_get_nvrtc_library", compiler)
    if not hasattr(torch.cuda.Stream, "_as_parameter_"):
        patches.set(torch.cuda.Stream, "_as_parameter_", property(_handle_of))


def _compiler_library(own: Callable[[], object]) -> Any:
    """Return NVRTC as the loader finds it, or where it is installed as a package."""
    try:
        return own()
    except OSError:
        library = load_compiler()
        if library is None:
            raise
        return library


def _handle_of(stream: torch.cuda.Stream) -> ctypes.c_void_p:
    """Return a stream as ctypes passes it to C."""
    return ctypes.c_void_p(stream.cuda_stream)
