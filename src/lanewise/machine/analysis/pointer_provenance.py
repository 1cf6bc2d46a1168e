"""Finds the variable of shared memory that an address was computed from, where the instructions decide it.

A register whose definitions all add numbers to the address of one variable is an address into that variable.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from lanewise.machine.program.instruction_record import AddressFlow, Role
from lanewise.machine.program.operands import Negated, OperandList, Register, ResolvedOperand, Symbol
from lanewise.machine.program.ops import Op, Program

#: The address of a shared variable, a number, or something unknown.
Source = Symbol | str
NUMBER, UNKNOWN = "number", "unknown"
_COPIES = (AddressFlow.COPY, AddressFlow.CONVERSION)
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
    found: set[Symbol] = set()

    def collect(operand: ResolvedOperand) -> None:
        match operand:
            case Symbol(space="shared"):
                found.add(variable(operand))
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
    return tuple(sorted(found, key=lambda each: each.address))


def sources(program: Program) -> dict[Register, Symbol]:
    """Return, for each register that holds addresses into one shared variable only, that variable."""
    known: dict[Register, Source] = {}
    changed = True
    while changed:
        changed = False
        for op in program.sites:
            made = _result_of(op, known)
            if made is None:
                continue
            for register in op.registers(Role.DEFINED):
                old = known.get(register)
                new = made if old in (None, made) else UNKNOWN
                if new != old:
                    known[register] = new
                    changed = True
    return {register: each for register, each in known.items() if isinstance(each, Symbol)}


def _source_of(operand: ResolvedOperand, known: dict[Register, Source]) -> Source | None:
    """Return what an operand holds; None for a register that no instruction so far has defined."""
    match operand:
        case Register():
            return known.get(operand)
        case Symbol(space="shared"):
            return variable(operand)
        case Symbol():
            return UNKNOWN
        case OperandList() | Negated():
            return UNKNOWN
    return NUMBER


def _result_of(op: Op, known: dict[Register, Source]) -> Source | None:
    """Return what an instruction computes; None if that depends on registers that are not known yet."""
    flow = op.record.address_flow
    if flow is AddressFlow.MEMORY or not op.operands:
        return NUMBER
    operands = [_source_of(each, known) for each in op.operands[1:]]
    if flow in _COPIES and len(operands) == 1:
        return operands[0]
    pointers = [each for each in operands if each not in (NUMBER, None)]
    if flow is AddressFlow.MULTIPLY_ADD and len(operands) == 3:
        if pointers and pointers != [operands[2]]:
            return UNKNOWN
    elif flow is not AddressFlow.SUM:
        return UNKNOWN if pointers else (None if None in operands else NUMBER)
    if len(pointers) > 1:
        return UNKNOWN
    if None in operands:
        return None
    return pointers[0] if pointers else NUMBER
