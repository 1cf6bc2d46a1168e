"""Finds the variable of shared memory that an address was computed from, where the instructions decide it.

A value that every definition which reaches it makes from the address of one variable and from numbers leads
into that variable. It may be shifted, as in the descriptors of wgmma, which hold addresses divided by 16.
"""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.program.instruction_record import AddressFlow
from lanewise.machine.program.operands import (
    OperandList,
    Register,
    RegisterPart,
    ResolvedOperand,
    Symbol,
    elements_of,
)
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.ptx import Immediate

#: How far the addresses in matrix descriptors are shifted to the right.
DESCRIPTOR_SHIFT = 4


@dataclass(frozen=True)
class Derived:
    """A value made from the address of a shared variable: the address, shifted to the right."""

    symbol: Symbol
    shift: int = 0

    @property
    def bits(self) -> int:
        """How many low bits the addresses of the variable have, as they are shifted."""
        return ((self.symbol.address + self.symbol.size - 1) >> self.shift).bit_length()


#: A value made from an address, a number, or something unknown.
Source = Derived | str
NUMBER, UNKNOWN = "number", "unknown"
_COPIES = (AddressFlow.COPY, AddressFlow.CONVERSION)
_NUMBERS = (AddressFlow.MEMORY, AddressFlow.PRODUCT)
#: The fewest bits of a value that can hold an address.
_ADDRESS_BITS = 32
#: The shared variables of a program: messages ask for them again and again, and a program does not change.
_NAMED: WeakKeyDictionary[Program, tuple[Symbol, ...]] = WeakKeyDictionary()


def variable(symbol: Symbol) -> Symbol:
    """Return the symbol of the whole variable, for a symbol that may have an offset into it."""
    return replace(symbol, address=symbol.address - symbol.into, into=0)


def shared_variables(program: Program) -> tuple[Symbol, ...]:
    """Return the variables of shared memory that a kernel names, sorted by address; once for a program."""
    named = _NAMED.get(program)
    if named is None:
        named = _NAMED[program] = _named_variables(program)
    return named


def _named_variables(program: Program) -> tuple[Symbol, ...]:
    """Return the variables of shared memory that the instructions of a kernel name, sorted by address."""
    named: set[Symbol] = set()

    def collect(operand: ResolvedOperand) -> None:
        match operand:
            case Symbol(space="shared"):
                named.add(variable(operand))
            case OperandList(elements):
                for element in elements:
                    collect(element)
            case _:
                inner = getattr(operand, "base", None)
                if isinstance(inner, Symbol):
                    collect(inner)

    for op in program.sites:
        for operand in op.operands:
            collect(operand)
    return tuple(sorted(named, key=lambda symbol: symbol.address))


class AddressSources:
    """What the values of a kernel's registers were made from, at each instruction that reads them."""

    def __init__(self, definitions: ReachingDefinitions) -> None:
        self.definitions = definitions
        self._known = definitions.solve(self._made, _join)

    def variable(self, op: Op, operand: ResolvedOperand, shift: int = 0) -> Symbol | None:
        """Return the one shared variable that an operand of an instruction leads into, if it is known.

        `shift` is how far its address is shifted to the right.
        """
        source = self._source(op, operand, self._known)
        return source.symbol if isinstance(source, Derived) and source.shift == shift else None

    def _source(self, op: Op, operand: ResolvedOperand, known: dict[int, Source]) -> Source | None:
        """Return what an operand holds; None for a register that nothing known so far has defined."""
        match operand:
            case Register():
                if operand in self.definitions.parameters:
                    return UNKNOWN
                joined: Source | None = None
                for number in self.definitions.reaching(op, operand):
                    source = known.get(number)
                    if source is not None:
                        joined = source if joined is None else _join(joined, source)
                return joined
            case Symbol(space="shared"):
                return Derived(variable(operand))
            case Symbol() | RegisterPart():
                return UNKNOWN
            case OperandList(elements):
                return _packed([self._source(op, element, known) for element in elements])
        return NUMBER

    def _made(self, op: Op, register: Register, known: dict[int, Source]) -> Source | None:
        """Return what an instruction puts into a register; None if that is not known yet."""
        flow = op.record.address_flow
        if flow in _NUMBERS or op.record.multiplies or len(op.operands) < 2:
            return NUMBER
        operands = [self._source(op, operand, known) for operand in op.operands[1:]]
        if flow in _COPIES and len(operands) == 1:
            return _copied(op, register, operands[0])
        if op.record.chooses:
            first, second = operands[:2]
            return first if second is None else second if first is None else _join(first, second)
        if None in operands:
            return None
        derived = [source for source in operands if isinstance(source, Derived)]
        if not derived:
            return UNKNOWN if UNKNOWN in operands else NUMBER
        if UNKNOWN in operands:
            return UNKNOWN
        return _computed(op, flow, operands, derived)


def _join(first: Source, second: Source) -> Source:
    """Return what is known of a value that is one or the other."""
    return first if first == second else UNKNOWN


def _packed(elements: list[Source | None]) -> Source | None:
    """Return what registers hold that are put together as one, the lowest first: its address is there."""
    if None in elements:
        return None
    numbers = all(element == NUMBER for element in elements[1:])
    return elements[0] if numbers else UNKNOWN


def _copied(op: Op, register: Register, source: Source | None) -> Source | None:
    """Return what a move or a conversion gives, perhaps to one of several registers."""
    targets = elements_of(op.operands[0])
    if not isinstance(source, Derived):
        return source
    narrow = any(TYPE_BITS[type_name] < _ADDRESS_BITS for type_name in op.types)
    if narrow or any(isinstance(target, Register) and target.bits < _ADDRESS_BITS for target in targets):
        return UNKNOWN
    return source if targets[0] == register else NUMBER


def _computed(op: Op, flow: AddressFlow, operands: list[Source | None], derived: list[Derived]) -> Source:
    """Return what an instruction computes from addresses and numbers."""
    one = derived[0]
    alone = len(derived) == 1
    constants = [operand.bits if isinstance(operand, Immediate) else None for operand in op.operands[2:]]
    match flow:
        case AddressFlow.SUM if alone:
            return one
        case AddressFlow.DIFFERENCE if operands[0] == one:
            return one if alone else NUMBER if operands[1] == one else UNKNOWN
        case AddressFlow.MULTIPLY_ADD if alone and operands[-1] == one:
            return one
        case AddressFlow.MASK if alone and operands[0] == one and constants[0] is not None:
            return _kept(one, constants[0])
        case AddressFlow.SHIFT_RIGHT if alone and operands[0] == one and constants[0] is not None:
            return replace(one, shift=one.shift + constants[0])
        case AddressFlow.SHIFT_LEFT if alone and operands[0] == one and constants[0] is not None:
            return replace(one, shift=one.shift - constants[0]) if constants[0] <= one.shift else UNKNOWN
        case AddressFlow.BIT_FIELD if alone and None not in constants:
            first, count = (constant or 0 for constant in constants)
            return _kept(replace(one, shift=one.shift + first), (1 << min(count, 64)) - 1)
    return UNKNOWN


def _kept(derived: Derived, mask: int) -> Source:
    """Return what a mask leaves of an address: the address, or some low bits, which are a number."""
    return derived if mask >= 1 << max(derived.bits - 1, 0) else NUMBER
