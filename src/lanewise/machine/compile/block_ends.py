"""Code for the ends of basic blocks: branches, waits, barriers, calls and returns.

Ends that differ between kernels only in numbers are shared functions; the others are functions of the kernel.
"""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u32
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, BlockRecord, FaultKind, LaunchRecord, WarpFrame
from lanewise.machine.codegen.function_code import BlockCode, Kernel, Record, shared_function
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.codegen.threaded_code import (
    END_ARGUMENTS,
    Word,
    active_lanes,
    end_words,
    goto_words,
    guard_words,
)
from lanewise.machine.compile.lowering import naming
from lanewise.machine.program.basic_blocks import BasicBlock, callees, guarded_moves, past_waits
from lanewise.machine.program.instruction_record import BlockEnd, Role, Waits
from lanewise.machine.program.operands import IndirectCallee, Register
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory import allocation
from lanewise.machine.warp_ops import calls, mbarrier
from lanewise.ptx import Immediate

LANES = abi.LANES


@shared_function("split", ("taken", "target", "following"))
def split(code: BlockCode) -> None:
    """`split(frame, taken, target, following)`: some lanes go to the target, others of the path on."""
    taken = code.lanes_of(code["taken"].to(u32))
    target, following = (code[name].to(u32).spread(LANES) for name in ("target", "following"))
    pcs = code.frame.pointer(WarpFrame.pcs, u32)
    pcs.store(taken.select(target, code.mask_lanes().select(following, pcs.load(0, LANES))))
    code.give(BlockAnswer.DIVERGED)


@shared_function("wait", ("active", "following", "register", "members"))
def wait(code: BlockCode) -> None:
    """`wait(frame, active, following, register, members)`: lanes wait for others of their warp.

    The register at an offset, or a number if the offset is 0, has the bits of the lanes that are waited for.
    """
    bits = code["active"].to(u32)
    active = code.lanes_of(bits)
    held = code.frame.get(code["register"], u32, LANES)
    constant = code["members"].to(u32).spread(LANES)
    members = code["register"].equals(0).spread(LANES).select(constant, held)
    missing = active & (members & ~bits.spread(LANES)).differs(0)
    with code.when(~missing.any()):
        code.give(code["following"].to(u32))
    park(code, bits, code["following"], code.constant(u32, abi.WAITS_FOR_SIBLINGS), members)


def park(code: BlockCode, active: Value, following: int | Value, condition: Value, argument: Value) -> None:
    """Write code that lets some lanes (bits) wait for a condition and then go on with a basic block.

    It returns from the function.
    """
    lanes = code.lanes_of(active)
    for offset, value in ((WarpFrame.barrier, condition), (WarpFrame.barrier_argument, argument)):
        kept = code.frame.pointer(offset, u32)
        kept.store(lanes.select(value.spread(LANES), kept.load(0, LANES)))
    parked = following | abi.PARKED
    code.give(code.invoke(split(code.module), code["frame"], active, parked, following))


#: Begins a function of the kernel: its name, how many instructions it has, its arguments.
BeginFunction = Callable[[str, int, tuple[str, ...]], BlockCode]
#: The number of the following basic block where there is none.
NOWHERE = -1


def members_of(op: Op) -> tuple[int, int]:
    """Return the lanes that an instruction waits for: a register's offset (0: none), or else their bits."""
    if op.record.waits is not Waits.MEMBERS:
        return 0, 0xFFFFFFFF
    members = op.operands[-1]
    if isinstance(members, Immediate):
        return 0, members.bits & 0xFFFFFFFF
    if not isinstance(members, Register):
        raise op.unsupported("its mask is neither a register nor a constant")
    return members.offset, 0


def plain_barrier(op: Op) -> int | None:
    """Return the number of a barrier of the whole block; None for other forms, or if not constant."""
    if len(op.operands) > 1 or op.has("arrive") or op.record.role(0) is Role.DEFINED:
        return None
    number = op.operands[0] if op.operands else Immediate("s64", 0, "0")
    return number.bits if isinstance(number, Immediate) and number.bits < abi.BARRIERS else None


# ends that all kernels share --------------------------------------------------------------------------------


@shared_function("branch_end", END_ARGUMENTS)
def branch_end(code: BlockCode) -> None:
    """Operands: guard, target, following. Lanes whose guard holds go to the target, the others on."""
    words = code.record("operands")
    bits, target, following = active_lanes(code, words, 0), words.get(16), words.get(24)
    with code.when(bits.equals(0)):
        code.give(following.to(u32))
    with code.when(bits.equals(code.mask_bits())):
        code.give(target.to(u32))
    code.give(code.invoke(split(code.module), code["frame"], bits, target, following))


@shared_function("exit_end", END_ARGUMENTS)
def exit_end(code: BlockCode) -> None:
    """Operands: guard, following. Lanes whose guard holds leave the kernel, the others go on."""
    words = code.record("operands")
    bits, following = active_lanes(code, words, 0), words.get(16)
    with code.when(bits.equals(0)):
        code.give(following.to(u32))
    code.give(code.invoke(split(code.module), code["frame"], bits, abi.EXITED, following))


@shared_function("wait_end", END_ARGUMENTS)
def wait_end(code: BlockCode) -> None:
    """Operands: guard, following, register, members. Lanes wait for those that `members_of` names."""
    words = code.record("operands")
    bits, following, register = active_lanes(code, words, 0), words.get(16), words.get(24)
    members = words.get(32)
    missing = members.to(u32) & ~bits
    with code.when(register.equals(0) & missing.equals(0)):
        code.give(following.to(u32))
    code.give(code.invoke(wait(code.module), code["frame"], bits, following, register, members))


@shared_function("barrier_end", END_ARGUMENTS)
def barrier_end(code: BlockCode) -> None:
    """Operands: guard, following, number, past. A whole warp waits together.

    A block of one warp does not wait: it goes on at `past`, for which all of its lanes have to be there.
    """
    words = code.record("operands")
    bits, following, number = active_lanes(code, words, 0), words.get(16), words.get(24)
    with code.when(bits.equals(-1)):
        with code.when(code.launch.get(LaunchRecord.warps).equals(1)):
            code.give(words.get(32).to(u32))
        waits = (following + 1) | (number << abi.TOGETHER_BITS)
        code.frame.set(WarpFrame.together, waits.to(u32))
        code.give(BlockAnswer.TOGETHER)
    park(code, bits, following, number.to(u32), code.constant(u32, 0))


@shared_function("warpgroup_end", END_ARGUMENTS, quickly=True)
def warpgroup_end(code: BlockCode) -> None:
    """Operands: guard, following, site. A warp waits for the other three of its warpgroup.

    The last that arrives lets all four go on. The first of them that does multiplies for all (`wgmma.py`):
    the slice of the last may end here, and the others must not go on without their sums.
    """
    words = code.record("operands")
    bits, following = active_lanes(code, words, 0), words.get(16)
    with code.when(bits.differs(-1)):  # nobody executes it, or the instruction faults
        code.give(following.to(u32))
    size, index = code.launch.get(LaunchRecord.frame_bytes), code.frame.get(WarpFrame.index)
    first = index & -abi.WARPGROUP
    with code.when(first + abi.WARPGROUP > code.launch.get(LaunchRecord.warps)):
        code.fault(FaultKind.WARPGROUP, words.get(24), size=abi.WarpgroupFault.INCOMPLETE)
    warps = [Record(code, code["frame"] + (first + warp - index) * size) for warp in range(abi.WARPGROUP)]
    arrived = code.constant(u32, 0)
    parked = (following | abi.PARKED).to(u32).spread(abi.LANES)
    for number, warp in enumerate(warps):
        there = warp.get(WarpFrame.pcs, u32, abi.LANES).equals(parked)
        whole = code.bits(there).equals(-1) | (first + number).equals(index)
        arrived = arrived + whole.to(u32)
    with code.when(arrived.equals(abi.WARPGROUP)):
        for warp in warps:
            warp.pointer(WarpFrame.pcs, u32).store(following.to(u32).spread(abi.LANES))
        code.give(following.to(u32))
    park(code, bits, following, code.constant(u32, abi.WAITS_FOR_WARPGROUP), code.constant(u32, 0))


@shared_function("cluster_end", END_ARGUMENTS, quickly=True)
def cluster_end(code: BlockCode) -> None:
    """Operands: guard, following. Lanes wait until the barrier is complete at which they have arrived.

    A lane that has not arrived since the barrier was last complete goes on.
    """
    words = code.record("operands")
    bits, following = active_lanes(code, words, 0), words.get(16)
    waits = bits & code.frame.get(WarpFrame.cluster_arrived, u32)
    with code.when(waits.equals(0)):
        code.give(following.to(u32))
    condition = code.constant(u32, abi.WAITS_FOR_CLUSTER)
    park(code, waits, following, condition, code.constant(u32, 0))


@shared_function("columns_end", END_ARGUMENTS, quickly=True)
def columns_end(code: BlockCode) -> None:
    """Operands: guard, following, the basic block itself, then those of `allocation.end_operands`.

    A warp that finds too few free columns of tensor memory waits, and then tries again.
    """
    words = code.record("operands")
    bits, following = active_lanes(code, words, 0), words.get(16)
    with code.when(bits.differs(-1)):  # nobody executes it, or the instruction faults
        code.give(following.to(u32))
    answer = allocation.try_to_allocate(code, words.address + 32)
    with code.when(answer.equals(allocation.GRANTED)):
        code.give(following.to(u32))
    code.stop_if(answer.equals(allocation.FAULT))
    park(code, bits, words.get(24), code.constant(u32, abi.WAITS_FOR_COLUMNS), code.constant(u32, 0))


# ends of one kernel -----------------------------------------------------------------------------------------


class EndWriter:
    """Writes the ends of the basic blocks of a kernel."""

    def __init__(
        self, kernel: Kernel, blocks: list[BasicBlock], data: ir.Module, begin: BeginFunction
    ) -> None:
        self.kernel, self.program, self.data, self.begin = kernel, kernel.program, data, begin
        #: Whether any call goes through a register: then functions note that lanes returned from them.
        self.calls_indirectly = any(
            isinstance(block.op.operands[1], IndirectCallee)
            for block in blocks
            if block.end is BlockEnd.CALL and block.op
        )

    def declared(self, function: ir.Function) -> ir.Function:
        """Declare a function of another module in the module of the data."""
        existing = self.data.functions.get(function.name)
        if isinstance(existing, ir.Function):
            return existing
        return ir.Function(self.data, function.function_type, function.name)

    def words(self, block: BasicBlock) -> list[Word]:
        """Return the words of a basic block's end, with a shared function where there is one."""
        op = block.op
        with naming(op):
            shared = self._shared(block, op)
            if shared is not None:
                return shared
            code = self.begin(f"end_{block.number}", 1, END_ARGUMENTS)
            self._write_function(code, block, op)
            return end_words(self.declared(code.function), [])

    def _shared(self, block: BasicBlock, op: Op | None) -> list[Word] | None:
        """Return the words of an end with a shared function; None if the end needs its own."""
        following = block.following.number if block.following else NOWHERE
        leaves = block.body.function.is_entry
        if op is None or block.end is BlockEnd.FALLTHROUGH:
            if following != NOWHERE:
                return goto_words(following)
            return end_words(exit_end(self.data), [0, 0, NOWHERE]) if leaves else None
        guard = guard_words(op)
        match block.end:
            case BlockEnd.JUMP:
                target = block.targets[0].number
                if op.guard is None or guarded_moves(block):
                    return goto_words(target)
                return end_words(branch_end(self.data), [*guard, target, following])
            case BlockEnd.EXIT:
                return end_words(exit_end(self.data), [*guard, following])
            case BlockEnd.RETURN if leaves:
                return end_words(exit_end(self.data), [*guard, following])
            case BlockEnd.WARP_SYNC:
                return end_words(wait_end(self.data), [*guard, following, *members_of(op)])
            case BlockEnd.WARPGROUP_SYNC:
                return end_words(warpgroup_end(self.data), [*guard, following, op.site])
            case BlockEnd.COLUMNS:
                operands = allocation.end_operands(op)
                return end_words(columns_end(self.data), [*guard, following, block.number, *operands])
            case BlockEnd.CLUSTER:
                return end_words(cluster_end(self.data), [*guard, following])
            case BlockEnd.BARRIER:
                number = plain_barrier(op)
                if number is not None:
                    past = past_waits(block.following).number if block.following else following
                    return end_words(barrier_end(self.data), [*guard, following, number, past])
        return None

    def _write_function(self, code: BlockCode, block: BasicBlock, op: Op | None) -> None:
        """Write an end as a function of this kernel."""
        following = block.following.number if block.following else NOWHERE
        if op is None:  # the end of a device function's text is a return
            self._return(code, block, code.mask_lanes(), NOWHERE)
            return
        match block.end:
            case BlockEnd.SWITCH:
                self._switch(code, op, block)
            case BlockEnd.RETURN:
                self._return(code, block, code.active(op), following)
            case BlockEnd.CALL:
                self._call(code, op, block, following)
            case BlockEnd.BARRIER:
                self._barrier(code, op, following)
            case BlockEnd.PHASE:
                self._phase(code, op, following)
            case BlockEnd.HOST_CALL:
                bits = code.bits(code.active(op))
                code.set_pcs(code.mask_lanes(), following)
                with code.when(bits.differs(0)):
                    code.frame.set(WarpFrame.mask, bits)
                    code.fault(FaultKind.HOST_CALL, op.site)
                code.give(BlockAnswer.DIVERGED)
            case _:
                assert block.end is BlockEnd.TRAP, block.end
                code.fault_where(code.bits(code.active(op)), FaultKind.TRAP, op.site)
                code.give(max(following, 0))

    def _phase(self, code: BlockCode, op: Op, following: int) -> None:
        """Write a wait for a phase of an mbarrier: lanes whose phase is not complete wait.

        By default a warp whose phase is complete waits as well, until all warps have had their turn. The
        machine has no latency: a warp whose copies and products are complete at once would otherwise run
        phases ahead of warps that wait for the same ones, as on no GPU, and those would miss them.
        """
        waits = mbarrier.unfinished(code, op)
        phase = code.constant(u32, abi.WAITS_FOR_PHASE)
        with code.when(waits.equals(0)):
            block = code.frame.at(WarpFrame.block)
            in_turns = block.at(BlockRecord.launch).get(LaunchRecord.waits_in_turns).differs(0)
            with code.when(~in_turns):
                code.give(following)
            block.set(BlockRecord.phases, block.get(BlockRecord.phases) + 1)  # this wait is not in vain
            park(code, code.bits(code.active(op)), following, phase, phase)
        park(code, waits, following, phase, phase)

    def _call(self, code: BlockCode, op: Op, block: BasicBlock, following: int) -> None:
        """Write a call: pass the arguments, then send the lanes to the callee."""
        numbers = [target.number for target in block.targets]
        if isinstance(op.operands[1], IndirectCallee):
            targets = calls.choose(code, op, self.program, numbers, following)
            self._scatter(code, code.active(op), targets, NOWHERE)
            return
        callee = self.program.body(callees(op)[0])
        bits = code.bits(code.active(op))
        calls.enter(code, op, self.program, callee, bits, following)
        # Lanes that do not call take no results either: the pseudo-instruction has the same guard.
        if op.guard is None:
            code.give(numbers[0])
            return
        with code.when(bits.equals(0)):
            code.give(following)
        with code.when(bits.equals(code.mask_bits())):
            code.give(numbers[0])
        code.give(code.invoke(split(code.module), code["frame"], bits, numbers[0], following))

    def _return(self, code: BlockCode, block: BasicBlock, active: Value, following: int) -> None:
        """Write a return: some lanes go back to their callers, the others go on."""
        if self.calls_indirectly:
            calls.note_return(code, self.program, block.body, active)
        links = code.frame.get(block.body.link.offset, u32, abi.LANES)
        self._scatter(code, active, links, following)

    def _scatter(self, code: BlockCode, taken: Value, targets: Value, following: int) -> None:
        """Send some lanes to a basic block each, and the others on."""
        if following != NOWHERE:
            code.set_pcs(code.mask_lanes(), following)
        pcs = code.frame.pointer(WarpFrame.pcs, u32)
        pcs.store(taken.select(targets, pcs.load(0, abi.LANES)))
        code.give(BlockAnswer.DIVERGED)

    def _switch(self, code: BlockCode, op: Op, block: BasicBlock) -> None:
        """Write brx.idx: each lane's index selects a label of a list."""
        active = code.active(op)
        lanes = code.all_lanes()
        index = lanes.read(op.operands[0], u32)
        outside = code.bits(active & (index > len(block.targets) - 1))
        code.fault_where(outside, FaultKind.BAD_BRANCH, op.site, len(block.targets))
        targets = lanes.constant(u32, 0)
        for number, target in enumerate(block.targets):
            targets = index.equals(number).select(lanes.constant(u32, target.number), targets)
        following = block.following.number if block.following and op.guard else NOWHERE
        self._scatter(code, active, targets, following)

    def _barrier(self, code: BlockCode, op: Op, following: int) -> None:
        """Write bar and barrier of any form: sync with a count, arrive, red."""
        operands = list(op.operands)
        active = code.active(op)
        lanes = code.all_lanes()
        if op.record.role(0) is Role.DEFINED:
            predicate = lanes.read(operands.pop(), BOOL)
            operands.pop(0)
            kept = code.frame.pointer(WarpFrame.barrier_value, u32)
            kept.store(active.select(predicate.to(u32), kept.load(0, abi.LANES)))
        number = lanes.read(operands[0], u32) if operands else lanes.constant(u32, 0)
        count = lanes.read(operands[1], u32) if len(operands) > 1 else lanes.constant(u32, 0)
        code.fault_where(code.bits(active & (number > abi.BARRIERS - 1)), FaultKind.BAD_OPERAND, op.site)
        if op.has("arrive"):
            self._arrive(code, code.bits(active), number)
            code.give(following)
            return
        park(code, code.bits(active), following, number, count)

    def _arrive(self, code: BlockCode, active: Value, barriers: Value) -> None:
        """Write bar.arrive: lanes are counted and go on; exited lanes count with the first of them."""
        block = code.block
        gone = code.bits(code.frame.get(WarpFrame.pcs, u32, abi.LANES).equals(abi.EXITED))

        def count(number: Value, more: Value | int) -> None:
            offset = number.to(i64) * 8 + BlockRecord.arrived
            block.set(offset, block.get(offset) + more)

        with code.each_lane(active) as lane:
            count(Value(code, u32, code.builder.extract_element(barriers.handle, lane.handle)), 1)
        with code.when(active.differs(0)):
            count(barriers.lane(0), code.intrinsic("ctpop", u32, [gone]).to(i64))
