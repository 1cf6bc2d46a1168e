"""What a wgmma.mma_async names: registers, descriptors of shared memory, and choices by constants."""

from typing import NamedTuple

from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import Major
from lanewise.isa.statement import expected_operands
from lanewise.machine.program.operands import Negated, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: Flags: whether the signs of A's and of B's elements are changed.
NEGATE_A, NEGATE_B = 1, 2


class SharedMatrix(NamedTuple):
    """A matrix that a descriptor names: where the descriptor is, and what it is taken to describe.

    `piece_grid` of `lanewise.isa.matrix_descriptor` takes the last four; `each_piece` walks over its pieces.
    """

    name: str
    #: The offset of the register with the descriptor, or 0 and the descriptor itself.
    register: int
    constant: int
    major: Major
    #: Rows of A, columns of B.
    rows: int
    k: int
    bits: int


class Statement:
    """The operands of one instruction: registers, descriptors, scale-d and what constants choose."""

    def __init__(self, op: Op, instruction: Instruction) -> None:
        self.op, self.instruction = op, instruction
        expected = expected_operands(instruction)
        if len(op.operands) != len(expected):
            names = ", ".join(operand.name for operand in expected)
            raise op.unsupported(f"it takes {len(expected)} operands ({names}), not {len(op.operands)}")
        rest = list(op.operands)
        self.registers = self._vector(rest.pop(0), instruction, "d")
        self.a = 0, 0
        if instruction.a_source == "registers":
            self.registers += self._vector(rest.pop(0), instruction, "a")
        else:
            self.a = self._number(rest.pop(0), 64, "A's descriptor")
        self.b = self._number(rest.pop(0), 64, "B's descriptor")
        self.selector = 0
        if instruction.sparse:
            self.registers += self._vector(rest.pop(0), instruction, "metadata")
            self.selector = self._constant(rest.pop(0), (0, 1, 2, 3), "the sparsity selector")
        self.scale_d = self._scale_d(rest.pop(0))
        self.flags = 0
        self.majors: dict[str, Major] = {"a": "K", "b": "K"}
        if instruction.types[0] != "s32":
            for flag in (NEGATE_A, NEGATE_B):
                if self._constant(rest.pop(0), (1, -1), "an imm-scale") == -1:
                    self.flags |= flag
        if instruction.types[1] in ("f16", "bf16"):
            for name in "ab" if instruction.a_source == "descriptor" else "b":
                if self._constant(rest.pop(0), (0, 1), "an imm-trans"):
                    self.majors[name] = "MN"

    def matrices(self) -> list[SharedMatrix]:
        """Return the operands that lie in shared memory, A before B."""
        matrices, bits = [], self.instruction.b.format.word_bits
        if self.instruction.b.format.bits == 1:
            bits = 1
        a, b = self.instruction.a, self.instruction.b
        if self.instruction.a_source == "descriptor":
            matrices.append(SharedMatrix("a", *self.a, self.majors["a"], a.rows, a.cols, bits))
        matrices.append(SharedMatrix("b", *self.b, self.majors["b"], b.cols, b.rows, bits))
        return matrices

    def _vector(self, operand: ResolvedOperand, instruction: Instruction, name: str) -> list[Register]:
        wanted = instruction.operands[name]
        elements = elements_of(operand)
        registers = [element for element in elements if isinstance(element, Register) and element.bits == 32]
        if len(registers) != len(elements) or len(registers) != wanted.registers:
            raise self.op.unsupported(f"{wanted.name} is {wanted.registers} registers of 32 bits")
        return registers

    def _number(self, operand: ResolvedOperand, bits: int, name: str) -> tuple[int, int]:
        """Return a register's offset and 0, or 0 and a constant."""
        if isinstance(operand, Immediate):
            return 0, operand.bits
        if not isinstance(operand, Register) or operand.bits != bits or operand.is_predicate:
            raise self.op.unsupported(f"{name} is a register of {bits} bits or a constant")
        return operand.offset, 0

    def _scale_d(self, operand: ResolvedOperand) -> tuple[int, int]:
        negated = isinstance(operand, Negated) and operand.operator == "!"
        if isinstance(operand, Negated) and negated:
            operand = operand.operand
        if isinstance(operand, Register) and operand.is_predicate:
            return operand.offset, int(negated)
        if isinstance(operand, Immediate) and operand.bits in (0, 1) and not negated:
            return 0, operand.bits
        raise self.op.unsupported("scale-d is a predicate, 0 or 1")

    def _constant(self, operand: ResolvedOperand, allowed: tuple[int, ...], name: str) -> int:
        sign = 1
        if isinstance(operand, Negated) and operand.operator == "-":
            sign, operand = -1, operand.operand
        if isinstance(operand, Immediate):
            number = operand.bits - (1 << 64) if operand.bits >> 63 else operand.bits
            if sign * number in allowed:
                return sign * number
        choices = " or ".join(map(str, allowed))
        raise self.op.unsupported(f"{name} is the constant {choices}")
