"""A tiled tensor map as data: encoded to the 128 bytes that the driver gives, and decoded again.

Where a field lies is written in `tensor_map_fields.py`; what may stand in it, in `tensor_map_rules.py`.
"""

from __future__ import annotations

from math import prod

from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map_fields import (
    DERIVED,
    ELEMENT_TYPES,
    FIELD,
    FIELDS,
    FILLS,
    IM2COL,
    INTERLEAVES,
    L2_PROMOTIONS,
    MAP_BYTES,
    MOST_AXES,
    SWIZZLES,
    TILED,
    ElementType,
    Interleave,
    MapSwizzle,
)
from lanewise.isa.tensor_map_rules import Tiling, address_violation, violation


class TiledTensor(Tiling):
    """A tensor and its boxes as a tensor map has them; axis 0 is the innermost. Its address is left open.

    >>> matrix = TiledTensor("f16", (1024, 4096), (2048,), (64, 128), (1, 1), swizzle="128B")
    >>> matrix.box_bytes
    16384
    >>> decode(matrix.encode(0x7F0000000000)) == (0x7F0000000000, matrix)
    True
    """

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def element(self) -> ElementType:
        """The type of the elements."""
        return ELEMENT_TYPES[self.type]

    @property
    def swizzle_mode(self) -> MapSwizzle:
        """The swizzle with its numbers."""
        return SWIZZLES[self.swizzle]

    @property
    def interleaving(self) -> Interleave:
        """The interleaved layout with its numbers."""
        return INTERLEAVES[self.interleave]

    @property
    def copied(self) -> tuple[int, ...]:
        """The elements that a copy takes along each axis: of every stride that begins in the box, one."""
        return tuple(-(-box // step) for box, step in zip(self.box, self.element_strides, strict=True))

    @property
    def box_bytes(self) -> int:
        """The bytes of the elements that a copy takes."""
        return prod(self.copied) * self.element.bytes

    def require_legal(self) -> None:
        """Raise an error if the driver refuses to encode such a map: it names the rule and what is legal."""
        broken = violation(self)
        if broken is not None:
            raise LanewiseError(broken)

    def encode(self, address: int) -> bytes:
        """Return the 128 bytes for the tensor at a device address, as the driver gives them."""
        broken = violation(self) or address_violation(self, address)
        if broken is not None:
            raise LanewiseError(broken)
        values = {
            "address": address,
            "mode": TILED,
            "rank": self.rank,
            "type": self.element.code,
            "interleave": self.interleaving.code,
            "swizzle": self.swizzle_mode.code,
            "fill": FILLS[self.fill],
            "tf32": int(self.element.tf32),
            "l2_promotion": L2_PROMOTIONS[self.l2_promotion],
            # The driver rounds down here, although a copy takes what `copied` says.
            "box_bytes": self.noted_bytes,
            "shared_alignment": self.swizzle_mode.alignment,
        }
        for name, sizes, first in (
            ("dim", self.dims, 0),
            ("stride", self.strides, 1),
            ("box", self.box, 0),
            ("element_stride", self.element_strides, 0),
        ):
            values |= {f"{name}{axis}": size for axis, size in enumerate(sizes, first)}
        return sum(FIELD[name].put(value) for name, value in values.items()).to_bytes(MAP_BYTES, "little")

    def described(self) -> str:
        """Return the tensor in words, shapes in the order of arrays: the outermost axis first.

        >>> TiledTensor("f32", (64, 32), (256,), (32, 8), (1, 1)).described()
        'f32 (32, 64), box (8, 32)'
        """
        words = [f"{self.type} {_shape(self.dims)}", f"box {_shape(self.box)}"]
        if any(step > 1 for step in self.element_strides):
            words.append(f"element strides {_shape(self.element_strides)}")
        for name, value, usual in (
            ("swizzle", self.swizzle, "none"),
            ("interleave", self.interleave, "none"),
            ("L2 promotion", self.l2_promotion, "none"),
            ("fill", self.fill, "zeros"),
        ):
            if value != usual:
                words.append(f"{name} {value}")
        return ", ".join(words)


def _shape(sizes: tuple[int, ...]) -> str:
    """Return sizes as a shape in the order of arrays."""
    return str(sizes[::-1])


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
    values = field_values(raw)
    mode, rank = values["mode"], values["rank"]
    if mode == IM2COL:
        raise LanewiseError("this is a tensor map for im2col; only tiled ones are known here")
    if mode != TILED:
        raise LanewiseError(f"this is no tensor map: its mode is {mode}, that of a tiled one is {TILED}")
    if rank > MOST_AXES:
        raise LanewiseError(f"this is no tensor map: it says {rank} axes, and a tensor has 1 to {MOST_AXES}")
    types = {(each.code, each.tf32): each.name for each in ELEMENT_TYPES.values()}
    type = types.get((values["type"], bool(values["tf32"])))
    if type is None:
        raise LanewiseError(f"this is no tensor map of sm_90: no type has the number {values['type']}")
    interleave = next((each.name for each in INTERLEAVES.values() if each.code == values["interleave"]), None)
    if interleave is None:
        raise LanewiseError(
            f"this is no tensor map: no interleaved layout has the number {values['interleave']}"
        )

    def sizes(name: str, first: int = 0) -> tuple[int, ...]:
        return tuple(values[f"{name}{axis}"] for axis in range(first, rank))

    return values["address"], TiledTensor(
        type,
        sizes("dim"),
        sizes("stride", 1),
        sizes("box"),
        sizes("element_stride"),
        interleave,
        next(each.name for each in SWIZZLES.values() if each.code == values["swizzle"]),
        next(name for name, code in L2_PROMOTIONS.items() if code == values["l2_promotion"]),
        next(name for name, code in FILLS.items() if code == values["fill"]),
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
