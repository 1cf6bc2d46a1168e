"""What the CUDA driver refuses, in the library's own words: which kernel, what is wrong, what to do.

The driver's names of errors are the keys; it is called in `driver.py`.
"""

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
