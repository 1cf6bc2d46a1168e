"""The scheduler as compiled code: paths of a warp, warps of a block, barriers.

A path that spins gives way to the other paths of its warp, then to other warps; a block that only spins
returns, so that another block may run. `cluster_scheduler.py` runs the blocks of a cluster in turn, and takes
blocks of the grid one after another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, Variable, i64, u8, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import (
    BlockAnswer,
    BlockRecord,
    LaunchRecord,
    MemberRow,
    RunStatus,
    WarpFrame,
    WarpStatus,
)
from lanewise.machine.async_records import CompleteHow, PendingOperations
from lanewise.machine.codegen.cluster_scheduler import (
    each_frame,
    member_row,
    release_waiting,
    write_run_cluster,
    write_run_grid,
    write_settle_cluster,
)
from lanewise.machine.codegen.function_code import FunctionCode, Record, shared
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.codegen.run_order import WarpOrder, write_permuted
from lanewise.machine.codegen.threaded_code import BarrierHook, write_follow

WORD = ir.IntType(32)
LANES = abi.LANES
#: Turns after which a block of a checked launch returns, so that Python can look whether it makes progress.
TURNS_BETWEEN_LOOKS = 1 << 12


def _bits(code: FunctionCode, condition: Value) -> Value:
    """Return conditions of 32 lanes as the bits of a word."""
    return Value(code, u32, code.builder.bitcast(condition.handle, WORD))


def write_scheduler(module: ir.Module, name: str, hook: BarrierHook | None = None) -> None:
    """Write `run_block` up to the function that Python calls; it is the same for every kernel.

    `run_warp`, in which the time is spent, is a shared function, compiled with more effort. A hook is called
    whenever a barrier completes, while those who wait for it are still parked.
    """
    checked = hook is not None
    # Only checked launches run in other orders: a plain one has nothing to ask before a warp's turn.
    permuted = write_permuted(module) if checked else None
    run_warp = shared(
        module,
        "run_warp of checked launches" if checked else "run_warp",
        ir.FunctionType(WORD, [ir.LONG]),
        partial(_write_run_warp, checked),
    )
    settle = _write_settle(module, hook)
    settle_cluster = write_settle_cluster(module, hook)
    in_vain = _write_in_vain(module)
    run_block = _write_run_block(module, run_warp, settle, settle_cluster, in_vain, permuted)
    run_cluster = write_run_cluster(module, run_block, settle_cluster, in_vain)
    write_run_grid(module, run_block, run_cluster, name, permuted)


def _least(code: FunctionCode, value: Value) -> Value:
    """Return the smallest element of a vector."""
    return code.intrinsic("vector.reduce.umin", u32, [value], of=value.type)


def _write_run_warp(checked: bool, module: ir.Module, name: str) -> None:
    """Write `run_warp(frame)`: give a warp a turn and return a `WarpStatus`."""
    _WarpTurn(checked, module, name).write()


class _WarpTurn:
    """The turn of a warp: one path after the other runs basic blocks until the slice is spent."""

    def __init__(self, checked: bool, module: ir.Module, name: str) -> None:
        self.checked = checked
        self.follow_steps = write_follow(module)
        self.save, self.restore = _write_save(module), _write_restore(module)
        self.code = code = FunctionCode(module, name, ("frame",), WORD, "")
        self.builder = code.builder
        self.warp = code.record("frame")
        self.block = self.warp.at(WarpFrame.block)
        launch = self.block.at(BlockRecord.launch)
        self.budget = code.variable(self.block.get(BlockRecord.slice))
        self.whole = self.budget.get()
        self.stop = launch.pointer(LaunchRecord.stop, i64)._typed(i64)
        self.rows = launch.get(LaunchRecord.code)
        #: The basic block that runs; whether other paths may run, too; whether lanes wait or are elsewhere.
        self.current = code.variable(code.constant(u32, 0))
        self.others, self.partial = (code.variable(code.constant(BOOL, 0)) for _ in range(2))
        self.pcs = self.warp.pointer(WarpFrame.pcs, u32)
        self.dispatch, self.call, self.diverged, self.follow, self.spread, self.expired = (
            code.function.append_basic_block(name)
            for name in ("dispatch", "call", "diverged", "follow", "spread", "expired")
        )

    def write(self) -> None:
        """Write the function: its parts are basic blocks that branch to each other."""
        self._resume()
        self._choose_path()
        following = self._run_basic_block()
        self._go_on(following)
        self._expire()

    def _end(self, spent: Value, status: WarpStatus) -> None:
        """End the turn, of which so many basic blocks were spent."""
        _spend(self.code, self.block, spent)
        self.code.give(status)

    def _resume(self) -> None:
        """Go on behind a plain barrier at which all lanes waited together, once it is complete."""
        code = self.code
        waited = self.warp.get(WarpFrame.together, u32)
        with code.when(waited.differs(0)):
            with code.when((waited & abi.RELEASED).equals(0)):
                code.give(WarpStatus.TOGETHER)
            self.warp.set(WarpFrame.together, code.constant(u32, 0))
            self.current.set((waited & ((1 << abi.TOGETHER_BITS) - 1)) - 1)
            self.builder.branch(self.call)
        self.builder.branch(self.dispatch)

    def _choose_path(self) -> None:
        """Choose the lanes that run next: those at the first basic block behind that of the last turn."""
        code, warp = self.code, self.warp
        self.builder.position_at_end(self.dispatch)
        pcs = self.pcs.load(0, LANES)
        base = warp.get(WarpFrame.base, u32)
        runnable = pcs < abi.PARKED
        key = runnable.select((pcs - base.spread(LANES)) & (abi.PARKED - 1), -1)
        least = _least(code, key)
        with code.when(least.equals(-1)):
            # The awaited lanes may all have arrived now.
            released = _release_siblings(code, warp, pcs)
            with code.when(released.differs(0)):
                self.builder.branch(self.dispatch)
            warp.set(WarpFrame.base, code.constant(u32, 0))
            self._end(self.whole - self.budget.get(), WarpStatus.WAITING)
        pc = (least + base) & (abi.PARKED - 1)
        self.current.set(pc)
        mask = pcs.equals(pc.spread(LANES))
        warp.set(WarpFrame.mask, _bits(code, mask))
        warp.pointer(WarpFrame.mask_bytes, u8).store(mask.to(u8))
        self.others.set((runnable & ~mask).any())
        self.partial.set(((pcs < abi.EXITED) & ~mask).any())
        self.builder.branch(self.call)

    def _run_basic_block(self) -> Value:
        """Run the basic block for the chosen lanes; return its answer."""
        code, builder, frame = self.code, self.builder, self.code["frame"]
        builder.position_at_end(self.call)
        row = Record(code, self.rows + self.current.get().to(u64).to(i64) * abi.CodeRow.BYTES)
        with code.when(self.partial.get()):
            code.invoke(self.save, frame, row.get(abi.CodeRow.written_registers))
        following = code.invoke(self.follow_steps, frame, row.address).view(Type("i", 32))
        with code.when(self.partial.get()):
            code.invoke(self.restore, frame, row.get(abi.CodeRow.written_registers))
        self.budget.set(self.budget.get() - 1)
        with code.when(following.equals(BlockAnswer.STOPPING)):
            self._end(self.whole - self.budget.get(), WarpStatus.STOPPED)
        with code.when(following.equals(BlockAnswer.TOGETHER)):
            self._end(self.whole - self.budget.get(), WarpStatus.TOGETHER)
        # A stopped launch does not wait for the end of the slice.
        with code.when(Value(code, i64, builder.load_atomic(self.stop, "monotonic", 8)).differs(0)):
            code.give(WarpStatus.OUT_OF_TIME)
        return following

    def _go_on(self, following: Value) -> None:
        """Go on with the next basic block, or choose another path if there are some."""
        builder, left = self.builder, self.budget.get
        builder.cbranch((following < 0).handle, self.diverged, self.follow)
        builder.position_at_end(self.diverged)
        builder.cbranch((left() > 0).handle, self.dispatch, self.expired)

        builder.position_at_end(self.follow)
        target = following.view(u32)
        stays = ~self.others.get() & (left() > 0)
        before = self.current.get()
        self.current.set(target)
        builder.cbranch(stays.handle, self.call, self.spread)

        builder.position_at_end(self.spread)
        mask = self.warp.get(WarpFrame.mask_bytes, u8, LANES).differs(0)
        self.pcs.store(mask.select(target.spread(LANES), self.pcs.load(0, LANES)))
        self.current.set(before)
        builder.cbranch((left() > 0).handle, self.dispatch, self.expired)

    def _expire(self) -> None:
        """End the turn, since the slice is spent; the next one begins with the path behind the last."""
        code, warp = self.code, self.warp
        self.builder.position_at_end(self.expired)
        base = self.others.get().select(self.current.get() + 1, 0)
        if self.checked:  # after a short slice the paths keep their order, so that lanes meet again soon
            cut_short = self.whole < self.block.get(BlockRecord.whole_slice)
            base = cut_short.select(warp.get(WarpFrame.base, u32), base)
        warp.set(WarpFrame.base, base & (abi.PARKED - 1))
        _release_siblings(code, warp, self.pcs.load(0, LANES))
        self._end(self.whole, WarpStatus.OUT_OF_TIME)


def _write_save(module: ir.Module) -> ir.Function:
    """`save(frame, registers)`: copy the registers that a basic block is about to write in all lanes."""
    code = FunctionCode(module, "save", ("frame", "registers"), WORD)
    saved = code.record("frame").at(WarpFrame.block).get(BlockRecord.saved_registers)
    with _each_register(code) as (offset, size):
        code.copy_bytes(saved + offset, code["frame"] + offset, size * LANES)
    code.give(0)
    return code.function


def _write_restore(module: ir.Module) -> ir.Function:
    """`restore(frame, registers)`: restore these registers in the lanes that did not execute it."""
    code = FunctionCode(module, "restore", ("frame", "registers"), WORD)
    saved = code.record("frame").at(WarpFrame.block).get(BlockRecord.saved_registers)
    mask = code.record("frame").get(WarpFrame.mask_bytes, u8, LANES).differs(0)
    with _each_register(code) as (offset, size):
        for word in (u8, Type("u", 16), u32, u64):
            with code.when(size.equals(word.bits // 8)):
                now = Record(code, code["frame"] + offset).pointer(0, word)
                before = Record(code, saved + offset).get(0, word, LANES)
                now.store(mask.select(now.load(0, LANES), before))
    code.give(0)
    return code.function


@contextmanager
def _each_register(code: FunctionCode) -> Iterator[tuple[Value, Value]]:
    """Run the body for each register of a list, with its offset and the bytes of a lane."""
    registers = code.record("registers")
    with code.loop(registers.get(0)) as number:
        entry = Record(code, registers.address + number * 16)
        yield entry.get(8), entry.get(16)


def _spend(code: FunctionCode, block: Record, steps: Value) -> None:
    """Count basic blocks that were run."""
    block.set(BlockRecord.steps, block.get(BlockRecord.steps) + steps)


def _release_siblings(code: FunctionCode, warp: Record, pcs: Value) -> Value:
    """Release lanes whose awaited lanes have all arrived or exited; return which lanes."""
    parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
    waits = parked & warp.get(WarpFrame.barrier, u32, LANES).equals(abi.WAITS_FOR_SIBLINGS)
    here, gone = _bits(code, waits), _bits(code, pcs.equals(abi.EXITED))
    needed = warp.get(WarpFrame.barrier_argument, u32, LANES)
    # A lane goes on if every lane that it names waits too, or has exited.
    there = (here | gone).spread(LANES)
    ready = waits & (needed & ~there).equals(0)
    program_counters = warp.pointer(WarpFrame.pcs, u32)
    program_counters.store(ready.select(pcs & (abi.PARKED - 1), pcs))
    return _bits(code, ready)


def _write_settle(module: ir.Module, hook: BarrierHook | None) -> ir.Function:
    """`settle(block, barrier)`: complete a barrier if all of its threads have arrived; 1 if so."""
    code = FunctionCode(module, "settle", ("block", "barrier"), WORD)
    block = code.record("block")
    launch = block.at(BlockRecord.launch)
    size, frames, warps = (
        launch.get(LaunchRecord.frame_bytes),
        block.get(BlockRecord.frames),
        launch.get(LaunchRecord.warps),
    )
    zero = code.constant(i64, 0)
    waiting, elsewhere, counted, wanted, yes = (code.variable(zero) for _ in range(5))
    number = code["barrier"].to(u32)

    def look(warp: Record) -> tuple[Value, Value, Value]:
        pcs = warp.get(WarpFrame.pcs, u32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        here = parked & warp.get(WarpFrame.barrier, u32, LANES).equals(number.spread(LANES))
        return pcs, here, pcs.equals(abi.EXITED)

    def count(condition: Value) -> Value:
        return code.intrinsic("ctpop", u32, [_bits(code, condition)]).to(u64).to(i64)

    with code.loop(warps) as index:
        warp = Record(code, frames + index * size)
        _, here, gone = look(warp)
        waiters, dead = count(here), count(gone)
        waiting.set(waiting.get() + waiters)
        elsewhere.set(elsewhere.get() + (LANES - waiters - dead))
        arguments = warp.get(WarpFrame.barrier_argument, u32, LANES)
        with code.when(waiters > 0):
            counted.set(counted.get() + waiters + dead)
            largest = code.intrinsic(
                "vector.reduce.umax", u32, [here.select(arguments, 0)], of=arguments.type
            )
            wanted.set(wanted.get().max(largest.to(u64).to(i64)))
            values = warp.get(WarpFrame.barrier_value, u32, LANES)
            yes.set(yes.get() + count(here & values.differs(0)))
    arrived_offset = code["barrier"] * 8 + BlockRecord.arrived
    counted.set(counted.get() + block.get(arrived_offset))
    all_here = elsewhere.get().equals(0)
    enough = (wanted.get() > 0) & ~(counted.get() < wanted.get())
    done = (waiting.get() > 0) & (enough | (wanted.get().equals(0) & all_here))
    with code.when(~done):
        code.give(0)
    if hook is not None:
        hook(code, block, code["barrier"], wanted.get())
    block.set(arrived_offset, 0)
    result = (yes.get() | (waiting.get() << 16)).to(u32)
    with code.loop(warps) as index:
        warp = Record(code, frames + index * size)
        pcs, here, _ = look(warp)
        warp.pointer(WarpFrame.pcs, u32).store(here.select(pcs & (abi.PARKED - 1), pcs))
        old = warp.get(WarpFrame.barrier_result, u32, LANES)
        warp.pointer(WarpFrame.barrier_result, u32).store(here.select(result.spread(LANES), old))
    code.give(1)
    return code.function


def _write_run_block(
    module: ir.Module,
    run_warp: ir.Function,
    settle: ir.Function,
    settle_cluster: ir.Function,
    in_vain: ir.Function,
    permuted: ir.Function | None,
) -> ir.Function:
    """`run_block(block)`: run the warps of a block in turn and return a `RunStatus`.

    Only a block that is not alone in its cluster can be BLOCKED.
    """
    code = FunctionCode(module, "run_block", ("block",), WORD)
    turn = _BlockTurn(code, permuted)
    turn.run_warps(run_warp)
    turn.release_together()
    turn.look_at_lanes()
    turn.settle(settle, settle_cluster, in_vain)
    turn.end()
    return code.function


class _BlockTurn:
    """One turn of all warps of a block; then barriers that are complete are released."""

    def __init__(self, code: FunctionCode, permuted: ir.Function | None) -> None:
        self.code, self.builder, self.block = code, code.builder, code.record("block")
        launch = self.launch = self.block.at(BlockRecord.launch)
        self._size, self._frames = launch.get(LaunchRecord.frame_bytes), self.block.get(BlockRecord.frames)
        self.warps = launch.get(LaunchRecord.warps)
        self.turns = code.variable(self.block.get(BlockRecord.turns))
        self.order = WarpOrder(code, self.block, permuted) if permuted is not None else None
        self.limit = launch.get(LaunchRecord.step_limit)
        self.begin = code.function.append_basic_block("turn")
        self.builder.branch(self.begin)
        self.builder.position_at_end(self.begin)
        # Whether a warp has not ended its work; how many wait together, and what for: some of them, and all.
        self.yielded, self.waiting, self.some = (self._zero() for _ in range(3))
        self.every = code.variable(code.constant(u32, -1))
        # Lanes that run, that have not exited, and that wait, by what they wait for.
        self.runs, self.alive, self.barriers = (self._zero() for _ in range(3))

    def _zero(self) -> Variable:
        zero = self.code.constant(u32, 0)
        made = self.code.variable(zero)
        made.set(zero)
        return made

    def _frame(self, number: Value) -> Record:
        return Record(self.code, self._frames + number * self._size)

    def run_warps(self, run_warp: ir.Function) -> None:
        """Write that all warps have their turn, and asynchronous operations complete."""
        code, launch = self.code, self.launch
        if self.order is not None:
            self.order.begin_turn()
        with code.loop(self.warps) as index:
            number = self.order.warp(index, self.warps) if self.order is not None else index
            warp = self._frame(number)
            ended = code.invoke(run_warp, warp.address)
            with code.when(ended.equals(WarpStatus.STOPPED)):
                self.block.set(BlockRecord.fault_warp, number)
                code.give(RunStatus.STOPPED)
            self.yielded.set(self.yielded.get() | (ended & WarpStatus.OUT_OF_TIME))
            together = warp.get(WarpFrame.together, u32)
            self.waiting.set(self.waiting.get() + ended.equals(WarpStatus.TOGETHER).to(u32))
            self.some.set(self.some.get() | together)
            self.every.set(self.every.get() & together)
        place = launch.pointer(LaunchRecord.stop, i64)._typed(i64)
        with code.when(Value(code, i64, self.builder.load_atomic(place, "monotonic", 8)).differs(0)):
            code.give(RunStatus.INTERRUPTED)
        spins = self.yielded.get().differs(0)
        asked = spins.select(code.number(CompleteHow.ONE), code.number(CompleteHow.ANY))
        _complete_operations(code, self.block, asked)
        with code.when(self.block.get(BlockRecord.steps) > self.limit):
            code.give(RunStatus.LIMIT)

    def release_together(self) -> None:
        """Write that warps which wait at one plain barrier as a whole go on at once; else they are parked."""
        code = self.code
        with code.when(self.waiting.get().differs(0)):
            if self.order is None:  # the hook of a checked launch needs the lanes parked
                one_barrier = ((self.some.get() ^ self.every.get()) >> abi.TOGETHER_BITS).equals(0)
                with code.when(self.waiting.get().equals(self.warps.to(u32)) & one_barrier):
                    with code.loop(self.warps) as index:
                        warp = self._frame(index)
                        warp.set(WarpFrame.together, warp.get(WarpFrame.together, u32) | abi.RELEASED)
                    self.builder.branch(self.begin)
            with code.loop(self.warps) as index:
                _park_together(code, self._frame(index))

    def look_at_lanes(self) -> None:
        """Find out which lanes wait at which barriers, and which can run; the block may be done."""
        code = self.code
        with code.loop(self.warps) as index:
            warp = self._frame(index)
            pcs = warp.get(WarpFrame.pcs, u32, LANES)
            self.runs.set(self.runs.get() | _bits(code, pcs < abi.PARKED))
            self.alive.set(self.alive.get() | _bits(code, pcs < abi.EXITED))
            parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
            barrier_bit = code.constant(u32.by(LANES), 1) << (warp.get(WarpFrame.barrier, u32, LANES) & 31)
            chosen = parked.select(barrier_bit, 0)
            held = code.intrinsic("vector.reduce.or", u32, [chosen], of=chosen.type)
            self.barriers.set(self.barriers.get() | held)
        with code.when(self.alive.get().equals(0)):
            _complete_operations(code, self.block, code.number(CompleteHow.EVERY))
            code.give(RunStatus.DONE)

    def settle(self, settle: ir.Function, settle_cluster: ir.Function, in_vain: ir.Function) -> None:
        """Release barriers that are complete, and give up if nothing can go on."""
        code = self.code
        barriers, freed = self.barriers.get(), self._zero()
        with code.loop(abi.BARRIERS) as number, code.when(((barriers >> number.to(u32)) & 1).differs(0)):
            freed.set(freed.get() | code.invoke(settle, code["block"], number))
        alone = self.launch.get(LaunchRecord.cluster_blocks).equals(1)
        phases, for_cluster = (
            ((barriers >> condition) & 1).differs(0)
            for condition in (abi.WAITS_FOR_PHASE, abi.WAITS_FOR_CLUSTER)
        )
        with code.when(for_cluster & alone):
            freed.set(freed.get() | code.invoke(settle_cluster, code["block"]))
        progress = freed.get().differs(0) | self.runs.get().differs(0)
        with code.when(~progress):
            freed.set(_complete_operations(code, self.block, code.number(CompleteHow.ONE)))
        progress = progress | freed.get().differs(0)
        with code.when(~progress & ~phases & (alone | ~for_cluster)):
            code.give(RunStatus.DEADLOCKED)
        with code.when(phases):
            _release_phases(code, self.block, progress, alone, in_vain)
        with code.when(~progress & ~alone):
            code.give(RunStatus.BLOCKED)

    def end(self) -> None:
        """End the turn: the next one begins, unless other blocks have theirs."""
        code = self.code
        if self.order is not None:
            # Barriers may go on for ever too.
            with code.when((self.block.get(BlockRecord.turn) & (TURNS_BETWEEN_LOOKS - 1)).equals(0)):
                code.give(RunStatus.YIELDED)
        with code.when(self.yielded.get().differs(0)):
            self.turns.set(self.turns.get() - 1)
            with code.when(self.turns.get() < 0):
                code.give(RunStatus.YIELDED)
        self.builder.branch(self.begin)


def _complete_operations(code: FunctionCode, block: Record, how: Value) -> Value:
    """Complete pending asynchronous operations, if there are any; return 1 if some were, else 0.

    The instructions that issue them bring the function with them: kernels without them do not have it.
    """
    done = code.variable(code.constant(u32, 0))
    pending = block.get(BlockRecord.pending)
    with code.when(pending.differs(0)), code.when(Record(code, pending).get(PendingOperations.count) > 0):
        complete = Record(code, pending).get(PendingOperations.complete)
        done.set(code.invoke(complete, block.address, how))
        with code.when(done.get() > 1):
            code.give(RunStatus.STOPPED)
    return done.get()


def _park_together(code: FunctionCode, warp: Record) -> None:
    """Park each lane of a warp that waits as a whole, because not all warps of its block do so."""
    together = warp.get(WarpFrame.together, u32)
    with code.when(together.differs(0)):
        following = (together & ((1 << abi.TOGETHER_BITS) - 1)) - 1
        for offset, value in (
            (WarpFrame.pcs, following | abi.PARKED),
            (WarpFrame.barrier, (together >> abi.TOGETHER_BITS) & 15),
            (WarpFrame.barrier_argument, code.constant(u32, 0)),
        ):
            warp.pointer(offset, u32).store(value.spread(LANES))
        warp.set(WarpFrame.together, code.constant(u32, 0))


def _release_phases(
    code: FunctionCode, block: Record, progress: Value, alone: Value, in_vain: ir.Function
) -> None:
    """Let lanes that wait for a phase test it again; after many tries in vain it is a deadlock.

    The tries of a block that is not alone in its cluster are counted by `run_cluster`.
    """
    size, frames = (
        block.at(BlockRecord.launch).get(LaunchRecord.frame_bytes),
        block.get(BlockRecord.frames),
    )
    moved = progress | block.get(BlockRecord.phases).differs(block.get(BlockRecord.phases_seen))
    with code.when(alone):
        block.set(BlockRecord.phases_seen, block.get(BlockRecord.phases))
        with code.when(moved):
            block.set(BlockRecord.phase_tries, 0)
        with code.when(~moved), code.when(code.invoke(in_vain, block.address).differs(0)):
            code.give(RunStatus.DEADLOCKED)
    with code.loop(block.at(BlockRecord.launch).get(LaunchRecord.warps)) as index:
        release_waiting(code, Record(code, frames + index * size), abi.WAITS_FOR_PHASE)


#: Tests in vain before the registers are looked at; those after which they are compared; and tests in vain
#: that are a deadlock in any case.
PATIENCE, COMPARED, MOST_TRIES = 1 << 12, 64, 1 << 20
#: The time that a test in vain takes at least, in nanoseconds: an H200 returns from mbarrier.try_wait after
#: about 4 microseconds. Later ones take a part of the time that has passed, by a shift, up to a bound.
TRY_TIME, TIME_SHIFT, MOST_TIME = 4096, 6, 1 << 50
#: The multiplier and offset of the FNV-1a hash of 64 bits.
_PRIME, _OFFSET = 0x100000001B3, 0xCBF29CE484222325


def _write_in_vain(module: ir.Module) -> ir.Function:
    """Write `in_vain(block)`: all lanes have tested phases in vain; 1 if they can never go on.

    All lanes that are left wait for phases, and nothing but their own tests can happen any more. If their
    registers are the same after a test as they were before, it is a deadlock. A loop that counts its tests
    goes on for a while. For one that looks at a clock, time passes while nothing happens, the faster the
    longer it waits: if it has not given up after days, it never will. `block` is the first one of its
    cluster, or alone.
    """
    code = FunctionCode(module, "in_vain", ("block",), ir.IntType(32))
    block = code.record("block")
    with code.loop(block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)) as rank:
        member = member_row(code, block, rank).at(MemberRow.block)
        idle = member.get(BlockRecord.idle_time)
        passed = (idle >> TIME_SHIFT).max(TRY_TIME)
        member.set(BlockRecord.idle_time, (idle < MOST_TIME).select(idle + passed, idle))
    tries = block.get(BlockRecord.phase_tries) + 1
    block.set(BlockRecord.phase_tries, tries)
    with code.when(tries > MOST_TRIES):
        code.give(1)
    timed = block.at(BlockRecord.launch).get(LaunchRecord.reads_clock).differs(0)
    with code.when((tries < PATIENCE) | (tries > PATIENCE + COMPARED)):
        code.give(0)
    with code.when(timed):
        code.give(1)
    digest = code.variable(code.constant(u64, _OFFSET))
    words = (block.at(BlockRecord.launch).get(LaunchRecord.frame_bytes) - WarpFrame.pcs).to(u64) >> 3
    with each_frame(code, block) as warp:
        frame = Record(code, warp.address + WarpFrame.pcs)
        with code.loop(words.to(i64)) as index:
            digest.set((digest.get() ^ frame.get(index * 8, u64)) * _PRIME)
    with code.when(tries.equals(PATIENCE)):
        block.set(BlockRecord.vain_digest, digest.get().to(i64))
        code.give(0)
    same = digest.get().to(i64).equals(block.get(BlockRecord.vain_digest))
    code.give(same.to(u32))
    return code.function
