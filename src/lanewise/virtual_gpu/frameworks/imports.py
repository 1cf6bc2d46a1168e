"""Calls a function once a package is imported: at once if it is, else after its import."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Finder:
    """A finder of modules that changes one package's loader so that a function is called after it."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name, self.function = name, function
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the package's spec with a loader that calls the function; None for any other module."""
        if name != self.name or self._searching:
            return None
        self._searching = True
        try:
            spec = find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return None
        loader: Any = _Loader(spec.loader, self)
        spec.loader = loader
        return spec


class _Loader:
    """A loader that calls a function after the package's own has run."""

    def __init__(self, own: Any, finder: _Finder) -> None:
        self._own, self._finder = own, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the package's own loader makes."""
        module: ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the package, then the function if the hook is still installed."""
        self._own.exec_module(module)
        if self._finder in sys.meta_path:
            self._finder.function()


@contextmanager
def when_imported(name: str, function: Callable[[], None]) -> Iterator[None]:
    """Within it, the function is called once the package of a name is there."""
    if name in sys.modules:
        function()
        yield
        return
    finder = _Finder(name, function)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
