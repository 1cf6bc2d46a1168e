"""Operands of tcgen05.mma between shared or tensor memory and plain matrices in the host's memory.

Functions of the module of a product (`tcgen05_product.py`): a matrix through its descriptor, A from tensor
memory, a sparse A spread by its metadata, scale factors, and accumulators to rows of sums and back. They take
the operation first; one that stops the launch returns a number other than 0.
"""

from functools import reduce
from operator import or_
from typing import Literal, NamedTuple

from lanewise.isa.matrix_descriptor import PIECE_BYTES, TCGEN05_VERSION, Major
from lanewise.isa.tensor_memory.accumulators import PARTITION
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, f32, i32, i64, u8, u16, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.register_shuffles import shuffled
from lanewise.machine.codegen.tensor_pipe import fault_in
from lanewise.machine.tensor_core.descriptors import First, each_piece, stop_outside
from lanewise.machine.tensor_core.mma_function import half_numbers, half_words
from lanewise.machine.tensor_core.sparsity_and_scales import TF32_CODES
from lanewise.machine.tensor_core.tcgen05_faults import Wrong
from lanewise.machine.tensor_core.wgmma_operands import interleaved, store_lines
from lanewise.machine.tensor_memory_records import LANE_BYTES

#: Elements of a row of sums that are moved at a time.
TOGETHER = 8


class Storage(NamedTuple):
    """How elements lie in a piece of 16 bytes: bits of one, how many there are, and their word outside."""

    bits: int
    elements: int
    word: Type


#: By name: formats of 4 and 6 bits lie packed in the first bytes of a piece beside formats of 8 bits, and
#: "b4" is packed without a gap.
STORAGE = {
    "b32": Storage(32, 4, u32),
    "b16": Storage(16, 8, u16),
    "b8": Storage(8, 16, u8),
    "b6 in b8": Storage(6, 16, u8),
    "b4 in b8": Storage(4, 16, u8),
    "b4": Storage(4, 32, u8),
}


def _function(module: ir.Module, name: str, arguments: tuple[str, ...]) -> FunctionCode:
    """Begin a function of the module that all code of it calls."""
    code = FunctionCode(module, name, ("operation", *arguments), ir.WORD)
    code.function.attributes.add("noinline")
    return code


# elements of pieces -----------------------------------------------------------------------------------------


def _vector(code: FunctionCode, type: Type, numbers: list[int]) -> Value:
    """Return a vector of constants."""
    vector = type.by(len(numbers))
    return Value(code, vector, ir.Constant(vector.ir, numbers))


def _nibbles(code: FunctionCode, packed: Value) -> Value:
    """Return the halves of bytes, the low one first, as bytes."""
    return interleaved(code, packed & 15, packed >> 4)


def _sextets(code: FunctionCode, packed: Value) -> Value:
    """Return the 16 elements of 6 bits in the first 12 of 16 bytes, as bytes."""
    first = [number * 6 // 8 for number in range(16)]
    low, high = (
        shuffled(code, packed, None, tuple(place + step for place in first)).to(u16) for step in (0, 1)
    )
    shift = _vector(code, u16, [number * 6 % 8 for number in range(16)])
    return (((low | (high << 8)) >> shift) & 63).to(u8)


def piece_elements(code: FunctionCode, storage: Storage, piece: Record) -> Value:
    """Return the elements of a piece in shared memory, each as a word."""
    if storage.bits == storage.word.bits:
        return piece.get(0, storage.word, storage.elements)
    if storage.bits == 6:
        return _sextets(code, piece.get(0, u8, PIECE_BYTES))
    return _nibbles(code, piece.get(0, u8, storage.elements // 2))


def tensor_elements(code: FunctionCode, storage: Storage, words: Record, count: int) -> Value:
    """Return `count` elements of a lane of tensor memory, each as a word.

    Beside formats of 8 bits one of fewer bits has a byte of its own: e2m1 in its bits 2 to 5.
    """
    if storage.bits == 4 and storage.elements == 32:
        return _nibbles(code, words.get(0, u8, count // 2))
    value = words.get(0, storage.word, count)
    if storage.bits == 4:
        return (value >> 2) & 15
    return value & 63 if storage.bits == 6 else value


# matrices ---------------------------------------------------------------------------------------------------


def gather(
    module: ir.Module, name: str, storage: Storage, major: Major, turned: bool, may_go_on: bool
) -> ir.Function:
    """Write `gather`: the part of a matrix that begins at a group of lines and a piece of them.

    Lines become rows of `pitch` elements, or columns if it is turned; `sign` has the bits of an element that
    are flipped. Pieces that are out of the bounds of shared memory stop the launch.
    """
    arguments = (
        "block", "descriptor", "first_group", "groups", "first_piece", "pieces", "out", "pitch", "sign",
    )  # fmt: skip
    code = _function(module, name, arguments)
    operation, block = code.record("operation"), Record(code, code["block"], BlockRecord)
    limit = block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes) - PIECE_BYTES
    memory = block.get(BlockRecord.shared)
    out = code.pointer("out", storage.word)
    sign = code["sign"].to(storage.word).spread(storage.elements)

    def fault(address: Value) -> None:
        shown = address | block.get(BlockRecord.shared_first)
        fault_in(code, operation, FaultKind.OUT_OF_BOUNDS, shown, PIECE_BYTES)

    def body(group: Value, piece: Value, addresses: list[Value]) -> None:
        stop_outside(code, addresses, limit, fault)
        lines = [
            piece_elements(code, storage, Record(code, memory + address)) ^ sign for address in addresses
        ]
        store_lines(code, out, lines, group, piece, turned)

    first = First(code["first_group"], code["first_piece"])
    each_piece(
        code, code["descriptor"], major, code["groups"], code["pieces"], body,
        version=TCGEN05_VERSION, first=first, may_go_on=may_go_on,
    )  # fmt: skip
    code.give(0)
    return code.function


def tensor_rows(module: ir.Module, name: str, storage: Storage, count: int) -> ir.Function:
    """Write `rows`: `count` elements of each of some lanes of tensor memory become rows of a matrix.

    If `shifted` is 1, a row is that of the next lane, but in the last lane of a partition: as tcgen05.shift
    moves rows. It rests on the same sentence of the PTX ISA (.ashift).
    """
    code = _function(module, name, ("source", "rows", "shifted", "out", "pitch", "sign"))
    sign = code["sign"].to(storage.word).spread(count)
    with code.loop(code["rows"]) as row:
        is_last = (row & (PARTITION - 1)).equals(PARTITION - 1)
        lane = row + is_last.select(code.number(0), code["shifted"])
        value = tensor_elements(code, storage, Record(code, code["source"] + lane * LANE_BYTES), count)
        code.pointer("out", storage.word).store(value ^ sign, row * code["pitch"])
    code.give(0)
    return code.function


# sums -------------------------------------------------------------------------------------------------------

Accumulator = Literal["f32", "f16", "s32"]


def sums_in(module: ir.Module, name: str, accumulator: Accumulator) -> ir.Function:
    """Write `in`: lanes of tensor memory become rows of sums, multiplied by the f64 `factor`, or zeros.

    f16 accumulators lie in the low halves of columns.
    """
    code = _function(module, name, ("source", "rows", "columns", "out", "pitch", "adds", "factor"))
    with code.loop(code["rows"]) as row:
        words = Record(code, code["source"] + row * LANE_BYTES)
        out = code.pointer("out", u32) + row * code["pitch"]
        with code.loop(code["columns"] >> 3) as number:
            place = number * TOGETHER
            value = words.pointer(place * 4, u32).load(0, TOGETHER)
            if accumulator != "s32":
                numbers = half_numbers(value.to(u16)) if accumulator == "f16" else value.view(f32)
                factor = code["factor"].to(u32).view(f32)
                value = (numbers * factor).view(u32)
            mask = (code["adds"].differs(0)).mask(i32).view(u32).spread(TOGETHER)
            out.store(value & mask, place)
    code.give(0)
    return code.function


def sums_out(module: ir.Module, name: str, accumulator: Accumulator) -> ir.Function:
    """Write `out`: rows of sums go to lanes of tensor memory, but for lanes whose bit of a mask is set."""
    code = _function(module, name, ("target", "rows", "columns", "sums", "pitch", "mask", "lane"))
    mask = code.pointer("mask", u32)
    with code.loop(code["rows"]) as row:
        lane = code["lane"] + row
        disabled = (mask.load(lane >> 5) >> (lane & 31).to(u32)) & 1
        with code.when(disabled.equals(0)):
            words = Record(code, code["target"] + row * LANE_BYTES)
            sums = code.pointer("sums", u32) + row * code["pitch"]
            with code.loop(code["columns"] >> 3) as number:
                value = sums.load(number * TOGETHER, TOGETHER)
                if accumulator == "f16":
                    value = half_words(value.view(f32)).to(u32)
                words.pointer(number * (TOGETHER * 4), u32).store(value)
    code.give(0)
    return code.function


# metadata and scale factors ---------------------------------------------------------------------------------


class Spread(NamedTuple):
    """How a sparse A is spread out: elements that a code selects, in runs, of so many along K."""

    selected: int
    run: int
    group: int
    codes: int


def spread(module: ir.Module, name: str, how: Spread, element: Type) -> ir.Function:
    """Write `spread`: the elements of rows of A go to where the metadata says; the rest stays as it is.

    `places` has for each row and code the byte offset of a word of tensor memory and a bit in it.
    """
    code = _function(module, name, ("metadata", "places", "rows", "packed", "packed_pitch", "dense"))
    places = code.pointer("places", u32)
    packed, dense = code.pointer("packed", element), code.pointer("dense", element)
    dense_pitch = how.codes * how.group
    with code.loop(code["rows"]) as row, code.loop(how.codes) as number:
        place = places.load(row * how.codes + number)
        word = Record(code, code["metadata"] + (place >> 5).to(u64).to(i64)).get(0, u32)
        bits = (word >> (place & 31)) & 15
        if how.selected == 1:
            first, second = TF32_CODES
            wrong = bits.differs(first) & bits.differs(second)
            indices = [bits.equals(second).to(u64).to(i64)]
        else:
            indices = [(part & 3).to(u64).to(i64) for part in (bits, bits >> 2)]
            wrong = ~(indices[0] < indices[1])
        begin = row * code["packed_pitch"] + number * how.selected
        values = [packed.load(begin + number) for number in range(how.selected)]
        # CUTLASS's compressor writes the code 0 for a group without elements: zeros may be anywhere.
        if how.selected > 1:
            wrong = wrong & reduce(or_, (~value.equals(0) for value in values))
        with code.when(wrong):
            fault_in(code, code.record("operation"), FaultKind.TENSOR_PRODUCT, row, int(Wrong.BAD_METADATA))
        for element_number, value in enumerate(values):
            index = indices[element_number // how.run]
            column = number * how.group + index * how.run + element_number % how.run
            dense.store(value, row * dense_pitch + column)
    code.give(0)
    return code.function


def factors(module: ir.Module, name: str) -> ir.Function:
    """Write `factors`: scale factors of rows (or columns) as exponents and significands.

    Row r of `count` has `per_row` bytes in lane r % 32, 4 · (r // 32) bytes further, from `first_byte` on;
    those beyond a word lie `further` bytes after it. One goes to place r · `row_step` + number · `step` of
    both targets.
    """
    arguments = (
        "source", "first_byte", "further", "count", "per_row", "row_step", "step", "exponents",
        "significands", "tables",
    )  # fmt: skip
    code = _function(module, name, arguments)
    tables = code.record("tables")
    with code.loop(code["count"]) as row, code.loop(code["per_row"]) as number:
        place = code["first_byte"] + number
        in_word = (place >> 2) * code["further"] + (place & 3)
        offset = (row & 31) * LANE_BYTES + (row >> 5) * 4 + in_word
        byte = Record(code, code["source"] + offset).get(0, u8).to(u64).to(i64)
        place = row * code["row_step"] + number * code["step"]
        code.pointer("exponents", i32).store(tables.pointer(byte * 4, i32).load(), place)
        code.pointer("significands", f32).store(tables.pointer(byte * 4 + 1024, f32).load(), place)
    code.give(0)
    return code.function


def pointer_to(code: FunctionCode, address: Value, type: Type) -> Pointer:
    """Return an address as a pointer to elements."""
    return Record(code, address).pointer(0, type)


assert abi.LANES == 32
