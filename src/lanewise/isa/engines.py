"""What other rooms do with an Instruction: one registry of lazy entry points, filled by `lanewise/__init__.py`.

`isa/` imports none of those rooms; an engine is loaded when it is first asked for.
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
        raise LanewiseError(f"nothing here can {task}: `import lanewise` sets up what `lanewise.isa` alone lacks")
    module, _, name = _ENTRY_POINTS[task].partition(":")
    return getattr(import_module(module), name)
