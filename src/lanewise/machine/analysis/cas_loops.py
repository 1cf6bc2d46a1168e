"""Loads that only guess: an atomic compare-and-swap on the same place checks the value before it counts.

`old = *place; do { … } while (atomicCAS(place, old, …) != old)`: the load may come at any time. Headers of
CUDA add f16 and bf16 numbers so where the GPU cannot.
"""

from __future__ import annotations

from lanewise.machine.codegen.lane_vectors import several
from lanewise.machine.program.resolve import Op, Place, Program, Register, Resolved

_COPIES = frozenset(("mov", "cvta"))


class _Copies:
    """Registers that a chain of copies connects."""

    def __init__(self, program: Program) -> None:
        self._leaders: dict[Register, Register] = {}
        for op in program.sites:
            if op.opcode in _COPIES:
                registers = [
                    part for each in op.operands for part in several(each) if isinstance(part, Register)
                ]
                for register in registers[1:]:
                    self._leaders[self.leader(register)] = self.leader(registers[0])

    def leader(self, register: Register) -> Register:
        """The one that stands for all of them."""
        while (further := self._leaders.get(register)) is not None and further != register:
            register = further
        return register

    def key(self, operand: Resolved) -> object:
        """The same for operands that copies connect."""
        return self.leader(operand) if isinstance(operand, Register) else operand


def guesses(program: Program) -> frozenset[Op]:
    """The loads whose value a compare-and-swap on their own address checks, as far as copies tell."""
    swaps = [op for op in program.sites if op.opcode == "atom" and op.has("cas")]
    if not swaps:
        return frozenset()
    copies = _Copies(program)

    def values(op: Op, operand: int) -> set[object]:
        """Each value of an operand, with the place that the instruction names."""
        place = op.operands[1]
        if not isinstance(place, Place):
            return set()
        at = copies.key(place.base), place.offset
        return {(*at, copies.key(part)) for part in several(op.operands[operand])}

    checked = {value for op in swaps for value in values(op, 2)}
    return frozenset(op for op in program.sites if op.opcode == "ld" and values(op, 0) & checked)
