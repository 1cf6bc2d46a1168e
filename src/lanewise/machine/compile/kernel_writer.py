"""Writes a kernel as LLVM IR: basic blocks as threaded code, functions for arithmetic, the code table.

There is one code generator: a checked launch runs the same steps with those of the checker between them.
"""

from collections import Counter
from collections.abc import Callable

from lanewise.jit import ir
from lanewise.machine.codegen import threaded_code
from lanewise.machine.codegen.function_code import BlockCode, Kernel
from lanewise.machine.codegen.lane_vectors import Lanes
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Instrumentation, Step, Word
from lanewise.machine.compile.block_ends import EndWriter
from lanewise.machine.compile.lowering import lane_lowering, naming, outlined, shared_step, warp_lowering
from lanewise.machine.program.basic_blocks import BasicBlock, guarded_moves, in_loops
from lanewise.machine.program.instruction_record import Level
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op, all_registers
from lanewise.machine.warp_ops import load_store

#: Instructions of a warp after which another function begins, and instructions after which another module
#: does: LLVM takes more than its share of time for long functions, and modules are compiled side by side.
MOST_IN_FUNCTION, MOST_IN_MODULE = 64, 200
#: Instructions of each lane alone after which another function begins.
MOST_IN_RUN = 4 * MOST_IN_FUNCTION


class KernelWriter:
    """Writes the IR of a kernel, in modules that are handed over as soon as each is complete."""

    def __init__(
        self,
        kernel: Kernel,
        blocks: list[BasicBlock],
        instrumentation: Instrumentation | None,
        finished: Callable[[ir.Module], None],
    ) -> None:
        self.kernel, self.blocks, self.instrumentation = kernel, blocks, instrumentation
        self.finished = finished
        #: The current module, and how many instructions it has.
        self.module, self.length = ir.Module(), 0
        #: The module of the table and of the words of threaded code.
        self.data, self.words = ir.Module(), list[Word]()
        self.loops = in_loops(blocks)
        #: How often each register is named: one that is named in a single run is not stored to the frame.
        self.uses = Counter(
            register
            for block in blocks
            for op in [*block.ops, *([block.op] if block.op else [])]
            for register in all_registers(op)
        )
        if instrumentation is not None:
            self.uses.update(instrumentation.registers_read())
        self.ends = EndWriter(kernel, blocks, self.data, self.function)

    def write(self, name: str) -> None:
        """Write all basic blocks, and the code table under a name."""
        rows = [row for block in self.blocks for row in self._block(block)]
        self.finished(self.module)
        words = threaded_code.data(self.data, "words", self.words)
        kind = ir.ArrayType(ir.BYTES, len(rows))
        texts = [ir.Operand(ir.BYTES, f"getelementptr (i8, ptr {words.text}, i64 {row})") for row in rows]
        ir.GlobalVariable(self.data, kind, name).initializer = ir.Constant(kind, texts)
        self.finished(self.data)

    def function(self, name: str, length: int, arguments: tuple[str, ...]) -> BlockCode:
        """Begin a function for some instructions, in the current module or in a new one."""
        if self.length > MOST_IN_MODULE:
            self.finished(self.module)
            self.module, self.length = ir.Module(), 0
        self.length += length
        return BlockCode(self.module, name, arguments, linkage="", kernel=self.kernel)

    def _put(self, words: list[Word]) -> int:
        """Add words to the data and return the offset of the first."""
        offset = 8 * len(self.words)
        self.words += words
        return offset

    def _block(self, block: BasicBlock) -> list[int]:
        """Write a basic block and return its row of the table: offsets of its registers and steps."""
        steps = BlockSteps(self, block)
        words = steps.words()
        registers = [number for register in steps.written for number in (register.offset, register.bits // 8)]
        return [self._put([len(steps.written), *registers]), self._put(words)]


class BlockSteps:
    """Writes one basic block as steps: runs of lane instructions, shared steps, functions of the kernel."""

    def __init__(self, writer: KernelWriter, block: BasicBlock) -> None:
        self.writer, self.block = writer, block
        self.kernel, self.data = writer.kernel, writer.data
        self.often = block.number in writer.loops
        #: Registers that are written in every lane, also in lanes that do not execute the basic block.
        self.written: dict[Register, None] = {}
        self.step_words: list[Word] = []
        #: Instructions that are written together next: of each lane alone, or of a warp.
        self.run: list[Op] = []
        self.others: list[Op] = []

    def words(self) -> list[Word]:
        """Return the words of all steps and of the end."""
        watch = self.writer.instrumentation
        if watch is not None:
            self.step_words += watch.at_begin(self.data, self.block)
        self._add(self.block.ops)
        moves = guarded_moves(self.block)
        if moves and self.block.following is not None:
            self._add_skipped(self.block.following, moves)
        if watch is not None:
            self.step_words += watch.at_end(self.data, self.block)
        return self.step_words + self.writer.ends.words(self.block)

    def _add_skipped(self, block: BasicBlock, moves: list[Op]) -> None:
        """Add the loads and stores of a block that a branch skips, for the lanes that do not skip it."""
        watch = self.writer.instrumentation
        if watch is not None:
            self.step_words += watch.at_begin(self.data, block, moves[0])
        self._add(moves)
        if watch is not None:
            self.step_words += watch.at_end(self.data, block, moves[0])

    def _add(self, ops: list[Op]) -> None:
        """Add the steps of instructions, one after the other."""
        watch = self.writer.instrumentation
        for op in ops:
            if watch is not None:
                self._add_hooks(watch.before(self.data, op))
            if self._is_of_each_lane(op):
                self._add_to_run(op)
            elif op.record.has_code:
                self._add_of_warp(op)
            if watch is not None:
                self._add_hooks(watch.after(self.data, op))
        self._flush()

    def _add_hooks(self, hooks: list[Word]) -> None:
        """Add steps of the instrumentation between those of instructions."""
        if hooks:
            self._flush()
            self.step_words += hooks

    def _is_of_each_lane(self, op: Op) -> bool:
        """Return whether an instruction is of each lane alone, or loads a parameter."""
        if op.record.level is Level.LANE:
            return True
        with naming(op):
            return load_store.parameter_offset(op, self.kernel) is not None

    def _add_to_run(self, op: Op) -> None:
        """Add an instruction of each lane alone to the current run."""
        if self.others or len(self.run) >= MOST_IN_RUN:
            self._flush()
        self.run.append(op)

    def _add_of_warp(self, op: Op) -> None:
        """Add an instruction of a warp: as a shared step, or to the current function."""
        share = shared_step(op)
        if share is not None:
            with naming(op):
                step = share(self.data, op, self.kernel)
            if step is not None:
                self._flush()
                self.step_words += step.words(op)
                return
        if self.run or len(self.others) >= MOST_IN_FUNCTION:
            self._flush()
        self.others.append(op)

    def _flush(self) -> None:
        """Write the instructions that were collected as one step."""
        if self.run:
            self.step_words += self._run_words(self.run)
        elif self.others:
            self.step_words += self._warp_function(self.others).words(None)
        self.run, self.others = [], []

    def _warp_function(self, ops: list[Op]) -> Step:
        """Write a function of this kernel for instructions of a warp."""
        code = self.writer.function(f"piece_{self.block.number}_{ops[0].site}", len(ops), STEP_ARGUMENTS)
        for op in ops:
            with naming(op):
                warp_lowering(op)(code, op)
        code.give(0)
        return Step(self.writer.ends.declared(code.function), [])

    def _run_words(self, ops: list[Op]) -> list[Word]:
        """Write `run(frame, start)`: instructions of each lane alone, for lanes from `start` on."""
        width = threaded_code.strip(self.often)
        code = self.writer.function(f"run_{self.block.number}_{ops[0].site}", len(ops), ("start",))
        program = self.kernel.program
        lanes = Lanes(
            code,
            code.frame.handle,
            code["start"],
            width,
            program.dynamic_offset,
            program.may_have_clusters,
        )
        for op in ops:
            with naming(op):
                self._lower(lanes, op)
        here = Counter(register for op in ops for register in all_registers(op))

        def needless(register: Register) -> bool:
            return here[register] == self.writer.uses[register]

        lanes.put_back(needless)
        self.written |= dict.fromkeys(lanes.stored(needless))
        code.give(0)
        return threaded_code.run_words(self.writer.ends.declared(code.function), width)

    def _lower(self, lanes: Lanes, op: Op) -> None:
        """Lower an instruction of each lane alone under its guard."""
        lanes.guard = None
        if op.guard is not None:
            register, negated = op.guard
            holds = lanes.register(register)
            lanes.guard = ~holds if negated else holds
        if op.record.level is not Level.LANE:
            load_store.load_parameter(lanes, op, self.kernel)
            return
        lower = lane_lowering(op)
        if not outlined(lanes, op, lower):
            lower(lanes, op)
