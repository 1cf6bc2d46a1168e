"""From which variable of shared memory an address was made, where the instructions decide it.

A register that all its definitions make from one variable by adding numbers is an address into that variable.
"""

from __future__ import annotations

from dataclasses import replace

from lanewise.machine.program.instruction_record import AddressFlow, Role
from lanewise.machine.program.operands import Negated, OperandList, Register, ResolvedOperand, Symbol
from lanewise.machine.program.ops import Op, Program

#: The address of a shared variable; a number; something that cannot be told.
Source = Symbol | str
NUMBER, UNKNOWN = "number", "unknown"
_COPIES = (AddressFlow.COPY, AddressFlow.CONVERSION)


def variable(symbol: Symbol) -> Symbol:
    """The whole variable that a symbol, perhaps with an offset, leads into."""
    return replace(symbol, address=symbol.address - symbol.into, into=0)


def shared_variables(program: Program) -> list[Symbol]:
    """The variables of shared memory that a kernel names, in order."""
    found: set[Symbol] = set()

    def collect(operand: ResolvedOperand) -> None:
        match operand:
            case Symbol(space="shared"):
                found.add(variable(operand))
            case OperandList(elements):
                for each in elements:
                    collect(each)
            case _:
                inner = getattr(operand, "base", None)
                if isinstance(inner, Symbol):
                    collect(inner)

    for op in program.sites:
        for operand in op.operands:
            collect(operand)
    return sorted(found, key=lambda each: each.address)


def sources(program: Program) -> dict[Register, Symbol]:
    """The registers that hold addresses into one shared variable."""
    known: dict[Register, Source] = {}
    changed = True
    while changed:
        changed = False
        for op in program.sites:
            made = _made(op, known)
            if made is None:
                continue
            for register in op.registers(Role.DEFINED):
                old = known.get(register)
                new = made if old in (None, made) else UNKNOWN
                if new != old:
                    known[register] = new
                    changed = True
    return {register: each for register, each in known.items() if isinstance(each, Symbol)}


def _of(operand: ResolvedOperand, known: dict[Register, Source]) -> Source | None:
    """What an operand is; nothing is known yet of registers that no instruction so far has given a value."""
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


def _made(op: Op, known: dict[Register, Source]) -> Source | None:
    """What an instruction makes; None if that depends on what is not known yet."""
    flow = op.record.address_flow
    if flow is AddressFlow.MEMORY or not op.operands:
        return NUMBER
    given = [_of(each, known) for each in op.operands[1:]]
    if flow in _COPIES and len(given) == 1:
        return given[0]
    pointers = [each for each in given if each not in (NUMBER, None)]
    if flow is AddressFlow.MULTIPLY_ADD and len(given) == 3:
        if pointers and pointers != [given[2]]:
            return UNKNOWN
    elif flow is not AddressFlow.SUM:
        return UNKNOWN if pointers else (None if None in given else NUMBER)
    if len(pointers) > 1:
        return UNKNOWN
    if None in given:
        return None
    return pointers[0] if pointers else NUMBER
