"""What CuTe says of a tcgen05.mma: the parts of a pair's blocks, types, and fragments in tensor memory.

Everything is read off the instruction: parts of blocks, data paths, formats. `mma_traits.py` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.atoms.gmma import Major, ScaleIn
from lanewise.atoms.tmem import TmemTensor, tmem_fragment
from lanewise.atoms.value_types import RegisterArray, ValueType, of_format, sparse
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.layout import Layout

#: Bits of a column, which an element of D has to itself.
_COLUMN_BITS = 32
_DESCRIPTOR, _ADDRESS = RegisterArray("uint64_t", 1), RegisterArray("uint32_t", 1)


@dataclass(frozen=True)
class UmmaTraits:
    """The traits of a tcgen05.mma; `a_in_tensor_memory` says that A lies there, without a descriptor.

    >>> from lanewise.isa import instruction
    >>> UmmaTraits(instruction("tcgen05 m256n64k16 f16"), False).layout("B")
    (2,(32,16)):(32,(1,64))
    """

    instruction: Tcgen05Instruction
    a_in_tensor_memory: bool

    @property
    def blocks(self) -> Layout:
        """The blocks that take part: what CuTe calls the threads of the operation."""
        group = self.instruction.cta_group
        return Layout(group, group - 1)

    def layout(self, name: str) -> Layout:
        """Return the layout from (block, (row, k)) to row + rows·k; of C, from (block, (row, column))."""
        m, n, k = self.instruction.shape
        extent, other = {"A": (m, k), "B": (n, k), "C": (m, n)}[name]
        parts = self.instruction.block_parts(name)
        ranges = [part.columns if name == "B" else part.rows for part in parts]
        step = ranges[1].start if len(ranges) > 1 else 0
        return Layout((len(ranges), (len(ranges[0]), other)), (step, (1, extent)))

    def major(self, name: str) -> Major:
        """Return which index of A or B is contiguous in shared memory."""
        described = self.instruction.descriptor
        return Major[described.a_major if name == "A" else described.b_major]

    def sign(self, name: str) -> ScaleIn:
        """Return whether A or B is negated."""
        described = self.instruction.descriptor
        return ScaleIn.Neg if (described.negate_a if name == "A" else described.negate_b) else ScaleIn.One

    def value_type(self, name: str) -> ValueType:
        """Return the type of the values of A, B, C or D."""
        raw = of_format(self.instruction.operands[name.lower()].format)
        return sparse(2, raw) if name == "A" and self.instruction.product.sparse else raw

    def in_tensor_memory(self, name: str) -> bool:
        """Return whether an operand lies in tensor memory, where it has no descriptor."""
        return name in "CD" or (name == "A" and self.a_in_tensor_memory)

    def fragment_type(self, name: str) -> ValueType:
        """Return what a fragment is made of, as CUTLASS names it: descriptors, or tensor memory."""
        if not self.in_tensor_memory(name):
            kind = "sparse_smem_desc" if name == "A" and self.instruction.product.sparse else "smem_desc"
            return ValueType(f"UMMA::{kind}<UMMA::Major::{self.major(name).name}>", 64)
        value, group = self.value_type(name), self.instruction.cta_group
        return ValueType(f"UMMA::tmem_frg_{group}sm<{value}>", value.bits, value.format)

    def registers(self, name: str) -> RegisterArray:
        """Return what the issuing thread passes: a descriptor or an address; nothing for D."""
        if name == "D":
            return RegisterArray("void", 0)
        return _ADDRESS if self.in_tensor_memory(name) else _DESCRIPTOR

    def fragment(self, name: str, shape: object) -> TmemTensor:
        """Return the tensor in tensor memory for a block's partition ((rows, columns), Rest, …) of A or C.

        Of operations that read A there, A's rows have D's lanes, so tiles of 64 rows leave the lanes between
        them empty, and halves of a pair's D have a copy of A each.
        """
        inst = self.instruction
        value = self.value_type(name)
        alone = self.a_in_tensor_memory and inst.cta_group == 1
        copied = name == "A" and inst.cta_group == 2
        storage = value.bits if name == "A" else _COLUMN_BITS
        return tmem_fragment(inst, value, storage, shape, interleaved=not alone, copied=copied)
