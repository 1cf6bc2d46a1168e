"""What an instruction works on: names, constants, vectors, addresses, as PTX writes them.

All are frozen, hashable and print themselves; what a name stands for, the scopes of its function say.
"""

from __future__ import annotations

import struct
from dataclasses import field

from lanewise.records import record


@record(frozen=True)
class Name:
    """A register, a variable, a label, a function or a special register; `_` is the sink."""

    name: str

    def __str__(self) -> str:
        return self.name


@record(frozen=True)
class Immediate:
    """A constant: its type (`s64`, `u64`, `f64`, or `f32` for 0f…) and bits; `text` is how it was written.

    >>> from lanewise.ptx import constant
    >>> constant("0f3F800000").value, constant("-1").value, constant("(1 << 4) | 3").value
    (1.0, -1, 19)
    """

    type: str
    bits: int
    text: str = field(compare=False)

    @property
    def value(self) -> int | float:
        """The number that it is."""
        match self.type:
            case "s64":
                return self.bits - (self.bits >> 63 << 64)
            case "u64":
                return self.bits
            case "f32":
                return float(struct.unpack("<f", self.bits.to_bytes(4, "little"))[0])
            case _:
                return float(struct.unpack("<d", self.bits.to_bytes(8, "little"))[0])

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer, as against a floating-point number."""
        return self.type in ("s64", "u64")

    def __str__(self) -> str:
        return self.text


@record(frozen=True)
class Element:
    """One element of a vector, or a part of a register: `%tid.x`, `v.w`, `%r1.b0`."""

    name: str
    element: str

    def __str__(self) -> str:
        return f"{self.name}.{self.element}"


@record(frozen=True)
class Offset:
    """The address of a variable plus bytes, as an operand of `mov`: `table+16`."""

    name: str
    offset: int

    def __str__(self) -> str:
        return f"{self.name}+{self.offset}"


@record(frozen=True)
class Index:
    """An element of an array by its index: `table[3]`, `table[%r1]`, `table[%r1+3]`."""

    name: str
    register: str
    offset: int

    def __str__(self) -> str:
        inside = f"{self.register}+{self.offset}" if self.register and self.offset else self.register
        return f"{self.name}[{inside or self.offset}]"


@record(frozen=True)
class Unary:
    """A negated operand: `!%p1`, `-%r1`."""

    operator: str
    operand: Name | Element

    def __str__(self) -> str:
        return f"{self.operator}{self.operand}"


@record(frozen=True)
class Pair:
    """Two destinations written as one operand: `%p1|%p2`, `%r1|%p1`, `{%f1, %f2}|%p1`."""

    first: Name | Element | Vector
    second: Name | Element

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@record(frozen=True)
class Vector:
    """Registers side by side: `{%f1, %f2}`."""

    elements: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.elements))}}}"


@record(frozen=True)
class Group:
    """The arguments or the results of a call: `(param0, param1)`."""

    elements: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


@record(frozen=True)
class Address:
    """What stands in brackets: a base and bytes; `rest` is what follows a comma (`[map, {x, y}]`).

    >>> from lanewise.ptx import parse
    >>> module = parse(".version 9.0\\n.target sm_80\\n.entry k() { ld.global.u32 %r1, [%rd1+-8]; }")
    >>> module["k"].body[0].operands[1]
    Address(base=Name(name='%rd1'), offset=-8, rest=())
    """

    base: Name | Element | Immediate
    offset: int = 0
    rest: tuple[Operand, ...] = ()
    #: `[a+0]` means what `[a]` does, but ptxas -g adds the zero all the same.
    says_zero: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        first = f"{self.base}+{self.offset}" if self.offset or self.says_zero else str(self.base)
        return f"[{', '.join((first, *map(str, self.rest)))}]"


Operand = Name | Immediate | Element | Offset | Index | Unary | Pair | Vector | Group | Address


@record(frozen=True)
class Guard:
    """The predicate before an instruction: `@%p1`, `@!%p1`."""

    name: str
    negated: bool = False

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.name}"
