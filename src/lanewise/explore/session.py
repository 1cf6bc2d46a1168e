"""What one run of `lanewise explore` was started with, and what its rooms keep between questions."""

from __future__ import annotations

import copy
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

    #: Why Python that is typed on the page is not run, as a sentence; empty where it is run.
    refuses_python: str

    def __init__(self, files: Sequence[Path] = (), *, runs_python: bool = False) -> None:
        """Begin with the files that the command line names; typed Python is not run unless that is said."""
        self.files = tuple(files)
        #: How a kernel in one of the files may be launched, by the name of the file: fields of a request.
        self.suggested: dict[str, dict[str, Any]] = {}
        self.refuses_python = "" if runs_python else "This page does not run Python."
        self._lock = threading.Lock()
        self._stores: dict[str, OrderedDict[Hashable, Any]] = {}

    def for_others(self) -> Session:
        """Return the same session as somebody sees it who is not on this machine: Python is not run.

        >>> Session(runs_python=True).for_others().refuses_python
        'The page is served to others here, and runs Python on its own machine only.'
        """
        session = copy.copy(self)
        session.refuses_python = "The page is served to others here, and runs Python on its own machine only."
        return session

    def keep(self, room: str, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return what is kept under a key, and make it first where nothing is.

        Two questions that come at once may both make it; the first one made is the one kept.
        """
        kept = self.kept(room, key)
        if kept is not None:
            return kept  # type: ignore[no-any-return]  # kept as what `make` made
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
