"""Times of work on a GPU, by events of the device; apart from tuning, because this calls the driver.

The L2 cache is swept before each run. How often something is run, and what becomes of the times, is
`lanewise.tuning.benchmarking`.
"""

import ctypes
from collections.abc import Callable

from lanewise.gpu.device import context

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
