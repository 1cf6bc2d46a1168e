"""`lw.tmem`: tensor memory, the 128 lanes × 512 columns of 32 bits in which Blackwell's Tensor Core adds up.

A block allocates whole columns, and frees them before it ends. A warp loads and stores 32 of the lanes: those
that begin at 32 times its number modulo 4. Addresses have the lane in the upper and the column in the lower
16 bits.
"""

from __future__ import annotations

from typing import Any

from lanewise.formats import Format, f32, s32
from lanewise.lang.blackwell.opcodes import emit_tcgen05, group_word, require_tcgen05
from lanewise.lang.hopper import cluster
from lanewise.lang.intrinsics.sync import syncthreads
from lanewise.lang.memory.array import shared
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.ir import Address, Label, NotPredicate, Register
from lanewise.lang.trace.packed_register import pack_register, register_dtype, unpack_register
from lanewise.lang.trace.pytrees import Node
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.special_registers import lane_id, warp_id
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import dtype_name, i32, register_kind, u32

__all__ = ["TensorMemory", "TmemMatrix", "TmemRow", "alloc"]

#: Lanes and columns of a block's tensor memory, and the fewest columns of an allocation.
LANES, COLUMNS, LEAST_COLUMNS = 128, 512, 32
#: Registers of a thread that one load or store moves at most.
_MOST_REGISTERS = 128
#: Bits above which an address has the lane.
_LANE_SHIFT = 16


class TensorMemory(Node):
    """Columns of tensor memory that the block has allocated: all 128 lanes of each.

    `matrix(dtype, columns)` is a part of it with a row in each lane.
    """

    __slots__ = ("address", "columns", "cta_group", "warp")

    def __init__(self, address: Scalar, columns: int, cta_group: int, warp: int) -> None:
        self.address, self.columns, self.cta_group, self.warp = address, columns, cta_group, warp

    def children(self) -> list[Any]:
        return [self.address]

    def with_children(self, children: list[Any], fresh: bool = False) -> TensorMemory:
        return TensorMemory(children[0], self.columns, self.cta_group, self.warp)

    def matrix(self, dtype: Format, columns: int, *, column: Any = 0, slot_bits: int = 32) -> TmemMatrix:
        """Return the matrix of 128 rows that begins at a column: one row in each lane.

        An element of an accumulator has a column of 32 bits for itself, also if it is f16. Elements of A are
        packed: slot_bits=16 puts two of 16 bits into a column.
        """
        if slot_bits not in (8, 16, 32) or dtype.bits > slot_bits:
            raise current().error(
                f"elements of {dtype_name(dtype)} lie in slots of {dtype.bits} to 32 bits, not {slot_bits}"
            )
        taken = _whole(columns, "the columns of a matrix") * slot_bits // 32
        first = column if isinstance(column, int) else 0
        if not 0 <= first or first + taken > self.columns:
            raise current().error(
                f"a matrix of {columns} columns of {dtype_name(dtype)} takes the columns {first} to "
                f"{first + taken - 1} of tensor memory, and {self.columns} are allocated"
            )
        return TmemMatrix(self.address + _u32(column), dtype, columns, slot_bits)

    def free(self) -> None:
        """Give the columns back: every thread calls it when its loads and stores are complete.

        All threads meet first, of a pair those of both blocks; then the warp that allocated them frees them.
        """
        _meet(self.cta_group)
        text = f"tcgen05.dealloc.{group_word(self.cta_group)}.sync.aligned.b32"
        with _OneWarp(self.warp):
            emit_tcgen05(text, self.address.in_register, str(self.columns))

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.columns} columns of tensor memory"


def alloc(columns: int, *, cta_group: int = 1, warp: int = 0, relinquish: bool = True) -> TensorMemory:
    """Allocate columns of tensor memory, a power of two from 32 to 512; every thread of the block calls it.

    One warp asks, and waits until so many are free; then all threads meet and know the address. With
    `relinquish` the block allocates nothing after it, so that another block of the same multiprocessor can.
    With cta_group=2 both blocks of the pair call it, and each gets as many columns at the same address.

    Inside a kernel: `memory = lw.tmem.alloc(256)`, and `memory.free()` before its end.
    """
    builder = current()
    if isinstance(columns, bool) or not isinstance(columns, int) or columns & (columns - 1) or not (
        LEAST_COLUMNS <= columns <= COLUMNS
    ):  # fmt: skip
        raise builder.error(
            f"lw.tmem.alloc takes a power of two from {LEAST_COLUMNS} to {COLUMNS} columns, not "
            f"{describe(columns)}"
        )
    if builder.in_loop:
        raise builder.error("lw.tmem.alloc stands outside of loops: allocate once, and use parts of it")
    group = group_word(cta_group)
    slot = shared(u32, 1)
    slot.named("tmem_address")
    address = Address(slot.pointer.base, slot.pointer.offset)
    with _OneWarp(_whole(warp, "the warp that allocates")):
        emit_tcgen05(f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32", address, str(columns))
        if relinquish:
            emit_tcgen05(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned")
    _meet(cta_group)
    found = Scalar(u32, builder.result("ld.shared.b32", "b32", address, hint="tmem"))
    return TensorMemory(found, columns, cta_group, warp)


class TmemMatrix(Node):
    """A matrix in tensor memory with a row in each lane: `load(column, count)` and `store(column, values)`.

    `matrix[column:]` begins at another column.
    """

    __slots__ = ("address", "columns", "dtype", "slot_bits")

    def __init__(self, address: Scalar, dtype: Format, columns: int, slot_bits: int = 32) -> None:
        self.address, self.dtype, self.columns, self.slot_bits = address, dtype, columns, slot_bits

    def children(self) -> list[Any]:
        return [self.address]

    def with_children(self, children: list[Any], fresh: bool = False) -> TmemMatrix:
        return TmemMatrix(children[0], self.dtype, self.columns, self.slot_bits)

    def same_kind(self, other: object) -> bool:
        mine = (self.dtype, self.columns, self.slot_bits)
        return isinstance(other, TmemMatrix) and mine == (other.dtype, other.columns, other.slot_bits)

    def __getitem__(self, columns: object) -> TmemMatrix:
        if not isinstance(columns, slice) or columns.step not in (None, 1):
            raise current().error("a matrix in tensor memory is cut by columns: matrix[first:end]")
        first, end, _ = columns.indices(self.columns)
        if (first * self.slot_bits) % 32 or end <= first:
            raise current().error(
                f"a part of {self} begins at a whole column of 32 bits and has one at least, not {columns}"
            )
        address = self.address + _u32(first * self.slot_bits // 32)
        return TmemMatrix(address, self.dtype, end - first, self.slot_bits)

    def load(self, column: Any = 0, count: int | None = None, *, wait: bool = True) -> TmemRow:
        """Return `count` neighbouring elements of this thread's row; all lanes of the warp call it.

        With wait=False it returns while they are on their way: lw.tcgen05.wait_load() before the first use.
        """
        builder = current()
        count = self.columns if count is None else _whole(count, "the elements of a load")
        registers, packs = self._registers(column, count, "load")
        results = [Register(register_kind(register_dtype(self.dtype))) for _ in range(registers)]
        text = f"tcgen05.ld.sync.aligned.32x32b.x{registers}{'.pack::16b' if packs else ''}.b32"
        emit_tcgen05(text, tuple(results), Address(self._warp_address(column).in_register))
        if wait:
            emit_tcgen05("tcgen05.wait::ld.sync.aligned")
        assert builder is current()
        return TmemRow(self.dtype, results, 16 if packs else self.slot_bits, column)

    def store(self, column: Any, values: Any, *, wait: bool = True) -> None:
        """Store neighbouring elements of this thread's row; all lanes of the warp call it.

        With wait=False lw.tcgen05.wait_store() follows before anybody relies on them.
        """
        builder = current()
        elements = list(values) if isinstance(values, TmemRow | tuple | list) else [values]
        held = [scalar(each, self.dtype, f"an element of {self}") for each in elements]
        registers, packs = self._registers(column, len(held), "store")
        per_register = len(held) // registers
        sources = [
            _joined(held[first : first + per_register]) for first in range(0, len(held), per_register)
        ]
        text = f"tcgen05.st.sync.aligned.32x32b.x{registers}{'.unpack::16b' if packs else ''}.b32"
        emit_tcgen05(text, Address(self._warp_address(column).in_register), tuple(sources))
        if wait:
            emit_tcgen05("tcgen05.wait::st.sync.aligned")
        assert builder is current()

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
        quarter = (warp_id() % 4).to(u32) << (_LANE_SHIFT + 5)
        step = self.slot_bits
        further = _u32(column * step // 32) if isinstance(column, int) else _u32(column) * step // 32
        found: Scalar = self.address + quarter + further
        return found

    @property
    def row(self) -> Scalar:
        """The row of this thread: 32 times its warp's number modulo 4, plus its lane."""
        found: Scalar = warp_id() % 4 * 32 + lane_id()
        return found

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"the {LANES}×{self.columns} matrix of {dtype_name(self.dtype)} in tensor memory"


class TmemRow(Node):
    """Elements of one row that a thread has loaded: `row[i]`, `len(row)`, `row.element(i)`."""

    __slots__ = ("column", "dtype", "registers", "slot_bits")

    def __init__(self, dtype: Format, registers: list[Register], slot_bits: int, column: Any) -> None:
        self.dtype, self.registers, self.slot_bits, self.column = dtype, registers, slot_bits, column

    def children(self) -> list[Any]:
        dtype = register_dtype(self.dtype)
        return [Scalar(dtype, each) for each in self.registers]

    def with_children(self, children: list[Any], fresh: bool = False) -> TmemRow:
        return TmemRow(self.dtype, [each.in_register for each in children], self.slot_bits, self.column)

    def __len__(self) -> int:
        return len(self.registers) * 32 // self.slot_bits

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
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

    def element(self, index: int) -> tuple[Scalar, Any]:
        """Return (row, column) of an element in the matrix that it was loaded from."""
        row: Scalar = warp_id() % 4 * 32 + lane_id()
        return row, self.column + index

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{len(self)} elements of {dtype_name(self.dtype)} from tensor memory"


class _OneWarp:
    """Code inside the `with` runs in one warp of the block; the others jump over it."""

    def __init__(self, warp: int) -> None:
        self.warp, self.after = warp, Label("other_warps")

    def __enter__(self) -> None:
        is_mine = warp_id() == self.warp
        current().branch(self.after, NotPredicate(is_mine.in_register))

    def __exit__(self, *_: object) -> None:
        current().label(self.after)


def _meet(cta_group: int) -> None:
    """Let all threads of the block, or of the pair, meet, with their accesses to tensor memory in order."""
    emit_tcgen05("tcgen05.fence::before_thread_sync")
    if cta_group == 2:
        cluster.sync()
    else:
        syncthreads()
    emit_tcgen05("tcgen05.fence::after_thread_sync")


def _joined(elements: list[Scalar]) -> Register | Any:
    """Return the register of some neighbouring elements."""
    if len(elements) == 1:
        return elements[0].in_register
    return pack_register(elements, 32 // len(elements))


def _u32(value: object) -> Any:
    """Return a number of columns as a u32, traced or not."""
    if isinstance(value, Scalar):
        return value.to(u32)
    return _whole(value, "a column of tensor memory")


def _whole(value: object, what: str) -> int:
    """Return a Python integer that is not negative; an error for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise current().error(f"{what}: a Python integer from 0 on, not {describe(value)}")
    return value
