"""The checker's steps of threaded code: before instructions, and where basic blocks begin and end.

Which steps an instruction has follows from its record in the table. Their functions are compiled once for all
kernels, together with shadow memory and clocks.
"""

from collections.abc import Callable
from functools import partial

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Function, Library, Reference
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, BlockRecord, WarpFrame
from lanewise.machine.analysis.definite_assignment import Plan, key_of
from lanewise.machine.analysis.warpgroup_registers import RegisterEvent, WarpgroupPlan
from lanewise.machine.bulk_copies.launch_control import RESPONSE_BYTES, SUCCESS_BIT
from lanewise.machine.checker.order_kinds import OrderKind, order_kind
from lanewise.machine.checker.records import BlockWatch, WatchRecord
from lanewise.machine.checker.site_table import (
    by_async_proxy,
    first_access_row,
    has_order_row,
)
from lanewise.machine.checker.tensor_memory.steps import TENSOR_STEPS, tensor_step
from lanewise.machine.checker.warpgroup_steps import (
    check_product,
    event_operands,
    product_operands,
    touch_registers,
)
from lanewise.machine.checker.watch_code.access_hook import access
from lanewise.machine.checker.watch_code.clocks.block_order import arrive, order, release_barrier
from lanewise.machine.checker.watch_code.clocks.warp_order import left, meet, members, parted, without_value
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_order
from lanewise.machine.checker.watch_code.proxy.async_operations import copy_issued, operand_read
from lanewise.machine.checker.watch_code.proxy.exits import exits
from lanewise.machine.checker.watch_code.proxy.launch_requests import ask_for_block, note_refusal
from lanewise.machine.checker.watch_code.proxy.register_pool import set_registers
from lanewise.machine.checker.watch_code.proxy.remote_accesses import cluster_wait
from lanewise.machine.checker.watch_code.watch_module import WatchModule
from lanewise.machine.codegen.function_code import U8, U32, U64, BlockCode, FunctionCode, Record
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, BarrierHook, Step, Word
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import BlockEnd, Level, Order, Waits
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: An answer of cluster launch control.
_ANSWER = Type("u", 8 * RESPONSE_BYTES)
#: A function of the watch for an instruction: of a warp, a row of the site table, and the active lanes.
Visit = Function[[WarpFrame, int, int], None]


class CheckerSteps:
    """The steps that a checked launch adds to a kernel; they track the registers of a plan."""

    def __init__(
        self,
        plan: Plan,
        warpgroups: WarpgroupPlan,
        follows_async: bool,
        has_warp_barriers: bool,
        answers: set[Register],
    ) -> None:
        self.plan, self.warpgroups = plan, warpgroups
        self.has_warp_barriers = has_warp_barriers
        #: Whether the kernel has asynchronous operations, moves registers, or belongs to clusters.
        self.follows_async = follows_async
        #: Registers with answers of cluster launch control.
        self.answers = answers

    def registers_read(self) -> set[Register]:
        """Return what steps read: predicates, and answers of cluster launch control."""
        return self.plan.predicates | self.answers

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a basic block begins: count it, and check unassigned registers."""
        steps = _step(data, "check_block", [block.number], guarded)
        clears = self.plan.clears.get(block.number, [])
        if clears:
            steps += _step(data, "clear_values", [self._tracked, len(clears), *clears], guarded)
        return steps + self._touched(data, self.warpgroups.at_begin.get(block.number))

    def _touched(self, data: ir.Module, events: list[RegisterEvent] | None) -> list[Word]:
        """Return the step that follows registers of wgmma which the next instructions touch."""
        if not events:
            return []
        return _step(data, "touch_registers", event_operands(len(self.warpgroups.registers), events), None)

    @property
    def _tracked(self) -> int:
        """How many registers are tracked."""
        return len(self.plan.registers)

    def _values(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps that check whether registers have the values that an instruction needs."""
        steps: list[Word] = []
        for index in self.plan.checks.get(key_of(op), ()):
            guarded = None if op.guard is not None and self.plan.registers[index] == op.guard[0] else op
            steps += _step(data, "check_value", [self._tracked, MOST_ROWS * op.site, index], guarded)
        where = self.plan.checks_where.get(key_of(op))
        if where is not None:
            predicate, sums = where
            operands = [self._tracked, MOST_ROWS * op.site, predicate, len(sums), *sums]
            steps += _step(data, "check_values_where", operands, op)
        return steps

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction: its values, order and accesses, the lanes it waits for."""
        record, first = op.record, MOST_ROWS * op.site
        steps = self._values(data, op)
        if record.level is Level.LANE:
            return steps
        if has_order_row(op):
            kind = order_kind(op)
            if kind.in_vector_clocks:
                steps += _step(data, "check_order", [first], op)
            if record.orders is Order.REGISTERS:
                steps += _step(data, "check_registers", [first], op)
            elif self.follows_async and (not kind.in_vector_clocks or kind is OrderKind.INIT_FENCE):
                steps += _step(data, "check_async_order", [first], op)
        if record.touches_tensor_memory:
            step = tensor_step(op)
            steps += _step(data, step.name, step.operands, op) if step is not None else []
        elif by_async_proxy(op):
            steps += _step(data, "set_async_hooks", [], op)
        if record.takes_over_clusters:
            steps += _step(data, "check_request", [first], op)
        product = self.warpgroups.products.get(key_of(op))
        if product is not None:
            operands = product_operands(len(self.warpgroups.registers), op.site, product)
            steps += _step(data, "check_product", operands, op)
        accesses = watched_accesses(op)
        for row, located in enumerate(accesses, first_access_row(op)):
            shortens = located.access.shortened_by
            last = op.operands[shortens] if 0 < shortens < len(op.operands) else None
            if isinstance(last, Immediate) and last.bits == 0:
                continue  # no byte is read
            if isinstance(last, Register):
                operands = [row, last.offset, int(last.is_predicate)]
                steps += _step(data, "check_shortened_access", operands, op)
            else:
                steps += _step(data, "check_access", [row], op)
        if record.waits is Waits.MEMBERS:
            steps += _step(data, "check_members", [first], op)
        elif record.waits in (Waits.WARP, Waits.WARPGROUP) and not accesses:
            steps += _step(data, "check_converged", [], op)
        return steps

    def after(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps after an instruction: which tracked registers have a value now."""
        steps = self._assigned(data, op) + self._touched(data, self.warpgroups.after.get(key_of(op)))
        if op.record.decodes_answer and op.has("is_canceled"):
            for response in registers_in(op.operands[1]):  # a constant has none
                steps += _step(data, "check_answer", [MOST_ROWS * op.site, response.offset], op)
        return steps

    def _assigned(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps that note which tracked registers an instruction has given a value."""
        moves = self.plan.moves.get(key_of(op))
        if moves is not None:
            steps: list[Word] = []
            for target, source in moves:
                sources = [1, source] if source >= 0 else [0]
                steps += _step(data, "note_values", [self._tracked, 1, target, *sources], op)
            return steps
        made = self.plan.assignments.get(key_of(op))
        if made is None:
            return []
        if made.choice is not None:
            (target,) = made.targets
            return _step(data, "choose_value", [self._tracked, target, *made.choice], op)
        if made.shuffled is not None:
            targets = [len(made.targets), *made.targets]
            operands = [self._tracked, MOST_ROWS * op.site, made.shuffled, *targets]
            return _step(data, "note_shuffled", operands, op)
        if made.loaded is not None:
            pairs = [number for pair in zip(made.targets, made.loaded, strict=True) for number in pair]
            operands = [self._tracked, MOST_ROWS * op.site, len(made.targets), *pairs]
            return _step(data, "note_loaded", operands, op)
        if made.answer is not None:
            operands = [MOST_ROWS * op.site, made.answer, len(made.targets), *made.targets]
            return _step(data, "note_decoded", [self._tracked, *operands], op)
        operands = [len(made.targets), *made.targets, len(made.sources), *made.sources]
        return _step(data, "note_values", [self._tracked, *operands], op)

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a basic block ends: branches and barriers."""
        op = block.op
        if op is None:
            return []
        steps = [] if block.waits_before else self._values(data, op)
        first = MOST_ROWS * op.site
        leaves = block.end is BlockEnd.EXIT or (block.end is BlockEnd.RETURN and block.body.function.is_entry)
        if leaves and self.follows_async:
            steps += _step(data, "check_exit", [first], op)
        if leaves and self.has_warp_barriers:
            steps += _step(data, "check_left", [first], op)
        if block.end is BlockEnd.JUMP and op.guard is not None:
            steps += _step(data, "check_branch", [op.site], op)
        elif block.end is BlockEnd.BARRIER:
            steps += _step(data, "check_arrive", [first], op)
        elif op.record.waits is Waits.CLUSTER and self.follows_async:
            steps += _step(data, "check_cluster_wait", [first], op)
        elif block.end is BlockEnd.CALL:
            steps += self._assigned(data, op)  # arguments have a value if what is passed has
        elif op.record.waits is Waits.MEMBERS:
            steps += _step(data, "check_parted" if block.waits_before else "check_members", [first], op)
        return steps

    def barrier_hook(self) -> BarrierHook:
        """Return the function that the scheduler calls when a barrier completes."""
        return release

    def library(self) -> tuple[str, Callable[[], str]]:
        """Return the key of the functions behind all steps, and what writes their LLVM IR."""
        key = "checker of asynchronous operations" if self.follows_async else "checker"
        return key, partial(_write, self.follows_async)


def _step(data: ir.Module, name: str, operands: list[int], op: Op | None) -> list[Word]:
    """Return the words of a step that calls one of the checker's functions."""
    type = ir.FunctionType(ir.WORD, [ir.LONG] * (1 + len(STEP_ARGUMENTS)))
    existing = data.functions.get(name)
    function = existing if isinstance(existing, ir.Function) else ir.Function(data, type, name)
    return Step(function, operands).words(op)


def release(code: FunctionCode, block: Record, barrier: Value, counted: Value) -> None:
    """Write a call of the function that handles a completed barrier."""
    type = ir.FunctionType(ir.LONG, [ir.LONG] * 3)
    declared = code.module.functions.get(release_barrier.name)
    function = declared if declared is not None else ir.Function(code.module, type, release_barrier.name)
    code.builder.call(function, [block.address.handle, barrier.handle, counted.handle])


# the functions ----------------------------------------------------------------------------------------------


def _write(follows_async: bool) -> str:
    """Return the LLVM IR of all functions of the checker."""
    module = WatchModule(follows_async)
    module.declared(release_barrier)
    for name, write in (_STEPS | (_ASYNC_STEPS | TENSOR_STEPS if follows_async else {})).items():
        code = BlockCode(module, name, STEP_ARGUMENTS, linkage="external")
        write(code, code.record("operands"))
        code.give(0)
    module.finish()
    return str(module)


def _frame(code: BlockCode) -> Reference:
    """Return the frame of the warp as what functions of the watch take."""
    return Reference(WarpFrame, code["frame"])


def _visit(function: Visit) -> Callable[[BlockCode, Record], None]:
    """Return the writer of a step that calls a function with its row and the active lanes."""

    def write(code: BlockCode, operands: Record) -> None:
        function.call(code, frame=_frame(code), site=operands.get(0), active=code["active"])

    return write


def _watch(code: BlockCode) -> Record:
    """Return the watch of the warp's block."""
    return code.block.at(BlockRecord.watch)


def _add(counts: Record, offset: int, more: Value | int) -> None:
    """Add to a counter in a record."""
    counts.set(offset, counts.get(offset) + more)


def _assigned(code: BlockCode, registers: Value) -> Record:
    """Return the list of masks, one for each tracked register: the lanes that assigned it."""
    start = _watch(code).get(BlockWatch.assigned)
    return Record(code, start + code.frame.get(WarpFrame.index) * registers * 4)


def _access(code: BlockCode, operands: Record) -> None:
    """Operands: row. Look at the access that is about to be made; it is not if Python cannot go on."""
    _visit(access)(code, operands)
    _stop_if_failed(code)


def _stop_if_failed(code: BlockCode) -> None:
    """Return that the launch stops if Python failed: the memory may not be changed any more."""
    with code.when(_watch(code).at(BlockWatch.watch).get(WatchRecord.failed).differs(0)):
        code.give(BlockAnswer.STOPPING)


def _shortened_access(code: BlockCode, operands: Record) -> None:
    """Operands: row, register, whether it is a predicate. Lanes that read no byte are left out."""
    register, active = operands.get(8), code.variable(code["active"].to(U32))
    with code.builder.if_else(operands.get(16).differs(0).handle) as (ignored, sized):
        with ignored:
            reads = code.frame.get(register, U8, abi.LANES).equals(0)
            active.set(active.get() & code.bits(reads))
        with sized:
            reads = code.frame.get(register, U32, abi.LANES).differs(0)
            active.set(active.get() & code.bits(reads))
    lanes = active.get().to(U64).to(i64)
    access.call(code, frame=_frame(code), site=operands.get(0), active=lanes)
    _stop_if_failed(code)


def _set_async_hooks(code: BlockCode, operands: Record) -> None:
    """Let the instruction that follows tell which bytes it reads and writes."""
    hooks = ((BlockRecord.issued_hook, copy_issued), (BlockRecord.operand_hook, operand_read))
    for field, hook in hooks:
        function = code.builder.ptrtoint(Library.of(code.module).declared(hook), ir.LONG)
        code.block.set(field, Value(code, i64, function))


def _block(code: BlockCode, operands: Record) -> None:
    """Operands: the number of the basic block. Count it, and the lanes that run it."""
    active = code["active"].to(U32)
    counts = Record(code, _watch(code).get(BlockWatch.runs) + operands.get(0) * 16)
    _add(counts, 0, active.differs(0).to(U64).to(i64))
    _add(counts, 8, code.intrinsic("ctpop", U32, [active]).to(U64).to(i64))


#: Operands of steps that track registers: how many are tracked, then those of their own.
_TRACKED, _FIRST = 0, 8


def _clear(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, how many, registers. They have no value in the active lanes: a function begins."""
    values = _assigned(code, operands.get(_TRACKED))
    with code.loop(operands.get(_FIRST)) as number:
        offset = operands.get(number * 8 + (_FIRST + 8)) * 4
        values.set(offset, values.get(offset, U32) & ~code["active"].to(U32))


def _value(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, row, register. Lanes are about to use it: report those without a value."""
    row, register = operands.get(_FIRST), operands.get(_FIRST + 8)
    held = _assigned(code, operands.get(_TRACKED)).get(register * 4, U32)
    missing = code["active"].to(U32) & ~held
    with code.when(missing.differs(0)):
        lanes = missing.to(U64).to(i64)
        without_value.call(code, frame=_frame(code), site=row, lanes=lanes, register=register)


def _values_where(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, row, a predicate's offset, registers with their count.

    Lanes for which the predicate holds are about to use them: report the first without a value.
    """
    holds = code.bits(code.frame.get(operands.get(_FIRST + 8), U8, abi.LANES).differs(0))
    lanes = code["active"].to(U32) & holds
    values = _assigned(code, operands.get(_TRACKED))
    with code.when(lanes.differs(0)), code.loop(operands.get(_FIRST + 16)) as number:
        register = operands.get(number * 8 + (_FIRST + 24))
        missing = lanes & ~values.get(register * 4, U32)
        with code.when(missing.differs(0)):
            row, without = operands.get(_FIRST), missing.to(U64).to(i64)
            without_value.call(code, frame=_frame(code), site=row, lanes=without, register=register)
            code.give(0)


def _note_values(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, targets and sources with their counts. Targets have a value if sources do."""
    values, active = _assigned(code, operands.get(_TRACKED)), code["active"].to(U32)
    targets = operands.get(_FIRST)
    sources = Record(code, operands.address + (targets * 8 + (_FIRST + 8)))
    held = code.variable(active)
    with code.loop(sources.get(0)) as number:
        held.set(held.get() & values.get(sources.get(number * 8 + 8) * 4, U32))
    with code.loop(targets) as number:
        offset = operands.get(number * 8 + (_FIRST + 8)) * 4
        values.set(offset, (values.get(offset, U32) & ~active) | held.get())


def _choose_value(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, target, two sources (-1: it has a value), a predicate's offset that chooses."""
    values, active = _assigned(code, operands.get(_TRACKED)), code["active"].to(U32)
    holds = code.bits(code.frame.get(operands.get(_FIRST + 24), U8, abi.LANES).differs(0))

    def held(source: Value) -> Value:
        lanes = code.variable(code.constant(U32, -1))
        with code.when(~(source < 0)):
            lanes.set(values.get(source * 4, U32))
        return lanes.get()

    first, second = (held(operands.get(_FIRST + offset)) for offset in (8, 16))
    chosen = (holds & first) | (~holds & second)
    offset = operands.get(_FIRST) * 4
    values.set(offset, (values.get(offset, U32) & ~active) | (chosen & active))


def _note_shuffled(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, row, the register that is read (-1: it has a value), targets with their count."""
    values, active = _assigned(code, operands.get(_TRACKED)), code["active"].to(U32)
    source = operands.get(_FIRST + 8)
    there = code.variable(code.constant(U32, -1))
    with code.when(~(source < 0)):
        there.set(values.get(source * 4, U32))
    lanes = _watch(code).get(BlockWatch.shuffle_sources, U32, abi.LANES)
    held = ((there.get().spread(abi.LANES) >> (lanes & 31)) & 1).differs(0) & (lanes < abi.LANES)
    with code.when((active & ~code.bits(held)).differs(0)):
        _watch(code).set(BlockWatch.undelivered_by, operands.get(_FIRST))
    with code.loop(operands.get(_FIRST + 16)) as number:
        offset = operands.get(number * 8 + (_FIRST + 24)) * 4
        values.set(offset, (values.get(offset, U32) & ~active) | (code.bits(held) & active))


def _note_loaded(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, row, how many, pairs of a target and its element of a load from local memory."""
    values, active = _assigned(code, operands.get(_TRACKED)), code["active"].to(U32)
    unwritten = Record(code, _watch(code).address + BlockWatch.unwritten_lanes)
    with code.loop(operands.get(_FIRST + 8)) as number:
        pair = Record(code, operands.address + number * 16 + (_FIRST + 16))
        offset = pair.get(0) * 4
        written = active & ~unwritten.get(pair.get(8) * 4, U32)
        with code.when(written.differs(active)):
            _watch(code).set(BlockWatch.undelivered_by, operands.get(_FIRST))
        values.set(offset, (values.get(offset, U32) & ~active) | written)


def _naming(code: BlockCode, offset: Value) -> Value:
    """Return the lanes whose answer of cluster launch control, a register of 128 bits, names a block."""
    words = code.frame.get(offset, _ANSWER, abi.LANES) >> SUCCESS_BIT
    return code.bits((words & 1).differs(0))


def _note_decoded(code: BlockCode, operands: Record) -> None:
    """Operands: tracked, row, the answer's offset, targets with their count."""
    values, active = _assigned(code, operands.get(_TRACKED)), code["active"].to(U32)
    naming = _naming(code, operands.get(_FIRST + 8)) & active
    with code.when(naming.differs(active)):
        _watch(code).set(BlockWatch.undelivered_by, operands.get(_FIRST))
    with code.loop(operands.get(_FIRST + 16)) as number:
        offset = operands.get(number * 8 + (_FIRST + 24)) * 4
        values.set(offset, (values.get(offset, U32) & ~active) | naming)


def _note_refusal(code: BlockCode, operands: Record) -> None:
    """Operands: row, the answer's offset. Lanes have learnt whether an answer names a block."""
    refused = (code["active"].to(U32) & ~_naming(code, operands.get(8))).to(U64).to(i64)
    note_refusal.call(code, frame=_frame(code), row=operands.get(0), lanes=refused)


def _branch(code: BlockCode, operands: Record) -> None:
    """Operands: the instruction. Count a divergence if some of the lanes, but not all, take the branch."""
    branching = code["active"].to(U32)
    diverges = branching.differs(0) & branching.differs(code.mask_bits())
    counts = Record(code, _watch(code).get(BlockWatch.diverged) + operands.get(0) * 8)
    _add(counts, 0, diverges.to(U64).to(i64))


def _parted(code: BlockCode, operands: Record) -> None:
    """Operands: row. Lanes are about to wait for others, unless the whole warp is there."""
    with code.when(code["active"].to(U32).differs(-1)):
        _visit(parted)(code, operands)


def _converged(code: BlockCode, operands: Record) -> None:
    """The lanes of the warp have met."""
    meet.call(code, frame=_frame(code), active=code["active"])


_ASYNC_STEPS: dict[str, Callable[[BlockCode, Record], None]] = {
    "check_async_order": _visit(async_order),
    "set_async_hooks": _set_async_hooks,
    "check_exit": _visit(exits),
    "check_cluster_wait": _visit(cluster_wait),
    "check_registers": _visit(set_registers),
    "touch_registers": touch_registers,
    "check_product": check_product,
    "check_request": _visit(ask_for_block),
    "check_answer": _note_refusal,
}
_STEPS: dict[str, Callable[[BlockCode, Record], None]] = {
    "check_access": _access,
    "check_shortened_access": _shortened_access,
    "check_order": _visit(order),
    "check_members": _visit(members),
    "check_arrive": _visit(arrive),
    "check_parted": _parted,
    "check_left": _visit(left),
    "check_converged": _converged,
    "check_block": _block,
    "check_branch": _branch,
    "clear_values": _clear,
    "check_value": _value,
    "check_values_where": _values_where,
    "note_values": _note_values,
    "choose_value": _choose_value,
    "note_shuffled": _note_shuffled,
    "note_loaded": _note_loaded,
    "note_decoded": _note_decoded,
}
