"""Instructions with their operands resolved, the functions that they make up, and the whole program."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.errors import Unsupported
from lanewise.machine.program.instruction_record import InstructionRecord, Role
from lanewise.machine.program.instruction_table import record_of
from lanewise.machine.program.operands import (
    BranchTarget,
    Callee,
    IndirectCallee,
    MemoryOperand,
    Negated,
    OperandList,
    Register,
    RegisterPart,
    ResolvedOperand,
    Sink,
    SpecialRegister,
    StackVariable,
    Symbol,
    TexelOperand,
    elements_of,
    registers_in,
)
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.ptx import Function, Immediate, Loc, Module, Operation

#: Device functions that the machine itself provides.
PROVIDED = frozenset(("vprintf", "__assertfail", "malloc", "free"))
#: State spaces that a modifier may name; without one an address is generic.
SPACES = ("global", "shared", "local", "param", "const")


_VALUES = (Register, RegisterPart, SpecialRegister, Symbol, StackVariable, Immediate, Negated)
#: The classes that an operand of each role may have, and the role's name in messages.
_FITTING: dict[Role, tuple[tuple[type, ...], str]] = {
    Role.DEFINED: ((Register, RegisterPart, Sink), "a register"),
    Role.USED: (_VALUES, "a value"),
    Role.ADDRESS: ((MemoryOperand,), "an address"),
    Role.DESCRIPTOR: (_VALUES, "a matrix descriptor or a register"),
    Role.TENSOR_ADDRESS: ((MemoryOperand,), "an address of tensor memory"),
    Role.MATRIX: ((*_VALUES, MemoryOperand), "a matrix descriptor or an address of tensor memory"),
    Role.HANDLE: ((TexelOperand, MemoryOperand), "the handle of a texture or surface"),
    Role.TENSOR: ((TexelOperand,), "a tensor map with coordinates"),
    Role.MEMBERS: (_VALUES, "a mask of lanes"),
    Role.BARRIER: (_VALUES, "the number of a barrier"),
    Role.LABEL: ((BranchTarget,), "a label"),
    Role.CALLEE: ((Callee, IndirectCallee), "a function"),
}


@dataclass(eq=False)
class Op:
    """An instruction with its operands resolved. `site` numbers the instructions of a program."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[ResolvedOperand, ...]
    guard: tuple[Register, bool] | None
    line: int
    loc: Loc | None
    site: int
    source: Operation
    #: The record of such instructions in the table.
    record: InstructionRecord = field(init=False)

    def __post_init__(self) -> None:
        record = record_of(self.opcode, self.modifiers)
        if record is None or record.refused:
            raise self.unsupported(record.refused if record else "")
        if not record.least <= len(self.operands) <= record.most:
            raise self.unsupported(f"it takes {record.count_in_words}, not {len(self.operands)}")
        self.record = record
        if record.types:
            self._check_types()
        if not record.does_nothing:
            self._check_operands()

    def _check_types(self) -> None:
        """Raise an error if the instruction names no type, or one that it cannot have."""
        wrong = [f".{name}" for name in self.types if name not in self.record.types]
        if wrong or not self.types:
            allowed = " ".join(f".{name}" for name in TYPE_BITS if name in self.record.types)
            problem = f"it is not of {wrong[0]}" if wrong else "it names no type"
            raise self.unsupported(f"{problem}; {self.opcode} has {allowed}")
        if len(self.types) > 1 and not self.record.mixes_types:
            raise self.unsupported("it names more than one type")

    def _check_operands(self) -> None:
        """Raise an error for the first operand that cannot have its role."""
        for number, operand in enumerate(self.operands):
            role = self.record.role(number)
            allowed, role_name = _FITTING[role]
            if role is Role.DEFINED and Role.CALLEE in self.record.roles:
                allowed = (*allowed, Symbol, StackVariable)  # a parameter that gets a result
            if self.record.is_plain_store and isinstance(operand, OperandList):
                allowed = (*allowed, Sink)  # an element that is not written
            for element in elements_of(operand):
                if not isinstance(element, allowed):
                    raise self.unsupported(f"its operand {number + 1} is not {role_name}")

    @property
    def head(self) -> str:
        """The opcode with its modifiers, as in the PTX."""
        return self.source.head

    def has(self, modifier: str) -> bool:
        """Return whether a modifier is present."""
        return modifier in self.modifiers

    def one_of(self, names: Collection[str], otherwise: str) -> str:
        """Return the modifier that is one of some names; raise an error that says `otherwise` if none is."""
        name = next((modifier for modifier in self.modifiers if modifier in names), None)
        if name is None:
            raise self.unsupported(otherwise)
        return name

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types among the modifiers, in order."""
        return tuple(modifier for modifier in self.modifiers if modifier in TYPE_BITS)

    @property
    def space(self) -> str:
        """The state space that the instruction names; "generic" if it names none."""
        for modifier in self.modifiers:
            name = modifier.split("::")[0]
            if name in SPACES:
                return name
        return "generic"

    def effective_space(self, address: MemoryOperand) -> str:
        """Return the state space of an access; parameters of device functions lie in local memory."""
        space = self.space
        base = address.base
        return "local" if space == "param" and isinstance(base, Symbol) and base.space == "local" else space

    def registers(self, *roles: Role) -> set[Register]:
        """Return the registers of all operands that have one of some roles."""
        return {
            register
            for number, operand in enumerate(self.operands)
            if self.record.role(number) in roles
            for register in registers_in(operand)
        }

    def address(self, number: int) -> MemoryOperand:
        """Return an operand that has to be an address of memory, or that of a tensor map."""
        operand = self.operands[number] if number < len(self.operands) else None
        if isinstance(operand, TexelOperand) and self.record.role(number) is Role.TENSOR:
            return MemoryOperand(operand.handle, 0)
        if not isinstance(operand, MemoryOperand):
            raise self.unsupported(f"its operand {number + 1} is not an address")
        return operand

    def unsupported(self, why: str = "") -> Unsupported:
        """Return the error that the machine cannot run this instruction."""
        reason = f": {why}" if why else ""
        return Unsupported(f"line {self.line}: the machine cannot run '{self.source}'{reason}")


def all_registers(op: Op) -> list[Register]:
    """Return every register that an instruction names, its guard included; repeated if named twice."""
    guard = [op.guard[0]] if op.guard else []
    return [*(register for operand in op.operands for register in registers_in(operand)), *guard]


@dataclass(eq=False)
class FunctionBody:
    """A function with all names resolved: its instructions, and the instruction of each label."""

    function: Function
    ops: list[Op]
    labels: dict[int, int]
    parameters: tuple[Symbol | Register | StackVariable, ...]
    returns: tuple[Symbol | Register | StackVariable, ...]
    #: The basic block where a lane goes on when it returns.
    link: Register
    #: Where its frame on the stack begins, if a lane may be in it more than once; then all its registers too.
    base: Register | None = None
    registers: tuple[Register, ...] = ()
    #: Bytes of its variables in a frame.
    size: int = 0

    @property
    def saved(self) -> int:
        """The bytes of a stack frame before its variables, where the caller's registers are saved."""
        return aligned(sum(register.bits // 8 for register in self.registers), 16)


_STACK = Register("stack", "u64", 64, abi.WarpFrame.registers)
_RETURNED = Register("returned", "u32", 32, abi.WarpFrame.registers + 8 * abi.LANES)


@dataclass(eq=False)
class Program:
    """A kernel and the functions that it reaches, with the sizes of the memory that it needs."""

    module: Module
    entry: Function
    bodies: list[FunctionBody] = field(default_factory=list)
    frame_bytes: int = abi.WarpFrame.registers + 12 * abi.LANES
    local_bytes: int = 0
    #: The largest alignment of a variable in local memory.
    local_alignment: int = 1
    #: Where shared memory begins, and where static shared memory ends.
    shared_base: int = 0
    shared_bytes: int = 0
    #: Where dynamic shared memory begins, and what that is a multiple of.
    dynamic_offset: int = 0
    dynamic_alignment: int = 16
    parameter_bytes: int = 0
    sites: list[Op] = field(default_factory=list)
    globals: dict[str, Symbol] = field(default_factory=dict)
    #: Addresses of device functions.
    functions: dict[str, Symbol] = field(default_factory=dict)
    #: The bytes of its stack that a lane uses.
    stack: Register = _STACK
    #: The function that a lane returned from last: its index among the bodies.
    returned: Register = _RETURNED
    #: Where the stack begins in local memory, and if there is one.
    stack_base: int = 0
    uses_stack: bool = False
    uses_heap: bool = False
    #: Whether it uses the barrier of a cooperative grid, at which all blocks wait.
    uses_grid: bool = False
    #: Whether it uses the shared memory that the system reserves in a block.
    uses_reserved_memory: bool = False
    #: Whether it is for GPUs that have clusters.
    may_have_clusters: bool = False

    def body(self, name: str) -> FunctionBody:
        """Return the body of a function by its name."""
        return next(body for body in self.bodies if body.function.name == name)
