"""Attributes of other libraries that are replaced for a while and put back at the end."""

from collections.abc import Callable
from contextlib import ExitStack

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
