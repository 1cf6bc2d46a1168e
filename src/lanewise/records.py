"""Classes of plain fields, as `dataclasses` makes them with slots, but quicker to define.

A new process that runs a kernel from the cache defines some forty of these classes for PTX's model, and one
that traces a kernel twenty more. `dataclasses` generates and compiles six methods for each, which is a fifth
of the start. Here only `__init__` is generated; the others are shared.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

C = TypeVar("C")


@dataclass_transform(field_specifiers=(field,))
def record(*, frozen: bool = False) -> Callable[[type[C]], type[C]]:
    """Return a decorator that gives a class slots for its fields, `__init__`, `__repr__` and `__eq__`.

    A frozen one is hashable, and refuses to be changed. Fields are annotations, with defaults or
    `dataclasses.field`; those of base classes do not count.

    >>> @record(frozen=True)
    ... class Place:
    ...     line: int
    ...     column: int = 1
    >>> Place(3), Place(3) == Place(3, 1), len({Place(3), Place(3, 1)})
    (Place(line=3, column=1), True, 1)
    """
    return lambda made: _made(made, frozen)


def _made(given: type[C], frozen: bool) -> type[C]:
    """Return the class with slots that takes the place of a class."""
    namespace = {
        name: value for name, value in vars(given).items() if name not in ("__dict__", "__weakref__")
    }
    names = tuple(given.__annotations__)
    fields = {name: _field(namespace.pop(name, MISSING)) for name in names}
    made: Any = type(given.__name__, given.__bases__, {**namespace, "__slots__": names})
    made.__qualname__ = given.__qualname__
    shared: dict[str, object] = {
        "__init__": _initialiser(made, fields),
        "__repr__": _representation([name for name in names if fields[name].repr]),
        "__match_args__": names,
        **_comparison([name for name in names if fields[name].compare], frozen),
    }
    if frozen:
        shared |= {"__setattr__": _refuse, "__delattr__": _refuse, "__setstate__": _set_state}
    for name, value in shared.items():
        if name not in namespace or name == "__hash__":
            setattr(made, name, value)
    return cast("type[C]", made)


def _field(declared: Any) -> Field[object]:
    """Return what a class says of a field: its default, or what `field` was told."""
    if isinstance(declared, Field):
        return declared
    made: Field[Any] = field() if declared is MISSING else field(default=declared)
    return made


def _initialiser(made: type, fields: dict[str, Field[object]]) -> Callable[..., None]:
    """Return an `__init__` that sets each slot."""
    arguments, body = [], []
    names: dict[str, Any] = {"MISSING": MISSING}
    for name, declared in fields.items():
        default, value = "", name
        if declared.default_factory is not MISSING:
            names[f"make_{name}"] = declared.default_factory
            default, value = "=MISSING", f"make_{name}() if {name} is MISSING else {name}"
        elif declared.default is not MISSING:
            names[f"default_{name}"] = declared.default
            default = f"=default_{name}"
        names[f"set_{name}"] = vars(made)[name].__set__
        arguments.append(name + default)
        body.append(f"    set_{name}(self, {value})\n")
    exec(f"def __init__(self, {', '.join(arguments)}):\n{''.join(body)}", names)
    written: Callable[..., None] = names["__init__"]
    written.__qualname__ = f"{made.__qualname__}.__init__"
    return written


def _representation(names: list[str]) -> Callable[[object], str]:
    """Return a `__repr__` that names the fields."""

    def representation(self: object) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inside})"

    return representation


def _comparison(names: list[str], frozen: bool) -> dict[str, object]:
    """Return `__eq__` and `__hash__` of the fields that are compared; what can change has no hash."""
    values: Callable[[object], object] = attrgetter(*names) if names else lambda self: ()

    def equal(self: object, other: object) -> object:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _refuse(self: object, name: str, value: object = None) -> None:
    """Refuse to change a field of a frozen record."""
    raise FrozenInstanceError(f"the field {name!r} of a {type(self).__name__} cannot be changed")


def _set_state(self: object, state: tuple[None, dict[str, object]]) -> None:
    """Set the fields of a frozen record that was pickled or copied."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
