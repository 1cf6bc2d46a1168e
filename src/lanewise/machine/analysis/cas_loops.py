"""Finds loads whose value an atomic compare-and-swap checks before it counts.

`old = *p; do { … } while (atomicCAS(p, old, …) != old)`: a race of such a load is harmless, because a stale
value only repeats the loop. CUDA's headers add f16 and bf16 numbers like this where the GPU cannot.
"""

from lanewise.machine.program.instruction_record import AddressFlow, Role
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op, Program


class _Copies:
    """Sets of registers that copies connect, kept as a union-find structure."""

    def __init__(self, program: Program) -> None:
        self._leaders: dict[Register, Register] = {}
        for op in program.sites:
            if op.record.address_flow is AddressFlow.COPY:
                registers = [
                    element
                    for operand in op.operands
                    for element in elements_of(operand)
                    if isinstance(element, Register)
                ]
                for register in registers[1:]:
                    self._leaders[self.leader(register)] = self.leader(registers[0])

    def leader(self, register: Register) -> Register:
        """Return the register that represents all those connected with this one."""
        while (further := self._leaders.get(register)) is not None and further != register:
            register = further
        return register

    def key(self, operand: ResolvedOperand) -> object:
        """Return a key that is equal for operands that copies connect."""
        return self.leader(operand) if isinstance(operand, Register) else operand


def guessing_loads(program: Program) -> frozenset[Op]:
    """Return the loads whose value a compare-and-swap checks, as far as copies tell.

    The address is not held against that of the swap: inline assembly and casts bring it in another register.
    """
    swaps = [
        op
        for op in program.sites
        if op.record.is_atomic and op.has("cas") and op.record.role(0) is Role.DEFINED
    ]
    if not swaps:
        return frozenset()
    copies = _Copies(program)

    def values(op: Op, operand: int) -> set[object]:
        """Return a key for each register among the elements of an operand."""
        elements = elements_of(op.operands[operand])
        return {copies.key(element) for element in elements if isinstance(element, Register)}

    checked = {value for op in swaps for value in values(op, 2)}
    return frozenset(op for op in program.sites if op.record.is_plain_load and values(op, 0) & checked)
