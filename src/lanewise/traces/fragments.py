"""Fragments in a trace: the matrix that the lanes of a warp hold together, by the catalogue's layouts."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.isa import Operand
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op, Program
from lanewise.traces.names import Variable

#: Operands of matrix instructions that are matrices.
MATRICES = ("d", "a", "b", "c")


class MatrixOperand(NamedTuple):
    """An operand of a matrix instruction: its name, its layout, and the registers that hold it."""

    name: str
    operand: Operand
    registers: tuple[Register, ...]
    #: Whether the instruction writes it.
    is_result: bool


@lru_cache(maxsize=4096)
def matrix_operands(op: Op, arch: str) -> list[MatrixOperand]:
    """Return the matrices that an instruction takes from registers or leaves there; none of most."""
    instruction = op.source.instruction()
    if instruction is None:
        return []
    instruction = instruction.on(arch)
    given = [
        (number, operand)
        for number, operand in enumerate(op.operands)
        if op.record.role(number) is not Role.ADDRESS
    ]
    names = MATRICES if instruction.multiplies else tuple(instruction.operands)
    operands = []
    for name, (number, resolved) in zip(names, given, strict=False):
        operand = instruction.operands.get(name)
        registers = tuple(part for part in elements_of(resolved) if isinstance(part, Register))
        if operand is not None and len(registers) == operand.registers:
            is_result = op.record.role(number) is Role.DEFINED
            operands.append(MatrixOperand(name, operand, registers, is_result))
    return operands


def operands_with(program: Program, arch: str, wanted: list[tuple[Register, ...]]) -> Iterator[MatrixOperand]:
    """Yield the matrix operands of a kernel's instructions whose registers may hold a variable.

    `wanted` has for each element of the variable the registers that may hold it. Operands of products come
    first, because ldmatrix does not know what the bits mean that it loads.
    """
    operands: list[tuple[bool, MatrixOperand]] = []
    for op in program.sites:
        for matrix_operand in matrix_operands(op, arch):
            if len(matrix_operand.registers) >= len(wanted) and _holds(matrix_operand.registers, wanted):
                operands.append((not op.record.multiplies, matrix_operand))
    yield from (operand for _, operand in sorted(operands, key=lambda pair: pair[0]))


def packed_operand(program: Program, arch: str, variable: Variable) -> Operand | None:
    """Return the fragment of packed numbers that a variable is, with the format that a product gives them.

    It is None of other variables, where an index counts registers.
    """
    own = variable.packed
    if own is None:
        return None
    known = next(operands_with(program, arch, list(variable.elements)), None)
    return known.operand if known is not None and known.operand.slot_bits == own.slot_bits else own


def _holds(registers: tuple[Register, ...], wanted: list[tuple[Register, ...]]) -> bool:
    """Return whether registers are those of a variable; one register may be any of an operand's."""
    if len(wanted) == 1:
        return any(register in wanted[0] for register in registers)
    return len(registers) == len(wanted) and all(
        register in elements for register, elements in zip(registers, wanted, strict=True)
    )


def no_fragment(name: str, text: str, operands: list[MatrixOperand]) -> LanewiseError:
    """Return the error for a name that no matrix instruction knows."""
    own = ", ".join(operand.name for operand in operands)
    here = f"{text} has {own}; " if own else ""
    return LanewiseError(
        f"{name} is no fragment: {here}a fragment is an operand of the step's own matrix instruction (a, b, "
        "c, d), or a variable or register that some matrix instruction of the kernel takes or gives"
    )
