"""The builder: instructions of the kernel being traced, in order, with registers, labels and Python lines.

It knows nothing of types or syntax; `text.py` writes what it holds as PTX.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lanewise.isa import arch_number
from lanewise.lang.errors import KernelError


class Register:
    """A PTX register. It gets its name when the PTX is written, from the Python name if there is one."""

    __slots__ = ("alias", "hint", "kind", "name")

    def __init__(self, kind: str, hint: str = "") -> None:
        self.kind, self.hint = kind, hint
        self.name = ""
        #: What stands in its place, once it turned out that it never changes.
        self.alias: Any = None


class Symbol:
    """A variable in shared, local or global memory, or a label: named when the PTX is written."""

    __slots__ = ("hint", "name")

    def __init__(self, hint: str) -> None:
        self.hint, self.name = hint, ""


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`."""

    base: Any
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments or results of a call, in parentheses."""

    items: Any


@dataclass(frozen=True, slots=True)
class Text:
    """Text with operands in it, as it is to be written."""

    parts: Any


@dataclass(frozen=True, slots=True)
class Pair:
    """Two results, `a|b`."""

    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate in its negated sense, as a guard: `@!%p`."""

    register: Any


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a Python file."""

    file: str
    line: int
    column: int = 0


class Operation:
    """One instruction."""

    __slots__ = ("guard", "opcode", "operands", "place", "pure")

    def __init__(self, opcode: str, operands: tuple[Any, ...], guard: Any, pure: bool, place: Place) -> None:
        self.opcode, self.operands, self.guard, self.pure, self.place = opcode, operands, guard, pure, place


class Label:
    """A place to branch to; `note` says in words what is there."""

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


Code = list[Any]


class Builder:
    """What has been traced of one kernel."""

    def __init__(self, arch: str | None, version: str = "6.0") -> None:
        #: The arch asked for; None for the lowest that will do.
        self.arch = arch
        self.code: Code = []
        self.dead = False
        self.place = Place("", 0)
        self.variables: list[Variable] = []
        self.externals: dict[str, str] = {}
        self.version = version
        self.needs: dict[str, str] = {}
        self.scopes: list[dict[Any, Any]] = [{}]
        self.depth = 0
        self.entry: Code = []
        self.minimum_arch = 0
        self.sources: dict[str, list[str]] = {}
        #: Loops and branches that are open, innermost last.
        self.open: list[Any] = []
        #: Threads along x that a block must have: how many, for what, and where that was said.
        self.threads: list[tuple[int, str, Place]] = []

    # instructions ---------------------------------------------------------------------------------------

    def emit(self, opcode: str, *operands: Any, guard: Any = None, pure: bool = False) -> None:
        """Append an instruction."""
        if not self.dead:
            self.code.append(Operation(opcode, operands, guard, pure, self.place))

    def define(self, opcode: str, kind: str, *sources: Any, hint: str = "") -> Register:
        """A register with the outcome of a pure instruction; the one there is, if it was computed before."""
        key = (opcode, sources)
        for scope in reversed(self.scopes):
            found = scope.get(key)
            if found is not None:
                if hint and not found.hint:
                    found.hint = hint
                return found  # type: ignore[no-any-return]  # scopes hold registers and their tuples
        register = Register(kind, hint)
        if not self.dead:
            self.code.append(Operation(opcode, (register, *sources), None, True, self.place))
            self.scopes[-1][key] = register
        return register

    def result(self, opcode: str, kind: str, *sources: Any, hint: str = "", guard: Any = None) -> Register:
        """A fresh register with the outcome of an instruction that must stay where it is."""
        register = Register(kind, hint)
        self.emit(opcode, register, *sources, guard=guard)
        return register

    def label(self, label: Label) -> None:
        """Put a label here; code after it is reached again if anything branches to it."""
        self.code.append(label)

    def branch(self, label: Label, guard: Any = None) -> None:
        """Branch to a label."""
        if not self.dead:
            label.used += 1
            self.emit("bra", label.symbol, guard=guard)
            if guard is None:
                self.dead = True

    # parts of the code ----------------------------------------------------------------------------------

    @contextmanager
    def into(self, code: Code) -> Iterator[None]:
        """Collect what is traced here in a list of its own, to be put in its place later."""
        outer = self.enter(code)
        try:
            yield
        finally:
            self.leave(outer)

    def enter(self, code: Code) -> Code:
        """Begin to collect in `code`; `leave` with what this returns."""
        outer, self.code = self.code, code
        self.scopes.append({})
        return outer

    def leave(self, outer: Code) -> None:
        """End what `enter` began."""
        self.code = outer
        self.scopes.pop()

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Trace into the beginning of the kernel, where a value is at hand everywhere."""
        outer, self.code = self.code, self.entry
        scopes, self.scopes = self.scopes, self.scopes[:1]
        dead, self.dead = self.dead, False
        place, self.place = self.place, Place("", 0)
        try:
            yield
        finally:
            self.code, self.scopes, self.dead, self.place = outer, scopes, dead, place

    # what it takes --------------------------------------------------------------------------------------

    def need(self, what: str, arch: int, version: str) -> None:
        """Note that something needs an arch and a PTX version at least."""
        if self.arch is not None and arch_number(self.arch) < arch:
            raise self.error(f"{what} needs sm_{arch}; the kernel is traced for {self.arch}")
        self.minimum_arch = max(self.minimum_arch, arch)
        self.needs[what] = version

    def error(self, message: str, place: Place | None = None) -> KernelError:
        """An error at the current line, or at another."""
        place = place or self.place
        lines = self.sources.get(place.file, [])
        text = lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""
        return KernelError(message, place.file, place.line, text)


class _Current(threading.local):
    builder: Builder | None = None


_current = _Current()


def current() -> Builder:
    """The builder of the kernel that is being traced."""
    if _current.builder is None:
        raise KernelError("this works inside a kernel only: call it in a function under @lw.kernel")
    return _current.builder


def arch() -> str:
    """The arch that the kernel is traced for, as `sm_90`; `sm_80` where none was asked for.

    Inside a kernel: `if lw.arch() == "sm_90": …` decides while tracing.
    """
    return current().arch or "sm_80"


def tracing() -> bool:
    """Whether a kernel is being traced."""
    return _current.builder is not None


@contextmanager
def trace(builder: Builder) -> Iterator[Builder]:
    """Trace with a builder."""
    if _current.builder is not None:
        raise _current.builder.error(
            "a kernel cannot launch or trace another kernel; mark the function @lw.device and call it"
        )
    _current.builder = builder
    try:
        yield builder
    finally:
        _current.builder = None
