"""What operations of tcgen05 have written, in the log of a traced launch.

Compiled code calls Python when an operation of a pipe has taken effect: a product, a copy, a shift, a store,
or a commit, which arrives at an mbarrier. There are few of them, and each writes many words. Which words an
execution reads and writes follows from the layouts of `isa/tensor_memory` and from its operands.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.isa.asynchronous.descriptor import InstructionDescriptor
from lanewise.isa.tensor_memory import copy_shapes
from lanewise.isa.tensor_memory.accumulators import (
    METADATA,
    PARTITION,
    Region,
    block_rows,
    factor_place,
    regions,
)
from lanewise.isa.tensor_memory.load_shapes import LoadShape
from lanewise.jit.host_memory import Bytes, as_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, MemberRow
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.tensor_core import tcgen05_product as product
from lanewise.machine.tensor_core.tcgen05_statement import Form, checked_descriptor, unpacked
from lanewise.machine.tensor_memory import copies, loads_and_stores
from lanewise.machine.tensor_memory.copies import SHIFTED_COLUMNS, SHIFTED_ROWS
from lanewise.machine.tensor_memory.loads_and_stores import Access
from lanewise.machine.tensor_memory_records import (
    LANE_BYTES,
    LANE_SHIFT,
    TENSOR_BYTES,
    TENSOR_COLUMNS,
    TENSOR_LANES,
)
from lanewise.machine.tracer.records import (
    ASYNC_WRITE_POINT,
    ENTRY,
    PAYLOAD_ALIGNMENT,
    AsyncRun,
    AsyncWrite,
    EntryState,
    TracerRecord,
)


class Area(NamedTuple):
    """Words of a block's tensor memory: neighbouring columns of some lanes."""

    lanes: tuple[int, ...]
    column: int
    columns: int


class TensorAccess(NamedTuple):
    """What an instruction does to the tensor memory of a block: an operand that it reads or writes."""

    kind: str
    operand: str
    areas: tuple[Area, ...]
    #: Whether it is the memory of the other block of the pair.
    in_other: bool = False

    @property
    def writes(self) -> bool:
        """Whether the words are written."""
        return "write" in self.kind

    @property
    def words(self) -> int:
        """How many words of 32 bits there are."""
        return sum(len(area.lanes) * area.columns for area in self.areas)


class ProductNumbers(NamedTuple):
    """The operands of a tcgen05.mma as numbers: addresses of tensor memory, the descriptor, flags."""

    form: Form
    descriptor: int
    d: int
    a: int
    scale_a: int = 0
    scale_b: int = 0
    metadata: int = 0
    adds: bool = True
    #: Lanes that are not written, as bits: of the even block, and of the odd one.
    disabled: tuple[int, int] = (0, 0)

    @property
    def decoded(self) -> InstructionDescriptor:
        """The instruction descriptor by its fields."""
        return checked_descriptor(self.form, self.descriptor)

    @property
    def a_columns(self) -> int:
        """The columns of A in tensor memory: 32 bytes of K, or the 48 of K = 96."""
        return 12 if self.decoded.k == self.form.product.kind.long_k else 8

    @property
    def regions(self) -> tuple[Region, ...]:
        """How the rows and columns of D in a block lie in lanes and columns."""
        descriptor, product = self.decoded, self.form.product
        return regions(descriptor.m, descriptor.n, product.cta_group, product.ws, product.sparse)


def lane_and_column(address: int) -> tuple[int, int]:
    """Return the lane and the column of an address of tensor memory.

    >>> lane_and_column(0x200040)
    (32, 64)
    """
    return address >> LANE_SHIFT & 0xFFFF, address & 0xFFFF


def product_accesses(numbers: ProductNumbers) -> list[TensorAccess]:
    """Return what a tcgen05.mma reads and writes, in both blocks if it is one of a pair."""
    accesses: list[TensorAccess] = []
    for block in range(numbers.form.product.cta_group):
        other = block == 1
        if numbers.form.a_in_tensor_memory:
            accesses.append(TensorAccess("read", "A", _rows_of(numbers, numbers.a, numbers.a_columns), other))
        accesses += [access._replace(in_other=other) for access in _side_inputs(numbers)]
        lane, column = lane_and_column(numbers.d)
        written = tuple(
            Area(
                tuple(n for n in _lanes(lane, region) if not numbers.disabled[block] >> n & 1),
                column,
                region.columns,
            )
            for region in numbers.regions
        )
        accesses.append(TensorAccess("read and write" if numbers.adds else "write", "D", written, other))
    return accesses


def _lanes(first: int, region: Region) -> tuple[int, ...]:
    """Return the lanes of a region of D whose address begins at a lane: 0, or 16 where rows are scattered."""
    return tuple(n for n in range(first + region.lane, first + region.lane + region.rows) if n < TENSOR_LANES)


def _rows_of(numbers: ProductNumbers, address: int, columns: int) -> tuple[Area, ...]:
    """Return the words of a matrix whose rows lie in D's lanes."""
    lane, column = lane_and_column(address)
    return tuple(Area(_lanes(lane, region), column, columns) for region in numbers.regions)


def _side_inputs(numbers: ProductNumbers) -> list[TensorAccess]:
    """Return the metadata of a sparse A, and the scale factors, that a block reads."""
    accesses, product = [], numbers.form.product
    decoded = numbers.decoded
    if product.sparse:
        layout = METADATA[4 if product.kind.narrow else max(8, 8 * 32 // (decoded.k // 2))]
        address = numbers.metadata + (decoded.sparsity_selector if layout.paired else 0)
        accesses.append(TensorAccess("read", "E", _rows_of(numbers, address, layout.columns)))
    if product.block:
        rows = block_rows(decoded.m, product.cta_group)
        factors = range(product.factors(decoded.k))
        for name, address, first, count in (
            ("scale A", numbers.scale_a, decoded.scale_a_id, rows),
            ("scale B", numbers.scale_b, decoded.scale_b_id, 0),
        ):
            column = lane_and_column(address)[1]
            areas: dict[int, set[int]] = {}
            for region in numbers.regions:
                for lane in range(region.lane, region.lane + region.rows, PARTITION):
                    mine = count or region.columns
                    for row, factor in ((row, factor) for row in range(mine) for factor in factors):
                        place = factor_place(row, factor, first, lane, mine)
                        areas.setdefault(place.column, set()).add(place.lane)
            spread = tuple(Area(tuple(sorted(lanes)), column + n, 1) for n, lanes in areas.items())
            accesses.append(TensorAccess("read", name, spread))
    return accesses


def copy_accesses(op: Op, address: int) -> list[TensorAccess]:
    """Return what a tcgen05.cp writes."""
    shape = next(
        shape for name, shape in copy_shapes.SHAPES.items() if set(name.split(".")) <= {*op.modifiers}
    )
    lane, column = lane_and_column(address)
    lanes = sorted(lane + further for row in range(shape.rows) for further in shape.lanes_of(row))
    return _both(op, [TensorAccess("write", "D", (Area(tuple(lanes), column, shape.columns),))])


def shift_accesses(op: Op, address: int) -> list[TensorAccess]:
    """Return what a tcgen05.shift reads and writes: of 32 lanes the last one keeps its words."""
    lane, column = lane_and_column(address)
    read = Area(tuple(range(lane + 1, lane + SHIFTED_ROWS)), column, SHIFTED_COLUMNS)
    written = Area(tuple(range(lane, lane + SHIFTED_ROWS - 1)), column, SHIFTED_COLUMNS)
    return _both(op, [TensorAccess("read", "rows", (read,)), TensorAccess("write", "rows", (written,))])


def _both(op: Op, accesses: list[TensorAccess]) -> list[TensorAccess]:
    """Return accesses of a block, and those of the other one if the instruction is one of a pair."""
    pair = [access._replace(in_other=True) for access in accesses] if op.has("cta_group::2") else []
    return accesses + pair


def moved_area(
    shape: LoadShape, num: int, packed: bool, half_split: int, lane: int, column: int
) -> TensorAccess:
    """Return the words that a tcgen05.ld or st of a warp reaches from a lane and column on."""
    lanes, columns = tuple(range(lane, lane + shape.lanes)), shape.columns_of(num, packed)
    starts: Sequence[int] = [column + half * half_split for half in range(shape.halves)]
    return TensorAccess("move", "tmem", tuple(Area(lanes, start, columns) for start in starts))


def inside(access: TensorAccess) -> TensorAccess:
    """Return an access without words that do not exist, which only an instruction that faults names."""
    areas = []
    for lanes, column, columns in access.areas:
        first, last = max(column, 0), min(column + columns, TENSOR_COLUMNS)
        kept = tuple(lane for lane in lanes if 0 <= lane < TENSOR_LANES)
        if kept and last > first:
            areas.append(Area(kept, first, last - first))
    return access._replace(areas=tuple(areas))


Words = npt.NDArray[np.int64]


class TensorLog:
    """Writes entries of the log for operations of tcgen05; `address` is what compiled code calls."""

    def __init__(self, program: Program, record: Words, memory: Bytes, blocks_logged: Bytes) -> None:
        self.program, self.record, self.memory, self.blocks_logged = program, record, memory, blocks_logged
        #: What went wrong in Python while compiled code ran.
        self.failures: list[BaseException] = []
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(self._guarded)

    @property
    def address(self) -> int:
        """The address of the function that compiled code calls with an operation."""
        return int(ctypes.cast(self._callback, ctypes.c_void_p).value or 0)

    def _guarded(self, operation: int) -> int:
        try:
            self._log(as_bytes(operation, AsyncOperation.BYTES).view(np.int64))
        except BaseException as error:  # nothing may escape into compiled code
            self.failures.append(error)
        return 0

    def _log(self, operation: Words) -> None:
        """Log an operation: an entry for each block whose tensor memory it wrote, or for its mbarrier."""
        op = self.program.sites[int(operation[AsyncOperation.site // 8])]
        own = _block(int(operation[AsyncOperation.block // 8]))
        accesses = written(op, operation, own)
        for in_other in (False, True):
            mine = [access for access in accesses if access.in_other == in_other]
            if mine:
                self._entry(operation, _other(own) if in_other else own, mine)
        if not accesses:
            self._entry(operation, own, [])

    def _entry(self, operation: Words, block: Words, accesses: list[TensorAccess]) -> None:
        """Write an entry with the words of tensor memory that were written, a run for each lane."""
        linear = int(block[BlockRecord.linear // 8])
        if not self.blocks_logged[linear] or self.record[TracerRecord.full // 8]:
            return
        tensor = as_bytes(int(block[BlockRecord.tensor_memory // 8]), TENSOR_BYTES)
        lines = tensor.reshape(TENSOR_LANES, LANE_BYTES)
        runs, content = [], []
        for area in (area for access in accesses for area in access.areas):
            first, last = 4 * area.column, 4 * (area.column + area.columns)
            content.append(lines[list(area.lanes), first:last].reshape(-1))
            targets = abi.TENSOR_WINDOW + np.asarray(area.lanes, np.int64) * LANE_BYTES + first
            runs.append(np.stack([targets, 0 * targets, 0 * targets + last - first], axis=1))
        header, words = self._header(operation, sum(map(len, runs))), [run.view(np.uint8) for run in runs]
        parts = [header.view(np.uint8), *(word.reshape(-1) for word in words), *content]
        self._append(np.concatenate(parts), linear)

    def _header(self, operation: Words, runs: int) -> Words:
        """Return the AsyncWrite of an operation with so many runs."""
        header = np.zeros(AsyncWrite.BYTES // 8, np.int64)
        issuer = int(operation[AsyncOperation.issue_entry // 8])
        base, barrier = int(self.record[TracerRecord.base // 8]), int(operation[AsyncOperation.barrier // 8])
        fields: dict[int, int] = {
            AsyncWrite.issuer: issuer - base if issuer else -1,
            AsyncWrite.reader: -1,
            AsyncWrite.lane: int(operation[AsyncOperation.lane // 8]),
            AsyncWrite.runs: runs,
            AsyncWrite.bytes: AsyncWrite.BYTES + runs * AsyncRun.BYTES,
        }
        if barrier:
            shared = int(operation[AsyncOperation.barrier_address // 8]) & abi.OFFSET_MASK
            owner = _block(int(operation[AsyncOperation.barrier_block // 8]))
            fields |= {
                AsyncWrite.barrier: shared + abi.SHARED_WINDOW,
                AsyncWrite.barrier_block: int(owner[BlockRecord.linear // 8]),
                AsyncWrite.barrier_word: int(as_bytes(barrier, 8).view(np.int64)[0]),
            }
        for offset, value in fields.items():
            header[offset // 8] = value
        return header

    def _append(self, payload: Bytes, block: int) -> None:
        """Write an entry of the block with its payload, as compiled code does for other operations."""
        record, base = self.record, int(self.record[TracerRecord.base // 8])
        entry = int(record[TracerRecord.next_entry // 8]) - base
        size = -(-len(payload) // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT
        start = int(record[TracerRecord.last_payload // 8]) - base - size
        if start < entry + ENTRY.itemsize:
            record[TracerRecord.full // 8] = 1
            return
        self.memory[start : start + len(payload)] = payload
        during = int(record[TracerRecord.current // 8] != 0)
        header: Any = self.memory[entry : entry + ENTRY.itemsize].view(ENTRY)
        header[0] = (start, block, ASYNC_WRITE_POINT, -1, 0, 0, EntryState.COMPLETE, during)
        record[TracerRecord.next_entry // 8] = base + entry + ENTRY.itemsize
        record[TracerRecord.last_payload // 8] = base + start


def written(op: Op, operation: Words, block: Words) -> list[TensorAccess]:
    """Return the words of tensor memory that an operation has written."""

    def operand(number: int) -> int:
        return int(operation[AsyncOperation.tensor_operands // 8 + number])

    if op.record.multiplies:
        masks = [operand(product.MASK + n) & 0xFFFF_FFFF_FFFF_FFFF for n in range(4)]
        numbers = ProductNumbers(
            unpacked(operand(product.FORM)), operand(product.DESCRIPTOR), operand(product.D), 0,
            disabled=(masks[0] | masks[1] << 64, masks[2] | masks[3] << 64),
        )  # fmt: skip
        accesses = product_accesses(numbers)
    elif op.has("st"):
        access = Access.of(op)
        first = operand(loads_and_stores.START) - int(block[BlockRecord.tensor_memory // 8])
        lane, rest = divmod(first, LANE_BYTES)
        shape = access.form.shape
        num = len(access.registers) // shape.registers.size()
        moved = moved_area(shape, num, access.form.packed, access.half_split, lane, rest // 4)
        accesses = [moved._replace(kind="write")]
    elif op.has("cp"):
        accesses = copy_accesses(op, operand(copies.ADDRESS))
    elif op.has("shift"):
        accesses = shift_accesses(op, operand(copies.ADDRESS))
    else:
        accesses = []
    return [access for access in accesses if access.writes]


def _block(address: int) -> Words:
    """Return the record of a block."""
    return as_bytes(address, BlockRecord.BYTES).view(np.int64)


def _other(block: Words) -> Words:
    """Return the record of the other block of a pair."""
    row = int(block[BlockRecord.members // 8]) + (int(block[BlockRecord.rank // 8]) ^ 1) * MemberRow.BYTES
    return _block(int(as_bytes(row, MemberRow.BYTES).view(np.int64)[MemberRow.block // 8]))
