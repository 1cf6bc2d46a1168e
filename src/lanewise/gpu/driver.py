"""The CUDA driver's library, called directly: the few functions that loading and launching take.

Nothing has to be installed but the driver itself, and a launch costs one foreign call. Errors are said in
`faults.py`.
"""

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from lanewise.gpu.faults import GpuError, fault

_LIBRARIES = {"win32": ("nvcuda.dll",)}.get(sys.platform, ("libcuda.so.1", "libcuda.so"))
_HANDLE = POINTER(c_void_p)
_NUMBER = POINTER(c_int)

#: The functions that are used, with their parameters (CUDA driver API).
_FUNCTIONS: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_NUMBER,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (_NUMBER,),
    "cuDeviceGet": (_NUMBER, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_NUMBER, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLE, c_int),
    "cuCtxGetCurrent": (_HANDLE,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (_HANDLE,),
    "cuCtxSynchronize": (),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamGetCtx": (c_void_p, _HANDLE),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (_HANDLE, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadData": (_HANDLE, c_char_p),
    "cuModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
    "cuModuleGetGlobal_v2": (POINTER(c_uint64), POINTER(c_size_t), c_void_p, c_char_p),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuFuncGetAttribute": (_NUMBER, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuArray3DCreate_v2": (_HANDLE, c_char_p),
    "cuArrayDestroy": (c_void_p,),
    "cuMemcpy3DAsync_v2": (c_char_p, c_void_p),
    "cuTexObjectCreate": (POINTER(c_uint64), c_char_p, c_char_p, c_void_p),
    "cuTexObjectDestroy": (c_uint64,),
    "cuSurfObjectCreate": (POINTER(c_uint64), c_char_p),
    "cuSurfObjectDestroy": (c_uint64,),
    "cuLinkCreate_v2": (c_uint, _NUMBER, _HANDLE, _HANDLE),
    "cuLinkAddData_v2": (c_void_p, c_int, c_char_p, c_size_t, c_char_p, c_uint, _NUMBER, _HANDLE),
    "cuLinkComplete": (c_void_p, _HANDLE, POINTER(c_size_t)),
    "cuLinkDestroy": (c_void_p,),
}


class Driver:
    """The driver: `driver(name, …)` calls a function and raises what it refuses."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Any] = {}
        for name, parameters in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function
        #: cuLaunchKernelEx, for arguments that are already what C takes: returns the status.
        self.launch = library.cuLaunchKernelEx
        #: Where functions lie, for machine code that calls them: cuLaunchKernelEx and cuCtxGetCurrent.
        self.places = tuple(
            ctypes.cast(function, c_void_p).value or 0
            for function in (library.cuLaunchKernelEx, library.cuCtxGetCurrent)
        )
        #: The same of cuStreamIsCapturing.
        self.capturing_place = ctypes.cast(library.cuStreamIsCapturing, c_void_p).value or 0

    def __call__(self, name: str, *arguments: object, kernel: str = "") -> None:
        """Call a function; a status other than 0 is a GpuError that names the kernel."""
        status = self._functions[name](*arguments)
        if status:
            raise self.error(status, kernel)

    def number(self, name: str, *arguments: object) -> int:
        """What a function puts into an integer."""
        number = c_int()
        self(name, ctypes.byref(number), *arguments)
        return number.value

    def handle(self, name: str, *arguments: object, kernel: str = "") -> int:
        """What a function puts into a handle, as an integer; 0 for none."""
        handle = c_void_p()
        self(name, ctypes.byref(handle), *arguments, kernel=kernel)
        return handle.value or 0

    def error(self, status: int, kernel: str = "") -> GpuError:
        """The exception for a status."""
        return fault(self._words("cuGetErrorName", status), self._words("cuGetErrorString", status), kernel)

    def _words(self, name: str, status: int) -> str:
        text = c_char_p()
        self._functions[name](status, ctypes.byref(text))
        return text.value.decode() if text.value else f"CUDA error {status}"

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA release that the driver supports."""
        number = self.number("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10


@cache
def load() -> Driver:
    """The driver, initialised; a GpuError says why there is none."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise GpuError(
            f"no NVIDIA driver is installed here ({_LIBRARIES[0]} is not found), and CUDA arrays need one; "
            "NumPy arrays run on the CPU"
        )
    try:
        driver = Driver(library)
    except AttributeError as error:
        raise GpuError(f"the NVIDIA driver is older than CUDA 11.8: install a newer one ({error})") from None
    driver("cuInit", 0)
    return driver
