"""Tensor memory: which forms of tcgen05 a kernel may have, and matrices that warps load and store.

Allocation is in `blackwell/tmem.py`, the product in `tcgen05.py`; where the accumulators of tcgen05.mma lie
is decided in `isa/tensor_memory/accumulators.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lanewise.errors import IllegalInstruction
from lanewise.formats import Format
from lanewise.isa.tensor_memory.accumulators import LANES, PARTITION, regions
from lanewise.lang.trace.builder import Address, Register, current
from lanewise.lang.trace.scalar import Scalar, pack_register, register_dtype, scalar, unpack_register
from lanewise.lang.trace.special_registers import lane_id, warp_id
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import dtype_name, register_kind, u32

#: The target of kernels that are traced for no arch.
_TARGET = "sm_100a"


def emit_tcgen05(text: str, *operands: object) -> None:
    """Emit a form of tcgen05, and note which targets have it."""
    require_tcgen05(text)
    current().emit(text, *operands)


def require_tcgen05(text: str) -> None:
    """Note that the kernel has a form of tcgen05; an error if the arch that is traced for lacks it."""
    from lanewise.isa.asynchronous import async_instruction  # the catalogue of what most kernels do not have

    builder, instruction = current(), async_instruction(text)
    try:
        arch = instruction.require(builder.arch or _TARGET)
    except IllegalInstruction as error:
        raise builder.error(f'{error}: launch or trace the kernel with arch="{_TARGET}"') from None
    builder.need_specific(text, arch, instruction.since)


def group_word(cta_group: object) -> str:
    """Return the word of an instruction of one block, or of a pair of blocks."""
    if isinstance(cta_group, bool) or cta_group not in (1, 2):
        raise current().error(
            f"cta_group is 1 (this block) or 2 (the pair of blocks of a cluster), not {describe(cta_group)}"
        )
    return f"cta_group::{cta_group}"


#: Registers of a thread that one load or store moves at most.
_MOST_REGISTERS = 128
#: Warps that reach all lanes together.
WARPS = LANES // PARTITION
#: Bits above which an address has the lane.
LANE_SHIFT = 16


class Spread(NamedTuple):
    """How the rows and columns of a matrix are spread over the lanes of tensor memory.

    A group of `lanes` lanes holds `rows` rows, each in a lane of its own; a matrix whose columns are cut into
    parts has the same rows again in the next group.
    """

    lanes: int
    rows: int
    columns: int
    parts: int = 1

    @classmethod
    def of(cls, m: int, n: int, cta_group: int, ws: bool, sparse: bool) -> Spread:
        """Return the spread of an accumulator of tcgen05.mma, as the catalogue has it."""
        areas = regions(m, n, cta_group, ws, sparse)
        first = areas[0]
        if first.columns < n:  # the same rows with other columns
            return cls(first.rows, first.rows, n, len(areas))
        return cls(LANES // len(areas), first.rows, n)

    @property
    def lane_columns(self) -> int:
        """The columns of the matrix that one lane holds."""
        return self.columns // self.parts

    def place(self, lane: Any, column: Any) -> tuple[Any, Any]:
        """Return (row, column) of the matrix that a lane holds in a column of tensor memory."""
        group, inner = lane // self.lanes, lane % self.lanes
        if self.parts > 1:
            return inner, group * self.lane_columns + column
        return (lane if self.lanes == self.rows else group * self.rows + inner), column


#: A row in each lane; `_replace` sets the columns.
ROWS_IN_ALL_LANES = Spread(LANES, LANES, 0)


class TmemMatrix(Node):
    """A matrix in tensor memory: `load(column, count)` and `store(column, values)` of this thread's row.

    Columns are counted as a lane has them; `element` of what was loaded says which ones of the matrix they
    are. `matrix[first:end]` is a part of it.
    """

    __slots__ = ("address", "dtype", "slot_bits", "spread")
    CHILDREN = ("address",)

    def __init__(self, address: Scalar, dtype: Format, spread: Spread, slot_bits: int = 32) -> None:
        self.address, self.dtype, self.spread, self.slot_bits = address, dtype, spread, slot_bits

    @property
    def columns(self) -> int:
        """The columns that a lane holds."""
        return self.spread.lane_columns

    def __getitem__(self, columns: object) -> TmemMatrix:
        if not isinstance(columns, slice) or columns.step not in (None, 1) or self.spread.parts > 1:
            raise current().error("a matrix with a row in each lane is cut by columns: matrix[first:end]")
        first, end, _ = columns.indices(self.columns)
        if (first * self.slot_bits) % 32 or end <= first:
            raise current().error(
                f"a part of {self} begins at a whole column of 32 bits and has one at least, not {columns}"
            )
        address = self.address + columns_u32(first * self.slot_bits // 32)
        return TmemMatrix(address, self.dtype, self.spread._replace(columns=end - first), self.slot_bits)

    def _compute(self, *_: object) -> Any:
        raise current().error(
            f"{self.description} is no number: row = matrix.load(column, count) loads elements of this "
            "thread's row, row[i] is one of them"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _compute
    __matmul__ = __rmatmul__ = __neg__ = __abs__ = __lt__ = __gt__ = __le__ = __ge__ = _compute

    def __iter__(self) -> Any:
        raise current().error(f"{self} is not iterated over: load a row, and iterate over that")

    def load(self, column: object = 0, count: int | None = None, *, wait: bool = True) -> TmemRow:
        """Return `count` neighbouring elements of this thread's row; all lanes of the warp call it.

        With wait=False it returns while they are on their way: lw.tcgen05.wait_load() before the first use.
        """
        count = self.columns if count is None else whole(count, "the elements of a load")
        registers, packs = self._registers(column, count, "load")
        results = [Register(register_kind(register_dtype(self.dtype))) for _ in range(registers)]
        text = f"tcgen05.ld.sync.aligned.32x32b.x{registers}{'.pack::16b' if packs else ''}.b32"
        emit_tcgen05(text, tuple(results), Address(self._warp_address(column).in_register))
        if wait:
            emit_tcgen05("tcgen05.wait::ld.sync.aligned")
        return TmemRow(self.dtype, results, 16 if packs else self.slot_bits, (self.spread, column))

    def store(self, column: object, values: object, *, wait: bool = True) -> None:
        """Store neighbouring elements of this thread's row; all lanes of the warp call it.

        With wait=False lw.tcgen05.wait_store() follows before anybody relies on them.
        """
        elements = list(values) if isinstance(values, TmemRow | tuple | list) else [values]
        held = [scalar(element, self.dtype, f"an element of {self}") for element in elements]
        registers, packs = self._registers(column, len(held), "store")
        per_register = len(held) // registers
        sources = [_joined(held[first : first + per_register]) for first in range(0, len(held), per_register)]
        text = f"tcgen05.st.sync.aligned.32x32b.x{registers}{'.unpack::16b' if packs else ''}.b32"
        emit_tcgen05(text, Address(self._warp_address(column).in_register), tuple(sources))
        if wait:
            emit_tcgen05("tcgen05.wait::st.sync.aligned")

    def _registers(self, column: object, count: int, verb: str) -> tuple[int, bool]:
        """Return the registers that so many elements take, and whether two columns go into one of them."""
        packs = self.slot_bits == 32 and self.dtype.bits == 16
        per_register = 2 if packs else 32 // self.slot_bits
        registers = count // per_register
        if count < per_register or count % per_register or registers & (registers - 1):
            raise current().error(
                f"a {verb} of {self} moves a power of two of elements, from {per_register} on; not {count}"
            )
        if registers > _MOST_REGISTERS:
            raise current().error(
                f"a {verb} of {self} moves {_MOST_REGISTERS * per_register} elements at most, not {count}: "
                "take parts of it one after the other"
            )
        if isinstance(column, int) and not 0 <= column <= self.columns - count:
            raise current().error(
                f"{self} has columns 0 to {self.columns - 1}; {column} to {column + count - 1} are asked for"
            )
        return registers, packs

    def _warp_address(self, column: Any) -> Scalar:
        """Return the address of the first lane that this warp reaches, at a column."""
        quarter = (warp_id() % WARPS).to(u32) * (PARTITION << LANE_SHIFT)
        step = self.slot_bits
        further = (
            columns_u32(column * step // 32) if isinstance(column, int) else columns_u32(column) * step // 32
        )
        address: Scalar = self.address + quarter + further
        return address

    def __str__(self) -> str:
        spread = self.spread
        rows = spread.rows if spread.parts > 1 else spread.rows * LANES // spread.lanes
        return f"the {rows}×{spread.columns} matrix of {dtype_name(self.dtype)} in tensor memory"


class TmemRow(Node):
    """Elements of one row that a thread has loaded: `row[i]`, `len(row)`, `row.element(i)`."""

    __slots__ = ("dtype", "place", "registers", "slot_bits")

    def __init__(
        self, dtype: Format, registers: list[Register], slot_bits: int, place: tuple[Spread, Any]
    ) -> None:
        self.dtype, self.registers, self.slot_bits, self.place = dtype, registers, slot_bits, place

    def children(self) -> list[Any]:
        dtype = register_dtype(self.dtype)
        return [Scalar(dtype, register) for register in self.registers]

    def with_children(self, children: list[Any], fresh: bool = False) -> TmemRow:
        return TmemRow(self.dtype, [child.in_register for child in children], self.slot_bits, self.place)

    def __len__(self) -> int:
        return len(self.registers) * 32 // self.slot_bits

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        if isinstance(index, bool) or not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(
                f"a row of tensor memory has elements 0 to {len(self) - 1}, by a Python integer; not "
                f"{describe(index)}"
            )
        register, slot = divmod(index % len(self), 32 // self.slot_bits)
        held = self.registers[register]
        if self.slot_bits == 32:
            return Scalar(self.dtype, held)
        return unpack_register(held, self.dtype, self.slot_bits)[slot]

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def element(self, index: int) -> tuple[Any, Any]:
        """Return (row, column) of an element in the matrix that it was loaded from."""
        spread, column = self.place
        return spread.place(warp_id() % WARPS * PARTITION + lane_id(), column + index)

    def __str__(self) -> str:
        return f"{len(self)} elements of {dtype_name(self.dtype)} from tensor memory"


def _joined(elements: list[Scalar]) -> Register | Any:
    """Return the register of some neighbouring elements."""
    if len(elements) == 1:
        return elements[0].in_register
    return pack_register(elements, 32 // len(elements))


def columns_u32(value: object) -> Any:
    """Return a number of columns as a u32, traced or not."""
    if isinstance(value, Scalar):
        return value.to(u32)
    return whole(value, "a column of tensor memory")


def whole(value: object, what: str) -> int:
    """Return a Python integer that is not negative; an error for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise current().error(f"{what}: a Python integer from 0 on, not {describe(value)}")
    return value
