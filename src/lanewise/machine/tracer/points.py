"""Points: the instructions of a kernel as they are logged, and where each finds its data in a payload.

An instruction that ends a basic block is logged where it stands; the result of bar.red or of a call, which
the warp takes in the next basic block, is a point of its own. Where a device function begins, a point without
an instruction logs its parameters, which the call has written.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.machine import abi
from lanewise.machine.abi import LANES, aligned
from lanewise.machine.program.basic_blocks import BasicBlock, callees
from lanewise.machine.program.instruction_record import AccessKind, MemoryAccess, Role, Size
from lanewise.machine.program.instruction_table import CALL_RESULTS
from lanewise.machine.program.memory_accesses import LocatedAccess, located, tile_lines
from lanewise.machine.program.operands import (
    MemoryOperand,
    Register,
    ResolvedOperand,
    StackVariable,
    Symbol,
    elements_of,
    registers_in,
)
from lanewise.machine.program.ops import FunctionBody, Op, Program
from lanewise.machine.tracer.records import (
    ASYNC_WRITE_POINT,
    BARRIER_POINT,
    MOST_KEPT_BYTES,
    PAYLOAD_ALIGNMENT,
)

#: Bytes of the addresses of 32 lanes.
ADDRESS_BYTES = 8 * LANES
#: What is added to an address of a state space to make it generic.
WINDOWS = {"shared": abi.SHARED_WINDOW, "local": abi.LOCAL_WINDOW, "param": abi.PARAM_WINDOW}


class LoggedRegister(NamedTuple):
    """A register that an instruction writes, and the offset of its 32 elements in the payload."""

    register: Register
    offset: int

    @property
    def bytes(self) -> int:
        """The bytes of all 32 elements."""
        return self.register.bits // 8 * LANES


class LoggedAccess(NamedTuple):
    """An access of an instruction, and the offsets of what is logged of it in the payload."""

    located: LocatedAccess
    #: The rows that may have an address, as bits: lanes, rows of matrices, or lines of a tile.
    rows: int
    #: The bytes of each row that are kept.
    size: int
    addresses: int
    #: The bytes before an atomic operation; -1 for other accesses.
    before: int
    bytes: int


@dataclass(eq=False)
class Point:
    """An instruction as it is logged; completed barriers and the begin of a function have none."""

    number: int
    op: Op | None
    registers: tuple[LoggedRegister, ...] = ()
    accesses: tuple[LoggedAccess, ...] = ()
    #: The bytes of its payload.
    size: int = 0
    #: The function that begins here, if the point stands for that.
    function: FunctionBody | None = None

    @property
    def writes_memory(self) -> bool:
        """Whether memory may be changed by it."""
        return any(access.located.access.writes for access in self.accesses)


#: A site, and the opcode: the pseudo-instruction of a result has the site of what it is the result of.
Key = tuple[int, str]


class Points:
    """All points of a kernel, by number; their numbers follow from the basic blocks alone."""

    def __init__(self, blocks: list[BasicBlock], program: Program) -> None:
        self.all = [Point(BARRIER_POINT, None), Point(ASYNC_WRITE_POINT, None)]
        self._numbers: dict[Key, int] = {}
        self._functions: dict[str, int] = {}
        for block in blocks:
            if block.is_first and not block.body.function.is_entry:
                self._functions[block.body.function.name] = len(self.all)
                self.all.append(_parameters(len(self.all), block.body))
            for op in (*block.ops, *([block.op] if block.op is not None else ())):
                key = op.site, op.opcode
                if key not in self._numbers:
                    self._numbers[key] = len(self.all)
                    self.all.append(_point(len(self.all), op, program))

    def of(self, op: Op) -> Point:
        """Return the point of an instruction."""
        return self.all[self._numbers[op.site, op.opcode]]

    def of_function(self, block: BasicBlock) -> Point | None:
        """Return the point of the function that begins with a basic block; None if none does."""
        if not block.is_first or block.body.function.is_entry:
            return None
        return self.all[self._functions[block.body.function.name]]


def defined_registers(op: Op) -> list[Register]:
    """Return the registers that an instruction writes, in the order of its operands, each once."""
    registers = (
        register
        for number, operand in enumerate(op.operands)
        if op.record.role(number) is Role.DEFINED
        for element in elements_of(operand)
        for register in registers_in(element)
    )
    return list(dict.fromkeys(registers))


class _Payload:
    """The layout of a payload while it is made: each part begins where the one before it ends."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, bytes: int) -> int:
        """Return the offset of a part of some bytes."""
        start, self.size = self.size, aligned(self.size + bytes, PAYLOAD_ALIGNMENT)
        return start

    def register(self, register: Register) -> LoggedRegister:
        """Add a register of all lanes."""
        return LoggedRegister(register, self.place(register.bits // 8 * LANES))

    def access(self, located: LocatedAccess, rows: int) -> LoggedAccess:
        """Add an access: its addresses, the bytes before an atomic operation, the bytes."""
        kept = located.size if located.size <= MOST_KEPT_BYTES else 0
        addresses = self.place(ADDRESS_BYTES)
        before = self.place(LANES * kept) if located.access.kind is AccessKind.ATOMIC else -1
        return LoggedAccess(located, rows, kept, addresses, before, self.place(LANES * kept))


def _point(number: int, op: Op, program: Program) -> Point:
    """Return the point of an instruction, with the layout of its payload."""
    payload = _Payload()
    written = defined_registers(op)
    passed: list[LocatedAccess] = []
    if op.record.pattern == CALL_RESULTS:
        passed = _passed(elements_of(op.operands[0]))
        # A function that may be under way more than once gives the registers of its caller back.
        restored = [register for name in callees(op) for register in program.body(name).registers]
        written = list(dict.fromkeys((*written, *restored)))
    registers = tuple(payload.register(register) for register in written)
    accesses = [payload.access(parameter, _EVERY_LANE) for parameter in passed]
    for access in op.record.memory:
        try:
            place = located(op, access)
        except LanewiseError:  # its bytes are known only when it runs
            continue
        accesses.append(payload.access(place, _rows(op, place)))
    return Point(number, op, registers, tuple(accesses), payload.size)


def _parameters(number: int, body: FunctionBody) -> Point:
    """Return the point where a device function begins: its parameters in registers and in memory."""
    payload = _Payload()
    held = [parameter for parameter in body.parameters if isinstance(parameter, Register)]
    registers = tuple(
        payload.register(register) for register in (*held, *([body.base] if body.base is not None else []))
    )
    accesses = tuple(payload.access(parameter, _EVERY_LANE) for parameter in _passed(body.parameters))
    return Point(number, None, registers, accesses, payload.size, body)


def _passed(operands: tuple[ResolvedOperand, ...]) -> list[LocatedAccess]:
    """Return the writes to variables in local memory that a call passes values to."""
    accesses = []
    for operand in operands:
        if isinstance(operand, Symbol) and operand.space == "local":
            accesses.append(LocatedAccess(_PASSING, MemoryOperand(operand, 0), "local", operand.size))
        elif isinstance(operand, StackVariable):
            address = MemoryOperand(operand.register, operand.address)
            accesses.append(LocatedAccess(_PASSING, address, "local", operand.size))
    return accesses


#: The write by which a call passes a value in memory.
_PASSING = MemoryAccess(AccessKind.WRITE, 0, Size.TYPE)
#: All lanes, as bits.
_EVERY_LANE = (1 << LANES) - 1


def _rows(op: Op, located: LocatedAccess) -> int:
    """Return which rows of an access have an address: of ldmatrix those of the first lanes."""
    instruction = op.source.instruction()
    if located.access.size is Size.MATRIX_ROW and instruction is not None:
        return (1 << instruction.row_addresses.rows) - 1
    if located.access.size is Size.TILE_LINE and instruction is not None:
        return (1 << tile_lines(instruction).lines) - 1
    return _EVERY_LANE
