"""The CUDA driver's library, called directly: the few functions that loading and launching take.

Nothing has to be installed but the driver itself, and a launch costs one foreign call. What the driver
refuses is said in the library's own words: which kernel, what is wrong, what to do.
"""

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from lanewise.errors import LanewiseError, install_command


class GpuError(LanewiseError):
    """An error of the CUDA driver; `kernel` is the kernel that caused it, `code` the driver's name of it.

    `lost` says that the CUDA context cannot be used any more, by this library or any other.
    """

    def __init__(self, message: str, kernel: str = "", code: str = "", lost: bool = False) -> None:
        super().__init__(message)
        self.kernel, self.code, self.lost = kernel, code, lost

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.kernel, self.code, self.lost))


#: After these the context is gone: every later call gives the same error.
_LOST = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel touched memory that is not there",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel used an address that is not a multiple of the size",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel used an address of one state space in another",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel met an instruction that the device does not have, or a trap",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped to where there is no code",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a kernel's call stack is broken, or too small for its recursion",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel stopped: a trap, shared memory out of bounds, or another fault",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the system lets it",
    "CUDA_ERROR_ASSERT": "an assertion in a kernel failed",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the device's memory is damaged",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "the CUDA context was destroyed",
    "CUDA_ERROR_DEINITIALIZED": "the CUDA driver is shutting down",
}
#: What else is common: what it means and what to do.
_ADVICE = {
    "CUDA_ERROR_NO_DEVICE": "no CUDA device is there, or CUDA_VISIBLE_DEVICES hides it",
    "CUDA_ERROR_INVALID_DEVICE": "there is no device of that number",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver's library and kernel module differ: restart the system",
    "CUDA_ERROR_OUT_OF_MEMORY": "the device has no memory left: free arrays, or use smaller ones",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "a block needs more registers or shared memory than a multiprocessor has: launch fewer threads"
    ),
    "CUDA_ERROR_INVALID_VALUE": "the launch's grid, block, shared memory or stream is out of range",
    "CUDA_ERROR_INVALID_HANDLE": "the stream is not one, was destroyed, or is another device's",
    "CUDA_ERROR_INVALID_CONTEXT": "the CUDA context is not of this device",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        f"the PTX is newer than the driver: install ptxas ({install_command('cuda')}) or a newer driver"
    ),
    "CUDA_ERROR_INVALID_PTX": "the driver refuses the PTX",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the PTX is for another GPU than this one",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": (
        f"the driver came without its PTX compiler: {install_command('cuda')} brings ptxas"
    ),
    "CUDA_ERROR_INVALID_IMAGE": "the driver cannot load the machine code: it may be older than ptxas",
    "CUDA_ERROR_NOT_FOUND": "the module has no kernel of that name",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "the device cannot run clusters of that size",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "this cannot be done while a stream is being captured",
}


def fault(code: str, words: str, kernel: str = "") -> GpuError:
    """The error for what the driver says: its name of the error, and its own words for it.

    >>> str(fault("CUDA_ERROR_ASSERT", "device-side assert triggered", "mm")).split(":")[0]
    'mm'
    """
    lost = code in _LOST
    whose = f"{kernel}: " if kernel else ""
    if lost:
        message = (
            f"{whose}{code}: {_LOST[code]}. It may have been this kernel or one before it, since launches "
            "return before they have run. The CUDA context is lost, for every library in this process: start "
            "a new one. On NumPy arrays the same launch says which line and thread it was"
        )
    else:
        message = f"{whose}{code}: {_ADVICE.get(code, words)}"
    return GpuError(message, kernel, code, lost)


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
