"""Entry points about streams and events: all work is done at once, and events keep the time of the host."""

import ctypes
import threading
import time
from typing import Annotated

from lanewise.virtual_gpu.driver.entry_points import F32, I32, U32, Handle, Pointer
from lanewise.virtual_gpu.driver.operations import OWN_STREAMS, Event, OperationCalls, Stream
from lanewise.virtual_gpu.driver.results import DriverError, Result


class StreamCalls(OperationCalls):
    """Streams, events and functions of the host that are called in a stream."""

    _streams_made = 0
    _counting = threading.Lock()

    def stream(self, handle: int) -> Stream:
        """Return the stream of a handle."""
        return Stream(0) if handle in OWN_STREAMS else self.known(handle, Stream)

    def cuStreamCreate(self, flags: U32) -> Annotated[Handle, "stream"]:
        """Return a new stream."""
        return self.cuStreamCreateWithPriority(flags, 0)

    def cuStreamCreateWithPriority(self, flags: U32, priority: I32) -> Annotated[Handle, "stream"]:
        """Return a new stream with a priority."""
        stream = Stream(flags, priority)
        with self._counting:
            self._streams_made += 1
            stream.number = self._streams_made
        return self.handle(stream)

    def cuStreamDestroy_v2(self, stream: Handle) -> None:
        """Forget a stream: its handle is none from now on."""
        self.forget(stream, Stream)

    def cuStreamSynchronize(self, stream: Handle) -> None:
        """Return at once: all work has been done when its call returned."""
        self.stream(stream)
        self.wait_for(stream)

    def cuStreamQuery(self, stream: Handle) -> None:
        """Return at once: all work has been done when its call returned."""
        self.cuStreamSynchronize(stream)

    def cuStreamWaitEvent(self, stream: Handle, event: Handle, flags: U32) -> None:
        """Return at once: an event is over when its recording returned."""
        self.stream(stream)
        clock = self.known(event, Event).clock
        if self.races is not None and clock is not None:
            self.races.order.wait(self.stream_key(stream), clock)

    def cuStreamGetCtx(self, stream: Handle) -> Annotated[Handle, "context", 1]:
        """Return the current context."""
        self.stream(stream)
        contexts = getattr(self.thread, "contexts", [])
        return contexts[-1] if contexts else 0

    def cuStreamGetFlags(self, stream: Handle) -> Annotated[U32, "flags", 1]:
        """Return the flags of a stream."""
        return self.stream(stream).flags

    def cuStreamGetPriority(self, stream: Handle) -> Annotated[I32, "priority", 1]:
        """Return the priority of a stream."""
        return self.stream(stream).priority

    def cuStreamIsCapturing(self, stream: Handle) -> Annotated[I32, "status", 1]:
        """Return 0: no stream is captured into a graph."""
        self.stream(stream)
        return 0

    def cuLaunchHostFunc(self, stream: Handle, function: Pointer, data: Pointer) -> None:
        """Call a function of the host at once."""
        self.stream(stream)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data)
        self.note("a host function", stream, [])

    def cuEventCreate(self, flags: U32) -> Annotated[Handle, "event"]:
        """Return a new event."""
        return self.handle(Event(flags))

    def cuEventDestroy_v2(self, event: Handle) -> None:
        """Forget an event: its handle is none from now on."""
        self.forget(event, Event)

    def cuEventRecord(self, event: Handle, stream: Handle) -> None:
        """Note the time of the host."""
        self.stream(stream)
        known = self.known(event, Event)
        known.time = time.perf_counter()
        if self.races is not None:
            known.clock = self.races.order.moment(self.stream_key(stream))

    def cuEventRecordWithFlags(self, event: Handle, stream: Handle, flags: U32) -> None:
        """Note the time of the host."""
        self.cuEventRecord(event, stream)

    def cuEventQuery(self, event: Handle) -> None:
        """Return at once: an event is over when its recording returned."""
        self.cuEventSynchronize(event)

    def cuEventSynchronize(self, event: Handle) -> None:
        """Return at once: an event is over when its recording returned."""
        clock = self.known(event, Event).clock
        if self.races is not None and clock is not None:
            self.races.order.synchronize(clock)

    def cuEventElapsedTime(self, start: Handle, end: Handle) -> Annotated[F32, "milliseconds"]:
        """Return the milliseconds of the host between two events."""
        first, last = self.known(start, Event).time, self.known(end, Event).time
        if first is None or last is None:
            raise DriverError(Result.INVALID_HANDLE, "an event that was not recorded has no time")
        return (last - first) * 1e3

    cuEventElapsedTime_v2 = cuEventElapsedTime
