"""The CUDA runtime: its entry points over the driver, errors that stay, and the calls that nvcc writes."""

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from lanewise.virtual_gpu.driver.driver import LOG_VARIABLE, Driver
from lanewise.virtual_gpu.driver.driver import entry_points as driver_entry_points
from lanewise.virtual_gpu.driver.entry_points import C_TYPES, I32, EntryPoint, declared_by, declared_in
from lanewise.virtual_gpu.driver.results import FAULTS, DriverError, Result
from lanewise.virtual_gpu.driver.state import PerThread
from lanewise.virtual_gpu.runtime.entry_points import (
    DECLARATIONS,
    PER_THREAD,
    STRUCTS,
    UNSUPPORTED,
    driver_names,
)
from lanewise.virtual_gpu.runtime.graphs import GraphCalls
from lanewise.virtual_gpu.runtime.launching import LaunchCalls

#: What answers another thing than an error.
_NO_ERRORS = (
    "cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorName", "cudaGetErrorString",
    "cudaCreateChannelDesc", "__cudaRegisterFatBinary", "__cudaInitModule", "__cudaPushCallConfiguration",
)  # fmt: skip
#: What nvcc's code calls before a launch; if it fails, there is no launch.
_BEFORE_LAUNCHES = "__cudaPushCallConfiguration"
#: What answers although an error stays.
_AFTER_ERRORS = (
    "cudaDeviceReset",
    "cudaGetDeviceProperties",
    "cudaGetDeviceCount",
    "cudaGetDevice",
    "__cudaPopCallConfiguration",
)
#: The first address that may be memory.
_LOWEST = 4096


class Runtime(LaunchCalls, GraphCalls):
    """The CUDA runtime of a program, over the driver of a virtual GPU.

    A method has the name of its entry point, takes what C takes without the pointers for results, and returns
    the results, as the driver's methods do.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.calls: Counter[str] = Counter()
        self._thread = PerThread()
        #: Why calls did not succeed, as far as it was written to stderr: a sentence is written once.
        self._reasons: set[str] = set()
        #: The error that every call answers since a kernel was stopped.
        self._staying = Result.SUCCESS

    def call(self, name: str, raw: Sequence[int]) -> int:
        """Call an entry point as C does; return what C gets: an error, or a value of 64 bits."""
        self.calls[name] += 1
        if name in _NO_ERRORS:
            return self._plain_call(name, raw)
        result, reason = self._result(name, raw)
        if result in FAULTS:  # every later call answers so, as on a GPU, until the device is reset
            self._staying = result
        if result not in (Result.SUCCESS, Result.NOT_READY):
            self._thread.error = result
        self._log(name, raw, result, reason)
        return int(result)

    def _plain_call(self, name: str, raw: Sequence[int]) -> int:
        """Call what answers a value; what nvcc writes may fail as well, and then the next call says so."""
        try:
            if name == _BEFORE_LAUNCHES:
                self.driver.require_own_process(name)
            values = self._values(entry_points()[name], raw)
        except DriverError as error:
            self._thread.error = error.result
            self._log(name, raw, error.result, error.reason)
            return int(error.result)
        except Exception as error:  # nothing may pass through C
            self._thread.error = Result.UNKNOWN
            self._log(name, raw, Result.UNKNOWN, f"{type(error).__name__}: {error}")
            return int(Result.UNKNOWN)
        return values if isinstance(values, int) else 0

    def _result(self, name: str, raw: Sequence[int]) -> tuple[Result, str]:
        if self._staying and name not in _AFTER_ERRORS:
            return self._staying, ""
        declared = entry_points().get(name)
        try:
            self.driver.require_own_process(name)
            if declared is None:
                raise DriverError(Result.NOT_SUPPORTED, f"{name} is not supported")
            self._values(declared, raw)
        except DriverError as error:
            return error.result, error.reason
        except Exception as error:  # nothing may pass through C
            return Result.UNKNOWN, f"{type(error).__name__}: {error}"
        return Result.SUCCESS, ""

    def _values(self, declared: EntryPoint, raw: Sequence[int]) -> object:
        """Call the method with decoded arguments, write its results to memory, and return its values."""
        inputs: list[Any] = []
        targets: list[tuple[Any, int]] = []
        for parameter, word in zip(declared.parameters, raw, strict=True):
            if parameter.is_result:
                targets.append((C_TYPES[parameter.type], word))
            elif parameter.type == "dim3":
                inputs.append(tuple(word >> 32 * axis & 0xFFFFFFFF for axis in range(3)))
            elif parameter.type in STRUCTS:
                inputs.append(word)
            elif parameter.type == "text":
                inputs.append(ctypes.string_at(word).decode(errors="replace") if word else "")
            else:
                inputs.append(C_TYPES[parameter.type](word).value)
        values = self._method(declared.name)(*inputs)
        results = values if isinstance(values, tuple) else (values,)
        for (kind, place), value in zip(targets, results, strict=False):
            if place:
                if place < _LOWEST:
                    raise DriverError(Result.INVALID_VALUE, f"{place:#x} is the address of no memory")
                kind.from_address(place).value = value
        return values

    def answer(self, name: str, inputs: Sequence[int]) -> Any:
        """Call an entry point from Python, without the pointers for results; return these."""
        self.calls[name] += 1
        return self._method(name)(*inputs)

    def _method(self, name: str) -> Callable[..., object]:
        """Return what answers an entry point: a method of the runtime, or the driver's."""
        if name.startswith("__cuda"):
            name = name.replace(
                "__cuda", "nvcc_", 1
            )  # Python gives names with two underscores another meaning
        same = driver_names().get(name)
        method: Callable[..., object] = getattr(self.driver, same) if same else getattr(self, name)
        return method

    def _log(self, name: str, raw: Sequence[int], result: Result, reason: str) -> None:
        """Write a call to stderr if it is asked for; what did not succeed with its reason always."""
        if os.environ.get(LOG_VARIABLE, "0") not in ("", "0"):
            declared = entry_points().get(name)
            names = [parameter.name for parameter in declared.parameters] if declared is not None else []
            words = ", ".join(f"{name}={word:#x}" for name, word in zip(names, raw, strict=False))
            text = f"{name}({words}) = {error_name(result)}" + (f": {reason}" if reason else "")
        elif reason and reason not in self._reasons:
            self._reasons.add(reason)
            text = f"{name}: {reason}"
        else:
            return
        print(f"lanewise gpu: {text}", file=sys.stderr, flush=True)

    # errors -------------------------------------------------------------------------------------------------

    def cudaPeekAtLastError(self) -> int:
        """Return the last error of this thread."""
        return int(self._staying or getattr(self._thread, "error", Result.SUCCESS))

    def cudaGetLastError(self) -> int:
        """Return the last error of this thread, and forget it unless it stays."""
        error = self.cudaPeekAtLastError()
        self._thread.error = Result.SUCCESS
        return error

    def cudaGetErrorName(self, error: I32) -> int:
        """Return the address of the name of an error."""
        return self.driver.text_address(error_name(error))

    def cudaGetErrorString(self, error: I32) -> int:
        """Return the address of the sentence of an error."""
        return self.driver.text_address(error_sentence(error))

    def cudaDeviceReset(self) -> None:
        """Forget errors that stay. Memory that was not given back stays, too: the program may still look."""
        self._staying = Result.SUCCESS
        self._thread.error = Result.SUCCESS


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of the runtime by name.

    >>> [parameter.name for parameter in entry_points()["cudaStreamQuery"].parameters]
    ['stream']
    """
    same = {
        name: EntryPoint(name, driver_entry_points()[own].parameters) for name, own in driver_names().items()
    }
    return {**declared_in(DECLARATIONS), **declared_by(Runtime, {"cuda": "cuda", "nvcc_": "__cuda"}), **same}


@cache
def exported_names() -> tuple[str, ...]:
    """Return the names of all entry points; the place of a name is the number that its code passes."""
    plain = (*entry_points(), *UNSUPPORTED.split())
    return (*plain, *(name + ending for name in entry_points() for ending in PER_THREAD))


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
