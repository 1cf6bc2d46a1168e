"""Lowerings of wmma.load and wmma.store: lines of a matrix in memory, shuffled to a fragment's layout.

Pointer and stride are the same in all lanes, as the PTX ISA demands; lane 0's are taken.
"""

import numpy as np

from lanewise.isa import Instruction, Operand
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, i64, u32, u64
from lanewise.machine.codegen.function_code import BlockCode, shared_code
from lanewise.machine.codegen.register_shuffles import (
    VECTOR,
    Places,
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
)
from lanewise.machine.program.memory_accesses import accesses, tile_lines
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.mma import instruction_of, whole_warp
from lanewise.machine.warp_ops.addresses import WRITE, Access


def lower(code: BlockCode, op: Op) -> None:
    """Lower wmma.load and wmma.store as a call of a shared function."""
    instruction = instruction_of(op, code.kernel.arch)
    (located,) = accesses(op)
    operand = instruction.operands[instruction.matrix]
    registers = [
        element
        for element in elements_of(op.operands[1 - located.access.operand])
        if isinstance(element, Register) and element.bits == operand.register_bits
    ]
    if len(registers) != operand.registers:
        raise op.unsupported(f"it takes {operand.registers} registers of {operand.register_bits} bits")
    with code.when(whole_warp(code, op)):
        zero = code.constant(i64, 0)
        if instruction.stride:
            stride = code.lane_read(op.operands[-1], u32, zero)
        else:
            stride = code.constant(u32, tile_lines(instruction).elements)
        address, offsets = code.address_of(located.address, zero), [register.offset for register in registers]
        function = _mover(code, instruction, operand, located.access.writes)
        code.invoke_or_stop(function, code["frame"], address, stride, op.site, *offsets)


def _in_lines(instruction: Instruction, operand: Operand, flat: Places) -> Places:
    """Return indices into a row-major matrix as indices into its lines."""
    if instruction.layouts[0] == "row":
        return flat
    rows, columns = operand.shape
    return np.asarray(flat % columns * rows + flat // columns)


def _mover(code: BlockCode, instruction: Instruction, operand: Operand, storing: bool) -> ir.Function:
    """Return a shared function that moves fragments of one form, for any registers."""
    name = f"{instruction.text} {'stride' * instruction.stride} {code.kernel.arch}"
    names = tuple(f"r{number}" for number in range(operand.registers))

    def write(inner: BlockCode) -> None:
        # Elements narrower than a byte are packed in memory as in the register: words are moved.
        lines, length, bits = tile_lines(instruction)
        word = Type("u", 32 if bits < 8 else operand.slot_bits)
        together = word.bits // bits
        registers = Registers(
            inner, inner.frame.handle, [inner[name] for name in names], operand.register_bits
        )
        size = lines * length * bits // 8
        stage = inner.room(word, size * 8 // word.bits)
        lanes = VECTOR // word.bits
        if storing:
            flat = _in_lines(instruction, operand, np.arange(operand.rows * operand.cols))
            places = np.empty_like(flat)
            places[flat] = held_places(operand)
            order = index_bits(places[::together] // together)
            assert order is not None, instruction.text
            for number, vector in enumerate(permuted(inner, registers.load(word), order)):
                stage.store(vector, number * lanes)
        _copy_lines(inner, instruction, stage, storing)
        if not storing:
            flat = _in_lines(instruction, operand, holding(operand))
            order = index_bits(flat[::together] // together)
            assert order is not None, instruction.text
            count = size * 8 // VECTOR
            vectors = [stage.load(number * lanes, lanes) for number in range(count)]
            registers.store(permuted(inner, vectors, order))
        inner.give(0)

    return shared_code(code.module, name, ("address", "stride", "site", *names), write)


def _copy_lines(code: BlockCode, instruction: Instruction, stage: Pointer, storing: bool) -> None:
    """Copy between memory and the stage line by line, each address checked."""
    lines, _, bits = tile_lines(instruction)
    size = tile_lines(instruction).bytes
    space = (instruction.space or "generic").split("::")[0]
    alignment = 4 if bits < 8 else bits // 8
    access = Access(code, code["site"], space, size, alignment, WRITE if storing else 0)
    step = (code["stride"].to(u64) * bits) >> 3
    piece = Type("u", 64).by(2 if size % 16 == 0 else 1)
    with code.loop(lines) as line:
        host = access.host(code["address"].to(u64) + line.to(u64) * step, code.constant(i64, 0))
        memory, own = Pointer(code, u64, host), stage.moved(line * size)
        for start in range(0, size // 8, piece.lanes):
            there = (memory + start)._typed(piece)
            here = own.moved(code.constant(i64, 8 * start))._typed(piece)
            # The host's address need not be aligned as the device's is.
            if storing:
                code.builder.store(code.builder.load(here, align=8), there, align=1)
            else:
                code.builder.store(code.builder.load(there, align=1), here, align=8)
