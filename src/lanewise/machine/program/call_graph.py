"""The call graph of a kernel: the device functions that it reaches, and their order.

A function that may be active twice in one thread, or that allocates stack memory, needs frames on the stack.
"""

from collections.abc import Iterator

from lanewise.errors import LanewiseError
from lanewise.machine.errors import Unsupported
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.instruction_table import record_of
from lanewise.machine.program.ops import PROVIDED
from lanewise.ptx import (
    Function,
    Initialiser,
    Label,
    Loc,
    Module,
    Name,
    Operation,
    Prototype,
    SymbolAddress,
    Targets,
)
from lanewise.ptx import Value as Initial

#: How the names of functions begin by which a kernel starts other work; cudadevrt has them.
_DEVICE_RUNTIME = (
    "cudaLaunchDevice", "cudaGetParameterBuffer", "cudaGraph", "cudaDevice", "cudaStream", "cudaEvent",
)  # fmt: skip


class CallGraph:
    """The functions that a kernel reaches, by name or through function pointers in registers."""

    def __init__(self, module: Module, entry: Function) -> None:
        self.module, self.entry = module, entry
        #: Functions whose address is taken.
        self.address_taken: dict[str, None] = {}
        self.calls: dict[str, dict[str, None]] = {}
        #: Functions that call through registers, that allocate stack memory, and that the machine provides.
        self.indirect: set[str] = set()
        self.allocating: set[str] = set()
        self.provided: set[str] = set()
        for variable in module.variables.values():
            for name in _initial_names(variable.initialiser):
                self._take(name)
        self._scan(entry)
        if self.indirect:
            # These functions may call through registers and take addresses themselves.
            while missing := [name for name in self.address_taken if name not in self.calls]:
                for name in missing:
                    self._scan(self.function(name, 0))
        for name in self.indirect:
            self.calls[name].update(self.address_taken)
        self.order, self.framed = self._ordered()

    def function(self, name: str, line: int) -> Function:
        """Return a device function with a body, by name."""
        function = self.module.functions.get(self.module.aliases.get(name, name))
        if function is None or function.body is None:
            if name.startswith(_DEVICE_RUNTIME):
                raise Unsupported(
                    f"line {line}: {name} is called: dynamic parallelism, device graphs and the rest of the "
                    "device's runtime are not run here"
                )
            raise Unsupported(f"line {line}: {name} is called, but this PTX has no body for it")
        return function

    def _take(self, name: str) -> None:
        """Note that the address of a function is taken."""
        name = self.module.aliases.get(name, name)
        function = self.module.functions.get(name)
        if function is not None and function.body is not None:
            self.address_taken[name] = None

    def _scan(self, first: Function) -> None:
        """Collect the calls of a function and of those that it calls by name."""
        waiting = [first]
        while waiting:
            function = waiting.pop()
            if function.name in self.calls:
                continue
            calls = self.calls[function.name] = {}
            for statement in function.body or ():
                if not isinstance(statement, Operation):
                    continue
                record = record_of(statement.opcode, statement.modifiers)
                if record is not None and record.takes_stack:
                    self.allocating.add(function.name)
                if record is None or record.ends is not BlockEnd.CALL:
                    for operand in statement.operands:
                        if (
                            isinstance(operand, Name)
                            and function.variable(operand.name, statement.scope) is None
                        ):
                            self._take(operand.name)
                    continue
                call = statement.call()
                if function.variable(call.target, statement.scope) is not None:
                    self.indirect.add(function.name)
                    listed = targets(function, call.prototype, statement)
                    for name in listed.names if isinstance(listed, Targets) else ():
                        self._take(name)
                    continue
                name = self.module.aliases.get(call.target, call.target)
                if name in PROVIDED and getattr(self.module.functions.get(name), "body", None) is None:
                    self.provided.add(name)
                    continue
                calls[name] = None
                waiting.append(self.function(name, statement.line))

    def _ordered(self) -> tuple[list[str], set[str]]:
        """Return callees before callers as far as possible, and the functions that need frames.

        Functions in a cycle need frames; cycles are Tarjan's strongly connected components.
        """
        order: list[str] = []
        framed = {name for name in self.allocating if name != self.entry.name}
        number: dict[str, int] = {}
        low: dict[str, int] = {}
        unfinished: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = []

        def begin(name: str) -> None:
            number[name] = low[name] = len(number)
            unfinished.append(name)
            stack.append((name, iter(self.calls[name])))

        begin(self.entry.name)
        while stack:
            name, rest = stack[-1]
            callee = next(rest, None)
            if callee is not None:
                if callee not in number:
                    begin(callee)
                elif callee in unfinished:
                    low[name] = min(low[name], number[callee])
                continue
            stack.pop()
            order.append(name)
            if stack:
                caller = stack[-1][0]
                low[caller] = min(low[caller], low[name])
            if low[name] == number[name]:
                first = unfinished.index(name)
                together = unfinished[first:]
                del unfinished[first:]
                if len(together) > 1 or name in self.calls[name]:
                    framed.update(together)
        return order, framed

    def candidates(self, function: Function, prototype: str, operation: Operation) -> tuple[str, ...]:
        """Return the functions that a call through a register may lead to."""
        listed = targets(function, prototype, operation)
        if isinstance(listed, Targets):
            return tuple(self.module.aliases.get(name, name) for name in listed.names)
        wanted = _shape(listed.parameters), _shape(listed.returns)
        names = []
        for name in self.address_taken:
            other = self.module.functions[name]
            if (_shape(other.parameters), _shape(other.returns)) == wanted:
                names.append(name)
        return tuple(names)  # without any, every call is a bad one


def _shape(variables: object) -> list[tuple[int, bool]]:
    """Return size and kind of each parameter, to compare prototypes."""
    assert isinstance(variables, tuple | list)
    return [(variable.size, variable.space == "reg") for variable in variables]


def targets(function: Function, name: str, operation: Operation) -> Prototype | Targets:
    """Return the `.callprototype` or `.calltargets` behind a label."""
    position = function.label(name, operation.scope) if name else None
    body = function.body or []
    following = None
    if position is not None:
        following = next(
            (statement for statement in body[position + 1 :] if not isinstance(statement, Loc | Label)), None
        )
    if not isinstance(following, Prototype | Targets):
        raise LanewiseError(
            f"line {operation.line}: '{operation}': a call through a register ends with the label of a "
            ".callprototype or .calltargets"
        )
    return following


def _initial_names(value: Initial | None) -> Iterator[str]:
    """Yield the names in a variable's initial value."""
    if isinstance(value, Initialiser):
        for item in value.items:
            yield from _initial_names(item)
    elif isinstance(value, SymbolAddress):
        yield value.name
