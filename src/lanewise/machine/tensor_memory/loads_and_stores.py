"""tcgen05.ld, st and wait: words between tensor memory and the registers of a warp, by vectors.

The layouts are those of `isa/tensor_memory/load_shapes.py`. Each moves bits of an index, so that vectors of
neighbouring columns become vectors of neighbouring threads by shuffles. A load has its registers at once: the
PTX ISA keeps the order of instructions that use them. A store may take effect as late as tcgen05.wait::st.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lanewise.isa.tensor_memory.load_shapes import PARTITION, SHAPES, LoadShape
from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, f32, u32
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.arithmetic.float_bits import pick
from lanewise.machine.async_records import STAGE_BYTES, TENSOR_PIPE, AsyncOperation, PendingOperations
from lanewise.machine.codegen.function_code import (
    BYTE,
    BlockCode,
    FunctionCode,
    Kernel,
    Record,
    routine,
    shared_code,
)
from lanewise.machine.codegen.pending_operations import address_of, complete_pipe, issue, tell_piped
from lanewise.machine.codegen.register_shuffles import VECTOR, Registers, index_bits, permuted, shuffled
from lanewise.machine.codegen.tensor_pipe import (
    blank_operation,
    columns_are_allocated,
    lane_and_column,
    missing_column,
    operand_of,
    tensor_word,
)
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.operands import MemoryOperand, Register, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.allocation import fault, uniform
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import LANE_BYTES, TENSOR_COLUMNS, TENSOR_LANES
from lanewise.ptx import Immediate

#: Bytes of a register of all lanes.
REGISTER_BYTES = 4 * abi.LANES
#: Operands of a store that is kept, beside its source.
START, HALF_SPLIT, CHUNKS = range(3)


class Move(NamedTuple):
    """What a load or store moves: chunks from a first word on, in one half or two."""

    #: The host address of the first word of tensor memory.
    start: Value
    #: The columns from the first half to the second.
    half_split: Value
    chunks: Value
    #: Registers of a chunk.
    together: int


def pipe_of(warp: Value) -> Value:
    """Return the pipe of the stores of a warp."""
    return warp + TENSOR_PIPE + 1


def keep(
    code: BlockCode, site: Value, move: Move, register: Callable[[Value], Record], execute: ir.Function
) -> None:
    """Write that a store is kept if the launch has a schedule, and there is room for its registers.

    Then it returns from the function. `execute` is the function that carries it out.
    """
    pending = code.block.get(BlockRecord.pending)
    size = move.chunks * (move.together * REGISTER_BYTES)
    with code.when(pending.differs(0)):
        queue = Record(code, pending)
        used = queue.get(PendingOperations.staged_bytes)
        with code.when(~(used + size > STAGE_BYTES)):
            place = queue.get(PendingOperations.stage) + used
            queue.set(PendingOperations.staged_bytes, used + size)
            with code.loop(move.chunks * move.together) as number:
                values = register(number).get(0, u32, abi.LANES)
                Record(code, place + number * REGISTER_BYTES).pointer(0, u32).store(values)
            operation = _store_of(code, site, move)
            operation.set(AsyncOperation.source, place)
            operation.set(AsyncOperation.execute, address_of(code, execute))
            code.give(code.invoke(issue(code.module), code["frame"], operation.address))


def _store_of(code: BlockCode, site: Value, move: Move) -> Record:
    """Return a store of the running warp as an operation of its pipe, without its values."""
    operation = blank_operation(code, site, code.number(0))
    operation.set(AsyncOperation.pipe, pipe_of(code.frame.get(WarpFrame.index)))
    for operand, value in enumerate((move.start, move.half_split, move.chunks)):
        operation.set(AsyncOperation.tensor_operands + 8 * operand, value)
    return operation


def tell_store(code: BlockCode, site: Value, move: Move) -> None:
    """Write code that tells a trace, if there is one, of a store that took effect at once."""
    with code.when(code.block.get(BlockRecord.piped_hook).differs(0)):
        operation = _store_of(code, site, move)
        operation.set(AsyncOperation.block, code.block.address)
        operation.set(AsyncOperation.warp, code.frame.get(WarpFrame.index))
        operation.set(AsyncOperation.issue_entry, code.block.get(BlockRecord.log_entry))
        tell_piped(code, operation)


def kept_move(operation: Record, together: int) -> tuple[Move, Callable[[Value], Value]]:
    """Return what a kept store moves, and where its copied registers are, by their number."""
    start, half_split, chunks = (operand_of(operation, field) for field in (START, HALF_SPLIT, CHUNKS))
    source = operation.get(AsyncOperation.source)
    return Move(start, half_split, chunks, together), lambda number: source + number * REGISTER_BYTES


def wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.wait::st as a shared step: the kept stores of the warp take effect."""
    return Step(shared_code(module, "tcgen05.wait::st", STEP_ARGUMENTS, _write_wait, quickly=True), [])


def load_wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.wait::ld as a shared step that does nothing: loads are done; a check sees the wait."""
    return Step(shared_code(module, "tcgen05.wait::ld", STEP_ARGUMENTS, _write_nothing, quickly=True), [])


def _write_nothing(code: BlockCode) -> None:
    code.give(0)


def _write_wait(code: BlockCode) -> None:
    with code.when((code["active"].equals(0)) | code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    code.stop_if(complete_pipe(code, code.block, pipe_of(code.frame.get(WarpFrame.index))).differs(0))


#: Operands of the step: the site, then as a register's offset (0: none) and a number the address; the columns
#: from the first to the second half, how many chunks there are, and the offsets of the registers.
_ADDRESS, _HALF_SPLIT, _CHUNKS, _REGISTERS = 8, 24, 32, 40
#: Registers that are moved together, at most.
MOST_TOGETHER = 8


class Form(NamedTuple):
    """What the code of a load or store depends on: its shape, and the registers that it moves together."""

    shape: LoadShape
    storing: bool
    #: Whether a register is made of the low halves of two columns.
    packed: bool
    together: int

    @property
    def name(self) -> str:
        """The name of the function that moves one chunk after the other."""
        verb = "st" if self.storing else "ld"
        return f"tcgen05.{verb} {self.shape.name}{' packed' if self.packed else ''} by {self.together}"

    @property
    def columns(self) -> int:
        """The words of a lane, in each half, that a chunk moves."""
        return self.together * abi.LANES // (self.shape.lanes * self.shape.halves)

    @property
    def step(self) -> int:
        """The columns from one chunk to the next."""
        return self.columns * (2 if self.packed else 1)

    def words(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Return for each register and thread of a chunk, in this order, the number of its word.

        Words are numbered by half, lane and column.
        """
        shape = self.shape
        lanes, columns = shape.places(self.together // shape.registers.size())
        half = np.arange(abi.LANES)[:, None] * shape.halves // abi.LANES
        numbers = (half * shape.lanes + lanes) * self.columns + columns
        return np.asarray(numbers.T.ravel(), np.intp)


class Access(NamedTuple):
    """The operands of a load or store as its PTX gives them."""

    form: Form
    registers: list[Register]
    address: MemoryOperand
    half_split: int

    @classmethod
    def of(cls, op: Op) -> Access:
        """Read the operands; raise an error if they do not fit the shape."""
        shape = next(SHAPES[word] for word in op.modifiers if word in SHAPES)
        num = next(int(word[1:]) for word in op.modifiers if word[0] == "x" and word[1:].isdigit())
        count = shape.registers_of(num)
        storing, reduces = op.has("st"), op.has("red")
        rest = list(op.operands)
        data = rest.pop(-1 if storing else 0)
        if reduces:
            rest.pop(0)
        address, *split = rest
        registers = [
            element for element in elements_of(data) if isinstance(element, Register) and element.bits == 32
        ]
        if len(registers) != len(elements_of(data)) or len(registers) != count:
            raise op.unsupported(f".{shape.name}.x{num} takes {count} registers of 32 bits")
        if len(split) != shape.halves - 1 or not all(isinstance(immediate, Immediate) for immediate in split):
            raise op.unsupported("only .16x32bx2 has the columns to its second half, as a constant")
        assert isinstance(address, MemoryOperand)
        together = min(count, MOST_TOGETHER)
        form = Form(shape, storing, op.has("pack::16b") or op.has("unpack::16b"), together)
        offset = signed_word(split[0].bits) if split and isinstance(split[0], Immediate) else 0
        return cls(form, registers, address, offset)


def signed_word(bits: int) -> int:
    """Return the signed number that the low 32 bits of a constant stand for.

    >>> signed_word(0xFFFF_FFFC)
    -4
    """
    return (bits + (1 << 31)) % (1 << 32) - (1 << 31)


def tensor_address(op: Op, address: MemoryOperand) -> list[int]:
    """Return an address of tensor memory as two words of a step: a register's offset (0: none), a number."""
    base = address.base
    if isinstance(base, Register) and base.bits == 32:
        return [base.offset, address.offset]
    if isinstance(base, Immediate):
        return [0, (base.bits + address.offset) & 0xFFFFFFFF]
    raise op.unsupported("an address of tensor memory is a 32-bit register or a constant")


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.ld or st as a shared step."""
    access = Access.of(op)
    form = access.form
    words = [
        op.site,
        *tensor_address(op, access.address),
        access.half_split,
        len(access.registers) // form.together,
        *(register.offset for register in access.registers),
    ]
    if op.has("red"):
        reduced = op.operands[1]
        if not isinstance(reduced, Register) or reduced.bits != 32:
            raise op.unsupported("its second operand is a 32-bit register for the reduced value")
        return Step(_reducing(module, op, form), [*words, reduced.offset])
    return Step(_mover(module, form), words)


def _mover(module: ir.Module, form: Form) -> ir.Function:
    """Return the function of a step for one form."""

    def write(code: BlockCode) -> None:
        module, words = code.module, code.record("operands")
        code.demand_whole_warp(words.get(0))
        move = _checked_move(code, form, words)
        if form.storing:
            keep(code, words.get(0), move, lambda number: _data(code, words, number), _kept(module, form))
        _move(code, form, move, lambda number: _data(code, words, number).address)
        if form.storing:
            tell_store(code, words.get(0), move)

    return shared_code(module, form.name, STEP_ARGUMENTS, write)


def _kept(module: ir.Module, form: Form) -> ir.Function:
    """Return the function that carries out a store that was kept."""

    def write(code: FunctionCode) -> None:
        move, register = kept_move(code.record("operation"), form.together)
        _move(code, form, move, register)

    return routine(module, f"execute {form.name}", ("operation",), write, quickly=True)


def _data(code: BlockCode, words: Record, number: Value) -> Record:
    """Return where the warp has a register of the vector, by its number."""
    return Record(code, code["frame"] + words.get(number * 8 + _REGISTERS))


def _checked_move(code: BlockCode, form: Form, words: Record) -> Move:
    """Return what is moved, after the address was checked."""
    chunks = words.get(_CHUNKS)
    lane, column = _checked_place(code, form, words, chunks)
    start = tensor_word(code.block, lane, column)
    return Move(start, words.get(_HALF_SPLIT), chunks, form.together)


def _move(code: FunctionCode, form: Form, move: Move, register: Callable[[Value], Value]) -> None:
    """Write the move of all chunks; `register` gives the address of a register by its number."""
    base = code.builder.inttoptr(code.number(0).handle, BYTE)
    with code.loop(move.chunks) as chunk:
        rows = move.start + chunk * (form.step * 4)
        halves = [rows, rows + move.half_split * 4][: form.shape.halves]
        addresses = [register(chunk * form.together + number) for number in range(form.together)]
        registers = Registers(code, base, addresses, 32)
        lines = [Record(code, half + n * LANE_BYTES) for half in halves for n in range(form.shape.lanes)]
        (_store if form.storing else _load)(code, form, lines, registers)


def _vector(form: Form) -> int:
    """Return how many neighbouring words of a lane are a vector."""
    return min(form.columns, VECTOR // 32)


def _load(code: FunctionCode, form: Form, lines: list[Record], registers: Registers) -> None:
    """Write the load of a chunk: rows of neighbouring columns become registers."""
    width = _vector(form)
    vectors = []
    for line in lines:
        for column in range(0, form.columns, width):
            if form.packed:
                low, high = _alternating(code, line.pointer(column * 8, u32), width)
                vectors.append((low & 0xFFFF) | (high << 16))
            else:
                vectors.append(line.get(column * 4, u32, width))
    registers.store(_reordered(code, vectors, form.words(), width))


def _alternating(code: FunctionCode, words: Pointer, width: int) -> list[Value]:
    """Return the words of even and of odd numbers among neighbours, so many of each."""
    if width == 1:
        return [words.load(number) for number in (0, 1)]
    both = words.load(0, 2 * width)
    return [shuffled(code, both, None, tuple(range(n, 2 * width, 2))) for n in (0, 1)]


def _store(code: FunctionCode, form: Form, lines: list[Record], registers: Registers) -> None:
    """Write the store of a chunk. The upper half of a column that an unpacked half goes to becomes 0."""
    width = _vector(form)
    source = np.argsort(form.words())
    vectors = _reordered(code, registers.load(u32, 32 * width), source, width)
    per_line = form.columns // width
    for number, vector in enumerate(vectors):
        line, part = lines[number // per_line], number % per_line
        if form.packed and width == 1:
            for place, half in enumerate((vector & 0xFFFF, vector >> 16)):
                line.pointer(part * 8, u32).store(half, place)
        elif form.packed:
            low, high = vector & 0xFFFF, vector >> 16
            both = shuffled(code, low, high, tuple(n // 2 + n % 2 * width for n in range(2 * width)))
            line.pointer(part * width * 8, u32).store(both)
        else:
            line.pointer(part * width * 4, u32).store(vector)


def _reordered(code: FunctionCode, vectors: list[Value], order: np.ndarray, width: int) -> list[Value]:
    """Return vectors whose elements are those of others at some numbers."""
    if width == 1:
        return [vectors[int(number)] for number in order]
    bits = index_bits(order)
    assert bits is not None, "every shape moves bits of an index"
    return permuted(code, vectors, bits)


# where it reaches -------------------------------------------------------------------------------------------


def _checked_place(code: BlockCode, form: Form, words: Record, chunks: Value) -> tuple[Value, Value]:
    """Return the first lane and column; the launch stops unless the warp reaches all, and all are allocated.

    A warp reaches the 32 lanes of its number modulo 4. An address of lanes below 32 means these lanes, too.
    """
    address = uniform(code, words, _ADDRESS, Wrong.ADDRESSES_DIFFER)
    named, column = lane_and_column(address)
    own = (code.frame.get(WarpFrame.index) & (TENSOR_LANES // PARTITION - 1)) * PARTITION
    partition = named & -PARTITION
    with code.when(partition.differs(0) & partition.differs(own)):
        fault(code, words, Wrong.LANES_OF_OTHERS, named)
    with code.when((named & (form.shape.lanes - 1)).differs(0)):
        fault(code, words, Wrong.FIRST_LANE, named)
    count = chunks * form.step
    halves = [column, column + words.get(_HALF_SPLIT)][: form.shape.halves]
    for first in halves:
        demand_columns(code, words, first, count)
    return own + (named & (PARTITION - 1)), column


def demand_columns(code: BlockCode, words: Record, first: Value, count: Value) -> None:
    """Stop the launch unless some columns of the block's tensor memory exist and are allocated."""
    last = first + count - 1
    with code.when((first < 0) | (last > TENSOR_COLUMNS - 1)):
        fault(code, words, Wrong.BEYOND_COLUMNS, (first < 0).select(first, last))
    with code.when(~columns_are_allocated(code, code.block, first, count)):
        fault(code, words, Wrong.NOT_ALLOCATED, missing_column(code, code.block, first))


# reductions -------------------------------------------------------------------------------------------------


def _reducing(module: ir.Module, op: Op, form: Form) -> ir.Function:
    """Return the function of a step that loads, and leaves the least or largest of a thread's registers.

    The reduced value is one of each thread's own registers. The PTX ISA speaks of the columns of a lane,
    which two threads share in .16x32bx2: that each reduces its own half is an assumption.
    """
    larger, kind = op.has("max"), op.types[-1]
    type = {"f32": f32, "u32": u32, "s32": Type("i", 32)}[kind].by(abi.LANES)
    options = " ".join(name for name in ("abs", "NaN") if op.has(name))

    def write(code: BlockCode) -> None:
        words = code.record("operands")
        code.demand_whole_warp(words.get(0))
        _move(code, form, _checked_move(code, form, words), lambda number: _data(code, words, number).address)
        count = words.get(_CHUNKS) * form.together

        def value(number: Value) -> Value:
            word = code.frame.get(words.get(number * 8 + _REGISTERS), u32, abi.LANES)
            return (word & 0x7FFFFFFF if op.has("abs") else word).view(type)

        first = value(code.number(0))
        reduced = code.variable(first)
        with code.loop(count, 1) as number:
            now, other = reduced.get(), value(number)
            if kind == "f32":
                chosen = pick(op, larger, now, other)
            else:
                chosen = ((now > other) if larger else (now < other)).select(now, other)
            reduced.set(chosen.view(type))
        target = words.get(count * 8 + _REGISTERS)
        code.frame.pointer(target, u32).store(reduced.get().view(u32))

    verb = "max" if larger else "min"
    return shared_code(module, f"{form.name} {verb} {options} {kind}", STEP_ARGUMENTS, write)
