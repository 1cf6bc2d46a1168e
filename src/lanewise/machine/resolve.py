"""Names to what they stand for: registers with a place in the frame, variables with an address, constants.

Walks a kernel and the device functions it reaches. Control flow is `blocks.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lanewise.errors import LanewiseError
from lanewise.machine import frame, refusals
from lanewise.machine.faults import Unsupported
from lanewise.ptx import (
    Address,
    Element,
    Function,
    Group,
    Immediate,
    Index,
    Label,
    Loc,
    Module,
    Name,
    Offset,
    Operand,
    Operation,
    Pair,
    Targets,
    Unary,
    Variable,
    Vector,
)

#: Device functions that the machine itself provides.
PROVIDED = frozenset(("vprintf", "__assertfail", "malloc", "free"))


@dataclass(frozen=True)
class Register:
    """A register: its type, the bits a lane keeps of it, and where in a warp's frame they lie."""

    name: str
    type: str
    bits: int
    offset: int


@dataclass(frozen=True)
class Special:
    """A special register, such as %tid.x."""

    name: str
    element: str = ""


@dataclass(frozen=True)
class Symbol:
    """The address of a variable in its own space."""

    name: str
    space: str
    address: int
    size: int


@dataclass(frozen=True)
class Inverted:
    """`!p`, or `-x`."""

    operator: str
    operand: Resolved


@dataclass(frozen=True)
class Several:
    """A vector of operands, a group of arguments, or the two destinations of `p|q`."""

    elements: tuple[Resolved, ...]


@dataclass(frozen=True)
class Place:
    """An address: a register, a symbol or a number, and bytes beyond."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class Part:
    """A byte or half of a register, or several: `%r1.b2`, `%r1.h10`."""

    register: Register
    part: str


@dataclass(frozen=True)
class Sink:
    """`_`: nothing is kept."""


@dataclass(frozen=True)
class Target:
    """A label (a place in the body of a function), or a list of labels."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Callee:
    """A function by name."""

    name: str


Resolved = (
    Register | Part | Special | Symbol | Immediate | Inverted | Several | Place | Sink | Target | Callee
)


@dataclass(eq=False)
class Op:
    """An instruction with its operands resolved. `site` numbers the instructions of a program."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Resolved, ...]
    guard: tuple[Register, bool] | None
    line: int
    loc: Loc | None
    site: int
    source: Operation

    @property
    def head(self) -> str:
        """The opcode with its modifiers."""
        return self.source.head

    def has(self, modifier: str) -> bool:
        """Whether a modifier is there."""
        return modifier in self.modifiers

    def unsupported(self, why: str = "") -> Unsupported:
        """The complaint that the machine cannot run it."""
        reason = f": {why}" if why else ""
        return Unsupported(f"line {self.line}: the machine cannot run '{self.source}'{reason}")


@dataclass(eq=False)
class Body:
    """A function with everything in it resolved: instructions, and at which of them each label stands."""

    function: Function
    ops: list[Op]
    labels: dict[int, int]
    parameters: tuple[Symbol | Register, ...]
    returns: tuple[Symbol | Register, ...]
    #: Where a lane goes when it returns.
    link: Register


@dataclass(eq=False)
class Program:
    """A kernel and all that it reaches, with the sizes of what it needs."""

    module: Module
    entry: Function
    bodies: list[Body] = field(default_factory=list)
    frame_bytes: int = frame.REGISTERS
    local_bytes: int = 0
    shared_bytes: int = 0
    dynamic_offset: int = 0
    parameter_bytes: int = 0
    sites: list[Op] = field(default_factory=list)
    globals: dict[str, Symbol] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)

    def body(self, name: str) -> Body:
        """The body of a function by name."""
        return next(body for body in self.bodies if body.function.name == name)


def aligned(size: int, alignment: int) -> int:
    """Rounded up to a multiple.

    >>> aligned(13, 8)
    16
    """
    return -(-size // alignment) * alignment


def resolve(module: Module, entry: Function) -> Program:
    """A kernel and the device functions it calls, resolved."""
    if entry.body is None:
        raise LanewiseError(f"{entry.name} is declared in this PTX, but has no body")
    program = Program(module, entry)
    _place_globals(program)
    done: dict[str, Body] = {}
    active: list[str] = []

    def visit(function: Function) -> None:
        active.append(function.name)
        resolver = _Resolver(program, function)
        body = resolver.body()
        for callee, line in resolver.callees:
            target = module.aliases.get(callee, callee)
            if target in active:
                raise Unsupported(f"line {line}: {callee} calls itself: recursion is not supported")
            if target not in done and target not in PROVIDED:
                found = module.functions.get(target)
                if found is None or found.body is None:
                    raise Unsupported(f"line {line}: {callee} is called, but this PTX has no body for it")
                visit(found)
        active.pop()
        done[function.name] = body
        program.bodies.append(body)

    visit(entry)
    program.local_bytes = aligned(program.local_bytes, 16)
    program.dynamic_offset = aligned(program.shared_bytes, 16)
    return program


def _place_globals(program: Program) -> None:
    """Addresses of the module's variables; every kernel of a module agrees on those in global memory."""
    bases = {"const": frame.CONST_BASE, "global": frame.GLOBAL_BASE}
    for variable in program.module.variables.values():
        size = variable.size
        if variable.space in ("global", "const"):
            address = aligned(bases[variable.space], max(variable.alignment, 16))
            program.globals[variable.name] = Symbol(variable.name, variable.space, address, size)
            bases[variable.space] = address + aligned(size, 16) + 256
        elif variable.space == "shared" and size:
            program.shared_bytes = aligned(program.shared_bytes, variable.alignment)
            place = program.shared_bytes
            program.globals[variable.name] = Symbol(variable.name, "shared", place, size)
            program.shared_bytes += size


#: Bytes and halves that video instructions pick.
_PART = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")
#: Registers that read one number for all lanes or a number of their own; the elements each has.
_SPECIALS = {
    "%tid": "xyz", "%ntid": "xyz", "%ctaid": "xyz", "%nctaid": "xyz", "%laneid": "", "%warpid": "",
    "%nwarpid": "", "%lanemask_eq": "", "%lanemask_le": "", "%lanemask_lt": "", "%lanemask_ge": "",
    "%lanemask_gt": "", "%clock": "", "%clock_hi": "", "%clock64": "", "%globaltimer": "",
    "%globaltimer_lo": "", "%globaltimer_hi": "", "%smid": "", "%nsmid": "", "%gridid": "",
    "%dynamic_smem_size": "", "%total_smem_size": "", "%aggr_smem_size": "", "WARP_SZ": "",
    "%clusterid": "xyz", "%nclusterid": "xyz", "%cluster_ctaid": "xyz", "%cluster_nctaid": "xyz",
    "%cluster_ctarank": "", "%cluster_nctarank": "", "%is_explicit_cluster": "", "%current_graph_exec": "",
    "%reserved_smem_offset_begin": "", "%reserved_smem_offset_end": "", "%reserved_smem_offset_cap": "",
    "%reserved_smem_offset_0": "", "%reserved_smem_offset_1": "",
    **{f"%pm{number}": "" for number in range(8)}, **{f"%pm{number}_64": "" for number in range(8)},
    **{f"%envreg{number}": "" for number in range(32)},
}  # fmt: skip


class _Resolver:
    def __init__(self, program: Program, function: Function) -> None:
        self.program, self.function = program, function
        self.known: dict[tuple[int, str], Resolved] = {}
        self.placed: dict[int, Symbol] = {}
        self.callees: list[tuple[str, int]] = []
        self.parameters = tuple(self._parameter(part) for part in function.parameters)
        self.returns = tuple(self._parameter(part) for part in function.returns)

    def _parameter(self, variable: Variable) -> Symbol | Register:
        if variable.space == "reg":
            return self._register(variable, variable.name)
        program = self.program
        if self.function.is_entry:
            place = aligned(program.parameter_bytes, variable.alignment)
            program.parameter_bytes = place + variable.size
            symbol = Symbol(variable.name, "param", place, variable.size)
        else:
            symbol = self._in_local(variable)
        self.placed[id(variable)] = symbol
        return symbol

    def _in_local(self, variable: Variable) -> Symbol:
        """Parameters of device functions lie in the thread's local memory, as its own variables do."""
        program = self.program
        place = aligned(program.local_bytes, max(variable.alignment, 8))
        program.local_bytes = place + variable.size
        return Symbol(variable.name, "local", place, variable.size)

    def _register(self, variable: Variable, name: str) -> Register:
        bits = {"pred": 8}.get(variable.type, variable.element_size // max(variable.vector, 1) * 8)
        if bits not in (8, 16, 32, 64, 128):
            raise Unsupported(f"line {variable.line}: a register of type .{variable.type}")
        program = self.program
        offset = program.frame_bytes
        program.frame_bytes += max(bits // 8 * frame.LANES, 16)
        return Register(name, variable.type, bits, offset)

    def body(self) -> Body:
        """Every instruction, in order."""
        ops: list[Op] = []
        labels: dict[int, int] = {}
        for place, statement in enumerate(self.function.body or ()):
            if isinstance(statement, Label):
                labels[place] = len(ops)
            elif isinstance(statement, Operation) and statement.opcode != "pragma":
                ops.append(self.op(statement))
        link = Register("return", "u32", 32, self.program.frame_bytes)
        self.program.frame_bytes += 4 * frame.LANES
        return Body(self.function, ops, labels, self.parameters, self.returns, link)

    def op(self, operation: Operation) -> Op:
        """One instruction."""
        refused = refusals.reason(operation.opcode, operation.modifiers)
        if refused:
            raise Unsupported(f"line {operation.line}: the machine cannot run '{operation}': {refused}")
        scope = operation.scope
        guard = None
        if operation.guard is not None:
            register = self.name(operation.guard.name, scope, operation)
            if not isinstance(register, Register) or register.type != "pred":
                raise self.wrong(operation, f"{operation.guard.name} is no predicate register")
            guard = register, operation.guard.negated
        if operation.opcode == "call":
            operands = self.call(operation)
        else:
            operands = tuple(self.operand(each, scope, operation) for each in operation.operands)
        site = len(self.program.sites)
        op = Op(
            operation.opcode,
            operation.modifiers,
            operands,
            guard,
            operation.line,
            operation.loc,
            site,
            operation,
        )
        by_register = any(isinstance(each, Place) and isinstance(each.base, Register) for each in operands)
        if by_register and "param" in op.modifiers and not self.function.is_entry:
            # Its parameters lie in local memory: an address in a register would lead to the kernel's.
            raise op.unsupported("a device function's parameters are read and written by name")
        self.program.sites.append(op)
        return op

    def call(self, operation: Operation) -> tuple[Resolved, ...]:
        call, scope = operation.call(), operation.scope
        results = Several(tuple(self.operand(each, scope, operation) for each in call.results))
        arguments = Several(tuple(self.operand(each, scope, operation) for each in call.arguments))
        if self.function.variable(call.target, scope) is not None:
            raise Unsupported(f"line {operation.line}: a call through a register is not supported yet")
        self.callees.append((call.target, operation.line))
        target = self.program.module.aliases.get(call.target, call.target)
        return results, Callee(target), arguments

    def wrong(self, operation: Operation, what: str) -> LanewiseError:
        return LanewiseError(f"line {operation.line}: '{operation}': {what}")

    def operand(self, operand: Operand, scope: int, operation: Operation) -> Resolved:
        """What an operand stands for."""
        match operand:
            case Immediate():
                return operand
            case Name(name):
                return self.name(name, scope, operation)
            case Element(name, element):
                return self.element(name, element, scope, operation)
            case Offset(name, offset):
                found = self.name(name, scope, operation)
                if not isinstance(found, Symbol):
                    raise self.wrong(operation, f"{name} is no variable")
                return Symbol(found.name, found.space, found.address + offset, found.size)
            case Unary(operator, inner):
                return Inverted(operator, self.operand(inner, scope, operation))
            case Pair(first, second):
                return Several(tuple(self.operand(each, scope, operation) for each in (first, second)))
            case Vector(elements) | Group(elements):
                return Several(tuple(self.operand(each, scope, operation) for each in elements))
            case Address(base, offset, rest) if not rest:
                found = self.operand(base, scope, operation)
                if not isinstance(found, Register | Symbol | Immediate):
                    raise self.wrong(operation, f"{base} is no address")
                return Place(found, offset)
            case Index(name, register, offset) if not register:
                found = self.name(name, scope, operation)
                if isinstance(found, Symbol):
                    return Place(found, offset)
        raise Unsupported(f"line {operation.line}: '{operation}': the operand {operand} is not supported")

    def element(self, name: str, element: str, scope: int, operation: Operation) -> Resolved:
        if name in _SPECIALS:
            if element not in _SPECIALS[name] or not element:
                raise self.wrong(operation, f"{name} has no element {element}")
            return Special(name, element)
        variable = self.function.variable(name, scope)
        if (
            variable is not None
            and variable.space == "reg"
            and variable.vector > 1
            and element in "xyzw"[: variable.vector]
        ):
            return self._cached(variable, f"{name}.{element}")
        if variable is not None and variable.space == "reg" and _PART.fullmatch(element):
            register = self.name(name, scope, operation)
            if isinstance(register, Register) and register.bits == 32:
                return Part(register, element)
        raise Unsupported(f"line {operation.line}: '{operation}': {name}.{element} is not supported")

    def _cached(self, variable: Variable, name: str) -> Resolved:
        key = (id(variable), name)
        if key not in self.known:
            self.known[key] = self._register(variable, name)
        return self.known[key]

    def name(self, name: str, scope: int, operation: Operation) -> Resolved:
        """What a name stands for in a scope."""
        if name == "_":
            return Sink()
        variable = self.function.variable(name, scope)
        if variable is not None:
            if variable.space == "reg":
                for part, symbol in zip(
                    (*self.function.parameters, *self.function.returns),
                    (*self.parameters, *self.returns),
                    strict=True,
                ):
                    if part is variable:
                        return symbol
                if variable.vector > 1:
                    return Several(
                        tuple(self._cached(variable, f"{name}.{e}") for e in "xyzw"[: variable.vector])
                    )
                return self._cached(variable, name)
            return self._variable(variable)
        if name in self.program.globals:
            return self.program.globals[name]
        outside = self.program.module.variables.get(name)
        if outside is not None and outside.space == "shared":
            return Symbol(name, "dynamic", 0, 0)
        if name in _SPECIALS:
            return Special(name)
        place = self.function.label(name, scope)
        if place is not None:
            return Target(tuple(self._targets(place, scope, operation)))
        if name in self.program.module.functions or name in self.program.module.aliases:
            raise Unsupported(
                f"line {operation.line}: the address of a function ({name}) is not supported yet"
            )
        if name.startswith("%"):
            raise Unsupported(
                f"line {operation.line}: '{operation}': {name} is not declared, or not supported"
            )
        raise self.wrong(operation, f"{name} is not declared")

    def _targets(self, place: int, scope: int, operation: Operation) -> Iterator[int]:
        """A label, or those that a `.branchtargets` behind it lists."""
        body = self.function.body or []
        following = next((each for each in body[place + 1 :] if not isinstance(each, Loc)), None)
        if operation.opcode != "brx" or not isinstance(following, Targets):
            yield place
            return
        for name in following.names:
            found = self.function.label(name, scope)
            if found is None:
                raise self.wrong(operation, f"there is no label {name}")
            yield found

    def _variable(self, variable: Variable) -> Symbol:
        if id(variable) not in self.placed:
            program = self.program
            if variable.space == "shared":
                if variable.size == 0:
                    return Symbol(variable.name, "dynamic", 0, 0)
                place = aligned(program.shared_bytes, variable.alignment)
                program.shared_bytes = place + variable.size
                symbol = Symbol(variable.name, "shared", place, variable.size)
            elif variable.space in ("local", "param"):
                symbol = self._in_local(variable)
            elif variable.space in ("global", "const"):
                raise Unsupported(f"line {variable.line}: a .{variable.space} variable inside a function")
            else:
                raise Unsupported(f"line {variable.line}: a variable in .{variable.space}")
            self.placed[id(variable)] = symbol
        return self.placed[id(variable)]
