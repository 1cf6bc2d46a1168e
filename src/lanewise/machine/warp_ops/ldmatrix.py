"""Lowerings of ldmatrix, stmatrix and movmatrix: rows of 16 bytes, shuffled to the catalogue's layout.

The rows' addresses are checked together; only where one is bad they are checked lane by lane.
"""

from lanewise.isa import Instruction, Operand
from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS
from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64, u8, u64
from lanewise.machine.abi import BlockRecord
from lanewise.machine.codegen.function_code import BYTE, BlockCode, Kernel, Record, shared_code
from lanewise.machine.codegen.register_shuffles import (
    Registers,
    held_places,
    holding,
    index_bits,
    joined,
    permuted,
    shuffled,
    widest_shuffle,
)
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.memory_accesses import MATRIX_ROW_BYTES, accesses
from lanewise.machine.program.operands import Register, ResolvedOperand, Symbol, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.mma import instruction_of, whole_warp
from lanewise.machine.warp_ops.addresses import WRITE, Access, Window

ROW_BYTES = MATRIX_ROW_BYTES
#: A row as a vector.
ROW = Type("u", 32, 4)
#: Bits of an element as it lies in memory, where that is not as it lies in a register.
PACKED = {name: expansion.bits for name, expansion in EXPANSIONS.items()}
#: Operands of the shared step: the base register's offset, the displacement, the site, then the registers.
_BASE, _DISPLACEMENT, _SITE, _REGISTERS = range(0, 32, 8)


def _registers(op: Op, operands: tuple[ResolvedOperand, ...], wanted: int) -> list[Register]:
    """Return operands that have to be a number of 32-bit registers."""
    registers = [operand for operand in operands if isinstance(operand, Register) and operand.bits == 32]
    if len(registers) != len(operands) or len(registers) != wanted:
        raise op.unsupported(f"it takes {wanted} 32-bit registers")
    return registers


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return ldmatrix or stmatrix as a shared step."""
    (located,) = accesses(op)
    data = op.operands[1 - located.access.operand]
    instruction = instruction_of(op, kernel.arch)
    operand = next(iter(instruction.operands.values()))
    registers = _registers(op, elements_of(data), operand.registers)
    base, displacement = located.address.base, located.address.offset
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
        words = inner.record("operands")
        inner.demand_whole_warp(words.get(_SITE))
        places = [words.get(_REGISTERS + 8 * number) for number in range(operand.registers)]
        registers = Registers(inner, inner.frame.handle, places, 32)
        RowMover(inner, instruction, operand, registers, base_bits, words).write()
        inner.give(0)

    return shared_code(module, name, STEP_ARGUMENTS, write)


class RowMover:
    """Writes the code that moves rows of 16 bytes between memory and registers.

    If every address is good, it is one piece of code without a branch. Otherwise each row is checked
    separately, and the rows lie contiguously on the stack meanwhile.
    """

    def __init__(
        self,
        code: BlockCode,
        instruction: Instruction,
        operand: Operand,
        registers: Registers,
        base_bits: int,
        words: Record,
    ) -> None:
        self.code, self.instruction, self.operand, self.registers = code, instruction, operand, registers
        self.storing = instruction.family == "stmatrix"
        self.count = instruction.row_addresses.rows
        self.base_bits, self.base, self.displacement = base_bits, words.get(_BASE), words.get(_DISPLACEMENT)
        self.space = (instruction.space or "generic").split("::")[0]
        flags = WRITE if self.storing else 0
        self.access = Access(code, words.get(_SITE), self.space, ROW_BYTES, ROW_BYTES, flags)

    def write(self) -> None:
        """Write the whole move, with a fast path for good addresses."""
        code = self.code
        if not self.base_bits:
            self._one_by_one()
            return
        addresses = code.frame.get(self.base, Type("u", self.base_bits), self.count)
        addresses = addresses + self.displacement.to(addresses.type.by(1)).spread(self.count)
        if self.space != "shared":
            addresses = addresses.to(u64)
        window = Window(self.access, addresses.lane(0).to(u64))
        bad = window.bad(addresses)
        any_bad = code.intrinsic("vector.reduce.or", bad.type.by(1), [bad], of=bad.type)
        with code.builder.if_else(any_bad.equals(0).handle) as (together, apart):
            with together:
                hosts = [window.shift + self._address(code.number(row)).to(i64) for row in range(self.count)]
                self._move([code.builder.inttoptr(host.handle, BYTE) for host in hosts])
            with apart:
                self._one_by_one()

    def _address(self, row: Value) -> Value:
        """Return the device address of a row."""
        if not self.base_bits:  # a variable in the shared memory of the block
            return self.displacement.to(u64) + self.code.block.get(BlockRecord.shared_first, u64)
        word = Type("u", self.base_bits)
        pointer = (self.code.frame.pointer(self.base, word) + row)._typed(word)
        # Atomic, lest LLVM take it out of the vector of all addresses, which is slower than to load it.
        address = Value(self.code, word, self.code.builder.load_atomic(pointer, "monotonic", word.bits // 8))
        return (address + self.displacement.to(word)).to(u64)

    def _one_by_one(self) -> None:
        """Move the rows through the stack, each address checked separately."""
        code = self.code
        stage = code.room(u8, ROW_BYTES * self.count, align=ROW_BYTES).handle
        rows = [code.builder.gep(stage, [code.number(ROW_BYTES * row).handle]) for row in range(self.count)]
        if self.storing:
            self._move(rows)
        with code.loop(self.count) as row:
            host = self.access.host(self._address(row), row)
            staged = code.builder.gep(stage, [(row * ROW_BYTES).handle])
            if self.storing:
                code.store_unaligned(code.load_unaligned(staged, ROW), host)
            else:
                code.store_unaligned(code.load_unaligned(host, ROW), staged)
        if not self.storing:
            self._move(rows)

    def _move(self, rows: list[ir.Operand]) -> None:
        """Move rows between registers and host memory that is known to be good."""
        code, operand = self.code, self.operand
        width = widest_shuffle()
        word = Type("u", operand.slot_bits)
        lanes, together = ROW_BYTES * 8 // word.bits, width // (ROW_BYTES * 8)
        bits = index_bits(held_places(operand) if self.storing else holding(operand))
        assert bits is not None, self.instruction.text
        if self.storing:
            for number, vector in enumerate(permuted(code, self.registers.load(word, width), bits)):
                for index in range(together):
                    code.store_unaligned(vector.part(index * lanes, lanes), rows[number * together + index])
            return
        loaded = [code.load_unaligned(row, word.by(lanes)) for row in rows]
        packed = PACKED.get(self.instruction.types[-1])
        if packed is not None:
            loaded = [_unpacked(code, row, packed) for row in loaded]
        self.registers.store(permuted(code, joined(code, loaded, together), bits))


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
    instruction = instruction_of(op, code.kernel.arch)
    target, source = (_registers(op, elements_of(operand), 1)[0] for operand in op.operands[:2])
    flat = holding(instruction.d)
    swapped = flat % instruction.d.cols * instruction.d.rows + flat // instruction.d.cols
    bits = index_bits(held_places(instruction.a)[swapped])
    assert bits is not None
    with code.when(whole_warp(code, op)):
        both = [
            Registers(code, code.frame.handle, [code.constant(i64, address.offset)], 32)
            for address in (source, target)
        ]
        both[1].store(permuted(code, both[0].load(Type("u", 16)), bits))
