"""Observers: functions that take what a program asks for in its place, such as every launch of a script.

`lanewise check` runs a script and checks each of its launches; the debugger records them. They observe.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Observer = TypeVar("Observer")


class Observers(Generic[Observer]):
    """The observers of one kind of event; the last one that began to observe takes it.

    >>> launches = Observers[str]()
    >>> with launches.observed("watcher"):
    ...     taken = launches.current
    ...     with launches.unobserved():
    ...         inside = launches.current
    >>> taken, inside, launches.current
    ('watcher', None, None)
    """

    def __init__(self) -> None:
        #: Whoever has no time to ask whether there is one looks whether this list is empty.
        self.observers: list[Observer] = []
        self._thread = threading.local()

    @property
    def current(self) -> Observer | None:
        """The observer of what this thread does; None if there is none, or if it is at work itself."""
        if not self.observers or getattr(self._thread, "unobserved", False):
            return None
        return self.observers[-1]

    @contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """Within it, the observer takes every event, of any thread."""
        self.observers.append(observer)
        try:
            yield
        finally:
            self.observers.remove(observer)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Within it, no observer takes what this thread does."""
        before = getattr(self._thread, "unobserved", False)
        self._thread.unobserved = True
        try:
            yield
        finally:
            self._thread.unobserved = before
