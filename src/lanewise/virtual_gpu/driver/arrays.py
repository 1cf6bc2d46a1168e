"""Arrays of texels, textures and surfaces, and copies of rectangles and boxes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import as_bytes
from lanewise.ptx.textures import AddressMode, ImageObject, surface, texture
from lanewise.virtual_gpu.driver.copies import MemoryCalls
from lanewise.virtual_gpu.driver.entry_points import U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.results import DriverError, Result

Three = tuple[int, int, int]
#: Handles of textures and surfaces: numbers that no size or address has by chance.
_FIRST_IMAGE, _IMAGE_STEP = 0x6C77_7465_7800_0000, 64
#: Flags of an array: its last size counts layers; it is a cube map.
LAYERED, CUBEMAP = 1, 4
#: The formats of a channel (CUarray_format) as NumPy has them.
FORMATS = {1: "u1", 2: "u2", 3: "u4", 8: "i1", 9: "i2", 10: "i4", 16: "f2", 32: "f4"}
#: Kinds of resources (CUresourcetype).
ARRAY, MIPMAPPED, LINEAR, PITCHED = 0, 1, 2, 3
#: Flags of a texture (CU_TRSF_…).
_AS_INTEGER, _NORMALIZED, _SEAMLESS = 1, 2, 0x20
_ADDRESS_MODES: tuple[AddressMode, ...] = ("wrap", "clamp", "mirror", "border")
#: Kinds of memory in records of copies (CUmemorytype).
_OF_HOST, _OF_DEVICE, _OF_ARRAY, _UNIFIED = 1, 2, 3, 4


@dataclass(eq=False)
class TexelArray:
    """A CUDA array: texels in memory of its own, row by row."""

    texels: np.ndarray[Any, Any]
    #: Sizes along x, y, z or layers, as the program said them: 0 where there is no such dimension.
    sizes: tuple[int, int, int]
    dtype: str
    channels: int
    flags: int

    @property
    def texel_bytes(self) -> int:
        """The bytes of a texel."""
        return int(np.dtype(self.dtype).itemsize) * self.channels

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self.sizes[0] * self.texel_bytes

    def box(self) -> Box:
        """Return the whole array as a box of bytes."""
        return Box(self.texels.ctypes.data, self.row_bytes, max(self.sizes[1], 1))


@dataclass(frozen=True)
class Box:
    """Where rows of bytes lie: the first, the distance of rows, and the rows from one plane to the next."""

    start: int
    pitch: int
    rows: int

    def at(self, x: int, y: int, z: int) -> int:
        """Return the address of a byte in a row of a plane."""
        return self.start + x + (y + z * self.rows) * self.pitch


@dataclass(frozen=True)
class TextureSettings:
    """How a texture is read, in the words of `lw.texture`."""

    address: tuple[int, int, int] = (1, 1, 1)
    is_linear: bool = False
    is_normalized_float: bool = False
    is_normalized: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    #: Whether blends cross the edges of a cube map's faces.
    is_seamless: bool = False


class ArrayCalls(MemoryCalls):
    """Arrays, textures, surfaces, and copies of more than one dimension."""

    @cached_property
    def images(self) -> dict[int, ImageObject | None]:
        """The textures and surfaces by their handles; None for those that the program destroyed."""
        return {}

    def create_array(self, sizes: tuple[int, int, int], dtype: str, channels: int, flags: int = 0) -> int:
        """Return a handle of a new array; its sizes are those of a program, 0 where there is no dimension."""
        if sizes[0] <= 0 or channels not in (1, 2, 4):
            raise DriverError(
                Result.INVALID_VALUE, f"an array of {sizes} texels with {channels} channels cannot be made"
            )
        shape = [size for size in reversed(sizes) if size]
        if channels > 1:
            shape.append(channels)
        return self.handle(TexelArray(np.zeros(shape, dtype), sizes, dtype, channels, flags))

    def cuArrayCreate_v2(self, description: Pointer) -> Annotated[Handle, "array"]:
        """Return a new array of one or two dimensions."""
        width, height = (ctypes.c_uint64 * 2).from_address(description)
        format, channels = (ctypes.c_uint32 * 2).from_address(description + 16)
        return self.create_array((width, height, 0), _dtype(format), channels)

    def cuArray3DCreate_v2(self, description: Pointer) -> Annotated[Handle, "array"]:
        """Return a new array of up to three dimensions, or with layers."""
        width, height, depth = (ctypes.c_uint64 * 3).from_address(description)
        format, channels, flags = (ctypes.c_uint32 * 3).from_address(description + 24)
        return self.create_array((width, height, depth), _dtype(format), channels, flags)

    def cuArrayDestroy(self, array: Handle) -> None:
        """Forget an array: its handle is none from now on."""
        self.forget(array, TexelArray)

    # copies -------------------------------------------------------------------------------------------------

    def copy_box(
        self,
        target: Box,
        target_at: Three,
        source: Box,
        source_at: Three,
        width: int,
        height: int,
        depth: int,
    ) -> None:
        """Copy a box of bytes: `width` bytes of each row."""
        if width and (width > target.pitch or width > source.pitch) and height > 1:
            raise DriverError(
                Result.INVALID_VALUE,
                f"rows of {width:,} bytes are longer than the pitch of {min(target.pitch, source.pitch):,}",
            )
        (x, y, z), (from_x, from_y, from_z) = target_at, source_at
        for plane in range(depth):
            for row in range(height):
                self.cuMemcpy(
                    target.at(x, y + row, z + plane), source.at(from_x, from_y + row, from_z + plane), width
                )

    def fill_box(self, box: Box, value: int, size: int, width: int, height: int, depth: int = 1) -> None:
        """Write a number of some bytes to each element of a box; `width` counts elements."""
        for plane in range(depth):
            for row in range(height):
                self._fill(box.at(0, row, plane), value, width, size)

    def cuMemcpy2D_v2(self, record: Pointer) -> None:
        """Copy a rectangle as a record says."""
        self._copy_as(_Copy2D.from_address(record))

    cuMemcpy2DUnaligned_v2 = cuMemcpy2D_v2

    def cuMemcpy3D_v2(self, record: Pointer) -> None:
        """Copy a box as a record says."""
        self._copy_as(_Copy3D.from_address(record))

    def _copy_as(self, asked: _Copy2D | _Copy3D) -> None:
        """Copy as a record says; one of a rectangle has no third axis."""
        (target, target_at), (source, source_at) = (self._side(asked, side) for side in ("target", "source"))
        depth = getattr(asked, "depth", 1)
        self.copy_box(target, target_at, source, source_at, asked.width, asked.height, depth)

    def _side(self, asked: _Copy2D | _Copy3D, side: str) -> tuple[Box, Three]:
        """Return one side of a copy as a record describes it: its rows, and the position in them."""
        x, y, z = (getattr(asked, f"{side}_{axis}", 0) for axis in "xyz")
        kind = getattr(asked, f"{side}_type")
        if kind == _OF_ARRAY:
            return self.known(getattr(asked, f"{side}_array"), TexelArray).box(), (x, y, z)
        if kind not in (_OF_HOST, _OF_DEVICE, _UNIFIED):
            raise DriverError(Result.INVALID_VALUE, f"no kind of memory has the number {kind}")
        start = getattr(asked, f"{side}_host" if kind == _OF_HOST else side)
        return Box(start, getattr(asked, f"{side}_pitch"), getattr(asked, f"{side}_height", 1)), (x, y, z)

    def cuMemsetD2D8_v2(self, address: U64, pitch: U64, value: U32, width: U64, height: U64) -> None:
        """Fill rows with a byte."""
        self.fill_box(Box(address, pitch, height), value, 1, width, height)

    def cuMemsetD2D16_v2(self, address: U64, pitch: U64, value: U32, width: U64, height: U64) -> None:
        """Fill rows with a number of two bytes."""
        self.fill_box(Box(address, pitch, height), value, 2, width, height)

    def cuMemsetD2D32_v2(self, address: U64, pitch: U64, value: U32, width: U64, height: U64) -> None:
        """Fill rows with a number of four bytes."""
        self.fill_box(Box(address, pitch, height), value, 4, width, height)

    # textures -----------------------------------------------------------------------------------------------

    def create_image(self, image: ImageObject) -> int:
        """Return a handle of a texture or surface, which a kernel gets as a parameter."""
        number = _FIRST_IMAGE + _IMAGE_STEP * len(self.images)
        self.images[number] = image
        return number

    def forget_image(self, image: int) -> None:
        """Forget a texture or surface; its number is not used again."""
        if self.images.get(image) is None:
            raise DriverError(Result.INVALID_HANDLE, f"{image:#x} is no handle of a texture or surface")
        self.images[image] = None

    def texture_of(
        self, texels: np.ndarray[Any, Any], channels: int, flags: int, settings: TextureSettings
    ) -> int:
        """Return a handle of a texture of texels; the flags are those of their array."""
        if flags & CUBEMAP and settings.is_linear and settings.is_seamless:
            raise DriverError(
                Result.NOT_SUPPORTED, "blends across the edges of a cube map's faces are not supported"
            )
        modes = [_ADDRESS_MODES[mode] if 0 <= mode < 4 else "clamp" for mode in settings.address]
        filter: Literal["linear", "point"] = "linear" if settings.is_linear else "point"
        whole = texels if texels.flags.c_contiguous else np.zeros(texels.shape, texels.dtype)
        try:
            made = texture(
                whole,
                filter=filter,
                address=modes,
                normalized=settings.is_normalized,
                read="normalized_float" if settings.is_normalized_float else "element",
                channels=channels,
                layered=bool(flags & LAYERED),
                cubemap=bool(flags & CUBEMAP),
                border=settings.border,
            )
        except LanewiseError as error:
            raise DriverError(Result.INVALID_VALUE, str(error)) from None
        return self.create_image(replace(made, array=texels))

    def surface_of(self, array: TexelArray) -> int:
        """Return a handle of a surface of an array."""
        try:
            has_layers = bool(array.flags & (LAYERED | CUBEMAP))  # surfaces have faces for layers
            made = surface(array.texels, channels=array.channels, layered=has_layers)
        except LanewiseError as error:
            raise DriverError(Result.INVALID_VALUE, str(error)) from None
        return self.create_image(made)

    def linear_texels(
        self, place: int, dtype: str, channels: int, width: int, height: int = 0, pitch: int = 0
    ) -> np.ndarray[Any, Any]:
        """Return memory as texels of one or two dimensions, with channels; there may be gaps between rows."""
        size = int(np.dtype(dtype).itemsize) * channels
        if height and (pitch % size or pitch < width * size):
            raise DriverError(
                Result.INVALID_VALUE,
                f"a pitch of {pitch:,} bytes does not fit rows of {width:,} texels of {size} bytes",
            )
        pitch = pitch if height else width * size
        texels = as_bytes(self.memory.host_address(place), pitch * max(height, 1)).view(dtype)
        rows = texels.reshape(max(height, 1), pitch // size, channels)[:, :width]
        if channels == 1:
            rows = rows[..., 0]
        return rows if height else rows[0]

    def texels_of(
        self, resource: int, format: Callable[[], tuple[str, int]], sizes_at: int
    ) -> tuple[np.ndarray[Any, Any], int, int]:
        """Return the texels of an array or of memory that a record names, their channels, and their flags.

        `format` returns the type and the channels of memory, and its sizes lie at `sizes_at`.
        """
        kind, start = ctypes.c_uint32.from_address(resource).value, resource + 8
        if kind == ARRAY:
            array = self.known(ctypes.c_uint64.from_address(start).value, TexelArray)
            return array.texels, array.channels, array.flags
        if kind not in (LINEAR, PITCHED):
            raise DriverError(Result.NOT_SUPPORTED, "textures of mipmapped arrays are not supported")
        dtype, channels = format()
        sizes = list((ctypes.c_uint64 * 3).from_address(sizes_at))
        if kind == LINEAR:
            sizes = [sizes[0] // (int(np.dtype(dtype).itemsize) * channels)]
        place = ctypes.c_uint64.from_address(start).value
        return self.linear_texels(place, dtype, channels, *sizes), channels, 0

    def cuTexObjectCreate(
        self, resource: Pointer, description: Pointer, view: Pointer
    ) -> Annotated[Handle, "texture"]:
        """Return a texture of an array or of memory."""
        raw = _TextureDescription.from_address(description)
        settings = TextureSettings(
            tuple(raw.address),
            raw.filter == 1,
            False,
            bool(raw.flags & _NORMALIZED),
            tuple(raw.border),
            bool(raw.flags & _SEAMLESS),
        )
        format, count = (ctypes.c_uint32 * 2).from_address(resource + 16)
        texels, channels, flags = self.texels_of(resource, lambda: (_dtype(format), count), resource + 24)
        as_float = not raw.flags & _AS_INTEGER and texels.dtype.kind in "iu" and texels.dtype.itemsize < 4
        return self.texture_of(texels, channels, flags, replace(settings, is_normalized_float=as_float))

    def cuTexObjectDestroy(self, texture: Handle) -> None:
        """Forget a texture: its handle is none from now on."""
        self.forget_image(texture)

    def cuSurfObjectCreate(self, resource: Pointer) -> Annotated[Handle, "surface"]:
        """Return a surface of an array."""
        kind = ctypes.c_uint32.from_address(resource).value
        if kind != ARRAY:
            raise DriverError(Result.INVALID_VALUE, "a surface is made of an array")
        return self.surface_of(self.known(ctypes.c_uint64.from_address(resource + 8).value, TexelArray))

    def cuSurfObjectDestroy(self, surface: Handle) -> None:
        """Forget a surface: its handle is none from now on."""
        self.forget_image(surface)


def _dtype(format: int) -> str:
    """Return the NumPy type of a channel's format."""
    if format not in FORMATS:
        raise DriverError(Result.NOT_SUPPORTED, f"texels of the format {format:#x} are not supported")
    return FORMATS[format]


def _fields(text: str) -> list[tuple[str, Any]]:
    """Return the fields of a record: words of 8 bytes, those with `:4` of 4."""
    return [
        (word.removesuffix(":4"), ctypes.c_uint32 if word.endswith(":4") else ctypes.c_uint64)
        for word in text.split()
    ]


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = _fields(
        "source_x source_y source_type:4 source_host source source_array source_pitch "
        "target_x target_y target_type:4 target_host target target_array target_pitch width height"
    )


class _Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = _fields(
        "source_x source_y source_z source_lod source_type:4 source_host source source_array reserved0 "
        "source_pitch source_height target_x target_y target_z target_lod target_type:4 target_host target "
        "target_array reserved1 target_pitch target_height width height depth"
    )


#: The bytes of the records of copies.
COPY_2D_BYTES, COPY_3D_BYTES = ctypes.sizeof(_Copy2D), ctypes.sizeof(_Copy3D)


class _TextureDescription(ctypes.Structure):
    """The first fields of CUDA_TEXTURE_DESC."""

    _fields_ = [
        ("address", ctypes.c_int32 * 3),
        ("filter", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("anisotropy", ctypes.c_uint32),
        ("mipmap_filter", ctypes.c_int32),
        ("mipmap", ctypes.c_float * 3),
        ("border", ctypes.c_float * 4),
    ]
