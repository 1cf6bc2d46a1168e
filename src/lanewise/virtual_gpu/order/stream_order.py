"""What happens before what: vector clocks of streams, events and the host.

An operation on a stream follows all earlier ones of that stream, what the stream has waited for, and what the
host had waited for when it made the call. The legacy default stream follows all streams that block, and they
follow it; streams that do not block stand apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: A stream: the handle of the driver, or of the default stream of a thread.
StreamKey = tuple[str, int]
#: The number of the last operation of each stream that happened before.
Clock = dict[StreamKey, int]

#: The kind of a node of a graph, which is ordered by itself.
NODE = "node of a graph"
#: The legacy default stream.
LEGACY: StreamKey = ("default stream", 0)


def join(clock: Clock, other: Clock) -> None:
    """Let a clock know what another one knows."""
    for key, number in other.items():
        if clock.get(key, 0) < number:
            clock[key] = number


class Moment(NamedTuple):
    """When an operation runs: its stream, its number there, and what happened before it."""

    stream: StreamKey
    number: int
    before: Clock

    def follows(self, other: Moment) -> bool:
        """Return whether another operation happens before this one."""
        return self.before.get(other.stream, 0) >= other.number


@dataclass
class _Stream:
    """A stream: what happens before its next operation, and whether it and the legacy stream wait."""

    is_blocking: bool
    clock: Clock = field(default_factory=dict)


class StreamOrder:
    """The clocks of all streams and of the host, which is taken for one thread.

    >>> order = StreamOrder()
    >>> first, second = ("stream", 1), ("stream", 2)
    >>> order.add(first, is_blocking=False), order.add(second, is_blocking=False)
    (None, None)
    >>> write = order.operation(first)
    >>> order.operation(second).follows(write)
    False
    >>> order.wait(second, order.moment(first))
    >>> order.operation(second).follows(write)
    True
    """

    def __init__(self) -> None:
        self._host: Clock = {}
        self._streams: dict[StreamKey, _Stream] = {LEGACY: _Stream(True)}

    def add(self, key: StreamKey, is_blocking: bool) -> None:
        """Add a stream; `is_blocking` unless it was made with CU_STREAM_NON_BLOCKING."""
        self._streams.setdefault(key, _Stream(is_blocking))

    def moment(self, key: StreamKey) -> Clock:
        """Return what has happened when all work of a stream so far is done: what an event records."""
        stream = self._streams[key]
        join(stream.clock, self._host)
        if key == LEGACY:
            for other in self._streams.values():
                if other.is_blocking:
                    join(stream.clock, other.clock)
        elif stream.is_blocking:
            join(stream.clock, self._streams[LEGACY].clock)
        return dict(stream.clock)

    def operation(self, key: StreamKey) -> Moment:
        """Return when a new operation on a stream runs."""
        before = self.moment(key)
        before[key] = number = before.get(key, 0) + 1
        self._streams[key].clock = before
        return Moment(key, number, before)

    def wait(self, key: StreamKey, event: Clock) -> None:
        """Let what comes next on a stream wait for an event."""
        self.moment(key)
        join(self._streams[key].clock, event)

    def synchronize_stream(self, key: StreamKey) -> None:
        """Let the host wait for a stream; for the legacy one, that is for all that block."""
        self.synchronize(self.moment(key) if key == LEGACY else self._streams[key].clock)

    def synchronize(self, clock: Clock | None = None) -> None:
        """Let the host wait for an event, or for everything."""
        for joined in (clock,) if clock is not None else (other.clock for other in self._streams.values()):
            join(self._host, joined)

    def is_over(self, moment: Moment) -> bool:
        """Return whether the host has waited for an operation: everything to come follows it."""
        return self._host.get(moment.stream, 0) >= moment.number
