"""Tensor maps as arguments on a GPU, loaded by the few launches that have one: as bytes or as an address."""

import ctypes
import weakref

from lanewise.errors import LanewiseError
from lanewise.gpu.device import Context
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.ptx import Variable
from lanewise.ptx.tensor_maps import TensorMap, require_tensor_map


class DeviceMap:
    """The 128 bytes of a tensor map in the memory of a device; cuMemAlloc aligns them to 256 bytes."""

    def __init__(self, tensor_map: TensorMap, there: Context, address: int, raw: bytes) -> None:
        #: Where the tensor lies that the map is of.
        self.address = address
        place = ctypes.c_uint64()
        with there.current():
            there.driver("cuMemAlloc_v2", ctypes.byref(place), MAP_BYTES)
            there.driver("cuMemcpyHtoD_v2", place.value, raw, MAP_BYTES)
        self.place = place.value
        end = weakref.finalize(tensor_map, _free, there, self.place)
        end.atexit = False  # the driver gives everything back by itself when the process ends


def _free(there: Context, place: int) -> None:
    """Give the memory of a map back; cuMemFree waits until the device is done with it."""
    with there.current():
        there.driver("cuMemFree_v2", place)


#: For each tensor map: its bytes on devices, by ordinal.
_MADE: weakref.WeakKeyDictionary[TensorMap, dict[int, DeviceMap]] = weakref.WeakKeyDictionary()


def tensor_map_bytes(
    title: str, variable: Variable, tensor_map: TensorMap, there: Context, address: int
) -> bytes:
    """Return a tensor map as the bytes of a parameter: itself, or the address of its 128 bytes."""
    by_value = require_tensor_map(title, variable)
    try:
        raw = tensor_map.encode(address)
    except LanewiseError as error:
        raise LanewiseError(f"argument {title}: {error}") from None
    if by_value:
        return raw
    made = _MADE.setdefault(tensor_map, {})
    if there.ordinal not in made or made[there.ordinal].address != address:
        made[there.ordinal] = DeviceMap(tensor_map, there, address, raw)
    return made[there.ordinal].place.to_bytes(8, "little")
