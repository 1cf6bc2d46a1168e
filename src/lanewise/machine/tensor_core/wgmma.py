"""wgmma.mma_async: the last of four warps to arrive computes the product for the whole warpgroup.

It gathers A and B through their descriptors once, brings the accumulators of the four warps into a matrix,
multiplies, and puts them back. The product is complete at once: fences and groups of wgmma order nothing
here. That the operands are read when all four warps are there is what hardware does, too: kernels let one
thread of the four warps say that a buffer may be written again.
"""

from __future__ import annotations

from collections.abc import Callable

from lanewise.isa import Instruction
from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import (
    BlockRecord,
    FaultKind,
    LaunchRecord,
    MmaEntry,
    WarpFrame,
    WarpgroupFault,
)
from lanewise.machine.codegen.function_code import (
    U8,
    U32,
    U64,
    BlockCode,
    Kernel,
    Record,
    call,
    shared_code,
    zero_bytes,
)
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.operands import Negated, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core import wgmma_operands
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, grid_of
from lanewise.machine.tensor_core.wgmma_operands import WARP_ROWS, stop_unless_zero, warp_frames
from lanewise.machine.tensor_core.wgmma_product import ROWS, Form, Product, form_of
from lanewise.ptx import Immediate

#: Operands of the step: the site, N, then pairs of a register's offset (0: none) and a number for A's
#: descriptor, B's, and scale-d (with a register, the number is 1 if it is negated); flags, the sparsity
#: selector, and the offsets of registers as words of 32 bits: those of D, of A, of the metadata.
_SITE, _COLUMNS, _A, _B, _SCALE_D, _FLAGS, _SELECTOR, _PLACES = 0, 8, 16, 32, 48, 64, 72, 80
_NEGATE_A, _NEGATE_B, _MN_MAJOR_A, _MN_MAJOR_B = 1, 2, 4, 8


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return wgmma.mma_async as a step that all kernels share."""
    found = op.source.instruction()
    if found is None or not found.family.startswith("wgmma"):
        raise op.unsupported()
    instruction = found.on(kernel.arch)
    parsed = _Operands(op, instruction)
    form = form_of(instruction, kernel.arch)
    offsets = [each.offset for each in parsed.registers]
    pairs = [low | high << 32 for low, high in zip(offsets[::2], [*offsets[1::2], 0], strict=False)]
    words = [op.site, instruction.n, *parsed.a, *parsed.b, *parsed.scale_d, parsed.flags, parsed.selector]
    return Step(_product(module, form), [*words, *pairs])


class _Operands:
    """The operands of one instruction, as the words of its step."""

    def __init__(self, op: Op, instruction: Instruction) -> None:
        self.op = op
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
        if instruction.types[0] != "s32":
            for flag in (_NEGATE_A, _NEGATE_B):
                if self._constant(rest.pop(0), (1, -1), "an imm-scale") == -1:
                    self.flags |= flag
        if instruction.types[1] in ("f16", "bf16"):
            majors = (_MN_MAJOR_A, _MN_MAJOR_B) if instruction.a_source == "descriptor" else (_MN_MAJOR_B,)
            for flag in majors:
                self.flags |= flag * self._constant(rest.pop(0), (0, 1), "an imm-trans")
        if rest:
            raise op.unsupported(f"it takes {len(op.operands) - len(rest)} operands")

    def _vector(self, operand: ResolvedOperand, instruction: Instruction, name: str) -> list[Register]:
        wanted = instruction.operands[name]
        elements = elements_of(operand)
        found = [each for each in elements if isinstance(each, Register) and each.bits == 32]
        if len(found) != len(elements) or len(found) != wanted.registers:
            raise self.op.unsupported(f"{wanted.name} is {wanted.registers} registers of 32 bits")
        return found

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


# the step ---------------------------------------------------------------------------------------------------


def _product(module: ir.Module, form: Form) -> ir.Function:
    """Return the function of the step for all N that one kernel of `arith` serves."""
    return shared_code(
        module,
        f"{form.name} on {form.model.scheme}",
        STEP_ARGUMENTS,
        lambda code: _Writer(code, form).write(),
    )


class _Writer:
    """Writes the function of a step."""

    def __init__(self, code: BlockCode, form: Form) -> None:
        self.code, self.form, self.instruction = code, form, form.instruction
        self.words = code.record("operands")

    def write(self) -> None:
        """Write the whole function."""
        code, words, form = self.code, self.words, self.form
        active = code["active"].to(U32)
        with code.when(active.equals(0)):
            code.give(0)
        with code.when(active.differs(-1)):
            code.fault(FaultKind.DIVERGENCE, words.get(_SITE))
        with code.when(code.frame.get(WarpFrame.multiplied, U32).differs(0)):
            code.frame.set(WarpFrame.multiplied, code.constant(U32, 0))
            code.give(0)
        table = code.block.get(BlockRecord.mma_table)
        self.entry = Record(code, table + words.get(_SITE) * MmaEntry.BYTES)
        self.stage = self.entry.get(MmaEntry.stage)
        n = words.get(_COLUMNS)
        self.columns = (n + (form.strip - 1)) & -form.strip
        accumulates = self._scale_d()
        self._gather_a()
        self._gather_b(n)
        product = Product(code, form, self.entry, self.stage, self.columns)
        if self.instruction.sparse:
            places = self._places(n) + (16 if self.instruction.a_source == "registers" else 0)
            self._fault(product.spread(words.get(_SELECTOR), places), WarpgroupFault.BAD_METADATA)
        product.prepare()
        # One warp after the other, so that its sums stay in the processor's first cache.
        first = warp_frames(code)[0]
        with code.loop(abi.WARPGROUP) as warp:
            frame = first + warp * code.launch.get(LaunchRecord.frame_bytes)
            self._sums_in(frame, n, accumulates)
            product.multiply(warp)
            self._move_sums(wgmma_operands.accumulators_out, frame, n)
        code.give(0)

    def _at(self, name: str) -> Value:
        """Return the address of something in the stage."""
        return self.stage + self.form.stage[name]

    def _fault(self, wrong: Value, reason: WarpgroupFault) -> None:
        with self.code.when(wrong):
            self.code.fault(FaultKind.WARPGROUP, self.words.get(_SITE), size=reason)

    def _scale_d(self) -> Value:
        """Return whether the product is added to the accumulators: the same in all threads."""
        code, register = self.code, self.words.get(_SCALE_D)
        found = code.variable(self.words.get(_SCALE_D + 8).differs(0))
        with code.when(register.differs(0)):
            votes = [Record(code, each).get(register, U8, abi.LANES).differs(0) for each in warp_frames(code)]
            bits = [code.bits(each) for each in votes]
            for each in bits:
                self._fault(
                    each.differs(bits[0]) | (each.differs(0) & each.differs(-1)), WarpgroupFault.SCALES_DIFFER
                )
            found.set(bits[0].differs(0) ^ self.words.get(_SCALE_D + 8).differs(0))
        return found.get()

    def _descriptor(self, operand: int) -> Value:
        """Return a descriptor: the same in all threads, or a constant."""
        code, register = self.code, self.words.get(operand)
        found = code.variable(self.words.get(operand + 8))
        with code.when(register.differs(0)):
            first = code.frame.get(register, U64)
            for frame in warp_frames(code):
                other = Record(code, frame).get(register, U64, abi.LANES).differs(first.spread(abi.LANES))
                self._fault(other.any(), WarpgroupFault.DESCRIPTORS_DIFFER)
            found.set(first.to(i64))
        return found.get()

    def _flag(self, flag: int) -> Value:
        return (self.words.get(_FLAGS) & flag).differs(0).to(U64).to(i64)

    def _gather_a(self) -> None:
        """Write A into the stage as rows: from its descriptor, or from registers."""
        code, form = self.code, self.form
        if self.instruction.a_source == "registers":
            bits = form.model.a.word_bits
            signs = sum(1 << (place + bits - 1) for place in range(0, 32, max(bits, 8))) if bits > 1 else 0
            sign = self._flag(_NEGATE_A) * signs
            places = self._places(self.words.get(_COLUMNS))
            call(
                code,
                wgmma_operands.a_from_registers(code.module),
                [code["frame"], places, sign, self._at("a")],
            )
            return
        rows, columns = ROWS, form.packed_k
        for major in ("K", "MN") if form.bits == 16 else ("K",):
            grid = grid_of(rows, columns, form.bits, major)
            with code.when(self._flag(_MN_MAJOR_A).equals(int(major == "MN"))):
                function = wgmma_operands.gather(code.module, form.bits, major, turned=major == "MN")
                groups = code.constant(i64, grid.lines // LINES_TOGETHER)
                pieces = code.constant(i64, grid.pieces)
                flipped = self._flag(_NEGATE_A)
                values = [code["frame"], self.words.get(_SITE), self._descriptor(_A), groups, pieces]
                stop_unless_zero(code, call(code, function, [*values, self._at("a"), columns, flipped]))

    def _places(self, n: Value) -> Value:
        """Return the address of the offsets of registers behind those of D."""
        per_column = 4 if self.instruction.d.slot_bits == 32 else 2
        return self.words.address + (n >> 3) * (4 * per_column) + _PLACES

    def _gather_b(self, n: Value) -> None:
        """Write B into the stage as [k][column], zeros in the columns that fill its last strip."""
        code, form = self.code, self.form
        with code.when(n.differs(self.columns)):
            zero_bytes(code, self._at("b"), self.columns * (form.k * form.bits // 8))
        for major in ("K", "MN") if form.bits == 16 else ("K",):
            with code.when(self._flag(_MN_MAJOR_B).equals(int(major == "MN"))):
                function = wgmma_operands.gather(code.module, form.bits, major, turned=major == "K")
                if major == "K":
                    groups, pieces = n >> 3, code.constant(i64, form.k * form.bits // 128)
                else:
                    groups, pieces = code.constant(i64, form.k // LINES_TOGETHER), n >> 3
                values = [code["frame"], self.words.get(_SITE), self._descriptor(_B), groups, pieces]
                flipped = self._flag(_NEGATE_B)
                stop_unless_zero(code, call(code, function, [*values, self._at("b"), self.columns, flipped]))

    def _sums_in(self, frame: Value, n: Value, accumulates: Value) -> None:
        """Write the accumulators of a warp into the stage, or zeros."""
        code = self.code
        with code.builder.if_else(accumulates.handle) as (added, replaced):
            with added:
                self._move_sums(wgmma_operands.accumulators_in, frame, n)
            with replaced:
                zero_bytes(code, self._at("total"), self.columns * (WARP_ROWS * 4))

    def _move_sums(self, move: Callable[[ir.Module, int], ir.Function], frame: Value, n: Value) -> None:
        """Write the move of a warp's accumulators, to the stage or back."""
        function = move(self.code.module, self.instruction.d.slot_bits)
        places = self.words.address + _PLACES
        call(self.code, function, [frame, places, n >> 3, self._at("total"), self.columns])
