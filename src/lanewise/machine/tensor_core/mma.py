"""mma, mma.sp and wmma.mma: the registers' places go to a compiled product, or their contents to Python."""

from __future__ import annotations

from typing import Any

from lanewise.isa import Instruction
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import U32, BlockCode, Record, shared_code
from lanewise.machine.codegen.lane_vectors import several
from lanewise.machine.codegen.threaded_code import Step, call_step
from lanewise.machine.program.resolve import Op, Register, Resolved
from lanewise.machine.tensor_core.mma_library import SELECTED, SLOTS, TABLE_BYTES, product_key, stage_offsets
from lanewise.machine.tensor_core.sparsity_and_scales import SELECTOR_BITS


def instruction_of(op: Op) -> Instruction:
    """The catalogue's entry."""
    found = op.source.instruction()
    if found is None or found.family.startswith("wgmma"):
        raise op.unsupported()
    return found


def whole_warp(code: BlockCode, op: Op) -> Value:
    """Whether the instruction runs; if it does, all 32 lanes have to be there."""
    bits = code.bits(code.active(op))
    with code.when(bits.differs(-1) & bits.differs(0)):
        code.fault(9, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)
    return bits.differs(0)


def multiply(code: BlockCode, op: Op) -> None:
    """mma, mma.sp and wmma.mma."""
    found = multiply_step(code.module, op, code.arch)
    if found is not None:
        call_step(code, op, found)
        return
    instruction = instruction_of(op)
    with code.when(whole_warp(code, op)):
        registers, selectors = _operands(op, instruction)
        if product_key(instruction, code.arch) is None:
            _in_python(code, op, instruction, registers, selectors)
        else:
            _compiled(code, op, registers, selectors)


def multiply_step(module: ir.Module, op: Op, arch: str) -> Step | None:
    """A product as a step; None where Python computes it, or selectors choose."""
    instruction = instruction_of(op)
    registers, selectors = _operands(op, instruction)
    if selectors or product_key(instruction, arch) is None:
        return None
    places = [register.offset for each in registers.values() for register in each]
    pairs = zip(places[::2], [*places[1::2], 0], strict=False)  # as words of 32 bits
    return _product_step(module), [op.site, *(low | high << 32 for low, high in pairs)]


def _product_step(module: ir.Module) -> ir.Function:
    """Words: the instruction's site, then its registers' places."""

    def write(code: BlockCode) -> None:
        words, bits = code.record("words"), code["active"].to(U32)
        zero = code.constant(i64, 0)
        with code.when(bits.equals(0)):
            code.give(0)
        with code.when(bits.differs(-1)):
            code.fault(9, words.get(0), zero, zero, 0)
        table = code.block.get(abi.SCRATCH)
        place = Record(code, table + words.get(0) * TABLE_BYTES).get(SLOTS["function"])
        kind = ir.FunctionType(ir.WORD, [ir.LONG] * 3)
        function = code.builder.inttoptr(place.handle, kind.as_pointer())
        given = [code["frame"], words.address + 8, zero]
        code.builder.call(function, [each.handle for each in given])
        code.give(0)

    return shared_code(module, "product_step", ("active", "words"), write)


def _operands(op: Op, instruction: Instruction) -> tuple[dict[str, list[Register]], list[Resolved]]:
    """The registers of every operand, and what selects among metadata and scale factors."""
    given: dict[str, tuple[Resolved, ...]] = {}
    for name, each in zip("dabc", op.operands, strict=False):
        given[name] = several(each)
    rest = list(op.operands[4:])
    selectors: list[Resolved] = []
    for name in SELECTED:
        if name in instruction.operands:
            given[name] = (rest.pop(0),)
            selectors += several(rest.pop(0))
    found: dict[str, list[Register]] = {}
    for name, parts in given.items():
        operand = instruction.operands[name]
        fitting = [
            each for each in parts if isinstance(each, Register) and each.bits == operand.register_bits
        ]
        if len(fitting) != len(parts) or len(parts) != operand.registers:
            raise op.unsupported(
                f"{operand.name} is {operand.registers} registers of {operand.register_bits} bits"
            )
        found[name] = fitting
    return found, selectors


def _prepared(code: BlockCode, op: Op, slot: str) -> Value:
    """An address that was prepared for this instruction."""
    table = code.block.get(abi.SCRATCH)
    return Record(code, table + op.site * TABLE_BYTES).get(SLOTS[slot])


def _function(code: BlockCode, op: Op, arguments: int, result: Any) -> Any:
    kind = ir.FunctionType(result, [ir.IntType(64)] * arguments)
    return code.builder.inttoptr(_prepared(code, op, "function").handle, kind.as_pointer())


def _refused(code: BlockCode, op: Op) -> None:
    """A selector or metadata that no GPU takes, or a failure of Python's."""
    code.fault(8, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)


def _compiled(
    code: BlockCode, op: Op, registers: dict[str, list[Register]], selectors: list[Resolved]
) -> None:
    """Call the product with the places of its registers."""
    offsets = [register.offset for each in registers.values() for register in each]
    kind = ir.ArrayType(ir.IntType(32), len(offsets))
    places = ir.GlobalVariable(code.module, kind, f"places of {op.site} in {code.function.name}")
    places.initializer = ir.Constant(kind, offsets)
    places.global_constant, places.linkage = True, "internal"
    chosen = code.constant(i64, 0)
    for number, selector in enumerate(selectors):
        value = code.lane_read(selector, U32, code.constant(i64, 0)).to(Type("u", 64)).to(i64)
        most = (1 << SELECTOR_BITS) - 1  # which no selector is
        value = (value > most).select(code.constant(i64, most), value)
        chosen = chosen | (value << (SELECTOR_BITS * number))
    values = [code["frame"].handle, code.builder.ptrtoint(places, ir.IntType(64)), chosen.handle]
    answer = code.builder.call(_function(code, op, 3, ir.IntType(32)), values)
    if selectors:
        with code.when(Value(code, U32, answer).differs(0)):
            _refused(code, op)


def _in_python(
    code: BlockCode,
    op: Op,
    instruction: Instruction,
    registers: dict[str, list[Register]],
    selectors: list[Resolved],
) -> None:
    """Put the registers side by side (the stage), let Python compute, and take the result."""
    offsets = stage_offsets(instruction)
    stage = _prepared(code, op, "stage")
    record = Record(code, stage)

    def place(name: str, number: int) -> Pointer:
        bits = instruction.operands[name].register_bits
        return record.pointer(offsets[name] + number * bits * 4, Type("u", bits))

    for name, each in registers.items():
        if name != "d":
            for number, register in enumerate(each):
                value = code.frame.get(register.offset, Type("u", register.bits), abi.LANES)
                place(name, number).store(value)
    for number, selector in enumerate(selectors):
        value = code.lane_read(selector, U32, code.constant(i64, 0))
        record.set(offsets["selectors"] + 4 * number, value)
    code.builder.call(_function(code, op, 1, ir.VoidType()), [stage.handle])
    with code.when(record.get(0).differs(0)):
        _refused(code, op)
    for number, register in enumerate(registers["d"]):
        value = place("d", number).load(0, abi.LANES)
        code.frame.pointer(register.offset, Type("u", register.bits)).store(value)
