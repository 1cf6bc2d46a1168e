"""Arguments of public functions as such: switches, values as messages show them, the byte order of types."""

from __future__ import annotations

from reprlib import repr
from typing import Any

import numpy as np

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


def is_native(dtype: np.dtype) -> bool:
    """Return whether all numbers of a type, those of its fields too, are little-endian, as on a GPU."""
    if dtype.subdtype is not None:
        return is_native(dtype.subdtype[0])
    if dtype.fields is not None:
        return all(is_native(field[0]) for field in dtype.fields.values())
    return dtype.byteorder != ">"
