"""Pytrees: tuples, lists, dicts, dataclasses and fragments, flattened to their leaves and built again.

Which leaves branches and loops have to carry is decided in `frontend/merge.py`; containers that they change
in place are in `frontend/containers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeAlias

from lanewise.lang.trace.builder import current
from lanewise.lang.trace.traced import Traced, describe

#: What a variable of a kernel may hold: a traced value, a container of values, any other object of Python.
AnyValue: TypeAlias = Any


class Node(Traced):
    """A traced value made of other values, as a pointer is of its address and a fragment of its registers."""

    __slots__: tuple[str, ...] = ()
    #: Whether assignment changes it in place.
    mutable = False
    #: The slots with values of the kernel, if all others say what kind of value it is.
    CHILDREN: ClassVar[tuple[str, ...]] = ()

    def children(self) -> list[AnyValue]:
        """Return the values that this one is made of."""
        return [getattr(self, name) for name in self.CHILDREN]

    def with_children(self, children: list[AnyValue], fresh: bool = False) -> AnyValue:
        """Return such a value of other children; a mutable one is changed and returned, unless `fresh`."""
        made = object.__new__(type(self))
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        for name, child in zip(self.CHILDREN, children, strict=True):
            setattr(made, name, child)
        return made

    @property
    def storage(self) -> AnyValue:
        """What is changed when this value is changed in place: itself, or registers that others share."""
        return self

    def same_kind(self, other: AnyValue) -> bool:
        """Return whether another value differs from this one in its children alone."""
        kind = [name for name in self.__slots__ if name not in self.CHILDREN] if self.CHILDREN else []
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in kind)


def _field_names(value: AnyValue) -> list[str]:
    """Return the names of the attributes that are an object's children, in a fixed order."""
    return [field.name for field in fields(value)] if is_dataclass(value) else sorted(value.__dict__)


def _is_object(value: AnyValue) -> bool:
    """Return whether a value is an object of a user's class with traced values among its attributes."""
    home = type(value).__module__
    if type(getattr(value, "__dict__", None)) is not dict or isinstance(value, type):
        return False
    return (
        home != "builtins"
        and not home.startswith("lanewise.")
        and any(
            isinstance(child, Traced)
            or (isinstance(child, tuple | list) and any(isinstance(leaf, Traced) for leaf in child))
            for child in vars(value).values()
        )
    )


def is_node(value: AnyValue) -> bool:
    """Return whether a value is made of others, and not a leaf."""
    if isinstance(value, tuple | list | dict | Node):
        return True
    if isinstance(value, Traced | type):
        return False
    return (is_dataclass(value) and type(value).__module__[:9] != "lanewise.") or _is_object(value)


def children(value: AnyValue) -> list[AnyValue]:
    """Return the values that a tuple, a list, a dict, a Node or an object is made of."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, Node):
        return value.children()
    return [getattr(value, name) for name in _field_names(value)]


def rebuild(value: AnyValue, new: list[AnyValue]) -> AnyValue:
    """Return a new value like another, made of other values."""
    if isinstance(value, tuple):
        return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
    if isinstance(value, list):
        return list(new)
    if isinstance(value, dict):
        return dict(zip(value, new, strict=True))
    if isinstance(value, Node):
        return value.with_children(new, fresh=True)
    made = object.__new__(type(value))
    for name, child in zip(_field_names(value), new, strict=True):
        object.__setattr__(made, name, child)
    return made


class Snapshot:
    """The leaves that a value had at one time, and how to build the value from other leaves."""

    __slots__ = ("children", "leaves", "value")

    def __init__(self, value: AnyValue) -> None:
        self.value = value
        self.children = [Snapshot(child) for child in children(value)] if is_node(value) else None
        if self.children is None:
            self.leaves: list[AnyValue] = [value]
        else:
            self.leaves = [leaf for child in self.children for leaf in child.leaves]

    def build(self, leaves: Iterable[AnyValue]) -> AnyValue:
        """Return a new value of the same structure with other leaves."""
        rest = iter(leaves)
        if self.children is None:
            return next(rest)
        return rebuild(self.value, [child.build(rest) for child in self.children])

    def _describe(self) -> str:
        if isinstance(self.value, tuple | list | dict) and self.children is not None:
            return f"a {type(self.value).__name__} of {len(self.children)}"
        return describe(self.value)

    def mismatch(self, other: Snapshot, name: str) -> str:
        """Return why another value is of another structure than this one; an empty text if it is not."""
        if self.children is None or other.children is None:
            if (self.children is None) != (other.children is None):
                return f"{name} is {self._describe()} and {other._describe()}"
            return ""
        same = type(self.value) is type(other.value)
        if isinstance(self.value, Node):
            same = self.value.same_kind(other.value)
        if not same or len(self.children) != len(other.children):
            return f"{name} is {self._describe()} and {other._describe()}"
        if isinstance(self.value, dict) and list(self.value) != list(other.value):
            return f"{name} has the keys {list(self.value)} and {list(other.value)}"
        for number, (mine, theirs) in enumerate(zip(self.children, other.children, strict=True)):
            if why := mine.mismatch(theirs, f"{name}[{number}]"):
                return why
        return ""


def map_leaves(f: Callable[[AnyValue, AnyValue], AnyValue], a: AnyValue, b: AnyValue, what: str) -> AnyValue:
    """Return f of the leaves of two values of one structure, as a new value of that structure."""
    if not is_node(a) and not is_node(b):
        return f(a, b)
    first, second = Snapshot(a), Snapshot(b)
    if why := first.mismatch(second, "the value"):
        raise current().error(f"{what}: {why}; both must have the same form")
    new = [map_leaves(f, x, y, what) for x, y in zip(children(a), children(b), strict=True)]
    return rebuild(a, new)
