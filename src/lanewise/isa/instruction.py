"""Instruction: a form that exists, with its operands, the archs that have it and what can be done with it.

What it computes and how it is drawn is done by other rooms, found through `lanewise.engines`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from lanewise.engines import (
    COMPUTE,
    EMIT,
    GEMM,
    INSTRUCTION_FIDELITY,
    INSTRUCTION_MODEL,
    MOVE,
    ArithmeticModel,
    Drawn,
    ProductOptions,
)
from lanewise.formats import FORMATS
from lanewise.hints import MisfitCall, Values
from lanewise.isa.archs import find_arch
from lanewise.isa.diagnosis import refuse_arch
from lanewise.isa.form import Form, stated
from lanewise.isa.lowering import Lowering, lowering
from lanewise.isa.operand import MissingOperand, Operand, SelectedOperand
from lanewise.isa.operands import (
    VOLTA_ARCHS,
    RowAddresses,
    has_volta_fragments,
    operands_of,
    row_addresses,
)
from lanewise.isa.sparsity import Metadata
from lanewise.isa.table import Legality
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanewise.numpy_types import AnyArray

#: What people ask an instruction for that its operands have.
_OPERANDS = [
    "holder",
    "holders",
    "element",
    "cell",
    "layout",
    "pack",
    "unpack",
    "fragment",
    "full",
    "rows",
]


@dataclass(frozen=True, repr=False)
class Instruction(Form, Drawn):
    """One matrix instruction of the catalogue.

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
    INSTEAD: ClassVar = {
        name: f"ask an operand of it: .a.{name}, .b.{name}, .c.{name} or .d.{name}" for name in _OPERANDS
    } | {
        "flops": "it is 2 * mma.m * mma.n * mma.k",
        "ptx": "mma.text is the instruction in PTX, kernel.ptx() that of a kernel",
        "sass": "kernel.sass() shows the machine code of a kernel",
    }

    # what it is ----------------------------------------------------------------------------------------

    @property
    def m(self) -> int:
        """The number of rows of the product; for ldmatrix, stmatrix and movmatrix, of one matrix."""
        return self.shape[0]

    @property
    def n(self) -> int:
        """The number of columns of the product; for ldmatrix, stmatrix and movmatrix, of one matrix."""
        return self.shape[1]

    @property
    def k(self) -> int:
        """The length of the dot products; 0 for instructions that multiply nothing."""
        return self.shape[2] if len(self.shape) == 3 else 0

    @property
    def layout_a(self) -> str:
        """`row` or `col`, as the text has it for A; empty if the text does not say it."""
        return self.layouts[0] if len(self.layouts) == 2 else ""

    @property
    def layout_b(self) -> str:
        """`row` or `col`, as the text has it for B; empty if the text does not say it."""
        return self.layouts[1] if len(self.layouts) == 2 else ""

    @property
    def multiplies(self) -> bool:
        """Whether it computes D = A·B + C, and does not load, store or transpose."""
        return self.family in ("mma", "wmma.mma", "wgmma") or self.sparse

    # where it runs -------------------------------------------------------------------------------------

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs that have it, by name."""
        return Values(self.legality.archs)

    @property
    def since(self) -> str:
        """The first PTX version that has it."""
        return self.legality.since

    @property
    def until(self) -> str | None:
        """The last PTX version that has it, if it was withdrawn."""
        return self.legality.until

    def require(self, arch: str) -> str:
        """Return the full name of an arch; raise an error if the arch does not have this instruction."""
        name = find_arch(arch)
        if name not in self.archs:
            raise refuse_arch(self, self.legality, name)
        return name

    def lowering(self, arch: str) -> Lowering:
        """Return how an arch runs it: as one opcode, split into several, or emulated by other instructions.

        >>> from lanewise.isa import instruction
        >>> print(instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32").lowering("sm_89"))
        native: 1 QMMA
        """
        return lowering(self, self.require(arch))

    def on(self, arch: str) -> Instruction:
        """Return the instruction with the fragment layouts of an arch.

        Only Volta's wmma of f16 has layouts of its own; all other archs have the same.

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
        """The operands that the instruction has, by name: a, b, c, d, metadata, scale_a, scale_b."""
        return MappingProxyType(operands_of(self, FORMATS, self.fragments_of))

    @property
    def a(self) -> Operand:
        """A, the left matrix of the product, with shape (M, K); if A is sparse, packed to (M, K/2)."""
        return self._operand("a")

    @property
    def b(self) -> Operand:
        """B, the right matrix of the product, with shape (K, N)."""
        return self._operand("b")

    @property
    def c(self) -> Operand:
        """C, the matrix to which the product is added, with shape (M, N)."""
        return self._operand("c")

    @property
    def d(self) -> Operand:
        """D, the result, with shape (M, N); for ldmatrix and movmatrix, the matrix that registers receive."""
        return self._operand("d")

    @property
    def metadata(self) -> Metadata:
        """E, the metadata: it says which columns the packed elements of a sparse A have."""
        return cast(Metadata, self._operand("metadata"))

    @property
    def scale_a(self) -> SelectedOperand:
        """The scale factors of A, with shape (M, number of scales along K)."""
        return cast(SelectedOperand, self._operand("scale_a"))

    @property
    def scale_b(self) -> SelectedOperand:
        """The scale factors of B, with shape (number of scales along K, N)."""
        return cast(SelectedOperand, self._operand("scale_b"))

    def _operand(self, name: str) -> Operand:
        if name not in self.operands:
            raise MissingOperand(f"{self.text} has no operand {name}; it has {', '.join(self.operands)}")
        return self.operands[name]

    @property
    def row_addresses(self) -> RowAddresses:
        """For ldmatrix and stmatrix: which lane gives the address of which row."""
        return row_addresses(self)

    # what can be done with it --------------------------------------------------------------------------

    @short_traceback
    def __call__(self, *operands: Any, arch: str | None = None, **options: Any) -> Any:
        """Compute D = A·B + C on arrays and return D with the bits that the arch returns.

        The options are metadata (for a sparse A), scale_a and scale_b (block-scaled), satfinite (wmma and
        integers), negate_a and negate_b (wgmma). ldmatrix takes an array that stands for shared memory and
        the lanes' addresses in bytes, and returns the registers of all lanes. stmatrix takes registers as
        well, and movmatrix takes registers alone. Inside a kernel, on traced values, the call emits the
        instruction.
        """
        given = (*operands, *options.values())
        if any(hasattr(part, "is_traced") for every in given for part in _parts(every)):
            return EMIT.function(self, *operands, **options)
        if self.family in ("ldmatrix", "stmatrix", "movmatrix"):
            return MOVE.function(self, *operands)
        missing = [name for at, name in enumerate("ab") if at >= len(operands) and name not in options]
        if missing:
            raise MisfitCall(
                f"on arrays, {self.text} takes a, b and, if you like, c; {missing[0]} is missing"
            )
        twice = [name for name, _ in zip("abc", operands, strict=False) if name in options]
        if twice or len(operands) > 3:
            wrong = f"{twice[0]} is given twice" if twice else f"{len(operands)} arrays are given"
            raise MisfitCall(
                f"on arrays, {self.text} takes a, b and, if you like, c; {wrong}. Others are given by name, "
                "such as metadata=, scale_a= and scale_b="
            )
        if arch is None:
            raise MisfitCall(
                f"on arrays, {self.text} takes the arch whose bits are wanted: arch='sm_90'; in a kernel it "
                "takes fragments"
            )
        return COMPUTE.function(self, *operands, arch=arch, **options)

    def zeros(self) -> Any:
        """Return a fragment of C with zeros, inside a kernel: the accumulator to begin with."""
        return self.c.full(0)

    @short_traceback
    def gemm(
        self, a: object, b: object, c: object = None, *, arch: str, **options: Unpack[ProductOptions]
    ) -> AnyArray:
        """Multiply matrices of any size by repeating the instruction, along K in order as a kernel does.

        >>> import numpy as np
        >>> import lanewise as lw
        >>> mma = lw.instruction("m16n8k16 f16 f32")
        >>> a, b = np.ones((32, 64), np.float16), np.ones((64, 8), np.float16)
        >>> mma.gemm(a, b, arch="sm_90").tolist()[0][:2]
        [64.0, 64.0]
        """
        return GEMM.function(self, a, b, c, arch=arch, **options)

    @short_traceback
    def fidelity(self, arch: str) -> str:
        """Return in words how far the computed bits can be trusted on an arch.

        >>> import lanewise as lw
        >>> lw.instruction("m16n8k16 bf16").fidelity("sm_90")
        'confirmed on hardware'
        """
        return INSTRUCTION_FIDELITY.function(self, self.require(arch))

    def model(self, arch: str) -> ArithmeticModel:
        """Return the model of how an arch adds the products; `print` shows it in words.

        Its `scheme` has the parameters (block length, fraction bits, rounding), `fidelity` says how far it
        can be trusted, and `source` says where it comes from.
        """
        return INSTRUCTION_MODEL.function(self, arch)

    def __getstate__(self) -> dict[str, object]:
        return stated(self)

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _parts(operand: object) -> tuple[object, ...]:
    """An operand, or the registers that it was given as."""
    return tuple(operand) if isinstance(operand, tuple | list) else (operand,)
