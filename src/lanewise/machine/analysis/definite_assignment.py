"""Definite assignment: registers that a path may leave without a value, by dataflow analysis.

What the analysis cannot decide is checked at run time. Only uses in arithmetic, addresses, stores and
conditions count: compilers also move and select values that nobody reads afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op


def assigned(op: Op) -> set[Register]:
    """Return the registers that an instruction writes; a guarded instruction is assumed to execute."""
    return op.registers(Role.DEFINED)


def mattering(op: Op) -> set[Register]:
    """Return the registers whose values an instruction needs; of a guarded one, only its guard."""
    if op.guard is not None:
        return {op.guard[0]}
    if op.record.needs_values:
        return op.registers(Role.ADDRESS, Role.USED)
    return op.registers(Role.ADDRESS)


@dataclass
class Plan:
    """What the checker adds to each basic block: uses to check and registers that the block assigns."""

    registers: list[Register] = field(default_factory=list)
    checks: dict[int, list[tuple[int, Op]]] = field(default_factory=dict)
    sets: dict[int, list[int]] = field(default_factory=dict)
    entry: int = -1


def plan(blocks: list[BasicBlock], entry: int) -> Plan:
    """Return the kernel's registers that may be used before they are assigned, and where to check them.

    Registers of device functions are left out.
    """
    first = blocks[entry]
    kernel_blocks = [block for block in blocks if block.body is first.body]
    registers: set[Register] = set()
    for block in kernel_blocks:
        for op in block.executed:
            registers |= assigned(op) | mattering(op)
    before = {id(block): set(registers) for block in kernel_blocks}
    before[id(first)] = {parameter for parameter in first.body.parameters if isinstance(parameter, Register)}
    changed = True
    while changed:
        changed = False
        for block in kernel_blocks:
            after = set(before[id(block)])
            for op in block.executed:
                after |= assigned(op)
            for following in successors(block):
                held = before.get(id(following))
                if held is None:
                    continue
                if following is first:  # a kernel that jumps to its first basic block cannot be tracked
                    return Plan()
                if not held <= after:
                    held &= after
                    changed = True
    doubtful: dict[Register, int] = {}
    made = Plan(entry=entry)
    for block in kernel_blocks:
        known = set(before[id(block)])
        for op in block.executed:
            for register in sorted(mattering(op) - known, key=lambda register: register.offset):
                number = doubtful.setdefault(register, len(doubtful))
                made.checks.setdefault(block.number, []).append((number, op))
                known.add(register)  # once in a basic block
            known |= assigned(op)
    made.registers = list(doubtful)
    for block in kernel_blocks:
        written = set().union(*(assigned(op) for op in block.executed)) if block.executed else set()
        numbers = [number for register, number in doubtful.items() if register in written]
        if numbers:
            made.sets[block.number] = numbers
    return made
