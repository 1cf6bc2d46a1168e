"""`lw.tmem`: tensor memory, the 128 lanes × 512 columns of 32 bits in which Blackwell's Tensor Core adds up.

A block allocates whole columns, and frees them before it ends. A warp loads and stores 32 of the lanes: those
that begin at 32 times its number modulo 4. Addresses have the lane in the upper and the column in the lower
16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lanewise.atoms import TmemTensor
from lanewise.formats import Format
from lanewise.isa import Instruction
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.isa.tensor_memory.accumulators import COLUMNS
from lanewise.lang.hopper import cluster
from lanewise.lang.intrinsics.sync import syncthreads
from lanewise.lang.matrix.tensor_memory import (
    ROWS_IN_ALL_LANES,
    Spread,
    TmemMatrix,
    columns_u32,
    emit_tcgen05,
    group_word,
    whole,
)
from lanewise.lang.memory.array import shared
from lanewise.lang.memory.view import TmemAddresses, View
from lanewise.lang.trace.builder import Label, NotPredicate, current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.special_registers import warp_id
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import dtype_name, u32

__all__ = ["TensorMemory", "TmemMatrix", "alloc"]

#: The fewest columns of an allocation.
LEAST_COLUMNS = 32


class TensorMemory(Node):
    """Columns of tensor memory that the block has allocated: all 128 lanes of each.

    `accumulator(mma)` is the part that a product adds to, `matrix(dtype, columns)` has a row in each lane.
    """

    __slots__ = ("address", "columns", "cta_group", "warp")
    CHILDREN = ("address",)

    def __init__(self, address: Scalar, columns: int, cta_group: int, warp: int) -> None:
        self.address, self.columns, self.cta_group, self.warp = address, columns, cta_group, warp

    def accumulator(self, mma: Instruction, column: Any = 0) -> TmemMatrix:
        """Return the accumulator of a product, which begins at a column: the part of D that this block holds.

        `mma` is an instruction, lw.instruction("tcgen05.mma…", m=128, n=256, …).
        """
        if not isinstance(mma, Tcgen05Instruction):
            raise current().error(f"an accumulator is that of a tcgen05.mma, not of {describe(mma)}")
        if self.cta_group != mma.cta_group:
            raise current().error(
                f"{mma.text} is of cta_group {mma.cta_group}, and the tensor memory was allocated with "
                f"lw.tmem.alloc(…, cta_group={self.cta_group})"
            )
        spread = Spread.of(mma.m, mma.n, mma.cta_group, mma.product.ws, mma.product.sparse)
        return self._part(mma.d.format, spread, column, 32)

    def matrix(self, dtype: Format, columns: int, *, column: Any = 0, slot_bits: int = 32) -> TmemMatrix:
        """Return the matrix of 128 rows that begins at a column: one row in each lane.

        An element of an accumulator has a column of 32 bits for itself, also if it is f16. Elements of A are
        packed: slot_bits=16 puts two of 16 bits into a column.
        """
        if slot_bits not in (8, 16, 32) or dtype.bits > slot_bits:
            raise current().error(
                f"elements of {dtype_name(dtype)} lie in slots of {dtype.bits} to 32 bits, not {slot_bits}"
            )
        spread = ROWS_IN_ALL_LANES._replace(columns=whole(columns, "the columns of a matrix"))
        return self._part(dtype, spread, column, slot_bits)

    def tensor(self, fragment: TmemTensor, column: Any = 0) -> View:
        """Return CuTe's tensor of a fragment, which begins at a column: partition_fragment_C of a tiled MMA.

        Inside a kernel: `acc = memory.tensor(cta_mma.partition_fragment_C((128, 256)))`.
        """
        if not isinstance(fragment, TmemTensor):
            raise current().error(
                "memory.tensor takes a fragment of a tiled MMA whose atom is SM100_MMA_…, as "
                f"partition_fragment_C(shape) returns; not {describe(fragment)}"
            )
        needed = fragment.columns()
        first = column if isinstance(column, int) else 0
        if first < 0 or first + needed > self.columns:
            raise current().error(
                f"{fragment!r} takes the columns {first} to {first + needed - 1} of tensor memory, and "
                f"{self.columns} are allocated"
            )
        dtype = fragment.value_type.format
        assert dtype is not None and isinstance(fragment.offset, int)
        address = self.address + columns_u32(column)
        return View(TmemAddresses(address, dtype, fragment.offset), fragment.layout)

    def _part(self, dtype: Format, spread: Spread, column: Any, slot_bits: int) -> TmemMatrix:
        """Return the matrix that begins at a column; an error if it needs more columns than there are."""
        width = spread.lane_columns * slot_bits // 32
        first = column if isinstance(column, int) else 0
        if first < 0 or first + width > self.columns:
            raise current().error(
                f"a matrix of {spread.lane_columns} columns of {dtype_name(dtype)} takes the columns {first} "
                f"to {first + width - 1} of tensor memory, and {self.columns} are allocated"
            )
        return TmemMatrix(self.address + columns_u32(column), dtype, spread, slot_bits)

    def free(self) -> None:
        """Give the columns back: every thread calls it when its loads and stores are complete.

        All threads meet first, of a pair those of both blocks; then the warp that allocated them frees them.
        """
        _meet(self.cta_group)
        text = f"tcgen05.dealloc.{group_word(self.cta_group)}.sync.aligned.b32"
        with _one_warp(self.warp):
            emit_tcgen05(text, self.address.in_register, str(self.columns))

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
    address = slot.pointer.operand
    with _one_warp(whole(warp, "the warp that allocates")):
        emit_tcgen05(f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32", address, str(columns))
        if relinquish:
            emit_tcgen05(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned")
    _meet(cta_group)
    base = Scalar(u32, builder.result("ld.shared.b32", "b32", address, hint="tensor_address"))
    return TensorMemory(base, columns, cta_group, warp)


@contextmanager
def _one_warp(warp: int) -> Iterator[None]:
    """Let code inside the `with` run in one warp of the block; the others jump over it."""
    after, is_mine = Label("other_warps"), warp_id() == warp
    current().branch(after, NotPredicate(is_mine.in_register))
    yield
    current().label(after)


def _meet(cta_group: int) -> None:
    """Let all threads of the block, or of the pair, meet, with their accesses to tensor memory in order."""
    emit_tcgen05("tcgen05.fence::before_thread_sync")
    if cta_group == 2:
        cluster.sync()
    else:
        syncthreads()
    emit_tcgen05("tcgen05.fence::after_thread_sync")
