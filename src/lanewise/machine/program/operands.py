"""What the operands of an instruction stand for once names are resolved.

A register has an offset in a warp's frame, a variable has an address, a label is a position in its function.
`resolve.py` finds these out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lanewise.ptx import Immediate

#: The shared memory that the system reserves in each block; tiles of several warps use it.
RESERVED_MEMORY_REGISTERS = tuple(f"%reserved_smem_offset_{end}" for end in ("begin", "end", "cap", "0", "1"))
#: By name: the elements that it has, none for a register that is a single number.
SPECIAL_REGISTERS = {
    **dict.fromkeys(("%tid", "%ntid", "%ctaid", "%nctaid"), "xyz"),
    **dict.fromkeys(("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"), "xyz"),
    **dict.fromkeys(("%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"), ""),
    **dict.fromkeys(("%laneid", "%warpid", "%nwarpid", "WARP_SZ"), ""),
    **{f"%lanemask_{relation}": "" for relation in ("eq", "le", "lt", "ge", "gt")},
    **dict.fromkeys(("%clock", "%clock_hi", "%clock64"), ""),
    **dict.fromkeys(("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"), ""),
    **dict.fromkeys(("%smid", "%nsmid", "%gridid", "%current_graph_exec"), ""),
    **dict.fromkeys(("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"), ""),
    **dict.fromkeys(RESERVED_MEMORY_REGISTERS, ""),
    **{f"%pm{number}": "" for number in range(8)},
    **{f"%pm{number}_64": "" for number in range(8)},
    **{f"%envreg{number}": "" for number in range(32)},
}
#: Where cooperative groups find the words of the barrier that all blocks of a grid wait at.
GRID_BARRIER_REGISTERS = ("%envreg1", "%envreg2")
#: Registers that count time.
CLOCK_REGISTERS = frozenset(
    ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
)


@dataclass(frozen=True)
class Register:
    """A register: its type, the bits of each lane, and its offset in a warp's frame."""

    name: str
    type: str
    bits: int
    offset: int

    @property
    def is_predicate(self) -> bool:
        """Whether it is a predicate, which is kept as a byte for each lane."""
        return self.type == "pred"


@dataclass(frozen=True)
class RegisterPart:
    """Selected bytes or halves of a register, such as `%r1.b2` or `%r1.h10`."""

    register: Register
    selector: str


@dataclass(frozen=True)
class SpecialRegister:
    """A special register, such as %tid.x."""

    name: str
    element: str = ""


@dataclass(frozen=True)
class Symbol:
    """The address of a variable in its state space."""

    name: str
    space: str
    address: int
    size: int
    #: Bytes from the variable's first byte to this address.
    into: int = 0
    #: Of a shared variable: what its first byte is a multiple of.
    alignment: int = 1


@dataclass(frozen=True)
class StackVariable:
    """A variable of a function that may call itself: an offset from the begin of its stack frame."""

    register: Register
    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Negated:
    """An operand with an operator before it: `!p` or `-x`."""

    operator: str
    operand: ResolvedOperand


@dataclass(frozen=True)
class OperandList:
    """A vector of operands, a group of arguments, or the two destinations of `p|q`."""

    elements: tuple[ResolvedOperand, ...]


@dataclass(frozen=True)
class MemoryOperand:
    """An address `[base+offset]`, whose base is a register, a variable or a number."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class TexelOperand:
    """A texture or surface and the coordinates of a texel: `[%rd1, {%f1, %f2}]`."""

    handle: Register
    coordinates: tuple[ResolvedOperand, ...]


@dataclass(frozen=True)
class Sink:
    """The destination `_`, which drops the result."""


@dataclass(frozen=True)
class BranchTarget:
    """A label, or a list of labels, as positions in the body of the function."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Callee:
    """A function that is called by its name."""

    name: str


@dataclass(frozen=True)
class IndirectCallee:
    """A register with the address of a function, and the functions that it may hold."""

    register: Register
    names: tuple[str, ...]


ResolvedOperand = (
    Register
    | RegisterPart
    | SpecialRegister
    | Symbol
    | StackVariable
    | Immediate
    | Negated
    | OperandList
    | MemoryOperand
    | TexelOperand
    | Sink
    | BranchTarget
    | Callee
    | IndirectCallee
)


def elements_of(operand: ResolvedOperand) -> tuple[ResolvedOperand, ...]:
    """Return the elements of a vector or a pair; a single operand is its own element."""
    return operand.elements if isinstance(operand, OperandList) else (operand,)


def registers_in(operand: ResolvedOperand) -> Iterator[Register]:
    """Yield every register that an operand names: itself, in its elements, in its address."""
    match operand:
        case Register():
            yield operand
        case OperandList(elements):
            for element in elements:
                yield from registers_in(element)
        case Negated(_, inner):
            yield from registers_in(inner)
        case MemoryOperand(base, _):
            yield from registers_in(base)
        case TexelOperand(handle, coordinates):
            yield handle
            for coordinate in coordinates:
                yield from registers_in(coordinate)
        case RegisterPart(register) | IndirectCallee(register) | StackVariable(register):
            yield register
