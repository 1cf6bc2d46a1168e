"""Nested values: tuples, lists, dicts, dataclasses and fragments, taken apart and put together again.

What can be changed in place (lists, fragments, …) is updated where it is, so that every name for it agrees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from lanewise.lang.builder import current
from lanewise.lang.values import Traced, describe


class Node(Traced, ABC):
    """A traced value made of others: `parts` gives them, `with_parts` makes the like of others."""

    __slots__ = ()
    #: Whether assignment changes it in place.
    mutable = False

    @abstractmethod
    def parts(self) -> list[Any]:
        """The values it is made of."""

    @abstractmethod
    def with_parts(self, parts: list[Any], fresh: bool = False) -> Any:
        """The same kind of thing of other parts; a mutable one is changed and returned unless `fresh`."""

    def same_kind(self, other: Any) -> bool:
        """Whether another is of the same kind, so that one can take the other's place."""
        return type(self) is type(other)


def _field_names(value: Any) -> list[str]:
    return [each.name for each in fields(value)] if is_dataclass(value) else sorted(value.__dict__)


def _is_frozen(value: Any) -> bool:
    return bool(getattr(getattr(value, "__dataclass_params__", None), "frozen", False))


def has_attributes(value: Any) -> bool:
    """Whether it is an object of a class of the user's, whose attributes may be set."""
    home = type(value).__module__
    own = type(getattr(value, "__dict__", None)) is dict and not isinstance(value, type)
    return own and home != "builtins" and not home.startswith("lanewise.")


def _is_object(value: Any) -> bool:
    """Whether it is an object of a class of the user's that holds traced values as attributes."""
    return has_attributes(value) and any(
        isinstance(part, Traced)
        or (isinstance(part, tuple | list) and any(isinstance(each, Traced) for each in part))
        for part in vars(value).values()
    )


def is_node(value: Any) -> bool:
    """Whether a value is made of others."""
    if isinstance(value, tuple | list | dict | Node):
        return True
    if isinstance(value, Traced | type):
        return False
    return (is_dataclass(value) and type(value).__module__[:9] != "lanewise.") or _is_object(value)


def children(value: Any) -> list[Any]:
    """The values that one is made of."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, Node):
        return value.parts()
    return [getattr(value, name) for name in _field_names(value)]


def rebuilt(value: Any, parts: list[Any], fresh: bool = False) -> Any:
    """A value like another of other parts: the same object, changed, if it is a mutable one."""
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        if fresh:
            return list(parts)
        value[:] = parts
        return value
    if isinstance(value, dict):
        made = dict(zip(value, parts, strict=True))
        if fresh:
            return made
        value.clear()
        value.update(made)
        return value
    if isinstance(value, Node):
        return value.with_parts(parts, fresh)
    names = _field_names(value)
    if _is_frozen(value) or fresh:
        made = object.__new__(type(value))
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(made, name, part)
        return made
    for name, part in zip(names, parts, strict=True):
        setattr(value, name, part)
    return value


def is_mutable(value: Any) -> bool:
    """Whether a value, or a part of it, can be changed in place and holds traced values."""
    if not is_node(value):
        return False
    if any(is_mutable(part) for part in children(value)):
        return True
    if isinstance(value, tuple) or (isinstance(value, Node) and not value.mutable):
        return False
    return not _is_frozen(value)


class Snapshot:
    """What a value was made of at one time: `leaves`, and the way back."""

    __slots__ = ("leaves", "value", "within")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.within = [Snapshot(part) for part in children(value)] if is_node(value) else None
        if self.within is None:
            self.leaves: list[Any] = [value]
        else:
            self.leaves = [leaf for part in self.within for leaf in part.leaves]

    def build(self, leaves: list[Any], fresh: bool = False) -> Any:
        """The value with other leaves in the places of these: mutable parts changed in place, or all new."""
        return self._build(iter(leaves), fresh)

    def _build(self, leaves: Any, fresh: bool) -> Any:
        if self.within is None:
            return next(leaves)
        return rebuilt(self.value, [part._build(leaves, fresh) for part in self.within], fresh)

    def _kind(self) -> str:
        if isinstance(self.value, tuple | list | dict) and self.within is not None:
            return f"a {type(self.value).__name__} of {len(self.within)}"
        return describe(self.value)

    def mismatch(self, other: Snapshot, name: str) -> str:
        """Why another value cannot take this one's place; empty if it can."""
        if self.within is None or other.within is None:
            if (self.within is None) != (other.within is None):
                return f"{name} is {self._kind()} and {other._kind()}"
            return ""
        same = type(self.value) is type(other.value)
        if isinstance(self.value, Node):
            same = self.value.same_kind(other.value)
        if not same or len(self.within) != len(other.within):
            return f"{name} is {self._kind()} and {other._kind()}"
        if isinstance(self.value, dict) and list(self.value) != list(other.value):
            return f"{name} has the keys {list(self.value)} and {list(other.value)}"
        for number, (mine, theirs) in enumerate(zip(self.within, other.within, strict=True)):
            if why := mine.mismatch(theirs, f"{name}[{number}]"):
                return why
        return ""


def map_leaves(f: Callable[[Any, Any], Any], a: Any, b: Any, what: str) -> Any:
    """f on the leaves of two values of one shape, as a value that shares nothing with either."""
    if not is_node(a) and not is_node(b):
        return f(a, b)
    first, second = Snapshot(a), Snapshot(b)
    if why := first.mismatch(second, "the value"):
        raise current().error(f"{what}: {why}; both must be alike")
    parts = [map_leaves(f, x, y, what) for x, y in zip(children(a), children(b), strict=True)]
    return rebuilt(a, parts, fresh=True)
