"""What names of PTX stand for on the machine: registers, variables, functions; instructions made of them.

Finding out is `resolve.py`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.errors import Unsupported
from lanewise.ptx import Function, Immediate, Loc, Module, Operation

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
    #: Bytes from the variable's beginning.
    into: int = 0


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


@dataclass(frozen=True)
class Pointed:
    """The functions that a register with a function's address may lead to."""

    register: Register
    names: tuple[str, ...]


@dataclass(frozen=True)
class InFrame:
    """A variable of a function that may call itself: so far beyond where its frame on the stack begins."""

    register: Register
    name: str
    address: int
    size: int


Resolved = (
    Register
    | Part
    | Special
    | Symbol
    | Immediate
    | Inverted
    | Several
    | Place
    | Sink
    | Target
    | Callee
    | Pointed
    | InFrame
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
    parameters: tuple[Symbol | Register | InFrame, ...]
    returns: tuple[Symbol | Register | InFrame, ...]
    #: Where a lane goes when it returns.
    link: Register
    #: Where its frame on the stack begins, if a lane may be in it more than once; then all its registers too.
    base: Register | None = None
    registers: tuple[Register, ...] = ()
    #: Bytes of its variables in a frame.
    size: int = 0

    @property
    def saved(self) -> int:
        """Bytes of a frame before its variables: the registers as they were."""
        return aligned(sum(register.bits // 8 for register in self.registers), 16)


@dataclass(eq=False)
class Program:
    """A kernel and all that it reaches, with the sizes of what it needs."""

    module: Module
    entry: Function
    bodies: list[Body] = field(default_factory=list)
    frame_bytes: int = abi.REGISTERS + 12 * abi.LANES
    local_bytes: int = 0
    shared_bytes: int = 0
    dynamic_offset: int = 0
    parameter_bytes: int = 0
    sites: list[Op] = field(default_factory=list)
    globals: dict[str, Symbol] = field(default_factory=dict)
    #: Addresses of device functions.
    functions: dict[str, Symbol] = field(default_factory=dict)
    #: How many bytes of its stack a lane uses; where the stack begins in local memory, and if there is one.
    stack: Register = Register("stack", "u64", 64, abi.REGISTERS)
    #: Which function (its place among the bodies) a lane returned from last.
    returned: Register = Register("returned", "u32", 32, abi.REGISTERS + 8 * abi.LANES)
    stack_base: int = 0
    uses_stack: bool = False
    uses_heap: bool = False
    #: Whether it asks for the barrier of a grid that was launched to wait for all its blocks.
    uses_grid: bool = False

    def body(self, name: str) -> Body:
        """The body of a function by name."""
        return next(body for body in self.bodies if body.function.name == name)
