"""Entry points about streams and events: all work is done at once, and events keep the time of the host."""

import ctypes
import threading
import time

from lanewise.virtual_gpu.driver.operations import OWN_STREAMS, Event, OperationCalls, Stream
from lanewise.virtual_gpu.driver.results import DriverError, Result


class StreamCalls(OperationCalls):
    """Streams, events and functions of the host that are called in a stream."""

    _streams_made = 0
    _counting = threading.Lock()

    def stream(self, handle: int) -> Stream:
        """Return the stream of a handle."""
        return Stream(0) if handle in OWN_STREAMS else self.known(handle, Stream)

    def cuStreamCreate(self, flags: int) -> int:
        """Return a new stream."""
        return self.cuStreamCreateWithPriority(flags, 0)

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        """Return a new stream with a priority."""
        stream = Stream(flags, priority)
        with self._counting:
            self._streams_made += 1
            stream.number = self._streams_made
        return self.handle(stream)

    def cuStreamDestroy_v2(self, stream: int) -> None:
        """Forget a stream: its handle is none from now on."""
        self.forget(stream, Stream)

    def cuStreamSynchronize(self, stream: int) -> None:
        """Return at once: all work has been done when its call returned."""
        self.stream(stream)
        self.wait_for(stream)

    def cuStreamQuery(self, stream: int) -> None:
        """Return at once: all work has been done when its call returned."""
        self.cuStreamSynchronize(stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        """Return at once: an event is over when its recording returned."""
        self.stream(stream)
        clock = self.known(event, Event).clock
        if self.races is not None and clock is not None:
            self.races.order.wait(self.stream_key(stream), clock)

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
        self.note("a host function", stream, [])

    def cuEventCreate(self, flags: int) -> int:
        """Return a new event."""
        return self.handle(Event(flags))

    def cuEventDestroy_v2(self, event: int) -> None:
        """Forget an event: its handle is none from now on."""
        self.forget(event, Event)

    def cuEventRecord(self, event: int, stream: int) -> None:
        """Note the time of the host."""
        self.stream(stream)
        known = self.known(event, Event)
        known.time = time.perf_counter()
        if self.races is not None:
            known.clock = self.races.order.moment(self.stream_key(stream))

    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        """Note the time of the host."""
        self.cuEventRecord(event, stream)

    def cuEventQuery(self, event: int) -> None:
        """Return at once: an event is over when its recording returned."""
        self.cuEventSynchronize(event)

    def cuEventSynchronize(self, event: int) -> None:
        """Return at once: an event is over when its recording returned."""
        clock = self.known(event, Event).clock
        if self.races is not None and clock is not None:
            self.races.order.synchronize(clock)

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        """Return the milliseconds of the host between two events."""
        first, last = self.known(start, Event).time, self.known(end, Event).time
        if first is None or last is None:
            raise DriverError(Result.INVALID_HANDLE, "an event that was not recorded has no time")
        return (last - first) * 1e3

    cuEventElapsedTime_v2 = cuEventElapsedTime
