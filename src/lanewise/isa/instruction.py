"""Instruction: a form that exists, with its operands, the archs that have it and what can be done with it.

What it computes and how it is drawn is done by other rooms, found through `lanewise.engines`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from lanewise.engines import (
    COMPUTE,
    EMIT,
    GEMM,
    INSTRUCTION_FIDELITY,
    INSTRUCTION_MODEL,
    MOVE,
    ArithmeticModel,
    Drawn,
)
from lanewise.formats import FORMATS
from lanewise.isa.archs import find_arch
from lanewise.isa.diagnosis import refuse_arch
from lanewise.isa.form import Form, stated
from lanewise.isa.lowering import Lowering, lowering
from lanewise.isa.operand import MissingOperand, Operand
from lanewise.isa.operands import (
    VOLTA_ARCHS,
    RowAddresses,
    has_volta_fragments,
    operands_of,
    row_addresses,
)
from lanewise.isa.selected import SelectedOperand
from lanewise.isa.sparsity import Metadata
from lanewise.isa.table import Legality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class Instruction(Form, Drawn):
    """One matrix instruction: a form of the catalogue.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> mma.a.holder(3, 9)
    Holder(lane=12, register=2, slot=1)
    >>> mma.archs[0], mma.since
    ('sm_80', '7.0')
    """

    legality: Legality = field(default=Legality((), ""), compare=False)
    #: The arch whose fragments its operands have, if that has others than most archs (see `on`).
    fragments_of: str = ""

    # what it is ----------------------------------------------------------------------------------------

    @property
    def m(self) -> int:
        """Rows of the product (of one matrix, for ldmatrix and its kin)."""
        return self.shape[0]

    @property
    def n(self) -> int:
        """Columns of the product (of one matrix, for ldmatrix and its kin)."""
        return self.shape[1]

    @property
    def k(self) -> int:
        """Length of the dot products; 0 where there are none."""
        return self.shape[2] if len(self.shape) == 3 else 0

    @property
    def layout_a(self) -> str:
        """`row` or `col` as written for A; empty where the text does not say."""
        return self.layouts[0] if len(self.layouts) == 2 else ""

    @property
    def layout_b(self) -> str:
        """`row` or `col` as written for B; empty where the text does not say."""
        return self.layouts[1] if len(self.layouts) == 2 else ""

    @property
    def multiplies(self) -> bool:
        """Whether it computes D = A·B + C, as against loading, storing or transposing."""
        return self.family in ("mma", "wmma.mma", "wgmma") or self.sparse

    # where it runs -------------------------------------------------------------------------------------

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs that have it, by name."""
        return self.legality.archs

    @property
    def since(self) -> str:
        """The first PTX version that has it."""
        return self.legality.since

    @property
    def until(self) -> str | None:
        """The last PTX version that has it, if it was withdrawn."""
        return self.legality.until

    def require(self, arch: str) -> str:
        """The arch by its full name, or an error if the arch does not have this instruction."""
        name = find_arch(arch)
        if name not in self.archs:
            raise refuse_arch(self, self.legality, name)
        return name

    def lowering(self, arch: str) -> Lowering:
        """How an arch runs it: natively, split into several opcodes, or emulated by ptxas.

        >>> from lanewise.isa import instruction
        >>> print(instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32").lowering("sm_89"))
        native: 1 QMMA
        """
        return lowering(self, self.require(arch))

    def on(self, arch: str) -> Instruction:
        """The instruction with the fragments of an arch: Volta's wmma of f16 has its own, the rest is alike.

        >>> from lanewise.isa import instruction
        >>> wmma = instruction("wmma.load.a.sync.aligned.row.m16n16k16.f16")
        >>> wmma.a.holder(1, 0).lane, wmma.on("sm_70").a.holder(1, 0).lane
        (4, 1)
        """
        name = find_arch(arch)
        own = name if name in VOLTA_ARCHS and has_volta_fragments(self) else ""
        return self if own == self.fragments_of else replace(self, fragments_of=own)

    # operands ------------------------------------------------------------------------------------------

    @cached_property
    def operands(self) -> Mapping[str, Operand]:
        """The operands that are there, by name: a, b, c, d, metadata, scale_a, scale_b."""
        return MappingProxyType(operands_of(self, FORMATS, self.fragments_of))

    @property
    def a(self) -> Operand:
        """A, the left matrix of the product, (M, K); packed to (M, K/2) if sparse."""
        return self._operand("a")

    @property
    def b(self) -> Operand:
        """B, the right matrix of the product, (K, N)."""
        return self._operand("b")

    @property
    def c(self) -> Operand:
        """C, the matrix that the product is added to, (M, N)."""
        return self._operand("c")

    @property
    def d(self) -> Operand:
        """D, (M, N); of ldmatrix and movmatrix, what they put into registers."""
        return self._operand("d")

    @property
    def metadata(self) -> Metadata:
        """E: where the elements of a sparse A belong."""
        return cast(Metadata, self._operand("metadata"))

    @property
    def scale_a(self) -> SelectedOperand:
        """The scale factors of A, (M, scales along K)."""
        return cast(SelectedOperand, self._operand("scale_a"))

    @property
    def scale_b(self) -> SelectedOperand:
        """The scale factors of B, (scales along K, N)."""
        return cast(SelectedOperand, self._operand("scale_b"))

    def _operand(self, name: str) -> Operand:
        if name not in self.operands:
            raise MissingOperand(f"{self.text} has no operand {name}; it has {', '.join(self.operands)}")
        return self.operands[name]

    @property
    def row_addresses(self) -> RowAddresses:
        """Which lane gives the address of which row (ldmatrix, stmatrix)."""
        return row_addresses(self)

    # what can be done with it --------------------------------------------------------------------------

    def __call__(self, *operands: Any, arch: str | None = None, **options: Any) -> Any:
        """D = A·B + C on arrays, with the bits that the arch returns: see `lanewise.arith.compute`.

        Options: metadata (sparse), scale_a and scale_b (block-scaled), satfinite (wmma and integers),
        negate_a and negate_b (wgmma). ldmatrix takes an array that stands for shared memory and the lanes'
        addresses in bytes and returns the registers of all lanes, stmatrix takes registers as well, movmatrix
        takes registers alone: see `lanewise.arith.moves`. Inside a kernel, on traced values, it emits itself.
        """
        given = (*operands, *options.values())
        if any(hasattr(each, "is_traced") for every in given for each in _parts(every)):
            return EMIT.function(self, *operands, **options)
        if self.family in ("ldmatrix", "stmatrix", "movmatrix"):
            return MOVE.function(self, *operands)
        missing = [name for at, name in enumerate("ab") if at >= len(operands) and name not in options]
        if missing:
            raise TypeError(f"on arrays, {self.text} takes a, b and, if you like, c; {missing[0]} is missing")
        if arch is None:
            raise TypeError(f"on arrays, {self.text} takes the arch whose bits are wanted: arch='sm_90'")
        return COMPUTE.function(self, *operands, arch=arch, **options)

    def zeros(self) -> Any:
        """The accumulator to begin with, inside a kernel: a fragment of C that is zero."""
        return self.c.full(0)

    def gemm(self, a: Any, b: Any, c: Any = None, *, arch: str, **options: Any) -> NDArray[Any]:
        """Whole matrices, the instruction repeated along K as a kernel would: see `lanewise.arith.gemm`."""
        return GEMM.function(self, a, b, c, arch=arch, **options)

    def fidelity(self, arch: str) -> str:
        """How far the computed bits can be trusted on an arch, in words."""
        return INSTRUCTION_FIDELITY.function(self, self.require(arch))

    def model(self, arch: str) -> ArithmeticModel:
        """How an arch adds the products up: `print` it for block length, fraction bits and rounding.

        Its `scheme` has the parameters, `fidelity` says how far it is to be trusted, `source` says
        where it is from.
        """
        return INSTRUCTION_MODEL.function(self, arch)

    def __getstate__(self) -> dict[str, Any]:
        return stated(self)

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _parts(operand: Any) -> tuple[Any, ...]:
    """An operand, or the registers that it was given as."""
    return tuple(operand) if isinstance(operand, tuple | list) else (operand,)
