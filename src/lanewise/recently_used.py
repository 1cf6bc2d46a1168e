"""A mapping of bounded size for what can be made again: compiled kernels, traced modules."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """A mapping of at most `most` entries; the one not asked for longest makes room for a new one.

    Threads may share it: each step is one operation of a dictionary, so that no lock is held when a process
    is forked.

    >>> squares = RecentlyUsed[int, int](2)
    >>> for number in (1, 2):
    ...     squares.put(number, number * number)
    >>> squares.get(1)
    1
    >>> squares.put(3, 9)  # 2 goes: 1 was asked for after it
    >>> list(squares), squares.get(2)
    ([1, 3], None)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, or None, and count the key as used now."""
        value = self._entries.get(key)
        if value is not None:
            with suppress(KeyError):  # another thread has dropped it since
                self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Add an entry or replace its value, and drop the oldest entries that are too many."""
        self._entries[key] = value
        with suppress(KeyError):  # other threads have dropped them since
            self._entries.move_to_end(key)
            while len(self._entries) > self.most:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Drop all entries; what they held is made again when it is asked for."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys, from the one not used for longest on."""
        return iter(list(self._entries))

    def values(self) -> list[Value]:
        """Return the values, from the one not used for longest on."""
        return list(self._entries.values())
