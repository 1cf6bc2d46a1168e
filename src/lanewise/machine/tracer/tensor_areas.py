"""Which words of tensor memory a tcgen05 instruction reads and writes, for one execution of it.

The layouts are those of `isa/tensor_memory`; the numbers are the operands that it was executed with.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lanewise.isa.asynchronous.descriptor import InstructionDescriptor
from lanewise.isa.tensor_memory import copy_shapes
from lanewise.isa.tensor_memory.accumulators import METADATA, PARTITION, Region, block_rows, regions
from lanewise.isa.tensor_memory.load_shapes import LoadShape
from lanewise.isa.tensor_memory.scale_factors import factor_place
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.tcgen05_statement import Form, checked_descriptor
from lanewise.machine.tensor_memory.copies import SHIFTED_COLUMNS, SHIFTED_ROWS
from lanewise.machine.tensor_memory_records import LANE_SHIFT, TENSOR_COLUMNS, TENSOR_LANES


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
