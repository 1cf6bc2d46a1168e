"""The product of a tcgen05.mma: what its form and instruction descriptor say, and the compiled code for it.

A product is compiled when a launch first uses it, because its descriptor is a number at run time. Code is
shared by all shapes and by all formats that lie alike; M, N and formats are numbers in a record. The sums are
made by the functions of `arith` that compute the instruction on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from lanewise.arith import fused_kernel, plain_kernel
from lanewise.arith.decoding import decode
from lanewise.arith.fused_engine import plan_for, split_scales
from lanewise.arith.models import FusedSum, Model
from lanewise.arith.on_arrays import required_model
from lanewise.arith.plain_engine import cut_for
from lanewise.isa.asynchronous.descriptor import KINDS, InstructionDescriptor
from lanewise.isa.asynchronous.products import tcgen05_instruction
from lanewise.isa.matrix_descriptor import Major
from lanewise.isa.tensor_memory.accumulators import (
    METADATA,
    Region,
    block_rows,
    factor_columns,
    further_columns,
    metadata_place,
    regions,
)
from lanewise.jit import ir, machine_code
from lanewise.jit.host_memory import address, zeroed_bytes
from lanewise.jit.simd import Type, Value, f32, i8, i16, u8
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, MemberRow
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.tensor_pipe import (
    columns_are_allocated,
    fault_in,
    is_paired,
    lane_and_column,
    missing_column,
    operand_of,
    other_row,
    tensor_word,
)
from lanewise.machine.tensor_core import tcgen05_operands as operands
from lanewise.machine.tensor_core.tcgen05_faults import Wrong
from lanewise.machine.tensor_core.tcgen05_operands import STORAGE, Spread, Storage, pointer_to
from lanewise.machine.tensor_core.tcgen05_statement import Form, checked_descriptor, unpacked
from lanewise.machine.tensor_core.wgmma_product import call_kernel
from lanewise.machine.tensor_memory_records import LANE_BYTES

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray

#: The operands of an operation, by number: addresses, descriptors, and the form; the mask has two words for
#: each block of the pair.
D, A, B, DESCRIPTOR, FORM, ADDS, SCALE_D = range(7)
MASK, SCALE_A, SCALE_B, METADATA_ADDRESS, ZERO_MASK = 7, 11, 12, 13, 14
#: The K of 48 bytes that sm_103a has: 96 elements of 4 bits.
LONG_K = KINDS["mxf4"].long_k
#: Rows whose sums are made at a time: they stay in the processor's first cache.
ROWS_TOGETHER = 32
#: The most columns by which a zero-column mask shifts B.
MOST_SHIFT = 32
#: The most rows of a block, columns of B with those that fill its strips, elements of K, and scale factors of
#: a row.
_ROWS, _COLUMNS, _K, _FACTORS = 128, 320, 128, 6


class RegionRow(abi.RecordLayout):
    """A region of D in a block: its first lane and row, its rows, where its columns begin in B, and those."""

    lane = abi.field()
    row = abi.field()
    rows = abi.field()
    column = abi.field()
    columns = abi.field()
    #: Its columns in whole strips.
    padded = abi.field()


class RunRow(abi.RecordLayout):
    """A part of B that is gathered: the block that holds it, the groups of lines and pieces, its column."""

    block = abi.field()
    first_group = abi.field()
    groups = abi.field()
    first_piece = abi.field()
    pieces = abi.field()
    column = abi.field()


class ProductRecord(abi.RecordLayout):
    """The numbers of a product that its compiled code reads."""

    #: function(operation, record, stage), and the functions of `arith`: of B (0: none) and of the sums.
    function = abi.field()
    pack_b = abi.field()
    sums = abi.field()
    #: Blocks of the pair, 1 or 2; groups and pieces of A in one; whether A's rows are shifted; the bits that
    #: negation flips.
    blocks = abi.field()
    a_groups = abi.field()
    a_pieces = abi.field()
    shifts_a = abi.field()
    a_sign = abi.field()
    b_sign = abi.field()
    #: Columns of B in whole strips, of a strip, and those of D that lie side by side in tensor memory.
    columns = abi.field()
    strip = abi.field()
    d_columns = abi.field()
    #: Whether D may begin at lane 16.
    scattered = abi.field()
    region_count = abi.field()
    regions = abi.field(elements=4 * RegionRow.BYTES // 8)
    run_count = abi.field()
    runs = abi.field(elements=4 * RunRow.BYTES // 8)
    #: The blocks of K that are summed one after the other.
    k_blocks = abi.field()
    # Scale factors: a row's, the first byte of A's and of B's, the bytes from a word of a row to its next,
    # the columns of tensor memory that they span, tables of exponents and significands.
    factors = abi.field()
    a_byte = abi.field()
    b_byte = abi.field()
    a_further = abi.field()
    b_further = abi.field()
    a_factor_columns = abi.field()
    b_factor_columns = abi.field()
    tables = abi.field()
    #: Metadata: the column that the selector chooses, and a table of places.
    selector = abi.field()
    places = abi.field()


def _stage() -> dict[str, int]:
    """Return where everything lies in the buffer of a block, in bytes, and the size of all."""
    sums = ROWS_TOGETHER * _COLUMNS * 4
    sizes = {
        "a": _ROWS * _K, "packed": _ROWS * _K * 4, "dense": _ROWS * _K * 4, "b": _K * _COLUMNS,
        "b_elements": _K * _COLUMNS * 2, "zero": 8, "total": sums, "mask": 64,
        "a_val": ROWS_TOGETHER * _K * 4, "a_exp": ROWS_TOGETHER * _K, "a_flag": ROWS_TOGETHER * _K,
        "unfit": ROWS_TOGETHER, "b_val": _K * _COLUMNS * 4, "b_exp": _K * _COLUMNS,
        "b_flag": _K * _COLUMNS, "scales": sums, "sums": sums, "more_sums": sums, "part": sums,
        "scale_a": _ROWS * _FACTORS * 4, "scale_a_sig": _ROWS * _FACTORS * 4,
        "scale_b": _FACTORS * 4 * _COLUMNS, "scale_b_sig": _FACTORS * 4 * _COLUMNS,
    }  # fmt: skip
    offsets, place = {}, 0
    for name, size in sizes.items():
        offsets[name] = place
        place += abi.aligned(size + 64, 64)
    return offsets | {"size": place}


STAGE = _stage()


@dataclass(frozen=True)
class Code:
    """What the compiled code of a product depends on: how matrices lie, and how sums are made."""

    a: str
    b: str
    a_major: Major
    b_major: Major
    a_in_tensor_memory: bool
    accumulator: operands.Accumulator
    #: Elements of A and of B along K.
    packed_k: int
    k: int
    ws: bool
    scaled: bool
    #: The format of a sparse A, and its metadata; of integers, which of A and B are signed.
    sparse_format: str = ""
    element_bits: int = 0
    signed: tuple[bool, bool] = (False, False)

    @property
    def is_long(self) -> bool:
        """Whether K takes 48 bytes of a row: descriptors may say that rows go on in another buffer."""
        return self.k == LONG_K

    @property
    def fused(self) -> bool:
        """Whether the sums are those of floats."""
        return self.accumulator != "s32"

    @property
    def sparse(self) -> bool:
        """Whether A is spread out by metadata."""
        return bool(self.element_bits)

    def program(self, model: Model) -> machine_code.Program:
        """Return the compiled code; `model` says how a sparse A is decoded."""

        def make() -> list[bytes]:
            module = ir.Module("tcgen05 product")
            _Writer(module, self, model).write()
            return [machine_code.compile_quickly(str(module))]

        return machine_code.link(f"tcgen05 product {self}", make)


@dataclass(frozen=True)
class Tcgen05Product:
    """A product by its form and its instruction descriptor."""

    form: Form
    descriptor: InstructionDescriptor

    @cached_property
    def model(self) -> Model:
        """How the arch computes it."""
        return required_model(tcgen05_instruction(self.form.text, self.descriptor), self.form.arch)

    @property
    def fused(self) -> bool:
        """Whether it is a truncated fused sum, as those of floats are."""
        return isinstance(self.model.scheme, FusedSum)

    def storage(self, name: str) -> str:
        """Return how the elements of A or B lie, by name."""
        if self.form.product.kind.narrow:
            return "b4"
        bits = (self.model.a if name == "a" else self.model.b).bits
        return {4: "b4 in b8", 6: "b6 in b8", 8: "b8", 16: "b16"}.get(bits, "b32")

    @cached_property
    def code(self) -> Code:
        """What its compiled code depends on."""
        descriptor, sparse = self.descriptor, self.form.product.sparse
        integers = self.form.product.kind.integer
        bits = {"b32": 32, "b16": 16, "b4": 4}.get(self.storage("a"), 8) if sparse else 0
        return Code(
            a=self.storage("a"),
            b=self.storage("b"),
            a_major=descriptor.a_major,
            b_major=descriptor.b_major,
            a_in_tensor_memory=self.form.a_in_tensor_memory,
            accumulator=descriptor.d,  # type: ignore[arg-type]  # one of the three
            packed_k=descriptor.k // 2 if sparse else descriptor.k,
            k=descriptor.k,
            ws=self.form.product.ws,
            scaled=bool(self.form.product.block),
            sparse_format=self.model.a.name if sparse else "",
            element_bits=bits,
            signed=(self.model.a.signed, self.model.b.signed) if integers else (False, False),
        )

    @cached_property
    def region_columns(self) -> int:
        """The columns of D that lie side by side in tensor memory."""
        return self._regions[0].columns

    @cached_property
    def _regions(self) -> tuple[Region, ...]:
        descriptor, words = self.descriptor, self.form.product
        return regions(descriptor.m, descriptor.n, words.cta_group, words.ws, words.sparse)

    @cached_property
    def strip(self) -> int:
        """The columns that the functions of `arith` compute together."""
        columns = self.region_columns
        return plan_for(self.model, columns).strip if self.fused else cut_for(self.model, columns).strip

    def _runs(self, padded: int) -> list[tuple[int, int, int, int]]:
        """Return the parts of B: the block, its first column and columns there, and its column in the stage.

        Each block of a pair holds half of B's columns.
        """
        descriptor, blocks = self.descriptor, self.form.product.cta_group
        parts = len({region.column for region in self._regions})
        if blocks == 2 and parts == 1:
            return [(block, 0, descriptor.n // 2, block * (descriptor.n // 2)) for block in range(2)]
        size = descriptor.n // parts
        if blocks == 2:
            return [(block, 0, size, block * padded) for block in range(2)]
        return [(0, part * size, size, part * padded) for part in range(parts)]

    def record(self) -> Prepared:
        """Return the record that the compiled code reads; what it refers to is kept with it."""
        descriptor, code, product = self.descriptor, self.code, self.form.product
        memory = zeroed_bytes(ProductRecord.BYTES)
        words = memory.view(np.int64)
        program = code.program(self.model)
        keep: list[object] = [memory, program]
        padded = self.region_columns + -self.region_columns % self.strip
        parts = sorted({region.column for region in self._regions})
        rows = block_rows(descriptor.m, product.cta_group)
        a, b = STORAGE[code.a], STORAGE[code.b]
        groups = {"a": _grid(rows, code.packed_k, a, code.a_major)}
        values = {
            ProductRecord.function: program.place("product"),
            ProductRecord.blocks: product.cta_group,
            ProductRecord.shifts_a: int(self.form.shifts_a),
            ProductRecord.a_groups: groups["a"][0],
            ProductRecord.a_pieces: groups["a"][1],
            ProductRecord.a_sign: descriptor.negate_a << (self.model.a.bits - 1),
            ProductRecord.b_sign: descriptor.negate_b << (self.model.b.bits - 1),
            ProductRecord.columns: padded * len(parts),
            ProductRecord.strip: self.strip,
            ProductRecord.d_columns: self.region_columns,
            ProductRecord.scattered: int(len(self._regions) > 1 and self._regions[0].rows == 16),
            ProductRecord.region_count: len(self._regions),
        }
        if self.model.a.bits > 16:  # tf32 lies in words of 32 bits
            values |= {
                ProductRecord.a_sign: descriptor.negate_a << 31,
                ProductRecord.b_sign: descriptor.negate_b << 31,
            }
        for number, region in enumerate(self._regions):
            start = ProductRecord.regions + number * RegionRow.BYTES
            column = parts.index(region.column) * padded
            for offset, value in enumerate(
                (region.lane, region.row, region.rows, column, region.columns, padded)
            ):
                values[start + 8 * offset] = value
        runs = self._runs(padded)
        values[ProductRecord.run_count] = len(runs)
        for number, (block, first, size, column) in enumerate(runs):
            lines = _grid(size, code.k, b, code.b_major)
            begin = (first // 8, 0) if code.b_major == "K" else (0, first // b.elements)
            row = (block, begin[0], lines[0], begin[1], lines[1], column)
            for offset, value in enumerate(row):
                values[ProductRecord.runs + number * RunRow.BYTES + 8 * offset] = value
        values |= self._engine(keep) | self._scales(keep) | self._metadata(keep)
        for offset, value in values.items():
            words[offset // 8] = value
        return Prepared(address(memory), keep)

    def _engine(self, keep: list[object]) -> dict[int, int]:
        """Return the functions of `arith`, and the blocks of K for them."""
        from lanewise.arith import fused_engine, plain_engine

        columns = self.region_columns
        if self.fused:
            plan, program = fused_engine.program_for(self.model, columns)
            keep.append(program)
            return {
                ProductRecord.pack_b: program.place("pack_b"),
                ProductRecord.sums: program.place("rows"),
                ProductRecord.k_blocks: self.descriptor.k // plan.length,
            }
        program = plain_engine.program_for(self.model, columns)
        keep.append(program)
        return {ProductRecord.sums: program.place("items"), ProductRecord.k_blocks: 1}

    def _scales(self, keep: list[object]) -> dict[int, int]:
        """Return the facts of scale factors, with a table of exponents and one of significands."""
        fmt = self.model.scale
        if fmt is None:
            return {}
        words = np.arange(256).astype(fmt.word_dtype)[None, :]
        both = split_scales(fmt, fmt.from_bits(words), 0)
        assert both is not None
        tables = np.concatenate([both[0][0].view(np.uint8), both[1][0].view(np.uint8)])
        keep.append(tables)
        descriptor, product = self.descriptor, self.form.product
        factors = product.factors(descriptor.k)
        rows, columns = block_rows(descriptor.m, product.cta_group), self.region_columns
        a, b = descriptor.scale_a_id, descriptor.scale_b_id
        return {
            ProductRecord.factors: factors,
            ProductRecord.a_byte: a,
            ProductRecord.b_byte: b,
            ProductRecord.a_further: 4 * further_columns(rows),
            ProductRecord.b_further: 4 * further_columns(columns),
            ProductRecord.a_factor_columns: factor_columns(rows, factors, a),
            ProductRecord.b_factor_columns: factor_columns(columns, factors, b),
            ProductRecord.tables: address(tables),
        }

    def _metadata(self, keep: list[object]) -> dict[int, int]:
        """Return the facts of a sparse A: where the codes of each row lie."""
        bits = self.code.element_bits
        if not bits:
            return {}
        lanes = {
            region.row + i: region.lane + i for region in reversed(self._regions) for i in range(region.rows)
        }
        places: AnyArray = np.zeros((len(lanes), self.code.k // METADATA[bits].group), np.uint32)
        for row, lane in lanes.items():
            for number in range(places.shape[1]):
                there, column, bit = metadata_place(lane, number, bits)
                places[row, number] = (there * LANE_BYTES + column * 4) << 5 | bit
        keep.append(places)
        selector = self.descriptor.sparsity_selector
        return {ProductRecord.selector: selector, ProductRecord.places: address(places)}


@dataclass(frozen=True)
class Prepared:
    """The address of a record, and all that has to stay in memory for it."""

    address: int
    keep: list[object]


def _grid(rows: int, k: int, storage: Storage, major: str) -> tuple[int, int]:
    """Return the groups of eight lines of a matrix, and the pieces of a line."""
    lines, elements = (rows, k) if major == "K" else (k, rows)
    return lines // 8, -(-elements // storage.elements)


@cache
def prepared(form: int, descriptor: int) -> Prepared:
    """Return the product of a form (as a number) and an instruction descriptor, ready to be called."""
    statement = unpacked(form)
    return Tcgen05Product(statement, checked_descriptor(statement, descriptor)).record()


# the code ---------------------------------------------------------------------------------------------------


class _Writer:
    """Writes `product(operation, record, stage)`."""

    def __init__(self, module: ir.Module, how: Code, model: Model) -> None:
        self.module, self.how, self.model = module, how, model
        self.a, self.b = STORAGE[how.a], STORAGE[how.b]
        turned = how.a_major == "MN"
        if how.a_in_tensor_memory:
            self.rows_of_a = operands.tensor_rows(module, "a_rows", self.a, how.packed_k)
        else:
            self.gather_a = operands.gather(module, "gather_a", self.a, how.a_major, turned, how.is_long)
        self.gather_b = operands.gather(
            module, "gather_b", self.b, how.b_major, how.b_major == "K", how.is_long
        )
        self.sums_in = operands.sums_in(module, "sums_in", how.accumulator)
        self.sums_out = operands.sums_out(module, "sums_out", how.accumulator)
        if how.sparse:
            layout = METADATA[how.element_bits]
            run = 2 if how.element_bits == 4 else 1
            spread = Spread(layout.selected, run, layout.group, how.k // layout.group)
            self.spread = operands.spread(module, "spread", spread, self._element)
        if how.scaled:
            self.factors = operands.factors(module, "factors")
        self.code = FunctionCode(module, "product", ("operation", "record", "stage"), ir.WORD, "")
        self.operation = Record(self.code, self.code["operation"], AsyncOperation)
        self.record = self.code.record("record")
        self.at = {name: self.code["stage"] + offset for name, offset in STAGE.items()}

    @property
    def _element(self) -> Type:
        """The type of elements as the sums take them, where they are converted."""
        return f32 if self.how.fused else i16

    def _operand(self, number: int) -> Value:
        return operand_of(self.operation, number)

    def _number(self, field: int) -> Value:
        return self.record.get(field)

    def _run(self, function: ir.Function, *values: Value | int) -> None:
        """Write a call of a function of `tcgen05_operands.py`, after which the launch stops if it says so."""
        self.code.invoke_or_stop(function, self.operation.address, *values)

    def _fault(self, wrong: Value, why: Wrong, number: Value) -> None:
        with self.code.when(wrong):
            fault_in(self.code, self.operation, FaultKind.TENSOR_PRODUCT, number, int(why))

    def write(self) -> None:
        """Write the whole function."""
        code, how = self.code, self.how
        self.first = self.operation.at(AsyncOperation.block)
        self._check_pair()
        self._check_descriptors()
        self._prepare_b()
        with code.loop(self._number(ProductRecord.blocks)) as number:
            block = self._block(number)
            self._check_columns(block)
            if not how.a_in_tensor_memory:
                self._gather_a(block)
            with code.loop(self._number(ProductRecord.region_count)) as region_number:
                offset = region_number * RegionRow.BYTES + ProductRecord.regions
                region = Record(code, self.record.address + offset)
                self._region(block, number, region)
        code.give(0)

    # checks -------------------------------------------------------------------------------------------------

    def _check_pair(self) -> None:
        code = self.code
        with code.when(self._number(ProductRecord.blocks).equals(2)):
            self._fault(~is_paired(self.first), Wrong.NO_PAIR, code.number(0))
            rank = self.first.get(BlockRecord.rank)
            self._fault((rank & 1).differs(0), Wrong.ODD_RANK, rank)
            there = other_row(code, self.first).get(MemberRow.bytes)
            self._fault(there.equals(0), Wrong.PARTNER_EXITED, code.number(0))

    def _check_descriptors(self) -> None:
        """Stop unless the matrix descriptors are tcgen05's; the sentence finds out what is wrong."""
        matrices = ((A, self.a, self.how.a_major), (B, self.b, self.how.b_major))
        for number, storage, major in matrices[1:] if self.how.a_in_tensor_memory else matrices:
            descriptor = self._operand(number)
            version = (descriptor >> 46) & 7
            mode = (descriptor >> 61) & 7
            known = (self.code.number(0b0101_0111) >> mode) & 1
            is_absolute = (descriptor >> 52) & 1
            base = (descriptor >> 49) & 7
            other = (descriptor >> 53) & 0xFF
            wrong = version.differs(1) | known.equals(0) | other.differs(0)
            wrong = wrong | (is_absolute.differs(0) & (mode.differs(2) | base.differs(0)))
            self._fault(wrong, Wrong.MATRIX_DESCRIPTOR, descriptor)
            if not self.how.is_long:
                self._fault(is_absolute.differs(0), Wrong.ABSOLUTE_LEADING, descriptor)
            if major == "MN" and storage.bits == 32:
                self._fault(mode.differs(1), Wrong.WIDE_SWIZZLE, mode)
            else:
                self._fault(mode.equals(1), Wrong.OTHER_SWIZZLE, mode)

    def _check_columns(self, block: Record) -> None:
        """Stop unless everything in tensor memory lies in allocated columns."""
        code = self.code
        lane, column = lane_and_column(self._operand(D))
        half = self._number(ProductRecord.scattered) * 16
        self._fault(lane.differs(0) & (lane.differs(half) | half.equals(0)), Wrong.D_LANE, lane)
        checks = [(D, self._number(ProductRecord.d_columns), Wrong.D_COLUMNS)]
        if self.how.a_in_tensor_memory:
            a_lane, _ = lane_and_column(self._operand(A))
            self._fault(a_lane.differs(lane), Wrong.A_LANE, a_lane)
            bits = self.how.packed_k * (4 if self.how.a == "b4" else self.a.word.bits)
            checks.append((A, code.number(bits // 32), Wrong.A_COLUMNS))
        if self.how.scaled:
            fields = (ProductRecord.a_factor_columns, ProductRecord.b_factor_columns)
            counts = [self._number(field) for field in fields]
            checks += [
                (number, count, Wrong.SCALE_COLUMNS)
                for number, count in zip((SCALE_A, SCALE_B), counts, strict=True)
            ]
        if self.how.sparse:
            there, _ = lane_and_column(self._operand(METADATA_ADDRESS))
            self._fault(there.differs(lane), Wrong.METADATA_LANE, there)
            count = self._number(ProductRecord.selector) + METADATA[self.how.element_bits].columns
            checks.append((METADATA_ADDRESS, count, Wrong.METADATA_COLUMNS))
        for number, count, why in checks:
            _, column = lane_and_column(self._operand(number))
            missing = missing_column(code, block, column)
            self._fault(~columns_are_allocated(code, block, column, count), why, missing)

    # matrices -----------------------------------------------------------------------------------------------

    def _block(self, number: Value) -> Record:
        """Return the record of a block of the pair; the first one issues."""
        block = self.code.variable(self.first.address)
        block.set(self.first.address)
        with self.code.when(number.differs(0)):
            block.set(other_row(self.code, self.first).get(MemberRow.block))
        return Record(self.code, block.get(), BlockRecord)

    def _tensor(self, block: Record, number: int, lane: Value | int = 0) -> Value:
        """Return the host address of an operand in tensor memory, so many lanes further."""
        first, column = lane_and_column(self._operand(number))
        return tensor_word(block, first + lane, column)

    def _prepare_b(self) -> None:
        """Write B into the stage, then as the sums take it: decoded or widened, in strips."""
        code, how = self.code, self.how
        columns, strip = self._number(ProductRecord.columns), self._number(ProductRecord.strip)
        code.zero_bytes(self.at["b"], columns * (how.k * self.b.word.bits // 8))
        if how.ws:
            self._gather_shifted(columns)
            self._zero_columns()
        else:
            with code.loop(self._number(ProductRecord.run_count)) as number:
                self._gather_run(number, columns)
        strips = columns // strip
        if how.fused:
            given = self.at | {
                "ldb": columns, "blocks": self._number(ProductRecord.k_blocks), "last": strips,
            }  # fmt: skip
            call_kernel(code, self._number(ProductRecord.pack_b), fused_kernel.PACK_B, given)
            return
        signed = how.signed[1]
        raw, elements = pointer_to(code, self.at["b"], u8), pointer_to(code, self.at["b_elements"], i16)
        with code.loop(strips) as number, code.loop(how.k) as k, code.loop(strip >> 3) as part:
            value = raw.load(k * columns + number * strip + part * 8, 8)
            value = value.view(i8).to(i16) if signed else value.to(i16)
            elements.store(value, (number * how.k + k) * strip + part * 8)
        Record(code, self.at["zero"]).set(0, 0)

    def _gather_run(self, number: Value, columns: Value) -> None:
        """Write a part of B, by its number, into the stage."""
        run = Record(self.code, self.record.address + number * RunRow.BYTES + ProductRecord.runs)
        out = self.at["b"] + run.get(RunRow.column) * (self.b.word.bits // 8)
        block = self._block(run.get(RunRow.block))
        fields = (RunRow.first_group, RunRow.groups, RunRow.first_piece, RunRow.pieces)
        part = [run.get(field) for field in fields]
        sign = self._number(ProductRecord.b_sign)
        self._run(self.gather_b, block.address, self._operand(B), *part, out, columns, sign)

    def _gather_shifted(self, columns: Value) -> None:
        """Write B of .ws into the stage: from the column on that the zero-column mask shifts to."""
        code, how = self.code, self.how
        shift = (self._operand(ZERO_MASK) >> 56) & 63
        parts, size = self._number(ProductRecord.run_count), self._number(ProductRecord.d_columns)
        most = parts.equals(4).select(code.number(16), MOST_SHIFT)
        self._fault(shift > most, Wrong.COLUMN_SHIFT, shift)
        with code.when(shift.equals(0)), code.loop(parts) as number:
            self._gather_run(number, columns)
        with code.when(shift.differs(0)):
            # All columns and as many further ones go side by side, and from there to where parts begin.
            n = parts * size
            lanes = code.number(self.b.elements)
            last = n + shift
            groups, pieces = (last + 7) >> 3, code.number(-(-how.k // self.b.elements))
            if how.b_major == "MN":
                groups, pieces = code.number(how.k // 8), (last + lanes - 1) // lanes
            wide = code.number(_COLUMNS)
            whole = (0, groups, 0, pieces, self.at["dense"], wide, self._number(ProductRecord.b_sign))
            self._run(self.gather_b, self.first.address, self._operand(B), *whole)
            source = pointer_to(code, self.at["dense"], self.b.word)
            target = pointer_to(code, self.at["b"], self.b.word)
            with code.loop(how.k) as k, code.loop(parts) as part, code.loop(size >> 3) as number:
                value = source.load(k * wide + part * size + number * 8 + shift, 8)
                row = Record(code, self.record.address + part * RunRow.BYTES + ProductRecord.runs)
                target.store(value, k * columns + row.get(RunRow.column) + number * 8)

    def _zero_columns(self) -> None:
        """Write zeros into the columns of B that the mask of .ws names."""
        code = self.code
        mask = self._operand(ZERO_MASK)
        with code.when(((mask >> 39) & 1).differs(0)):
            columns = self._number(ProductRecord.columns)
            skipped, used = ((mask >> first & 255) + 1 for first in (40, 48))
            with code.loop(self._number(ProductRecord.region_count)) as number:
                region = Record(code, self.record.address + number * RegionRow.BYTES + ProductRecord.regions)
                start = (mask >> (number * 8)) & 255
                begins = (mask >> (number + 32)) & 1
                with code.loop(region.get(RegionRow.columns)) as column:
                    # Spans alternate, from some columns into the first of them on.
                    before = begins.equals(0).select(used, skipped)
                    place = (column + start) % (skipped + used)
                    in_first = place < before
                    zero = in_first.select(begins, 1 - begins)
                    with code.when(zero.differs(0)), code.loop(self.how.k) as k:
                        nothing = code.constant(self.b.word, 0)
                        at = k * columns + region.get(RegionRow.column) + column
                        pointer_to(code, self.at["b"], self.b.word).store(nothing, at)

    def _gather_a(self, block: Record) -> None:
        """Write a block's rows of A into the stage."""
        groups, pieces = (self._number(field) for field in (ProductRecord.a_groups, ProductRecord.a_pieces))
        part = (0, groups, 0, pieces, self.at["a"], self.how.packed_k, self._number(ProductRecord.a_sign))
        self._run(self.gather_a, block.address, self._operand(A), *part)

    def _rows_of_a(self, block: Record, region: Record) -> None:
        """Write the rows of A that lie in the lanes of a region into the stage."""
        lane, row = region.get(RegionRow.lane), region.get(RegionRow.row)
        out = self.at["a"] + row * (self.how.packed_k * self.a.word.bits // 8)
        rows, shifted = region.get(RegionRow.rows), self._number(ProductRecord.shifts_a)
        source, sign = self._tensor(block, A, lane), self._number(ProductRecord.a_sign)
        self._run(self.rows_of_a, source, rows, shifted, out, self.how.packed_k, sign)

    def _converted_a(self, block: Record, region: Record) -> tuple[Value, int]:
        """Return where A's rows of a region lie as the sums take them, and the bytes of a row.

        Raw words are good for sums of floats; integers are widened, and a sparse A is spread out.
        """
        code, how = self.code, self.how
        row, rows = region.get(RegionRow.row), region.get(RegionRow.rows)
        bits = self.a.word.bits
        raw = self.at["a"] + row * (how.packed_k * bits // 8)
        if how.fused and not how.sparse:
            return raw, how.packed_k * bits // 8
        size = self._element.bits // 8
        target = self.at["packed"] if how.sparse else self.at["dense"]
        source, out = pointer_to(code, raw, self.a.word), pointer_to(code, target, self._element)
        with code.loop((rows * how.packed_k) >> 3) as number:
            value = source.load(number * 8, 8)
            if how.fused:
                value = decode(value, self.model.a) + 0.0
            else:
                value = value.view(i8).to(i16) if how.signed[0] else value.to(i16)
            out.store(value, number * 8)
        if how.sparse:
            gap = code.constant(self._element.by(8), -0.0 if how.fused else 0)
            dense = pointer_to(code, self.at["dense"], self._element)
            with code.loop((rows * how.k) >> 3) as number:
                dense.store(gap, number * 8)
            metadata = self._tensor(block, METADATA_ADDRESS) + self._number(ProductRecord.selector) * 4
            codes = how.k // METADATA[how.element_bits].group
            places = self._number(ProductRecord.places) + row * (codes * 4)
            self._run(self.spread, metadata, places, rows, target, how.packed_k, self.at["dense"])
        return self.at["dense"], how.k * size

    def _factors(self, block: Record, region: Record) -> None:
        """Write the scale factors of a region's rows and columns into the stage."""
        partition = region.get(RegionRow.lane) & ~31
        per_row, columns = self._number(ProductRecord.factors), self._number(ProductRecord.columns)
        row, column = region.get(RegionRow.row), region.get(RegionRow.column)
        tables = self._number(ProductRecord.tables)
        last_row = row + region.get(RegionRow.rows)
        in_a = ProductRecord.a_byte, ProductRecord.a_further
        in_b = ProductRecord.b_byte, ProductRecord.b_further
        for number, where, count, steps, name in (
            (SCALE_A, in_a, last_row, (per_row, 1), "scale_a"),
            (SCALE_B, in_b, region.get(RegionRow.columns), (1, columns), "scale_b"),
        ):
            first, place = lane_and_column(self._operand(number) & 0x3FFF_FFFF)
            source = [tensor_word(block, partition + first, place), *map(self._number, where)]
            start = column * 4 if name == "scale_b" else self.code.number(0)
            targets = [self.at[name] + start, self.at[f"{name}_sig"] + start]
            self._run(self.factors, *source, count, per_row, *steps, *targets, tables)

    # sums ---------------------------------------------------------------------------------------------------

    def _region(self, block: Record, block_number: Value, region: Record) -> None:
        """Write the sums of a region, some rows after the others."""
        code, how = self.code, self.how
        if how.a_in_tensor_memory:
            self._rows_of_a(block, region)
        a, row_bytes = self._converted_a(block, region)
        if how.scaled:
            self._factors(block, region)
        rows = region.get(RegionRow.rows)
        together = (rows < ROWS_TOGETHER).select(rows, ROWS_TOGETHER)
        lane, columns = region.get(RegionRow.lane), region.get(RegionRow.columns)
        padded = region.get(RegionRow.padded)
        exponent = (127 - self._operand(SCALE_D)) << 23
        mask = self.operation.address + (AsyncOperation.tensor_operands + 8 * MASK) + block_number * 16
        first_lane, _ = lane_and_column(self._operand(D))
        with code.loop(rows // together) as number:
            first = number * together
            at = self._tensor(block, D, lane + first)
            moved = [at, together, columns, self.at["total"], padded]
            self._run(self.sums_in, *moved, self._operand(ADDS), exponent)
            self._sum(a + first * row_bytes, region, first, together)
            self._run(self.sums_out, *moved, mask, first_lane + lane + first)

    def _sum(self, a: Value, region: Record, first: Value, rows: Value) -> None:
        """Write the call of `arith`: what lies there as C becomes D."""
        code, how, at = self.code, self.how, self.at
        padded, column = region.get(RegionRow.padded), region.get(RegionRow.column)
        strips = padded // self._number(ProductRecord.strip)
        given = at | {"a": a, "sum": at["total"], "rows": rows, "strips": strips}
        if not how.fused:
            given |= dict.fromkeys(("a_offsets", "b_offsets", "sum_offsets"), at["zero"])
            given |= {name: code.number(1) for name in ("last_item", "chunks")}
            given |= {"b": at["b_elements"] + column * (how.k * 2), "chunk": code.number(how.k)}
            call_kernel(code, self._number(ProductRecord.sums), plain_kernel.ITEMS, given)
            return
        blocks = self._number(ProductRecord.k_blocks)
        strip = column // self._number(ProductRecord.strip)
        given |= {
            "lda": code.number(how.k if how.sparse else how.packed_k),
            "b_val": at["b_val"] + column * (how.k * 4),
            "b_exp": at["b_exp"] + column * how.k,
            "b_flag": at["b_flag"] + strip * blocks,
            "ld_sum": padded,
            "blocks": blocks,
        }
        if how.scaled:
            per_row = self._number(ProductRecord.factors)
            skipped = (region.get(RegionRow.row) + first) * per_row * 4
            given |= {name: at[name] + skipped for name in ("scale_a", "scale_a_sig")}
            given |= {name: at[name] + column * 4 for name in ("scale_b", "scale_b_sig")}
            given |= {"scale_steps": per_row, "scale_columns": self._number(ProductRecord.columns)}
        call_kernel(code, self._number(ProductRecord.sums), fused_kernel.ROWS, given)
