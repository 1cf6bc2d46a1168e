"""The 64 bits by which wgmma and tcgen05 name a matrix in shared memory: fields, swizzles, bytes of elements.

Facts: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout"; what it leaves open was read off
an H200 (benchmarks/results/wgmma_addresses.json, held by tests/isa/test_isa_matrix_descriptor.py). tcgen05's
descriptors (version 1) rest on PTX ISA, "Shared memory descriptor", and on CUTLASS's canonical layouts
(tests/isa/cutlass_tcgen05_layouts.json).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout import Swizzle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes that a swizzle moves as one piece, and the unit of addresses and offsets in a descriptor.
PIECE_BYTES = 16

Major = Literal["K", "MN"]


class Field(NamedTuple):
    """A field of the descriptor: its value divided by its unit stands in `bits` bits from `first_bit` on."""

    name: str
    first_bit: int
    bits: int
    unit: int
    meaning: str

    @property
    def mask(self) -> int:
        """The bits of the descriptor that are this field."""
        return ((1 << self.bits) - 1) << self.first_bit

    @property
    def limit(self) -> int:
        """The least number that is too large for the field."""
        return self.unit << self.bits

    def of(self, descriptor: int) -> int:
        """Return the value of the field in a descriptor."""
        return (descriptor >> self.first_bit & ((1 << self.bits) - 1)) * self.unit


FIELDS = (
    Field("start_address", 0, 14, PIECE_BYTES, "address of the matrix in shared memory"),
    Field("leading_byte_offset", 16, 14, PIECE_BYTES, "leading dimension byte offset"),
    Field("stride_byte_offset", 32, 14, PIECE_BYTES, "stride dimension byte offset"),
    Field("base_offset", 49, 3, 1, "bits 9..7 of the address at which the swizzle's pattern starts"),
    Field("swizzle", 62, 2, 1, "swizzle mode"),
)
FIELD = {field.name: field for field in FIELDS}

#: The version of tcgen05's descriptors; wgmma's have 0.
TCGEN05_VERSION = 1
#: The fields of tcgen05's descriptors.
TCGEN05_FIELDS = (
    *FIELDS[:3],
    Field("version", 46, 3, 1, "1 for tcgen05"),
    FIELDS[3],
    Field("absolute_leading", 52, 1, 1, "1: the leading offset is an address (sm_103a, K of 48 bytes)"),
    Field("zero", 53, 8, 1, "0"),
    Field("swizzle", 61, 3, 1, "swizzle mode"),
)
TCGEN05_FIELD = {field.name: field for field in TCGEN05_FIELDS}


class SwizzleMode(NamedTuple):
    """A swizzle mode: its number in a descriptor, the bytes of a row, how it permutes byte addresses.

    `code` is wgmma's number of it, -1 if wgmma does not have it; `tcgen05_code` has one bit more. A pattern
    has `lines` rows.
    """

    name: str
    code: int
    tcgen05_code: int
    row_bytes: int
    swizzle: Swizzle
    lines: int = 8

    @property
    def row_pieces(self) -> int:
        """The pieces of 16 bytes in a row of the pattern."""
        return self.row_bytes // PIECE_BYTES

    @property
    def pattern_bytes(self) -> int:
        """The bytes after which the pattern repeats: all of its rows."""
        return self.lines * self.row_bytes


SWIZZLE_MODES = (
    SwizzleMode("none", 0, 0, 16, Swizzle(0, 4, 3)),
    SwizzleMode("128B", 1, 2, 128, Swizzle(3, 4, 3)),
    SwizzleMode("64B", 2, 4, 64, Swizzle(2, 4, 3)),
    SwizzleMode("32B", 3, 6, 32, Swizzle(1, 4, 3)),
)
#: The mode that only tcgen05 has: pieces of 32 bytes are moved, for MN-major matrices of 32-bit elements.
TCGEN05_MODES = (*SWIZZLE_MODES, SwizzleMode("128B_ATOM_32B", -1, 1, 128, Swizzle(2, 5, 2), lines=4))
_MODE = {mode.name: mode for mode in TCGEN05_MODES}
_TCGEN05_MODE = {mode.tcgen05_code: mode for mode in TCGEN05_MODES}


def swizzle_mode(name: str, version: int = 0) -> SwizzleMode:
    """Return the swizzle mode of a name: "none", "32B", "64B", "128B", and of tcgen05 "128B_ATOM_32B".

    >>> swizzle_mode("64B").swizzle
    Swizzle(2,4,3)
    """
    modes = TCGEN05_MODES if version == TCGEN05_VERSION else SWIZZLE_MODES
    if name not in [mode.name for mode in modes]:
        *names, last = (f'"{mode.name}"' for mode in sorted(modes, key=lambda mode: mode.row_bytes))
        raise LanewiseError(f"a swizzle is {', '.join(names)} or {last}, not {name!r}")
    return _MODE[name]


Stride = int | Literal["leading_byte_offset", "stride_byte_offset"]


class Mode(NamedTuple):
    """One step of an address: so many of them, each so many bytes or a field of the descriptor further."""

    extent: int
    stride: Stride


class PieceGrid(NamedTuple):
    """How the pieces of 16 bytes of a matrix lie before the swizzle: lines of pieces that are neighbours.

    A line is a row of a K-major matrix (for B a column), and one k of an MN-major one. Eight lines (four of
    "128B_ATOM_32B") are the rows of a pattern; a row has as many pieces as the swizzle is wide. The second
    mode goes to further patterns: of other lines, and of pieces for which a row is too short.
    """

    lines: int
    pieces: int
    line_modes: tuple[Mode, Mode]
    piece_modes: tuple[Mode, Mode]


def piece_grid(rows: int, k: int, bits: int, major: Major, swizzle: str, version: int = 0) -> PieceGrid:
    """Return how `rows` × `k` elements lie; for B, N are its rows. `version` is that of the descriptor.

    >>> piece_grid(64, 16, 16, "K", "128B").line_modes
    (Mode(extent=8, stride=128), Mode(extent=8, stride='stride_byte_offset'))
    """
    mode = swizzle_mode(swizzle, version)
    if major not in ("K", "MN"):
        raise LanewiseError(f'a matrix is "K"-major or "MN"-major, not {major!r}')
    if major == "MN" and bits != 16 and version != TCGEN05_VERSION:
        raise LanewiseError(f"only matrices of 16-bit elements may be MN-major, not of {bits} bits")
    lines, elements = (rows, k) if major == "K" else (k, rows)
    pieces = -(-elements * bits // (8 * PIECE_BYTES))
    to_group: Stride = "stride_byte_offset"
    to_row: Stride = "leading_byte_offset"
    if major == "MN" and swizzle == "none":  # the two offsets change places
        to_group, to_row = to_row, to_group
    return PieceGrid(
        lines,
        pieces,
        (Mode(mode.lines, mode.row_bytes), Mode(-(-lines // mode.lines), to_group)),
        (Mode(mode.row_pieces, PIECE_BYTES), Mode(-(-pieces // mode.row_pieces), to_row)),
    )


@dataclass(frozen=True)
class MatrixDescriptor(Drawn):
    """The matrix descriptor of wgmma (version 0) or tcgen05 (version 1), by its fields in bytes.

    >>> tile = MatrixDescriptor(0x400, stride_byte_offset=1024, swizzle="128B")
    >>> hex(tile.encode())
    '0x4000004000000040'
    >>> MatrixDescriptor.decode(0x4000004000000040) == tile
    True
    >>> hex(MatrixDescriptor(0x400, 0, 1024, swizzle="128B", version=1).encode())
    '0x4000404000000040'
    """

    start_address: int = 0
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    base_offset: int = 0
    swizzle: str = "none"
    version: int = 0
    #: tcgen05 on sm_103a, K of 48 bytes: the leading offset is the address at which rows of 128 bytes go on.
    absolute_leading: bool = False

    def __post_init__(self) -> None:
        if self.version not in (0, TCGEN05_VERSION):
            raise LanewiseError(
                f"a matrix descriptor has version 0 (wgmma) or 1 (tcgen05), not {self.version}"
            )
        swizzle_mode(self.swizzle, self.version)
        for field in FIELDS[:-1]:
            object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        if self.absolute_leading:
            reason = _absolute_fault(self.swizzle, self.base_offset)
            if self.version != TCGEN05_VERSION:
                reason = "only descriptors of tcgen05 (version 1) have an absolute leading offset"
            if reason:
                raise LanewiseError(reason)

    @property
    def mode(self) -> SwizzleMode:
        """The swizzle mode with its permutation."""
        return _MODE[self.swizzle]

    def encode(self) -> int:
        """Return the 64 bits."""
        codes = {field: getattr(self, field.name) // field.unit for field in FIELDS[:-1]}
        if self.version == TCGEN05_VERSION:
            codes[TCGEN05_FIELD["version"]] = self.version
            codes[TCGEN05_FIELD["absolute_leading"]] = int(self.absolute_leading)
            codes[TCGEN05_FIELD["swizzle"]] = self.mode.tcgen05_code
        else:
            codes[FIELD["swizzle"]] = self.mode.code
        return sum(code << field.first_bit for field, code in codes.items())

    @classmethod
    def decode(cls, descriptor: int, version: int = 0) -> MatrixDescriptor:
        """Return the fields of 64 bits, read as wgmma's or as tcgen05's (version 1).

        Bits that belong to no field of wgmma's are ignored, as the hardware does.
        """
        bits = index(descriptor)
        if not -(1 << 63) <= bits < 1 << 64:
            raise LanewiseError(f"a matrix descriptor has 64 bits; {bits:#x} has more")
        start, leading, stride, base, code = (field.of(bits) for field in FIELDS)
        if version != TCGEN05_VERSION:
            return cls(start, leading, stride, base, SWIZZLE_MODES[code].name)
        reason = tcgen05_fault(bits)
        if reason:
            raise LanewiseError(reason)
        name = _TCGEN05_MODE[TCGEN05_FIELD["swizzle"].of(bits)].name
        absolute = bool(TCGEN05_FIELD["absolute_leading"].of(bits))
        return cls(start, leading, stride, base, name, version, absolute)

    @classmethod
    def read(cls, descriptor: int) -> MatrixDescriptor:
        """Return the fields of 64 bits, read as those of the version that bits 46 to 48 say.

        >>> [MatrixDescriptor.read(each).version for each in (0x4000404000000040, 0x4000004000000040)]
        [1, 0]
        """
        bits = index(descriptor)
        return cls.decode(
            bits, TCGEN05_VERSION if TCGEN05_FIELD["version"].of(bits) == TCGEN05_VERSION else 0
        )

    def advanced(self, offset: int) -> MatrixDescriptor:
        """Return the descriptor with its start address moved by so many bytes, as a step along K does."""
        return replace(self, start_address=self.start_address + offset)

    def swizzled(self, address: Any) -> Any:
        """Return where the byte lies that would lie at an address without the swizzle."""
        shifted = address - (self.base_offset << 7)
        return address ^ (self.mode.swizzle(shifted) ^ shifted)

    def element_addresses(self, rows: int, k: int, bits: int, major: Major = "K") -> NDArray[np.int64]:
        """Return the byte address of each element (row, k) of a matrix; for B, (n, k).

        `bits` is the size of an element: that of the type, 32 for tf32. Elements of one bit have the address
        of their byte. Addresses do not wrap around: one beyond shared memory is an error on a GPU.

        >>> MatrixDescriptor(0, 0, 1024, swizzle="128B").element_addresses(64, 16, 16)[9, 8]
        np.int64(1152)
        """
        import numpy as np

        grid = piece_grid(rows, k, bits, major, self.swizzle, self.version)
        lines = _offsets(self, grid.line_modes, np.arange(grid.lines))
        pieces = _offsets(self, grid.piece_modes, np.arange(grid.pieces))
        if self.absolute_leading and major == "K":
            pieces = self._pieces_of_two_buffers(np.arange(grid.pieces))
        address = self.start_address + lines[:, None] + pieces[None, :]
        inside = np.arange(8 * PIECE_BYTES // bits) * bits // 8
        elements = (self.swizzled(address)[..., None] + inside).reshape(grid.lines, -1)
        elements = elements[:, : k if major == "K" else rows]
        return np.ascontiguousarray(elements if major == "K" else elements.T)

    def _pieces_of_two_buffers(self, numbers: Any) -> Any:
        """Return the bytes that pieces lie after the first, where a row goes on in another buffer.

        A piece beyond the 128 bytes in which the matrix starts lies at the beginning of a row of the buffer
        whose address is the leading offset.
        """
        import numpy as np

        place = self.start_address // PIECE_BYTES % self.mode.row_pieces + numbers
        there = self.leading_byte_offset - self.start_address + (place - self.mode.row_pieces) * PIECE_BYTES
        return np.where(place < self.mode.row_pieces, numbers * PIECE_BYTES, there)


def _absolute_fault(swizzle: str, base_offset: int) -> str:
    """Return what is wrong with a descriptor whose leading offset is an absolute address, or nothing."""
    if swizzle != "128B":
        return (
            "the leading offset of the matrix descriptor is an absolute address (bit 52), which goes with "
            f"the 128B swizzle only, not with {swizzle!r}"
        )
    if base_offset:
        return (
            "the leading offset of the matrix descriptor is an absolute address (bit 52), with which the "
            f"base offset (bits 49 to 51) is 0, not {base_offset}"
        )
    return ""


def reserved_bits(descriptor: int) -> int:
    """Return the bits of a descriptor that are set and belong to no field.

    >>> hex(reserved_bits(0x4000_4000_0000_0040))
    '0x400000000000'
    """
    return index(descriptor) & ~sum(field.mask for field in FIELDS)


def tcgen05_fault(descriptor: int) -> str:
    """Return what is wrong with a descriptor as one of tcgen05, or nothing.

    >>> tcgen05_fault(0x4000_0040_0000_0040)
    'bits 46 to 48 of the matrix descriptor are 0 and have to be 1, the version of tcgen05 (wgmma has 0)'
    """
    bits = index(descriptor)
    version, code = TCGEN05_FIELD["version"].of(bits), TCGEN05_FIELD["swizzle"].of(bits)
    if version != TCGEN05_VERSION:
        return (
            f"bits 46 to 48 of the matrix descriptor are {version} and have to be 1, the version of tcgen05 "
            "(wgmma has 0)"
        )
    if code not in _TCGEN05_MODE:
        names = ", ".join(f"{mode.tcgen05_code} ({mode.name})" for mode in TCGEN05_MODES)
        return f"the swizzle mode of the matrix descriptor (bits 61 to 63) is {code}; there are {names}"
    if TCGEN05_FIELD["zero"].of(bits):
        return "bits 53 to 60 of the matrix descriptor are not 0"
    if TCGEN05_FIELD["absolute_leading"].of(bits):
        return _absolute_fault(_TCGEN05_MODE[code].name, TCGEN05_FIELD["base_offset"].of(bits))
    return ""


def _offsets(descriptor: MatrixDescriptor, modes: tuple[Mode, Mode], numbers: Any) -> Any:
    """Return the bytes that lines or pieces lie after the first."""
    inner, outer = (
        mode.stride if isinstance(mode.stride, int) else getattr(descriptor, mode.stride) for mode in modes
    )
    return numbers % modes[0].extent * inner + numbers // modes[0].extent * outer


def _checked(field: Field, value: Any) -> int:
    """Return a field's value as a plain int, or raise an error that says what it may be."""
    try:
        number = index(value)
    except TypeError:
        raise LanewiseError(f"{field.name} of a matrix descriptor is an integer, not {value!r}") from None
    if 0 <= number < field.limit and number % field.unit == 0:
        return number
    step = f" in steps of {field.unit} bytes" if field.unit > 1 else ""
    raise LanewiseError(
        f"{field.name} of a matrix descriptor ({field.meaning}) is 0 to {field.limit - field.unit}{step}, "
        f"not {number}"
    )
