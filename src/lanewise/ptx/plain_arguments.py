"""Arguments of public functions that are plain values: switches, and values as messages show them."""

from __future__ import annotations

from reprlib import repr
from typing import Any

from lanewise.errors import LanewiseError


def is_set(name: str, value: Any) -> bool:
    """Return whether a switch is set; raise an error for what is neither true nor false, such as an array.

    >>> is_set("lineinfo", 1)
    True
    """
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except Exception:  # whatever an object raises that is neither
        raise LanewiseError(f"{name} is True or False, not {type(value).__name__} {shown(value)}") from None


def shown(value: Any) -> str:
    """Return a value as messages show it, also of an object that cannot be shown.

    >>> shown([1, 2])
    '[1, 2]'
    """
    try:
        return repr(value)
    except Exception:  # whatever an object raises that has no text
        return "(of which no text can be made)"
