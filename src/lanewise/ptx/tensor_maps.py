"""Tensor maps as kernels take them: an array and how boxes of it are copied, for a `CUtensorMap`.

`lw.tensor_map` makes them. The 128 bytes and the rules are in `isa/`; the address is the engine's business.
"""

from operator import index
from typing import Any

from lanewise.engines import DEVICE_ADDRESS
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import Im2colTensor, TiledTensor
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.ptx.arguments import ArrayArgument
from lanewise.ptx.model.directives import Variable

_POINTER_BYTES = 8


class TensorMap(ArrayArgument):
    """An array with a tensor map of it: `lw.tensor_map` makes one.

    Shapes are in the array's order, the outermost axis first; `tensor` has them as the hardware does, the
    innermost first.
    """

    def __init__(self, array: object, tensor: TiledTensor | Im2colTensor) -> None:
        self.array, self.tensor = array, tensor
        #: The last encoding, which a program that launches often asks for again: eight bytes of address, then
        #: the map. Machine code reads it (`gpu/native.py`).
        self.encoded = b""
        self._address = -1

    @property
    def shape(self) -> tuple[int, ...]:
        """The elements of the tensor along each axis."""
        return self.tensor.dims[::-1]

    @property
    def box(self) -> tuple[int, ...]:
        """The elements that one copy passes over, along each axis; of im2col the pixels and channels."""
        return self.tensor.box[::-1]

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Along each axis, the distance of elements that a copy takes."""
        return self.tensor.element_strides[::-1]

    @property
    def box_bytes(self) -> int:
        """The bytes of a box in shared memory: what a copy of one adds to its mbarrier's transactions."""
        return self.tensor.box_bytes

    def encode(self, address: int) -> bytes:
        """Return the 128 bytes that the driver gives for the tensor at a device address.

        >>> import lanewise as lw, numpy as np
        >>> len(lw.tensor_map(np.zeros((64, 64), np.float32), (8, 32)).encode(0x7F0000000000))
        128
        """
        if type(address) is not int:
            address = require_address(address)
        if self._address != address:
            raw = self.tensor.encode(address)
            self.encoded, self._address = address.to_bytes(8, "little") + raw, address
            return raw
        return self.encoded[8:]

    def __bytes__(self) -> bytes:
        """Return the 128 bytes for the array where it lies, as `lw.address` says: for structs and arrays."""
        return self.encode(DEVICE_ADDRESS.function(self.array, "lw.tensor_map"))

    def _repr_svg_(self) -> str | None:
        return self.tensor._repr_svg_() if isinstance(self.tensor, TiledTensor) else None

    def __repr__(self) -> str:
        return f"<tensor map of {self.tensor.described()}>"


def require_address(address: Any) -> int:
    """Return a device address as an integer; raise an error for anything else.

    >>> require_address(0x7F00)
    32512
    """
    try:
        return index(address)
    except Exception:  # whatever an object does that is no integer
        raise LanewiseError(f"an address is an integer, not {type(address).__name__}") from None


def require_tensor_map(title: str, variable: Variable) -> bool:
    """Return whether a parameter takes the 128 bytes themselves; False if it takes their address.

    Any other parameter is an error.
    """
    if variable.size == MAP_BYTES and (variable.dims or variable.vector > 1):
        return True
    if variable.size == _POINTER_BYTES and not variable.dims and not variable.type.startswith("f"):
        return False
    raise LanewiseError(
        f"argument {title} is .{variable.type} of {variable.size} bytes; a tensor map is passed for a "
        f"CUtensorMap of {MAP_BYTES} bytes, or for a pointer to one"
    )
