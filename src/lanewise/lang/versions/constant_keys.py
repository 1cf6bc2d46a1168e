"""What tells two constants apart: their types and bits, also of what they are made of.

Python finds 0.0 and -0.0 equal, 1, 1.0 and True, (1,) and (1.0,), and two objects whose `__eq__` says so. A
kernel that is traced for one of them is not the kernel of the other.
"""

import struct
import sys
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

from lanewise.formats import Format

#: Types whose values are the same constant if they are equal.
_BY_VALUE = frozenset([int, bool, str, bytes, type(None), type(Ellipsis), Format])
#: Types whose values may stand in a key themselves: also those that are equal only to themselves.
_IN_KEYS = _BY_VALUE | {type, FunctionType}
_double, _two_doubles = struct.Struct("d").pack, struct.Struct("dd").pack
#: How objects are compared whose class does not say it.
_IDENTITY: object = object.__eq__
#: Bytes of an object without attributes, and of one attribute.
_HEADER, _POINTER = object.__basicsize__, struct.calcsize("P")
#: Classes whose layout is remembered.
_MOST_CLASSES = 1024


class Same:
    """An object that is compared by identity; it is kept alive, so that no other one has its address."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def constants_key(constants: dict[str, object]) -> tuple[object, ...]:
    """Return a key for the values of Constexpr parameters; numbers and texts take little time."""
    kinds = tuple(map(type, constants.values()))
    if _IN_KEYS.issuperset(kinds):
        return (*constants.items(), *kinds)
    return (*constants, *map(constant_key, constants.values()), *kinds)


def constant_key(value: object) -> object:
    """Return a key that two values share only if no kernel can tell them apart.

    >>> constant_key((0.0, 1)) == constant_key((0.0, 1)), constant_key((0.0, 1)) == constant_key((-0.0, 1))
    (True, False)
    """
    return _key(value, ())


def plain_key(value: Any) -> object:
    """Return a key for a value that never changes and has no parts: a number, a text; None for others."""
    kind = type(value)
    if kind in _BY_VALUE:
        return (kind, value)
    if kind is float:
        return (kind, _double(value))
    if kind is complex:
        return (kind, _two_doubles(value.real, value.imag))
    if kind is range:
        return (kind, value.start, value.stop, value.step)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject:
        return (kind, value.dtype.str, value.tobytes())
    return None


def _key(value: Any, around: tuple[object, ...]) -> object:
    """Return the key of a value; `around` are the values that it is in, for one that contains itself."""
    kind: Any = type(value)
    plain = plain_key(value)
    if plain is not None:
        return plain
    if kind is tuple and _BY_VALUE.issuperset(kinds := tuple(map(type, value))):
        return (kinds, value)
    if any(outer is value for outer in around):
        return Same(value)
    around = (*around, value)
    if kind is tuple or kind is frozenset:  # in order: a kernel may go through a set
        return (kind, *[_key(item, around) for item in value])
    if kind is MethodType:
        return (kind, Same(value.__func__), _key(value.__self__, around))
    if kind.__eq__ is _IDENTITY or isinstance(value, Enum | type):
        return Same(value)
    slots, alone = _layout(kind)
    if not alone and not isinstance(value, tuple):
        return Same(value)
    try:
        parts = _attributes(value, slots)
        items = tuple.__iter__(value) if isinstance(value, tuple) else ()
        return (kind, *parts, *[_key(part, around) for part in (*parts.values(), *items)])
    except Exception:  # an object that does not let itself be looked at
        return Same(value)


def _attributes(value: object, slots: tuple[MemberDescriptorType, ...]) -> dict[str, object]:
    """Return the attributes that an object has in slots and in its dictionary."""
    attributes = {}
    for slot in slots:
        with suppress(AttributeError):  # it may have no value yet
            attributes[f"{slot.__objclass__.__qualname__}.{slot.__name__}"] = slot.__get__(value)
    held = getattr(value, "__dict__", None)
    return attributes | held if isinstance(held, dict) else attributes


@lru_cache(_MOST_CLASSES)
def _layout(kind: type) -> tuple[tuple[MemberDescriptorType, ...], bool]:
    """Return the slots of a class, and whether its objects have only attributes, with nothing of C behind."""
    entries = [entry for base in kind.__mro__ for entry in vars(base).items()]
    slots = tuple(attribute for _, attribute in entries if isinstance(attribute, MemberDescriptorType))
    own = {name for name, _ in entries} & {"__dict__", "__weakref__"}
    most = _HEADER + _POINTER * (len(slots) + len(own))
    return slots, kind.__itemsize__ == 0 and kind.__basicsize__ <= most
