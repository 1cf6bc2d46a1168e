"""What stands in the body of a function: instructions, labels, blocks, `.loc`, with their lines and columns.

They print themselves as PTX. Places, the `.loc` in force and the scope do not count when two are compared.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache

from lanewise.errors import IllegalInstruction
from lanewise.isa import Instruction, instruction
from lanewise.ptx.model.operands import Group, Guard, Name, Operand
from lanewise.records import record

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
