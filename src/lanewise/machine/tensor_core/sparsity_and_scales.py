"""What selectors choose for a product: metadata, which spreads a sparse A out, and scale factors."""

from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from lanewise.arith.fused_engine import split_scales
from lanewise.isa import Instruction, SelectedOperand
from lanewise.jit import ir
from lanewise.jit.simd import Code, Pointer, Type, Value, f32, i32, i64, u32, u64
from lanewise.machine.codegen.function_code import BYTE, FunctionCode
from lanewise.machine.codegen.register_shuffles import Registers
from lanewise.machine.tensor_core.mma_function import ProductCode

#: Bits that each selector has in the word that a product is called with.
SELECTOR_BITS = 8
#: What a code of tf32 may be: the first or the second of two.
TF32_CODES = (0b0100, 0b1110)


def table(code: Code, name: str, numbers: Any, type: Type = u32) -> Pointer:
    """Numbers as a constant of the module."""
    existing = code.module.variables.get(name)
    if existing is None:
        kind = ir.ArrayType(type.ir, len(numbers))
        existing = ir.GlobalVariable(code.module, kind, name)
        existing.initializer = ir.Constant(kind, [number.item() for number in np.asarray(numbers)])
        existing.global_constant, existing.linkage = True, "internal"
    return Pointer(code, type, code.builder.bitcast(existing, BYTE))


class Selections:
    """The selectors of an instruction, in order: metadata's, then byte and thread of each scale."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.given: dict[tuple[str, str], int] = {}
        for name in ("metadata", "scale_a", "scale_b"):
            if name in instruction.operands:
                for what in ("thread",) if name == "metadata" else ("byte", "thread"):
                    self.given[name, what] = len(self.given)

    def operand(self, name: str) -> SelectedOperand:
        """Metadata or scale factors."""
        operand = self.instruction.operands[name]
        assert isinstance(operand, SelectedOperand)
        return operand

    def selector(self, code: Code, name: str, what: str) -> Value:
        """Return the number that a selector has."""
        shift = SELECTOR_BITS * self.given[name, what]
        return (code["selectors"].to(u64) >> shift).to(i64) & ((1 << SELECTOR_BITS) - 1)

    def check(self, code: FunctionCode) -> None:
        """Return 1 if a selector is not one that the instruction has."""
        for name, what in self.given:
            operand = self.operand(name)
            number = self.selector(code, name, what)
            if what == "thread":
                wrong = number > operand.lane_choices - 1
            else:
                last = (operand.byte_choices - 1) * operand.byte_step
                wrong = (number > last) | (number & (operand.byte_step - 1)).differs(0)
            with code.when(wrong):
                code.give(1)

    def _places(self, name: str) -> tuple[object, object]:
        """For each element of an operand: its lane and its slot under selectors of 0."""
        operand = self.operand(name)
        elements = [
            operand.holders(row, column, thread_id=0, byte_id=0)[0]
            for row in range(operand.rows)
            for column in range(operand.cols)
        ]
        return np.array([element.lane for element in elements]), np.array(
            [element.slot for element in elements]
        )

    def _slot(self, code: Code, registers: Registers, name: str, index: Value) -> Value:
        """The bits of one element, chosen by the selectors."""
        operand = self.operand(name)
        lanes, slots = (
            table(code, f"{name} {what}", numbers)
            for what, numbers in zip(("lanes", "slots"), self._places(name), strict=True)
        )
        lane = lanes.load(index).to(u64).to(i64)
        lane = lane + self.selector(code, name, "thread") * operand.lane_step
        slot = slots.load(index).to(u64).to(i64)
        if (name, "byte") in self.given:
            slot = slot + self.selector(code, name, "byte")
        place = code.builder.gep(registers.base, [registers.offsets[0].handle])
        word = Pointer(code, u32, place).load(lane)
        return (word >> (slot * operand.slot_bits).to(u32)) & ((1 << operand.slot_bits) - 1)

    # a sparse A ---------------------------------------------------------------------------------------------

    def spread(
        self,
        code: FunctionCode,
        registers: dict[str, Registers],
        packed: Pointer,
        dense: Pointer,
        k_places: object,
    ) -> None:
        """A's elements to where the metadata says they belong; returns 1 from codes that mean nothing."""
        metadata: Any = self.instruction.operands["metadata"]
        rows, groups, group = metadata.rows, metadata.cols, metadata.group
        per_group = metadata.per_code * metadata.run
        order = table(code, "places of k", k_places)
        with code.loop(rows) as row, code.loop(groups) as number:
            bits = self._slot(code, registers["metadata"], "metadata", row * groups + number)
            values = [
                packed.load(row * (groups * per_group) + number * per_group + element)
                for element in range(per_group)
            ]
            if metadata.per_code == 1:
                first, second = TF32_CODES
                is_code = bits.equals(first) | bits.equals(second)
                indices = [bits.equals(second).to(Type("u", 64)).to(i64)]
            else:
                indices = [(part & 3).to(u64).to(i64) for part in (bits, bits >> 2)]
                ascends, differs = indices[0] < indices[1], indices[0].differs(indices[1])
                is_code = ascends if metadata.ordered else differs
            # CUTLASS writes, or loads beyond K, the code 0 for a group of zeros, which may be anywhere.
            is_zero = ~reduce(or_, (~value.equals(0) for value in values))
            with code.when(~(is_code | is_zero)):
                code.give(1)
            for element, value in enumerate(values):
                index = indices[element // metadata.run]
                column = number * group + index * metadata.run + element % metadata.run
                place = order.load(column).to(u64).to(i64)
                dense.store(value, row * (groups * group) + place)

    # scale factors ------------------------------------------------------------------------------------------

    def scales(self, code: ProductCode, registers: dict[str, Registers]) -> dict[str, Value | Pointer]:
        """The arguments of the fused kernels that scale factors are: exponents and significands."""
        zero = code.constant(i64, 0)
        if "scale_a" not in self.instruction.operands:
            return dict.fromkeys(("scale_a", "scale_a_sig", "scale_b", "scale_b_sig"), zero)
        scales: dict[str, Value | Pointer] = {}
        for name in ("scale_a", "scale_b"):
            operand = self.operand(name)
            fmt = operand.format
            words = np.arange(1 << fmt.word_bits).astype(fmt.word_dtype)[None, :]
            both = split_scales(fmt, fmt.from_bits(words), 0)
            assert both is not None
            count = operand.rows * operand.cols
            rooms = code.room(i32, count), code.room(f32, count)
            tables = (
                table(code, f"{fmt.name} exponents", both[0][0], i32),
                table(code, f"{fmt.name} significands", both[1][0], f32),
            )
            with code.loop(count) as index:
                bits = self._slot(code, registers[name], name, index).to(u64).to(i64)
                for room, values in zip(rooms, tables, strict=True):
                    room.store(values.load(bits), index)
            scales[name], scales[f"{name}_sig"] = rooms
        return scales
