"""Threaded code: a basic block as a list of steps, and the function that follows it.

LLVM takes its time for every function and every call, however small. What a basic block does besides
arithmetic is mostly the same with other numbers, so the numbers are data: words of 64 bits. A step is its
length in words, a function, and

- the lanes that a call does, for a run of instructions of each lane alone: `run(frame, first)`;
- 0, the guard's register (0: none), whether it is negated, and operands of its own, for all else:
  `step(frame, active, operands)`, which returns 0 or why the basic block ends here.

The end is a length of 0, a function, and operands of its own: `end(frame, operands)` returns the basic block
that follows. Without a function, the first operand is that basic block.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Value, i64, u32
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, guarded_bits
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op

#: A word of threaded code: a number, or the address of a function.
Word = int | ir.Function
#: Words of a step: the length, the function, the lanes of a run or 0, the guard's register, its negation.
LENGTH, FUNCTION, WIDTH, GUARD, NEGATED, OPERANDS = range(0, 48, 8)
#: Words of an end: 0, the function, operands of its own.
END_OPERANDS = 16
#: Arguments of a step's function and of an end's function after the frame.
STEP_ARGUMENTS, END_ARGUMENTS = ("active", "operands"), ("operands",)


@dataclass(frozen=True)
class Step:
    """A function `step(frame, active, operands)`, and the operands for one instruction."""

    function: ir.Function
    operands: list[int]

    def words(self, op: Op | None) -> list[Word]:
        """Return the words of the step, with the guard of an instruction."""
        return [OPERANDS // 8 + len(self.operands), self.function, 0, *guard_words(op), *self.operands]


def strip(often: bool) -> int:
    """Return how many lanes a run handles at a time.

    In loops it is more than a vector has, so that two operations are under way at a time.
    """
    return max(8, machine_code.lanes_of(32)) if often else machine_code.lanes_of(32)


def run_words(function: ir.Function, width: int) -> list[Word]:
    """Return the words of a run of instructions of each lane alone, `width` lanes at a time."""
    return [3, function, width]


def guard_words(op: Op | None) -> list[int]:
    """Return the words of an instruction's guard: its register's offset (0: none), and the negation."""
    if op is None or op.guard is None:
        return [0, 0]
    return [op.guard[0].offset, int(op.guard[1])]


def goto_words(number: int) -> list[Word]:
    """Return the words of an end at which all lanes go on with one basic block."""
    return [0, 0, number]


def end_words(function: ir.Function, operands: list[int]) -> list[Word]:
    """Return the words of an end at which a function returns the next basic block."""
    return [0, function, *operands]


def data(module: ir.Module, name: str, words: list[Word]) -> ir.GlobalVariable:
    """Write words into a module as constant data, functions as their addresses, and return the variable."""
    kind = ir.ArrayType(ir.LONG, len(words))
    variable = ir.GlobalVariable(module, kind, name)
    texts = [
        word if isinstance(word, int) else ir.Operand(ir.LONG, f"ptrtoint (ptr {word.text} to i64)")
        for word in words
    ]
    variable.initializer, variable.linkage = ir.Constant(kind, texts), "internal"
    return variable


def active_lanes(code: BlockCode, words: Record, guard: int) -> Value:
    """Return the lanes that a guard leaves, as bits; `guard` is the offset of its words."""
    register = words.get(guard)
    bits = code.variable(code.mask_bits())
    with code.when(register.differs(0)):
        bits.set(guarded_bits(code, register, words.get(guard + 8)))
    return bits.get()


def write_follow(module: ir.Module) -> ir.Function:
    """Write `follow(frame, row)`: execute the steps of a basic block and return the one that follows."""
    code = BlockCode(module, "follow", ("row",))
    code.function.attributes.discard("noinline")  # the scheduler calls it all the time
    builder = code.builder
    position = code.variable(code.record("row").get(abi.CodeRow.steps))
    head, after, end = (code.function.append_basic_block(name) for name in ("step", "next", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    words = Record(code, position.get())
    length = words.get(LENGTH)
    with code.when(length.equals(0)):
        builder.branch(end)
    function, width = words.get(FUNCTION), words.get(WIDTH)
    with code.when(width.differs(0)):
        number, again = code.variable(code.constant(i64, 0)), code.function.append_basic_block("again")
        builder.branch(again)
        builder.position_at_end(again)
        for _ in range(abi.LANES // strip(often=True)):  # unrolled, because each turn of the loop costs
            first = number.get()
            code.invoke(function, code["frame"], first)
            number.set(first + width)
        builder.cbranch((number.get() < abi.LANES).handle, again, after)
    active = active_lanes(code, words, GUARD)
    answer = code.invoke(function, code["frame"], active, words.address + OPERANDS)
    with code.when(answer.differs(0)):
        code.give(answer)
    builder.branch(after)
    builder.position_at_end(after)
    position.set(position.get() + length * 8)
    builder.branch(head)

    builder.position_at_end(end)
    last = Record(code, position.get())
    decides = last.get(FUNCTION)
    with code.when(decides.equals(0)):
        code.give(last.get(END_OPERANDS, u32))
    code.give(code.invoke(decides, code["frame"], last.address + END_OPERANDS))
    return code.function


#: Called by the scheduler when a barrier completes: the code being written, the block's record, the number of
#: the barrier, and how many threads it is for (0: the whole block).
BarrierHook = Callable[[FunctionCode, Record, Value, Value], None]


class Instrumentation(Protocol):
    """Adds steps to the threaded code of a kernel. `data` is the module that has the words."""

    def registers_read(self) -> Iterable[Register]:
        """Return the registers that steps read besides those of the instructions that they stand beside."""

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a warp begins a basic block: for all its lanes, or those of a guard."""

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction that is not of each lane alone."""

    def after(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps after an instruction that has run."""

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps before lanes leave a basic block: for all of them, or those of a guard."""

    def barrier_hook(self) -> BarrierHook:
        """Return the function that the scheduler calls when a barrier completes."""

    def library(self) -> tuple[str, Callable[[], str]]:
        """Return the key of the functions that these steps call, and what writes their LLVM IR."""
