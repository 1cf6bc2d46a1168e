"""What the operands of an instruction stand for once names are resolved.

A register has an offset in a warp's frame, a variable has an address, a label is a position in its function.
Finding this out is `resolve.py`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lanewise.ptx import Immediate


@dataclass(frozen=True)
class Register:
    """A register: its type, the bits that a lane keeps of it, and its offset in a warp's frame."""

    name: str
    type: str
    bits: int
    offset: int

    @property
    def is_predicate(self) -> bool:
        """Whether it holds a condition, kept as a byte for each lane."""
        return self.type == "pred"


@dataclass(frozen=True)
class RegisterPart:
    """A byte or half of a register, or several of them: `%r1.b2`, `%r1.h10`."""

    register: Register
    part: str


@dataclass(frozen=True)
class SpecialRegister:
    """A special register, such as %tid.x."""

    name: str
    element: str = ""


@dataclass(frozen=True)
class Symbol:
    """The address of a variable in its own state space."""

    name: str
    space: str
    address: int
    size: int
    #: Bytes from the variable's first byte to this address.
    into: int = 0


@dataclass(frozen=True)
class StackVariable:
    """A variable of a function that may call itself: an offset from where its frame on the stack begins."""

    register: Register
    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Negated:
    """`!p`, or `-x`."""

    operator: str
    operand: ResolvedOperand


@dataclass(frozen=True)
class OperandList:
    """A vector of operands, a group of arguments, or the two destinations of `p|q`."""

    elements: tuple[ResolvedOperand, ...]


@dataclass(frozen=True)
class MemoryOperand:
    """`[base+offset]`: the base is a register, a variable or a number."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class Sink:
    """`_`: the result is dropped."""


@dataclass(frozen=True)
class BranchTarget:
    """A label, or the labels of a list: their positions in the body of the function."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Callee:
    """A function that is called by name."""

    name: str


@dataclass(frozen=True)
class IndirectCallee:
    """The functions that a register with a function's address may lead to."""

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
    | Sink
    | BranchTarget
    | Callee
    | IndirectCallee
)


def elements_of(operand: ResolvedOperand) -> tuple[ResolvedOperand, ...]:
    """The elements of a vector or a pair; a single operand is its own element."""
    return operand.elements if isinstance(operand, OperandList) else (operand,)


def registers_in(operand: ResolvedOperand) -> Iterator[Register]:
    """Every register that an operand names: itself, its elements, its address, what it negates."""
    match operand:
        case Register():
            yield operand
        case OperandList(elements):
            for each in elements:
                yield from registers_in(each)
        case Negated(_, inner):
            yield from registers_in(inner)
        case MemoryOperand(base, _):
            yield from registers_in(base)
        case RegisterPart(register) | IndirectCallee(register) | StackVariable(register):
            yield register
