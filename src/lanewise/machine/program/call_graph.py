"""Who calls whom: the device functions that a kernel reaches, directly or through registers, and their order.

A function that may be active twice in one thread, or that takes memory from the stack, needs frames there.
"""

from __future__ import annotations

from collections.abc import Iterator

from lanewise.errors import LanewiseError
from lanewise.machine.errors import Unsupported
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


class CallGraph:
    """The functions that a kernel reaches."""

    def __init__(self, module: Module, entry: Function) -> None:
        self.module, self.entry = module, entry
        #: Functions whose address somebody has.
        self.taken: dict[str, None] = {}
        self.calls: dict[str, dict[str, None]] = {}
        #: Which functions call through registers, take memory from the stack, call the machine's own.
        self.indirect: set[str] = set()
        self.allocating: set[str] = set()
        self.provided: set[str] = set()
        for variable in module.variables.values():
            for name in _initial_names(variable.initialiser):
                self._take(name)
        self._scan(entry)
        if self.indirect:
            # What is found this way may call through registers and take addresses in turn.
            while missing := [name for name in self.taken if name not in self.calls]:
                for name in missing:
                    self._scan(self.function(name, 0))
        for name in self.indirect:
            self.calls[name].update(self.taken)
        self.order, self.framed = self._ordered()

    def function(self, name: str, line: int) -> Function:
        """A device function with a body, by name."""
        found = self.module.functions.get(self.module.aliases.get(name, name))
        if found is None or found.body is None:
            raise Unsupported(f"line {line}: {name} is called, but this PTX has no body for it")
        return found

    def _take(self, name: str) -> None:
        name = self.module.aliases.get(name, name)
        found = self.module.functions.get(name)
        if found is not None and found.body is not None:
            self.taken[name] = None

    def _scan(self, first: Function) -> None:
        """A function and those that it calls by name."""
        waiting = [first]
        while waiting:
            function = waiting.pop()
            if function.name in self.calls:
                continue
            calls = self.calls[function.name] = {}
            for statement in function.body or ():
                if not isinstance(statement, Operation):
                    continue
                if statement.opcode == "alloca":
                    self.allocating.add(function.name)
                if statement.opcode != "call":
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
        """Callees before their callers, as far as there is such an order; and who is in a cycle."""
        order: list[str] = []
        framed = {name for name in self.allocating if name != self.entry.name}
        number: dict[str, int] = {}
        low: dict[str, int] = {}
        open_ones: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = []

        def begin(name: str) -> None:
            number[name] = low[name] = len(number)
            open_ones.append(name)
            stack.append((name, iter(self.calls[name])))

        begin(self.entry.name)
        while stack:
            name, rest = stack[-1]
            callee = next(rest, None)
            if callee is not None:
                if callee not in number:
                    begin(callee)
                elif callee in open_ones:
                    low[name] = min(low[name], number[callee])
                continue
            stack.pop()
            order.append(name)
            if stack:
                caller = stack[-1][0]
                low[caller] = min(low[caller], low[name])
            if low[name] == number[name]:
                place = open_ones.index(name)
                together = open_ones[place:]
                del open_ones[place:]
                if len(together) > 1 or name in self.calls[name]:
                    framed.update(together)
        return order, framed

    def candidates(self, function: Function, prototype: str, operation: Operation) -> tuple[str, ...]:
        """The functions that a call through a register may lead to."""
        listed = targets(function, prototype, operation)
        if isinstance(listed, Targets):
            return tuple(self.module.aliases.get(name, name) for name in listed.names)
        wanted = _shape(listed.parameters), _shape(listed.returns)
        found = []
        for name in self.taken:
            other = self.module.functions[name]
            if (_shape(other.parameters), _shape(other.returns)) == wanted:
                found.append(name)
        if not found:
            raise Unsupported(
                f"line {operation.line}: '{operation}': this PTX has no function of that prototype whose "
                "address is taken"
            )
        return tuple(found)


def _shape(variables: object) -> list[tuple[int, bool]]:
    assert isinstance(variables, tuple | list)
    return [(variable.size, variable.space == "reg") for variable in variables]


def targets(function: Function, name: str, operation: Operation) -> Prototype | Targets:
    """The `.callprototype` or `.calltargets` behind a label."""
    place = function.label(name, operation.scope) if name else None
    body = function.body or []
    following = None
    if place is not None:
        following = next((each for each in body[place + 1 :] if not isinstance(each, Loc | Label)), None)
    if not isinstance(following, Prototype | Targets):
        raise LanewiseError(
            f"line {operation.line}: '{operation}': a call through a register ends with the label of a "
            ".callprototype or .calltargets"
        )
    return following


def _initial_names(value: Initial | None) -> Iterator[str]:
    """Names in a variable's initial value."""
    if isinstance(value, Initialiser):
        for item in value.items:
            yield from _initial_names(item)
    elif isinstance(value, SymbolAddress):
        yield value.name
