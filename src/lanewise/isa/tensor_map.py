"""A tiled tensor map as data: encoded to the 128 bytes that the driver gives, and decoded again.

Where a field lies is written in `tensor_map_fields.py`; what may stand in it, in `tensor_map_rules.py`.
"""

from abc import ABC, abstractmethod
from math import prod

from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map_fields import (
    DERIVED,
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
    PACKED_TYPES,
    TILED,
    ElementType,
    Interleave,
    MapSwizzle,
)
from lanewise.isa.tensor_map_rules import LATER_ARCH, Tiling, address_violation, violation


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

    @abstractmethod
    def violation(self) -> str | None:
        """Return the rule that the map breaks, with the nearest that is legal; None if it breaks none."""

    def require_legal(self) -> None:
        """Raise an error if the driver refuses to encode such a map: it names the rule and what is legal."""
        broken = self.violation()
        if broken is not None:
            raise LanewiseError(broken)

    @abstractmethod
    def _bits(self, address: int) -> int:
        """Return the fields of the map as one number."""

    def encode(self, address: int) -> bytes:
        """Return the 128 bytes for the tensor at a device address, as the driver gives them."""
        padded = self.type in EVERY_TYPE and self.element.is_padded
        broken = self.violation() or address_violation(self.interleave, address, padded)
        if broken is not None:
            raise LanewiseError(broken)
        return self._bits(address).to_bytes(MAP_BYTES, "little")

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


class TiledTensor(Tiling, MappedTensor, Drawn):
    """A tensor and its boxes as a tensor map has them; axis 0 is the innermost. Its address is left open.

    >>> matrix = TiledTensor("f16", (1024, 4096), (2048,), (64, 128), (1, 1), swizzle="128B")
    >>> matrix.box_bytes
    16384
    >>> decode(matrix.encode(0x7F0000000000)) == (0x7F0000000000, matrix)
    True
    >>> TiledTensor("f32", (64, 32), (256,), (32, 8), (1, 1)).described()
    'f32 (32, 64), box (8, 32)'
    """

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

    def violation(self) -> str | None:
        """Return the rule that the map breaks, with the nearest that is legal; None if it breaks none."""
        return violation(self)

    def _bits(self, address: int) -> int:
        # The driver rounds the bytes down, although a copy takes what `copied` says.
        values = field_numbers(self, address, TILED, self.noted_bytes)
        values |= {f"box{axis}": size for axis, size in enumerate(self.box)}
        return sum(FIELD[name].put(value) for name, value in values.items())

    def _box_in_words(self) -> list[str]:
        return [f"box {self.box[::-1]}"]


def field_numbers(tensor: MappedTensor, address: int, mode: int, box_bytes: int) -> dict[str, int]:
    """Return the fields that maps of both modes have, by name."""
    element, swizzle = tensor.element, tensor.swizzle_mode
    values = {
        "address": address,
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
