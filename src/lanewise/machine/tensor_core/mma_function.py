"""What all products are written with: their function, room on the stack, registers, f16 to f32 and back."""

from lanewise.isa import Instruction
from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Type, Value, f32, u16, u32
from lanewise.machine.arithmetic.small_floats import round_to, widen
from lanewise.machine.codegen.function_code import FunctionCode
from lanewise.machine.codegen.register_shuffles import Registers

FLOAT16 = Type("f", 16)


class ProductCode(FunctionCode):
    """`product(frame, places, selectors)`: the offsets of the registers of D, A, B, C, … lie at `places`.

    Returns 0, or 1 if the instruction does not take the selector or the metadata. LLVM may unroll its loops,
    because it is compiled once for all kernels.
    """

    unrolled = True

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name, ("frame", "places", "selectors"), ir.IntType(32), "external")


def operand_registers(code: FunctionCode, instruction: Instruction) -> dict[str, Registers]:
    """Where the registers of each operand lie, as the code that calls has put it down."""
    base = code.record("frame").handle
    places = code.pointer("places", u32)
    registers: dict[str, Registers] = {}
    number = 0
    for name in ("d", "a", "b", "c", "metadata", "scale_a", "scale_b"):
        if name in instruction.operands:
            operand = instruction.operands[name]
            offsets = [
                places.load(number + register).to(Type("u", 64)) for register in range(operand.registers)
            ]
            number += operand.registers
            registers[name] = Registers(code, base, offsets, operand.register_bits)
    return registers


def half_numbers(raw: Value) -> Value:
    """f16 words as f32."""
    if machine_code.has_half_floats():
        return raw.view(FLOAT16).to(f32)
    return widen(raw, "f16")


def half_words(number: Value) -> Value:
    """f32 as words of f16, to nearest."""
    if machine_code.has_half_floats():
        return number.to(FLOAT16).view(u16)
    return round_to(number, "f16").to(u16)
