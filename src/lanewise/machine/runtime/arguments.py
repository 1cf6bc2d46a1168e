"""Arguments of a launch on the machine: NumPy arrays at their device addresses, laid out as parameter bytes.

What fits which parameter is written in `lanewise.ptx.arguments`, the same for every engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import zeroed_bytes as room
from lanewise.machine.runtime.device_memory import Arrays, Bytes
from lanewise.ptx import Function
from lanewise.ptx.arguments import encode, require_alignment, require_pointer, titled


class Arguments:
    """The arguments of one launch: `arrays` they name, and the parameter bytes once addresses are known."""

    def __init__(
        self, function: Function, places: tuple[int, ...], size: int, values: tuple[Any, ...]
    ) -> None:
        self.function, self.places, self.size = function, places, size
        self.arrays = Arrays()
        self.values: list[Any] = []
        for title, variable, value in titled(function, values):
            if _is_array(value) and not variable.dims:
                if not isinstance(value, np.ndarray):
                    raise LanewiseError(f"argument {title} lies on a GPU: the machine takes NumPy arrays")
                require_pointer(title, variable)
                self.arrays.add(title, value)
                self.values.append(value)
            else:
                self.values.append(encode(title, value, variable))

    def bytes(self, where: dict[int, int]) -> Bytes:
        """The parameter bytes."""
        memory = room(max(self.size, 8))
        for place, (title, variable, value) in zip(
            self.places, titled(self.function, self.values), strict=True
        ):
            raw = value
            if isinstance(value, np.ndarray):
                require_alignment(title, variable, where[id(value)])
                raw = where[id(value)].to_bytes(8, "little")
            memory[place : place + len(raw)] = np.frombuffer(raw, np.uint8)
        return memory


def _is_array(value: Any) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or hasattr(value, "__cuda_array_interface__")
