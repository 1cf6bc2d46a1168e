"""Streams: the handle of whatever a caller calls one, work that another stream waits for, and times of work.

How often something is run, and what becomes of the times, is `lanewise.benchmarking`.
"""

import ctypes
from collections.abc import Callable

from lanewise.errors import LanewiseError
from lanewise.gpu.device import Context, context

#: Without timing, an event is cheaper (CU_EVENT_DISABLE_TIMING).
_NO_TIMING = 2
#: The legacy default stream's numbers: none, and CU_STREAM_LEGACY.
_LEGACY = (0, 1)
#: Where libraries that came before `__cuda_stream__` keep the handle: torch, CuPy, Numba.
_ATTRIBUTES = ("cuda_stream", "ptr", "handle")


def stream_handle(stream: object) -> int:
    """The handle of a stream: torch's, CuPy's, cuda-core's, Numba's, any with `__cuda_stream__`, an integer.

    >>> stream_handle(0)
    0
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        if not 0 <= stream < 1 << 64:
            raise LanewiseError(f"a stream's handle is an address, not {stream}")
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        try:
            version, handle = protocol() if callable(protocol) else protocol
            handle = int(handle)
        except Exception as error:  # it is another library's code
            raise LanewiseError(
                f"__cuda_stream__ of {type(stream).__name__} does not give a version and a handle: "
                f"{type(error).__name__}: {error}"
            ) from error
        if version != 0:
            raise LanewiseError(f"version {version} of __cuda_stream__ is not known; 0 is")
        return int(handle)
    for name in _ATTRIBUTES:
        pointer = getattr(stream, name, None)
        pointer = getattr(pointer, "value", pointer)  # Numba's is a c_void_p
        if isinstance(pointer, int) and not isinstance(pointer, bool):
            return pointer
    raise LanewiseError(
        f"{type(stream).__name__} {stream!r} is not a stream: pass one of torch, CuPy or cuda-core, "
        "anything with __cuda_stream__, or its handle as an integer"
    )


def wait_for(context: Context, stream: int, other: int) -> None:
    """Let a stream wait for what another was given up to now."""
    if stream == other or (stream in _LEGACY and other in _LEGACY):
        return
    driver = context.driver
    with context.current():
        event = driver.handle("cuEventCreate", _NO_TIMING)
        try:
            driver("cuEventRecord", event, other)
            driver("cuStreamWaitEvent", stream, event, 0)
        finally:
            driver("cuEventDestroy_v2", event)


#: Bytes that are written between runs: several times the L2 cache of any GPU.
_SWEPT_BYTES = 256 << 20
_WITH_TIMING = 0


def event_times(
    run: Callable[[], object], count: int, *, stream: int, flush: bool, ordinal: int
) -> list[float]:
    """Return the milliseconds of `count` runs, each between two events of a stream.

    With `flush` memory is written before each run, so that no operand is in the L2 cache.
    """
    there = context(ordinal)
    driver = there.driver
    swept = ctypes.c_uint64()
    events: list[int] = []
    with there.current():
        try:
            if flush:
                driver("cuMemAlloc_v2", ctypes.byref(swept), _SWEPT_BYTES)
            for _ in range(2 * count):
                events.append(driver.handle("cuEventCreate", _WITH_TIMING))
            for before, after in zip(events[0::2], events[1::2], strict=True):
                if flush:
                    driver("cuMemsetD32Async", swept.value, 0, _SWEPT_BYTES // 4, stream)
                driver("cuEventRecord", before, stream)
                run()
                driver("cuEventRecord", after, stream)
            driver("cuCtxSynchronize", kernel=there.last)
            return [_elapsed(there.ordinal, *pair) for pair in zip(events[0::2], events[1::2], strict=True)]
        finally:
            for event in events:
                driver("cuEventDestroy_v2", event)
            if swept.value:
                driver("cuMemFree_v2", swept.value)


def _elapsed(ordinal: int, before: int, after: int) -> float:
    """Return the milliseconds between two events that have happened."""
    milliseconds = ctypes.c_float()
    context(ordinal).driver("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
    return float(milliseconds.value)
