"""mma, mma.sp and wmma.mma: the registers' places go to a compiled product, or their contents to Python."""

from lanewise.isa import Instruction
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64, u32
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, MmaEntry
from lanewise.machine.codegen.function_code import BlockCode, Kernel, Record, shared_function
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.mma_library import SELECTED, product_key, stage_offsets
from lanewise.machine.tensor_core.sparsity_and_scales import SELECTOR_BITS


def instruction_of(op: Op, arch: str) -> Instruction:
    """Return the entry of the catalogue that an instruction is, with the fragments of an arch."""
    instruction = op.source.instruction()
    if instruction is None or instruction.family.startswith("wgmma"):
        raise op.unsupported()
    return instruction.on(arch)


def whole_warp(code: BlockCode, op: Op) -> Value:
    """Whether the instruction runs; if it does, all 32 lanes have to be there."""
    bits = code.bits(code.active(op))
    with code.when(bits.differs(-1) & bits.differs(0)):
        code.fault(FaultKind.DIVERGENCE, op.site)
    return bits.differs(0)


def lower(code: BlockCode, op: Op) -> None:
    """mma, mma.sp and wmma.mma that are no shared step: with selectors, or computed by Python."""
    instruction = instruction_of(op, code.kernel.arch)
    with code.when(whole_warp(code, op)):
        registers, selectors = _operands(op, instruction)
        if product_key(instruction, code.kernel.arch) is None:
            _in_python(code, op, instruction, registers, selectors)
        else:
            _compiled(code, op, registers, selectors)


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step | None:
    """A product as a shared step; None where Python computes it, or selectors choose."""
    instruction = instruction_of(op, kernel.arch)
    registers, selectors = _operands(op, instruction)
    if selectors or product_key(instruction, kernel.arch) is None:
        return None
    offsets = [register.offset for of_operand in registers.values() for register in of_operand]
    pairs = zip(offsets[::2], [*offsets[1::2], 0], strict=False)  # as words of 32 bits
    return Step(_product_step(module), [op.site, *(low | high << 32 for low, high in pairs)])


@shared_function("product_step", STEP_ARGUMENTS)
def _product_step(code: BlockCode) -> None:
    """The function of the step; its operands are the site, then the registers' offsets as 32-bit words."""
    words = code.record("operands")
    code.demand_whole_warp(words.get(0))
    table = code.block.get(BlockRecord.mma_table)
    address = Record(code, table + words.get(0) * MmaEntry.BYTES).get(MmaEntry.function)
    code.invoke(address, code["frame"], words.address + 8, 0)


def _operands(op: Op, instruction: Instruction) -> tuple[dict[str, list[Register]], list[ResolvedOperand]]:
    """The registers of every operand, and what selects among metadata and scale factors."""
    given: dict[str, tuple[ResolvedOperand, ...]] = {}
    for name, resolved in zip("dabc", op.operands, strict=False):
        given[name] = elements_of(resolved)
    rest = list(op.operands[4:])
    selectors: list[ResolvedOperand] = []
    for name in SELECTED:
        if name in instruction.operands:
            given[name] = tuple(elements_of(rest.pop(0)))
            selectors += elements_of(rest.pop(0))
    registers: dict[str, list[Register]] = {}
    for name, parts in given.items():
        operand = instruction.operands[name]
        fitting = [
            part for part in parts if isinstance(part, Register) and part.bits == operand.register_bits
        ]
        if len(fitting) != len(parts) or len(parts) != operand.registers:
            raise op.unsupported(
                f"{operand.name} is {operand.registers} registers of {operand.register_bits} bits"
            )
        registers[name] = fitting
    return registers, selectors


def _entry(code: BlockCode, op: Op) -> Record:
    """What was prepared for this instruction: a function to call, and room for registers."""
    return Record(code, code.block.get(BlockRecord.mma_table) + op.site * MmaEntry.BYTES)


def _function(code: BlockCode, op: Op, arguments: int, result: ir.Type) -> ir.Operand:
    kind = ir.FunctionType(result, [ir.IntType(64)] * arguments)
    return code.builder.inttoptr(_entry(code, op).get(MmaEntry.function).handle, kind.as_pointer())


def _refused(code: BlockCode, op: Op) -> None:
    """A selector or metadata that no GPU takes, or a failure of Python's."""
    code.fault(FaultKind.BAD_OPERAND, op.site)


def _compiled(
    code: BlockCode, op: Op, registers: dict[str, list[Register]], selectors: list[ResolvedOperand]
) -> None:
    """Call the product with the places of its registers."""
    offsets = [register.offset for of_operand in registers.values() for register in of_operand]
    kind = ir.ArrayType(ir.IntType(32), len(offsets))
    places = ir.GlobalVariable(code.module, kind, f"places of {op.site} in {code.function.name}")
    places.initializer = ir.Constant(kind, offsets)
    places.global_constant, places.linkage = True, "private"
    chosen = code.constant(i64, 0)
    for number, selector in enumerate(selectors):
        value = code.lane_read(selector, u32, code.constant(i64, 0)).to(Type("u", 64)).to(i64)
        most = (1 << SELECTOR_BITS) - 1  # which no selector is
        value = (value > most).select(code.constant(i64, most), value)
        chosen = chosen | (value << (SELECTOR_BITS * number))
    values = [code["frame"].handle, code.builder.ptrtoint(places, ir.IntType(64)), chosen.handle]
    answer = code.builder.call(_function(code, op, 3, ir.IntType(32)), values)
    if selectors:
        with code.when(Value(code, u32, answer).differs(0)):
            _refused(code, op)


def _in_python(
    code: BlockCode,
    op: Op,
    instruction: Instruction,
    registers: dict[str, list[Register]],
    selectors: list[ResolvedOperand],
) -> None:
    """Put the registers side by side (the stage), let Python compute, and take the result."""
    offsets = stage_offsets(instruction)
    stage = _entry(code, op).get(MmaEntry.stage)
    record = Record(code, stage)

    def place(name: str, number: int) -> Pointer:
        bits = instruction.operands[name].register_bits
        return record.pointer(offsets[name] + number * bits * 4, Type("u", bits))

    for name, of_operand in registers.items():
        if name != "d":
            for number, register in enumerate(of_operand):
                value = code.frame.get(register.offset, Type("u", register.bits), abi.LANES)
                place(name, number).store(value)
    for number, selector in enumerate(selectors):
        value = code.lane_read(selector, u32, code.constant(i64, 0))
        record.set(offsets["selectors"] + 4 * number, value)
    code.builder.call(_function(code, op, 1, ir.VoidType()), [stage.handle])
    with code.when(record.get(0).differs(0)):
        _refused(code, op)
    for number, register in enumerate(registers["d"]):
        value = place("d", number).load(0, abi.LANES)
        code.frame.pointer(register.offset, Type("u", register.bits)).store(value)
