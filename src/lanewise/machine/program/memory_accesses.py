"""The memory accesses of an instruction, with address, state space and size of each."""

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from lanewise.isa import Instruction
from lanewise.isa.tensor_map_fields import MAP_BYTES
from lanewise.machine.program.instruction_record import MemoryAccess, Proxy, Size
from lanewise.machine.program.operands import MemoryOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import in_memory_bytes
from lanewise.ptx import Immediate

#: Bytes of the row of a matrix that a lane of ldmatrix gives the address of; of an mbarrier object; of an
#: address of tensor memory.
MATRIX_ROW_BYTES, MBARRIER_BYTES, TENSOR_ADDRESS_BYTES = 16, 8, 4
#: State spaces that nobody else writes while a kernel runs.
_CONSTANT_SPACES = frozenset(("param", "const"))


class LocatedAccess(NamedTuple):
    """An access of an instruction: its record, and what the operands add."""

    access: MemoryAccess
    address: MemoryOperand
    space: str
    #: The bytes that a lane accesses at its address.
    size: int


def accesses(op: Op) -> list[LocatedAccess]:
    """Return the accesses of an instruction in the order of its record.

    What matrix descriptors name is left out: it is no address of a lane (see `tensor_core/descriptors.py`).
    """
    return [located(op, access) for access in op.record.memory if access.size is not Size.DESCRIPTOR]


def located(op: Op, access: MemoryAccess) -> LocatedAccess:
    """Return an access of an instruction with the address, space and size from its operands."""
    address = op.address(access.operand)
    return LocatedAccess(access, address, access.space or op.effective_space(address), size_of(op, access))


def watched_accesses(op: Op) -> list[LocatedAccess]:
    """Return the accesses that may conflict with others: not those of parameters and constants.

    Those whose bytes are known only when they run are left out too, with the mbarriers that they tell.
    """
    known = _WATCHED.get(op)
    if known is None:
        constant = op.space in _CONSTANT_SPACES
        is_async = any(access.proxy is Proxy.ASYNC for access in op.record.memory)
        known = [] if constant or is_async else [access for access in accesses(op) if access.size]
        _WATCHED[op] = known
    return known


#: What `watched_accesses` has answered: every report of a check asks it of all instructions.
_WATCHED: WeakKeyDictionary[Op, list[LocatedAccess]] = WeakKeyDictionary()


def writes_unseen_bytes(ops: Iterable[Op]) -> bool:
    """Return whether instructions write shared memory whose size is not known ahead (st.bulk)."""
    return any(
        access.size is Size.ANY_OPERAND and not size_of(op, access)
        for op in ops
        for access in op.record.memory
    )


def size_of(op: Op, access: MemoryAccess) -> int:
    """Return the bytes that a lane accesses; raise an error if the instruction does not tell."""
    match access.size:
        case Size.TYPE:
            if not op.types:
                raise op.unsupported("it names no type")
            return in_memory_bytes(op.types[-1]) * len(elements_of(op.operands[access.data]))
        case Size.OPERAND:
            operand = op.operands[access.data] if access.data < len(op.operands) else None
            if not isinstance(operand, Immediate):
                raise op.unsupported("its number of bytes is not a constant")
            return int(operand.bits)
        case Size.ANY_OPERAND:
            operand = op.operands[access.data]
            return int(operand.bits) if isinstance(operand, Immediate) else 0
        case Size.MATRIX_ROW | Size.DESCRIPTOR:  # both are read in pieces of 16 bytes
            return MATRIX_ROW_BYTES
        case Size.RUN_TIME:
            return 0
        case Size.MBARRIER:
            return MBARRIER_BYTES
        case Size.TENSOR_MEMORY_ADDRESS:
            return TENSOR_ADDRESS_BYTES
        case Size.TENSOR_MAP:
            return MAP_BYTES
        case Size.TILE_LINE:
            instruction = op.source.instruction()
            if instruction is None:
                raise op.unsupported()
            return tile_lines(instruction).bytes


class TileLines(NamedTuple):
    """A matrix as wmma.load and wmma.store move it: lines of elements that are contiguous in memory."""

    lines: int
    elements: int
    element_bits: int

    @property
    def bytes(self) -> int:
        """The bytes of a line."""
        return self.elements * self.element_bits // 8


def tile_lines(instruction: Instruction) -> TileLines:
    """Return the lines that a wmma.load or wmma.store moves: rows of a row-major matrix, else columns."""
    operand = instruction.operands[instruction.matrix]
    rows, columns = operand.shape
    lines, length = (rows, columns) if instruction.layouts[0] == "row" else (columns, rows)
    bits = 32 if operand.format.name == "tf32" else operand.format.bits
    return TileLines(lines, length, bits)


def tile_alignment(instruction: Instruction) -> int:
    """Return the bytes that the address of a tile has to be a multiple of: those of a lane's fragment."""
    return 4 * instruction.operands[instruction.matrix].registers
