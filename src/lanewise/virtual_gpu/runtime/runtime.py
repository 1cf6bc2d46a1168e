"""The CUDA runtime: its entry points over the driver, errors that stay, and the calls that nvcc writes."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from lanewise.machine.program.source_lines import short_place
from lanewise.ptx.model.names import plain_name
from lanewise.virtual_gpu.driver.driver import LOG_VARIABLE, Driver
from lanewise.virtual_gpu.driver.driver import entry_points as driver_entry_points
from lanewise.virtual_gpu.driver.entry_points import (
    I32,
    EntryPoint,
    Parameter,
    declared_by,
    declared_in,
    read_word,
)
from lanewise.virtual_gpu.driver.results import FAULTS, DriverError, Result
from lanewise.virtual_gpu.driver.state import PerThread
from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.runtime.entry_points import (
    ADDED_NODES,
    ALSO_IN_STREAMS,
    CONSTANT_ANSWERS,
    DECLARATIONS,
    OF_KERNELS,
    PER_THREAD,
    SET_NODES,
    STRUCTS,
    UNSUPPORTED,
    driver_names,
)
from lanewise.virtual_gpu.runtime.graphs import GraphCalls
from lanewise.virtual_gpu.runtime.refusals import ASKING, Refusals, require_legal

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


class Runtime(GraphCalls):
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
        self.refusals = Refusals(driver)

    def call(self, name: str, raw: Sequence[int]) -> int:
        """Call an entry point as C does; return what C gets: an error, or a value of 64 bits."""
        self.calls[name] += 1
        has_value = name in _NO_ERRORS
        result, reason, values = self._outcome(name, raw, has_value)
        if result in FAULTS:  # every later call answers so, as on a GPU, until the device is reset
            self._staying = result
        if result not in (Result.SUCCESS, Result.NOT_READY):
            self._thread.error = result
            if reason:
                self.refusals.add(name, self._title(name, raw), result, error_name(result), reason)
        if name in ASKING:
            self.refusals.asked()
        if has_value and result is Result.SUCCESS:
            return values if isinstance(values, int) else 0
        self._log(name, raw, result, reason)
        return int(result)

    def _outcome(self, name: str, raw: Sequence[int], has_value: bool) -> tuple[Result, str, object]:
        """Return the result of a call, the reason for it, and its values.

        What answers a value does so although an error stays; if it fails, the next call says so.
        """
        if self._staying and not has_value and name not in _AFTER_ERRORS:
            return self._staying, "", None
        declared = entry_points().get(name)
        try:
            if not has_value or name == _BEFORE_LAUNCHES:
                self.driver.require_own_process(name)
            if declared is None:
                raise DriverError(Result.NOT_SUPPORTED, f"{name} is not supported")
            if not has_value:
                require_legal(self.driver, declared, raw, self._variables)
            return Result.SUCCESS, "", declared.call(self._method(name), raw, self._read)
        except DriverError as error:
            return error.result, error.reason, None
        except Exception as error:  # nothing may pass through C
            return Result.UNKNOWN, f"{type(error).__name__}: {error}", None

    def _title(self, name: str, raw: Sequence[int]) -> str:
        """Return what messages call a call: a launch by its kernel."""
        if "LaunchKernel" not in name or not raw:
            return name
        try:
            return f"the launch of {plain_name(self.driver.kernel_name(self.function(raw[0])))}"
        except DriverError:
            return name

    def _read(self, type: str, word: int) -> Any:
        """Return the argument that C passes as a word: of a struct its address, of a kernel its handle."""
        if type == "dim3":
            return tuple(word >> 32 * axis & 0xFFFFFFFF for axis in range(3))
        if type == "kernel":
            return self.function(word)
        return word if type in STRUCTS else read_word(type, word)

    def answer(self, name: str, inputs: Sequence[int]) -> Any:
        """Call an entry point from Python, without the pointers for results; return these."""
        self.calls[name] += 1
        return self._method(name)(*inputs)

    def _method(self, name: str) -> Callable[..., object]:
        """Return what answers an entry point: a method of the runtime, or the driver's."""
        if name in constant_answers():
            answer = constant_answers()[name]
            return lambda *_: answer
        if name in ADDED_NODES:
            return partial(self.add_node, ADDED_NODES[name])
        if name in SET_NODES:
            return partial(self.set_node, SET_NODES[name])
        plain = name.removesuffix("Async")
        if plain != name and plain in ALSO_IN_STREAMS:
            return partial(self._in_stream, plain)
        if name.startswith("__cuda"):  # Python gives names with two underscores another meaning
            name = name.replace("__cuda", "nvcc_", 1)
        same = driver_names().get(name)
        method: Callable[..., object] = getattr(self.driver, same) if same else getattr(self, name)
        return method

    def _in_stream(self, name: str, *inputs: int) -> None:
        """Do what an entry point does as work of a stream, which is the last argument."""
        *own, stream = inputs
        method = self._method(name)
        self.driver.enqueue(stream, ALSO_IN_STREAMS[name], lambda: method(*own))

    def _log(self, name: str, raw: Sequence[int], result: Result, reason: str) -> None:
        """Write a call to stderr if it is asked for; what did not succeed with its reason always."""
        if os.environ.get(LOG_VARIABLE, "0") not in ("", "0"):
            declared = entry_points().get(name)
            words = declared.written(raw) if declared is not None else ""
            text = f"{name}({words}) = {error_name(result)}" + (f": {reason}" if reason else "")
        elif reason and reason not in self._reasons:
            self._reasons.add(reason)
            line = host_line()
            where = f"{short_place(line)}: " if line else ""
            text = f"{where}{self._title(name, raw)}: {reason}"
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
        """Forget errors that stay, and give back memory of the device."""
        self.driver.memory.release_device()
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
    for name in OF_KERNELS.split():
        parameters = (
            parameter._replace(type="kernel") if parameter.name == "function" else parameter
            for parameter in same[name].parameters
        )
        same[name] = EntryPoint(name, tuple(parameters))
    record = "pointer parameters"
    nodes = [
        *(
            f"{name}(out handle node, handle graph, pointer dependencies, u64 count, {record})"
            for name in ADDED_NODES
        ),
        *(f"{name}(handle executable, handle node, {record})" for name in SET_NODES),
    ]
    in_texts = declared_in("\n".join((DECLARATIONS, CONSTANT_ANSWERS, *nodes)))
    declared = {**in_texts, **declared_by(Runtime, {"cuda": "cuda", "nvcc_": "__cuda"}), **same}
    for name in ALSO_IN_STREAMS:
        stream = Parameter("handle", "stream", False)
        declared[f"{name}Async"] = EntryPoint(f"{name}Async", (*declared[name].parameters, stream))
    return declared


@cache
def constant_answers() -> dict[str, int | None]:
    """Return what entry points answer that answer the same to everybody.

    >>> constant_answers()["cudaGetDeviceFlags"], constant_answers()["cudaProfilerStop"]
    (8, None)
    """
    answers = (line.partition(" = ") for line in CONSTANT_ANSWERS.split("\n") if line)
    return {line.partition("(")[0]: int(answer) if answer else None for line, _, answer in answers}


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
