"""A tensor map as data, tiled or im2col: encoded to the driver's 128 bytes, decoded, and its rules.

The rules by which `cuTensorMapEncodeTiled` refuses a map, each in a sentence, were found and are held on an
H200 (benchmarks/results/h200_tensor_maps.json): the driver's return code for every combination of types and
modes, and for each size at its limits. Those of `cuTensorMapEncodeIm2col` and its bytes are in
benchmarks/results/h200_im2col_maps.json. Where a field lies is written in `tensor_map_fields.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from functools import cached_property
from math import prod

from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number
from lanewise.isa.tensor_map_fields import (
    CORNER_BITS,
    DERIVED,
    ELEMENT_TYPES,
    EVERY_SWIZZLE,
    EVERY_TYPE,
    FIELD,
    FIELDS,
    FILLS,
    IM2COL,
    INTERLEAVES,
    L2_PROMOTIONS,
    LATER_SWIZZLES,
    MAP_BYTES,
    MOST_AXES,
    OTHER_AXES,
    PACKED_TYPES,
    PIXELS,
    SWIZZLES,
    TILED,
    ElementType,
    Interleave,
    MapSwizzle,
    corner_field,
)

#: What the innermost axis of a box is a multiple of, in bytes.
BOX_UNIT = 16
#: The bytes that a box has at most: the shared memory of an SM.
MOST_BOX_BYTES = 228 << 10
#: Interleaved layouts have a channel axis and at least two more.
LEAST_INTERLEAVED_AXES = 3
#: The arch from which on there are packed types and more swizzles.
LATER_ARCH = 100
#: The elements of padded types along the innermost axis of a box, and what addresses are multiples of then.
PADDED_BOX, PADDED_ALIGNMENT = 128, 32


class MappedTensor(ABC):
    """What tensor maps of both modes say of their tensor, and how they are encoded and described."""

    type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    fill: str

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def element(self) -> ElementType:
        """The type of the elements."""
        return EVERY_TYPE[self.type]

    @property
    def swizzle_mode(self) -> MapSwizzle:
        """The swizzle with its numbers."""
        return EVERY_SWIZZLE[self.swizzle]

    @property
    def interleaving(self) -> Interleave:
        """The interleaved layout with its numbers."""
        return INTERLEAVES[self.interleave]

    @property
    def is_interleaved(self) -> bool:
        """Whether 16 or 32 bytes of channels take the place of an element of the innermost axis."""
        return self.interleave != "none"

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """The bytes of a row of what a copy takes."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The rows of what a copy takes, in shared memory."""

    @property
    def row_pitch(self) -> int:
        """The bytes from one row to the next in shared memory; a swizzle has rows of its own width.

        Seen on an H200: of a box that is narrower than its swizzle, the bytes between rows are not written.
        """
        return self.row_bytes if self.is_interleaved else self.swizzle_mode.row_bytes or self.row_bytes

    @property
    def box_bytes(self) -> int:
        """The bytes of what a copy takes: what its mbarrier has to expect.

        Elements that are padded in shared memory count as they lie in the tensor.
        """
        element = EVERY_TYPE.get(self.type)
        size = self.rows * self.row_bytes
        return size * element.packed_bytes // element.bytes if element and element.is_padded else size

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory from the first byte of what a copy takes to its last row's end."""
        return self.rows * self.row_pitch

    def violation(self) -> str | None:
        """Return the rule that the map breaks, with the nearest that is legal; None if it breaks none."""
        return self._violation

    @property
    @abstractmethod
    def _violation(self) -> str | None:
        """What `violation` returns, looked for once."""

    def require_legal(self) -> None:
        """Raise an error if the driver refuses to encode such a map: it names the rule and what is legal."""
        broken = self.violation()
        if broken is not None:
            raise LanewiseError(broken)

    @property
    @abstractmethod
    def _bits(self) -> int:
        """The fields of the map as one number, without the address; packed once."""

    def encode(self, address: int) -> bytes:
        """Return the 128 bytes for the tensor at a device address, as the driver gives them."""
        padded = self.type in EVERY_TYPE and self.element.is_padded
        broken = self.violation() or address_violation(self.interleave, address, padded)
        if broken is not None:
            raise LanewiseError(broken)
        return (self._bits + FIELD["address"].put(address)).to_bytes(MAP_BYTES, "little")

    @abstractmethod
    def _box_in_words(self) -> list[str]:
        """Return what a copy takes, in words."""

    def described(self) -> str:
        """Return the tensor in words, shapes in the order of arrays: the outermost axis first."""
        words = [f"{self.type} {self.dims[::-1]}", *self._box_in_words()]
        if any(step > 1 for step in self.element_strides):
            words.append(f"element strides {self.element_strides[::-1]}")
        for name, value, usual in (
            ("swizzle", self.swizzle, "none"),
            ("interleave", self.interleave, "none"),
            ("L2 promotion", self.l2_promotion, "none"),
            ("fill", self.fill, "zeros"),
        ):
            if value != usual:
                words.append(f"{name} {value}")
        return ", ".join(words)


@dataclass(frozen=True)
class TiledTensor(MappedTensor, Drawn):
    """A tensor and its boxes as a tensor map has them; axis 0 is the innermost. Its address is left open.

    `strides` are those of axes 1 and up, in bytes.

    >>> matrix = TiledTensor("f16", (1024, 4096), (2048,), (64, 128), (1, 1), swizzle="128B")
    >>> matrix.box_bytes
    16384
    >>> decode(matrix.encode(0x7F0000000000)) == (0x7F0000000000, matrix)
    True
    >>> TiledTensor("f32", (64, 32), (256,), (32, 8), (1, 1)).described()
    'f32 (32, 64), box (8, 32)'
    """

    type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zeros"
    #: The arch that the map is for: sm_100 and later have more types and swizzles.
    arch: str = data_field(default="sm_90", compare=False)

    @property
    def noted_bytes(self) -> int:
        """The bytes of a box as the driver counts them: element strides round each axis down."""
        steps = zip(self.box, self.element_strides, strict=True)
        return prod(box // step for box, step in steps) * self.element.bytes // self.element.elements

    @property
    def is_later(self) -> bool:
        """Whether the map is for sm_100 or later."""
        return arch_number(self.arch) >= LATER_ARCH

    @property
    def place_bytes(self) -> int:
        """The bytes that one place along the innermost axis has: those of an element, if not interleaved.

        Of packed types a place has 2 or 16 elements.
        """
        return self.interleaving.alignment if self.is_interleaved else self.element.bytes

    @property
    def copied(self) -> tuple[int, ...]:
        """The places that a copy takes along each axis: of every element stride that begins in the box, one.

        Seen on an H200: the innermost axis has no element stride unless the layout is interleaved; an
        interleaved box has one slice of channels, the axis before the outermost.
        """
        steps = (self.element_strides[0] if self.is_interleaved else 1, *self.element_strides[1:])
        counts = [-(-box // step) for box, step in zip(self.box, steps, strict=True)]
        counts[0] //= self.element.elements
        if self.is_interleaved:
            counts[-2] = 1
        return tuple(counts)

    @property
    def rows(self) -> int:
        """The rows of a box in shared memory: the elements that a copy takes along all axes but axis 0."""
        return prod(self.copied[1:])

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of a box."""
        return self.copied[0] * self.place_bytes

    def swizzled(self, offset: int) -> int:
        """Return where the byte lies that would lie at an offset of shared memory without the swizzle.

        >>> TiledTensor("f16", (64, 64), (128,), (64, 64), (1, 1), swizzle="128B").swizzled(3 * 128)
        432
        """
        return self.swizzle_mode.moved(offset)

    @cached_property
    def _violation(self) -> str | None:
        return next((broken for rule in _RULES if (broken := rule(self)) is not None), None)

    @cached_property
    def _bits(self) -> int:
        # The driver rounds the bytes down, although a copy takes what `copied` says.
        values = field_numbers(self, TILED, self.noted_bytes)
        values |= {f"box{axis}": size for axis, size in enumerate(self.box)}
        return sum(FIELD[name].put(value) for name, value in values.items())

    def _box_in_words(self) -> list[str]:
        return [f"box {self.box[::-1]}"]


def field_numbers(tensor: MappedTensor, mode: int, box_bytes: int) -> dict[str, int]:
    """Return the fields that maps of both modes have, by name, but for the address."""
    element, swizzle = tensor.element, tensor.swizzle_mode
    values = {
        "mode": mode,
        "rank": tensor.rank,
        "type": element.code,
        "interleave": tensor.interleaving.code,
        "swizzle": swizzle.code,
        "atomicity": swizzle.atomicity,
        "fill": FILLS[tensor.fill],
        "tf32": int(element.tf32),
        "l2_promotion": L2_PROMOTIONS[tensor.l2_promotion],
        "box_bytes": box_bytes,
        "shared_alignment": swizzle.alignment,
    }
    for name, sizes, first in (
        ("dim", tensor.dims, 0),
        ("stride", tensor.strides, 1),
        ("element_stride", tensor.element_strides, 0),
    ):
        values |= {f"{name}{axis}": size for axis, size in enumerate(sizes, first)}
    return values


def field_values(raw: bytes) -> dict[str, int]:
    """Return the value of every field of 128 bytes, whether they are a legal map or not.

    >>> field_values(bytes(128))["rank"]
    1
    """
    number = _number(raw)
    return {field.name: field.of(number) for field in FIELDS}


def unknown_bits(raw: bytes) -> list[int]:
    """Return the bits of 128 bytes that are set and belong to no field."""
    rest = _number(raw) & ~sum(field.mask for field in FIELDS)
    return [bit for bit in range(8 * MAP_BYTES) if rest >> bit & 1]


def decode(raw: bytes) -> tuple[int, TiledTensor]:
    """Return the address and the tensor that 128 bytes say; an error if they are no tiled map.

    What the driver notes besides (`DERIVED`) is not looked at.
    """
    return decode_fields(raw, TILED)


#: What messages call the modes.
_MODES = {TILED: "tiled", IM2COL: "im2col"}


def decode_fields(raw: bytes, mode: int) -> tuple[int, TiledTensor]:
    """Return the address and the tensor that 128 bytes of a mode say, read as a tiled map has its fields."""
    values = field_values(raw)
    rank = values["rank"]
    if values["mode"] != mode:
        if values["mode"] in _MODES:
            raise LanewiseError(
                f"this is a tensor map of the mode {_MODES[values['mode']]}, not {_MODES[mode]}"
            )
        raise LanewiseError(
            f"this is no tensor map: its mode is {values['mode']}, and {mode} is {_MODES[mode]}"
        )
    if rank > MOST_AXES:
        raise LanewiseError(f"this is no tensor map: it says {rank} axes, and a tensor has 1 to {MOST_AXES}")
    types = {(kind.code, kind.tf32): kind.name for kind in EVERY_TYPE.values()}
    type = types.get((values["type"], bool(values["tf32"])))
    if type is None:
        raise LanewiseError(f"this is no tensor map: no type has the number {values['type']}")
    interleave = next(
        (interleave.name for interleave in INTERLEAVES.values() if interleave.code == values["interleave"]),
        None,
    )
    if interleave is None:
        raise LanewiseError(
            f"this is no tensor map: no interleaved layout has the number {values['interleave']}"
        )

    modes = ((mode.code, mode.atomicity, mode.name) for mode in EVERY_SWIZZLE.values())
    written = values["swizzle"], values["atomicity"]
    swizzle = next((name for *numbers, name in modes if tuple(numbers) == written), None)
    if swizzle is None:
        raise LanewiseError(f"this is no tensor map: swizzle {written[0]} has no atomicity {written[1]}")
    is_later = type in PACKED_TYPES or swizzle in LATER_SWIZZLES

    def sizes(name: str, first: int = 0) -> tuple[int, ...]:
        return tuple(values[f"{name}{axis}"] for axis in range(first, rank))

    return values["address"], TiledTensor(
        type,
        sizes("dim"),
        sizes("stride", 1),
        sizes("box"),
        sizes("element_stride"),
        interleave,
        swizzle,
        next(name for name, code in L2_PROMOTIONS.items() if code == values["l2_promotion"]),
        next(name for name, code in FILLS.items() if code == values["fill"]),
        f"sm_{LATER_ARCH}" if is_later else "sm_90",
    )


def noted_otherwise(raw: bytes) -> list[str]:
    """Return the derived fields that do not say what the others make of them."""
    values = field_values(raw)
    _, tensor = decode(raw)
    expected = {"box_bytes": tensor.noted_bytes, "shared_alignment": tensor.swizzle_mode.alignment}
    return [name for name in DERIVED if values[name] != expected[name]]


def _number(raw: bytes) -> int:
    """Return a map as one number."""
    if len(raw) != MAP_BYTES:
        raise LanewiseError(f"a tensor map has {MAP_BYTES} bytes; {len(raw)} were given")
    return int.from_bytes(raw, "little")


#: The fewest axes: channels, one axis of pixels, images.
LEAST_AXES = OTHER_AXES + 1


@dataclass(frozen=True)
class Im2colTensor(MappedTensor):
    """A tensor and its columns of pixels as a tensor map of im2col has them; axis 0 is the innermost.

    A copy takes a column of pixels: from a first one on, along the width of the bounding box, then along its
    height and depth, then in the next image; of each pixel some channels. Convolutions load their input so.
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

    @cached_property
    def _violation(self) -> str | None:
        if not LEAST_AXES <= self.rank <= MOST_AXES:
            return (
                f"im2col takes a tensor of {LEAST_AXES} to {MOST_AXES} axes: images, one to three axes of "
                f"pixels, and channels; not of {self.rank}"
            )
        return self.one_pixel().violation() or self._corners() or self._column()

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

    @cached_property
    def _bits(self) -> int:
        noted = self.channels * self.pixels * self.element.bytes
        values = field_numbers(self, IM2COL, noted) | {"box0": self.channels}
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


def address_violation(interleave: str, address: int, is_padded: bool = False) -> str | None:
    """Return the rule that the address of a tensor breaks; None if it is legal."""
    unit, limit = INTERLEAVES[interleave].alignment, FIELD["address"].limit
    if is_padded and address % PADDED_ALIGNMENT:
        return f"the address of a tensor with padded elements is a multiple of {PADDED_ALIGNMENT} bytes"
    if 0 <= address < limit and address % unit == 0:
        return None
    if not 0 <= address < limit:
        return f"the address of a tensor is below {limit:#x}; {address:#x} is not"
    return (
        f"the address of a tensor is a multiple of {unit} bytes{_because_interleaved(interleave)}; "
        f"{address:#x} is {address % unit} past one: {nearest(address, unit, 0, limit - unit):#x} is nearest"
    )


def nearest(value: int, unit: int, low: int, high: int) -> int:
    """Return the multiple of a unit from low to high that is nearest to a value; of two, the smaller.

    >>> nearest(100, 16, 16, 256), nearest(0, 16, 16, 256), nearest(1000, 16, 16, 256)
    (96, 16, 256)
    """
    return min(max(-(-(2 * value - unit) // (2 * unit)) * unit, low), high)


def _because_interleaved(interleave: str) -> str:
    """Return the words that say why 32 and not 16 is the unit."""
    return f" with interleave {interleave}" if interleave == "32B" else ""


def _axis(tensor: TiledTensor, axis: int) -> str:
    """Return how messages call an axis: by its number in the order of arrays."""
    number = f"axis {tensor.rank - 1 - axis}"
    return f"{number}, the innermost," if axis == 0 and tensor.rank > 1 else number


# the rules, in the order in which they are named ---------------------------------------------------------


def _names(tensor: TiledTensor) -> str | None:
    """Return what is wrong with the type or with a mode."""
    if tensor.type in PACKED_TYPES and not tensor.is_later:
        return (
            f"{tensor.type} (CU_TENSOR_MAP_DATA_TYPE_{PACKED_TYPES[tensor.type]}) needs sm_100 or later; "
            "on sm_90 packed values are copied as the bytes they lie in, u8"
        )
    if tensor.swizzle in LATER_SWIZZLES and not tensor.is_later:
        return f'swizzle {tensor.swizzle} needs sm_100 or later; sm_90 has "none", "32B", "64B" and "128B"'
    for what, value, known in (
        ("the type of a tensor", tensor.type, EVERY_TYPE if tensor.is_later else ELEMENT_TYPES),
        ("interleave", tensor.interleave, INTERLEAVES),
        ("swizzle", tensor.swizzle, EVERY_SWIZZLE if tensor.is_later else SWIZZLES),
        ("l2_promotion", tensor.l2_promotion, L2_PROMOTIONS),
        ("fill", tensor.fill, FILLS),
    ):
        if value not in known:
            return f"{what} is one of {', '.join(map(repr, known))}, not {value!r}"
    if tensor.fill == "nan" and not tensor.element.is_float:
        return f'fill "nan" is for floats; elements of {tensor.type} are filled with "zeros"'
    return None


def _padded(tensor: TiledTensor) -> str | None:
    """Return which of the rules a map of a packed type breaks (PTX ISA, 9.7.9.25.5.1)."""
    element = tensor.element
    if tensor.type not in PACKED_TYPES:
        return None
    if not element.is_padded:
        if tensor.dims[0] % element.elements:
            return f"the innermost axis has a multiple of 2 elements of {tensor.type}, not {tensor.dims[0]}"
        return None
    if tensor.is_interleaved:
        return f"elements of {tensor.type} are not interleaved; interleave is none"
    if tensor.swizzle not in ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"):
        return (
            f"with elements of {tensor.type} the swizzle is none, 128B, 128B_ATOM_32B or 128B_ATOM_64B, "
            f"not {tensor.swizzle}"
        )
    if tensor.box[0] != PADDED_BOX:
        return f"the innermost axis of a box has {PADDED_BOX} elements of {tensor.type}, not {tensor.box[0]}"
    if tensor.dims[0] % PADDED_BOX:
        near = nearest(tensor.dims[0], PADDED_BOX, PADDED_BOX, 1 << 31)
        return (
            f"the innermost axis has a multiple of {PADDED_BOX} elements of {tensor.type}, not "
            f"{tensor.dims[0]}: {near} is nearest"
        )
    bad = next((stride for stride in tensor.strides if stride % PADDED_ALIGNMENT), None)
    if bad is not None:
        return f"strides of {tensor.type} are multiples of {PADDED_ALIGNMENT} bytes, and {bad} is not"
    return None


def _rank(tensor: TiledTensor) -> str | None:
    """Return what is wrong with the number of axes."""
    rank = tensor.rank
    if not 1 <= rank <= MOST_AXES:
        return f"a tensor has 1 to {MOST_AXES} axes, not {rank}"
    if tensor.is_interleaved and rank < LEAST_INTERLEAVED_AXES:
        return (
            f"interleave {tensor.interleave} takes a tensor of {LEAST_INTERLEAVED_AXES} to {MOST_AXES} axes, "
            f"not {rank}"
        )
    for what, sizes, count in (
        ("strides", tensor.strides, rank - 1),
        ("box sizes", tensor.box, rank),
        ("element strides", tensor.element_strides, rank),
    ):
        if len(sizes) != count:
            return f"a tensor of {rank} axes has {count} {what}, not {len(sizes)}"
    return None


def _ranges(tensor: TiledTensor) -> str | None:
    """Return what is wrong with a size that has to lie in a range."""
    for what, sizes, field in (
        ("{axis} of the tensor has {value} elements", tensor.dims, FIELD["dim0"]),
        ("{axis} of the box has {value} elements", tensor.box, FIELD["box0"]),
        ("{axis} has an element stride of {value}", tensor.element_strides, FIELD["element_stride0"]),
    ):
        low, high = 1, field.limit - 1
        for axis, value in enumerate(sizes):
            if not low <= value <= high:
                sentence = what.format(axis=_axis(tensor, axis), value=value)
                return f"{sentence}; {low} to {high} are legal: {nearest(value, 1, low, high)} is nearest"
    return None


def _strides(tensor: TiledTensor) -> str | None:
    """Return what is wrong with a stride."""
    unit, limit = tensor.interleaving.alignment, FIELD["stride1"].limit
    for axis, stride in enumerate(tensor.strides, 1):
        if 0 <= stride < limit and stride % unit == 0:
            continue
        near = nearest(stride, unit, 0, limit - unit)
        rule = f"strides are multiples of {unit} bytes{_because_interleaved(tensor.interleave)}, below 2**40"
        return f"{_axis(tensor, axis)} has a stride of {stride} bytes; {rule}: {near} is nearest"
    return None


def _innermost_box(tensor: TiledTensor) -> str | None:
    """Return what is wrong with the innermost axis of the box."""
    element = tensor.element
    inner, size = tensor.box[0], element.bytes_of(tensor.box[0])
    most = tensor.swizzle_mode.row_bytes if not tensor.is_interleaved else 0
    unit = BOX_UNIT * element.elements // element.bytes
    widest = most * element.elements // element.bytes
    near = nearest(inner, unit, unit, widest or (FIELD["box0"].limit - 1) // unit * unit)
    if inner % element.elements or size % BOX_UNIT:
        return (
            f"the innermost axis of a box is a multiple of {BOX_UNIT} bytes, and {inner} elements of "
            f"{tensor.type} are {size}: {near} elements are nearest"
        )
    if most and size > most:
        wider = next((swizzle.name for swizzle in SWIZZLES.values() if swizzle.row_bytes >= size), "none")
        return (
            f"with swizzle {tensor.swizzle} the innermost axis of a box has at most {most} bytes, and "
            f"{inner} elements of {tensor.type} are {size}: {near} elements are nearest, or swizzle "
            f"{wider}"
        )
    return None


def _box_bytes(tensor: TiledTensor) -> str | None:
    """Return what is wrong with the size of the box as a whole."""
    count = tensor.noted_bytes
    if count <= MOST_BOX_BYTES:
        return None
    outermost = tensor.box[-1] * MOST_BOX_BYTES // count
    advice = ""
    if outermost and len(tensor.box) > 1:
        advice = f": {outermost} along {_axis(tensor, len(tensor.box) - 1)} would fit"
    return f"a box has at most {MOST_BOX_BYTES} bytes (228 KB), and this one has {count}{advice}"


_RULES: Sequence[Callable[[TiledTensor], str | None]] = (
    _names, _rank, _ranges, _strides, _padded, _innermost_box, _box_bytes,
)  # fmt: skip
