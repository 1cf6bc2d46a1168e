"""What becomes of a value that an instruction loads: is it computed with, only copied, or perhaps dropped?"""

from __future__ import annotations

from enum import IntEnum

from lanewise.machine.analysis.definite_assignment import assigned, needed, passed
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op, Program


class Use(IntEnum):
    """What a kernel does with a value, in the order of what it means that the value is missing."""

    #: Nothing, or a choice between it and another value.
    DROPPED = 0
    #: It is stored, and nothing is computed with it.
    COPIED = 1
    COMPUTED = 2


def use_of(program: Program, load: Op, element: int) -> Use:
    """Return what becomes of an element that a load gives, as far as registers tell."""
    elements = elements_of(load.operands[0])
    first = elements[element] if element < len(elements) else None
    if not isinstance(first, Register):
        return Use.COMPUTED
    followed, left, found = {first}, [first], Use.DROPPED
    while left:
        register = left.pop()
        for op in program.sites:
            if register in needed(op):
                addresses = op.record.is_plain_store and register not in stored_registers(op)
                stores = op.record.is_plain_store and not addresses
                found = max(found, Use.COPIED if stores else Use.COMPUTED)
            elif register in passed(op) and not op.record.chooses:
                further = assigned(op) - followed
                followed |= further
                left += further
    return found


def stored_registers(op: Op) -> set[Register]:
    """Return the registers that a plain store writes to memory."""
    (access,) = op.record.memory
    return {each for each in elements_of(op.operands[access.data]) if isinstance(each, Register)}
