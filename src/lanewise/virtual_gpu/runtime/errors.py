"""Errors of the CUDA runtime: names and sentences by number, which is that of the driver's result."""

from __future__ import annotations

from lanewise.virtual_gpu.driver.results import Result

#: The names of errors that are not those of the driver's results.
_NAMES = {
    Result.OUT_OF_MEMORY: "MemoryAllocation",
    Result.NOT_INITIALIZED: "InitializationError",
    Result.DEINITIALIZED: "CudartUnloading",
    Result.INVALID_IMAGE: "InvalidKernelImage",
    Result.INVALID_CONTEXT: "DeviceUninitialized",
    Result.NO_BINARY_FOR_GPU: "NoKernelImageForDevice",
    Result.INVALID_HANDLE: "InvalidResourceHandle",
    Result.NOT_FOUND: "SymbolNotFound",
    Result.LAUNCH_FAILED: "LaunchFailure",
}
_OWN_SENTENCES = {
    Result.INVALID_IMAGE: "device kernel image is invalid",
    Result.NOT_INITIALIZED: "initialization error",
}


def error_name(number: int) -> str:
    """Return the name of an error.

    >>> error_name(0), error_name(2), error_name(700)
    ('cudaSuccess', 'cudaErrorMemoryAllocation', 'cudaErrorIllegalAddress')
    """
    if number == 0:
        return "cudaSuccess"
    try:
        result = Result(number)
    except ValueError:
        return "unrecognized error code"
    return f"cudaError{_NAMES.get(result) or result.name.title().replace('_', '')}"


def error_sentence(number: int) -> str:
    """Return what cudaGetErrorString says of an error.

    >>> error_sentence(2)
    'out of memory'
    """
    try:
        result = Result(number)
    except ValueError:
        return "unrecognized error code"
    return _OWN_SENTENCES.get(result, result.sentence)
