"""Tensor maps as arguments on the machine, loaded by the few launches that have one: arrays and 128 bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.jit.host_memory import Bytes, zeroed_bytes
from lanewise.machine.runtime.parameter_bytes import HostArrays
from lanewise.ptx.arguments import require_plain_array
from lanewise.ptx.tensor_maps import TensorMap, require_tensor_map

if TYPE_CHECKING:
    from lanewise.ptx import Variable


class PassedTensorMap:
    """A tensor map as an argument: by value, or by the address of a copy that a kernel can only read."""

    def __init__(self, title: str, variable: Variable, tensor_map: TensorMap, arrays: HostArrays) -> None:
        self.title, self.tensor_map = title, tensor_map
        if not isinstance(tensor_map.array, np.ndarray):
            raise LanewiseError(
                f"argument {title} is a tensor map of an array on a GPU: the machine takes NumPy arrays"
            )
        require_plain_array(title, tensor_map.array)
        arrays.add(title, tensor_map.array, may_skip=True)
        self._memory: Bytes | None = None
        self._read_only: Bytes | None = None
        if not require_tensor_map(title, variable):
            self._memory = zeroed_bytes(MAP_BYTES)
            # Through a buffer it is an owner of its own, whose device address is aligned as a map's must be.
            self._read_only = np.frombuffer(self._memory.data.toreadonly(), np.uint8)
            arrays.add(f"the tensor map of argument {title}", self._read_only)

    def bytes(self, addresses: dict[int, int]) -> bytes:
        """Return the bytes of the parameter; `addresses` has the device address of each array by its `id`."""
        try:
            raw = self.tensor_map.encode(addresses[id(self.tensor_map.array)])
        except LanewiseError as error:
            raise LanewiseError(f"argument {self.title}: {error}") from None
        if self._memory is None or self._read_only is None:
            return raw
        self._memory[:] = np.frombuffer(raw, np.uint8)
        return addresses[id(self._read_only)].to_bytes(8, "little")
