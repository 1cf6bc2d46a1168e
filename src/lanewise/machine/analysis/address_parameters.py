"""Which parameters of a kernel the addresses of its accesses are made from.

An address is followed from where a parameter is loaded, through copies, sums and choices. A pointer that was
itself loaded from memory may lead anywhere.

Which parameters lead to memory that may be written is followed register by register. A pointer that was
stored in halves and put together again, or one beyond its array, is not seen: who relies on this has to
notice a write elsewhere. `AddressParameters` follows the definitions that reach each instruction; there,
products, shifts and low bits are numbers.
"""

from dataclasses import dataclass

from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.program.instruction_record import AddressFlow, Level, Proxy, Role
from lanewise.machine.program.memory_accesses import accesses, watched_accesses
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, Symbol, registers_in
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate

#: Bytes of a pointer: what a load of fewer gives is taken for a number.
_POINTER_BYTES = 8
#: The offsets of parameters that a value may be made from; None if it may be made from anything.
Origin = frozenset[int] | None
_NOTHING: frozenset[int] = frozenset()
#: The bytes that are returned where no access is smaller.
WORD_BYTES = 4


def written_parameters(program: Program) -> frozenset[int] | None:
    """Return the offsets of the parameters whose memory may be written; None if any memory may be."""
    origins = origins_of(program)
    written: set[int] = set()
    for op in program.sites:
        for access in op.record.memory:
            if not access.writes or (access.space or op.space) in ("shared", "local", "param"):
                continue
            if op.record.role(access.operand) is Role.TENSOR:  # the map has the address, and may be anywhere
                return None
            origin = origin_of(op.operands[access.operand], origins)
            if origin is None:
                return None
            written |= origin
    return frozenset(written)


def origins_of(program: Program) -> dict[Register, Origin]:
    """Return what each register may be made from, by all instructions that define it."""
    origins: dict[Register, Origin] = {}
    changed = True
    while changed:
        changed = False
        for op in program.sites:
            made = _made(op, origins)
            for register in op.registers(Role.DEFINED):
                old = origins.get(register, _NOTHING)
                new = None if old is None or made is None else old | made
                if register not in origins or new != old:
                    origins[register] = new
                    changed = True
    return origins


def _made(op: Op, origins: dict[Register, Origin]) -> Origin:
    """Return what the result of an instruction may be made from."""
    if op.record.is_plain_load:
        return loaded_origin(op)
    if op.record.level is not Level.LANE:
        return None
    parameters: frozenset[int] = _NOTHING
    for number, operand in enumerate(op.operands):
        if op.record.role(number) is Role.USED:
            origin = origin_of(operand, origins)
            if origin is None:
                return None
            parameters |= origin
    return parameters


def loaded_origin(op: Op) -> Origin:
    """Return what a load may give: parameters, a number, or a pointer to anything."""
    (access,) = accesses(op)
    if access.size < _POINTER_BYTES:
        return _NOTHING
    base = access.address.base
    if access.space == "param" and isinstance(base, Symbol):
        start = base.address + access.address.offset
        return frozenset(range(start, start + access.size, _POINTER_BYTES))
    return None


def origin_of(operand: ResolvedOperand, origins: dict[Register, Origin]) -> Origin:
    """Return what an operand may be made from; registers that nothing has defined are made from nothing."""
    parameters: frozenset[int] = _NOTHING
    for register in registers_in(operand):
        origin = origins.get(register, _NOTHING)
        if origin is None:
            return None
        parameters |= origin
    return parameters


@dataclass(frozen=True)
class AccessSizes:
    """The bytes of the smallest accesses, at most WORD_BYTES."""

    #: To shared memory.
    shared: int
    #: To memory that a parameter leads to, by the parameter's offset.
    by_parameter: dict[int, int]
    #: To memory that may be anywhere.
    elsewhere: int

    @property
    def smallest(self) -> int:
        """The bytes of the smallest access to any memory but shared."""
        return min((self.elsewhere, *self.by_parameter.values()))


def access_sizes(program: Program) -> AccessSizes:
    """Return the smallest accesses of a kernel."""
    origins = origins_of(program)
    shared = elsewhere = WORD_BYTES
    by_parameter: dict[int, int] = {}
    for op in program.sites:
        for watched_access in watched_accesses(op):
            size = min(watched_access.size, WORD_BYTES)
            if watched_access.space == "local" or size == WORD_BYTES:
                continue
            if watched_access.space in ("shared", "generic"):
                shared = min(shared, size)
            if watched_access.space == "shared":
                continue
            origin = origin_of(op.operands[watched_access.access.operand], origins)
            if not origin:  # a variable, or anything
                elsewhere = min(elsewhere, size)
            for parameter in origin or ():
                by_parameter[parameter] = min(by_parameter.get(parameter, WORD_BYTES), size)
    return AccessSizes(shared, by_parameter, elsewhere)


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
        known = definitions.solve(self._made_here, _join)
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

    def _made_here(self, op: Op, register: Register, known: dict[int, Origins]) -> Origins | None:
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
