"""Registers that a path leaves without a value: by dataflow, and at run time where that cannot tell.

Only uses that matter are looked at: arithmetic, addresses, what is stored, and conditions. Moves and choices
of a value that nobody looks at are what compilers write for one that does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lanewise.machine.program.basic_blocks import CALL_RESULTS, Block, successors
from lanewise.machine.program.resolve import Inverted, Op, Place, Register, Resolved, Several

#: Instructions whose operands' values matter.
ARITHMETIC = frozenset(
    ("add", "sub", "mul", "mad", "fma", "mul24", "mad24", "sad", "div", "rem", "min", "max", "abs", "neg",
     "setp", "set", "addc", "subc", "madc", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh",
     "popc", "clz")
)  # fmt: skip
STORES = frozenset(("st", "red", "atom"))
#: Instructions without a destination.
NO_TARGET = frozenset(
    ("st", "stmatrix", "red", "bra", "brx", "ret", "exit", "trap", "cp", "membar", "fence", "prefetch",
     "prefetchu", "nanosleep", "discard", "griddepcontrol", "setmaxnreg", "brkpt", "pmevent", "applypriority",
     "stackrestore")
)  # fmt: skip


def registers_in(operand: Resolved) -> Iterable[Register]:
    """The registers of an operand."""
    match operand:
        case Register():
            yield operand
        case Several(elements):
            for each in elements:
                yield from registers_in(each)
        case Inverted(_, inner):
            yield from registers_in(inner)
        case Place(base, _):
            yield from registers_in(base)


def assigned(op: Op) -> set[Register]:
    """The registers that an instruction gives values to; a guard is taken to hold."""
    if op.opcode in (CALL_RESULTS, "call"):
        return set(registers_in(op.operands[0]))
    if op.opcode in NO_TARGET or not op.operands or (op.opcode == "wmma" and op.has("store")):
        return set()
    if op.opcode in ("bar", "barrier") and not op.has("red"):
        return set()
    return set(registers_in(op.operands[0]))


def mattering(op: Op) -> set[Register]:
    """The registers whose values an instruction without a guard lets matter."""
    found: set[Register] = set()
    if op.guard is not None:
        return {op.guard[0]}
    for operand in op.operands:
        if isinstance(operand, Place):
            found.update(registers_in(operand))
    if op.opcode in ARITHMETIC or op.opcode in STORES:
        for operand in op.operands[1:]:
            found.update(registers_in(operand))
    return found


@dataclass
class Plan:
    """What to do in each block of code: uses to check when it begins, registers set at its end."""

    registers: list[Register] = field(default_factory=list)
    checks: dict[int, list[tuple[int, Op]]] = field(default_factory=dict)
    sets: dict[int, list[int]] = field(default_factory=dict)
    entry: int = -1


def plan(blocks: list[Block], entry: int) -> Plan:
    """The kernel's own registers that may be used without a value; not those of device functions."""
    first = blocks[entry]
    own = [block for block in blocks if block.body is first.body]
    every: set[Register] = set()
    for block in own:
        for op in _ops(block):
            every |= assigned(op) | mattering(op)
    before = {id(block): set(every) for block in own}
    before[id(first)] = {each for each in first.body.parameters if isinstance(each, Register)}
    changed = True
    while changed:
        changed = False
        for block in own:
            after = set(before[id(block)])
            for op in _ops(block):
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
        for op in _ops(block):
            for register in sorted(mattering(op) - known, key=lambda each: each.offset):
                number = doubtful.setdefault(register, len(doubtful))
                made.checks.setdefault(block.number, []).append((number, op))
                known.add(register)  # once a block
            known |= assigned(op)
    made.registers = list(doubtful)
    for block in own:
        given = set().union(*(assigned(op) for op in _ops(block))) if _ops(block) else set()
        numbers = [number for register, number in doubtful.items() if register in given]
        if numbers:
            made.sets[block.number] = numbers
    return made


def _ops(block: Block) -> list[Op]:
    """The instructions of a block; one that lanes wait for is the next block's."""
    return [*block.ops, *([block.op] if block.op is not None and block.end not in ("sync", "phase") else [])]
