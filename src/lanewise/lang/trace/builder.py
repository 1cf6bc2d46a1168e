"""The code of a kernel while it is traced: operations, labels, operands, and the builder that collects them.

Neither dtypes nor syntax are known here. Registers and symbols get their names when `ptx_text.py` writes
them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lanewise.isa import arch_number
from lanewise.lang.trace.errors import KernelError
from lanewise.records import record


class Register:
    """A PTX register. It gets its name when the PTX is written, from the Python name if there is one."""

    __slots__ = ("alias", "hint", "in_place", "kind", "name")

    def __init__(self, kind: str, hint: str = "", in_place: bool = False) -> None:
        self.kind, self.hint = kind, hint
        #: Whether instructions change what it holds, as wgmma does its accumulators: whoever reads the value
        #: takes a copy, and loops carry the register itself.
        self.in_place = in_place
        self.name = ""
        #: The operand that is written instead, once it turned out that the register never changes.
        self.alias: object = None


class Symbol:
    """A variable in shared, local or global memory, or a label: named when the PTX is written."""

    __slots__ = ("hint", "name")

    def __init__(self, hint: str) -> None:
        self.hint, self.name = hint, ""


@record(frozen=True)
class Address:
    """The operand of a memory access, written as `[base+offset]`."""

    base: Any
    offset: int = 0


@record(frozen=True)
class TensorAddress:
    """A tensor map and the coordinates of a box in its tensor, written as `[map, {x, y}]`."""

    map: Any
    coordinates: tuple[Any, ...]


@record(frozen=True)
class CallOperands:
    """The arguments or the results of a call, written in parentheses."""

    items: Any


@record(frozen=True)
class InlineText:
    """PTX text from the user with operands between its pieces, written as it stands."""

    pieces: Any


@record(frozen=True)
class ResultPair:
    """The two results of one instruction, written as `a|b`."""

    first: Any
    second: object


@record(frozen=True)
class NotPredicate:
    """A predicate that guards where it is false, written as `@!%p`."""

    register: Any


@record(frozen=True)
class SourceLocation:
    """A line and a column of a Python file, to which errors and `.loc` refer."""

    file: str
    line: int
    column: int = 0


@dataclass(slots=True, eq=False)
class Operation:
    """One PTX instruction; a `pure` one computes registers from registers and may be moved or repeated."""

    opcode: str
    operands: tuple[Any, ...]
    guard: object
    pure: bool
    location: SourceLocation


class Label:
    """A target of branches; `used` counts them, and a label that none uses is not written."""

    __slots__ = ("symbol", "used")

    def __init__(self, hint: str) -> None:
        self.symbol = Symbol(f"${hint}")
        self.used = 0


@record()
class Variable:
    """A declared variable: `.shared .align 16 .b8 name[bytes]`; a size of None for dynamic shared memory."""

    space: str
    symbol: Symbol
    size: int | None
    align: int
    text: bytes = b""


#: Operations and labels in the order in which they are written.
Code = list[Any]


def is_pure(code: Code) -> bool:
    """Whether code only computes registers: it has no label, no branch, no access to memory."""
    return all(isinstance(statement, Operation) and statement.pure for statement in code)


class Builder:
    """Everything that has been traced of one kernel so far."""

    def __init__(self, arch: str | None) -> None:
        #: The arch asked for; None for the lowest that has every instruction.
        self.arch = arch
        self.code: Code = []
        #: Operations at the beginning of the kernel, before `code`.
        self.entry: Code = []
        #: Whether nothing reaches the end of `code`; what is traced then is not kept.
        self.unreachable = False
        #: The Python statement that is being traced.
        self.location = SourceLocation("", 0)
        self.variables: list[Variable] = []
        #: Declarations of the external functions that are called, by name.
        self.externals: dict[str, str] = {}
        #: PTX versions that instructions need, by the instruction.
        self.needs: dict[str, str] = {}
        self.minimum_arch = 0
        #: The arch-specific target that an instruction asks for, as `sm_90a`, and the instruction.
        self.specific_arch: tuple[str, str] | None = None
        #: Where setmaxnreg was called first, which asks for a bound of registers on the kernel.
        self.changes_registers: SourceLocation | None = None
        #: Pure operations that have been computed, and their registers: one dict for each open list of code.
        self.scopes: list[dict[Any, Any]] = [{}]
        #: The lines of the Python files that are traced, for comments and errors.
        self.sources: dict[str, list[str]] = {}
        #: Loops and branches that are open, innermost last.
        self.open_control_flow: list[Any] = []
        #: Lists, fragments, … of which only the running kernel knows whether two are one object.
        self.uncertain_aliases: list[Any] = []
        #: The identities of those of which one was changed where no other was in reach.
        self.changed_aliases: set[object] = set()
        #: Threads along x that a block must have: how many, for which tiling, and where that was said.
        self.required_threads: list[tuple[int, str, SourceLocation]] = []
        #: What takes whole warps, and where it was said: the threads of a block are a multiple of 32 then.
        self.whole_warps: list[tuple[str, SourceLocation]] = []
        #: Where the last of the arrays in dynamic shared memory ends.
        self.dynamic_shared_bytes = 0
        #: The shared variables in which the kernel computes with pointers; None stands for any of them.
        self.computed_addresses: set[Symbol | None] = set()
        #: The device functions that the kernel has called, by their ids.
        self.device_functions: dict[int, object] = {}
        #: What each Python variable was bound to, for those who show what the kernel did.
        self.bound: dict[str, list[Any]] = {}

    # instructions ---------------------------------------------------------------------------------------

    def emit(self, opcode: str, *operands: object, guard: object = None, pure: bool = False) -> None:
        """Append an instruction to the code, unless nothing reaches it."""
        if not self.unreachable:
            self.code.append(Operation(opcode, operands, guard, pure, self.location))

    def define(self, opcode: str, kind: str, *sources: object, hint: str = "") -> Register:
        """Return the register with the outcome of a pure instruction.

        The same one if it was computed before.
        """
        key = (opcode, sources)
        for scope in reversed(self.scopes):
            earlier = scope.get(key)
            if earlier is not None:
                if hint and not earlier.hint:
                    earlier.hint = hint
                return earlier  # type: ignore[no-any-return]  # scopes hold registers and their tuples
        register = Register(kind, hint)
        if not self.unreachable:
            self.code.append(Operation(opcode, (register, *sources), None, True, self.location))
            self.scopes[-1][key] = register
        return register

    def result(self, opcode: str, kind: str, *sources: object, hint: str = "") -> Register:
        """Emit an instruction that must stay where it is, and return a fresh register with its outcome."""
        register = Register(kind, hint)
        self.emit(opcode, register, *sources)
        return register

    def label(self, label: Label) -> None:
        """Put a label at the end of the code, for branches to it."""
        self.code.append(label)

    def branch(self, label: Label, guard: object = None) -> None:
        """Branch to a label, always or where the guard holds.

        Without a guard nothing reaches what follows.
        """
        if not self.unreachable:
            label.used += 1
            self.emit("bra", label.symbol, guard=guard)
            if guard is None:
                self.unreachable = True

    @property
    def in_loop(self) -> bool:
        """Whether what is traced now runs again and again, in a loop of the kernel."""
        return any(part.repeats for part in self.open_control_flow)

    # lists of code --------------------------------------------------------------------------------------

    @contextmanager
    def into(self, code: Code) -> Iterator[None]:
        """Collect the operations traced inside the `with` in a list of their own, to be inserted later."""
        outer = self.enter(code)
        try:
            yield
        finally:
            self.leave(outer)

    def enter(self, code: Code) -> Code:
        """Collect operations in `code` from here on; return the list so far, which `leave` takes."""
        outer, self.code = self.code, code
        self.scopes.append({})
        return outer

    def leave(self, outer: Code) -> None:
        """Go on with the list of code that `enter` returned."""
        self.code = outer
        self.scopes.pop()

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Trace into the beginning of the kernel, so that every later instruction can use the values."""
        outer, self.code = self.code, self.entry
        scopes, self.scopes = self.scopes, self.scopes[:1]
        unreachable, self.unreachable = self.unreachable, False
        location, self.location = self.location, SourceLocation("", 0)
        try:
            yield
        finally:
            self.code, self.scopes, self.unreachable, self.location = outer, scopes, unreachable, location

    # needs and errors -----------------------------------------------------------------------------------

    def lacks(self, arch: int) -> bool:
        """Return whether the kernel is traced for an arch before this one."""
        return self.arch is not None and arch_number(self.arch) < arch

    def need(self, what: str, arch: int, version: str) -> None:
        """Note that an instruction needs at least this arch and PTX version.

        It raises an error if the arch is lower.
        """
        if self.lacks(arch):
            raise self.error(f"{what} needs sm_{arch}; the kernel is traced for {self.arch}")
        self.minimum_arch = max(self.minimum_arch, arch)
        self.needs[what] = version

    def need_specific(self, what: str, arch: str, version: str) -> None:
        """Note that an instruction exists on an arch-specific target alone, such as sm_90a.

        A kernel that is traced for no arch is traced for that one; another arch is an error.
        """
        if self.arch is not None and self.arch != arch:
            raise self.error(
                f"{what} exists on {arch} alone; the kernel is traced for {self.arch}: launch or trace it "
                f'with arch="{arch}"'
            )
        self.specific_arch = (arch, what)
        self.need(what, arch_number(arch), version)

    def error(self, message: str, location: SourceLocation | None = None) -> KernelError:
        """Return an error that names the Python line being traced, or another location."""
        location = location or self.location
        return KernelError(message, location.file, location.line, self.source_line(location))

    def source_line(self, location: SourceLocation) -> str:
        """Return the text of a Python line, without indentation; empty if the source is not known."""
        lines = self.sources.get(location.file, [])
        return lines[location.line - 1].strip() if 0 < location.line <= len(lines) else ""


class _Current(threading.local):
    builder: Builder | None = None


_CURRENT = _Current()


def current() -> Builder:
    """Return the builder of the kernel that this thread traces; an error if it traces none."""
    if _CURRENT.builder is None:
        raise KernelError("this works inside a kernel only: call it in a function under @lw.kernel")
    return _CURRENT.builder


def arch() -> str:
    """Return the arch for which the kernel is traced, such as `sm_90`; `sm_80` if none was named.

    Inside a kernel: `if lw.arch() == "sm_90": …` decides while tracing.
    """
    return current().arch or "sm_80"


def tracing() -> bool:
    """Return whether this thread is tracing a kernel."""
    return _CURRENT.builder is not None


@contextmanager
def use_builder(builder: Builder) -> Iterator[Builder]:
    """Make a builder the current one of this thread while its kernel is traced."""
    if _CURRENT.builder is not None:
        raise _CURRENT.builder.error(
            "a kernel cannot launch or trace another kernel; mark the function @lw.device and call it"
        )
    _CURRENT.builder = builder
    try:
        yield builder
    finally:
        _CURRENT.builder = None
