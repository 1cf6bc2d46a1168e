"""CuTe DSL under a virtual GPU: its PTX is run, and its runtime library is answered by the driver.

The compiler writes a cubin into the program; it is asked for the PTX as well, and the driver takes the PTX
where the program loads the cubin.
The host function of a CuTe DSL program is native code. It calls functions of libcute_dsl_runtime.so, which
has NVIDIA's CUDA runtime in it; that runtime asks a driver for tables that are not documented. So the
compiler is given another library first, with the same functions, and Python answers them.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.virtual_gpu.driver.driver import entry_points
from lanewise.virtual_gpu.driver.entry_points import EntryPoint
from lanewise.virtual_gpu.driver.results import Result
from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.library.stand_in import StandIn
from lanewise.virtual_gpu.runtime.entry_points import driver_names

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver.driver import Driver

_LIBRARY = "liblanewise_cute_dsl_runtime.so"
#: Functions of the library that are entry points of the driver, with a line before the name.
_OF_THE_DRIVER = (
    "cuDeviceGet",
    "cuKernelGetAttribute",
    "cuLibraryGetGlobal",
    "cuLibraryGetKernel",
    "cuLibraryGetModule",
    "cuLibraryLoadData",
    "cuLibraryUnload",
    "cuTensorMapEncodeTiled",
)
#: Functions that the driver answers as it does those of the CUDA runtime.
_OF_THE_RUNTIME = """
_cudaDeviceGetAttribute _cudaDeviceSynchronize _cudaEventDestroy _cudaEventElapsedTime _cudaEventRecord
_cudaFree _cudaFreeAsync _cudaFreeHost _cudaFuncSetAttribute _cudaGetDeviceCount _cudaLibraryGetGlobal
_cudaLibraryGetKernel _cudaLibraryLoadData _cudaLibraryUnload _cudaMallocAsync _cudaMallocManaged
_cudaOccupancyMaxActiveBlocksPerMultiprocessor _cudaStreamDestroy _cudaStreamSynchronize
"""
#: Other functions of the library, and the entry point of the driver that answers each. It takes the
#: arguments of the function in their order, unless their numbers are here, or a constant behind `=`.
_OTHERS = {
    "_cudaEventCreate": "cuEventCreate 0 =0",
    "_cudaGetDevice": "cuDeviceGet 0 =0",
    "_cudaKernelSetAttributeForDevice": "cuKernelSetAttribute 1 2 0 3",
    "_cudaLaunchKernel": "cuLaunchKernel 0 1 2 3 4 5 6 8 9 7 =0",
    "_cudaLaunchKernelEx": "cuLaunchKernelEx 0 1 2 =0",
    "_cudaMalloc": "cuMemAlloc_v2",
    "_cudaMallocHost": "cuMemAllocHost_v2",
    "_cudaMemcpy": "cuMemcpy",
    "_cudaMemcpyAsync": "cuMemcpyAsync 0 1 2 4",
    "_cudaMemset": "cuMemsetD8_v2",
    "_cudaMemsetAsync": "cuMemsetD8Async",
    "_cudaSetDevice": "cuInit =0",
    "_cudaStreamCreate": "cuStreamCreate 0 =0",
    "_cudaStreamWaitEvent": "cuStreamWaitEvent 0 1 =0",
}
_INIT_ONCE, _UNLOAD_ONCE = "cuda_dialect_init_library_once", "cuda_dialect_unload_library_once"


class RuntimeFunctions:
    """What answers the functions of CuTe DSL's runtime library."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the functions that the library exports."""
        of_the_driver = (f"_{name}" for name in _OF_THE_DRIVER)
        return (*of_the_driver, *_OF_THE_RUNTIME.split(), *_OTHERS, _INIT_ONCE, _UNLOAD_ONCE)

    def __call__(self, name: str, words: Callable[[int], list[int]]) -> int:
        """Answer a function of the library."""
        if name == _INIT_ONCE:
            return self._init_once(*words(3))
        if name == _UNLOAD_ONCE:
            return self._unload_once(*words(1))
        entry, places, count = _translation(name)
        own = words(count)
        return int(self.driver.call(entry.name, [place(own) for place in places]))

    def _init_once(self, library: int, load: int, load_to_device: int) -> int:
        """Load a library if it is not loaded: by a function of the program, then by one for the device."""
        place = ctypes.c_uint64.from_address(library)
        if place.value:
            return 0
        handle = ctypes.c_uint64(0)
        error = int(ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(load)(ctypes.addressof(handle)))
        if not error and load_to_device:
            to_device = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(load_to_device)
            error = int(to_device(ctypes.addressof(handle), 0))
        if not error:
            place.value = handle.value
        return error and -1 & 0xFFFFFFFF

    def _unload_once(self, library: int) -> int:
        place = ctypes.c_uint64.from_address(library)
        handle, place.value = place.value, 0
        return int(self.driver.call("cuLibraryUnload", [handle])) if handle else int(Result.SUCCESS)


@cache
def _translation(name: str) -> tuple[EntryPoint, list[Callable[[list[int]], int]], int]:
    """Return the entry point that answers a function, where its arguments are, and how many to read."""
    plain = name.removeprefix("_")
    target, *places = (_OTHERS.get(name) or driver_names().get(plain, plain)).split()
    entry = entry_points()[target]
    if not places:
        places = [str(number) for number in range(len(entry.parameters))]

    def reader(place: str) -> Callable[[list[int]], int]:
        if place.startswith("="):
            constant = int(place[1:])
            return lambda own: constant
        number = int(place)
        return lambda own: own[number]

    numbers = [int(place) for place in places if not place.startswith("=")]
    return entry, [reader(place) for place in places], max(numbers, default=-1) + 1


class KeptPTX:
    """The PTX of each cubin that CuTe DSL's compiler made; it writes both to files in a folder."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._folder = tempfile.TemporaryDirectory(prefix="lanewise-cute-")

    def ask_for_files(self, compile_options: Any, function_name: str) -> None:
        """Let the compiler write the PTX and the cubin of a function."""
        from cutlass.base_dsl.compiler import KeepCUBIN, KeepPTX

        folder, arch = self._folder.name, self.driver.device.arch
        for kind, ending in ((KeepPTX, "ptx"), (KeepCUBIN, "cubin")):
            option = compile_options.options[kind]
            if not option.value:  # the program may want them in a folder of its own
                option.value = True
                compile_options._set_artifact_dump_paths(
                    option, folder, function_name, arch, ending, f"full_{ending}_path"
                )

    def note(self, compile_options: Any) -> None:
        """Tell the driver the PTX of the cubins that were just made."""
        ptx, cubin = (Path(path) for path in (compile_options.full_ptx_path, compile_options.full_cubin_path))
        if ptx.exists() and cubin.exists():
            self.driver.know_ptx(cubin.read_bytes(), ptx.read_text())

    def close(self) -> None:
        """Remove the folder with the files that the compiler wrote."""
        self._folder.cleanup()


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let CuTe DSL compile for the virtual GPU and run there, until the patches are taken back."""
    try:
        from cutlass.base_dsl.compiler import CompileOptions
        from cutlass.base_dsl.dsl import BaseDSL
        from cutlass.cute import runtime
    except ImportError:  # another package named cutlass
        return
    library = StandIn(_LIBRARY, RuntimeFunctions.names(), RuntimeFunctions(gpu.driver))
    patches.callback(library.close)
    kept = KeptPTX(gpu.driver)
    patches.callback(kept.close)

    def shared_libraries(own: Any, dsl: object) -> list[str]:
        return [str(library.path), *own(dsl)]

    def settings(own: Any, compile_options: object, envar: Any, function_name: str) -> None:
        if not envar.lineinfo:  # findings name the line of the Python function
            patches.set(envar, "lineinfo", True)
        if not envar.disable_file_caching:  # of what is kept on disk, there is no PTX
            patches.set(envar, "disable_file_caching", True)
        own(compile_options, envar, function_name)
        kept.ask_for_files(compile_options, function_name)

    def compiled(own: Any, dsl: Any, *arguments: Any, **options: Any) -> Any:
        result = own(dsl, *arguments, **options)
        kept.note(dsl.compile_options)
        return result

    def tensor(own: Any, made: object, value: object, *arguments: Any, **options: Any) -> None:
        if gpu.torch is not None and hasattr(value, "untyped_storage"):
            gpu.torch.address(value)  # TVM-FFI takes it without asking torch for its address
        own(made, value, *arguments, **options)

    patches.wrap(runtime._Tensor, "__init__", tensor)
    patches.wrap(BaseDSL, "get_shared_libs", shared_libraries)
    patches.wrap(BaseDSL, "_compile_or_jit_module", compiled)
    patches.wrap(CompileOptions, "apply_envar_settings", settings)
