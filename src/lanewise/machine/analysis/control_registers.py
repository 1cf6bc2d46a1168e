"""Registers that decide where a kernel goes on and what memory it accesses, by a backward slice.

A loop that counts how often it looked at a flag makes no progress: the counter decides on nothing.
"""

from lanewise.machine.program.instruction_record import BlockEnd, Role
from lanewise.machine.program.operands import CLOCK_REGISTERS, Register, SpecialRegister, registers_in
from lanewise.machine.program.ops import Op, Program

#: Roles of operands that decide on where lanes go on, or on what is accessed.
_DECIDING = (
    Role.ADDRESS,
    Role.DESCRIPTOR,
    Role.TENSOR_ADDRESS,
    Role.MATRIX,
    Role.MEMBERS,
    Role.BARRIER,
)


def control_registers(program: Program) -> set[Register] | None:
    """Return the registers that guards, branches and addresses depend on; None if any register may count.

    Where functions are called, values go through memory of calls, and the slice is not computed.
    """
    ops = [op for body in program.bodies for op in body.ops]
    if len(program.bodies) > 1 or any(op.record.ends is BlockEnd.CALL for op in ops):
        return None
    deciding: set[Register] = set()
    for op in ops:
        deciding |= op.registers(*_DECIDING)
        if op.guard is not None:
            deciding.add(op.guard[0])
        if any(op.record.role(number) is Role.LABEL for number in range(len(op.operands))):
            deciding |= _sources(op)
    before = -1
    while len(deciding) != before:
        before = len(deciding)
        for op in ops:
            if not deciding.isdisjoint(op.registers(Role.DEFINED)):
                deciding |= _sources(op)
    return deciding


def time_decides(program: Program) -> bool:
    """Return whether a clock may decide on what a kernel does: then a loop ends although nothing changes."""
    deciding = control_registers(program)
    return any(
        reads_clock(op)
        for body in program.bodies
        for op in body.ops
        if deciding is None or not deciding.isdisjoint(op.registers(Role.DEFINED))
    )


def reads_clock(op: Op) -> bool:
    """Return whether an instruction reads a register that counts time."""
    return any(
        isinstance(operand, SpecialRegister) and operand.name in CLOCK_REGISTERS for operand in op.operands
    )


def _sources(op: Op) -> set[Register]:
    """Return the registers that an instruction reads."""
    return {
        register
        for number, operand in enumerate(op.operands)
        if op.record.role(number) is not Role.DEFINED
        for register in registers_in(operand)
    }
