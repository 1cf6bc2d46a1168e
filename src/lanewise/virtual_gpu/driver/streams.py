"""Streams and events: entry points, and what a check is told of operations: copies, fills, launches, waits.

All work is done at once, and events keep the time of the host. Entry points note their work after it, which
costs nothing where nobody checks. A new entry point that copies or writes memory calls `copied` or `filled`.
"""

import ctypes
import threading
import time
from collections.abc import Sequence
from typing import Annotated

from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.virtual_gpu.driver.entry_points import F32, I32, U32, Handle
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState
from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.order.stream_order import LEGACY, Clock, StreamKey
from lanewise.virtual_gpu.order.stream_races import Access, AccessKind, one_range

#: Streams that need not be made: the default one, the legacy one, and the one of each thread.
DEFAULT, LEGACY_STREAM, PER_THREAD = 0, 1, 2
OWN_STREAMS = (DEFAULT, LEGACY_STREAM, PER_THREAD)
#: CU_STREAM_NON_BLOCKING: the legacy default stream and the stream do not wait for each other.
NON_BLOCKING = 1


class Stream:
    """A stream of work."""

    def __init__(self, flags: int, priority: int = 0) -> None:
        self.flags, self.priority = flags, priority
        #: The place among the streams that the program made, by which messages name it.
        self.number = 0


class Event:
    """A moment in a stream: the time at which it was recorded, if it was, and what happened before."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.time: float | None = None
        #: How often the host had waited for the GPU when it was recorded.
        self.waits = 0
        self.clock: Clock | None = None


class StreamCalls(DriverState):
    """Streams, events, and what is noted of operations, for checks that follow memory and streams."""

    _streams_made = 0
    #: How often the host has waited for the GPU.
    host_waits = 0
    _counting = threading.Lock()

    def stream_key(self, handle: int) -> StreamKey:
        """Return the stream of a handle as checks know it; only while streams are followed.

        A node of a graph that runs is ordered by itself, as if it had a stream of its own.
        """
        assert self.races is not None
        node: tuple[StreamKey, str | None] | None = getattr(self.thread, "node", None)
        if node is not None:
            return node[0]
        if handle in (DEFAULT, LEGACY_STREAM):
            return LEGACY
        if handle == PER_THREAD:
            key = ("the default stream of thread", threading.get_ident())
            self.races.order.add(key, is_blocking=True)
            return key
        stream = self.known(handle, Stream)
        key = ("stream", stream.number)
        self.races.order.add(key, is_blocking=not stream.flags & NON_BLOCKING)
        return key

    def note(self, title: str, stream: int, accesses: Sequence[Access]) -> None:
        """Note an operation on a stream, if streams are followed."""
        if self.races is not None:
            _, line = getattr(self.thread, "node", None) or (None, None)
            self.races.operation(title, self.stream_key(stream), accesses, line)

    def wait_for(self, stream: int | None = None) -> None:
        """Note that the host waits for a stream, or for everything; for a node of a graph it does not."""
        self.host_waited()
        if self.races is not None and getattr(self.thread, "node", None) is None:
            if stream is None:
                self.races.order.synchronize()
            else:
                self.races.order.synchronize_stream(self.stream_key(stream))

    def host_waited(self) -> None:
        """Note that the host has waited for work of the GPU; which work it was is not distinguished."""
        self.host_waits += 1
        self.unfinished.waited()

    def access(self, kind: AccessKind, place: int, size: int) -> Access | None:
        """Return an access to memory that kernels may use; None for other memory of the host."""
        home = self.memory.find(place)
        return None if home is None else Access(home.first, kind, one_range(place, size))

    def copied(self, target: int, source: int, bytes: int, stream: int = 0, is_async: bool = False) -> None:
        """Note a copy that was made.

        The host waits for a copy from or to its own memory, unless the call is asynchronous and the memory
        pinned. A copy to pageable memory is done when the call returns.
        """
        INITIALISED.copy(target, source, bytes)
        if not is_async or self.memory.find(target) is None:
            self.host_waited()
        else:
            self.unfinished.copied(target, source, bytes)
        if self.races is None:
            return
        read = self.access(AccessKind.READ, source, bytes)
        written = self.access(AccessKind.WRITE, target, bytes)
        self.note("a copy", stream, [access for access in (read, written) if access is not None])
        within_device = all(self.memory.is_on_device(address) for address in (target, source))
        if written is None or (not is_async and not within_device):
            self.wait_for(stream)

    def filled(self, address: int, bytes: int, stream: int = 0) -> None:
        """Note that memory was filled by a memset; the host does not wait for it."""
        INITIALISED.write(address, bytes)
        self.filled_by("a memset", address, bytes, stream)

    def filled_by(self, title: str, address: int, bytes: int, stream: int) -> None:
        """Note an operation after which all bytes of a range are others: a memset, an allocation, a free."""
        if self.races is not None:
            written = self.access(AccessKind.WRITE, address, bytes)
            self.note(title, stream, [written] if written is not None else [])

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

    cuStreamQuery = cuStreamSynchronize

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

    def call_host(self, stream: int, function: int, data: int) -> None:
        """Call a function of the host as work of a stream."""
        self.stream(stream)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data)
        self.host_waited()  # it may tell the program that the work before it is done
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
        known.time, known.waits = time.perf_counter(), self.host_waits
        if self.races is not None:
            known.clock = self.races.order.moment(self.stream_key(stream))

    def cuEventRecordWithFlags(self, event: Handle, stream: Handle, flags: U32) -> None:
        """Note the time of the host."""
        self.cuEventRecord(event, stream)

    def cuEventSynchronize(self, event: Handle) -> None:
        """Return at once: an event is over when its recording returned."""
        clock = self.known(event, Event).clock
        self.host_waited()
        if self.races is not None and clock is not None:
            self.races.order.synchronize(clock)

    cuEventQuery = cuEventSynchronize

    def cuEventElapsedTime(self, start: Handle, end: Handle) -> Annotated[F32, "milliseconds"]:
        """Return the milliseconds of the host between two events."""
        first, last = self.known(start, Event).time, self.known(end, Event).time
        if last is not None and self.known(end, Event).waits == self.host_waits:
            self._note_early_question()
        if first is None or last is None:
            raise DriverError(Result.INVALID_HANDLE, "an event that was not recorded has no time")
        return (last - first) * 1e3

    def _note_early_question(self) -> None:
        """Note that a program in C asks for the time of an event that it has not waited for."""
        if self.memory.reserved is not None and self.mistakes.are_reported:
            self.mistakes.add(
                "missing wait",
                "the time between two events is asked for, and the host has not waited for the later one: "
                "on a GPU the result is cudaErrorNotReady, and no time is written",
                "cudaEventSynchronize of the later event before cudaEventElapsedTime",
                host_line(),
            )

    cuEventElapsedTime_v2 = cuEventElapsedTime
