"""The 128 bytes of a tensor map, field by field, and the numbers of types and modes in them.

Read off an H200: `cuTensorMapEncodeTiled` of driver 580.159 was asked for thousands of maps, one field varied
at a time (benchmarks/results/h200_tensor_maps.json). This table is all that knows where a field lies.
"""

from typing import NamedTuple

#: Bytes of a tensor map, and what its address is a multiple of.
MAP_BYTES = 128
MAP_ALIGNMENT = 64
#: Axes of a tensor.
MOST_AXES = 5


class Field(NamedTuple):
    """A field: its value is `bias` + `unit` × the number that stands in its bits.

    `parts` are the first bit and the count of bits of each piece, the low end of the number first. No part
    crosses a 32-bit word except that of the address.
    """

    name: str
    parts: tuple[tuple[int, int], ...]
    meaning: str
    unit: int = 1
    bias: int = 0

    @property
    def mask(self) -> int:
        """The bits of a map that are this field."""
        return sum(((1 << bits) - 1) << first for first, bits in self.parts)

    @property
    def limit(self) -> int:
        """The least value that is too large for the field."""
        return self.bias + (self.unit << sum(bits for _, bits in self.parts))

    def of(self, number: int) -> int:
        """Return the value of the field in a map, which is taken as one little-endian number."""
        code, low = 0, 0
        for first, bits in self.parts:
            code |= (number >> first & ((1 << bits) - 1)) << low
            low += bits
        return self.bias + self.unit * code

    def put(self, value: int) -> int:
        """Return the bits of a map that say a value; what is too large for the field is cut off."""
        code, word = (value - self.bias) // self.unit, 0
        for first, bits in self.parts:
            word |= (code & ((1 << bits) - 1)) << first
            code >>= bits
        return word


#: Axes are numbered as the hardware has them: 0 is the innermost. `stride1` is the stride of axis 1.
FIELDS = (
    Field("address", ((4, 53),), "global address of the tensor", unit=16),
    # CuTe DSL 4.8 writes maps by itself and sets bit 65 of a tiled one, where the driver leaves it 0: it does
    # not belong to the mode.
    Field("mode", ((64, 1), (66, 2)), "0: tiled, 1: im2col"),
    Field("rank", ((68, 3),), "number of axes", bias=1),
    Field("type", ((71, 4),), "type of the elements"),
    Field("interleave", ((75, 2),), "interleaved layout in global memory"),
    Field("swizzle", ((77, 2),), "swizzle in shared memory"),
    Field("fill", ((79, 1),), "what elements outside of the tensor are read as"),
    Field("tf32", ((80, 1),), "f32 is rounded to tf32 on the way"),
    Field("l2_promotion", ((81, 2),), "bytes that L2 reads at least"),
    # Where GPUs from sm_100 on have it is not known: the driver's maps for them have not been seen.
    Field("atomicity", ((83, 2),), "bytes that a swizzle of 128 bytes keeps together (inferred place)"),
    *(
        Field(f"stride{axis}", ((96 + 32 * (axis - 1), 32), (224 + 4 * (axis - 1), 4)), "stride in bytes", 16)
        for axis in range(1, MOST_AXES)
    ),
    *(
        Field(f"dim{axis}", ((256 + 32 * axis, 32),), "elements of the tensor", bias=1)
        for axis in range(MOST_AXES)
    ),
    *(
        Field(f"element_stride{axis}", ((416 + 3 * axis, 3),), "every so many elements are taken", bias=1)
        for axis in range(MOST_AXES)
    ),
    *(
        Field(f"box{axis}", ((440 + 8 * axis, 8),), "elements that a copy passes over", bias=1)
        for axis in range(MOST_AXES)
    ),
    # The driver's own notes, which follow from the rest.
    Field("box_bytes", ((512, 32),), "bytes of a box, each axis rounded down to whole strides"),
    Field(
        "shared_alignment",
        ((576, 32),),
        "bytes after which the swizzle repeats: alignment of a box in shared memory",
    ),
)
FIELD = {field.name: field for field in FIELDS}
#: What the driver derives from the other fields; a map that `tensormap.replace` has changed may disagree.
DERIVED = ("box_bytes", "shared_alignment")

#: The mode of tiled maps, and that of im2col.
TILED, IM2COL = 0, 1

# Maps of the mode im2col (benchmarks/results/h200_im2col_maps.json). They have the channels of a pixel where
# a tiled map has the innermost axis of its box, and in place of the box's other axes the corners of the
# bounding box: one coordinate for each axis of pixels, the innermost first, the lower corner first.
PIXELS = Field("pixels", ((480, 10),), "pixels that a copy takes", bias=1)
#: The bits of a coordinate of a corner, by the axes of the tensor, and the first bit of each corner.
CORNER_BITS = {3: 16, 4: 8, 5: 5}
CORNERS = {"lower": 448, "upper": 464}
#: The axes of a tensor that are not axes of pixels: channels and images.
OTHER_AXES = 2


def corner_field(corner: str, rank: int, axis: int) -> Field:
    """Return where a coordinate of the lower or the upper corner lies; its sign is in its highest bit.

    >>> corner_field("upper", 4, 1).parts
    ((472, 8),)
    """
    bits = CORNER_BITS[rank]
    return Field(f"{corner}{axis}", ((CORNERS[corner] + bits * axis, bits),), f"{corner} corner of the box")


class ElementType(NamedTuple):
    """A type that TMA copies: its number in a map and in the driver's enumeration, and its bytes."""

    name: str
    code: int
    driver_name: str
    driver_code: int
    bytes: int
    #: Whether the map says that f32 is rounded to tf32.
    tf32: bool = False
    #: Of packed types the elements that a unit of `bytes` has, and the unit's bytes in global memory.
    elements: int = 1
    packed_bytes: int = 0

    @property
    def is_padded(self) -> bool:
        """Whether a load puts padding behind every 16 elements."""
        return bool(self.packed_bytes) and self.packed_bytes != self.bytes

    def bytes_of(self, elements: int) -> int:
        """Return the bytes of some elements in shared memory."""
        return -(-elements // self.elements) * self.bytes

    @property
    def is_float(self) -> bool:
        """Whether elements outside of the tensor can be read as NaN."""
        return "f" in self.name


#: The types of GPUs from sm_100 on, by PTX's names (PTX ISA, 5.5.1.1): numbers of 4 bits, two to a byte, or
#: 16 numbers of 4 or 6 bits in 16 bytes of shared memory, of which the last are padding. Stores of the last
#: type take a byte for each number, and write 6 bits. Their numbers in a map go on behind bf16's: 11 is in
#: the maps that CuTe DSL 4.8.1 makes of 4-bit tensors by itself; the other two are inferred from it.
_LATER_TYPES = (
    ElementType("b4x16", 11, "16U4_ALIGN8B", 13, 1, elements=2, packed_bytes=1),
    ElementType("b4x16_p64", 12, "16U4_ALIGN16B", 14, 16, elements=16, packed_bytes=8),
    ElementType("b6x16_p32", 13, "16U6_ALIGN16B", 15, 16, elements=16, packed_bytes=12),
)
_TYPES = (
    ElementType("u8", 0, "UINT8", 0, 1),
    ElementType("u16", 1, "UINT16", 1, 2),
    ElementType("u32", 2, "UINT32", 2, 4),
    ElementType("s32", 3, "INT32", 3, 4),
    ElementType("u64", 4, "UINT64", 4, 8),
    ElementType("s64", 5, "INT64", 5, 8),
    ElementType("f16", 6, "FLOAT16", 6, 2),
    ElementType("f32", 7, "FLOAT32", 7, 4),
    ElementType("f64", 9, "FLOAT64", 8, 8),
    ElementType("bf16", 10, "BFLOAT16", 9, 2),
    ElementType("f32.ftz", 8, "FLOAT32_FTZ", 10, 4),
    ElementType("tf32", 7, "TFLOAT32", 11, 4, tf32=True),
    ElementType("tf32.ftz", 8, "TFLOAT32_FTZ", 12, 4, tf32=True),
)
#: The types by name, as PTX calls them.
ELEMENT_TYPES = {kind.name: kind for kind in _TYPES}
#: The same with those of GPUs from sm_100 on.
EVERY_TYPE = {kind.name: kind for kind in (*_TYPES, *_LATER_TYPES)}
#: Packed types: what PTX and the driver call them. The driver refuses them for sm_90.
PACKED_TYPES = {kind.name: kind.driver_name for kind in _LATER_TYPES}


class Interleave(NamedTuple):
    """An interleaved layout: its number, and what addresses and strides are multiples of."""

    name: str
    code: int
    alignment: int


INTERLEAVES = {
    interleave.name: interleave
    for interleave in (Interleave("none", 0, 16), Interleave("16B", 1, 16), Interleave("32B", 2, 32))
}


class MapSwizzle(NamedTuple):
    """A swizzle mode: its number, the bytes that the innermost axis of a box has at most (0: no limit), and
    what the shared address of a box is a multiple of: the bytes after which the pattern repeats."""

    name: str
    code: int
    row_bytes: int
    alignment: int
    #: The bytes that it keeps together, and PTX's number of that (PTX ISA, 5.5.7).
    atom: int = 16
    atomicity: int = 0
    #: Whether it exchanges the halves of every 16 bytes in every other line of 128 bytes.
    flips: bool = False

    def moved(self, offset: int) -> int:
        """Return where the byte lies that would lie at an offset of shared memory without the swizzle.

        >>> SWIZZLES["128B"].moved(3 * 128), EVERY_SWIZZLE["128B_ATOM_32B"].moved(3 * 128)
        (432, 480)
        """
        flip = (offset >> 4) & 8 if self.flips else 0
        return offset ^ ((offset >> self.shift) & self.mask) ^ flip

    @property
    def mask(self) -> int:
        """The bits of an address that the swizzle changes: which atom of a row it is in."""
        return max(self.row_bytes - self.atom, 0)

    @property
    def shift(self) -> int:
        """How far above these bits those lie by which it changes them: the number of the line."""
        return 7 - (self.atom.bit_length() - 1)


_SWIZZLES = (
    MapSwizzle("none", 0, 0, 16),
    MapSwizzle("32B", 1, 32, 256),
    MapSwizzle("64B", 2, 64, 512),
    MapSwizzle("128B", 3, 128, 1024),
)
#: Swizzles of later GPUs, in the order of the driver's numbers, which follow those above.
_LATER_SWIZZLES = (
    MapSwizzle("128B_ATOM_32B", 3, 128, 1024, 32, 1),
    MapSwizzle("128B_ATOM_32B_FLIP_8B", 3, 128, 1024, 32, 2, flips=True),
    MapSwizzle("128B_ATOM_64B", 3, 128, 1024, 64, 3),
)
SWIZZLES = {swizzle.name: swizzle for swizzle in _SWIZZLES}
EVERY_SWIZZLE = {swizzle.name: swizzle for swizzle in (*_SWIZZLES, *_LATER_SWIZZLES)}
#: The driver's numbers of swizzles, and those of later GPUs, which the driver refuses for sm_90.
SWIZZLE_NUMBERS = {name: number for number, name in enumerate(EVERY_SWIZZLE)}
LATER_SWIZZLES = {swizzle.name: SWIZZLE_NUMBERS[swizzle.name] for swizzle in _LATER_SWIZZLES}
L2_PROMOTIONS = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
FILLS = {"zeros": 0, "nan": 1}

#: cuda.h's enumerations, for code that names them.
DRIVER_ENUMERATIONS = {
    "CUtensorMapDataType": {
        **{f"CU_TENSOR_MAP_DATA_TYPE_{kind.driver_name}": kind.driver_code for kind in _TYPES},
        **{f"CU_TENSOR_MAP_DATA_TYPE_{kind.driver_name}": kind.driver_code for kind in _LATER_TYPES},
    },
    "CUtensorMapInterleave": {
        f"CU_TENSOR_MAP_INTERLEAVE_{interleave.name.upper()}": interleave.code
        for interleave in INTERLEAVES.values()
    },
    "CUtensorMapSwizzle": {
        f"CU_TENSOR_MAP_SWIZZLE_{name.upper()}": number for name, number in SWIZZLE_NUMBERS.items()
    },
    "CUtensorMapL2promotion": {
        f"CU_TENSOR_MAP_L2_PROMOTION_{'NONE' if name == 'none' else 'L2_' + name}": code
        for name, code in L2_PROMOTIONS.items()
    },
    "CUtensorMapFloatOOBfill": {
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": FILLS["zeros"],
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA": FILLS["nan"],
    },
}
