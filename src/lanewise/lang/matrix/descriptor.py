"""Matrices in shared memory as wgmma and tcgen05 name them: descriptors made of a layout and a swizzle.

The fields and what they mean stand in `isa/matrix_descriptor.py`; here they are found for a layout, held
against every row that an instruction reads, and joined with an address that only the running kernel knows.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.matrix_descriptor import (
    FIELD,
    PIECE_BYTES,
    TCGEN05_MODES,
    TCGEN05_VERSION,
    Major,
    MatrixDescriptor,
    SwizzleMode,
    piece_grid,
    swizzle_mode,
)
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.layout_index import offsets
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import SwizzledAddresses, View
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import dtype_name, storage_bytes, u64
from lanewise.layout import Layout, Swizzle
from lanewise.records import record


@record(frozen=True)
class DescribedLayout:
    """What does not change of a descriptor: the layout of (row, k, …), the element and the fields."""

    layout: Layout
    dtype: Format
    major: Major
    fields: MatrixDescriptor

    def byte_offset(self, row: int, k: int) -> int:
        """Return how many bytes an element lies after the first, before the swizzle."""
        rest = (0,) * (len(self.layout) - 2)
        return int(self.layout(row, k, *rest)) * storage_bytes(self.dtype)


class Descriptor(Node):
    """A matrix in shared memory for wgmma or tcgen05: `d[row, k]` is the one that begins at another element.

    `origin` are the static coordinates that it begins at; `bits` the 64 bits that the instruction takes.
    """

    __slots__ = ("bits", "described", "origin")
    CHILDREN = ("bits",)

    def __init__(self, bits: Scalar, described: DescribedLayout, origin: tuple[int, int] = (0, 0)) -> None:
        self.bits, self.described, self.origin = bits, described, origin

    @property
    def dtype(self) -> Format:
        """The dtype of the matrix's elements."""
        return self.described.dtype

    @property
    def major(self) -> Major:
        """Along which index elements are neighbours: "K" or "MN"."""
        return self.described.major

    def __iter__(self) -> Any:
        raise current().error("a descriptor is not iterated over: give it coordinates, d[row, k]")

    def __getitem__(self, coordinate: object) -> Descriptor:
        layout = self.described.layout
        crd = coordinate if isinstance(coordinate, tuple) else (coordinate,)
        if len(crd) != len(layout):
            raise current().error(
                f"{self} has {len(layout)} modes (row, k, …); {len(crd)} coordinates are given"
            )
        size = storage_bytes(self.dtype)
        bits, origin = self.bits, list(self.origin)
        for mode, place in enumerate(crd):
            if isinstance(place, bool) or not isinstance(place, int | Scalar):
                raise current().error(f"a coordinate of {self} is an integer, traced or not: {place!r}")
            if isinstance(place, int):
                if place < 0 or (mode >= 2 and place >= layout[mode].size()):
                    raise current().error(
                        f"{self}: coordinate {place} of mode {mode} is outside of its {layout[mode].size()}"
                    )
                bytes_further = int(layout[mode](place)) * size
                if bytes_further % PIECE_BYTES:
                    raise current().error(
                        f"{self}: coordinate {place} of mode {mode} lies {bytes_further} bytes further, and "
                        f"a descriptor begins at a multiple of {PIECE_BYTES} bytes"
                    )
                bits = bits + bytes_further // PIECE_BYTES
                if mode < 2:
                    origin[mode] += place
            else:
                step = offsets(layout[mode].shape, layout[mode].stride, place).get((), 0)
                bits = bits + self._in_pieces(scalar(step) * size)
        return Descriptor(bits, self.described, (origin[0], origin[1]))

    def advanced(self, elements: Any) -> Descriptor:
        """Return the descriptor so many elements further on in memory, before the swizzle."""
        size = storage_bytes(self.dtype)
        if not isinstance(elements, Scalar):
            if elements * size % PIECE_BYTES:
                raise current().error(
                    f"{self}: {elements * size} bytes further is no multiple of {PIECE_BYTES} bytes"
                )
            return Descriptor(self.bits + elements * size // PIECE_BYTES, self.described, self.origin)
        return Descriptor(self.bits + self._in_pieces(elements * size), self.described, self.origin)

    def _in_pieces(self, step: Scalar) -> Scalar:
        """Return a traced number of bytes in the unit of a descriptor's address."""
        if step.multiple % PIECE_BYTES:
            raise current().error(
                f"{self} is moved by a multiple of {step.multiple} bytes, and a descriptor begins at a "
                f"multiple of {PIECE_BYTES} bytes"
            )
        pieces: Scalar = (step // PIECE_BYTES).to(u64)
        return pieces

    def require(self, rows: int, k: int, dtype: Format, what: str, version: int = 0) -> None:
        """Raise an error unless an instruction that reads rows × k elements of a dtype finds them here.

        `version` is that of the descriptors which it takes: wgmma's 0, tcgen05's 1.
        """
        mine = self.described
        if mine.fields.version != version:
            raise current().error(
                f"{what} is a descriptor from {_MAKERS[version]}, not from {_MAKERS[1 - version]}"
            )
        if mine.dtype.bits != dtype.bits or (mine.dtype != dtype and mine.dtype.kind != "bits"):
            raise current().error(
                f"{what} has elements of {dtype.name}, and {self} is of {dtype_name(mine.dtype)}"
            )
        try:
            reason = _misfit(mine, self.origin, rows, k)
        except LanewiseError as error:
            raise current().error(f"{what}: {error}") from None
        if reason:
            raise current().error(f"{what} reads {rows} × {k} elements, and {self} {reason}")

    def __str__(self) -> str:
        mine = self.described
        return (
            f"the descriptor of {mine.major}-major {dtype_name(mine.dtype)}, swizzle {mine.fields.swizzle}, "
            f"layout {mine.layout}"
        )


@lru_cache(maxsize=256)
def _misfit(described: DescribedLayout, origin: tuple[int, int], rows: int, k: int) -> str:
    """Return why an instruction would read other elements than the layout has; empty if it does not."""
    layout, bits = described.layout, 8 * storage_bytes(described.dtype)
    row, first = origin
    if row + rows > layout[0].size() or first + k > layout[1].size():
        have = f"{layout[0].size()} × {layout[1].size()}"
        return f"has {have} elements, from ({row}, {first}) on too few"
    fields = described.fields
    grid = piece_grid(rows, k, bits, described.major, fields.swizzle, fields.version)
    per_piece = 8 * PIECE_BYTES // bits
    strides = {
        "leading_byte_offset": fields.leading_byte_offset,
        "stride_byte_offset": fields.stride_byte_offset,
    }

    def lies(number: int, modes: Any) -> int:
        offset = 0
        for mode in modes[:-1]:
            offset += number % mode.extent * strides.get(mode.stride, mode.stride)
            number //= mode.extent
        return int(offset + number * strides.get(modes[-1].stride, modes[-1].stride))

    start = described.byte_offset(row, first)
    # Both are sums of a part for the line and one for the piece: the first line and the first pieces decide.
    beginnings = [(0, piece) for piece in range(grid.pieces)] + [(line, 0) for line in range(1, grid.lines)]
    for line, piece in beginnings:
        at = (line, piece * per_piece) if described.major == "K" else (piece * per_piece, line)
        wanted = described.byte_offset(row + at[0], first + at[1]) - start
        read = lies(line, grid.line_modes) + lies(piece, grid.piece_modes)
        if wanted != read:
            return (
                f"has element ({row + at[0]}, {first + at[1]}) {wanted} bytes after the first, where the "
                f"instruction reads {read} bytes after it"
            )
    return ""


def byte_swizzle_mode(swizzle: Swizzle | None, dtype: Format) -> SwizzleMode | None:
    """Return the swizzle mode of TMA and wgmma that a swizzle of elements is; None if it is no such.

    >>> from lanewise.formats import bf16
    >>> byte_swizzle_mode(Swizzle(3, 3, 3), bf16).name
    '128B'
    """
    if swizzle is None or swizzle.bits == 0:
        return swizzle_mode("none")
    base = swizzle.base + int(log2(storage_bytes(dtype)))
    for mode in TCGEN05_MODES:
        if (swizzle.bits, base, swizzle.shift) == (mode.swizzle.bits, mode.swizzle.base, mode.swizzle.shift):
            return mode
    return None


#: The functions that make descriptors of each version, and the instructions that take them.
_MAKERS = ("lw.make_gmma_desc", "lw.make_umma_desc")
_FAMILIES = ("wgmma", "tcgen05")


def make_gmma_desc(tensor: object) -> Descriptor:
    """Return wgmma's descriptor of an array in shared memory with modes (row, k) or (row, k, stage, …).

    Leading and stride offset, swizzle mode and whether it is K-major or MN-major follow from the layout.
    Inside a kernel: `a = lw.make_gmma_desc(As)`, then `mma(a[64, 16 * step, stage], b[0, 16 * step], acc)`.
    """
    return _make_descriptor(tensor, 0)


def make_umma_desc(tensor: object) -> Descriptor:
    """Return tcgen05's descriptor of an array in shared memory with modes (row, k) or (row, k, stage, …).

    It is made as lw.make_gmma_desc makes wgmma's. MN-major matrices may have elements of any size.
    """
    return _make_descriptor(tensor, TCGEN05_VERSION)


def _make_descriptor(tensor: object, version: int) -> Descriptor:
    """Return the descriptor of an array in shared memory, of a version."""
    builder, maker = current(), _MAKERS[version]
    pointer, layout, swizzle = _shared_tensor(tensor, maker)
    dtype = pointer.dtype
    mode = byte_swizzle_mode(swizzle, dtype)
    if mode is None or (mode.code < 0 and version != TCGEN05_VERSION):
        shifts = int(log2(storage_bytes(dtype)))
        known = ", ".join(f"lw.Swizzle({bits}, {4 - shifts}, 3)" for bits in (1, 2, 3))
        raise builder.error(
            f"{_FAMILIES[version]} knows no swizzle {swizzle} of {dtype_name(dtype)}; for the modes 32B, "
            f"64B and 128B write {known}"
        )
    if len(layout) < 2:
        raise builder.error(f"{maker} takes an array with modes (row, k, …), not {layout}")
    if pointer.align % mode.pattern_bytes:
        raise builder.error(
            f"the {mode.name} swizzle repeats every {mode.pattern_bytes} bytes, and the array is known to be "
            f"aligned to {pointer.align} only: lw.shared(…, align={mode.pattern_bytes}), or an offset= of "
            f"lw.dynamic_shared that is a multiple of {mode.pattern_bytes}"
        )
    described = _described(layout, dtype, mode, version)
    if isinstance(described, str):
        raise builder.error(described)
    address = pointer.address
    start = FIELD["start_address"]
    low = (address & (start.limit - 1)) >> int(log2(start.unit))
    return Descriptor(low.to(u64) | described.fields.encode(), described)


def _shared_tensor(tensor: object, maker: str) -> tuple[Pointer, Layout, Swizzle | None]:
    """Return pointer, layout and swizzle of an array or a view in shared memory."""
    builder = current()
    view = tensor.view(maker) if isinstance(tensor, Array) else tensor
    if not isinstance(view, View) or not isinstance(view.addresses, SwizzledAddresses):
        raise builder.error(f"{maker} takes an array in shared memory, not {describe(tensor)}")
    if view.space != "shared":
        raise builder.error(
            f"{_FAMILIES[_MAKERS.index(maker)]} reads shared memory, and {view} is not there: copy it"
        )
    addresses = view.addresses
    return addresses.linear_pointer(), view.layout, addresses.swizzle


@lru_cache(maxsize=256)
def _described(layout: Layout, dtype: Format, mode: SwizzleMode, version: int) -> DescribedLayout | str:
    """Return the fields of a layout's descriptor, or why there are none."""
    size = storage_bytes(dtype)
    rows, depth = layout[0].size(), layout[1].size()

    def at(row: int, k: int) -> int:
        rest = (0,) * (len(layout) - 2)
        return int(layout(row, k, *rest)) * size if row < rows and k < depth else 0

    major: Major = "K" if depth > 1 and at(0, 1) == size else "MN"
    if major == "MN" and at(1, 0) != size:
        return f"the matrix of layout {layout} is neither K-major nor MN-major: no mode has stride 1"
    per_piece = PIECE_BYTES // size
    per_row = mode.row_bytes // size
    if major == "K":
        stride, leading = at(8, 0), at(0, per_row)
    elif mode.name == "none":
        stride, leading = at(per_piece, 0), at(0, 8)
    else:
        stride, leading = at(0, mode.lines), at(per_row, 0)
    try:
        fields = MatrixDescriptor(0, leading, stride, 0, mode.name, version)
    except LanewiseError as error:
        return str(error)
    return DescribedLayout(layout, dtype, major, fields)
