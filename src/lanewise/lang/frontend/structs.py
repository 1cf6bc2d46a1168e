"""Structs as parameters of a kernel: named tuples, dataclasses and tuples whose fields are parameters.

Each field is a parameter of its own in the PTX, named after where it is: `steps.row` is `steps_row`. In the
kernel the parameter is such a struct of traced values; a launch takes one of numbers and arrays.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from reprlib import repr
from typing import Any, ForwardRef, get_args, get_origin, get_type_hints

from lanewise.formats import Format
from lanewise.lang.memory.array import ArrayType
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.types import Constexpr, Ptr, TensorMapType
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
            return tuple.__new__(
                self.made, values
            )  # as they are, whatever a class of the user's makes of them
        struct = object.__new__(self.made)
        for name, value in zip(self.fields, values, strict=True):
            object.__setattr__(struct, name, value)
        return struct

    def open(self, value: object, where: str) -> list[Any]:
        """Return the fields of an argument: a struct of this class, or a tuple of as many."""
        if isinstance(value, tuple) and type(value) in (tuple, self.made) and len(value) == len(self.fields):
            return list(tuple.__iter__(value))
        if type(value) is self.made:
            missing = [name for name in self.fields if not hasattr(value, name)]
            if missing:
                raise KernelError(f"{where}.{missing[0]} is not set in this {self.name}")
            return [getattr(value, name) for name in self.fields]
        tuples = f"a tuple of {len(self.fields)}" + (f" ({', '.join(self.fields)})" if self.made else "")
        of_class = f"{self.name}, or " if self.made else ""
        why = ""
        if self.made is not None and isinstance(value, self.made):
            why = f": its class inherits from {self.name}; write that class in the kernel's signature"
        elif self.made is not None and type(value).__name__ == self.name:
            why = f": it is of another class {self.name}, defined anew since; define the kernel anew, too"
        raise KernelError(f"{where} takes {of_class}{tuples}, not {repr(value)}{why}")


def struct_of(kind: object) -> Struct | None:
    """Return the struct that an annotation is, a class or a value of types in place of fields; else None.

    >>> from lanewise.formats import f32
    >>> struct_of((f32, None)), struct_of(tuple[f32, f32]), struct_of(f32)
    (struct of 2, struct of 2, None)
    """
    if _is_class(kind):
        made: Any = kind
        types = _types_of_fields(made)
        for name in _names(made):
            if name not in types:
                fields = ", ".join(["lw.i32"] * len(_names(made)))
                raise KernelError(
                    f"field {name} of {made.__name__} has no type; an object of types says them: "
                    f"{made.__name__}({fields})"
                )
        return Struct(made.__name__, {name: types[name] for name in _names(made)}, made)
    if get_origin(kind) is tuple:  # as checkers of types want it
        kind = get_args(kind)
    if isinstance(kind, _SINGLE) or not _is_struct(kind):
        return None
    given = [leaf for leaf in leaves(kind) if leaf is not None]
    if given and not any(map(_is_type, given)):
        return None
    if type(kind) is tuple:
        return Struct(f"struct of {len(kind)}", {str(number): field for number, field in enumerate(kind)})
    made = type(kind)
    return Struct(made.__name__, {name: getattr(kind, name) for name in _names(made)}, made)


#: Types of single parameters.
_SINGLE = (Format, Ptr, TensorMapType, ArrayType)


def _is_type(kind: object) -> bool:
    return isinstance(kind, _SINGLE) or kind is Constexpr or _is_class(kind) or get_origin(kind) is tuple


def _is_class(kind: object) -> bool:
    """Return whether an annotation is a class with fields."""
    if not isinstance(kind, type) or kind in _SINGLE:
        return False
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _names(kind: Any) -> list[str]:
    """Return the names of the fields of a class."""
    return list(kind._fields) if issubclass(kind, tuple) else [field.name for field in fields_of(kind)]


def _is_struct(value: object) -> bool:
    """Return whether an annotation is a tuple, or an object of a class with fields."""
    return type(value) is tuple or (_is_class(type(value)) and not isinstance(value, Format))


def _types_of_fields(made: Any) -> dict[str, Any]:
    """Return the types that the fields of a class are annotated with, by name."""
    try:
        return get_type_hints(made)
    except Exception as error:  # whatever the text of a type says: a tuple of types is no type to Python
        with suppress(Exception):
            return {
                name: _evaluated(kind, base)
                for base in reversed(made.__mro__)
                for name, kind in inspect.get_annotations(base).items()
            }
        mend = ""
        if isinstance(error, NameError):
            mend = "; what is local to a function is not found by its name: pass an object of types"
        raise KernelError(
            f"the types of the fields of {made.__name__} cannot be read: {error}{mend}"
        ) from None


def _evaluated(kind: Any, where: type) -> Any:
    """Return the type that an annotation in a class is, or says as a text."""
    text = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
    return (
        eval(text, vars(sys.modules[where.__module__]), dict(vars(where))) if isinstance(text, str) else kind
    )


def classes_in(parameter: Any) -> Iterator[type]:
    """Give the classes of a parameter's structs, those of its fields among them."""
    if isinstance(getattr(parameter, "kind", None), Struct):
        if parameter.kind.made is not None:
            yield parameter.kind.made
        for field in parameter.kind.fields.values():
            yield from classes_in(field)


def fields_in(value: Any) -> list[Any]:
    """Return what a tuple or an object with fields consists of."""
    if isinstance(value, tuple):
        return list(tuple.__iter__(value))
    return [getattr(value, field.name) for field in fields_of(value)]


def leaves(value: Any) -> Iterator[Any]:
    """Give what an argument consists of: the fields of structs, and what these consist of."""
    if isinstance(value, tuple) or (is_dataclass(value) and not isinstance(value, type | Format)):
        for part in fields_in(value):
            yield from leaves(part)
    else:
        yield value
