"""`cuda.bindings.runtime` under a virtual GPU: its functions are answered by the driver, in Python.

The module has NVIDIA's CUDA runtime in it, which asks a driver for tables that are not documented. The
functions that are not in the table below raise an error that names them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lanewise.virtual_gpu.driver.results import DriverError
from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver.driver import Driver
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

#: Functions of the runtime: the entry point of the driver, which of the arguments it takes, and the type
#: in which the module returns the result, if that is not a number.
_FUNCTIONS: dict[str, tuple[str, tuple[int | str, ...], str]] = {
    "cudaDriverGetVersion": ("cuDriverGetVersion", (), ""),
    "cudaRuntimeGetVersion": ("cuDriverGetVersion", (), ""),
    "cudaGetDeviceCount": ("cuDeviceGetCount", (), ""),
    "cudaGetDevice": ("cuCtxGetDevice", (), ""),
    "cudaSetDevice": ("cuDeviceGet", (0,), "nothing"),
    "cudaDeviceGetAttribute": ("cuDeviceGetAttribute", (0, 1), ""),
    "cudaDeviceSynchronize": ("cuCtxSynchronize", (), ""),
    "cudaMemGetInfo": ("cuMemGetInfo_v2", (), ""),
    "cudaMalloc": ("cuMemAlloc_v2", (0,), ""),
    "cudaMallocAsync": ("cuMemAllocAsync", (0, 1), ""),
    "cudaMallocHost": ("cuMemAllocHost_v2", (0,), ""),
    "cudaMallocManaged": ("cuMemAllocManaged", (0, 1), ""),
    "cudaHostAlloc": ("cuMemHostAlloc", (0, 1), ""),
    "cudaFree": ("cuMemFree_v2", (0,), ""),
    "cudaFreeAsync": ("cuMemFreeAsync", (0, 1), ""),
    "cudaFreeHost": ("cuMemFreeHost", (0,), ""),
    "cudaMemcpy": ("cuMemcpy", (0, 1, 2), ""),
    "cudaMemcpyAsync": ("cuMemcpyAsync", (0, 1, 2, 4), ""),
    "cudaMemset": ("cuMemsetD8_v2", (0, 1, 2), ""),
    "cudaMemsetAsync": ("cuMemsetD8Async", (0, 1, 2, 3), ""),
    "cudaStreamCreate": ("cuStreamCreate", ("=0",), "cudaStream_t"),
    "cudaStreamCreateWithFlags": ("cuStreamCreate", (0,), "cudaStream_t"),
    "cudaStreamCreateWithPriority": ("cuStreamCreateWithPriority", (0, 1), "cudaStream_t"),
    "cudaStreamDestroy": ("cuStreamDestroy_v2", (0,), ""),
    "cudaStreamSynchronize": ("cuStreamSynchronize", (0,), ""),
    "cudaStreamQuery": ("cuStreamQuery", (0,), ""),
    "cudaStreamWaitEvent": ("cuStreamWaitEvent", (0, 1, 2), ""),
    "cudaEventCreate": ("cuEventCreate", ("=0",), "cudaEvent_t"),
    "cudaEventCreateWithFlags": ("cuEventCreate", (0,), "cudaEvent_t"),
    "cudaEventDestroy": ("cuEventDestroy_v2", (0,), ""),
    "cudaEventRecord": ("cuEventRecord", (0, 1), ""),
    "cudaEventQuery": ("cuEventQuery", (0,), ""),
    "cudaEventSynchronize": ("cuEventSynchronize", (0,), ""),
    "cudaEventElapsedTime": ("cuEventElapsedTime", (0, 1), ""),
    "cudaLibraryUnload": ("cuLibraryUnload", (0,), ""),
}
#: Functions that ask NVIDIA's runtime for nothing but words and numbers.
_HARMLESS = ("cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaPeekAtLastError")


def _answer(module: Any, driver: Driver, name: str) -> Callable[..., tuple[Any, ...]]:
    """Return a function of the runtime that the driver answers, as the module has it: error, results."""
    target, places, kind = _FUNCTIONS[name]
    method = getattr(driver, target)
    result_type = getattr(module, kind, None)

    def function(*arguments: Any) -> tuple[Any, ...]:
        passed = [
            int(place[1:]) if isinstance(place, str) else int(arguments[place] or 0) for place in places
        ]
        try:
            values = method(*passed)
        except DriverError as error:
            count = len(arguments)
            print(f"lanewise gpu: {name}: {error.reason}", file=sys.stderr)
            return (module.cudaError_t(int(error.result)), *([None] * (count == 0)))
        success = module.cudaError_t.cudaSuccess
        if values is None or kind == "nothing":
            return (success,)
        results = values if isinstance(values, tuple) else (values,)
        return (success, *(each if result_type is None else result_type(each) for each in results))

    function.__name__ = name
    return function


def _refusal(name: str) -> Callable[..., Any]:
    """Return a function that says that one of the runtime is not supported."""

    def function(*_: Any) -> Any:
        raise NotImplementedError(
            f"lanewise's virtual GPU does not answer {name} of cuda.bindings.runtime; the functions of "
            "cuda.bindings.driver are"
        )

    return function


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let the functions of `cuda.bindings.runtime` ask the virtual GPU, until the patches are taken back."""
    from cuda.bindings import runtime

    for name in dir(runtime):
        own = getattr(runtime, name)
        if not name.startswith("cuda") or isinstance(own, type) or not callable(own) or name in _HARMLESS:
            continue
        answer = _answer(runtime, gpu.driver, name) if name in _FUNCTIONS else _refusal(name)
        patches.set(runtime, name, answer)
