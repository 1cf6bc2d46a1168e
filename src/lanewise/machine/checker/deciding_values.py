"""What a kernel decides by a value that a strong read gives it: the comparison with which a thread waits.

A thread that goes on because of `while (*flag != 1)` has waited for the write of 1. One that goes on because
of `while (*count < 1)` has waited for the first of two additions, also where it happens to read 2.
"""

from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from lanewise.machine.analysis.definite_assignment import assigned, compares
from lanewise.machine.program.instruction_record import AddressFlow, Role
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate


class Decision(IntEnum):
    """How the value of a strong read is compared."""

    #: The value is not read, or nobody looks at it.
    NONE = 0
    #: By no comparison, by several, or with a number that is not known when the value is read.
    UNKNOWN = 1
    #: Whether it is equal to a number that is computed later.
    EXACT = 2
    # Whether it is equal to a number, below it, or not above it.
    EQUAL = 3
    BELOW = 4
    UP_TO = 5


class Comparison(NamedTuple):
    """The comparison of a value with another operand; signed numbers are compared after a bit was flipped."""

    decision: Decision
    operand: ResolvedOperand | None = None
    flipped_bit: int = 0


_EQUALITY = frozenset(("eq", "ne"))
_BELOW = frozenset(("lt", "ge", "lo", "hs"))
_UP_TO = frozenset(("gt", "le", "hi", "ls"))
_WORDS = frozenset(("b32", "u32", "s32"))
_SIGN = 1 << 31


class DecidingValues:
    """The comparisons of values that the strong reads of a program give."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def _users(self) -> dict[Register, list[Op]]:
        """The instructions that use the value of a register."""
        users: dict[Register, list[Op]] = {}
        for op in self.program.sites:
            for register in op.registers(Role.USED):
                users.setdefault(register, []).append(op)
        return users

    @cached_property
    def _definitions(self) -> dict[Register, list[int]]:
        """The sites of the instructions that give a register its value."""
        definitions: dict[Register, list[int]] = {}
        for op in self.program.sites:
            for register in assigned(op):
                definitions.setdefault(register, []).append(op.site)
        return definitions

    def comparison(self, read: Op) -> Comparison:
        """Return how the value of a read is compared, if one comparison of 32-bit numbers decides."""
        values = elements_of(read.operands[0])
        if len(values) != 1 or not isinstance(values[0], Register):
            return Comparison(Decision.UNKNOWN)
        copies = self._copies(values[0])
        comparisons = [op for register in copies for op in self._users.get(register, ()) if compares(op)]
        if len(comparisons) != 1:
            return Comparison(Decision.UNKNOWN)
        return self._compared(read, comparisons[0], copies)

    def _copies(self, value: Register) -> set[Register]:
        """Return a register and those that it is copied to."""
        copies, left = {value}, [value]
        while left:
            for op in self._users.get(left.pop(), ()):
                if op.record.address_flow is AddressFlow.COPY:
                    further = assigned(op) - copies
                    copies |= further
                    left += further
        return copies

    def _compared(self, read: Op, comparison: Op, values: set[Register]) -> Comparison:
        """Return how one comparison looks at the value of a read."""
        if len(comparison.operands) != 3 or not _WORDS.issuperset(comparison.types):
            return Comparison(Decision.UNKNOWN)
        operator, flipped = comparison.modifiers[0], _SIGN * comparison.has("s32")
        first, second = comparison.operands[1:]
        is_first = first in values
        operand = second if is_first else first
        if operator in _EQUALITY:
            is_known = self._is_known(operand, read)
            return Comparison(Decision.EQUAL, operand) if is_known else Comparison(Decision.EXACT)
        if operator not in _BELOW | _UP_TO or not self._is_known(operand, read):
            return Comparison(Decision.UNKNOWN)
        # a < b is the same as b > a.
        is_below = (operator in _BELOW) == is_first
        return Comparison(Decision.BELOW if is_below else Decision.UP_TO, operand, flipped)

    def _is_known(self, operand: ResolvedOperand, read: Op) -> bool:
        """Return whether an operand has its value when a read is executed, which comes before its use."""
        if isinstance(operand, Immediate):
            return True
        if not isinstance(operand, Register):
            return False
        definitions = self._definitions.get(operand, [])
        return len(definitions) == 1 and definitions[0] < read.site
