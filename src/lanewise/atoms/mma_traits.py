"""MMA_Traits: what CuTe says of an MMA operation, read off the operands of its instruction.

Tiling and partitioning build on these in `tiling.py`; the arithmetic is in `compute.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from typing import Any, Generic, TypeVar, cast

from lanewise.atoms.names import Operation, a_in_tensor_memory, named_operation
from lanewise.atoms.tmem import TmemTensor, tmem_fragment
from lanewise.atoms.value_types import (
    COMPLEX,
    GAUSS_COMPLEX,
    Major,
    RegisterArray,
    ScaleIn,
    SparseSel,
    ValueType,
    of_format,
    smem_desc,
    sparse,
    value_type,
)
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, Operand
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.layout import Layout, flatten, make_layout, unflatten

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
    def threads(self) -> Layout:
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


_SHARED = "shared memory"


@dataclass(frozen=True)
class RegisterTraits:
    """The traits of an operation of a warp or a warpgroup, whose threads hold its operands in registers.

    GMMA may read A and B from shared memory; its template arguments say in which order, and with which sign.
    """

    operation: Operation
    arguments: Mapping[str, Enum]

    @property
    def _instruction(self) -> Instruction:
        return self.operation.instruction

    @property
    def threads(self) -> Layout:
        """Logical thread of the operation to thread of the warp or warpgroup."""
        thr_id = self._instruction.d.thr_id
        return Layout(self._instruction.threads) if thr_id is None else thr_id

    def layout(self, name: str) -> Layout:
        """Return the layout from (thread, value) of A, B or C to the flat index."""
        layout = self._instruction.operands["d" if name == "C" else name.lower()].layout
        return widen_k(layout, self._instruction.m, 2) if name == "A" and self._instruction.sparse else layout

    def major(self, name: str) -> Enum:
        """Return which index of A or B is contiguous in shared memory."""
        return self.arguments.get(f"tnsp{name}", Major.K)

    def sign(self, name: str) -> Enum:
        """Return whether A or B is negated."""
        return self.arguments.get(f"scale{name}", ScaleIn.One)

    def value_type(self, name: str) -> ValueType:
        """Return the type of the values of A, B, C or D; sparse ones of A stand for several along K."""
        operand = self._instruction.operands[name.lower()]
        if name in "CD":
            if self.operation.composed:
                return COMPLEX if self.operation.composed == "complex" else GAUSS_COMPLEX
            return of_format(operand.format)
        raw = self._contained(operand)
        if name == "B" or not self._instruction.sparse:
            return raw
        if raw.bits == 4:  # two 4-bit elements in a byte, which stands for four places
            return sparse(4, value_type("uint8_t"))
        return sparse(2, of_format(operand.format))

    def _contained(self, operand: Operand) -> ValueType:
        """The type of an A or B value; formats that share an instruction are passed in plain containers."""
        if self.operation.composed:
            return COMPLEX
        if self._instruction.kind:
            return value_type("uint4b_t" if operand.slot_bits == 4 else "uint8_t")
        return of_format(operand.format)

    def fragment_type(self, name: str) -> ValueType:
        """Return what a fragment is made of: values, or descriptors of shared memory."""
        operand = self._instruction.operands["c" if name == "D" else name.lower()]
        if operand.where == _SHARED:
            return smem_desc(Major[self.major(name).name])
        if name == "A" and self._instruction.sparse and self._contained(operand).bits == 8:
            return sparse(2, self._contained(operand))
        return self.value_type("C" if name == "D" else name)

    def registers(self, name: str) -> RegisterArray:
        """Return the registers of an operand, or its descriptor; GMMA has none for D: it writes C's."""
        operand = self._instruction.operands[name.lower()]
        if name == "D" and self._instruction.threads == 128:
            return RegisterArray("void", 0)
        if operand.where == _SHARED:
            return _DESCRIPTOR
        if self.operation.composed:
            return RegisterArray(self.value_type(name).name, operand.registers)
        if operand.register_bits == 64:
            return RegisterArray("double", operand.registers)
        is_float = name in "CD" and operand.format.name == "f32"
        return RegisterArray("float" if is_float else "uint32_t", operand.registers)


Told = TypeVar("Told")


class OfOperand(Generic[Told]):
    """A trait of A, B, C or D, under CuTe's name: what a method of the operation's own traits says of it."""

    def __init__(self, method: str, operand: str) -> None:
        self.method, self.operand = method, operand

    def __get__(self, instance: Any, owner: object = None) -> Told:
        if instance is None:
            return cast(Told, self)
        told: Told = getattr(instance.operands, self.method)(self.operand)
        return told


@dataclass(frozen=True, init=False)
class MMA_Traits:
    """The shape, threads, value types, registers and (thread, value) layouts of one MMA operation.

    Layouts map to the flat column-major index of (M, K), (N, K) and (M, N). K is that of the whole product:
    an element of a sparse operand A stands for as many places along K as were packed into it.

    >>> traits = MMA_Traits("SM80_16x8x16_F32F16F16F32_TN")
    >>> traits.Shape_MNK, traits.ALayout, print(traits.ARegisters)
    uint32_t[4]
    ((16, 8, 16), ((4,8),(2,2,2)):((32,1),(16,8,128)), None)
    """

    operation: Operation
    arguments: Mapping[str, Enum] = field(hash=False)

    def __init__(self, operation: Operation | str, arguments: Mapping[str, Enum] | None = None) -> None:
        named, chosen = named_operation(operation) if isinstance(operation, str) else (operation, {})
        if not isinstance(named, Operation):
            raise LanewiseError(f"an MMA operation is given by CUTLASS's name for it, not {operation!r}")
        object.__setattr__(self, "operation", named)
        object.__setattr__(self, "arguments", chosen if arguments is None else arguments)
        if self.umma is not None:
            if self.umma.a_in_tensor_memory and self.tnspA is Major.MN:
                raise LanewiseError(
                    f"{self.operation.name}: A lies in tensor memory, where it is K-major (UMMA::Major::K)"
                )
            return
        if self.instruction.a_source == "registers" and self.tnspA is Major.MN:
            raise LanewiseError(
                f"{self.operation.name}: A comes from registers, where it is K-major "
                "(tnspA = GMMA::Major::K); for an MN-major A in shared memory use "
                f"{self.operation.name.replace('_RS', '_SS')}"
            )

    @property
    def name(self) -> str:
        """CUTLASS's name, with the template arguments that were chosen."""
        if not self.arguments:
            return self.operation.name
        values = (f"GMMA::{type(value).__name__}::{value.name}" for value in self.arguments.values())
        return f"{self.operation.name}<{', '.join(values)}>"

    @property
    def instruction(self) -> Instruction:
        """The instruction that the operation executes (several times over, for complex numbers)."""
        return self.operation.instruction

    @cached_property
    def umma(self) -> UmmaTraits | None:
        """The traits of a tcgen05.mma, whose operands no thread holds; None for other operations."""
        inst = self.instruction
        if not isinstance(inst, Tcgen05Instruction):
            return None
        return UmmaTraits(inst, a_in_tensor_memory(self.operation.name))

    @property
    def operands(self) -> UmmaTraits | RegisterTraits:
        """What the operation itself says of its operands; the traits below are CuTe's names of that."""
        return self.umma or RegisterTraits(self.operation, self.arguments)

    # template arguments of GMMA ------------------------------------------------------------------------

    tnspA = OfOperand[Enum]("major", "A")  # noqa: N815 (CUTLASS's name)
    """Which index of A is contiguous."""
    tnspB = OfOperand[Enum]("major", "B")  # noqa: N815 (CUTLASS's name)
    """Which index of B is contiguous."""
    scaleA = OfOperand[Enum]("sign", "A")  # noqa: N815 (CUTLASS's name)
    """Whether A is negated."""
    scaleB = OfOperand[Enum]("sign", "B")  # noqa: N815 (CUTLASS's name)
    """Whether B is negated."""

    @property
    def spsel(self) -> Enum:
        """Which threads of a quad hold the metadata."""
        return self.arguments.get("spsel", SparseSel.Zero)

    # shape and layouts ---------------------------------------------------------------------------------

    @property
    def Shape_MNK(self) -> tuple[int, int, int]:
        """(M, N, K) of the product."""
        return self.instruction.m, self.instruction.n, self.instruction.k

    @property
    def ThrID(self) -> Layout:
        """Logical thread of the operation to thread of the warp or warpgroup; of tcgen05.mma, the blocks."""
        return self.operands.threads

    ALayout = OfOperand[Layout]("layout", "A")
    """The layout from (thread, value) of A to m + M·k."""
    BLayout = OfOperand[Layout]("layout", "B")
    """The layout from (thread, value) of B to n + N·k."""
    CLayout = OfOperand[Layout]("layout", "C")
    """The layout from (thread, value) of C and D to m + M·n."""

    @cached_property
    def ELayout(self) -> Layout:
        """(thread, value) of sparse metadata to m + M·k: which part of A a thread's word describes."""
        return widen_k(self.instruction.metadata.layout, self.instruction.m, self.instruction.metadata.group)

    @cached_property
    def SFALayout(self) -> Layout:
        """(thread, value) of A's scale factors to m + M·k, each standing at all the k that it scales."""
        return make_layout(self.instruction.scale_a.layout[0], Layout(self.instruction.k, self.instruction.m))

    @cached_property
    def SFBLayout(self) -> Layout:
        """(thread, value) of B's scale factors to n + N·k, each standing at all the k that it scales."""
        return make_layout(self.instruction.scale_b.layout[0], Layout(self.instruction.k, self.instruction.n))

    @property
    def SFVecSize(self) -> int:
        """How many elements along K share a scale factor."""
        return self.instruction.k // self.instruction.scale_a.cols

    # CUTLASS's other names of these -------------------------------------------------------------------

    @property
    def MMA_Op(self) -> str:
        """The name of the operation that these are the traits of."""
        return self.operation.name

    # until 3.5, CUTLASS had these names for the types of values
    ElementDVal = OfOperand[ValueType]("value_type", "D")
    ElementAVal = OfOperand[ValueType]("value_type", "A")
    ElementBVal = OfOperand[ValueType]("value_type", "B")
    ElementCVal = OfOperand[ValueType]("value_type", "C")

    # types and registers -------------------------------------------------------------------------------

    ValTypeD = OfOperand[ValueType]("value_type", "D")
    """The type of D's values."""
    ValTypeA = OfOperand[ValueType]("value_type", "A")
    """The type of A's values; sparse ones stand for several indices along K."""
    ValTypeB = OfOperand[ValueType]("value_type", "B")
    """The type of B's values."""
    ValTypeC = OfOperand[ValueType]("value_type", "C")
    """The type of C's values."""

    @property
    def ValTypeE(self) -> ValueType:
        """The type of metadata: a byte for as many indices along K as its two codes cover."""
        return sparse(2 * self.instruction.metadata.group, value_type("uint8_t"))

    @property
    def ValTypeSF(self) -> ValueType:
        """The type of scale factors."""
        return of_format(self.instruction.scale_a.format)

    FrgTypeD = OfOperand[ValueType]("fragment_type", "D")
    """What a fragment of D is made of."""
    FrgTypeA = OfOperand[ValueType]("fragment_type", "A")
    """What a fragment of A is made of: values, or descriptors of shared memory."""
    FrgTypeB = OfOperand[ValueType]("fragment_type", "B")
    """What a fragment of B is made of: values, or descriptors of shared memory."""
    FrgTypeC = OfOperand[ValueType]("fragment_type", "C")
    """What a fragment of C is made of."""

    DRegisters = OfOperand[RegisterArray]("registers", "D")
    """The registers of D; GMMA has none of its own: it writes C's."""
    ARegisters = OfOperand[RegisterArray]("registers", "A")
    """The registers of A, or its descriptor."""
    BRegisters = OfOperand[RegisterArray]("registers", "B")
    """The registers of B, or its descriptor."""
    CRegisters = OfOperand[RegisterArray]("registers", "C")
    """The registers of C."""

    @property
    def ERegisters(self) -> RegisterArray:
        """The register of sparse metadata."""
        return RegisterArray("uint32_t", self.instruction.metadata.registers)

    @property
    def SFARegisters(self) -> RegisterArray:
        """The scale factors of A that a thread passes, in one register."""
        return RegisterArray(f"uint{8 * self.instruction.scale_vec}_t", self.instruction.scale_a.registers)

    @property
    def SFBRegisters(self) -> RegisterArray:
        """The scale factors of B that a thread passes, in one register."""
        return RegisterArray(f"uint{8 * self.instruction.scale_vec}_t", self.instruction.scale_b.registers)


def widen_k(layout: Layout, m: int, factor: int) -> Layout:
    """A (thread, value) layout over (m, K) after every index along K has become `factor` neighbours.

    >>> print(widen_k(Layout(((4, 8), (4, 2)), ((64, 1), (16, 8))), 16, 2))
    ((4,8),(8,2)):((128,1),(16,8))
    """
    threads, values = layout
    modes = [
        (size * factor, stride) if stride == m else (size, stride * factor if stride > m else stride)
        for size, stride in zip(flatten(values.shape), flatten(values.stride), strict=True)
    ]
    if all(stride != m for _, stride in modes):
        modes.insert(0, (factor, m))
    stretched = tuple(stride * factor if stride >= m else stride for stride in flatten(threads.stride))
    sizes, strides = zip(*modes, strict=True)
    return make_layout(
        Layout(threads.shape, unflatten(stretched, threads.shape)),
        Layout(sizes, strides) if len(sizes) > 1 else Layout(sizes[0], strides[0]),
    )


#: The name of each layout: an operation whose traits have it, and the trait.
_FROM = {
    "SM80_8x4": ("SM80_8x8x4_F64F64F64F64_TN", "ALayout"),
    "SM80_8x8_Row": ("SM80_8x8x4_F64F64F64F64_TN", "CLayout"),
    "SM80_8x16_Row": ("SM80_8x8x16_S32S8S8S32_TN", "ALayout"),
    "SM80_16x8_Row": ("SM80_16x8x16_F32F16F16F32_TN", "CLayout"),
}
NAMES = tuple(_FROM)


@cache
def named_layout(name: str) -> Layout:
    """The layout of a name, (thread, value) to the flat index.

    >>> named_layout("SM80_16x8_Row")
    ((4,8),(2,2)):((32,1),(16,8))
    """
    operation, trait = _FROM[name]
    layout: Layout = getattr(MMA_Traits(operation), trait)
    return layout
