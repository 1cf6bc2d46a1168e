"""Texture and surface objects as kernels take them: an array, and how it is read.

`lw.texture` and `lw.surface` make them; a kernel has a cudaTextureObject_t or cudaSurfaceObject_t for each
among its parameters. What a fetch returns is the business of the engine that runs the kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.numpy_types import AnyDtype
from lanewise.ptx.arguments import HandleArgument
from lanewise.ptx.model.directives import Variable
from lanewise.tracebacks import short_traceback

Filter = Literal["point", "linear"]
AddressMode = Literal["wrap", "clamp", "mirror", "border"]
Read = Literal["element", "normalized_float"]

#: The types of a texel's channels that a GPU has, as NumPy writes them.
ELEMENTS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")
CHANNELS = (1, 2, 4)


@dataclass(frozen=True, eq=False)
class ImageObject(HandleArgument):
    """An array seen as texels: its dimensions without layers and channels, and the texels' type."""

    array: Any = field(repr=False)
    #: Texels along x, y and z; 1 where there is no such dimension.
    size: tuple[int, int, int]
    #: How many dimensions a layer has: 1 to 3.
    dimensions: int
    layers: int
    dtype: AnyDtype
    channels: int
    layered: bool
    #: Whether its layers are the faces of cubes, six of each.
    cubemap: bool

    @property
    def geometry(self) -> str:
        """The geometry as PTX names it: 1d, 2d, 3d, a1d, a2d, cube or acube."""
        return f"{'a' if self.layered else ''}{'cube' if self.cubemap else f'{self.dimensions}d'}"

    @property
    def row_texels(self) -> int:
        """The texels from one row to the next: more than a row has where rows lie at a pitch."""
        if self.dimensions == 1 or not isinstance(self.array, np.ndarray):
            return self.size[0]
        return int(self.array.strides[-3 if self.channels > 1 else -2]) // self.texel_bytes

    @property
    def texel_bytes(self) -> int:
        """The bytes of a texel."""
        return self.dtype.itemsize * self.channels


@dataclass(frozen=True, eq=False)
class Texture(ImageObject):
    """A texture object: texels, how coordinates are taken, and what a fetch returns."""

    filter: Filter
    #: For x, y and z.
    address: tuple[AddressMode, AddressMode, AddressMode]
    normalized: bool
    read: Read
    border: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Surface(ImageObject):
    """A surface object: texels that a kernel reads and writes by their place."""


@short_traceback
def texture(
    array: object,
    *,
    filter: Filter = "point",
    address: AddressMode | Sequence[AddressMode] = "clamp",
    normalized: bool = False,
    read: Read = "element",
    channels: int = 1,
    layered: bool = False,
    cubemap: bool = False,
    border: float | Sequence[float] = 0.0,
) -> Texture:
    """Return an array as a texture, to be passed for a `cudaTextureObject_t`.

    The array's last dimension is x: `(width,)`, `(height, width)` or `(depth, height, width)`. With `layered`
    the first dimension counts layers, with `cubemap` the six faces of a cube (+x, -x, +y, -y, +z, -z), with
    both those of several; `channels` of 2 or 4 are a last dimension of their own. `address` is a mode, or one
    for each of x, y and z. "wrap" and "mirror" are for normalised coordinates; others they leave clamped, as
    on a GPU; faces of cubes are always clamped. The kernel sees what the array holds when it runs.

    >>> import lanewise as lw
    >>> picture = np.arange(12, dtype=np.float32).reshape(3, 4)
    >>> lw.texture(picture, filter="linear").size
    (4, 3, 1)
    """
    _require_one_of("filter", filter, get_args(Filter))
    _require_one_of("read", read, get_args(Read))
    image = _image("texture", array, channels, layered, cubemap)
    if cubemap and not normalized:
        raise LanewiseError("a cube map is read by directions: pass normalized=True")
    modes = (address,) if isinstance(address, str) else tuple(address)
    for mode in modes:
        _require_one_of("address", mode, get_args(AddressMode))
    if len(modes) not in (1, image["dimensions"], 3):
        raise LanewiseError(
            f"address= is one mode, or one for each of {image['dimensions']} dimensions; {len(modes)} given"
        )
    x, y, z = (*modes, *(modes[-1],) * 3)[:3]
    small_integer = image["dtype"].kind in "iu" and image["dtype"].itemsize < 4
    if read == "normalized_float" and not small_integer:
        raise LanewiseError(
            f'read="normalized_float" is for integers of 8 and 16 bits; the array is {image["dtype"]}'
        )
    if filter == "linear" and image["dtype"].kind != "f" and read == "element":
        raise LanewiseError(
            f'filter="linear" blends floats; the array is {image["dtype"]}: '
            + ('pass read="normalized_float"' if small_integer else "convert it to float32")
        )
    colours = (border,) * 4 if isinstance(border, int | float) else tuple(border)
    if len(colours) not in (1, 2, 4) or not all(isinstance(colour, int | float) for colour in colours):
        raise LanewiseError(f"border= is a number, or one for each of up to four channels, not {border!r}")
    r, g, b, a = (float(colour) for colour in (*colours, 0.0, 0.0, 0.0)[:4])
    if image["dtype"].kind != "f" and read == "element" and any(not x.is_integer() for x in (r, g, b, a)):
        raise LanewiseError(f"border={border!r}: the texels are integers, and so must the border be")
    return Texture(
        **image, filter=filter, address=(x, y, z), normalized=bool(normalized), read=read, border=(r, g, b, a)
    )


@short_traceback
def surface(array: object, *, channels: int = 1, layered: bool = False) -> Surface:
    """Return an array as a surface, to be passed for a `cudaSurfaceObject_t`; a kernel writes into the array.

    Dimensions, layers and channels are as `lw.texture` has them.

    >>> import lanewise as lw
    >>> lw.surface(np.zeros((3, 8, 16, 4), np.uint8), channels=4, layered=True).geometry
    'a2d'
    """
    image = _image("surface", array, channels, layered, cubemap=False)
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise LanewiseError("a kernel writes through a surface; the array is read-only: pass array.copy()")
    return Surface(**image)


def require_handle(title: str, variable: Variable, image: ImageObject) -> None:
    """An error if a parameter cannot hold the handle of a texture or surface."""
    if variable.size != 8 or variable.dims or variable.type.startswith("f"):
        kind = "surface" if isinstance(image, Surface) else "texture"
        raise LanewiseError(
            f"argument {title} is .{variable.type}; a {kind} is passed for a 64-bit handle "
            f"(cuda{kind.capitalize()}Object_t)"
        )


def _require_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LanewiseError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")


def _image(kind: str, array: object, channels: int, layered: bool, cubemap: bool) -> dict[str, Any]:
    """Return the fields of an ImageObject; an error if the array cannot be one."""
    shape, dtype, whole = _described(kind, array)
    if dtype.name not in ELEMENTS or dtype.byteorder == ">":
        raise LanewiseError(
            f"the texels of a {kind} are {', '.join(ELEMENTS)}, and not {dtype.newbyteorder('=').name}"
            f"{' (big-endian)' if dtype.byteorder == '>' else ''}; "
            + ("pass array.view(numpy.int32) with channels=2" if dtype.itemsize == 8 else "convert the array")
        )
    if channels not in CHANNELS:
        raise LanewiseError(f"a texel has 1, 2 or 4 channels, not {channels!r}")
    if channels > 1:
        if not shape or shape[-1] != channels:
            raise LanewiseError(
                f"channels={channels}: the last dimension of the array {shape} is not {channels}"
            )
        shape = shape[:-1]
    outer = bool(layered or cubemap)
    dimensions = len(shape) - outer
    most = 2 if outer else 3
    if not 1 <= dimensions <= most:
        raise LanewiseError(
            f"a {'layered ' * layered}{kind} has 1 to {most} dimensions{' beside its layers' * outer}; "
            f"the array has {dimensions}"
        )
    if prod(shape) == 0:
        raise LanewiseError(f"a {kind} has at least one texel; the array has shape {shape}")
    if not whole:
        raise LanewiseError(
            f"the array of a {kind} must be in one piece, in C's order; np.ascontiguousarray copies it"
        )
    if cubemap:
        surplus = shape[0] % 6 if layered else shape[0] - 6
        if dimensions != 2 or shape[1] != shape[2] or surplus != 0:
            raise LanewiseError(
                f"a cube map has six square faces{' for each layer' * layered}; the array has shape {shape}"
            )
    layers = shape[0] if outer else 1
    width, height, depth = (*reversed(shape[outer:]), 1, 1)[:3]
    return {
        "array": array,
        "size": (width, height, depth),
        "dimensions": dimensions,
        "layers": layers,
        "dtype": dtype,
        "channels": channels,
        "layered": bool(layered),
        "cubemap": bool(cubemap),
    }


def _described(kind: str, array: object) -> tuple[tuple[int, ...], AnyDtype, bool]:
    """Return an array's shape and type, and whether it is in one piece; NumPy's or one on a GPU."""
    if isinstance(array, np.ndarray):
        return array.shape, array.dtype, bool(array.flags.c_contiguous)
    interface = getattr(array, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        raise LanewiseError(
            f"a {kind} is made of a NumPy array or an array on a GPU, not of {type(array).__name__}"
        )
    return tuple(interface["shape"]), np.dtype(interface["typestr"]), interface.get("strides") is None
