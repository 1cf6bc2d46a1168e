"""From which variable of shared memory an address was made, where the instructions decide it.

A register that all its definitions make from one variable by adding numbers is an address into that variable.
"""

from __future__ import annotations

from dataclasses import replace

from lanewise.machine.analysis.definite_assignment import assigned
from lanewise.machine.program.resolve import (
    Inverted,
    Op,
    Program,
    Register,
    Resolved,
    Several,
    Symbol,
)

#: The address of a shared variable; a number; something that cannot be told.
Source = Symbol | str
NUMBER, UNKNOWN = "number", "unknown"
_COPIES = frozenset(("mov", "cvta", "cvt"))
_SUMS = frozenset(("add", "sub", "or", "xor", "and"))


def variable(symbol: Symbol) -> Symbol:
    """The whole variable that a symbol, perhaps with an offset, leads into."""
    return replace(symbol, address=symbol.address - symbol.into, into=0)


def shared_variables(program: Program) -> list[Symbol]:
    """The variables of shared memory that a kernel names, in order."""
    found: set[Symbol] = set()

    def collect(operand: Resolved) -> None:
        match operand:
            case Symbol(space="shared"):
                found.add(variable(operand))
            case Several(elements):
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
            for register in assigned(op):
                old = known.get(register)
                new = made if old in (None, made) else UNKNOWN
                if new != old:
                    known[register] = new
                    changed = True
    return {register: each for register, each in known.items() if isinstance(each, Symbol)}


def _of(operand: Resolved, known: dict[Register, Source]) -> Source | None:
    """What an operand is; nothing is known yet of registers that no instruction so far has given a value."""
    match operand:
        case Register():
            return known.get(operand)
        case Symbol(space="shared"):
            return variable(operand)
        case Symbol():
            return UNKNOWN
        case Several() | Inverted():
            return UNKNOWN
    return NUMBER


def _made(op: Op, known: dict[Register, Source]) -> Source | None:
    """What an instruction makes; None if that depends on what is not known yet."""
    if op.opcode in ("ld", "ldu", "atom", "call") or not op.operands:
        return NUMBER
    given = [_of(each, known) for each in op.operands[1:]]
    if op.opcode in _COPIES and len(given) == 1:
        return given[0]
    pointers = [each for each in given if each not in (NUMBER, None)]
    if op.opcode == "mad" and len(given) == 3:
        if pointers and pointers != [given[2]]:
            return UNKNOWN
    elif op.opcode not in _SUMS:
        return UNKNOWN if pointers else (None if None in given else NUMBER)
    if len(pointers) > 1:
        return UNKNOWN
    if None in given:
        return None
    return pointers[0] if pointers else NUMBER
