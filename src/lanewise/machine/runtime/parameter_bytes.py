"""Arguments of a launch on the machine: NumPy arrays at device addresses, encoded as parameter bytes.

`lanewise.ptx.arguments` decides which value fits which parameter, the same for every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, zeroed_bytes
from lanewise.machine.runtime.address_book import ADDRESSES, AddressBook
from lanewise.machine.runtime.host_arrays import HostArrays
from lanewise.ptx import Function
from lanewise.ptx.arguments import (
    ArrayArgument,
    HandleArgument,
    ParameterTypes,
    encode,
    require_alignment,
    require_plain_array,
    require_pointer,
    titled,
)

if TYPE_CHECKING:
    from lanewise.machine.runtime.tensor_map_bytes import PassedTensorMap
    from lanewise.machine.runtime.texture_table import TextureTable
    from lanewise.ptx import Variable


class Arguments:
    """The arguments of a launch: the arrays among them, and the parameter bytes once addresses are known."""

    def __init__(
        self,
        function: Function,
        offsets: tuple[int, ...],
        size: int,
        values: tuple[object, ...],
        book: AddressBook = ADDRESSES,
        source: str = "",
    ) -> None:
        self.function, self.offsets, self.size = function, offsets, size
        self.arrays = HostArrays(book)
        self.textures: TextureTable | None = None
        self.values: list[Any] = []
        types = ParameterTypes(function, source)
        for title, variable, value in titled(function, values):
            if isinstance(value, ArrayArgument):
                self.values.append(self._made_of_array(title, variable, value))
            elif _is_array(value) and not variable.dims:
                if not isinstance(value, np.ndarray):
                    raise LanewiseError(f"argument {title} lies on a GPU: the machine takes NumPy arrays")
                require_pointer(title, variable)
                require_plain_array(title, value)
                self.arrays.add(title, value)
                self.values.append(value)
            else:
                self.values.append(encode(title, value, variable, types))

    def _made_of_array(self, title: str, variable: Variable, value: ArrayArgument) -> bytes | PassedTensorMap:
        """Add a tensor map; or a texture or surface, of which return the handle."""
        if not isinstance(value, HandleArgument):
            from lanewise.machine.runtime.tensor_map_bytes import PassedTensorMap  # few launches have one
            from lanewise.ptx.tensor_maps import TensorMap

            assert isinstance(value, TensorMap)
            return PassedTensorMap(title, variable, value, self.arrays)
        from lanewise.machine.runtime.texture_table import TextureTable  # few launches have one

        self.textures = self.textures or TextureTable()
        return self.textures.add(title, variable, value)

    def bytes(self, addresses: dict[int, int]) -> Bytes:
        """Return the parameter bytes; `addresses` has the device address of each array by its `id`."""
        memory = zeroed_bytes(max(self.size, 8))
        for offset, (title, variable, value) in zip(
            self.offsets, titled(self.function, self.values), strict=True
        ):
            raw = value
            if isinstance(value, np.ndarray):
                require_alignment(title, variable, addresses[id(value)])
                raw = addresses[id(value)].to_bytes(8, "little")
            elif not isinstance(value, bytes):
                raw = value.bytes(addresses)
            memory[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        return memory


def _is_array(value: object) -> bool:
    """Return whether a value is an array, on the host or on a GPU."""
    try:
        on_gpu = hasattr(value, "__cuda_array_interface__")
    except Exception:  # what a library raises, of an array all the same
        on_gpu = True
    return (isinstance(value, np.ndarray) and value.ndim > 0) or on_gpu
