"""What compiled code and Python agree on about textures and surfaces: a record, and numbers of choices."""

from __future__ import annotations

from enum import IntEnum

from lanewise.machine.abi import RecordLayout, field


class TextureRow(RecordLayout):
    """An entry of the table of textures and surfaces: the texels, and how they are read."""

    host = field()
    #: A Geometry, and whether it is a surface.
    geometry = field()
    is_surface = field()
    #: Texels along x, y and z, then layers, of which a cube map has six; 1 where there is no such dimension.
    size = field(elements=3)
    layers = field()
    #: Texels from one row to the next.
    row_texels = field()
    #: Bytes of a texel and of one of its channels, how many there are, and their ElementKind.
    texel_bytes = field()
    element_bytes = field()
    channels = field()
    element_kind = field()
    #: Whether integers are read as floats from -1 or 0 to 1, and coordinates run from 0 to 1.
    normalized_float = field()
    normalized_coordinates = field()
    #: Steps from 0 to 1 that normalised coordinates along x, y and z are rounded down to.
    coordinate_steps = field(elements=3)
    #: Whether texels are blended.
    linear_filter = field()
    #: The AddressMode along x, y and z.
    address_mode = field(elements=3)
    #: The texel beyond the border, as it would lie in memory.
    border = field(1, 16, 4)


class Geometry(IntEnum):
    """The geometries of textures and surfaces, under the names that PTX has for them."""

    _1D = 1
    _2D = 2
    _3D = 3
    A1D = 4
    A2D = 5
    CUBE = 6
    ACUBE = 7

    @classmethod
    def named(cls, name: str) -> Geometry:
        """Return a geometry by its name in PTX: 1d, 3d, a2d."""
        return cls[f"_{name}".upper() if name[0].isdigit() else name.upper()]

    @property
    def is_cube(self) -> bool:
        """Whether it is read by directions, its layers the six faces of a cube."""
        return self in (Geometry.CUBE, Geometry.ACUBE)

    @property
    def title(self) -> str:
        """The name in messages, which is that of PTX."""
        return self.name.lstrip("_").lower()


class ElementKind(IntEnum):
    """What the channels of a texel are."""

    UNSIGNED = 0
    SIGNED = 1
    FLOAT = 2


class AddressMode(IntEnum):
    """What a texture returns beyond its texels; the numbers are CUDA's."""

    WRAP = 0
    CLAMP = 1
    MIRROR = 2
    BORDER = 3
