"""Entry points about streams and events: all work is done at once, and events keep the time of the host."""

from __future__ import annotations

import ctypes
import time

from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState

#: Streams that need not be made: the default one, the legacy one, and the one of each thread.
_OWN_STREAMS = (0, 1, 2)


class Stream:
    """A stream of work."""

    def __init__(self, flags: int, priority: int = 0) -> None:
        self.flags, self.priority = flags, priority


class Event:
    """A moment in a stream: the time at which it was recorded, if it was."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.time: float | None = None


class StreamCalls(DriverState):
    """Streams, events and functions of the host that are called in a stream."""

    def stream(self, handle: int) -> Stream:
        """Return the stream of a handle."""
        return Stream(0) if handle in _OWN_STREAMS else self.known(handle, Stream)

    def cuStreamCreate(self, flags: int) -> int:
        """Return a new stream."""
        return self.handle(Stream(flags))

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        """Return a new stream with a priority."""
        return self.handle(Stream(flags, priority))

    def cuStreamDestroy_v2(self, stream: int) -> None:
        """Forget a stream: its handle is none from now on."""
        self.forget(stream, Stream)

    def cuStreamSynchronize(self, stream: int) -> None:
        """Do nothing: all work has been done when its call returned."""
        self.stream(stream)

    def cuStreamQuery(self, stream: int) -> None:
        """Do nothing: all work has been done when its call returned."""
        self.stream(stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        """Do nothing: an event is over when its recording returned."""
        self.stream(stream)
        self.known(event, Event)

    def cuStreamGetCtx(self, stream: int) -> int:
        """Return the current context."""
        self.stream(stream)
        contexts = getattr(self.thread, "contexts", [])
        return contexts[-1] if contexts else 0

    def cuStreamGetFlags(self, stream: int) -> int:
        """Return the flags of a stream."""
        return self.stream(stream).flags

    def cuStreamGetPriority(self, stream: int) -> int:
        """Return the priority of a stream."""
        return self.stream(stream).priority

    def cuStreamIsCapturing(self, stream: int) -> int:
        """Return 0: no stream is captured into a graph."""
        self.stream(stream)
        return 0

    def cuLaunchHostFunc(self, stream: int, function: int, data: int) -> None:
        """Call a function of the host at once."""
        self.stream(stream)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data)

    def cuEventCreate(self, flags: int) -> int:
        """Return a new event."""
        return self.handle(Event(flags))

    def cuEventDestroy_v2(self, event: int) -> None:
        """Forget an event: its handle is none from now on."""
        self.forget(event, Event)

    def cuEventRecord(self, event: int, stream: int) -> None:
        """Note the time of the host."""
        self.stream(stream)
        self.known(event, Event).time = time.perf_counter()

    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        """Note the time of the host."""
        self.cuEventRecord(event, stream)

    def cuEventQuery(self, event: int) -> None:
        """Do nothing: an event is over when its recording returned."""
        self.known(event, Event)

    def cuEventSynchronize(self, event: int) -> None:
        """Do nothing: an event is over when its recording returned."""
        self.known(event, Event)

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        """Return the milliseconds of the host between two events."""
        first, last = self.known(start, Event).time, self.known(end, Event).time
        if first is None or last is None:
            raise DriverError(Result.INVALID_HANDLE, "an event that was not recorded has no time")
        return (last - first) * 1e3

    cuEventElapsedTime_v2 = cuEventElapsedTime
