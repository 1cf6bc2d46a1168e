"""What becomes of a value that an instruction loads: is it computed with, only copied, or perhaps dropped?"""

from enum import IntEnum
from functools import cached_property

from lanewise.machine.analysis.definite_assignment import assigned, compares, needed, passed
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op, Program


class Use(IntEnum):
    """What a kernel does with a value, in the order of what it means that the value is missing."""

    #: Nothing, or a choice between it and another value.
    DROPPED = 0
    #: It is stored, and nothing is computed with it.
    COPIED = 1
    COMPUTED = 2


class ValueUses:
    """What becomes of the values that the loads of a program give, as far as registers tell."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[tuple[int, int], Use] = {}

    @cached_property
    def _users(self) -> dict[Register, list[Op]]:
        """The instructions that need the value of a register, or pass it on."""
        users: dict[Register, list[Op]] = {}
        for op in self.program.sites:
            for register in needed(op) | passed(op):
                users.setdefault(register, []).append(op)
        return users

    def of(self, load: Op, element: int) -> Use:
        """Return what becomes of an element that a load gives."""
        key = load.site, element
        if key not in self._known:
            elements = elements_of(load.operands[0])
            first = elements[element] if element < len(elements) else None
            self._known[key] = self._follow(first) if isinstance(first, Register) else Use.COMPUTED
        return self._known[key]

    def _follow(self, first: Register) -> Use:
        followed, left, use = {first}, [first], Use.DROPPED
        while left and use is not Use.COMPUTED:
            register = left.pop()
            for op in self._users.get(register, ()):
                if register in needed(op) or compares(op):
                    stores = op.record.is_plain_store and register in stored_registers(op)
                    use = max(use, Use.COPIED if stores else Use.COMPUTED)
                elif not op.record.chooses:
                    further = assigned(op) - followed
                    followed |= further
                    left += further
        return use


def stored_registers(op: Op) -> set[Register]:
    """Return the registers that a plain store writes to memory."""
    (access,) = op.record.memory
    return {element for element in elements_of(op.operands[access.data]) if isinstance(element, Register)}
