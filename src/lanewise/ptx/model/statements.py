"""What stands in the body of a function: instructions with their operands, labels, blocks, `.loc`.

They print themselves as PTX. Places, the `.loc` in force and the scope do not count when two are compared.
Operands are hashable; what a name stands for, the scopes of its function say.
"""

from __future__ import annotations

import struct
from dataclasses import field
from functools import lru_cache

from lanewise.errors import IllegalInstruction
from lanewise.isa import Instruction, instruction
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


#: The opcodes that `lanewise.isa` knows; `wgmma` also has fences and waits.
MATRIX_OPCODES = frozenset(("mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"))
#: The same text is asked for by whoever resolves, compiles, checks or counts it.
_instruction = lru_cache(maxsize=4096)(instruction)


@record()
class Loc:
    """`.loc`: the line of the source from which the following instructions were compiled."""

    file: int
    source_line: int
    source_column: int
    function: str = ""
    function_offset: int = 0
    inlined_at: tuple[int, int, int] | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    @property
    def place(self) -> tuple[int, int, int]:
        """The file, line and column that it names."""
        return self.file, self.source_line, self.source_column

    def __str__(self) -> str:
        text = f".loc {self.file} {self.source_line} {self.source_column}"
        if self.function:
            offset = f"+{self.function_offset}" if self.function_offset else ""
            text += f", function_name {self.function}{offset}"
        if self.inlined_at:
            text += f", inlined_at {' '.join(map(str, self.inlined_at))}"
        return text


@record()
class Operation:
    """An instruction: opcode, modifiers in the order written, operands, and the predicate before it.

    >>> from lanewise.ptx import parse
    >>> module = parse(".version 9.0\\n.target sm_80\\n.entry k() { @!p shfl.sync.idx.b32 a|q, b, 0, 31; }")
    >>> operation = module["k"].body[0]
    >>> operation.opcode, operation.modifiers, str(operation.guard), str(operation.operands[0])
    ('shfl', ('sync', 'idx', 'b32'), '@!p', 'a|q')
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    scope: int = field(default=0, compare=False)
    loc: Loc | None = field(default=None, compare=False)

    @property
    def head(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.opcode, *self.modifiers))

    def instruction(self) -> Instruction | None:
        """The matrix instruction that this is, from the catalogue; None if it is not one.

        >>> from lanewise.ptx import parse
        >>> text = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r3];"
        >>> parse(".version 9.0\\n.target sm_80\\n.entry k() { " + text + " }")["k"].body[0].instruction()
        <ldmatrix.sync.aligned.m8n8.x2.shared.b16>
        """
        if self.opcode not in MATRIX_OPCODES or (
            self.opcode == "wgmma" and "mma_async" not in self.modifiers
        ):
            return None
        try:
            return _instruction(f"{self.head} {', '.join(map(str, self.operands))}")
        except IllegalInstruction as error:
            raise IllegalInstruction(f"line {self.line}: {error}") from None

    def call(self) -> Call:
        """Who is called, with what: for `call` alone."""
        operands = list(self.operands)
        results = operands.pop(0) if operands and isinstance(operands[0], Group) else Group(())
        target = operands.pop(0) if operands else None
        arguments = operands.pop(0) if operands and isinstance(operands[0], Group) else Group(())
        prototype = operands.pop(0) if operands else None
        if (
            self.opcode != "call" or operands
            or not isinstance(results, Group) or not isinstance(target, Name)
            or not isinstance(arguments, Group) or not isinstance(prototype, Name | None)
        ):  # fmt: skip
            raise IllegalInstruction(
                f"line {self.line}: '{self}' is not: call (results), function, (arguments), prototype;"
            )
        return Call(results.elements, target.name, arguments.elements, prototype.name if prototype else "")

    def __str__(self) -> str:
        guard = f"{self.guard} " if self.guard else ""
        operands = f" {', '.join(map(str, self.operands))}" if self.operands else ""
        return f"{guard}{self.head}{operands};"


@record(frozen=True)
class Call:
    """The parts of a call: results, the function or the register that holds it, arguments, prototype."""

    results: tuple[Operand, ...]
    target: str
    arguments: tuple[Operand, ...]
    prototype: str


@record()
class Label:
    """A name that a branch may go to, or that the directive after it has."""

    name: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    scope: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.name}:"


@record()
class BlockStart:
    """`{`: from here on, names are declared in scope number `scope`."""

    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    scope: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return "{"


@record()
class BlockEnd:
    """`}`: the end of scope number `scope`."""

    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    scope: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return "}"
