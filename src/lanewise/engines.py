"""What lower rooms do with the objects of upper ones: one registry of lazy entry points.

`lanewise/__init__.py` fills it, so that layouts and instructions can draw themselves and compute without
importing the rooms that do it. An engine is loaded when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lanewise.errors import LanewiseError

_ENTRY_POINTS: dict[str, str] = {}


def register(task: str, entry_point: str) -> None:
    """Say which function does a task, as `package.module:function`."""
    _ENTRY_POINTS[task] = entry_point


def engine(task: str) -> Any:
    """The function that does a task, loaded now if it was not before."""
    if task not in _ENTRY_POINTS:
        raise LanewiseError(f"nothing here can {task}: `import lanewise` sets up what one room alone lacks")
    module, _, name = _ENTRY_POINTS[task].partition(":")
    return getattr(import_module(module), name)


class Drawn:
    """An object with a picture: a notebook shows it, and it prints itself as LaTeX."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        try:
            return str(engine("draw")(self))
        except LanewiseError:
            return None  # too large a picture, or none: the notebook falls back to the text

    def print_latex(self) -> None:
        """Print the picture as a LaTeX document."""
        engine("print_latex")(self)
