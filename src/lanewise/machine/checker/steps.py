"""The checker's steps of threaded code: before instructions, and where basic blocks begin and end.

Which steps an instruction has follows from its record in the table. Their functions are compiled once for all
kernels, together with shadow memory and clocks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Function, Library, Reference
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, BlockRecord, WarpFrame
from lanewise.machine.analysis.definite_assignment import Plan, key_of
from lanewise.machine.analysis.warpgroup_registers import RegisterEvent, WarpgroupPlan
from lanewise.machine.checker.proxy_records import TensorWait
from lanewise.machine.checker.records import BlockWatch, OrderKind, WatchRecord, order_kind
from lanewise.machine.checker.site_table import (
    by_async_proxy,
    first_access_row,
    has_order_row,
)
from lanewise.machine.checker.watch_code.access_hook import access
from lanewise.machine.checker.watch_code.clocks.block_order import arrive, order, release_barrier
from lanewise.machine.checker.watch_code.clocks.clusters import ask_for_block, cluster_wait, note_refusal
from lanewise.machine.checker.watch_code.clocks.warp_order import left, meet, members, parted
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_order
from lanewise.machine.checker.watch_code.proxy.async_operations import copy_issued, operand_read
from lanewise.machine.checker.watch_code.proxy.exits import exits
from lanewise.machine.checker.watch_code.proxy.proxy_fences import fence_proxies
from lanewise.machine.checker.watch_code.registers import (
    StepOperands,
    check_product,
    check_value,
    check_values_where,
    choose_value,
    clear_values,
    combine_values,
    let_comparison_decide,
    note_decoded,
    note_loaded,
    note_shuffled,
    note_values,
    set_registers,
    settle_values,
    touch_registers,
)
from lanewise.machine.checker.watch_code.tensor.cells import (
    allocate_columns,
    fence_after_sync,
    free_columns,
    move_words,
    wait_for_moves,
)
from lanewise.machine.checker.watch_code.tensor.pipe_operations import (
    Hook,
    commit_issued,
    copy_hooks,
    product_issued,
    shift_issued,
)
from lanewise.machine.checker.watch_code.watch_module import WatchModule
from lanewise.machine.codegen.function_code import U8, U32, U64, BlockCode, FunctionCode, Record
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, BarrierHook, Step, Word
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import BlockEnd, Level, Order, Waits
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.operands import (
    MemoryOperand,
    Register,
    ResolvedOperand,
    elements_of,
    registers_in,
)
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: A function of the watch that takes all operands of its step as a list.
ListedFunction = Function[[WarpFrame, int, StepOperands], None]


def _listed(function: ListedFunction) -> str:
    """Return the name of the step that calls such a function."""
    return f"step_{function.name}"


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
            steps += self._track(data, clear_values, [len(clears), *clears], guarded)
        return steps + self._touched(data, self.warpgroups.at_begin.get(block.number))

    def _touched(self, data: ir.Module, events: list[RegisterEvent] | None) -> list[Word]:
        """Return the step that follows registers of wgmma which the next instructions touch."""
        if not events:
            return []
        words = [int(word) for event in events for word in event]
        operands = [len(self.warpgroups.registers), len(events), *words]
        return _step(data, _listed(touch_registers), operands, None)

    def _track(
        self, data: ir.Module, function: ListedFunction, operands: list[int], op: Op | None
    ) -> list[Word]:
        """Return a step that tracks values of registers."""
        return _step(data, _listed(function), [len(self.plan.registers), *operands], op)

    def _values(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps that check whether registers have the values that an instruction needs."""
        steps: list[Word] = []
        for index in self.plan.checks.get(key_of(op), ()):
            guarded = None if op.guard is not None and self.plan.registers[index] == op.guard[0] else op
            steps += self._track(data, check_value, [MOST_ROWS * op.site, index], guarded)
        where = self.plan.checks_where.get(key_of(op))
        if where is not None:
            predicate, sums = where
            operands = [MOST_ROWS * op.site, predicate, len(sums), *sums]
            steps += self._track(data, check_values_where, operands, op)
        return steps

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction: its values, order and accesses, the lanes it waits for."""
        record, first = op.record, MOST_ROWS * op.site
        steps = self._values(data, op)
        if record.level is Level.LANE:  # it may write its own guard, and the predicates that it reads
            return steps + self._assigned(data, op)
        if has_order_row(op):
            kind = order_kind(op)
            if kind.in_vector_clocks:
                steps += _step(data, "check_order", [first], op)
            if record.orders is Order.REGISTERS:
                steps += _step(data, "check_registers", [first], op)
            elif self.follows_async and record.orders is Order.PROXY_FENCE:
                steps += _step(data, "check_proxy_fence", [first], op)
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
            lists = (product.accumulators, product.read)
            words = [word for numbers in lists for word in (len(numbers), *numbers)]
            operands = [len(self.warpgroups.registers), op.site, len(product.accumulators), *words]
            steps += _step(data, _listed(check_product), operands, op)
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
        is_of_lane = op.record.level is Level.LANE
        steps = self._settled(data, op) if is_of_lane else self._assigned(data, op)
        steps += self._touched(data, self.warpgroups.after.get(key_of(op)))
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
                steps += self._track(data, note_values, [0, 1, target, *sources], op)
            return steps
        made = self.plan.assignments.get(key_of(op))
        if made is None:
            return []
        row, targets = MOST_ROWS * op.site, [len(made.targets), *made.targets]
        if made.choice is not None:
            first, second, chosen = made.choice
            return self._track(data, choose_value, [*made.targets, first, second, *chosen[:2]], op)
        if made.shuffled is not None:
            return self._track(data, note_shuffled, [row, made.shuffled, *targets], op)
        if made.loaded is not None:
            pairs = [number for pair in zip(made.targets, made.loaded, strict=True) for number in pair]
            return self._track(data, note_loaded, [row, len(made.targets), *pairs], op)
        if made.answer is not None:
            return self._track(data, note_decoded, [row, made.answer, *targets], op)
        reader, sources = row + 1 if made.computes else 0, [len(made.sources), *made.sources]
        if not made.combined:
            return self._track(data, note_values, [reader, *targets, *sources], op)
        combined = [int(number) for predicate in made.combined for number in predicate]
        operands = [reader, *targets, *sources, len(made.combined), *combined]
        steps = self._track(data, let_comparison_decide, combined, op) if made.settled else []
        return steps + self._track(data, combine_values, operands, op)

    def _settled(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the step after a comparison with a predicate that may have had no value."""
        made = self.plan.assignments.get(key_of(op))
        if made is None or not made.settled:
            return []
        operands = [int(made.decided_by), len(made.sources), *made.sources]
        targets = [number for target in made.settled for number in target]
        return self._track(data, settle_values, [*operands, len(made.settled), *targets], None)

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


# tcgen05 ----------------------------------------------------------------------------------------------------

#: What is called when an operation of the pipe is issued, by the second word of the instruction, and for a
#: copy by its shape.
_HOOKS: dict[str, Hook] = {"mma": product_issued, "shift": shift_issued, "commit": commit_issued} | {
    f"cp {name}": hook for name, hook in copy_hooks.items()
}
#: Lanes that a shape of tcgen05.ld and st reaches, but for those of 16 lanes.
_WHOLE_WARP = "32x32b"
_HALVES = "16x32bx2"


_WAITS = {
    "wait::ld": TensorWait.LOADS,
    "wait::st": TensorWait.STORES,
    "fence::before_thread_sync": TensorWait.FENCE,
}


class TensorStep(NamedTuple):
    """A step by the name of its function, and its operands."""

    name: str
    operands: list[int]


def tensor_step(op: Op) -> TensorStep | None:
    """Return the step before an instruction of tcgen05; None if it has none."""
    row, verb = MOST_ROWS * op.site, op.source.head.split(".")[1]
    if verb == "cp":
        shape = next(name for name in copy_hooks if set(name.split(".")) <= set(op.modifiers))
        return TensorStep(_hook_step(f"cp {shape}"), [])
    if verb in _HOOKS:
        return TensorStep(_hook_step(verb), [])
    match verb:
        case "ld" | "st":
            return TensorStep("check_tensor_move", [row, *_move(op, verb == "st")])
        case "wait::ld" | "wait::st" | "fence::before_thread_sync":
            return TensorStep("check_tensor_wait", [_WAITS[verb]])
        case "fence::after_thread_sync":
            return TensorStep("check_tensor_fence", [])
        case "alloc":
            return TensorStep("check_tensor_alloc", [row, *_operand(op.operands[-1])])
        case "dealloc":
            address, count = op.operands
            return TensorStep("check_tensor_dealloc", [row, *_operand(address), *_operand(count)])
    return None


def _hook_step(verb: str) -> str:
    """Return the name of the step that sets a hook."""
    return f"set tensor hook of {verb}"


def _operand(operand: ResolvedOperand) -> list[int]:
    """Return a 32-bit operand as a register's offset (0: none) and a number."""
    if isinstance(operand, MemoryOperand):
        register, number = _operand(operand.base)
        return [register, number + operand.offset]
    if isinstance(operand, Register):
        return [operand.offset, 0]
    return [0, operand.bits & 0xFFFFFFFF if isinstance(operand, Immediate) else 0]


def _move(op: Op, stores: bool) -> list[int]:
    """Return the operands of a load or store: address, lanes, columns, columns to the second half."""
    operands = list(op.operands)
    (address,) = (operand for operand in operands if isinstance(operand, MemoryOperand))
    vector = operands[operands.index(address) + 1 if stores and not op.has(_HALVES) else -1 if stores else 0]
    lanes = 32 if op.has(_WHOLE_WARP) else 16
    words = len(elements_of(vector)) * 32
    is_packed = op.has("pack::16b") or op.has("unpack::16b")
    halves = 2 if op.has(_HALVES) else 1
    columns = words // (lanes * halves) * (2 if is_packed else 1)
    split = operands[operands.index(address) + 1] if op.has(_HALVES) else None
    distance = split.bits if isinstance(split, Immediate) else 0
    return [*_operand(address), lanes, columns, distance, int(stores)]


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


#: Writes the function of a step, given its operands.
StepWriter = Callable[[BlockCode, Record], None]


def calls(function: Function[..., None], *names: str) -> StepWriter:
    """Return the writer of a step that calls a function with the active lanes, and its operands by name."""

    def write(code: BlockCode, operands: Record) -> None:
        frame, given = Reference(WarpFrame, code["frame"]), enumerate(names)
        named = {name: operands.get(8 * number) for number, name in given}
        function.call(code, frame=frame, active=code["active"], **named)

    return write


def sets_hooks(**hooks: Function[..., None]) -> StepWriter:
    """Return the writer of a step that has functions called by the next operation, by fields of a block."""

    def write(code: BlockCode, operands: Record) -> None:
        for field, hook in hooks.items():
            function = code.builder.ptrtoint(Library.of(code.module).declared(hook), ir.LONG)
            code.block.set(getattr(BlockRecord, field), Value(code, i64, function))

    return write


def reads_operands(function: ListedFunction) -> StepWriter:
    """Return the writer of a step that calls a function with the active lanes and all operands."""

    def write(code: BlockCode, operands: Record) -> None:
        frame, given = Reference(WarpFrame, code["frame"]), Reference(StepOperands, operands.address)
        function.call(code, frame=frame, active=code["active"], operands=given)

    return write


def _watch(code: BlockCode) -> Record:
    """Return the watch of the warp's block."""
    return code.block.at(BlockRecord.watch)


def _add(counts: Record, offset: int, more: Value | int) -> None:
    """Add to a counter in a record."""
    counts.set(offset, counts.get(offset) + more)


def _access(code: BlockCode, operands: Record) -> None:
    """Operands: row. Look at the access that is about to be made; it is not if Python cannot go on."""
    calls(access, "site")(code, operands)
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
    access.call(code, frame=Reference(WarpFrame, code["frame"]), site=operands.get(0), active=lanes)
    _stop_if_failed(code)


def _block(code: BlockCode, operands: Record) -> None:
    """Operands: the number of the basic block. Count it, and the lanes that run it."""
    active = code["active"].to(U32)
    counts = Record(code, _watch(code).get(BlockWatch.runs) + operands.get(0) * 16)
    _add(counts, 0, active.differs(0).to(U64).to(i64))
    _add(counts, 8, code.intrinsic("ctpop", U32, [active]).to(U64).to(i64))


def _branch(code: BlockCode, operands: Record) -> None:
    """Operands: the instruction. Count a divergence if some of the lanes, but not all, take the branch."""
    branching = code["active"].to(U32)
    diverges = branching.differs(0) & branching.differs(code.mask_bits())
    counts = Record(code, _watch(code).get(BlockWatch.diverged) + operands.get(0) * 8)
    _add(counts, 0, diverges.to(U64).to(i64))


def _parted(code: BlockCode, operands: Record) -> None:
    """Operands: row. Lanes are about to wait for others, unless the whole warp is there."""
    with code.when(code["active"].to(U32).differs(-1)):
        calls(parted, "site")(code, operands)


def _check_move(code: BlockCode, operands: Record) -> None:
    """A warp loads or stores columns; a store that is kept has been looked at then."""
    calls(move_words, "row", "register", "number", "lanes", "columns", "split", "stores")(code, operands)
    code.block.set(BlockRecord.issued_hook, 0)


#: The functions of the steps by name.
TENSOR_STEPS: dict[str, StepWriter] = {
    "check_tensor_move": _check_move,
    "check_tensor_wait": calls(wait_for_moves, "kind"),
    "check_tensor_fence": calls(fence_after_sync),
    "check_tensor_alloc": calls(allocate_columns, "row", "count_register", "count"),
    "check_tensor_dealloc": calls(free_columns, "row", "register", "number", "count_register", "count"),
} | {_hook_step(verb): sets_hooks(issued_hook=hook) for verb, hook in _HOOKS.items()}


_ASYNC_STEPS: dict[str, StepWriter] = {
    _listed(touch_registers): reads_operands(touch_registers),
    _listed(check_product): reads_operands(check_product),
    "check_async_order": calls(async_order, "site"),
    "check_proxy_fence": calls(fence_proxies, "site"),
    "set_async_hooks": sets_hooks(issued_hook=copy_issued, operand_hook=operand_read),
    "check_exit": calls(exits, "site"),
    "check_cluster_wait": calls(cluster_wait, "site"),
    "check_registers": calls(set_registers, "site"),
    "check_request": calls(ask_for_block, "site"),
    "check_answer": calls(note_refusal, "row", "answer"),
}
#: The functions that track values of registers.
_TRACKING: tuple[ListedFunction, ...] = (
    clear_values, check_value, check_values_where, note_values, choose_value, combine_values,
    let_comparison_decide, settle_values, note_shuffled, note_loaded, note_decoded,
)  # fmt: skip
_STEPS: dict[str, StepWriter] = {_listed(function): reads_operands(function) for function in _TRACKING} | {
    "check_access": _access,
    "check_shortened_access": _shortened_access,
    "check_order": calls(order, "site"),
    "check_members": calls(members, "site"),
    "check_arrive": calls(arrive, "site"),
    "check_parted": _parted,
    "check_left": calls(left, "site"),
    "check_converged": calls(meet),
    "check_block": _block,
    "check_branch": _branch,
}
