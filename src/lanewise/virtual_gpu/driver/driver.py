"""The driver: all entry points together, called from Python by name or from C with raw arguments."""

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache

from lanewise.virtual_gpu.driver.devices import DeviceCalls
from lanewise.virtual_gpu.driver.entry_points import EntryPoint, declared_by, declared_in
from lanewise.virtual_gpu.driver.graphs import GraphCalls
from lanewise.virtual_gpu.driver.linking import LinkCalls
from lanewise.virtual_gpu.driver.results import FAULTS, DriverError, Result
from lanewise.virtual_gpu.driver.virtual_memory import VirtualMemoryCalls

#: Set to 1 to log every call of the driver to stderr.
LOG_VARIABLE = "LANEWISE_GPU_LOG"


class Driver(DeviceCalls, GraphCalls, LinkCalls, VirtualMemoryCalls):
    """The CUDA driver API over the CPU machine.

    A method has the name of its entry point, takes what C takes without the pointers for results, and returns
    the results. What does not succeed raises a `DriverError`.

    >>> from lanewise.virtual_gpu.devices import find_device
    >>> driver = Driver(find_device("A100"))
    >>> driver.cuDeviceComputeCapability(0)
    (8, 0)
    >>> memory = driver.cuMemAlloc_v2(1024)
    >>> driver.cuMemGetAddressRange_v2(memory + 100) == (memory, 1024)
    True
    """

    #: Calls from C by name, and how often each was made.
    calls: Counter[str]
    #: The process in which a program called cuInit; as with CUDA, processes forked later have no GPU.
    _process: int | None = None
    #: Why a kernel failed whose launch a program in C made, until a call that waits for the GPU says so.
    pending_fault: DriverError | None = None

    def call(self, name: str, raw: Sequence[int]) -> Result:
        """Call an entry point as C does: 64-bit words in, results written to memory; return the result."""
        calls = self.__dict__.setdefault("calls", Counter())
        calls[name] += 1
        declared = entry_points().get(name)
        try:
            self.require_own_process(name)
            if declared is None or not hasattr(self, name):
                raise DriverError(Result.NOT_SUPPORTED, f"{name} is not supported")
            self._raise_pending(name)
            declared.call(getattr(self, name), raw)
            result, reason = Result.SUCCESS, ""
        except DriverError as error:
            result, reason = error.result, error.reason
            if result in FAULTS and name.startswith(_LAUNCHES) and not _launches_block():
                self._log(name, declared, raw, result, reason)
                self.pending_fault = error
                return Result.SUCCESS
        except Exception as error:  # nothing may pass through C
            result, reason = Result.UNKNOWN, f"{type(error).__name__}: {error}"
            self.__dict__.setdefault("unseen", []).append(error)
        self._log(name, declared, raw, result, reason)
        return result

    def _raise_pending(self, name: str) -> None:
        """Raise the error of a kernel that failed, if a call waits for the GPU: a launch does not say it."""
        fault = self.pending_fault
        if fault is not None and _WAITS.search(name):
            self.pending_fault = None
            raise DriverError(fault.result, "")  # the reason was written at the launch

    def require_own_process(self, name: str) -> None:
        """Raise an error in a process that was forked after cuInit, or after a call of the CUDA runtime."""
        if self._process is None and name.startswith(_INITIALISE):
            self._process = os.getpid()
        elif self._process is not None and self._process != os.getpid():
            raise DriverError(
                Result.NOT_INITIALIZED,
                "this process was forked from one that uses the virtual GPU, and CUDA does not work in "
                'such a process: start it anew, by exec() or by "spawn" (multiprocessing.set_start_method)',
            )

    def take_unseen(self) -> list[Exception]:
        """Return the exceptions that a program in C has not seen, and forget them."""
        unseen: list[Exception] = self.__dict__.pop("unseen", [])
        return unseen

    def _log(
        self, name: str, declared: EntryPoint | None, raw: Sequence[int], result: Result, reason: str
    ) -> None:
        """Write a call to stderr if it is asked for; what did not succeed always, except for questions."""
        if os.environ.get(LOG_VARIABLE, "0") not in ("", "0"):
            words = declared.written(raw) if declared is not None else "…"
            why = f": {reason}" if reason else ""
            print(f"lanewise gpu: {name}({words}) = {result.title}{why}", file=sys.stderr)
        elif result in _ALWAYS_LOGGED and reason:
            print(f"lanewise gpu: {name}: {reason}", file=sys.stderr)


def _launches_block() -> bool:
    """Return whether launches answer for their own kernels, as CUDA has it."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


#: How the calls begin that launch kernels, and calls that wait for the GPU or give it more to do.
_LAUNCHES = ("cuLaunch", "cuGraphLaunch")
_WAITS = re.compile(r"Synchronize|Query|^cu(Memcpy|Memset|Launch|GraphLaunch)")
#: How the calls begin that initialise a process for CUDA.
_INITIALISE = ("cuInit", "cuda", "__cuda")
#: Results that a program seldom explains: the reason is written to stderr.
_ALWAYS_LOGGED = (
    Result.NOT_INITIALIZED,
    *FAULTS,
    Result.INVALID_IMAGE,
    Result.INVALID_PTX,
    Result.NO_BINARY_FOR_GPU,
    Result.OUT_OF_MEMORY,
    Result.UNKNOWN,
)

_DECLARATIONS = """
cuGetProcAddress(text symbol, out pointer function, i32 version, u64 flags)
cuGetProcAddress_v2(text symbol, out pointer function, i32 version, u64 flags, pointer status)
cuLinkAddData_v2(handle state, i32 type, pointer data, u64 bytes, text name, u32 count, pointer options, \
pointer values)
cuLinkAddFile_v2(handle state, i32 type, text path, u32 count, pointer options, pointer values)
cuLibraryLoadData(out handle library, pointer image, pointer options, pointer option_values, \
u32 option_count, pointer library_options, pointer library_values, u32 library_count)
cuLaunchKernel(handle function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z, \
u32 shared_bytes, handle stream, pointer parameters, pointer extra)
cuLaunchCooperativeKernel(handle function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, \
u32 block_z, u32 shared_bytes, handle stream, pointer parameters)
"""


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of the driver by name.

    >>> [result.name for result in entry_points()["cuMemAlloc_v2"].results]
    ['address']
    """
    return {**declared_in(_DECLARATIONS), **declared_by(Driver, {"cu": "cu"})}
