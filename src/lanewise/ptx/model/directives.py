"""Variables, and the directives: what a module says beside instructions, each with its line and column.

Variables are also the parameters of functions; where one lies in memory is the machine's business. Debugging
sections are kept as they are; nothing here interprets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from lanewise.ptx.model.statements import Immediate, Label
from lanewise.records import record

_WIDTH = re.compile(r"[a-z]+([0-9]+)(?:x([0-9]+))?")


@record(frozen=True)
class SymbolAddress:
    """The address of a symbol as an initial value: `x+4`, `generic(x)`, `0xFF00(x)` (bytes under a mask)."""

    name: str
    offset: int = 0
    generic: bool = False
    mask: int | None = None

    def __str__(self) -> str:
        name = f"generic({self.name})" if self.generic else self.name
        address = f"{name}+{self.offset}" if self.offset else name
        return address if self.mask is None else f"{self.mask:#x}({address})"


@record(frozen=True)
class Setting:
    """A field of a texture, sampler or surface: `filter_mode = nearest`."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@record(frozen=True)
class Initialiser:
    """A list in braces; its items may be lists."""

    items: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.items))}}}"


Value = Immediate | SymbolAddress | Setting | Initialiser


@record(frozen=True)
class Attribute:
    """One of `.attribute(…)`: `.managed`, `.unified(1, 2)`."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f".{self.name}({', '.join(map(str, self.arguments))})" if self.arguments else f".{self.name}"


@record(frozen=True)
class Pointer:
    """`.ptr` of a parameter: to which state space it points (empty: generic), and how aligned that is."""

    space: str = ""
    align: int = 0

    def __str__(self) -> str:
        return f".ptr{f' .{self.space}' if self.space else ''}{f' .align {self.align}' if self.align else ''}"


@record()
class Variable:
    """A declaration: state space, type, name, and whatever else was said.

    `count` stands for a range of registers: `%r<10>` declares %r0 to %r9; -1 where there is none. `dims` are
    the sizes of an array, outermost first, 0 where one is left open. `align` is 0 where nothing is said.

    >>> from lanewise.ptx import parse
    >>> module = parse(".version 9.0\\n.target sm_80\\n.shared .align 16 .b8 tile[2][64];")
    >>> tile = module.variables["tile"]
    >>> tile.space, tile.align, tile.dims, tile.size
    ('shared', 16, (2, 64), 128)
    """

    space: str
    type: str
    name: str
    vector: int = 1
    align: int = 0
    dims: tuple[int, ...] = ()
    count: int = -1
    initialiser: Value | None = None
    linking: str = ""
    attributes: tuple[Attribute, ...] = ()
    pointer: Pointer | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    scope: int = field(default=0, compare=False)

    @property
    def element_size(self) -> int:
        """Bytes of one element: the type, times the vector's length; none of predicates and opaque types."""
        match = _WIDTH.fullmatch(self.type)
        width = int(match.group(1)) * int(match.group(2) or 1) // 8 if match else 0
        return width * self.vector

    @property
    def size(self) -> int:
        """Bytes it occupies; a first size left open is as large as its initial value, if it has one."""
        elements = 1
        for place, dim in enumerate(self.dims):
            if dim == 0 and place == 0 and isinstance(self.initialiser, Initialiser):
                dim = len(self.initialiser.items)
            elements *= dim
        return elements * self.element_size

    @property
    def alignment(self) -> int:
        """Bytes its address is a multiple of: what `.align` says, else the size of one element."""
        return self.align or max(self.element_size, 1)

    def names(self) -> Iterator[str]:
        """Every name it declares."""
        if self.count < 0:
            yield self.name
        else:
            yield from (f"{self.name}{number}" for number in range(self.count))

    @property
    def declaration(self) -> str:
        """Its text, without a semicolon."""
        parts = [f".{self.linking}"] if self.linking else []
        parts.append(f".{self.space}")
        if self.attributes:
            parts.append(f".attribute({', '.join(map(str, self.attributes))})")
        if self.align:
            parts.append(f".align {self.align}")
        if self.vector > 1:
            parts.append(f".v{self.vector}")
        parts.append(f".{self.type}")
        if self.pointer:
            parts.append(str(self.pointer))
        dims = "".join(f"[{dim or ''}]" for dim in self.dims)
        parts.append(f"{self.name}{f'<{self.count}>' if self.count >= 0 else ''}{dims}")
        if self.initialiser is not None:
            parts.append(f"= {self.initialiser}")
        return " ".join(parts)

    def __str__(self) -> str:
        return f"{self.declaration};"


@record()
class Pragma:
    """`.pragma`: strings for ptxas."""

    strings: tuple[str, ...]
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f".pragma {', '.join(self.strings)};"


@record()
class File:
    """`.file`: the number by which `.loc` speaks of a source file."""

    index: int
    name: str
    timestamp: int | None = None
    size: int | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        more = (
            f", {self.timestamp}, {self.size}" if self.timestamp is not None and self.size is not None else ""
        )
        return f'.file {self.index} "{self.name}"{more}'


@record()
class Alias:
    """`.alias`: one more name of a function."""

    name: str
    target: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f".alias {self.name}, {self.target};"


@record()
class Limit:
    """A directive that bounds or tunes a function: `.maxntid 128, 1, 1`, `.explicitcluster`, `.noreturn`."""

    name: str
    values: tuple[int, ...] = ()
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f".{self.name} {', '.join(map(str, self.values))}".rstrip()


@record()
class Prototype:
    """`.callprototype`: what a function that is called through a register takes and gives."""

    returns: tuple[Variable, ...]
    name: str
    parameters: tuple[Variable, ...]
    limits: tuple[Limit | Pragma, ...] = ()
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        returns = f"({', '.join(part.declaration for part in self.returns)}) " if self.returns else ""
        limits = "".join(f" {limit}" for limit in self.limits)
        parameters = ", ".join(part.declaration for part in self.parameters)
        return f".callprototype {returns}{self.name} ({parameters}){limits};"


@record()
class Targets:
    """`.branchtargets` or `.calltargets`: where `brx.idx` or an indirect call may go."""

    kind: str
    names: tuple[str, ...]
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f".{self.kind} {', '.join(self.names)};"


@record(frozen=True)
class Data:
    """`.b8`, `.b16`, `.b32` or `.b64` and its values, in a section: numbers, or labels as text."""

    bits: int
    values: tuple[int | str, ...]

    def __str__(self) -> str:
        return f".b{self.bits} {', '.join(map(str, self.values))}"


@record()
class Section:
    """`.section`: debugging data, kept as it is."""

    name: str
    items: tuple[Data | Label, ...]
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return "\n".join((f".section {self.name}", "{", *map(str, self.items), "}"))


@record()
class Dwarf:
    """A line `@@DWARF …` of old compilers, kept as it is."""

    text: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"@@DWARF {self.text}"
