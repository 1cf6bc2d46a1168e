"""Lowerings of tensor copies (TMA): loads, stores and reductions of boxes, or of columns of pixels."""

from collections.abc import Callable

from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, OTHER_AXES
from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, CacheEntry, FaultKind, LaunchRecord
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.box_walker import ATOM, DIMENSIONS, GATHERED, AtomCopy, bounds, least, walk
from lanewise.machine.bulk_copies.bulk_copy import (
    after_size,
    each_receiver,
    operation_of,
    reduction,
    refuse_other_forms,
)
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.bulk_copies.operation import ISSUER, Issue, finish
from lanewise.machine.bulk_copies.tensor_map import (
    MATRIX_RANK,
    BoxMode,
    box_bytes,
    read_map,
    require_inside,
    spanned_bytes,
)
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    shared_code,
    shared_routine,
)
from lanewise.machine.codegen.pending_operations import address_of
from lanewise.machine.program.operands import ResolvedOperand, TexelOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE
from lanewise.machine.warp_ops.atomics import BULK

#: What the shared address of a box is a multiple of.
SHARED_ALIGNMENT = 128
#: Types whose elements each operation can reduce: an H200 stops with an illegal instruction for others.
REDUCED_TYPES = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f32.ftz", "f64"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("u32", "s32", "u64")),
}
_ARGUMENTS = (*ISSUER, "map", "shared", "barrier", "rank", *(f"c{axis}" for axis in range(DIMENSIONS)))
#: The further arguments of im2col: what is added to the coordinates of pixels.
MOST_OFFSETS = DIMENSIONS - OTHER_AXES
_OFFSETS = tuple(f"offset{axis}" for axis in range(MOST_OFFSETS))
#: The modifiers of each mode.
_MODE_WORDS = {
    BoxMode.COLUMN: ("im2col", "im2col_no_offs"),
    BoxMode.ROWS: ("tile::gather4", "tile::scatter4"),
    BoxMode.WIDE: ("im2col::w",),
    BoxMode.WIDE_128: ("im2col::w::128",),
}
#: The NaN that a load rounds every NaN to, if it rounds to tf32.
_TF32_NAN = 0x7FFFE000
#: Bits of f32 that tf32 does not have.
_TF32_LOST = 13


def mode_of(op: Op) -> BoxMode:
    """Return the mode in which an instruction copies; without one it copies boxes."""
    return next((mode for mode, words in _MODE_WORDS.items() if any(map(op.has, words))), BoxMode.TILE)


def _rank(op: Op) -> int:
    """Return the dimensions that an instruction names; raise an error if it names none."""
    ranks = [number for number in range(1, DIMENSIONS + 1) if op.has(f"{number}d")]
    if len(ranks) != 1:
        raise op.unsupported("it names no number of dimensions from .1d to .5d")
    return ranks[0]


def _issue(code: BlockCode, op: Op, function: ir.Function, tensor: int, shared: int, barrier: int) -> None:
    """Write the calls that issue a tensor copy of each active lane; `barrier`: -1 if it has none."""
    refuse_other_forms(op)
    rank, place, mode = _rank(op), op.operands[tensor], mode_of(op)
    assert isinstance(place, TexelOperand)
    if mode is BoxMode.ROWS and rank != MATRIX_RANK:
        raise op.unsupported(f"it copies rows of a matrix (.2d), not of a tensor of {rank} dimensions")
    wanted = 1 + GATHERED if mode is BoxMode.ROWS else rank
    if len(place.coordinates) != wanted:
        raise op.unsupported(f"it has {len(place.coordinates)} coordinates, and takes {wanted}")
    rest = after_size(op, max(tensor, shared, barrier) + 1)
    offsets = _offsets(op, rank, rest)
    if op.has("multicast::cluster") != (len(rest) == 1) or len(rest) > 1:
        raise op.unsupported("its operands do not fit its modifiers")
    signed = Type("i", 32)
    with code.each_lane(code.bits(code.active(op))) as lane:
        numbers = [code.lane_read(coordinate, signed, lane).to(i64) for coordinate in place.coordinates]
        numbers += [code.number(0)] * (DIMENSIONS - len(numbers))
        if mode.is_column:
            given = [code.lane_read(offset, Type("u", 16), lane).to(u64).to(i64) for offset in offsets]
            numbers += [*given, *[code.number(0)] * (MOST_OFFSETS - len(given))]
        map, there, mbarrier = (
            code.address_of(op.address(operand), lane).to(i64) if operand >= 0 else code.number(0)
            for operand in (tensor, shared, barrier)
        )
        if op.has("cta_group::1") or op.has("cta_group::2"):
            _require_pair(code, op, lane, there, mbarrier)
        with each_receiver(code, op, rest, lane, there, mbarrier) as places:
            code.invoke_or_stop(function, code["frame"], op.site, lane, map, *places, rank, *numbers)


def _require_pair(code: BlockCode, op: Op, lane: Value, there: Value, mbarrier: Value) -> None:
    """Stop the launch if the mbarrier is in a block that .cta_group does not allow (PTX ISA).

    With .multicast::cluster each block of the mask has a destination, and the mbarrier's block counts alone.
    """
    if op.has("multicast::cluster"):
        return
    shift = abi.RANK_SHIFT + (1 if op.has("cta_group::2") else 0)
    with code.when((there >> shift).differs(mbarrier >> shift)):
        code.fault(FaultKind.BULK_COPY, op.site, lane, mbarrier, int(Wrong.PAIR))


def _offsets(op: Op, rank: int, rest: list[ResolvedOperand]) -> tuple[ResolvedOperand, ...]:
    """Return the offsets that .im2col adds to the coordinates of pixels, taken from the further operands.

    The modes .im2col::w and .im2col::w::128 have the pixels of a halo and one offset instead.
    """
    mode = mode_of(op)
    if not mode.is_column:
        return ()
    axes = rank - OTHER_AXES
    if axes < 1:
        raise op.unsupported(f".im2col takes tensors of 3 to 5 dimensions, not of {rank}")
    if op.has("im2col_no_offs"):
        return ()
    offsets = elements_of(rest.pop(0)) if rest else ()
    if mode is not BoxMode.COLUMN:
        if len(offsets) != 2:
            raise op.unsupported("it takes the pixels of the halo and the offset along W: {wHalo, wOffset}")
    elif len(offsets) != axes:
        raise op.unsupported(f"it has {len(offsets)} offsets for {axes} dimensions of pixels")
    return offsets


def lower_load(code: BlockCode, op: Op) -> None:
    """Lower cp.async.bulk.tensor from global to shared memory."""
    function = _issuer(code, op, "tensor load", lambda inner: _write_load(inner, mode_of(op)))
    _issue(code, op, function, tensor=1, shared=0, barrier=2)


def _issuer(code: BlockCode, op: Op, name: str, write: Callable[[BlockCode], None]) -> ir.Function:
    """Return the function that issues a copy in the mode of an instruction."""
    mode = mode_of(op)
    arguments = (*_ARGUMENTS, *_OFFSETS) if mode.is_column else _ARGUMENTS
    return shared_code(code.module, f"{name} {mode.value}".rstrip(), arguments, write, quickly=True)


def lower_store(code: BlockCode, op: Op) -> None:
    """Lower cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    name = operation_of(op) if "reduce" in op.modifiers else ""
    title = f"tensor store {name}".rstrip()
    function = _issuer(code, op, title, lambda inner: _write_store(inner, op, name))
    _issue(code, op, function, tensor=0, shared=1, barrier=-1)


def _box(code: BlockCode, mode: BoxMode) -> tuple[Issue, Value, Value]:
    """Write the box of a copy; return it with its kind of elements, and the bytes that it spans."""
    made = Issue(code)
    coordinates = [code[f"c{axis}"] for axis in range(DIMENSIONS)]
    offsets = [code[offset] for offset in _OFFSETS] if mode.is_column else []
    fields = read_map(made, code["map"], code["rank"], coordinates, mode, offsets)
    made.aligned(code["shared"], Wrong.TENSOR_ALIGNMENT, SHARED_ALIGNMENT)
    made.record.set(AsyncOperation.shared_address, code["shared"])
    made.record.set(AsyncOperation.size, box_bytes(made.record))
    return made, fields.get("type"), spanned_bytes(made.record)


def _locate_tensor(made: Issue, flags: int) -> None:
    """Check the bytes of the tensor that lie in the box, if any do, and put on record where they are."""
    code, box = made.code, made.record
    low, high = bounds(code, box)
    with code.when(high > low):
        host = made.host("global", low, high - low, flags)
        box.set(AsyncOperation.tensor_shift, host - low)
        cache = Record(code, made.block.get(BlockRecord.caches) + code["site"] * CacheEntry.BYTES)
        box.set(AsyncOperation.tensor_end, cache.get(CacheEntry.first) + cache.get(CacheEntry.size))
    launch = made.block.at(BlockRecord.launch)
    with code.when(high.equals(low) & launch.get(LaunchRecord.outside_site).equals(0)):
        launch.set(LaunchRecord.outside_site, code["site"] + 1)
        for dimension in range(DIMENSIONS):
            launch.set(LaunchRecord.outside_coordinates + 8 * dimension, code[f"c{dimension}"])


def _write_load(code: BlockCode, mode: BoxMode) -> None:
    made, _, span = _box(code, mode)
    made.record.set(AsyncOperation.target, made.host("shared", code["shared"], span, WRITE))
    made.to_shared(code["shared"])
    _locate_tensor(made, 0)
    made.told_to(code["barrier"])
    made.give(_execute_load(code.module))


def _write_store(code: BlockCode, op: Op, name: str) -> None:
    mode = mode_of(op)
    made, kind, span = _box(code, mode)
    for dimension in range(DIMENSIONS):
        coordinate = code[f"c{dimension}"]
        made.demand(~(coordinate < 0), Wrong.NEGATIVE, coordinate)
    if mode.is_column:
        require_inside(made, code["rank"])
    packed = made.record.get(AsyncOperation.packed_bytes)
    can_be_stored = packed.equals(0) | packed.equals(SIX_BIT_BYTES)
    made.demand(can_be_stored, Wrong.PADDED_STORE, kind)
    if name:
        combine = code.number(0)
        for reduced in REDUCED_TYPES[name]:
            fmt = reduced.removesuffix(".ftz")
            function = reduction(code.module, op, name, fmt, BULK if fmt == reduced else "global")
            combine = kind.equals(ELEMENT_TYPES[reduced].code).select(address_of(code, function), combine)
        made.demand(combine.differs(0), Wrong.TYPE, kind)
        made.record.set(AsyncOperation.combine, combine)
    made.record.set(AsyncOperation.source, made.own_shared(code["shared"], span))
    made.record.set(AsyncOperation.source_bytes, span)
    _locate_tensor(made, WRITE)
    made.give(_execute_store(code.module))


# carrying out -----------------------------------------------------------------------------------------------


def _copy(code: FunctionCode, target: Value, source: Value, size: Value) -> None:
    """Write a copy of a run; 16 bytes are one vector."""
    with code.builder.if_else(size.equals(ATOM).handle) as (atom, other):
        with atom:
            _copy_atom(code, target, source)
        with other:
            code.copy_bytes(target, source, size, may_overlap=True)


def _copy_atom(code: FunctionCode, target: Value, source: Value) -> None:
    """Write a copy of 16 bytes as one vector."""
    vector = code.load_unaligned(Record(code, source).handle, Type("u", 64, 2))
    code.store_unaligned(vector, Record(code, target).handle)


@shared_routine("execute tensor load", ("operation",))
def _execute_load(code: FunctionCode) -> None:
    box = code.record("operation")
    shift = box.get(AsyncOperation.target) - box.get(AsyncOperation.shared_address)
    tensor_shift, fill = box.get(AsyncOperation.tensor_shift), box.get(AsyncOperation.fill)
    rounds = box.get(AsyncOperation.rounds).differs(0)

    def inside(address: Value, place: Value, size: Value) -> None:
        target, source = place + shift, address + tensor_shift
        with code.builder.if_else(rounds.handle) as (to_tf32, plain):
            with to_tf32:
                _copy_tf32(code, target, source, size)
            with plain:
                _copy(code, target, source, size)

    def outside(place: Value, size: Value) -> None:
        target = place + shift
        with code.builder.if_else(fill.equals(0).handle) as (zeros, nan):
            with zeros:
                code.zero_bytes(target, size)
            with nan:
                half = Type("u", 16)
                with code.loop(size >> 1) as number:
                    Record(code, target + number * 2).set(0, fill.to(half))

    atoms = AtomCopy(
        applies=lambda address, size: ~rounds,
        copy=lambda address, place: _copy_atom(code, place + shift, address + tensor_shift),
    )
    walk(code, box, False, inside, outside, atom_copy=atoms)
    finish(code, box)


def _copy_tf32(code: FunctionCode, target: Value, source: Value, size: Value) -> None:
    """Write a copy that rounds f32 to tf32: to the nearest, halves to even; a NaN becomes one of all ones."""
    with code.loop(size >> 2) as number:
        word = Record(code, source + number * 4).get(0, u32)
        lost = 1 << _TF32_LOST
        rounded = (word + (lost // 2 - 1) + ((word >> _TF32_LOST) & 1)) & -lost
        is_nan = (word & 0x7FFFFFFF) > 0x7F800000
        Record(code, target + number * 4).set(0, is_nan.select(code.constant(u32, _TF32_NAN), rounded))


#: Bytes of 16 numbers of 6 bits.
SIX_BIT_BYTES = 12


def _pack_six_bits(code: FunctionCode, target: Value, source: Value) -> None:
    """Write a copy of 16 bytes to 12: of each byte the lower 6 bits (the type b6p2x16)."""
    byte = Type("u", 8)
    for group in range(0, 16, 4):
        word = code.constant(u32, 0)
        for number in range(4):
            six = Record(code, source + (group + number)).get(0, byte).to(u32) & 63
            word = word | (six << (6 * number))
        for number in range(3):
            Record(code, target + (group // 4 * 3 + number)).set(0, (word >> (8 * number)).to(byte))


@shared_routine("execute tensor store", ("operation",))
def _execute_store(code: FunctionCode) -> None:
    box = code.record("operation")
    shift = box.get(AsyncOperation.source) - box.get(AsyncOperation.shared_address)
    tensor_shift, end = box.get(AsyncOperation.tensor_shift), box.get(AsyncOperation.tensor_end)
    combine, is_packed = box.get(AsyncOperation.combine), box.get(AsyncOperation.packed_bytes).differs(0)

    def inside(address: Value, place: Value, size: Value) -> None:
        # Whole 16 bytes are written, but nothing beyond the memory that the launch may write.
        left = least(size, end - address)
        target, source = address + tensor_shift, place + shift
        with code.builder.if_else(combine.equals(0).handle) as (copies, reduces):
            with copies, code.builder.if_else(is_packed.handle) as (packs, plain):
                with packs:
                    _pack_six_bits(code, target, source)
                with plain:
                    _copy(code, target, source, left)
            with reduces:
                code.invoke(combine, target, source, left)

    atoms = AtomCopy(
        applies=lambda address, size: combine.equals(0) & ~(end - address < size),
        copy=lambda address, place: _copy_atom(code, address + tensor_shift, place + shift),
    )
    walk(code, box, True, inside, None, atom_copy=atoms)
    finish(code, box)
