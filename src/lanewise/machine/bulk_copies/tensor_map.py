"""Compiled code that reads the 128 bytes of a tensor map into the box of an asynchronous operation.

Where each field lies stands in `isa/tensor_map_fields.py` alone.
"""

from collections.abc import Sequence
from enum import Enum

from lanewise.isa import arch_number
from lanewise.isa.tensor_map import LATER_ARCH, PADDED_BOX
from lanewise.isa.tensor_map_fields import (
    CORNER_BITS,
    CORNERS,
    ELEMENT_TYPES,
    EVERY_SWIZZLE,
    EVERY_TYPE,
    FIELD,
    IM2COL,
    INTERLEAVES,
    MAP_ALIGNMENT,
    MAP_BYTES,
    MOST_AXES,
    OTHER_AXES,
    PACKED_TYPES,
    PIXELS,
    TILED,
    Field,
)
from lanewise.jit.simd import Pointer, Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.box_walker import DIMENSIONS, GATHERED, at
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.bulk_copies.operation import GRANULE, ISSUER, Issue
from lanewise.machine.codegen.function_code import BlockCode, Record, shared_code
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE, Access
from lanewise.ptx import Immediate

#: The NaN that stands for an element beyond the tensor: seen on an H200 for every type of floats, in each of
#: its halves or quarters. `fma.oob` knows it.
OUT_OF_BOUNDS_NAN = 0x7FF77FF77FF77FF7
#: Bits of a shared address that each swizzle changes, by its number.
_SWIZZLE_ROWS = {mode.code: mode.row_bytes for mode in EVERY_SWIZZLE.values()}
#: By the number of a swizzle, and that of its atomicity above it.
_ATOMICITY_SHIFT = 2
_BY_NUMBER = {mode.code | mode.atomicity << _ATOMICITY_SHIFT: mode for mode in EVERY_SWIZZLE.values()}
_SWIZZLE_MASKS = {number: mode.mask for number, mode in _BY_NUMBER.items()}
_SWIZZLE_SHIFTS = {number: mode.shift for number, mode in _BY_NUMBER.items()}
_SWIZZLE_FLIPS = {number: 8 * mode.flips for number, mode in _BY_NUMBER.items()}
#: Of each type the bytes of a place in shared memory, its elements, and its bytes in global memory if fewer.
_TYPE_BYTES = {kind.code: kind.bytes for kind in EVERY_TYPE.values()}
_TYPE_ELEMENTS = {kind.code: kind.elements for kind in EVERY_TYPE.values() if kind.elements > 1}
_PACKED_BYTES = {kind.code: kind.packed_bytes for kind in EVERY_TYPE.values() if kind.is_padded}
#: The bytes that take the place of an element in an interleaved layout.
_INTERLEAVED = {
    interleave.code: interleave.alignment for interleave in INTERLEAVES.values() if interleave.code
}


class BoxMode(Enum):
    """What a tensor copy copies: a box, a column of pixels, or four rows of a matrix."""

    TILE = ""
    COLUMN = "im2col"
    #: Pixels along W alone, then of the next image; a halo follows the last one, or every 32.
    WIDE = "im2col::w"
    WIDE_128 = "im2col::w::128"
    #: Four rows of a matrix: gather4, scatter4.
    ROWS = "four rows"

    @property
    def is_column(self) -> bool:
        """Whether it is a column of pixels."""
        return self in (BoxMode.COLUMN, BoxMode.WIDE, BoxMode.WIDE_128)


#: The dimensions of a matrix.
MATRIX_RANK = 2
#: The pixels of .im2col::w::128, and those after which a halo follows.
_WIDE_PIXELS, _WIDE_PERIOD = 128, 32
#: The least wHalo and wOffset that are too large.
_HALO_LIMITS = {BoxMode.WIDE: 512, BoxMode.WIDE_128: 32}
_WIDE_OFFSET_LIMIT = 32


def chosen(number: Value, table: dict[int, int], otherwise: int = 0) -> Value:
    """Return the entry of a table for a number."""
    code = number.code
    result = code.constant(i64, otherwise)
    for key, value in table.items():
        result = number.equals(key).select(code.constant(i64, value), result)
    return result


class MapFields:
    """The fields of a tensor map in host memory, read by the table of fields."""

    def __init__(self, issue: Issue, host: Value) -> None:
        self.code, self.record = issue.code, Record(issue.code, host)

    def get(self, name: str) -> Value:
        """Return the value of a field."""
        return self.read(FIELD[name])

    def read(self, field: Field) -> Value:
        """Return the value of a field, given where it lies."""
        value, low = self.code.constant(u64, 0), 0
        for first, bits in field.parts:
            word = first // 32 * 4
            wide = first % 32 + bits > 32
            place = self.record.pointer(word, u64 if wide else u32)
            type = place.type
            loaded = Value(self.code, type, self.code.builder.load(place._typed(type), align=1)).to(u64)
            value = value | (((loaded >> (first % 32)) & ((1 << bits) - 1)) << low)
            low += bits
        return value.to(i64) * field.unit + field.bias


def read_map(
    issue: Issue,
    address: Value,
    rank: Value,
    coordinates: list[Value],
    copied: BoxMode = BoxMode.TILE,
    offsets: Sequence[Value] = (),
) -> MapFields:
    """Write the box of an operation from a tensor map at a generic address, which must hold one.

    `offsets` are those of a column of pixels, for which the map must be of the mode im2col.
    """
    code, box = issue.code, issue.record
    issue.aligned(address, Wrong.MAP_ALIGNMENT, MAP_ALIGNMENT)
    local = (address - abi.LOCAL_WINDOW).to(u64) < abi.WINDOW_BYTES
    issue.demand(~local, Wrong.LOCAL_MAP, address)
    host = issue.host("generic", address, code.number(MAP_BYTES))
    box.set(AsyncOperation.map, host)
    fields = MapFields(issue, host)
    mode, held = fields.get("mode"), fields.get("rank")
    if copied.is_column:
        issue.demand(mode.equals(IM2COL), Wrong.NO_COLUMN, mode)
    else:
        issue.demand(mode.equals(TILED), Wrong.MODE, mode)
    issue.demand(held.equals(rank), Wrong.RANK, held)
    kind, interleave = fields.get("type"), fields.get("interleave")
    size = chosen(kind, _TYPE_BYTES)
    issue.demand(size > 0, Wrong.MAP_TYPE, kind)
    is_plain, slices = interleave.equals(0), rank - 2
    size = is_plain.select(size, chosen(interleave, _INTERLEAVED, GRANULE))
    box.set(AsyncOperation.tensor, fields.get("address"))
    box.set(AsyncOperation.element_bytes, size)
    packed, elements = chosen(kind, _PACKED_BYTES), chosen(kind, _TYPE_ELEMENTS, 1)
    box.set(AsyncOperation.packed_bytes, packed)
    for dimension in range(DIMENSIONS):
        there = code.number(dimension) < rank
        step = fields.get(f"element_stride{dimension}")
        if dimension == 0:
            step = is_plain.select(code.number(1), step)
        count = fields.get(f"box{dimension}")
        if 0 < dimension < DIMENSIONS - 1:
            count = (is_plain | slices.differs(dimension)).select(count, 1)
        places = Value(code, i64, code.builder.sdiv((count + step - 1).handle, step.handle))
        whole, coordinate = fields.get(f"dim{dimension}"), coordinates[dimension]
        if dimension == 0:  # a place has several elements of packed types
            whole, places = (
                Value(code, i64, code.builder.sdiv((value + elements - 1).handle, elements.handle))
                for value in (whole, places)
            )
            quotient = Value(code, i64, code.builder.sdiv(coordinate.handle, elements.handle))
            issue.demand((quotient * elements).equals(coordinate), Wrong.PACKED_COORDINATE, coordinate)
            is_whole = packed.equals(0) | (coordinate & (PADDED_BOX - 1)).equals(0)
            issue.demand(is_whole, Wrong.PACKED_COORDINATE, coordinate)
            coordinate = quotient
        pitch = fields.get(f"stride{dimension}") if dimension else packed.equals(0).select(size, packed)
        for field, value, without in (
            (AsyncOperation.sizes, whole, 1),
            (AsyncOperation.pitches, pitch, 0),
            (AsyncOperation.boxes, places, 1),
            (AsyncOperation.steps, step, 1),
            (AsyncOperation.coordinates, coordinate, 0),
        ):
            box.set(at(field, dimension), there.select(value, without))
    box.set(AsyncOperation.is_column, int(copied.is_column))
    box.set(AsyncOperation.is_gather, int(copied is BoxMode.ROWS))
    if copied.is_column:
        _read_column(issue, fields, rank, copied, offsets)
    elif copied is BoxMode.ROWS:
        _read_rows(issue, interleave, coordinates)
    swizzle = fields.get("swizzle")
    mode_number = swizzle | (fields.get("atomicity") << _ATOMICITY_SHIFT)
    issue.demand(chosen(mode_number, _SWIZZLE_SHIFTS) > 0, Wrong.ATOMICITY, mode_number)
    for field, table in (
        (AsyncOperation.swizzle_mask, _SWIZZLE_MASKS),
        (AsyncOperation.swizzle_shift, _SWIZZLE_SHIFTS),
        (AsyncOperation.swizzle_flip, _SWIZZLE_FLIPS),
    ):
        box.set(field, chosen(mode_number, table))
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


def _read_rows(issue: Issue, interleave: Value, coordinates: list[Value]) -> None:
    """Write the four rows of a matrix: the column stands first among the coordinates, then the rows."""
    code, box = issue.code, issue.record
    issue.demand(interleave.equals(0), Wrong.GATHER_INTERLEAVED, interleave)
    rows = box.get(at(AsyncOperation.boxes, 1))
    issue.demand(rows.equals(1), Wrong.ROWS, rows)
    box.set(at(AsyncOperation.boxes, 1), code.number(GATHERED))
    for number in range(GATHERED):
        box.set(at(AsyncOperation.gathered_rows, number), coordinates[1 + number])


def _read_halo(issue: Issue, copied: BoxMode, halo: Value) -> Value:
    """Write the halo of a column of pixels; return how many rows the column has with it."""
    code, box = issue.code, issue.record
    pixels, period = box.get(at(AsyncOperation.boxes, 1)), code.number(_ENDLESS)
    if copied is BoxMode.WIDE:
        period = pixels
    elif copied is BoxMode.WIDE_128:
        pixels, period = code.number(_WIDE_PIXELS), code.number(_WIDE_PERIOD)
    box.set(AsyncOperation.halo, halo)
    box.set(AsyncOperation.halo_period, period)
    if copied is BoxMode.COLUMN:
        return pixels
    issue.demand(halo < _HALO_LIMITS[copied], Wrong.HALO, halo)
    return pixels + halo * (1 if copied is BoxMode.WIDE else _WIDE_PIXELS // _WIDE_PERIOD)


def _read_column(
    issue: Issue, fields: MapFields, rank: Value, copied: BoxMode, given: Sequence[Value]
) -> None:
    """Write the bounding box and the pixels of a column, of which the first pixel must lie in the box.

    In an interleaved layout pixels begin at dimension 0, and slices of channels lie between them and images.
    A wide column has a bounding box along W alone, and its first pixel may lie left of it (PTX ISA, 5.5.5).
    """
    code, box = issue.code, issue.record
    is_wide = copied is not BoxMode.COLUMN
    halo = code.number(0)
    offsets = list(given)
    if is_wide:
        halo, offsets[0], *offsets[1:] = given[0], given[1], *[code.number(0)] * (len(given) - 1)
        issue.demand(offsets[0] < _WIDE_OFFSET_LIMIT, Wrong.HALO, offsets[0])
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
            if is_wide and axis:  # it is never counted on
                first, last = coordinate, code.number(_PASSED)
            low, high = is_pixel.select(first, low), is_pixel.select(last, high)
            offset = is_pixel.select(offsets[axis], offset)
            outside = coordinate > high if is_wide else (coordinate < low) | (coordinate > high)
            if not (is_wide and axis):
                issue.demand(~(is_pixel & outside), Wrong.PIXEL, coordinate)
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
    box.set(at(AsyncOperation.boxes, 1), _read_halo(issue, copied, halo))
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
    """Return the bytes that the mbarrier of a box counts, those beyond the tensor included.

    Rows are not widened, and padded types count as many bytes as in the tensor: Triton's and CUTLASS's
    kernels expect so.
    """
    packed = code_box.get(AsyncOperation.packed_bytes)
    size = packed.differs(0).select(packed, code_box.get(AsyncOperation.element_bytes))
    for dimension in range(DIMENSIONS):
        size = size * code_box.get(at(AsyncOperation.boxes, dimension))
    return size


def spanned_bytes(code_box: Record) -> Value:
    """Return the bytes of shared memory from a box's first one on that it spans, widened rows included."""
    size = code_box.get(AsyncOperation.row_bytes)
    for dimension in range(1, DIMENSIONS):
        size = size * code_box.get(at(AsyncOperation.boxes, dimension))
    return size


#: Fields of a whole tensor map by PTX's names, and those of each dimension with the number of the first.
_OF_MAP = {"global_address": "address", "rank": "rank"}
_OF_DIMENSION = {
    "box_dim": ("box", 0), "global_dim": ("dim", 0), "global_stride": ("stride", 1),
    "element_stride": ("element_stride", 0),
}  # fmt: skip
_MODES = {
    "interleave_layout": "interleave", "swizzle_mode": "swizzle", "swizzle_atomicity": "atomicity",
    "fill_mode": "fill",
}  # fmt: skip
#: The element types by PTX's numbers: those of the map, then those that are rounded to tf32 (an H200).
_TF32_TYPES = {11: "tf32", 12: "tf32.ftz"}
#: The packed types of GPUs from sm_100 on: PTX's numbers, which are the driver's, and those in a map.
_LATER_TYPES = {EVERY_TYPE[name].driver_code: EVERY_TYPE[name].code for name in PACKED_TYPES}
_LARGEST_CODES = {"interleave_layout": 2, "swizzle_mode": 3, "swizzle_atomicity": 3, "fill_mode": 1}


def replace(code: BlockCode, op: Op) -> None:
    """Lower tensormap.replace: the bits of one field change, in the maps of all active lanes."""
    if not op.has("tile"):
        raise op.unsupported("it changes tensor maps of the mode .tile")
    (located,) = accesses(op)
    access = Access(code, op.site, located.space, MAP_BYTES, MAP_ALIGNMENT, WRITE)
    with code.each_lane(code.bits(code.active(op))) as lane:
        words = Pointer(code, u64, access.host(code.address_of(located.address, lane), lane))
        for field, number in _changes(code, op, lane):
            _put(words, field, number)


def _changes(code: BlockCode, op: Op, lane: Value) -> list[tuple[Field, Value]]:
    """Return the fields that an instruction changes, with the numbers that stand in their bits then."""
    names = (*_OF_MAP, *_OF_DIMENSION, *_MODES, "elemtype")
    name = op.one_of(names, "it names no field of a tensor map")
    rest = op.operands[1:]
    if name in _OF_DIMENSION:
        prefix, first = _OF_DIMENSION[name]
        ordinal = _constant(op, rest[0], MOST_AXES - 1 - first)
        field = FIELD[f"{prefix}{ordinal + first}"]
        rest = rest[1:]
    if len(rest) != 1:
        raise op.unsupported(f".{name} takes {2 if name in _OF_DIMENSION else 1} operands after the address")
    if name in _MODES:
        return [(FIELD[_MODES[name]], code.constant(u64, _constant(op, rest[0], _LARGEST_CODES[name])))]
    if name == "elemtype":
        is_later = arch_number(code.kernel.program.module.arch) >= LATER_ARCH
        number = _constant(op, rest[0], max(_LATER_TYPES if is_later else _TF32_TYPES))
        rounded = _TF32_TYPES.get(number)
        kind = ELEMENT_TYPES[rounded].code if rounded else _LATER_TYPES.get(number, number)
        bits = {"type": kind, "tf32": int(rounded is not None)}
        return [(FIELD[bit], code.constant(u64, value)) for bit, value in bits.items()]
    wide = op.has("b64")
    value = code.lane_read(rest[0], u64 if wide else u32, lane).to(u64)
    if name == "rank":  # the instruction takes one less than the dimensions, as the map has it
        return [(FIELD["rank"], value)]
    field = FIELD[_OF_MAP[name]] if name in _OF_MAP else field
    return [(field, (value - field.bias) >> (field.unit.bit_length() - 1))]


def _constant(op: Op, operand: ResolvedOperand, most: int) -> int:
    """Return an operand that has to be a constant up to a number."""
    if not isinstance(operand, Immediate) or not 0 <= operand.bits <= most:
        raise op.unsupported(f"it takes a constant from 0 to {most}")
    return operand.bits


def _put(words: Pointer, field: Field, number: Value) -> None:
    """Write a number into the bits of a field."""
    for first, bits in field.parts:
        assert first % 64 + bits <= 64, field
        mask = ((1 << bits) - 1) << first % 64
        word = words.load(first // 64)
        words.store((word & ~mask) | ((number << (first % 64)) & mask), first // 64)
        number = number >> bits


def copy(code: BlockCode, op: Op) -> None:
    """Lower tensormap.cp_fenceproxy: 128 bytes are copied from shared to global memory."""
    size = op.operands[2]
    if not isinstance(size, Immediate) or size.bits != MAP_BYTES:
        raise op.unsupported(f"it copies {MAP_BYTES} bytes")
    target, source = accesses(op)
    function = shared_code(
        code.module, "copy tensor map", (*ISSUER, "target", "source"), _write_copy, quickly=True
    )
    active = code.bits(code.active(op))
    with code.when(active.differs(0)):
        lane = code.first_lane(active)
        places = [code.address_of(address.address, lane).to(i64) for address in (target, source)]
        code.invoke_or_stop(function, code["frame"], op.site, lane, *places)


def _write_copy(code: BlockCode) -> None:
    made, size = Issue(code), code.number(MAP_BYTES)
    for side in ("target", "source"):
        made.aligned(code[side], Wrong.MAP_ALIGNMENT, MAP_ALIGNMENT)
    target = made.host("global", code["target"], size, WRITE)
    code.copy_bytes(target, made.own_shared(code["source"], size), size, may_overlap=True)
