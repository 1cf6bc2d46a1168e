"""What one run of `lanewise explore` was started with, and what its rooms keep between questions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

#: Objects of one room, such as traces, that are kept at most; the one used longest ago is dropped first.
MOST_KEPT = 8

_Kept = TypeVar("_Kept")


class Session:
    """The files that were opened, and a small store for each room.

    >>> session = Session()
    >>> session.keep("kernels", "a", lambda: [1])
    [1]
    >>> session.kept("kernels", "a")
    [1]
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        """Begin with the files that the command line names."""
        self.files = tuple(files)
        self._lock = threading.Lock()
        self._stores: dict[str, OrderedDict[Hashable, Any]] = {}

    def keep(self, room: str, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return what is kept under a key, and make it first where nothing is.

        Two questions that come at once may both make it; the first one made is the one kept.
        """
        found = self.kept(room, key)
        if found is not None:
            return found  # type: ignore[no-any-return]  # kept as what `make` made
        made = make()
        with self._lock:
            store = self._stores.setdefault(room, OrderedDict())
            made = store.setdefault(key, made)
            store.move_to_end(key)
            while len(store) > MOST_KEPT:
                store.popitem(last=False)
        return made

    def kept(self, room: str, key: Hashable) -> Any:
        """Return what is kept under a key, or None."""
        with self._lock:
            store = self._stores.get(room)
            if store is None or key not in store:
                return None
            store.move_to_end(key)
            return store[key]
