"""Copy_Traits and Copy_Atom: which thread reads and which thread writes each bit, or each value, of a copy.

A layout of the traits maps (thread, bit a thread holds) to a bit of what is copied: for matrix loads and
stores, row by row of 16 bytes. CuTe numbers the bits otherwise for a few operations; only how the two sides
match counts. An atom has the same layouts in units of one type of values.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lanewise.atoms.copy_names import CopyOperation, named_copy
from lanewise.atoms.value_types import ValueType, value_type
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, Operand
from lanewise.layout import Layout, coalesce, composition, flatten, make_layout, size, upcast
from lanewise.tracebacks import short_methods

ROW_BITS = 128


@dataclass(frozen=True, init=False)
class Copy_Traits:
    """The threads of a copy operation, and the bits that each reads (Src) and writes (Dst).

    >>> traits = Copy_Traits("SM75_U16x8_LDSM_T")
    >>> traits.SrcLayout, traits.DstLayout
    ((32,128):(128,1), ((4,8),(16,2,4)):((256,16),(1,128,1024)))
    """

    operation: CopyOperation

    def __init__(self, operation: CopyOperation | str) -> None:
        named = named_copy(operation) if isinstance(operation, str) else operation
        if not isinstance(named, CopyOperation):
            raise LanewiseError(f"a copy operation is given by CUTLASS's name for it, not {operation!r}")
        object.__setattr__(self, "operation", named)

    @property
    def instruction(self) -> Instruction | None:
        """The matrix instruction, None for copies by one thread."""
        return self.operation.instruction

    @property
    def ThrID(self) -> Layout:
        """Logical thread of the copy to thread of the warp."""
        inst, move = self.instruction, self.operation.move
        if move is not None:
            return Layout(move.threads) if move.threads > 1 else Layout(1, 0)
        return Layout(inst.threads) if inst is not None else Layout(1, 0)

    @property
    def ValID(self) -> Layout:
        """Of copies to and from tensor memory: the layout from a number of a bit to its address in bits."""
        if self.operation.move is None:
            raise LanewiseError(f"{self.operation.name} does not touch tensor memory: it has no ValID")
        return self.operation.move.val_id

    @cached_property
    def SrcLayout(self) -> Layout:
        """The layout from (thread, bit) to the bit of the source that the thread reads."""
        if self.operation.move is not None:
            return self.operation.move.source
        inst = self.instruction
        if inst is None:
            return Layout((1, self.operation.bits), (0, 1))
        if inst.family == "ldmatrix":
            return _rows(inst)
        return _register_bits(inst.a)

    @cached_property
    def DstLayout(self) -> Layout:
        """The layout from (thread, bit) to the bit of the destination that the thread writes."""
        if self.operation.move is not None:
            return self.operation.move.target
        inst = self.instruction
        if inst is None:
            return self.SrcLayout
        if inst.family == "stmatrix":
            return _rows(inst)
        if inst.family == "movmatrix":
            # CuTe 4.2 writes the identity here and leaves it to its user that the matrix came out transposed
            return _register_bits(inst.d, transposed=True)
        bits = _register_bits(inst.d)
        return _bytes_swapped(bits) if self.operation.swaps_bytes else bits

    @property
    def RefLayout(self) -> Layout:
        """The side that a TiledCopy is laid out by: the registers, or tensor memory."""
        if self.operation.move is not None:
            return self.operation.move.reference
        return (
            self.SrcLayout
            if self.instruction is None or self.instruction.family == "stmatrix"
            else self.DstLayout
        )


def _rows(inst: Instruction) -> Layout:
    """Lane r points to row r of 16 bytes; lanes beyond the rows are not looked at, and repeat them."""
    rows = inst.row_addresses.rows
    lanes = Layout(inst.threads, ROW_BITS)
    if rows < inst.threads:
        lanes = Layout((rows, inst.threads // rows), (ROW_BITS, 0))
    return make_layout(lanes, Layout(8 * inst.row_addresses.row_bytes))


def _register_bits(operand: Operand, transposed: bool = False) -> Layout:
    """The bits of a matrix, row by row, that a lane's registers hold."""
    element = operand.format.bits
    strides = (element, ROW_BITS) if transposed else (ROW_BITS, element)
    threads, values = composition(Layout(operand.shape, strides), operand.layout)
    with_bits = Layout((element, *flatten(values.shape)), (1, *flatten(values.stride)))
    return make_layout(coalesce(threads), coalesce(with_bits))


def _bytes_swapped(layout: Layout) -> Layout:
    """A pair of registers (a0 a1 a2 a3, b0 b1 b2 b3) becomes (a0 a1 b0 b1, a2 a3 b2 b3)."""
    pairs = layout[1].size() // 64
    order = Layout((16, 2, 2, pairs), (1, 32, 16, 64)) if pairs > 1 else Layout((16, 2, 2), (1, 32, 16))
    values = composition(layout[1], order)
    return make_layout(layout[0], coalesce(values))


@short_methods
@dataclass(frozen=True, init=False, repr=False)
class Copy_Atom(Copy_Traits, Drawn):
    """A copy operation and the type of the values that it moves, by default that of the operation.

    >>> copy = Copy_Atom("SM75_U32x4_LDSM_N", "half_t")
    >>> copy.ValLayoutSrc, copy.ValLayoutDst
    ((32,8):(8,1), (32,(2,4)):(2,(1,64)))
    """

    ValType: ValueType

    def __init__(self, operation: CopyOperation | str, ValType: object = None) -> None:
        super().__init__(operation)
        object.__setattr__(self, "ValType", value_type(self._natural_bits() if ValType is None else ValType))
        if self.operation.move is not None and self.operation.move.kind == "cp":
            return  # it moves rows of shared memory, of which CuTe numbers some bits only
        for bits, values in (
            (self.BitLayoutSrc, self.ValLayoutSrc),
            (self.BitLayoutDst, self.ValLayoutDst),
        ):
            if size(values[0]) != size(bits[0]) or size(values[1]) * self.ValType.bits != size(bits[1]):
                raise self._unfit()

    def _natural_bits(self) -> int:
        inst = self.instruction
        if self.operation.move is not None:
            return 8 if self.operation.move.kind == "cp" else 16 if self.name.endswith("_16b") else 32
        if inst is None:
            return min(self.operation.bits, ROW_BITS)
        return next(iter(inst.operands.values())).format.bits

    def _unfit(self) -> LanewiseError:
        kept = min(flatten(bits[1].shape)[0] for bits in (self.BitLayoutSrc, self.BitLayoutDst))
        return LanewiseError(
            f"{self.operation.name} keeps {kept} neighbouring bits together, so values of {self.ValType} "
            f"({self.ValType.bits} bits) cannot be moved by it as a whole"
        )

    def _in_values(self, layout: Layout) -> Layout:
        try:
            result: Layout = upcast(layout, self.ValType.bits)
        except LanewiseError:
            raise self._unfit() from None
        return result

    @property
    def name(self) -> str:
        """CUTLASS's name of the operation."""
        return self.operation.name

    @property
    def traits(self) -> Copy_Traits:
        """The traits of the operation, without the value type that the atom copies."""
        return Copy_Traits(self.operation)

    @property
    def BitLayoutSrc(self) -> Layout:
        """The layout from (thread, bit) to the bit of the source that the thread reads."""
        return self.SrcLayout

    @property
    def BitLayoutDst(self) -> Layout:
        """The layout from (thread, bit) to the bit of the destination that the thread writes."""
        return self.DstLayout

    @property
    def BitLayoutRef(self) -> Layout:
        """The layout from (thread, bit) by which CuTe arranges the copy."""
        return self.RefLayout

    @cached_property
    def ValLayoutSrc(self) -> Layout:
        """The layout from (thread, value) to the value of the source that the thread reads."""
        return self._in_values(self.SrcLayout)

    @cached_property
    def ValLayoutDst(self) -> Layout:
        """The layout from (thread, value) to the value of the destination that the thread writes."""
        return self._in_values(self.DstLayout)

    @cached_property
    def ValLayoutRef(self) -> Layout:
        """The layout from (thread, value) by which CuTe arranges the copy."""
        return self._in_values(self.RefLayout)

    @property
    def NumValSrc(self) -> int:
        """How many values a thread reads."""
        return size(self.ValLayoutSrc[1])

    @property
    def NumValDst(self) -> int:
        """How many values a thread writes."""
        return size(self.ValLayoutDst[1])

    def __call__(self, *operands: object) -> Any:
        """Copy as the instruction does: take an array as shared memory and addresses, and return registers.

        >>> import numpy as np
        >>> load = Copy_Atom("SM75_U32x1_LDSM_N", "half_t")
        >>> load(np.arange(64, dtype=np.uint16), 16 * np.arange(8))[1].tolist()
        [196610]
        """
        if self.instruction is None or self.operation.swaps_bytes:
            raise LanewiseError(
                f"{self.name} copies the values of one thread; on arrays, a plain assignment does that"
            )
        return self.instruction(*operands)

    def __repr__(self) -> str:
        return f"Copy_Atom({self.name}, {self.ValType})"

    def __str__(self) -> str:
        names = ("ThrID", "ValLayoutSrc", "ValLayoutDst", "ValLayoutRef")
        rows = [f"  {name + ':':14}{getattr(self, name)}" for name in names]
        return "\n".join(["Copy_Atom", *rows, f"  {'ValueType:':14}{self.ValType.bits}b"])
