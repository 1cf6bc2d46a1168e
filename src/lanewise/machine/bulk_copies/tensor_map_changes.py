"""Lowerings of tensormap.replace, which changes a field of a tensor map, and of tensormap.cp_fenceproxy."""

from lanewise.isa import arch_number
from lanewise.isa.tensor_map import LATER_ARCH
from lanewise.isa.tensor_map_fields import (
    ELEMENT_TYPES,
    EVERY_TYPE,
    FIELD,
    MAP_ALIGNMENT,
    MAP_BYTES,
    MOST_AXES,
    PACKED_TYPES,
    Field,
)
from lanewise.jit.simd import Pointer, Value, i64
from lanewise.machine.bulk_copies.bulk_copy import stop_unless_done
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.bulk_copies.operation import ISSUER, Issue
from lanewise.machine.bulk_copies.reductions import copier
from lanewise.machine.codegen.function_code import U32, U64, BlockCode, call, shared_code
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE, Access
from lanewise.ptx import Immediate

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
        words = Pointer(code, U64, access.host(code.address_of(located.address, lane), lane))
        for field, number in _changes(code, op, lane):
            _put(words, field, number)


def _changes(code: BlockCode, op: Op, lane: Value) -> list[tuple[Field, Value]]:
    """Return the fields that an instruction changes, with the numbers that stand in their bits then."""
    name = next(
        (
            modifier
            for modifier in op.modifiers
            if modifier in (*_OF_MAP, *_OF_DIMENSION, *_MODES, "elemtype")
        ),
        "",
    )
    if not name:
        raise op.unsupported("it names no field of a tensor map")
    rest = op.operands[1:]
    if name in _OF_DIMENSION:
        prefix, first = _OF_DIMENSION[name]
        ordinal = _constant(op, rest[0], MOST_AXES - 1 - first)
        field = FIELD[f"{prefix}{ordinal + first}"]
        rest = rest[1:]
    if len(rest) != 1:
        raise op.unsupported(f".{name} takes {2 if name in _OF_DIMENSION else 1} operands after the address")
    if name in _MODES:
        return [(FIELD[_MODES[name]], code.constant(U64, _constant(op, rest[0], _LARGEST_CODES[name])))]
    if name == "elemtype":
        is_later = arch_number(code.kernel.program.module.arch) >= LATER_ARCH
        number = _constant(op, rest[0], max(_LATER_TYPES if is_later else _TF32_TYPES))
        rounded = _TF32_TYPES.get(number)
        kind = ELEMENT_TYPES[rounded].code if rounded else _LATER_TYPES.get(number, number)
        bits = {"type": kind, "tf32": int(rounded is not None)}
        return [(FIELD[bit], code.constant(U64, value)) for bit, value in bits.items()]
    wide = op.has("b64")
    value = code.lane_read(rest[0], U64 if wide else U32, lane).to(U64)
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
        values: list[Value | int] = [code["frame"], op.site, lane, *places]
        stop_unless_done(code, call(code, function, values))


def _write_copy(code: BlockCode) -> None:
    made, size = Issue(code), code.number(MAP_BYTES)
    for side in ("target", "source"):
        made.aligned(code[side], Wrong.MAP_ALIGNMENT, MAP_ALIGNMENT)
    target = made.host("global", code["target"], size, WRITE)
    copier(code, target, made.own_shared(code["source"], size), size)
