"""The textures and surfaces of a launch: rows in memory, and the handles by which a kernel knows them."""

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, address, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.texture_records import AddressMode, ElementKind, Geometry, TextureRow
from lanewise.ptx import Variable
from lanewise.ptx.arguments import HandleArgument
from lanewise.ptx.textures import ImageObject, Surface, Texture, require_handle

_ELEMENT_KINDS = {"u": ElementKind.UNSIGNED, "i": ElementKind.SIGNED, "f": ElementKind.FLOAT}


class TextureTable:
    """Collects the textures and surfaces among the arguments of a launch."""

    def __init__(self) -> None:
        self.images: list[ImageObject] = []
        self.titles: list[str] = []
        self.rows: Bytes = zeroed_bytes(0)

    def add(self, title: str, variable: Variable, image: HandleArgument) -> bytes:
        """Add an argument and return its handle as the bytes of its parameter."""
        assert isinstance(image, ImageObject)
        require_handle(title, variable, image)
        if not isinstance(image.array, np.ndarray):
            raise LanewiseError(f"argument {title} lies on a GPU: the machine takes textures of NumPy arrays")
        self.images.append(image)
        self.titles.append(title)
        self.rows = np.concatenate([self.rows, _row(image)])
        return handle_at(len(self.images) - 1).to_bytes(8, "little")

    def in_memory(self) -> Bytes:
        """Return the rows where they stay, for compiled code."""
        rows = zeroed_bytes(max(self.rows.size, 1))
        rows[: self.rows.size] = self.rows
        self.rows = rows
        return rows

    def find(self, handle: int) -> tuple[str, ImageObject] | None:
        """Return the argument that a handle stands for, and its title; None if there is none."""
        into = handle - abi.TEXTURE_BASE
        number = into // abi.TEXTURE_STEP
        if into % abi.TEXTURE_STEP or not 0 <= number < len(self.images):
            return None
        return self.titles[number], self.images[number]


def handle_at(number: int) -> int:
    """Return the handle of a texture or surface by its number among those of a launch."""
    return abi.TEXTURE_BASE + abi.TEXTURE_STEP * number


def _row(image: ImageObject) -> Bytes:
    """Return the row of a texture or surface."""
    row = zeroed_bytes(TextureRow.BYTES)
    numbers = {
        TextureRow.host: address(image.array),
        TextureRow.geometry: Geometry.named(image.geometry),
        TextureRow.is_surface: int(isinstance(image, Surface)),
        TextureRow.layers: image.layers,
        TextureRow.row_texels: image.row_texels,
        TextureRow.texel_bytes: image.texel_bytes,
        TextureRow.element_bytes: image.dtype.itemsize,
        TextureRow.channels: image.channels,
        TextureRow.element_kind: _ELEMENT_KINDS[image.dtype.kind],
    }
    numbers |= {TextureRow.size + 8 * axis: size for axis, size in enumerate(image.size)}
    if isinstance(image, Texture):
        numbers |= {
            TextureRow.normalized_float: int(image.read == "normalized_float"),
            TextureRow.normalized_coordinates: int(image.normalized),
            TextureRow.linear_filter: int(image.filter == "linear"),
        }
        for axis, size in enumerate(image.size):
            numbers[TextureRow.coordinate_steps + 8 * axis] = 1 << coordinate_bits(size)
        for axis, mode in enumerate(image.address):
            is_clamped = image.cubemap  # each face ends at its edges
            numbers[TextureRow.address_mode + 8 * axis] = AddressMode["CLAMP" if is_clamped else mode.upper()]
        border = _border(image)
        row[TextureRow.border : TextureRow.border + len(border)] = np.frombuffer(border, np.uint8)
    for offset, value in numbers.items():
        row[offset : offset + 8].view(np.int64)[0] = value
    return row


def coordinate_bits(size: int) -> int:
    """Return the bits of fraction that a normalised coordinate keeps on an axis of so many texels.

    Seen on an H200: 21 for up to 4,096 texels, 22 for 32,768; what lies between is inferred.
    """
    return max(21, (size - 1).bit_length() + 7)


def _border(image: Texture) -> bytes:
    """Return the texel beyond the border as it would lie in memory.

    Seen on an H200: for f16 numbers are cut off, for normalised integers rounded to nearest, ties to even.
    """
    colours = np.array(image.border[: image.channels], np.float64)
    if image.dtype == np.float16:
        single = colours.astype(np.float32)
        nearest = single.astype(np.float16)
        further = np.abs(nearest.astype(np.float32)) > np.abs(single)
        texel = np.where(further, np.nextafter(nearest, np.float16(0)), nearest)
    elif image.dtype.kind == "f":
        texel = colours
    elif image.read == "normalized_float":
        most = np.iinfo(image.dtype).max
        limited = np.clip(colours.astype(np.float32), -1 if image.dtype.kind == "i" else 0, 1)
        texel = np.rint(limited * np.float32(most))
    else:
        texel = colours.astype(np.int64)
    return bytes(texel.astype(image.dtype).tobytes())
