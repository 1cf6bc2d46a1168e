"""Arguments of planted kernels that one word cannot describe: views of one array, arrays at odd addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def overlapping_in_out() -> list[Any]:
    """An output that begins one element after its input, in one array."""
    base = np.arange(65, dtype=np.float32)
    return [base[1:], base[:-1]]


def disjoint_halves() -> list[Any]:
    """An output and an input that share an array but no element."""
    base = np.arange(128, dtype=np.float32)
    return [base[64:], base[:64]]


ARGUMENTS: dict[str, Callable[[], list[Any]]] = {
    function.__name__: function for function in (overlapping_in_out, disjoint_halves)
}
