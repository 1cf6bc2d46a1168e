"""Copy_Traits: which thread reads and which thread writes each bit of a copy, read off its instruction.

A layout maps (thread, bit a thread holds) to a bit of what is copied: for matrix loads and stores, row by row
of 16 bytes. CuTe numbers the bits otherwise for a few operations; only how the two sides match counts.
"""

from dataclasses import dataclass
from functools import cached_property

from lanewise.atoms.copy_names import CopyOperation, named_copy
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, Operand
from lanewise.layout import Layout, coalesce, composition, flatten, make_layout

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
