"""Records of options: a command takes a dataclass, and each field of it is an option of the command line.

Options that several commands share are declared once, by `valued` and `flag`, and handed on together.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")


def valued(
    name: str, metavar: str, help: str, *, panel: str | None = None, show_default: bool = True,
    min: int | None = None, max: int | None = None,
) -> object:  # fmt: skip
    """Return an option that takes a value, as Typer reads it: its name, what to write after it, its help."""
    return typer.Option(
        name, metavar=metavar, help=help, rich_help_panel=panel, show_default=show_default, min=min, max=max
    )


def flag(name: str, help: str, *, panel: str | None = None) -> object:
    """Return an option without a value."""
    return typer.Option(name, help=help, rich_help_panel=panel)


def with_groups(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command as Typer reads it, with the fields of its records in place of the records.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Launch:
    ...     grid: int = 1
    >>> @with_groups
    ... def run(file: str, launch: Launch, json: bool = False) -> str:
    ...     return f"{file} {launch.grid}"
    >>> list(signature(run).parameters), run(file="k.cu", grid=2)
    (['file', 'grid', 'json'], 'k.cu 2')
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        kind = groups.get(parameter.name)
        if kind is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        types = get_type_hints(kind, include_extras=True)
        parameters += [
            Parameter(field.name, parameter.kind, default=field.default, annotation=types[field.name])
            for field in fields(kind)
        ]

    @wraps(command)
    def grouped(**given: Any) -> T:
        records = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind) if field.name in given})
            for name, kind in groups.items()
        }
        return command(**given, **records)

    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(grouped)["__signature__"] = Signature(parameters)
    return grouped
