"""Registers that a path leaves without a value: by dataflow, and at run time where that cannot tell.

Only uses that matter are looked at: arithmetic, addresses, what is stored, and conditions. Moves and choices
of a value that nobody looks at are what compilers write for one that does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op


def assigned(op: Op) -> set[Register]:
    """The registers that an instruction gives values to; a guard is taken to hold."""
    return op.registers(Role.DEFINED)


def mattering(op: Op) -> set[Register]:
    """The registers whose values an instruction lets matter; of a guarded one, its guard alone."""
    if op.guard is not None:
        return {op.guard[0]}
    if op.record.needs_values:
        return op.registers(Role.ADDRESS, Role.USED)
    return op.registers(Role.ADDRESS)


@dataclass
class Plan:
    """What to do in each block of code: uses to check when it begins, registers set at its end."""

    registers: list[Register] = field(default_factory=list)
    checks: dict[int, list[tuple[int, Op]]] = field(default_factory=dict)
    sets: dict[int, list[int]] = field(default_factory=dict)
    entry: int = -1


def plan(blocks: list[BasicBlock], entry: int) -> Plan:
    """The kernel's own registers that may be used without a value; not those of device functions."""
    first = blocks[entry]
    own = [block for block in blocks if block.body is first.body]
    every: set[Register] = set()
    for block in own:
        for op in block.executed:
            every |= assigned(op) | mattering(op)
    before = {id(block): set(every) for block in own}
    before[id(first)] = {each for each in first.body.parameters if isinstance(each, Register)}
    changed = True
    while changed:
        changed = False
        for block in own:
            after = set(before[id(block)])
            for op in block.executed:
                after |= assigned(op)
            for following in successors(block):
                held = before.get(id(following))
                if held is None:
                    continue
                if following is first:  # a kernel that jumps to its beginning: no fresh start to tell by
                    return Plan()
                if not held <= after:
                    held &= after
                    changed = True
    doubtful: dict[Register, int] = {}
    made = Plan(entry=entry)
    for block in own:
        known = set(before[id(block)])
        for op in block.executed:
            for register in sorted(mattering(op) - known, key=lambda each: each.offset):
                number = doubtful.setdefault(register, len(doubtful))
                made.checks.setdefault(block.number, []).append((number, op))
                known.add(register)  # once a block
            known |= assigned(op)
    made.registers = list(doubtful)
    for block in own:
        given = set().union(*(assigned(op) for op in block.executed)) if block.executed else set()
        numbers = [number for register, number in doubtful.items() if register in given]
        if numbers:
            made.sets[block.number] = numbers
    return made
