"""The tracer's steps of threaded code, beside those of the checker: a trace is a check with a log.

Instructions of each lane alone stay together in compiled runs. They are logged after the run, which is cut
where a register would be written a second time, so that the frame still has what each of them wrote.
"""

from collections.abc import Callable, Iterable

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import LANES
from lanewise.machine.checker.steps import CheckerSteps, release
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.threaded_code import BarrierHook, Step, Word, guard_words
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import Level, Size
from lanewise.machine.program.memory_accesses import tile_lines
from lanewise.machine.program.operands import Register, Symbol
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.tracer import step_code
from lanewise.machine.tracer.points import WINDOWS, LoggedAccess, Point, Points
from lanewise.machine.warp_ops.addresses import GENERIC, WRITE
from lanewise.ptx import Immediate

#: The step of an access that has none in a register.
NO_REGISTER = -1


class TracerSteps:
    """The steps that a traced launch adds to a kernel: those of the checker, and those that write the log."""

    def __init__(self, checker: CheckerSteps, points: Points, program: Program) -> None:
        self.checker, self.points, self.program = checker, points, program
        #: Instructions of each lane alone that have run and are not logged yet; the registers that they
        #: wrote, and the predicates that guard them.
        self.pending: list[Op] = []
        self.held: set[Register] = set()
        #: The basic block that is being written, and whether its last instruction is logged already.
        self.block: BasicBlock | None = None
        self.end_is_logged = False

    def registers_read(self) -> Iterable[Register]:
        """Return all registers that are logged, so that none of them stays in a run."""
        logged = {register.register for point in self.points.all for register in point.registers}
        return [*self.checker.registers_read(), *logged]

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a basic block begins; before moves that a branch skips, the branch."""
        words: list[Word] = []
        if guarded is None:
            self.block, self.end_is_logged = block, False
            step_code.written(data)  # the launch gives the addresses of both to each block
            step_code.copied(data)
            function = self.points.of_function(block)
            if function is not None:
                words += self._enter(data, function, None) + self._leave(data, function)
        else:
            words += self._flush(data)
            words += self._end(data)
        return words + self.checker.at_begin(data, block, guarded)

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction: those that log others, and those that begin its entry."""
        checks = self.checker.before(data, op)
        words: list[Word] = []
        if checks or not self._can_wait(op) or not self.held.isdisjoint(self._registers(op)):
            words += self._flush(data)
        if not self._can_wait(op):
            words += self._enter(data, self.points.of(op), op)
        return words + checks

    def after(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps after an instruction: those that complete its entry."""
        words: list[Word] = []
        if self._can_wait(op):
            self.pending.append(op)
            self.held |= self._registers(op)
            if op.guard is not None:
                self.held.add(op.guard[0])
        else:
            words += self._leave(data, self.points.of(op))
        return words + self.checker.after(data, op)

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps before lanes leave a basic block: its last instruction is logged."""
        words = self._flush(data)
        if guarded is None:
            words += self._end(data)
        return words + self.checker.at_end(data, block, guarded)

    def barrier_hook(self) -> BarrierHook:
        """Return the function that the scheduler calls when a barrier completes."""
        return checked_and_traced_barrier

    def library(self) -> tuple[str, Callable[[], str]]:
        """Return key and writer of the checker's functions; those of the tracer are shared functions."""
        return self.checker.library()

    # what is logged when ------------------------------------------------------------------------------------

    def _registers(self, op: Op) -> set[Register]:
        """Return the registers that an instruction writes."""
        return {register.register for register in self.points.of(op).registers}

    def _can_wait(self, op: Op) -> bool:
        """Return whether an instruction is logged with others: one of each lane alone."""
        guards_itself = op.guard is not None and op.guard[0] in self._registers(op)
        return op.record.level is Level.LANE and not guards_itself and not self.points.of(op).accesses

    def _flush(self, data: ir.Module) -> list[Word]:
        """Return the step that logs the instructions that wait for it."""
        if not self.pending:
            return []
        operands = [len(self.pending), *(word for op in self.pending for word in self._noted(op))]
        self.pending, self.held = [], set()
        return Step(step_code.note(data), operands).words(None)

    def _noted(self, op: Op) -> list[int]:
        """Return the words of an instruction for `note`."""
        point = self.points.of(op)
        return [point.number, point.size, *guard_words(op), len(point.registers), *_register_words(point)]

    def _end(self, data: ir.Module) -> list[Word]:
        """Return the step that logs the last instruction of the basic block."""
        block = self.block
        if block is None or block.op is None or block.waits_before or self.end_is_logged:
            return []
        self.end_is_logged = True
        point = self.points.of(block.op)
        words = [point.number, 0, *guard_words(block.op), 0]
        return Step(step_code.note(data), [1, *words]).words(None)

    def _enter(self, data: ir.Module, point: Point, op: Op | None) -> list[Word]:
        """Return the step that begins the entry of an instruction, or of a function's begin.

        The instruction has the guard of a branch that skips it, which that of its point has not.
        """
        words = [word for access in point.accesses for word in self._access_words(point.op, access)]
        operands = [point.number, point.size, int(point.writes_memory), len(point.accesses), *words]
        return Step(step_code.enter(data), operands).words(op)

    def _access_words(self, op: Op | None, access: LoggedAccess) -> list[int]:
        """Return the words of an access for `enter`."""
        located = access.located
        base, displacement, bits, offset = located.address.base, located.address.offset, 0, NO_REGISTER
        if isinstance(base, Register):
            bits, offset = base.bits, base.offset
        elif isinstance(base, Symbol):
            displacement += base.address + (self.program.dynamic_offset if base.space == "dynamic" else 0)
        else:
            displacement += base.bits
        element_bits, step_base, step = 0, NO_REGISTER, 0
        instruction = op.source.instruction() if op is not None else None
        if located.access.size is Size.TILE_LINE and instruction is not None and op is not None:
            lines = tile_lines(instruction)
            element_bits, step = lines.element_bits, lines.elements
            distance = op.operands[-1]
            if instruction.stride and isinstance(distance, Register):
                step_base = distance.offset
            elif instruction.stride and isinstance(distance, Immediate):
                step = distance.bits
        return [
            offset, bits, displacement, WINDOWS.get(located.space, 0), access.rows, access.size,
            access.addresses, access.before, _flags(access), _site(op), element_bits, step_base, step,
        ]  # fmt: skip

    def _leave(self, data: ir.Module, point: Point) -> list[Word]:
        """Return the step that completes an entry."""
        accesses = [
            word
            for access in point.accesses
            for word in (access.addresses, access.size, access.bytes, _flags(access), _site(point.op))
        ]
        operands = [len(point.registers), len(point.accesses), *_register_words(point), *accesses]
        return Step(step_code.leave(data), operands).words(None)


def _register_words(point: Point) -> list[int]:
    """Return the words of the registers that an instruction writes."""
    return [
        word
        for register in point.registers
        for word in (register.register.offset, register.register.bits // 8 * LANES, register.offset)
    ]


def _site(op: Op | None) -> int:
    """Return the site whose last allocation is tried first; what is in local memory needs none."""
    return op.site if op is not None else 0


def _flags(access: LoggedAccess) -> int:
    """Return the flags with which the bytes of an access are located."""
    return GENERIC | (WRITE if access.located.access.writes else 0)


def checked_and_traced_barrier(code: FunctionCode, block: Record, barrier: Value, counted: Value) -> None:
    """Write what happens when a barrier completes: the checker's step, and an entry of the log."""
    release(code, block, barrier, counted)
    step_code.barrier_done(code, block, barrier)
