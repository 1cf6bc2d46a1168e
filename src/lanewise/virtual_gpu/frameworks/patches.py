"""What the parts for frameworks share: the virtual GPU, replaced attributes, calls after imports."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.driver import Driver


class FrameworkState:
    """A virtual GPU as frameworks see it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        #: Which of torch's tensors are on the device, if torch is there.
        self.torch: Any = None
        #: Returns the handle of the current stream: torch's, if torch is there.
        self.current_stream: Callable[[], int] = int
        #: What each autotuned kernel runs with: its name, and the configuration in words.
        self.autotuned: list[tuple[str, str]] = []

    @property
    def device(self) -> Device:
        """The GPU that the virtual one is."""
        return self.driver.device


_MISSING: object = object()


class Patches(ExitStack):
    """Replaced attributes, which are put back in reverse order when the context ends."""

    def set(self, owner: object, name: str, value: object) -> object:
        """Replace an attribute, which may be new; return what it was before, or None."""
        own = (
            vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else getattr(owner, name, _MISSING)
        )
        setattr(owner, name, value)
        self.callback(_restore, owner, name, own)
        return None if own is _MISSING else own

    def wrap(self, owner: object, name: str, wrapper: Callable[..., object]) -> None:
        """Replace a function by one that gets it as its first argument."""
        before = getattr(owner, name)

        def wrapped(*arguments: object, **options: object) -> object:
            return wrapper(before, *arguments, **options)

        self.set(owner, name, wrapped)


def _restore(owner: object, name: str, value: object) -> None:
    if value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


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
