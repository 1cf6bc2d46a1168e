"""What a build of torch for CPUs lacks: functions of C++, libraries, DLPack's device, block-scaled products,
and tensors that begin where device memory does.

`torch.cuda._compile_kernel` asks the loader for the driver and for NVRTC by their names.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lanewise.linalg.block_scaling import SwizzledScales
from lanewise.virtual_gpu.frameworks.driver_library import install as load_driver_library
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.library.runtime_compiler import CompilerLibrary, load_compiler
from lanewise.virtual_gpu.library.stand_in import X86_64, this_processor
from lanewise.virtual_gpu.programs.elf_file import ElfFile


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


#: What the addresses of cudaMalloc are multiples of.
ALIGNMENT = 512
_FUNCTION = "posix_memalign"


def _code(target: int) -> bytes:
    """Return code that raises the alignment of posix_memalign to ALIGNMENT and goes on at a target."""
    least = struct.pack("<I", ALIGNMENT)
    compare = b"\x48\x81\xfe" + least + b"\x73\x05"  # cmp rsi, least; jae over the next instruction
    return compare + b"\xbe" + least + b"\x49\xbb" + struct.pack("<Q", target) + b"\x41\xff\xe3"


@cache
def align_tensors() -> mmap.mmap | None:
    """Let torch align memory of new tensors to 512 bytes, for the rest of the process, and not to a CPU's 64.

    Programs rely on it: CuTe DSL asks for tensors that are aligned to 128 bytes. torch's library for memory
    calls `posix_memalign` with its own alignment; in the table of that library's imports, a few instructions
    take the place of the function: they raise the alignment and go on with the C library's.

    It returns the memory with the code, or None where torch or the processor is another one: then tensors
    stay where they are.
    """
    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if this_processor() is not X86_64 or not path.is_file():
        return None
    file = ElfFile(path.read_bytes())
    places = [place for name, place in file.imports() if name == _FUNCTION]
    libc = ctypes.CDLL(None)
    target = ctypes.cast(getattr(libc, _FUNCTION), ctypes.c_void_p).value
    if not places or target is None:
        return None
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a system that allows no new code
        return None
    memory.write(_code(target))
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    library = ctypes.CDLL(str(path))
    base = ctypes.c_uint64.from_address(library._handle).value  # the loader's record begins with it
    for place in places:
        page = (base + place) // mmap.PAGESIZE * mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 3) == 0:  # read and write
            ctypes.c_uint64.from_address(base + place).value = begin
    return memory
