"""wmma.load and wmma.store: lines of a matrix in memory, and the shuffle that a fragment's layout asks for.

Pointer and stride are the same in all lanes, as the PTX ISA demands; lane 0's are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.isa import Instruction, Operand
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64
from lanewise.machine.codegen.function_code import BYTE, STOPPING, U32, U64, BlockCode, call, shared_code
from lanewise.machine.codegen.lane_vectors import several
from lanewise.machine.codegen.register_shuffles import (
    VECTOR,
    Places,
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
)
from lanewise.machine.program.resolve import Op, Place, Register
from lanewise.machine.tensor_core.mma import instruction_of, multiply, whole_warp
from lanewise.machine.warp_ops.addresses import WRITE, Access


def wmma(code: BlockCode, op: Op) -> None:
    """wmma.load, wmma.store, wmma.mma."""
    instruction = instruction_of(op)
    if instruction.family == "wmma.mma":
        multiply(code, op)
        return
    operand = instruction.operands[instruction.matrix]
    storing = instruction.family == "wmma.store"
    place, data = (op.operands[0], op.operands[1]) if storing else (op.operands[1], op.operands[0])
    registers = [
        each for each in several(data) if isinstance(each, Register) and each.bits == operand.register_bits
    ]
    if not isinstance(place, Place) or len(registers) != operand.registers:
        raise op.unsupported(f"it takes {operand.registers} registers of {operand.register_bits} bits")
    with code.when(whole_warp(code, op)):
        zero = code.constant(i64, 0)
        if instruction.stride:
            stride = code.lane_read(op.operands[-1], U32, zero)
        else:
            stride = code.constant(U32, lines_of(instruction, operand)[1])
        values: list[Value | int] = [code["frame"], code.address_of(place, zero), stride, op.site]
        function = _mover(code, instruction, operand, storing)
        answer = call(code, function, [*values, *(register.offset for register in registers)])
        with code.when(answer.differs(0)):
            code.builder.ret(ir.Constant(ir.IntType(32), STOPPING))


def element_bits(operand: Operand) -> int:
    """Bits of an element in memory."""
    return 32 if operand.format.name == "tf32" else operand.format.bits


def lines_of(instruction: Instruction, operand: Operand) -> tuple[int, int]:
    """How many lines of how many elements the matrix is in memory."""
    rows, columns = operand.shape
    return (rows, columns) if instruction.layouts[0] == "row" else (columns, rows)


def _in_lines(instruction: Instruction, operand: Operand, flat: Places) -> Places:
    """Places in the matrix, row by row, as places line by line."""
    if instruction.layouts[0] == "row":
        return flat
    rows, columns = operand.shape
    return np.asarray(flat % columns * rows + flat // columns)


def _mover(code: BlockCode, instruction: Instruction, operand: Operand, storing: bool) -> Any:
    """A function that moves fragments of one form for any registers: compiled once for all kernels."""
    name = f"{instruction.text} {'stride' * instruction.stride} {code.arch}"
    names = tuple(f"r{number}" for number in range(operand.registers))

    def write(inner: BlockCode) -> None:
        # What is narrower than a byte lies in memory as in the register: a word at a time.
        bits = element_bits(operand)
        word = Type("u", 32 if bits < 8 else operand.slot_bits)
        together = word.bits // bits
        registers = Registers(
            inner, inner.frame.handle, [inner[each] for each in names], operand.register_bits
        )
        lines, length = lines_of(instruction, operand)
        size = lines * length * bits // 8
        with inner.builder.goto_entry_block():
            slot = inner.builder.alloca(ir.ArrayType(ir.IntType(8), size), align=64)
        stage = Pointer(inner, word, inner.builder.bitcast(slot, BYTE))
        lanes = VECTOR // word.bits
        if storing:
            flat = _in_lines(instruction, operand, np.arange(operand.rows * operand.cols))
            places = np.empty_like(flat)
            places[flat] = held_places(operand)
            order = index_bits(places[::together] // together)
            assert order is not None, instruction.text
            for number, vector in enumerate(permuted(inner, registers.load(word), order)):
                stage.store(vector, number * lanes)
        _copy_lines(inner, instruction, operand, stage, storing)
        if not storing:
            flat = _in_lines(instruction, operand, holding(operand))
            order = index_bits(flat[::together] // together)
            assert order is not None, instruction.text
            count = size * 8 // VECTOR
            vectors = [stage.load(number * lanes, lanes) for number in range(count)]
            registers.store(permuted(inner, vectors, order))
        inner.give(0)

    return shared_code(code.module, name, ("address", "stride", "site", *names), write)


def _copy_lines(
    code: BlockCode, instruction: Instruction, operand: Operand, stage: Pointer, storing: bool
) -> None:
    """Between memory and the stage, line by line, each checked."""
    lines, length = lines_of(instruction, operand)
    bits = element_bits(operand)
    size = length * bits // 8
    space = (instruction.space or "generic").split("::")[0]
    alignment = 4 if bits < 8 else bits // 8
    access = Access(code, code["site"], space, size, alignment, WRITE if storing else 0)
    step = (code["stride"].to(U64) * bits) >> 3
    piece = Type("u", 64).by(2 if size % 16 == 0 else 1)
    with code.loop(lines) as line:
        host = access.host(code["address"].to(U64) + line.to(U64) * step, code.constant(i64, 0))
        memory, own = Pointer(code, U64, host), stage.moved(line * size)
        for start in range(0, size // 8, piece.lanes):
            there = (memory + start)._typed(piece)
            here = own.moved(code.constant(i64, 8 * start))._typed(piece)
            # The host's address need not be aligned as the device's is.
            if storing:
                code.builder.store(code.builder.load(here, align=8), there, align=1)
            else:
                code.builder.store(code.builder.load(there, align=1), here, align=8)
