"""The code of a kernel while it is traced: operations, labels, variables, and the operands they are made of.

Registers and symbols get their names when `ptx_text.py` writes them; `builder.py` puts operations in order.
"""

from dataclasses import dataclass
from typing import Any


class Register:
    """A PTX register. It gets its name when the PTX is written, from the Python name if there is one."""

    __slots__ = ("alias", "hint", "in_place", "kind", "name")

    def __init__(self, kind: str, hint: str = "", in_place: bool = False) -> None:
        self.kind, self.hint = kind, hint
        #: Whether instructions change what it holds, as wgmma does its accumulators: whoever reads the value
        #: takes a copy, and loops carry the register itself.
        self.in_place = in_place
        self.name = ""
        #: The operand that is written instead, once it turned out that the register never changes.
        self.alias: object = None


class Symbol:
    """A variable in shared, local or global memory, or a label: named when the PTX is written."""

    __slots__ = ("hint", "name")

    def __init__(self, hint: str) -> None:
        self.hint, self.name = hint, ""


@dataclass(frozen=True, slots=True)
class Address:
    """The operand of a memory access, written as `[base+offset]`."""

    base: Any
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """A tensor map and the coordinates of a box in its tensor, written as `[map, {x, y}]`."""

    map: Any
    coordinates: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CallOperands:
    """The arguments or the results of a call, written in parentheses."""

    items: Any


@dataclass(frozen=True, slots=True)
class InlineText:
    """PTX text from the user with operands between its pieces, written as it stands."""

    pieces: Any


@dataclass(frozen=True, slots=True)
class ResultPair:
    """The two results of one instruction, written as `a|b`."""

    first: Any
    second: object


@dataclass(frozen=True, slots=True)
class NotPredicate:
    """A predicate that guards where it is false, written as `@!%p`."""

    register: Any


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line and a column of a Python file, to which errors and `.loc` refer."""

    file: str
    line: int
    column: int = 0


class Operation:
    """One PTX instruction; a `pure` one computes registers from registers and may be moved or repeated."""

    __slots__ = ("guard", "location", "opcode", "operands", "pure")

    def __init__(
        self, opcode: str, operands: tuple[object, ...], guard: object, pure: bool, location: SourceLocation
    ) -> None:
        self.opcode, self.operands, self.guard, self.pure = opcode, operands, guard, pure
        self.location = location


class Label:
    """A target of branches; `used` counts them, and a label that none uses is not written."""

    __slots__ = ("symbol", "used")

    def __init__(self, hint: str) -> None:
        self.symbol = Symbol(f"${hint}")
        self.used = 0


@dataclass(slots=True)
class Variable:
    """A declared variable: `.shared .align 16 .b8 name[bytes]`; a size of None for dynamic shared memory."""

    space: str
    symbol: Symbol
    size: int | None
    align: int
    text: bytes = b""


#: Operations and labels in the order in which they are written.
Code = list[Any]


def is_pure(code: Code) -> bool:
    """Whether code only computes registers: it has no label, no branch, no access to memory."""
    return all(isinstance(statement, Operation) and statement.pure for statement in code)
