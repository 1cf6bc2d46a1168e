"""Function and Scope: a kernel or device function as parsed, with its statements; `str` gives its PTX again.

What one statement looks like as text, each statement says itself.
"""

from collections.abc import Iterator
from dataclasses import field

from lanewise.ptx.model.directives import (
    Attribute,
    Dwarf,
    File,
    Limit,
    Pragma,
    Prototype,
    Section,
    Targets,
    Variable,
)
from lanewise.ptx.model.statements import BlockEnd, BlockStart, Label, Loc, Operation
from lanewise.records import record

Statement = (
    Operation
    | Label
    | Variable
    | BlockStart
    | BlockEnd
    | Loc
    | Pragma
    | File
    | Prototype
    | Targets
    | Section
    | Dwarf
)


@record()
class Scope:
    """What is declared between two braces: variables and labels, by name; `parent` is the scope around it.

    `labels` gives the index of a label in the body. Scope 0 is the function's; its parent is -1.
    """

    parent: int = -1
    #: By name; a range of registers (`%r<9>`) under its name and `<`, since `%r` may be another variable.
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    #: Names that `variable` was asked for, and what each of them is: kernels name a register many times.
    _answers: dict[str, Variable | None] = field(default_factory=dict, repr=False, compare=False)

    def declare(self, variable: Variable) -> None:
        """Enter a variable under its name, so that `variable` finds it."""
        self.variables[f"{variable.name}<" if variable.count >= 0 else variable.name] = variable
        self._answers.clear()

    def variable(self, name: str) -> Variable | None:
        """The variable of that name declared here, a member of a range of registers included."""
        if name not in self._answers:
            self._answers[name] = self._find(name)
        return self._answers[name]

    def _find(self, name: str) -> Variable | None:
        if name in self.variables:
            return self.variables[name]
        stem = name.rstrip("0123456789")
        while len(stem) < len(name):  # %r12 may be of the range %r<20> or of %r1<5>
            variable = self.variables.get(f"{stem}<")
            number = name[len(stem) :]
            plain = len(number) < 12 and (number == "0" or number[0] != "0")
            if variable is not None and plain and int(number) < variable.count:
                return variable
            stem = name[: len(stem) + 1]
        return None


@record()
class Function:
    """A kernel (`entry`) or a device function: parameters, limits, and the body as a flat list of statements.

    A body of None is a declaration. `scopes` are numbered as the braces open; every instruction, label and
    variable of the body has the number of its scope.
    """

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    linking: str = ""
    attributes: tuple[Attribute, ...] = ()
    limits: tuple[Limit | Pragma, ...] = ()
    body: list[Statement] | None = None
    scopes: list[Scope] = field(default_factory=list, compare=False)
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    def limit(self, name: str) -> tuple[int, ...] | None:
        """The values of a directive such as `maxntid`; None where it is not given."""
        return next(
            (limit.values for limit in self.limits if isinstance(limit, Limit) and limit.name == name), None
        )

    @property
    def operations(self) -> list[Operation]:
        """The instructions of the body in order, without labels, variables and directives."""
        return [statement for statement in self.body or () if isinstance(statement, Operation)]

    def variable(self, name: str, scope: int = 0) -> Variable | None:
        """What a name stands for in a scope: a variable there or further out, a parameter; else None.

        >>> from lanewise.ptx import parse
        >>> module = parse(".version 9.0\\n.target sm_80\\n.entry k(.param .u64 p) { .reg .b32 %r<4>; ret; }")
        >>> str(module["k"].function.variable("%r3")), module["k"].function.variable("%r4")
        ('.reg .b32 %r<4>;', None)
        """
        while 0 <= scope < len(self.scopes):
            variable = self.scopes[scope].variable(name)
            if variable is not None:
                return variable
            scope = self.scopes[scope].parent
        return next((part for part in (*self.parameters, *self.returns) if part.name == name), None)

    def label(self, name: str, scope: int = 0) -> int | None:
        """The index in the body of the label that a branch in a scope means; None if there is none."""
        while 0 <= scope < len(self.scopes):
            if name in self.scopes[scope].labels:
                return self.scopes[scope].labels[name]
            scope = self.scopes[scope].parent
        return None

    def __str__(self) -> str:
        """The PTX of the function, or of its declaration."""
        return "\n".join((*self._head(), *(self._braces() if self.body is not None else (";",))))

    def _head(self) -> Iterator[str]:
        """The lines before the body: what it is, its parameters one a line, and its limits."""
        words = [f".{self.linking}"] if self.linking else []
        words.append(".entry" if self.is_entry else ".func")
        if self.attributes:
            words.append(f".attribute({', '.join(map(str, self.attributes))})")
        if self.returns:
            words.append(f"({', '.join(variable.declaration for variable in self.returns)})")
        words.append(f"{self.name}(")
        yield " ".join(words)
        last = len(self.parameters) - 1
        for number, parameter in enumerate(self.parameters):
            yield f"\t{parameter.declaration}{',' if number < last else ''}"
        yield ")"
        yield from map(str, self.limits)

    def _braces(self) -> Iterator[str]:
        """The lines of the body, indented by the braces around them; labels stand at the margin."""
        yield "{"
        depth = 1
        for statement in self.body or ():
            depth -= isinstance(statement, BlockEnd)
            yield str(statement) if isinstance(statement, Label) else "\t" * min(depth, 8) + str(statement)
            depth += isinstance(statement, BlockStart)
        yield "}"
