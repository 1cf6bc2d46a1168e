"""Streams and events, and what a check is told of operations on them: copies, fills, launches, waits.

Entry points call these methods after their work, which costs nothing where nobody checks. A new entry point
that copies or writes memory calls `copied` or `filled`.
"""

import threading
from collections.abc import Sequence

from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.virtual_gpu.driver.state import DriverState
from lanewise.virtual_gpu.order.byte_ranges import Access, AccessKind, one_range
from lanewise.virtual_gpu.order.stream_order import LEGACY, Clock, StreamKey

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
        self.clock: Clock | None = None


class OperationCalls(DriverState):
    """What is noted of operations, for checks that follow memory and streams."""

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
        if self.races is not None and getattr(self.thread, "node", None) is None:
            if stream is None:
                self.races.order.synchronize()
            else:
                self.races.order.synchronize_stream(self.stream_key(stream))

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
