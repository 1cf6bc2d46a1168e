"""Results of the driver's entry points: numbers, names and sentences, and the exception that carries one."""

from enum import IntEnum

from lanewise.errors import LanewiseError


class Result(IntEnum):
    """CUresult: what an entry point returns, by the names of cuda.h without their prefix."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    DEINITIALIZED = 4
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_MEMCPY_DIRECTION = 21
    INVALID_DEVICE_FUNCTION = 98
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    INVALID_PTX = 218
    FILE_NOT_FOUND = 301
    INVALID_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    MISALIGNED_ADDRESS = 716
    ASSERT = 710
    HOST_MEMORY_NOT_REGISTERED = 713
    LAUNCH_FAILED = 719
    NOT_PERMITTED = 800
    NOT_SUPPORTED = 801
    STREAM_CAPTURE_UNSUPPORTED = 900
    STREAM_CAPTURE_INVALIDATED = 901
    GRAPH_EXEC_UPDATE_FAILURE = 910
    UNKNOWN = 999

    @property
    def title(self) -> str:
        """The name as cuda.h has it: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY."""
        return "CUDA_SUCCESS" if self is Result.SUCCESS else f"CUDA_ERROR_{self.name}"

    @property
    def sentence(self) -> str:
        """What cuGetErrorString says of it."""
        return _SENTENCES.get(self, self.name.lower().replace("_", " "))


#: Results of kernels that failed while they ran.
FAULTS = (
    Result.ILLEGAL_ADDRESS,
    Result.MISALIGNED_ADDRESS,
    Result.LAUNCH_TIMEOUT,
    Result.LAUNCH_FAILED,
    Result.ASSERT,
)
_SENTENCES = {
    Result.SUCCESS: "no error",
    Result.INVALID_VALUE: "invalid argument",
    Result.INVALID_CONFIGURATION: "invalid configuration argument",
    Result.INVALID_SYMBOL: "invalid device symbol",
    Result.INVALID_MEMCPY_DIRECTION: "invalid copy direction for memcpy",
    Result.HOST_MEMORY_NOT_REGISTERED: "pointer does not correspond to a registered memory region",
    Result.INVALID_DEVICE_FUNCTION: "invalid device function",
    Result.ASSERT: "device-side assert triggered",
    Result.NO_DEVICE: "no CUDA-capable device is detected",
    Result.INVALID_DEVICE: "invalid device ordinal",
    Result.INVALID_IMAGE: "device kernel image is invalid",
    Result.INVALID_CONTEXT: "invalid device context",
    Result.NO_BINARY_FOR_GPU: "no kernel image is available for execution on the device",
    Result.INVALID_PTX: "a PTX JIT compilation failed",
    Result.INVALID_HANDLE: "invalid resource handle",
    Result.STREAM_CAPTURE_UNSUPPORTED: "operation not permitted when stream is capturing",
    Result.STREAM_CAPTURE_INVALIDATED: "operation failed due to a previous error during capture",
    Result.NOT_FOUND: "named symbol not found",
    Result.ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    Result.LAUNCH_OUT_OF_RESOURCES: "too many resources requested for launch",
    Result.LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    Result.MISALIGNED_ADDRESS: "misaligned address",
    Result.LAUNCH_FAILED: "unspecified launch failure",
    Result.NOT_SUPPORTED: "operation not supported",
}


class DriverError(LanewiseError):
    """An entry point that did not succeed: its result, and a sentence that says why."""

    def __init__(self, result: Result, reason: str) -> None:
        super().__init__(f"{result.title}: {reason}")
        self.result, self.reason = result, reason
