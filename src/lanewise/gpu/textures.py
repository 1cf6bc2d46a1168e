"""Textures and surfaces on a GPU: a CUDA array that is filled before each launch, and the object of it.

CUDA arrays are memory in an order of the GPU's own, so the caller's array is copied, on the stream of the
launch; what a kernel wrote through a surface is copied back after it. A texture that is fetched by integer
coordinates (tex1Dfetch) is the caller's memory itself.
"""

import struct
import weakref
from ctypes import byref, c_uint64, create_string_buffer
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.gpu.device import Context
from lanewise.ptx.textures import ImageObject, Surface, Texture

#: CUarray_format by NumPy's names.
_FORMATS = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
_ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
#: Flags of CUDA_ARRAY3D_DESCRIPTOR and CUDA_TEXTURE_DESC, CUresourcetype and CUmemorytype.
_LAYERED, _SURFACE, _CUBEMAP, _GATHER = 1, 2, 4, 8
_AS_INTEGERS, _NORMALIZED = 1, 2
_FROM_ARRAY, _FROM_MEMORY = 0, 2
_DEVICE, _ARRAY = 2, 3
#: CUDA_ARRAY3D_DESCRIPTOR: width, height, depth, format, channels, flags.
_ARRAY_DESCRIPTOR = struct.Struct("<QQQiII4x")
#: CUDA_RESOURCE_DESC: its type, then a CUarray, or an address with format, channels and bytes.
_RESOURCE = struct.Struct("<i4xQiIQ112x")
#: CUDA_TEXTURE_DESC: address modes, filter, flags, nothing of anisotropy and mipmaps, border, reserved.
_TEXTURE = struct.Struct("<3iiI20x4f48x")
#: One side of CUDA_MEMCPY3D: origin and level, memory type, host, device, array, reserved, pitch, height.
_SIDE = struct.Struct("<32xi4x8xQQ8xQQ")
_EXTENT = struct.Struct("<QQQ")


class DeviceImage:
    """The CUDA array of a texture or surface, and its object; both go when the texture or surface goes."""

    def __init__(self, image: ImageObject, there: Context, address: int, in_place: bool) -> None:
        self.image, self.context, self.address = weakref.ref(image), there, address
        self.array = 0
        driver = there.driver
        width, height, depth = image.size
        self.rows = height
        self.planes = max(depth, image.layers)
        self.row_bytes = width * image.texel_bytes
        kind = _FORMATS[image.dtype.name]
        if in_place:
            size = self.row_bytes
            resource = _RESOURCE.pack(_FROM_MEMORY, address, kind, image.channels, size)
        else:
            flags = _LAYERED * image.layered | _CUBEMAP * image.cubemap
            can_gather = image.dimensions == 2 and not image.cubemap
            flags |= _SURFACE if isinstance(image, Surface) else _GATHER * can_gather
            tall = height if image.dimensions > 1 else 0
            deep = depth if image.dimensions > 2 else image.layers * (image.layered or image.cubemap)
            shape = _ARRAY_DESCRIPTOR.pack(width, tall, deep, kind, image.channels, flags)
            self.array = driver.handle("cuArray3DCreate_v2", create_string_buffer(shape))
            resource = _RESOURCE.pack(_FROM_ARRAY, self.array, 0, 0, 0)
        texture = c_uint64()
        if isinstance(image, Texture):
            settings = create_string_buffer(_settings(image))
            driver("cuTexObjectCreate", byref(texture), create_string_buffer(resource), settings, None)
        else:
            driver("cuSurfObjectCreate", byref(texture), create_string_buffer(resource))
        self.handle = texture.value
        end = weakref.finalize(image, _destroy, there, isinstance(image, Texture), self.handle, self.array)
        end.atexit = False  # the driver gives everything back by itself when the process ends

    def fill(self, stream: int) -> None:
        """Copy the caller's array into the CUDA array."""
        self._copy(self._memory(), _SIDE.pack(_ARRAY, 0, self.array, 0, 0), stream)

    def take(self, stream: int) -> None:
        """Copy the CUDA array back into the caller's array."""
        self._copy(_SIDE.pack(_ARRAY, 0, self.array, 0, 0), self._memory(), stream)

    def _memory(self) -> bytes:
        return _SIDE.pack(_DEVICE, self.address, 0, self.row_bytes, self.rows)

    def _copy(self, source: bytes, target: bytes, stream: int) -> None:
        if not self.array:
            return
        extent = _EXTENT.pack(self.row_bytes, self.rows, self.planes)
        self.context.driver("cuMemcpy3DAsync_v2", create_string_buffer(source + target + extent), stream)


def _settings(image: Texture) -> bytes:
    """A CUDA_TEXTURE_DESC.

    Axes that a texture does not have are clamped: a GPU blends a line with the border above it otherwise.
    """
    modes = [
        _ADDRESS_MODES[mode if axis < image.dimensions else "clamp"]
        for axis, mode in enumerate(image.address)
    ]
    integers = image.dtype.kind != "f" and image.read == "element"
    flags = _AS_INTEGERS * integers | _NORMALIZED * image.normalized
    border = image.border
    if integers:  # their bits are taken as integers
        bits = struct.pack("<4I", *(int(word) & 0xFFFFFFFF for word in border))
        border = struct.unpack("<4f", bits)
    return _TEXTURE.pack(*modes, image.filter == "linear", flags, *border)


def _destroy(there: Context, is_texture: bool, handle: int, array: int) -> None:
    """Give an object and its array back, once the device is done with them."""
    with there.current():
        there.driver("cuCtxSynchronize")
        there.driver("cuTexObjectDestroy" if is_texture else "cuSurfObjectDestroy", handle)
        if array:
            there.driver("cuArrayDestroy", array)


#: For each texture or surface: its arrays on devices, by ordinal and by whether they are used in place.
_MADE: weakref.WeakKeyDictionary[ImageObject, dict[tuple[int, bool], DeviceImage]] = (
    weakref.WeakKeyDictionary()
)


def device_image(title: str, image: ImageObject, there: Context, address: int, fetched: bool) -> DeviceImage:
    """The object of a texture or surface on a device; `fetched`: a kernel reads it by integer coordinates."""
    if fetched and (image.geometry != "1d" or isinstance(image, Surface)):
        fetched = False
    if fetched and isinstance(image, Texture) and (image.normalized or image.filter == "linear"):
        raise LanewiseError(
            f"argument {title}: tex1Dfetch takes a texture with plain coordinates and the point filter"
        )
    made = _MADE.setdefault(image, {})
    key = (there.ordinal, fetched)
    if key not in made or made[key].address != address:
        made[key] = DeviceImage(image, there, address, fetched)
    return made[key]


def fetches_integers(body: Any) -> bool:
    """Whether a kernel fetches texels of one dimension by integers, as tex1Dfetch does."""
    return any(
        getattr(operation, "opcode", "") == "tex" and {"1d", "s32"} <= set(operation.modifiers)
        for operation in body or ()
    )
