"""A tensor map of the mode im2col as data: encoded to the 128 bytes that the driver gives, and its rules.

A copy takes a column of pixels: from a first one on, along the width of the bounding box, then along its
height and depth, then in the next image; of each pixel some channels. Convolutions load their input so. The
rules and the bytes are those of `cuTensorMapEncodeIm2col` (benchmarks/results/h200_im2col_maps.json).
"""

from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import MappedTensor, TiledTensor, decode_fields, field_numbers
from lanewise.isa.tensor_map_fields import (
    CORNER_BITS,
    ELEMENT_TYPES,
    FIELD,
    IM2COL,
    MOST_AXES,
    OTHER_AXES,
    PIXELS,
    corner_field,
)
from lanewise.isa.tensor_map_rules import BOX_UNIT, MOST_BOX_BYTES, nearest, violation

#: The fewest axes: channels, one axis of pixels, images.
LEAST_AXES = OTHER_AXES + 1


@dataclass(frozen=True)
class Im2colTensor(MappedTensor):
    """A tensor and its columns of pixels as a tensor map has them; axis 0 is the innermost.

    `lower` and `upper` are the corners of the bounding box for each axis of pixels, the innermost first: the
    first pixel, and the last one counted from the last pixel of the tensor.

    >>> strides, corner = (128, 1792, 25088), (-1, -1)
    >>> images = Im2colTensor("f16", (64, 14, 14, 8), strides, corner, corner, 64, 128, (1,) * 4)
    >>> images.box_bytes
    16384
    >>> len(images.encode(0x7F0000000000))
    128
    >>> Im2colTensor("f32", (8, 9, 2), (32, 288), (-1,), (-1,), 8, 16, (1, 1, 1)).described()
    'f32 (2, 9, 8), im2col of 16 pixels and 8 channels, corners (-1,) and (-1,)'
    """

    type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zeros"

    @property
    def box(self) -> tuple[int, ...]:
        """What a copy takes: the channels of a pixel, and the pixels."""
        return self.channels, self.pixels

    @property
    def row_bytes(self) -> int:
        """The bytes of a pixel that a copy takes."""
        return self.interleaving.alignment if self.is_interleaved else self.channels * self.element.bytes

    @property
    def rows(self) -> int:
        """The pixels that a copy takes."""
        return self.pixels

    @property
    def first_axis(self) -> int:
        """The innermost axis of pixels: 1, behind the channels; 0 in an interleaved layout."""
        return 0 if self.is_interleaved else 1

    def one_pixel(self) -> TiledTensor:
        """Return the tensor as a tiled one with a box of 16 bytes: what both modes have in common."""
        size = self.element.bytes if self.type in ELEMENT_TYPES else BOX_UNIT
        box = (BOX_UNIT // size, *(1,) * (len(self.dims) - 1))
        modes = (self.interleave, self.swizzle, self.l2_promotion, self.fill)
        return TiledTensor(self.type, self.dims, self.strides, box, self.element_strides, *modes)

    def violation(self) -> str | None:
        """Return the rule that the map breaks, with the nearest that is legal; None if it breaks none."""
        if not LEAST_AXES <= self.rank <= MOST_AXES:
            return (
                f"im2col takes a tensor of {LEAST_AXES} to {MOST_AXES} axes: images, one to three axes of "
                f"pixels, and channels; not of {self.rank}"
            )
        return violation(self.one_pixel()) or self._corners() or self._column()

    def _corners(self) -> str | None:
        """Return what is wrong with a corner of the bounding box."""
        count, half = self.rank - OTHER_AXES, 1 << (CORNER_BITS[self.rank] - 1)
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if len(corner) != count:
                return (
                    f"a tensor of {self.rank} axes has {count} axes of pixels, so that the {name} corner of "
                    f"its bounding box has as many coordinates, not {len(corner)}"
                )
            for axis, value in enumerate(corner):
                if not -half <= value < half:
                    return (
                        f"the {name} corner of axis {self._number(axis)} is {value}; {-half} to {half - 1} "
                        f"are legal for {self.rank} axes: {nearest(value, 1, -half, half - 1)} is nearest"
                    )
        for axis, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            size = self.dims[self.first_axis + axis]
            # The driver counts in 32 bits with a sign.
            last = (size + (1 << 31)) % (1 << 32) - (1 << 31) - 1 + high
            if last < low:
                return (
                    f"axis {self._number(axis)} has {size} pixels, and the driver takes fewer than 2**31"
                    if size >= 1 << 31
                    else f"along axis {self._number(axis)} the bounding box begins at {low} and ends at "
                    f"{last}, {-high} before the last of {size} pixels; it has at least one pixel"
                )
        return None

    def _number(self, axis: int) -> int:
        """Return the number of an axis of pixels in the order of arrays."""
        return self.rank - 1 - self.first_axis - axis

    def _column(self) -> str | None:
        """Return what is wrong with the channels and pixels that a copy takes."""
        size, most = self.element.bytes, FIELD["box0"].limit - 1
        if not 1 <= self.channels <= most:
            return f"a copy takes 1 to {most} channels of a pixel, not {self.channels}"
        if not 1 <= self.pixels < PIXELS.limit:
            return f"a copy takes 1 to {PIXELS.limit - 1} pixels, not {self.pixels}"
        unit = BOX_UNIT // size
        widest = 0 if self.is_interleaved else self.swizzle_mode.row_bytes
        near = nearest(self.channels, unit, unit, widest // size or most // unit * unit)
        if self.channels * size % BOX_UNIT:
            return (
                f"the channels that a copy takes of a pixel are a multiple of {BOX_UNIT} bytes, and "
                f"{self.channels} of {self.type} are {self.channels * size}: {near} are nearest"
            )
        if widest and self.channels * size > widest:
            return (
                f"with swizzle {self.swizzle} a copy takes at most {widest} bytes of a pixel, and "
                f"{self.channels} channels of {self.type} are {self.channels * size}: {near} are nearest"
            )
        count = self.channels * self.pixels * size
        if count > MOST_BOX_BYTES:
            return (
                f"a copy takes at most {MOST_BOX_BYTES} bytes (228 KB), and {self.pixels} pixels are "
                f"{count}: {MOST_BOX_BYTES // (self.channels * size)} would fit"
            )
        return None

    def _bits(self, address: int) -> int:
        noted = self.channels * self.pixels * self.element.bytes
        values = field_numbers(self, address, IM2COL, noted) | {"box0": self.channels}
        bits = sum(FIELD[name].put(value) for name, value in values.items()) + PIXELS.put(self.pixels)
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            bits += sum(corner_field(name, self.rank, axis).put(value) for axis, value in enumerate(corner))
        return bits

    def _box_in_words(self) -> list[str]:
        return [
            f"im2col of {self.pixels} pixels and {self.channels} channels",
            f"corners {self.lower[::-1]} and {self.upper[::-1]}",
        ]


def decode_im2col(raw: bytes) -> tuple[int, Im2colTensor]:
    """Return the address and the tensor that 128 bytes of the mode im2col say."""
    address, common = decode_fields(raw, IM2COL)
    rank, number = common.rank, int.from_bytes(raw, "little")
    if rank < LEAST_AXES:
        raise LanewiseError(f"this is no tensor map of im2col: it says {rank} axes, and im2col takes 3 to 5")
    half = 1 << (CORNER_BITS[rank] - 1)

    def corner(name: str) -> tuple[int, ...]:
        fields = (corner_field(name, rank, axis) for axis in range(rank - OTHER_AXES))
        return tuple((field.of(number) ^ half) - half for field in fields)

    return address, Im2colTensor(
        common.type, common.dims, common.strides, corner("lower"), corner("upper"), FIELD["box0"].of(number),
        PIXELS.of(number), common.element_strides, common.interleave, common.swizzle, common.l2_promotion,
        common.fill,
    )  # fmt: skip
