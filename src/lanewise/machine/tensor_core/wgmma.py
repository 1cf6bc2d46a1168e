"""wgmma.mma_async: one of four warps, once all have arrived, computes the product for the whole warpgroup.

It is the first that goes on: mostly the last to arrive, unless its slice ends there. It gathers A and B
through their descriptors once, brings the accumulators of the four warps into a matrix, multiplies, and puts
them back. Products that follow one another on the same accumulators, with nothing in between that could see
them, are gathered one by one and computed together, as one of a longer K. Else a product is complete at once:
fences and groups of wgmma order nothing here. That the operands are read when all four warps are there is
what hardware does, too: kernels let one thread of the four warps say that a buffer may be written again.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import Major
from lanewise.isa.statement import expected_operands
from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u8, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord, MmaEntry, WarpFrame, WarpgroupFault
from lanewise.machine.codegen.function_code import BlockCode, Kernel, Record, shared_code
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.basic_blocks import end_of
from lanewise.machine.program.instruction_record import BlockEnd, Level
from lanewise.machine.program.operands import Negated, Register, ResolvedOperand, elements_of, registers_in
from lanewise.machine.program.ops import FunctionBody, Op, Program, all_registers
from lanewise.machine.tensor_core import wgmma_operands
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, grid_of
from lanewise.machine.tensor_core.wgmma_operands import WARP_ROWS, warp_frames
from lanewise.machine.tensor_core.wgmma_product import ACCUMULATES, ROWS, WAITING, Form, Product, form_of
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


#: Operands of the step: the site, N, then pairs of a register's offset (0: none) and a number for A's
#: descriptor, B's, and scale-d (with a register, the number is 1 if it is negated); flags, the sparsity
#: selector, and the offsets of registers as words of 32 bits: those of D, of A, of the metadata.
_CHAINED = 4
_SITE, _COLUMNS, _A, _B, _SCALE_D, _FLAGS, _SELECTOR, _PLACES = 0, 8, 16, 32, 48, 64, 72, 80


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return wgmma.mma_async as a step that all kernels share."""
    named = op.source.instruction()
    if named is None or not named.family.startswith("wgmma"):
        raise op.unsupported()
    instruction = named.on(kernel.arch)
    parsed = Statement(op, instruction)
    form = form_of(instruction, kernel.arch)
    offsets = [register.offset for register in parsed.registers]
    pairs = [low | high << 32 for low, high in zip(offsets[::2], [*offsets[1::2], 0], strict=False)]
    is_chained = not kernel.is_traced and op.site in chained_products(kernel.program)
    flags = parsed.flags | (_CHAINED if is_chained else 0)
    words = [op.site, instruction.n, *parsed.a, *parsed.b, *parsed.scale_d, flags, parsed.selector]
    return Step(_product(module, form, parsed.majors), [*words, *pairs])


# the step ---------------------------------------------------------------------------------------------------


def _product(module: ir.Module, form: Form, majors: dict[str, Major]) -> ir.Function:
    """Return the function of the step for all N that one kernel of `arith` serves."""
    layouts = f"{majors['a']} {majors['b']}"
    name = f"{form.name} {layouts} on {form.model.scheme}"
    return shared_code(
        module, name, STEP_ARGUMENTS, lambda code: _Writer(code, form, majors).write(), quickly=True
    )


class _Writer:
    """Writes the function of a step."""

    def __init__(self, code: BlockCode, form: Form, majors: dict[str, Major]) -> None:
        self.code, self.form, self.instruction, self.majors = code, form, form.instruction, majors
        self.words = code.record("operands")

    def write(self) -> None:
        """Write the whole function."""
        code, words, form = self.code, self.words, self.form
        code.demand_whole_warp(words.get(_SITE))
        with code.when(code.frame.get(WarpFrame.multiplied, u32).differs(0)):
            code.frame.set(WarpFrame.multiplied, code.constant(u32, 0))
            code.give(0)
        for frame in warp_frames(code):
            Record(code, frame).set(WarpFrame.multiplied, code.constant(u32, 1))
        code.frame.set(WarpFrame.multiplied, code.constant(u32, 0))
        table = code.block.get(BlockRecord.mma_table)
        self.entry = Record(code, table + words.get(_SITE) * MmaEntry.BYTES)
        n = words.get(_COLUMNS)
        self.columns = (n + (form.strip - 1)) & -form.strip
        self.waiting = code.variable(code.constant(i64, 0))
        product = Product(code, form, self.entry, self.columns, code.constant(i64, 1))
        self.at = product.at
        accumulates = self._chain(self._scale_d()) if form.chain > 1 else self._scale_d()
        self._gather_a()
        self._gather_b(n)
        if form.chain > 1:
            accumulates = self._wait_for_next()
            product.chained = self.waiting.get()
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
        """Return the address of something in the stage; of A and B, behind the products that wait."""
        if name == "a":
            return self.at[name] + self.waiting.get() * (self.form.packed_k * self.form.bits // 8)
        if name == "b":
            return self.at[name] + self.waiting.get() * self.columns * (self.form.k * self.form.bits // 8)
        return self.at[name]

    def _chain(self, accumulates: Value) -> Value:
        """Find how many products wait for this one: none if it does not add to what they would give."""
        code, state = self.code, Record(self.code, self.at["state"])
        with code.when(~accumulates):
            state.set(WAITING, 0)
        self.waiting.set(state.get(WAITING))
        with code.when(self.waiting.get().equals(0)):
            state.set(ACCUMULATES, accumulates.to(u64).to(i64))
        return accumulates

    def _wait_for_next(self) -> Value:
        """Let this product wait for the next one, if there is one; else return whether C is added."""
        code, state = self.code, Record(self.code, self.at["state"])
        waiting = self.waiting.get() + 1
        self.waiting.set(waiting)
        with code.when(self._flag(_CHAINED).differs(0) & (waiting < self.form.chain)):
            state.set(WAITING, waiting)
            code.give(0)
        state.set(WAITING, 0)
        return state.get(ACCUMULATES).differs(0)

    def _fault(self, wrong: Value, reason: WarpgroupFault) -> None:
        with self.code.when(wrong):
            self.code.fault(FaultKind.WARPGROUP, self.words.get(_SITE), size=reason)

    def _scale_d(self) -> Value:
        """Return whether the product is added to the accumulators: the same in all threads."""
        code, register = self.code, self.words.get(_SCALE_D)
        scales = code.variable(self.words.get(_SCALE_D + 8).differs(0))
        with code.when(register.differs(0)):
            votes = [
                Record(code, frame).get(register, u8, abi.LANES).differs(0) for frame in warp_frames(code)
            ]
            bits = [code.bits(vote) for vote in votes]
            for bit in bits:
                self._fault(
                    bit.differs(bits[0]) | (bit.differs(0) & bit.differs(-1)), WarpgroupFault.SCALES_DIFFER
                )
            scales.set(bits[0].differs(0) ^ self.words.get(_SCALE_D + 8).differs(0))
        return scales.get()

    def _descriptor(self, operand: int) -> Value:
        """Return a descriptor: the same in all threads, or a constant."""
        code, register = self.code, self.words.get(operand)
        descriptor = code.variable(self.words.get(operand + 8))
        with code.when(register.differs(0)):
            first = code.frame.get(register, u64)
            for frame in warp_frames(code):
                other = Record(code, frame).get(register, u64, abi.LANES).differs(first.spread(abi.LANES))
                self._fault(other.any(), WarpgroupFault.DESCRIPTORS_DIFFER)
            descriptor.set(first.to(i64))
        return descriptor.get()

    def _flag(self, flag: int) -> Value:
        return (self.words.get(_FLAGS) & flag).differs(0).to(u64).to(i64)

    def _gather_a(self) -> None:
        """Write A into the stage as rows: from its descriptor, or from registers."""
        code, form = self.code, self.form
        if self.instruction.a_source == "registers":
            bits = form.model.a.word_bits
            signs = sum(1 << (place + bits - 1) for place in range(0, 32, max(bits, 8))) if bits > 1 else 0
            sign = self._flag(NEGATE_A) * signs
            places = self._places(self.words.get(_COLUMNS))
            code.invoke(
                wgmma_operands.a_from_registers(code.module),
                code["frame"],
                places,
                sign,
                self._at("a"),
                self._pitch_of_a * form.bits // 8,
            )
            return
        grid = grid_of(ROWS, form.packed_k, form.bits, self.majors["a"])
        groups, pieces = (code.constant(i64, count) for count in (grid.lines // LINES_TOGETHER, grid.pieces))
        pitch = code.constant(i64, self._pitch_of_a)
        self._gather("a", _A, groups, pieces, pitch, self._flag(NEGATE_A))

    @property
    def _pitch_of_a(self) -> int:
        """The elements from a row of A to the next."""
        return self.form.chain * self.form.packed_k

    def _gather(
        self, name: str, operand: int, groups: Value, pieces: Value, pitch: Value, flipped: Value
    ) -> None:
        """Write a matrix into the stage through its descriptor: A as rows of K, B as rows of N."""
        code, major = self.code, self.majors[name]
        lines_are_rows = (major == "K") == (name == "a")
        function = wgmma_operands.gather(code.module, self.form.bits, major, turned=not lines_are_rows)
        values = [code["frame"], self.words.get(_SITE), self._descriptor(operand), groups, pieces]
        self._tell_read(values, major, number=int(name == "b"))
        code.invoke_or_stop(function, *values, self._at(name), pitch, flipped)

    def _tell_read(self, values: list[Value], major: str, number: int) -> None:
        """Tell a checked launch which matrix is about to be read: A is number 0, B is number 1."""
        code, hook = self.code, self.code.block.get(BlockRecord.operand_hook)
        with code.when(hook.differs(0)):
            facts = (code.constant(i64, fact) for fact in (int(major == "MN"), number))
            code.invoke(hook, *values, *facts)

    def _places(self, n: Value) -> Value:
        """Return the address of the offsets of registers behind those of D."""
        per_column = 4 if self.instruction.d.slot_bits == 32 else 2
        return self.words.address + (n >> 3) * (4 * per_column) + _PLACES

    def _gather_b(self, n: Value) -> None:
        """Write B into the stage as [k][column], zeros in the columns that fill its last strip."""
        code, form = self.code, self.form
        with code.when(n.differs(self.columns)):
            code.zero_bytes(self._at("b"), self.columns * (form.k * form.bits // 8))
        # Lines are taken by eights, and a piece of an MN-major matrix has eight elements.
        grid = grid_of(LINES_TOGETHER, form.k, form.bits, self.majors["b"])
        if self.majors["b"] == "K":
            groups, pieces = n >> 3, code.constant(i64, grid.pieces)
        else:
            groups, pieces = code.constant(i64, grid.lines // LINES_TOGETHER), n >> 3
        self._gather("b", _B, groups, pieces, self.columns, self._flag(NEGATE_B))

    def _sums_in(self, frame: Value, n: Value, accumulates: Value) -> None:
        """Write the accumulators of a warp into the stage, or zeros."""
        code = self.code
        with code.builder.if_else(accumulates.handle) as (added, replaced):
            with added:
                self._move_sums(wgmma_operands.accumulators_in, frame, n)
            with replaced:
                code.zero_bytes(self._at("total"), self.columns * (WARP_ROWS * 4))

    def _move_sums(self, move: Callable[[ir.Module, int], ir.Function], frame: Value, n: Value) -> None:
        """Write the move of a warp's accumulators, to the stage or back."""
        function = move(self.code.module, self.instruction.d.slot_bits)
        places = self.words.address + _PLACES
        self.code.invoke(function, frame, places, n >> 3, self._at("total"), self.columns)


@lru_cache(maxsize=8)
def chained_products(program: Program) -> frozenset[int]:
    """Return the sites of products that may be computed together with the next one.

    The next one adds to the same registers by the same instruction, without a guard on either, and until it
    comes nothing names these registers, and control goes nowhere else.
    """
    return frozenset(
        op.site
        for body in program.bodies
        for position, op in enumerate(body.ops)
        if _is_product(op) and _is_followed(body, position)
    )


def _is_product(op: Op) -> bool:
    """Return whether an instruction is a product of a warpgroup that every warp executes."""
    return op.record.multiplies and op.record.level is Level.WARPGROUP and op.guard is None


def _is_followed(body: FunctionBody, position: int) -> bool:
    """Return whether nothing comes between a product and the next one on the same registers."""
    op, leaders = body.ops[position], set(body.labels.values())
    sums = set(registers_in(op.operands[0]))
    if len(sums) != len(elements_of(op.operands[0])):
        return False
    for number in range(position + 1, len(body.ops)):
        other = body.ops[number]
        if number in leaders:
            return False
        if _is_product(other):
            named = {register for operand in other.operands[1:] for register in registers_in(operand)}
            alike = other.source.head == op.source.head and other.operands[0] == op.operands[0]
            return alike and sums.isdisjoint(named)
        if end_of(other) is not BlockEnd.FALLTHROUGH or not sums.isdisjoint(all_registers(other)):
            return False
    return False
