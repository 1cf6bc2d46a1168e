"""`torch.cuda.Stream` and `torch.cuda.Event` under a virtual GPU: streams and events of its driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from lanewise.virtual_gpu.driver.operations import DEFAULT, NON_BLOCKING

if TYPE_CHECKING:
    from lanewise.virtual_gpu.driver.driver import Driver

#: The streams that each thread has entered, by the driver that they are of; the last is the current one.
_ENTERED = threading.local()


def _driver() -> Driver:
    """Return the driver of the virtual GPU that torch's streams are of."""
    assert _DRIVERS, "no virtual GPU is in use"
    return _DRIVERS[-1]


_DRIVERS: list[Driver] = []


class Stream:
    """A stream of torch's: one of the driver's that does not wait for the default stream."""

    def __init__(
        self, device: object = None, priority: int = 0, stream_ptr: int | None = None, **_: object
    ) -> None:
        self.device, self.priority = torch.device("cuda", 0), priority
        self.cuda_stream = (
            _driver().cuStreamCreateWithPriority(NON_BLOCKING, priority) if stream_ptr is None else stream_ptr
        )
        self.stream_id = self.cuda_stream
        self.device_index = 0
        self.device_type = 1

    def synchronize(self) -> None:
        """Wait for the work of the stream."""
        _driver().cuStreamSynchronize(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """Let the stream wait for an event."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Let the stream wait for the work of another one so far."""
        self.wait_event(other.record_event())

    def query(self) -> bool:
        """Return that all work has been done."""
        _driver().cuStreamQuery(self.cuda_stream)
        return True

    def is_capturing(self) -> bool:
        """Return whether work of the stream is captured into a graph."""
        return bool(torch.cuda.is_current_stream_capturing())

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that is recorded now."""
        event = event if event is not None else Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _entered().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered().pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that somebody else made, by its handle."""

    def __init__(self, stream_ptr: int, device: object = None, **_: object) -> None:
        super().__init__(device, stream_ptr=stream_ptr)


class Event:
    """An event of torch's: one of the driver's, which keeps the time of the host."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: object
    ) -> None:
        self.cuda_event = _driver().cuEventCreate(0)
        self._is_recorded = False

    def record(self, stream: Stream | None = None) -> None:
        """Record what has been done on a stream so far, the current one by default."""
        _driver().cuEventRecord(self.cuda_event, _handle(stream))
        self._is_recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream, the current one by default, wait for the event."""
        _driver().cuStreamWaitEvent(_handle(stream), self.cuda_event, 0)

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds of the host from this event to another."""
        if not (self._is_recorded and other._is_recorded):
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return _driver().cuEventElapsedTime(self.cuda_event, other.cuda_event)

    def synchronize(self) -> None:
        """Wait for the event."""
        _driver().cuEventSynchronize(self.cuda_event)

    def query(self) -> bool:
        """Return that the event is over."""
        _driver().cuEventQuery(self.cuda_event)
        return True


def _entered() -> list[Stream]:
    """Return the streams that this thread has entered."""
    if getattr(_ENTERED, "driver", None) is not _driver():
        _ENTERED.driver, _ENTERED.streams = _driver(), [ExternalStream(DEFAULT)]
    streams: list[Stream] = _ENTERED.streams
    return streams


def _handle(stream: Stream | None) -> int:
    return int((stream if stream is not None else _entered()[-1]).cuda_stream)


def current_handle() -> int:
    """Return the handle of torch's current stream; the default one if torch is not in use."""
    return _handle(None) if _DRIVERS else DEFAULT


def answers(driver: Driver) -> dict[str, Callable[..., object]]:
    """Return what `torch.cuda` has of streams, by name."""

    @contextmanager
    def stream(chosen: Stream | None) -> Iterator[None]:
        if chosen is None:
            yield
        else:
            with chosen:
                yield

    def set_stream(chosen: Stream) -> None:
        _entered()[-1] = chosen

    return {
        "Stream": Stream,
        "ExternalStream": ExternalStream,
        "Event": Event,
        "StreamContext": stream,
        "stream": stream,
        "set_stream": set_stream,
        "current_stream": lambda *_: _entered()[-1],
        "default_stream": lambda *_: ExternalStream(DEFAULT),
        "synchronize": lambda *_: driver.cuCtxSynchronize(),
    }


@contextmanager
def streams_of(driver: Driver) -> Iterator[None]:
    """Within it, torch's streams are those of a driver."""
    _DRIVERS.append(driver)
    try:
        yield
    finally:
        _DRIVERS.remove(driver)
