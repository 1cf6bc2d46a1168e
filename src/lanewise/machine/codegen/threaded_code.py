"""Blocks of code as scripts: steps, then how they end, read by functions that all kernels share.

LLVM takes its time for every function and every call, however small. What a block of code does besides
arithmetic is mostly the same with other numbers, so the numbers are data. The words of a script are 64 bits
wide. A step is its length in words, a function, and

- the lanes done in a call, for a run of lanes' own instructions: `run(frame, first)`;
- 0, the guard's register (0: none), whether it is negated, and words of its own, for all else:
  `step(frame, active, words)`, which returns 0 or why the block ends here.

The end is a length of 0, a function, and words of its own: `end(frame, words)` returns the block that
follows. Without a function, the first of the words is that block.
"""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import (
    TOGETHER,
    U32,
    BlockCode,
    Record,
    call,
    guarded_bits,
    shared_code,
)
from lanewise.machine.codegen.scheduler import split, wait
from lanewise.machine.program.resolve import Op

#: Words of a step before its own.
HEAD = 5
Word = int | ir.Function
#: A function that all kernels share, `step(frame, active, words)`, and the words for one instruction.
Step = tuple[ir.Function, list[int]]


def strip(often: bool) -> int:
    """Lanes done together: more than a vector has where code runs often, for two operations at a time."""
    return max(8, machine_code.lanes_of(32)) if often else machine_code.lanes_of(32)


def run_step(function: ir.Function, width: int) -> list[Word]:
    """A run of lanes' own instructions, so many lanes at a time."""
    return [3, function, width]


def step(function: ir.Function, op: Op | None, words: list[int]) -> list[Word]:
    """A function for the lanes that an instruction's guard leaves, with words of its own."""
    return [HEAD + len(words), function, 0, *guard_words(op), *words]


def call_step(code: BlockCode, op: Op, found: Step) -> None:
    """A step amid other code."""
    function, words = found
    kind = ir.ArrayType(ir.LONG, len(words))
    own = ir.GlobalVariable(code.module, kind, f"words of {op.site} in {code.function.name}")
    own.initializer, own.linkage = ir.Constant(kind, words), "internal"
    where = Value(code, i64, code.builder.ptrtoint(own, ir.LONG))
    answer = call(code, function, [code["frame"], code.bits(code.active(op)), where])
    with code.when(answer.differs(0)):
        code.give(answer)


def guard_words(op: Op | None) -> list[int]:
    """An instruction's guard: its register's place (0: none), and whether it is negated."""
    if op is None or op.guard is None:
        return [0, 0]
    return [op.guard[0].offset, int(op.guard[1])]


def on_to(number: int) -> list[Word]:
    """The end: all lanes go on there."""
    return [0, 0, number]


def ending(function: ir.Function, words: list[int]) -> list[Word]:
    """The end: a function decides."""
    return [0, function, *words]


def data(module: ir.Module, name: str, words: list[Word]) -> ir.GlobalVariable:
    """Words as constant data; functions stand for their addresses."""
    kind = ir.ArrayType(ir.LONG, len(words))
    variable = ir.GlobalVariable(module, kind, name)
    texts = [
        each if isinstance(each, int) else ir.Operand(ir.LONG, f"ptrtoint (ptr {each.text} to i64)")
        for each in words
    ]
    variable.initializer, variable.linkage = ir.Constant(kind, texts), "internal"
    return variable


# what reads them --------------------------------------------------------------------------------------------


def _function(code: BlockCode, place: Value, arguments: int) -> Any:
    kind = ir.FunctionType(ir.WORD, [ir.LONG] * arguments)
    return code.builder.inttoptr(place.handle, kind.as_pointer())


def _active(code: BlockCode, words: Record, first: int) -> Value:
    """The lanes that a guard leaves, as bits; `first` is where in the words it stands."""
    register = words.get(first)
    bits = code.variable(code.mask_bits())
    with code.when(register.differs(0)):
        bits.set(guarded_bits(code, register, words.get(first + 8)))
    return bits.get()


def write_follow(module: ir.Module) -> Any:
    """`follow(frame, row)`: do what the script of a block of code says; returns the block that follows."""
    code = BlockCode(module, "follow", ("row",))
    code.function.attributes.discard("noinline")  # it is the heart of the scheduler
    builder = code.builder
    place = code.variable(code.record("row").get(abi.SCRIPT))
    head, after, end = (code.function.append_basic_block(each) for each in ("step", "next", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    words = Record(code, place.get())
    size = words.get(0)
    with code.when(size.equals(0)):
        builder.branch(end)
    function, width = words.get(8), words.get(16)
    with code.when(width.differs(0)):
        run = _function(code, function, 2)
        number, again = code.variable(code.constant(i64, 0)), code.function.append_basic_block("again")
        builder.branch(again)
        builder.position_at_end(again)
        for _ in range(abi.LANES // strip(often=True)):  # more than one, for what it costs to go round
            first = number.get()
            builder.call(run, [code["frame"].handle, first.handle])
            number.set(first + width)
        builder.cbranch((number.get() < abi.LANES).handle, again, after)
    own = words.address + 8 * HEAD
    values: list[Value | int] = [code["frame"], _active(code, words, 24), own]
    answer = call(code, _function(code, function, 3), values)
    with code.when(answer.differs(0)):
        code.give(answer)
    builder.branch(after)
    builder.position_at_end(after)
    place.set(place.get() + size * 8)
    builder.branch(head)

    builder.position_at_end(end)
    last = Record(code, place.get())
    decides = last.get(8)
    with code.when(decides.equals(0)):
        code.give(last.get(16, U32))
    code.give(call(code, _function(code, decides, 2), [code["frame"], last.address + 16]))
    return code.function


# ends -------------------------------------------------------------------------------------------------------


def branch_end(module: ir.Module) -> ir.Function:
    """Guard, target, following: some lanes to a target, the others on; pcs are stored if they part."""

    def write(code: BlockCode) -> None:
        words = code.record("words")
        bits, target, following = _active(code, words, 0), words.get(16), words.get(24)
        with code.when(bits.equals(0)):
            code.give(following.to(U32))
        with code.when(bits.equals(code.mask_bits())):
            code.give(target.to(U32))
        code.give(call(code, split(code.module), [code["frame"], bits, target, following]))

    return shared_code(module, "branch_end", ("words",), write)


def exit_end(module: ir.Module) -> ir.Function:
    """Guard, following: some lanes leave, the others go on."""

    def write(code: BlockCode) -> None:
        words = code.record("words")
        bits, following = _active(code, words, 0), words.get(16)
        with code.when(bits.equals(0)):
            code.give(following.to(U32))
        code.give(call(code, split(code.module), [code["frame"], bits, abi.EXITED, following]))

    return shared_code(module, "exit_end", ("words",), write)


def wait_end(module: ir.Module) -> ir.Function:
    """Guard, following, register, members: for siblings named by a register (0: none) or a number."""

    def write(code: BlockCode) -> None:
        words = code.record("words")
        bits, following, register = _active(code, words, 0), words.get(16), words.get(24)
        members = words.get(32)
        missing = members.to(U32) & ~bits
        with code.when(register.equals(0) & missing.equals(0)):
            code.give(following.to(U32))
        values: list[Value | int] = [code["frame"], bits, following, register, members]
        code.give(call(code, wait(code.module), values))

    return shared_code(module, "wait_end", ("words",), write)


def barrier_end(module: ir.Module) -> ir.Function:
    """Guard, following, number, past: a plain barrier. A whole warp waits together.

    A block of one warp does not wait: it goes on at `past`, for which all of its lanes have to be there.
    """

    def write(code: BlockCode) -> None:
        words = code.record("words")
        bits, following, number = _active(code, words, 0), words.get(16), words.get(24)
        with code.when(bits.equals(-1)):
            with code.when(code.block.at(abi.LAUNCH).get(abi.WARPS).equals(1)):
                code.give(words.get(32).to(U32))
            waits = (following + 1) | (number << abi.TOGETHER_BITS)
            code.frame.set(abi.TOGETHER, waits.to(U32))
            code.give(TOGETHER)
        active = code.lanes_of(bits)
        for offset, value in (
            (abi.BARRIER, number.to(U32)),
            (abi.BARRIER_ARGUMENT, code.constant(U32, 0)),
        ):
            place = code.frame.pointer(offset, U32)
            place.store(active.select(value.spread(abi.LANES), place.load(0, abi.LANES)))
        parked = following | abi.PARKED
        code.give(call(code, split(code.module), [code["frame"], bits, parked, following]))

    return shared_code(module, "barrier_end", ("words",), write)
