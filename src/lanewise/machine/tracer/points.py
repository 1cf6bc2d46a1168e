"""Points: the instructions of a kernel as they are logged, and where each finds its data in a payload.

An instruction that ends a basic block is logged where it stands; the result of bar.red or of a call, which
the warp takes in the next basic block, is a point of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.machine import abi
from lanewise.machine.abi import LANES, aligned
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import AccessKind, Role, Size
from lanewise.machine.program.memory_accesses import LocatedAccess, located, tile_lines
from lanewise.machine.program.operands import Register, elements_of, registers_in
from lanewise.machine.program.ops import Op
from lanewise.machine.tracer.records import BARRIER_POINT, MOST_KEPT_BYTES, PAYLOAD_ALIGNMENT

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
    """An instruction as it is logged; the first point, of completed barriers, has none."""

    number: int
    op: Op | None
    registers: tuple[LoggedRegister, ...] = ()
    accesses: tuple[LoggedAccess, ...] = ()
    #: The bytes of its payload.
    size: int = 0

    @property
    def writes_memory(self) -> bool:
        """Whether memory may be changed by it."""
        return any(each.located.access.writes for each in self.accesses)


#: A site, and the opcode: the pseudo-instruction of a result has the site of what it is the result of.
Key = tuple[int, str]


class Points:
    """All points of a kernel, by number; their numbers follow from the basic blocks alone."""

    def __init__(self, blocks: list[BasicBlock]) -> None:
        self.all = [Point(BARRIER_POINT, None)]
        self._numbers: dict[Key, int] = {}
        for block in blocks:
            for op in (*block.ops, *([block.op] if block.op is not None else ())):
                key = op.site, op.opcode
                if key not in self._numbers:
                    self._numbers[key] = len(self.all)
                    self.all.append(_point(len(self.all), op))

    def of(self, op: Op) -> Point:
        """Return the point of an instruction."""
        return self.all[self._numbers[op.site, op.opcode]]


def defined_registers(op: Op) -> list[Register]:
    """Return the registers that an instruction writes, in the order of its operands, each once."""
    found = (
        register
        for number, operand in enumerate(op.operands)
        if op.record.role(number) is Role.DEFINED
        for each in elements_of(operand)
        for register in registers_in(each)
    )
    return list(dict.fromkeys(found))


def _point(number: int, op: Op) -> Point:
    """Return the point of an instruction, with the layout of its payload."""
    size = 0

    def place(bytes: int) -> int:
        nonlocal size
        start, size = size, aligned(size + bytes, PAYLOAD_ALIGNMENT)
        return start

    registers = tuple(
        LoggedRegister(register, place(register.bits // 8 * LANES)) for register in defined_registers(op)
    )
    accesses = []
    for access in op.record.memory:
        try:
            each = located(op, access)
        except LanewiseError:  # its bytes are known only when it runs
            continue
        kept = each.size if each.size <= MOST_KEPT_BYTES else 0
        addresses = place(ADDRESS_BYTES)
        before = place(LANES * kept) if access.kind is AccessKind.ATOMIC else -1
        accesses.append(LoggedAccess(each, _rows(op, each), kept, addresses, before, place(LANES * kept)))
    return Point(number, op, registers, tuple(accesses), size)


def _rows(op: Op, each: LocatedAccess) -> int:
    """Return which rows of an access have an address: of ldmatrix those of the first lanes."""
    instruction = op.source.instruction()
    if each.access.size is Size.MATRIX_ROW and instruction is not None:
        return (1 << instruction.row_addresses.rows) - 1
    if each.access.size is Size.TILE_LINE and instruction is not None:
        return (1 << tile_lines(instruction).lines) - 1
    return (1 << LANES) - 1
