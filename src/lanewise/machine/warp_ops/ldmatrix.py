"""Lowerings of ldmatrix, stmatrix and movmatrix: rows of 16 bytes, shuffled to the catalogue's layout.

The rows' addresses are checked together; only where one is bad they are checked lane by lane.
"""

from __future__ import annotations

from lanewise.isa import Instruction, Operand
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64
from lanewise.machine.abi import FaultKind
from lanewise.machine.codegen.function_code import BYTE, U32, BlockCode, Kernel, Record, shared_code
from lanewise.machine.codegen.register_shuffles import (
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
    shuffled,
)
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.memory_accesses import MATRIX_ROW_BYTES, accesses
from lanewise.machine.program.operands import Register, ResolvedOperand, Symbol, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.mma import instruction_of, whole_warp
from lanewise.machine.warp_ops.addresses import WRITE, Access, Window

ROW_BYTES = MATRIX_ROW_BYTES
#: Bits of an element as it lies in memory, where that is not as it lies in a register.
PACKED = {"b6x16_p32": 6, "b4x16_p64": 4}
#: Operands of the shared step: the base register's offset, the displacement, the site, then the registers.
_BASE, _DISPLACEMENT, _SITE, _REGISTERS = range(0, 32, 8)


def _registers(op: Op, operands: tuple[ResolvedOperand, ...], wanted: int) -> list[Register]:
    """Return operands that have to be a number of 32-bit registers."""
    found = [each for each in operands if isinstance(each, Register) and each.bits == 32]
    if len(found) != len(operands) or len(found) != wanted:
        raise op.unsupported(f"it takes {wanted} 32-bit registers")
    return found


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return ldmatrix or stmatrix as a shared step."""
    (found,) = accesses(op)
    data = op.operands[1 - found.access.operand]
    instruction = instruction_of(op)
    operand = next(iter(instruction.operands.values()))
    registers = _registers(op, elements_of(data), operand.registers)
    base, displacement = found.address.base, found.address.offset
    bits, offset = 0, 0
    if isinstance(base, Register):
        bits, offset = base.bits, base.offset
    else:  # one address for all rows
        displacement += kernel.symbol_address(base) if isinstance(base, Symbol) else base.bits
    function = _mover(module, instruction, operand, bits)
    return Step(function, [offset, displacement, op.site, *(register.offset for register in registers)])


def _mover(module: ir.Module, instruction: Instruction, operand: Operand, base_bits: int) -> ir.Function:
    """Return a shared function that moves rows of one form, for any registers."""
    name = f"{instruction.text} {base_bits}"

    def write(inner: BlockCode) -> None:
        words, active = inner.record("operands"), inner["active"].to(U32)
        with inner.when(active.equals(0)):
            inner.give(0)
        with inner.when(active.differs(-1)):
            inner.fault(FaultKind.DIVERGENCE, words.get(_SITE))
        storing = instruction.family == "stmatrix"
        word = Type("u", operand.slot_bits)
        places = [words.get(_REGISTERS + 8 * number) for number in range(operand.registers)]
        registers = Registers(inner, inner.frame.handle, places, 32)
        count = instruction.row_addresses.rows
        with inner.builder.goto_entry_block():
            slot = inner.builder.alloca(ir.ArrayType(ir.IntType(8), ROW_BYTES * count), align=ROW_BYTES)
        stage = Pointer(inner, word, inner.builder.bitcast(slot, BYTE))
        lanes = ROW_BYTES * 8 // word.bits
        if storing:
            bits = index_bits(held_places(operand))
            assert bits is not None, instruction.text
            for number, row in enumerate(permuted(inner, registers.load(word), bits)):
                stage.store(row, number * lanes)
        _copy_rows(inner, instruction, base_bits, words, stage, storing)
        if not storing:
            bits = index_bits(holding(operand))
            assert bits is not None, instruction.text
            rows = [stage.load(row * lanes, lanes) for row in range(count)]
            packed = PACKED.get(instruction.types[-1])
            if packed is not None:
                rows = [_unpacked(inner, row, packed) for row in rows]
            registers.store(permuted(inner, rows, bits))
        inner.give(0)

    return shared_code(module, name, STEP_ARGUMENTS, write)


def _copy_rows(
    code: BlockCode, instruction: Instruction, base_bits: int, words: Record, stage: Pointer, storing: bool
) -> None:
    """Copy between memory and the stage: all rows at once if every address is good, else lane by lane."""
    count = instruction.row_addresses.rows
    space = (instruction.space or "generic").split("::")[0]
    row_type = Type("u", 32).by(4)
    base, displacement = words.get(_BASE), words.get(_DISPLACEMENT)
    access = Access(code, words.get(_SITE), space, ROW_BYTES, ROW_BYTES, WRITE if storing else 0)

    def move(host: ir.Operand, row: int | Value) -> None:
        memory = code.builder.bitcast(host, row_type.ir.as_pointer())
        own = stage.moved(code.number(row) * ROW_BYTES)._typed(row_type)
        # The host's address need not be aligned as the device's is.
        if storing:
            code.builder.store(code.builder.load(own, align=ROW_BYTES), memory, align=1)
        else:
            code.builder.store(code.builder.load(memory, align=1), own, align=ROW_BYTES)

    if not base_bits:
        with code.loop(count) as row:
            move(access.host(displacement.to(Type("u", 64)), row), row)
        return
    addresses = code.frame.get(base, Type("u", base_bits), count)
    addresses = addresses + displacement.to(addresses.type.by(1)).spread(count)
    if base_bits == 32 and space != "shared":
        addresses = addresses.to(Type("u", 64))
    window = Window(access, addresses.lane(0).to(Type("u", 64)))
    bad = window.bad(addresses)
    some = code.intrinsic("vector.reduce.or", bad.type.by(1), [bad], of=bad.type)
    with code.builder.if_else(some.equals(0).handle) as (fast, slow):
        with fast:
            for number in range(count):
                host = window.shift + addresses.lane(number).to(Type("u", 64)).to(i64)
                move(code.builder.inttoptr(host.handle, BYTE), number)
        with slow, code.loop(count) as row:
            address = code.frame.pointer(base, Type("u", base_bits)).load(row)
            address = address + displacement.to(address.type)
            move(access.host(address.to(Type("u", 64)), row), row)


def _unpacked(code: BlockCode, row: Value, bits: int) -> Value:
    """Return a row of 16 elements of fewer than 8 bits with each element in a byte of its own."""
    places = [(number * bits // 8, number * bits % 8) for number in range(ROW_BYTES)]
    wide = Type("u", 16)
    parts = [
        shuffled(code, row, None, tuple(min(byte + more, ROW_BYTES - 1) for byte, _ in places)).to(wide)
        for more in (0, 1)
    ]
    shifts = Value(
        code,
        wide.by(ROW_BYTES),
        ir.Constant(ir.VectorType(ir.IntType(16), ROW_BYTES), [shift for _, shift in places]),
    )
    return (((parts[0] | (parts[1] << 8)) >> shifts) & ((1 << bits) - 1)).to(Type("u", 8))


def transpose(code: BlockCode, op: Op) -> None:
    """Lower movmatrix: transpose an 8×8 matrix."""
    instruction = instruction_of(op)
    target, source = (_registers(op, elements_of(each), 1)[0] for each in op.operands[:2])
    flat = holding(instruction.d)
    swapped = flat % instruction.d.cols * instruction.d.rows + flat // instruction.d.cols
    bits = index_bits(held_places(instruction.a)[swapped])
    assert bits is not None
    with code.when(whole_warp(code, op)):
        both = [
            Registers(code, code.frame.handle, [code.constant(i64, each.offset)], 32)
            for each in (source, target)
        ]
        both[1].store(permuted(code, both[0].load(Type("u", 16)), bits))
