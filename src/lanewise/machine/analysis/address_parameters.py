"""Which parameters of a kernel the addresses of its accesses are made from.

An address is followed from where a parameter is loaded, through copies, sums and choices, by the definitions
that reach each instruction. Products, shifts and low bits are numbers. A pointer that was itself loaded from
memory may lead anywhere.
"""

from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.analysis.written_parameters import loaded_origin
from lanewise.machine.program.instruction_record import AddressFlow, Level, Proxy, Role
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, registers_in
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate

#: The offsets of the parameters that a value may be made from; ANYTHING is one of them for any pointer.
Origins = frozenset[int]
ANYTHING = -1
_NUMBER: Origins = frozenset()
_ANY: Origins = frozenset((ANYTHING,))
#: A mask of fewer bits leaves a number of an address: no array begins below.
_MASK_BITS = 32
_NUMBERS = (
    AddressFlow.PRODUCT, AddressFlow.SHIFT_LEFT, AddressFlow.SHIFT_RIGHT, AddressFlow.BIT_FIELD,
)  # fmt: skip


class AddressParameters:
    """The parameters that the addresses of global memory are made from, where they cannot lead elsewhere."""

    def __init__(self, program: Program, definitions: ReachingDefinitions) -> None:
        self._definitions = definitions
        known = definitions.solve(self._made, _join)
        #: For each access by its site and number among those of its instruction that are watched.
        self.plain: dict[tuple[int, int], Origins] = {}
        #: The same for accesses of asynchronous operations, by their number in the instruction's record. A
        #: tensor has its address in a tensor map, and is held to that.
        self.asynchronous: dict[tuple[int, int], Origins] = {}
        for op in program.sites:
            for number, located in enumerate(watched_accesses(op)):
                if located.space in ("global", "generic"):
                    self._note(self.plain, op, number, located.address, known)
            for number, access in enumerate(op.record.memory):
                operand = op.operands[access.operand] if access.operand < len(op.operands) else None
                moves = access.proxy is Proxy.ASYNC and access.space == "global"
                if moves and isinstance(operand, MemoryOperand):
                    self._note(self.asynchronous, op, number, operand, known)

    def _note(
        self,
        noted: dict[tuple[int, int], Origins],
        op: Op,
        number: int,
        address: MemoryOperand,
        known: dict[int, Origins],
    ) -> None:
        origins = self._origins(op, address, known)
        if origins and ANYTHING not in origins:
            noted[op.site, number] = origins

    def _origins(self, op: Op, operand: ResolvedOperand, known: dict[int, Origins]) -> Origins:
        """Return what an operand of an instruction may be made from, as far as it is known yet."""
        origins = _NUMBER
        for register in registers_in(operand):
            if register in self._definitions.parameters:
                return _ANY
            for definition in self._definitions.reaching(op, register):
                origins |= known.get(definition, _NUMBER)
        return origins

    def _made(self, op: Op, register: Register, known: dict[int, Origins]) -> Origins | None:
        """Return what an instruction's result may be made from."""
        record = op.record
        if record.is_plain_load:
            origin = loaded_origin(op)
            return _ANY if origin is None else origin
        if record.multiplies:
            return _NUMBER
        if record.level is not Level.LANE:
            return _ANY
        flow, used = record.address_flow, op.operands[1:]
        if flow in _NUMBERS:
            return _NUMBER
        if flow is AddressFlow.MASK and any(_is_small(operand) for operand in used):
            return _NUMBER
        if flow is AddressFlow.MULTIPLY_ADD:
            used = used[-1:]
        origins = _NUMBER
        for number, operand in enumerate(used, len(op.operands) - len(used)):
            if record.role(number) is Role.USED:
                origins |= self._origins(op, operand, known)
        return origins


def _join(first: Origins, second: Origins) -> Origins:
    """Return what a value may be made from that is one or the other."""
    return first | second


def _is_small(operand: ResolvedOperand) -> bool:
    """Return whether an operand is a constant of few bits."""
    return isinstance(operand, Immediate) and operand.bits < 1 << _MASK_BITS
