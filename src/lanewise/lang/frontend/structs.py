"""Structs as parameters of a kernel: named tuples, dataclasses and tuples whose fields are parameters.

Each field is a parameter of its own in the PTX, named after where it is: `steps.row` is `steps_row`. In the
kernel the parameter is such a struct of traced values; a launch takes one of numbers and arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from reprlib import repr
from typing import Any, get_type_hints

from lanewise.formats import Format
from lanewise.lang.memory.array import ArrayType
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.types import Ptr, TensorMapType
from lanewise.records import record


@record(frozen=True)
class Struct:
    """A type with fields: their types, or their parameters; None for a field that has none."""

    name: str
    fields: dict[str, Any]
    #: A class, or None for tuples.
    made: Any = None

    def __repr__(self) -> str:
        return self.name

    def build(self, values: list[object]) -> object:
        """Return such a struct."""
        if self.made is None:
            return tuple(values)
        if issubclass(self.made, tuple):
            return self.made(*values)
        struct = object.__new__(self.made)
        for name, value in zip(self.fields, values, strict=True):
            object.__setattr__(struct, name, value)
        return struct

    def open(self, value: object, where: str) -> list[Any]:
        """Return the fields of an argument: a struct of this class, or a tuple of as many."""
        if self.made is not None and isinstance(value, self.made):
            return [getattr(value, name) for name in self.fields]
        if type(value) is tuple and len(value) == len(self.fields):
            return list(value)
        tuples = f"a tuple of {len(self.fields)}" + (f" ({', '.join(self.fields)})" if self.made else "")
        of_class = f"{self.name}, or " if self.made else ""
        raise KernelError(f"{where} takes {of_class}{tuples}, not {repr(value)}")


def struct_of(kind: object) -> Struct | None:
    """Return the struct that an annotation is, a class or a value of types in place of fields; else None.

    >>> from lanewise.formats import f32
    >>> struct_of((f32, None)), struct_of(f32)
    (struct of 2, None)
    """
    if _is_class(kind):
        made: Any = kind
        try:
            hints = get_type_hints(made)
        except Exception as error:  # whatever the text of a type says
            raise KernelError(f"the types of the fields of {made.__name__} cannot be read: {error}") from None
        return Struct(made.__name__, {name: hints.get(name) for name in _names(made)}, made)
    if isinstance(kind, _SINGLE) or not any(map(_is_type, leaves(kind))):
        return None
    if type(kind) is tuple:
        return Struct(f"struct of {len(kind)}", {str(number): field for number, field in enumerate(kind)})
    made = type(kind)
    return Struct(made.__name__, {name: getattr(kind, name) for name in _names(made)}, made)


#: Types of single parameters.
_SINGLE = (Format, Ptr, TensorMapType, ArrayType)


def _is_type(kind: object) -> bool:
    return isinstance(kind, _SINGLE) or _is_class(kind)


def _is_class(kind: object) -> bool:
    """Return whether an annotation is a class with fields."""
    if not isinstance(kind, type):
        return False
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _names(kind: Any) -> list[str]:
    """Return the names of the fields of a class."""
    return list(kind._fields) if issubclass(kind, tuple) else [field.name for field in fields_of(kind)]


def leaves(value: Any) -> Iterator[Any]:
    """Give what an argument consists of: the fields of structs, and what these consist of."""
    if isinstance(value, tuple):
        parts: list[Any] = list(value)
    elif is_dataclass(value) and not isinstance(value, type | Format):
        parts = [getattr(value, field.name) for field in fields_of(value)]
    else:
        yield value
        return
    for part in parts:
        yield from leaves(part)
