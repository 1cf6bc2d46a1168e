"""Compiled code that reads the 128 bytes of a tensor map into the box of an asynchronous operation.

Where each field lies stands in `isa/tensor_map_fields.py` alone.
"""

from __future__ import annotations

from lanewise.isa.tensor_map_fields import (
    CORNER_BITS,
    CORNERS,
    ELEMENT_TYPES,
    FIELD,
    IM2COL,
    INTERLEAVES,
    MAP_ALIGNMENT,
    MAP_BYTES,
    OTHER_AXES,
    PIXELS,
    SWIZZLES,
    TILED,
    Field,
)
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.box_walker import DIMENSIONS, at
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.bulk_copies.operation import GRANULE, Issue
from lanewise.machine.codegen.function_code import U32, U64, Record

#: The NaN that stands for an element beyond the tensor: seen on an H200 for every type of floats, in each of
#: its halves or quarters. `fma.oob` knows it.
OUT_OF_BOUNDS_NAN = 0x7FF77FF77FF77FF7
#: Bits of a shared address that each swizzle changes, by its number.
_SWIZZLE_MASKS = {each.code: max(each.row_bytes - GRANULE, 0) for each in SWIZZLES.values()}
_SWIZZLE_ROWS = {each.code: each.row_bytes for each in SWIZZLES.values()}
_TYPE_BYTES = {each.code: each.bytes for each in ELEMENT_TYPES.values()}
#: The bytes that take the place of an element in an interleaved layout.
_INTERLEAVED = {each.code: each.alignment for each in INTERLEAVES.values() if each.code}


def chosen(number: Value, table: dict[int, int], otherwise: int = 0) -> Value:
    """Return the entry of a table for a number."""
    code = number.code
    found = code.constant(i64, otherwise)
    for key, value in table.items():
        found = number.equals(key).select(code.constant(i64, value), found)
    return found


class MapFields:
    """The fields of a tensor map in host memory, read by the table of fields."""

    def __init__(self, issue: Issue, host: Value) -> None:
        self.code, self.record = issue.code, Record(issue.code, host)

    def get(self, name: str) -> Value:
        """Return the value of a field."""
        return self.read(FIELD[name])

    def read(self, field: Field) -> Value:
        """Return the value of a field that is told where it lies."""
        found, low = self.code.constant(U64, 0), 0
        for first, bits in field.parts:
            word = first // 32 * 4
            wide = first % 32 + bits > 32
            place = self.record.pointer(word, U64 if wide else U32)
            type = place.type
            loaded = Value(self.code, type, self.code.builder.load(place._typed(type), align=1)).to(U64)
            found = found | (((loaded >> (first % 32)) & ((1 << bits) - 1)) << low)
            low += bits
        return found.to(i64) * field.unit + field.bias


def read_map(
    issue: Issue, address: Value, rank: Value, coordinates: list[Value], offsets: list[Value] | None = None
) -> MapFields:
    """Write the box of an operation from a tensor map at a generic address, which must hold one.

    With `offsets` it is a map of the mode im2col, and the box is a column of pixels.
    """
    code, box = issue.code, issue.record
    issue.aligned(address, Wrong.MAP_ALIGNMENT, MAP_ALIGNMENT)
    local = (address - abi.LOCAL_WINDOW).to(U64) < abi.WINDOW_BYTES
    issue.demand(~local, Wrong.LOCAL_MAP, address)
    host = issue.host("generic", address, code.number(MAP_BYTES))
    box.set(AsyncOperation.map, host)
    fields = MapFields(issue, host)
    mode, held = fields.get("mode"), fields.get("rank")
    if offsets is None:
        issue.demand(mode.equals(TILED), Wrong.MODE, mode)
    else:
        issue.demand(mode.equals(IM2COL), Wrong.NO_COLUMN, mode)
    issue.demand(held.equals(rank), Wrong.RANK, held)
    kind, interleave = fields.get("type"), fields.get("interleave")
    size = chosen(kind, _TYPE_BYTES)
    issue.demand(size > 0, Wrong.MAP_TYPE, kind)
    is_plain, slices = interleave.equals(0), rank - 2
    size = is_plain.select(size, chosen(interleave, _INTERLEAVED, GRANULE))
    box.set(AsyncOperation.tensor, fields.get("address"))
    box.set(AsyncOperation.element_bytes, size)
    for dimension in range(DIMENSIONS):
        there = code.number(dimension) < rank
        step = fields.get(f"element_stride{dimension}")
        if dimension == 0:
            step = is_plain.select(code.number(1), step)
        count = fields.get(f"box{dimension}")
        if 0 < dimension < DIMENSIONS - 1:
            count = (is_plain | slices.differs(dimension)).select(count, 1)
        places = Value(code, i64, code.builder.sdiv((count + step - 1).handle, step.handle))
        pitch = fields.get(f"stride{dimension}") if dimension else size
        for field, value, without in (
            (AsyncOperation.sizes, fields.get(f"dim{dimension}"), 1),
            (AsyncOperation.pitches, pitch, 0),
            (AsyncOperation.boxes, places, 1),
            (AsyncOperation.steps, step, 1),
            (AsyncOperation.coordinates, coordinates[dimension], 0),
        ):
            box.set(at(field, dimension), there.select(value, without))
    box.set(AsyncOperation.is_column, 0 if offsets is None else 1)
    if offsets is not None:
        _read_column(issue, fields, rank, offsets)
    swizzle = fields.get("swizzle")
    box.set(AsyncOperation.swizzle_mask, chosen(swizzle, _SWIZZLE_MASKS))
    width = box.get(AsyncOperation.boxes) * size
    box.set(AsyncOperation.row_bytes, is_plain.select(width.max(chosen(swizzle, _SWIZZLE_ROWS)), width))
    is_nan = fields.get("fill").differs(0)
    box.set(AsyncOperation.fill, is_nan.select(code.number(OUT_OF_BOUNDS_NAN), 0))
    rounds = fields.get("tf32").differs(0)
    box.set(AsyncOperation.rounds, rounds.select(code.number(1), 0))
    start = box.get(AsyncOperation.coordinates) * size
    issue.demand((start & (GRANULE - 1)).equals(0), Wrong.COORDINATE, start)
    return fields


#: The last coordinate of an axis that is counted on without an end, and of one that is never counted on.
_ENDLESS, _PASSED = 1 << 62, -1 << 62


def _read_column(issue: Issue, fields: MapFields, rank: Value, offsets: list[Value]) -> None:
    """Write the bounding box and the pixels of a column, of which the first pixel must lie in the box.

    In an interleaved layout pixels begin at dimension 0, and slices of channels lie between them and images.
    """
    code, box = issue.code, issue.record
    is_plain, axes = fields.get("interleave").equals(0), rank - OTHER_AXES
    bits = chosen(rank, CORNER_BITS)
    lower, upper = (fields.read(Field(name, ((first, 16),), "")) for name, first in CORNERS.items())
    for axis in range(DIMENSIONS):
        for field, source, without in (
            (AsyncOperation.pixel_sizes, AsyncOperation.sizes, 1),
            (AsyncOperation.pixel_pitches, AsyncOperation.pitches, 0),
            (AsyncOperation.pixel_steps, AsyncOperation.steps, 1),
            (AsyncOperation.first_pixel, AsyncOperation.coordinates, 0),
        ):
            outer = box.get(at(source, axis + 1)) if axis + 1 < DIMENSIONS else code.number(without)
            box.set(at(field, axis), is_plain.select(outer, box.get(at(source, axis))))
        coordinate = box.get(at(AsyncOperation.first_pixel, axis))
        is_slice = ~is_plain & axes.equals(axis)
        low, offset = coordinate, code.number(0)
        high = is_slice.select(code.number(_PASSED), _ENDLESS)
        if axis < len(offsets):
            is_pixel = ~(axes < axis + 1)
            first, last = (_signed(corner >> (bits * axis), bits) for corner in (lower, upper))
            last = last + box.get(at(AsyncOperation.pixel_sizes, axis)) - 1
            low, high = is_pixel.select(first, low), is_pixel.select(last, high)
            offset = is_pixel.select(offsets[axis], offset)
            outside = is_pixel & ((coordinate < low) | (coordinate > high))
            issue.demand(~outside, Wrong.PIXEL, coordinate)
            issue.demand((offset >> bits).equals(0), Wrong.OFFSET, offset)
        for field, value in (
            (AsyncOperation.offsets, offset),
            (AsyncOperation.lows, low),
            (AsyncOperation.highs, high),
        ):
            box.set(at(field, axis), value)
    for dimension in range(DIMENSIONS):
        count = {0: is_plain.select(box.get(AsyncOperation.boxes), 1), 1: fields.read(PIXELS)}
        box.set(at(AsyncOperation.boxes, dimension), count.get(dimension, code.number(1)))
    for field, alone in (
        (AsyncOperation.sizes, 1),
        (AsyncOperation.steps, 1),
        (AsyncOperation.coordinates, 0),
    ):
        box.set(field, is_plain.select(box.get(field), alone))


def require_inside(issue: Issue, rank: Value) -> None:
    """Stop the launch if the bounding box of a column reaches beyond the tensor, as only loads may."""
    box = issue.record
    for axis in range(DIMENSIONS - OTHER_AXES):
        low, high = (box.get(at(field, axis)) for field in (AsyncOperation.lows, AsyncOperation.highs))
        is_pixel = ~(rank - OTHER_AXES < axis + 1)
        beyond = (low < 0) | ~(high < box.get(at(AsyncOperation.pixel_sizes, axis)))
        issue.demand(~(is_pixel & beyond), Wrong.BOX_BEYOND, (low < 0).select(low, high))


def _signed(number: Value, bits: Value) -> Value:
    """Return the lowest bits of a number as a number with a sign."""
    unused = 64 - bits
    return (number << unused) >> unused


def box_bytes(code_box: Record) -> Value:
    """Return the bytes of a box, those beyond the tensor included; rows are not widened."""
    found = code_box.get(AsyncOperation.element_bytes)
    for dimension in range(DIMENSIONS):
        found = found * code_box.get(at(AsyncOperation.boxes, dimension))
    return found


def spanned_bytes(code_box: Record) -> Value:
    """Return the bytes of shared memory from a box's first one on that it spans, widened rows included."""
    found = code_box.get(AsyncOperation.row_bytes)
    for dimension in range(1, DIMENSIONS):
        found = found * code_box.get(at(AsyncOperation.boxes, dimension))
    return found
