"""The state of Python's objects at one point of a trace: what names and containers hold, by identity.

A *location* is a name, or a slot of a container: an element of a list, a key of a dict, an attribute, a cell
of a closure. Branches and loops carry locations. Two locations that hold one container share it, as in
Python; two that hold one number do not. `containers.py` reads and writes contents; `merge.py` joins states.

Only the running kernel knows some aliases: after `if c: a = b` with lists a and b, Python's `a[0] = x`
changes b too where c holds. A trace cannot say that, and does not have to as long as nobody changes one of
them in place. So it notes such containers, and raises an error once one is changed while another is still in
reach.
"""

from __future__ import annotations

import dis
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from lanewise.lang.frontend.containers import (
    GlobalVariable,
    contents,
    identity,
    is_container,
    is_frozen_node,
    is_of_user,
    set_contents,
)
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import RUNTIME_NAME, AnyValue, Node, Traced, children
from lanewise.records import record

#: Elements from which on a global list of Python values is taken for a table.
_LONG = 256
#: The types of most leaves, which lead nowhere.
_LEAVES = frozenset((Scalar, int, float, str, bool, type(None)))
_LANEWISE = str(Path(__file__).parents[2])


@record(frozen=True)
class Scope:
    """The global variables of a rewritten function, and its own that functions inside it capture.

    These are given by the code of the functions inside it.
    """

    globals: Mapping[str, AnyValue]
    captured: Mapping[CodeType, frozenset[str]] = field(default_factory=dict)


def captured_names(code: CodeType) -> dict[CodeType, frozenset[str]]:
    """Return the variables of a function that those defined inside it capture, by the code of these."""
    captured: dict[CodeType, frozenset[str]] = {}

    def collect(outer: CodeType, names: frozenset[str]) -> None:
        for constant in outer.co_consts:
            if isinstance(constant, CodeType):
                captured[constant] = names.intersection(constant.co_freevars)
                collect(constant, captured[constant])

    collect(code, frozenset(code.co_cellvars))
    return captured


@dataclass(slots=True, eq=False)
class Held:
    """What one location holds: a leaf, a frozen node made of `children`, or a reference to a container."""

    value: object
    children: list[Held] | None = None
    container: Container | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether it is neither made of others nor a container."""
        return self.children is None and self.container is None


class Container:
    """The contents that a container had at one point; `name` is the variable by which it was reached."""

    __slots__ = ("form", "held", "key", "name", "value")

    def __init__(self, value: AnyValue, name: str) -> None:
        self.value, self.key, self.name = value, identity(value), name
        self.form: AnyValue = None
        self.held: list[Held] = []

    def note_contents(self) -> None:
        """Note what the container itself holds now."""
        self.form, values = contents(self.value)
        self.held = [Held(value) for value in values]

    def restore(self) -> None:
        """Give the container these contents again."""
        set_contents(self.value, self.form, [held.value for held in self.held])

    def is_unchanged(self) -> bool:
        """Return whether the container holds the very same values now."""
        form, values = contents(self.value)
        return bool(form == self.form) and all(
            now is held.value for now, held in zip(values, self.held, strict=True)
        )

    def holds_traced(self) -> bool:
        """Return whether a value of the kernel is among the contents; those of containers in it count not."""
        return any(map(_holds_traced, self.held))


def _holds_traced(held: Held) -> bool:
    if held.children is not None:
        return isinstance(held.value, Traced) or any(map(_holds_traced, held.children))
    return isinstance(held.value, Traced)


def holds_container(held: Held) -> bool:
    """Return whether a value is a container, or made of values among which there is one."""
    return held.container is not None or any(map(holds_container, held.children or ()))


class State:
    """What names hold at one point of a trace, and the contents of every container that they lead to.

    Functions lead to the variables that they capture and to the global ones that they name. A container that
    only a global variable leads to, and in which there is no value of the kernel, is left to Python.
    """

    def __init__(
        self,
        names: Mapping[str, object],
        scope: Scope | None = None,
        also: Iterable[object] = (),
        containers: Iterable[Container] = (),
        read: Iterable[str] = (),
    ) -> None:
        self.containers: dict[AnyValue, Container] = {}
        #: Containers that a global variable alone leads to.
        self.of_globals: set[object] = set()
        #: How many locations hold each container.
        self.references: Counter[AnyValue] = Counter()
        self._names = names
        self._captured = scope.captured if scope is not None else {}
        self._functions: dict[int, object] = {}
        self._new_functions: list[AnyValue] = []
        self.roots = {name: self.held(value, name) for name, value in names.items()}
        for value in also:
            self.held(value, "")
        for known in containers:
            self._container(known.value, known.name)
        self._follow_functions()
        if scope is not None:
            self._follow_globals(scope.globals, [name for name in read if name not in names])
            self._follow_functions()

    def held(self, value: object, name: str) -> Held:
        """Return what a location holds, and note the containers that it leads to."""
        if type(value) in _LEAVES:
            return Held(value)
        if is_container(value):
            container = self._container(value, name)
            self.references[container.key] += 1
            return Held(value, container=container)
        if is_frozen_node(value):
            return Held(value, [self.held(child, name) for child in children(value)])
        if callable(value):
            self._note_function(value)
        return Held(value)

    def _container(self, value: object, name: str) -> Container:
        key = identity(value)
        container = self.containers.get(key)
        if container is None:
            container = self.containers[key] = Container(value, name)
            container.form, values = contents(value)
            container.held = [self.held(value, name) for value in values]
        return container

    # functions ------------------------------------------------------------------------------------------

    def _note_function(self, value: object) -> None:
        """Note a function, method or device function, whose variables are followed later."""
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType | MethodType | partial) and id(value) not in self._functions:
            self._functions[id(value)] = value
            self._new_functions.append(value)

    def _follow_functions(self) -> None:
        """Follow the variables that functions capture, and then the global ones that they name."""
        done: list[FunctionType] = []
        while self._new_functions:
            value = self._new_functions.pop()
            if isinstance(value, MethodType):
                self.held(value.__self__, "")
                self._note_function(value.__func__)
            elif isinstance(value, partial):
                self.held((value.func, value.args, *value.keywords.values()), "")
            elif is_of_user(value) or RUNTIME_NAME in value.__code__.co_freevars:
                self._follow_captured(value)
                done.append(value)
            if not self._new_functions:
                while done:
                    function = done.pop()
                    read, bound = _globals_of(function.__code__)
                    for name in bound:
                        self.held(GlobalVariable(function.__globals__, name), name)
                    self._follow_globals(function.__globals__, [name for name in read if name not in bound])

    def _follow_captured(self, function: FunctionType) -> None:
        """Follow the variables that a function captures, and its defaults.

        A variable of the function that is traced is a name, which that function binds itself: what it holds
        is given, and the cell may not hold it yet.
        """
        own = self._captured.get(function.__code__, frozenset())
        for value in (function.__defaults__, *(function.__kwdefaults__ or {}).values()):
            self.held(value, "")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            _, values = contents(cell)
            if name == RUNTIME_NAME:
                continue
            if name not in own:
                self.held(cell, name)
            elif name not in self._names:
                for value in values:
                    self.held(value, name)

    def _follow_globals(self, namespace: Mapping[str, object], read: Iterable[str]) -> None:
        before = set(self.containers)
        for name in read:
            if name in namespace and not _is_table(namespace[name]):
                self.held(namespace[name], name)
        self.of_globals |= self.containers.keys() - before

    # restoring ------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Give every container the contents that it had."""
        for container in self.containers.values():
            if not container.is_unchanged() and not self.is_left_to_python(container):
                container.restore()

    def is_left_to_python(self, container: Container) -> bool:
        """Return whether a container has nothing to do with the kernel, now and at the time of this state."""
        if container.key not in self.of_globals or container.holds_traced():
            return False
        return not any(isinstance(content, Traced) for content in contents(container.value)[1])

    def is_changed(self) -> bool:
        """Return whether a container has other contents now."""
        return any(
            not container.is_unchanged() and not self.is_left_to_python(container)
            for container in self.containers.values()
        )


def _is_table(value: object) -> bool:
    """Return whether a value is a long list or dict of Python values, which no kernel changes."""
    if not isinstance(value, list | dict) or len(value) < _LONG:
        return False
    return not any(
        isinstance(item, Traced) for item in (value.values() if isinstance(value, dict) else value)
    )


@cache
def _globals_of(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the global variables that code names, in functions inside it too, and those that it binds."""
    read, bound = set(code.co_names), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_GLOBAL":
            bound.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner_read, inner_bound = _globals_of(constant)
            read.update(inner_read)
            bound.update(inner_bound)
    return tuple(sorted(read)), tuple(sorted(bound))


def everything_in_reach(names: Mapping[str, object] | None, scope: Scope | None) -> State:
    """Return what some names of the function that is traced lead to, and all names of those that called it.

    None stands for all names of the function itself.
    """
    around: list[AnyValue] = []
    frame: AnyValue = sys._getframe(1)
    is_caller = names is None
    while frame is not None:
        code = frame.f_code
        if RUNTIME_NAME in code.co_freevars or not code.co_filename.startswith(_LANEWISE):
            if is_caller:
                around += [value for name, value in frame.f_locals.items() if name[:2] != "__"]
            is_caller = True  # the first is the function itself
        elif code.co_name == "call" and code.co_filename.endswith("source.py"):
            break  # where the trace began
        frame = frame.f_back
    return State(names or {}, scope, around)


#: The name that stands for what `a if c else b` gives.
CHOICE = "value"


class UncertainAliases:
    """Containers of which two may be one object, with their contents when that was last certain."""

    def __init__(self, containers: list[Container], what: str) -> None:
        self.containers, self.what = containers, what
        self.accept()

    def accept(self) -> None:
        """Take the contents that the containers have now for unchanged."""
        for container in self.containers:
            container.note_contents()

    def check(self) -> None:
        """Raise an error if one of them was changed in place while another is in reach."""
        if all(container.is_unchanged() for container in self.containers):
            return
        reach = everything_in_reach(None, None).containers
        if sum(container.key in reach for container in self.containers) > 1:
            raise current().error(may_be_one(self.containers, self.what))
        current().changed_aliases.update(container.key for container in self.containers)
        self.accept()  # on this path nobody else can see the change


def may_be_one(
    containers: list[Container], what: str, change: str = "to change one of them in place, "
) -> str:
    """Return the message that a container is changed of which another location may hold the same."""
    names = sorted({container.name for container in containers} - {"", CHOICE})
    which = " and ".join(names) if len(names) > 1 else f"two values of {names[0]}" if names else "two values"
    kind = containers[0].value
    noun = "fragment" if isinstance(kind, Node) else type(kind).__name__
    return (
        f"{which} begin as one {noun} and part, or become one, in {what}, which only the running kernel "
        f"decides: {change}make a {noun} for each before it"
        + (", as in [mma.zeros() for _ in range(2)]" if isinstance(kind, Node) else "")
    )


def note_uncertain(
    parts: list[tuple[str, list[Any]]], reach: State, what: str, made: Collection[Any] = ()
) -> None:
    """Note groups of containers, each with a name, of which those that are still in reach may be one.

    `made` are containers that come into reach just now. What may be one with a container that is known to be
    uncertain joins the others of that one.
    """
    noted = current().uncertain_aliases
    known = {one.key: one for group in noted for one in group.containers}
    groups = [{one.key: one for one in group.containers} for group in noted]
    for name, values in parts:
        group = {identity(value): Container(value, name) for value in values}
        for other in [candidate for candidate in groups if not candidate.keys().isdisjoint(group)]:
            groups.remove(other)
            group = {**group, **other}
        groups.append(group)
    new = set(map(identity, made))
    before = {frozenset(one.key for one in group.containers): group for group in noted}
    noted.clear()
    for group in groups:
        kept = [
            member for key, member in group.items() if key in known or key in new or key in reach.containers
        ]
        if len(kept) > 1:
            same = before.get(frozenset(member.key for member in kept))
            noted.append(same or UncertainAliases(kept, what))


def may_be_aliases_of(keys: Collection[Any]) -> set[object]:
    """Return the keys of all containers that may be one of some, those themselves left out."""
    others: set[Any] = set()
    for group in current().uncertain_aliases:
        members = {container.key for container in group.containers}
        if not members.isdisjoint(keys):
            others |= members
    return others


def check_aliases() -> None:
    """Raise an error if a container was changed in place that may be another one's alias."""
    for alias in tuple(current().uncertain_aliases):
        alias.check()


def accept_contents() -> None:
    """Take what containers hold now for unchanged: a branch or loop has set it, and not the program."""
    for alias in current().uncertain_aliases:
        alias.accept()
