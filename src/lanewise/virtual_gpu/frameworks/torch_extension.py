"""What a build of torch for CPUs lacks: functions of C++, libraries, DLPack's device, block-scaled products.

`torch.cuda._compile_kernel` asks the loader for the driver and for NVRTC by their names.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lanewise.linalg.block_scaling.formats import SwizzledScales
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


#: Elements along K that share a scale factor, by the type of the factors.
_BLOCKS = {torch.float8_e8m0fnu: 32, torch.float8_e4m3fn: 16}
_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return what `torch._scaled_mm` does on a GPU; products without blocks are left to torch.

    The scale factors lie in the 128×4 order of cuBLAS. The product is computed in float64 and rounded once.

    >>> ones = torch.full((128, 64), 0x22, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    >>> scale = torch.ones(128 * 8).to(torch.float8_e4m3fn)
    >>> float(scaled_mm(ones, ones.T, scale, scale, out_dtype=torch.float32)[5, 7])
    128.0
    """
    block = _BLOCKS.get(scale_a.dtype)
    if block is None:
        return torch._scaled_mm(a, b, scale_a, scale_b, *args, **kwargs)
    bias, _, out_dtype = (*args, *[None] * 3)[:3]
    bias, out_dtype = kwargs.get("bias", bias), kwargs.get("out_dtype", out_dtype)
    left, right = (_numbers(matrix, scale, block) for matrix, scale in ((a, scale_a), (b.T, scale_b)))
    product = left @ right.T
    if bias is not None:
        product += bias.double()
    return product.to(out_dtype or a.dtype)


def _numbers(matrix: Tensor, scale: Tensor, block: int) -> Tensor:
    """Return the rows of a matrix in float64, each block times its factor."""
    if matrix.dtype == torch.float4_e2m1fn_x2:
        packed = matrix.contiguous().view(torch.uint8)
        codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).long()
        numbers = _E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    else:
        numbers = matrix.double()
    rows, k = numbers.shape
    words = scale.flatten().view(torch.uint8).numpy()
    factors = torch.from_numpy(SwizzledScales(words, rows, -(-k // block)).plain()).view(scale.dtype)
    return numbers * factors.double().repeat_interleave(block, 1)[:, :k]


#: Kinds of devices by the numbers of dlpack.h.
DLPACK_HOST, DLPACK_CUDA = 1, 2
#: Where the kind of the device stands in what a capsule of each name points to. The newer one begins with a
#: version, the manager, its deleter and flags.
_DEVICE_OFFSETS = {b"dltensor": 8, b"dltensor_versioned": 40}

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _capsule_device(capsule: object) -> ctypes.c_int32:
    """Return the word of a capsule that has the kind of its device."""
    for name, offset in _DEVICE_OFFSETS.items():
        if _api.PyCapsule_IsValid(capsule, name):
            return ctypes.c_int32.from_address(_api.PyCapsule_GetPointer(capsule, name) + offset)
    raise TypeError("the capsule is not one of DLPack's, or its tensor was taken from it already")


def set_capsule_device(capsule: object, kind: int) -> None:
    """Change the kind of the device that a capsule names."""
    _capsule_device(capsule).value = kind


def install_torch_dlpack(gpu: FrameworkState, patches: Patches) -> None:
    """Let torch take capsules of the virtual device, until the patches are taken back."""

    def from_dlpack(own: Callable[..., torch.Tensor], value: object, **options: object) -> torch.Tensor:
        capsule = value.__dlpack__() if hasattr(value, "__dlpack__") else value
        word = _capsule_device(capsule)
        on_device = word.value == DLPACK_CUDA
        word.value = DLPACK_HOST if on_device else word.value
        result = own(capsule, **options)
        if on_device:
            gpu.torch.add(result)
        return result

    patches.wrap(torch, "from_dlpack", from_dlpack)
    patches.wrap(torch.utils.dlpack, "from_dlpack", from_dlpack)
