"""Directives: what a module says beside instructions and variables, each with its line and column.

Debugging sections are kept as they are; nothing here interprets them.
"""

from dataclasses import field

from lanewise.ptx.model.statements import Label
from lanewise.ptx.model.variables import Variable
from lanewise.records import record


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
