"""The scheduler, as compiled code: paths of a warp, warps of a block, barriers, blocks one after the other.

A path that spins gives way to its siblings, then to other warps; a block that only spins returns, so that
another may run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen import instrumentation
from lanewise.machine.codegen.function_code import (
    DIVERGED,
    U8,
    U32,
    U64,
    BlockCode,
    FunctionCode,
    Record,
    call,
    shared_code,
)
from lanewise.machine.codegen.lane_vectors import BOOL

WORD = ir.IntType(32)
LANES = abi.LANES
#: How often lanes may ask for a phase of an mbarrier in vain while nothing else happens in their block.
MOST_TRIES = 4096


def _bits(code: FunctionCode, condition: Value) -> Value:
    return Value(code, U32, code.builder.bitcast(condition.handle, WORD))


def write_scheduler(module: ir.Module, name: str, checking: bool = False) -> None:
    """Everything from `run_warp` up to the function that Python calls; the same for every kernel."""
    from lanewise.machine.codegen.threaded_code import write_follow

    warp = _write_run_warp(module, write_follow(module))
    settle = _write_settle(module, checking)
    run_block = _write_run_block(module, warp, settle)
    _write_run_grid(module, run_block, name)


def split(module: ir.Module) -> ir.Function:
    """`split(frame, taken, target, following)`: some lanes to a block of code, the others of the path on."""
    return shared_code(module, "split", ("taken", "target", "following"), _write_split)


def _write_split(code: BlockCode) -> None:
    taken = code.lanes_of(code["taken"].to(U32))
    target, following = (code[each].to(U32).spread(LANES) for each in ("target", "following"))
    pcs = code.frame.pointer(abi.PCS, U32)
    pcs.store(taken.select(target, code.mask_lanes().select(following, pcs.load(0, LANES))))
    code.give(DIVERGED)


def wait(module: ir.Module) -> ir.Function:
    """`wait(frame, active, following, register, members)`: for siblings named by a register or a number."""
    return shared_code(module, "wait", ("active", "following", "register", "members"), _write_wait)


def _write_wait(code: BlockCode) -> None:
    bits = code["active"].to(U32)
    active = code.lanes_of(bits)
    held = code.frame.get(code["register"], U32, LANES)
    given = code["members"].to(U32).spread(LANES)
    members = code["register"].equals(0).spread(LANES).select(given, held)
    missing = active & (members & ~bits.spread(LANES)).differs(0)
    with code.when(~missing.any()):
        code.give(code["following"].to(U32))
    for offset, value in (
        (abi.BARRIER, code.constant(U32.by(LANES), abi.SIBLINGS)),
        (abi.BARRIER_ARGUMENT, members),
    ):
        place = code.frame.pointer(offset, U32)
        place.store(active.select(value, place.load(0, LANES)))
    parked = code["following"] | abi.PARKED
    code.give(call(code, split(code.module), [code["frame"], bits, parked, code["following"]]))


def _least(code: FunctionCode, value: Value) -> Value:
    return code.intrinsic("vector.reduce.umin", U32, [value], of=value.type)


def _write_run_warp(module: ir.Module, scripted: Any) -> Any:
    """`run_warp(frame)`: 0 if no lane can go on, 1 if the time is up, 2 if the launch stops.

    4 says that the whole warp waits at a barrier, and nobody has released it yet.
    """
    save, restore = _write_save(module), _write_restore(module)
    code = FunctionCode(module, "run_warp", ("frame",), WORD)
    warp = code.record("frame")
    block = warp.at(abi.BLOCK)
    builder = code.builder
    budget = code.variable(block.at(abi.LAUNCH).get(abi.SLICE))
    whole = budget.get()
    stop = block.at(abi.LAUNCH).pointer(abi.STOP, i64)._typed(i64)
    current = code.variable(code.constant(U32, 0))
    others, partial = (code.variable(code.constant(BOOL, 0)) for _ in range(2))
    rows = block.at(abi.LAUNCH).get(abi.CODE)
    dispatch, call, diverged, follow, spread, expired = (
        code.function.append_basic_block(each)
        for each in ("dispatch", "call", "diverged", "follow", "spread", "expired")
    )
    pcs_place = warp.pointer(abi.PCS, U32)
    waited = warp.get(abi.TOGETHER, U32)
    with code.when(waited.differs(0)):
        with code.when((waited & abi.RELEASED).equals(0)):
            code.give(4)
        warp.set(abi.TOGETHER, code.constant(U32, 0))
        current.set((waited & ((1 << abi.TOGETHER_BITS) - 1)) - 1)
        builder.branch(call)
    builder.branch(dispatch)

    builder.position_at_end(dispatch)
    pcs = pcs_place.load(0, LANES)
    base = warp.get(abi.BASE, U32)
    runnable = pcs < abi.PARKED
    key = runnable.select((pcs - base.spread(LANES)) & (abi.PARKED - 1), -1)
    least = _least(code, key)
    with code.when(least.equals(-1)):
        # Siblings may all be here now.
        released = _release_siblings(code, warp, pcs)
        with code.when(released.differs(0)):
            builder.branch(dispatch)
        warp.set(abi.BASE, code.constant(U32, 0))
        _spend(code, block, whole - budget.get())
        code.give(0)
    pc = (least + base) & (abi.PARKED - 1)
    current.set(pc)
    mask = pcs.equals(pc.spread(LANES))
    warp.set(abi.MASK, _bits(code, mask))
    warp.pointer(abi.MASK_BYTES, U8).store(mask.to(U8))
    others.set((runnable & ~mask).any())
    partial.set(((pcs < abi.EXITED) & ~mask).any())
    builder.branch(call)

    builder.position_at_end(call)
    row = Record(code, rows + current.get().to(U64).to(i64) * abi.ROW_BYTES)
    own = row.get(abi.FUNCTION)
    function = builder.inttoptr(own.handle, ir.FunctionType(WORD, [ir.LONG]).as_pointer())
    with code.when(partial.get()):
        builder.call(save, [code["frame"].handle, row.get(abi.WRITES).handle])
    answer = code.variable(code.constant(Type("i", 32), 0))
    with builder.if_else(own.equals(0).handle) as (by_script, by_function):
        with by_script:
            found = builder.call(scripted, [code["frame"].handle, row.address.handle])
            answer.set(Value(code, Type("i", 32), found))
        with by_function:
            answer.set(Value(code, Type("i", 32), builder.call(function, [code["frame"].handle])))
    following = answer.get()
    with code.when(partial.get()):
        builder.call(restore, [code["frame"].handle, row.get(abi.WRITES).handle])
    budget.set(budget.get() - 1)
    with code.when(following.equals(-2)):
        _spend(code, block, whole - budget.get())
        code.give(2)
    with code.when(following.equals(-3)):
        _spend(code, block, whole - budget.get())
        code.give(4)
    # Who stops a launch waits for no slice to end, however long its blocks of code are.
    with code.when(Value(code, i64, builder.load_atomic(stop, "monotonic", 8)).differs(0)):
        code.give(1)
    builder.cbranch((following < 0).handle, diverged, follow)

    builder.position_at_end(diverged)
    builder.cbranch((budget.get() > 0).handle, dispatch, expired)

    builder.position_at_end(follow)
    target_pc = following.view(U32)
    stays = ~others.get() & (budget.get() > 0)
    current_before = current.get()
    current.set(target_pc)
    builder.cbranch(stays.handle, call, spread)

    builder.position_at_end(spread)
    mask_again = warp.get(abi.MASK_BYTES, U8, LANES).differs(0)
    pcs_place.store(mask_again.select(target_pc.spread(LANES), pcs_place.load(0, LANES)))
    current.set(current_before)
    builder.cbranch((budget.get() > 0).handle, dispatch, expired)

    builder.position_at_end(expired)
    # The next turn begins with the path behind the one that ran last.
    next_base = others.get().select(current.get() + 1, 0)
    warp.set(abi.BASE, next_base & (abi.PARKED - 1))
    _release_siblings(code, warp, pcs_place.load(0, LANES))
    _spend(code, block, whole)
    code.give(1)
    return code.function


def _write_save(module: ir.Module) -> Any:
    """`save(frame, registers)`: copy the registers that a block of code is about to write in every lane."""
    code = FunctionCode(module, "save", ("frame", "registers"), WORD)
    shadow = code.record("frame").at(abi.BLOCK).get(abi.SHADOW)
    with _each_register(code) as (place, size):
        _copy(code, shadow + place, code["frame"] + place, size * LANES)
    code.give(0)
    return code.function


def _write_restore(module: ir.Module) -> Any:
    """`restore(frame, registers)`: give the lanes that took no part their registers back."""
    code = FunctionCode(module, "restore", ("frame", "registers"), WORD)
    shadow = code.record("frame").at(abi.BLOCK).get(abi.SHADOW)
    mask = code.record("frame").get(abi.MASK_BYTES, U8, LANES).differs(0)
    with _each_register(code) as (place, size):
        for each in (U8, Type("u", 16), U32, U64):
            with code.when(size.equals(each.bits // 8)):
                now = Record(code, code["frame"] + place).pointer(0, each)
                before = Record(code, shadow + place).get(0, each, LANES)
                now.store(mask.select(now.load(0, LANES), before))
    code.give(0)
    return code.function


@contextmanager
def _each_register(code: FunctionCode) -> Iterator[tuple[Value, Value]]:
    """The body for each register of a list: how many there are, then offset and bytes of a lane for each."""
    registers = code.record("registers")
    with code.loop(registers.get(0)) as number:
        entry = Record(code, registers.address + number * 16)
        yield entry.get(8), entry.get(16)


def _spend(code: FunctionCode, block: Record, steps: Value) -> None:
    block.set(abi.STEPS, block.get(abi.STEPS) + steps)


def _release_siblings(code: FunctionCode, warp: Record, pcs: Value) -> Value:
    """Let lanes go on that wait for siblings which are all there or gone; returns which."""
    parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
    waits = parked & warp.get(abi.BARRIER, U32, LANES).equals(abi.SIBLINGS)
    here, gone = _bits(code, waits), _bits(code, pcs.equals(abi.EXITED))
    needed = warp.get(abi.BARRIER_ARGUMENT, U32, LANES)
    # A lane goes on if every lane that it names waits too, or is gone.
    there = (here | gone).spread(LANES)
    ready = waits & (needed & ~there).equals(0)
    place = warp.pointer(abi.PCS, U32)
    place.store(ready.select(pcs & (abi.PARKED - 1), pcs))
    return _bits(code, ready)


def _write_settle(module: ir.Module, checking: bool) -> Any:
    """`settle(block, barrier)`: complete a barrier if all whom it waits for are there; 1 if so."""
    code = FunctionCode(module, "settle", ("block", "barrier"), WORD)
    block = code.record("block")
    launch = block.at(abi.LAUNCH)
    size, frames, warps = launch.get(abi.FRAME_BYTES), block.get(abi.FRAMES), launch.get(abi.WARPS)
    zero = code.constant(i64, 0)
    waiting, elsewhere, counted, wanted, yes = (code.variable(zero) for _ in range(5))
    number = code["barrier"].to(U32)

    def look(warp: Record) -> tuple[Value, Value, Value]:
        pcs = warp.get(abi.PCS, U32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        here = parked & warp.get(abi.BARRIER, U32, LANES).equals(number.spread(LANES))
        return pcs, here, pcs.equals(abi.EXITED)

    def count(condition: Value) -> Value:
        return code.intrinsic("ctpop", U32, [_bits(code, condition)]).to(U64).to(i64)

    with code.loop(warps) as index:
        warp = Record(code, frames + index * size)
        _, here, gone = look(warp)
        some, dead = count(here), count(gone)
        waiting.set(waiting.get() + some)
        elsewhere.set(elsewhere.get() + (LANES - some - dead))
        arguments = warp.get(abi.BARRIER_ARGUMENT, U32, LANES)
        with code.when(some > 0):
            counted.set(counted.get() + some + dead)
            largest = code.intrinsic(
                "vector.reduce.umax", U32, [here.select(arguments, 0)], of=arguments.type
            )
            wanted.set(wanted.get().max(largest.to(U64).to(i64)))
            values = warp.get(abi.BARRIER_VALUE, U32, LANES)
            yes.set(yes.get() + count(here & values.differs(0)))
    arrived_place = code["barrier"] * 8 + abi.ARRIVED
    counted.set(counted.get() + block.get(arrived_place))
    all_here = elsewhere.get().equals(0)
    enough = (wanted.get() > 0) & ~(counted.get() < wanted.get())
    done = (waiting.get() > 0) & (enough | (wanted.get().equals(0) & all_here))
    with code.when(~done):
        code.give(0)
    block.set(arrived_place, 0)
    if checking:
        instrumentation.barrier_completes(code, block, code["barrier"])
    result = (yes.get() | (waiting.get() << 16)).to(U32)
    with code.loop(warps) as index:
        warp = Record(code, frames + index * size)
        pcs, here, _ = look(warp)
        warp.pointer(abi.PCS, U32).store(here.select(pcs & (abi.PARKED - 1), pcs))
        old = warp.get(abi.BARRIER_RESULT, U32, LANES)
        warp.pointer(abi.BARRIER_RESULT, U32).store(here.select(result.spread(LANES), old))
    code.give(1)
    return code.function


def _write_run_block(module: ir.Module, run_warp: Any, settle: Any) -> Any:
    """`run_block(block)`: how it ended (`frame.DONE`, …)."""
    code = FunctionCode(module, "run_block", ("block",), WORD)
    block = code.record("block")
    launch = block.at(abi.LAUNCH)
    size, frames, warps = launch.get(abi.FRAME_BYTES), block.get(abi.FRAMES), launch.get(abi.WARPS)
    builder = code.builder
    turns = code.variable(launch.get(abi.YIELDS))
    limit = launch.get(abi.STEP_LIMIT)
    turn = code.function.append_basic_block("turn")
    builder.branch(turn)
    builder.position_at_end(turn)
    yielded = code.variable(code.constant(U32, 0))
    yielded.set(code.constant(U32, 0))
    waiting, some, every = (code.variable(code.constant(U32, 0)) for _ in range(3))
    for each, start in ((waiting, 0), (some, 0), (every, -1)):
        each.set(code.constant(U32, start))
    with code.loop(warps) as index:
        warp = frames + index * size
        ended = Value(code, U32, builder.call(run_warp, [warp.handle]))
        with code.when(ended.equals(2)):
            block.set(abi.WARP, index)
            code.give(abi.STOPPED)
        yielded.set(yielded.get() | (ended & 1))
        together = Record(code, warp).get(abi.TOGETHER, U32)
        waiting.set(waiting.get() + (ended >> 2))
        some.set(some.get() | together)
        every.set(every.get() & together)
    stop = Value(code, i64, builder.load_atomic(launch.pointer(abi.STOP, i64)._typed(i64), "monotonic", 8))
    with code.when(stop.differs(0)):
        code.give(abi.INTERRUPTED)
    with code.when(block.get(abi.STEPS) > limit):
        code.give(abi.LIMIT)
    with code.when(waiting.get().differs(0)):
        one_barrier = ((some.get() ^ every.get()) >> abi.TOGETHER_BITS).equals(0)
        with code.when(waiting.get().equals(warps.to(U32)) & one_barrier):
            with code.loop(warps) as index:
                record = Record(code, frames + index * size)
                record.set(abi.TOGETHER, record.get(abi.TOGETHER, U32) | abi.RELEASED)
            builder.branch(turn)
        with code.loop(warps) as index:
            _park_together(code, Record(code, frames + index * size))
    # Who waits where, and who can run?
    zero = code.constant(U32, 0)
    runs, alive, barriers = (code.variable(zero) for _ in range(3))
    for each in (runs, alive, barriers):
        each.set(zero)
    with code.loop(warps) as index:
        warp_record = Record(code, frames + index * size)
        pcs = warp_record.get(abi.PCS, U32, LANES)
        runs.set(runs.get() | _bits(code, pcs < abi.PARKED))
        alive.set(alive.get() | _bits(code, pcs < abi.EXITED))
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        which = code.constant(U32.by(LANES), 1) << (warp_record.get(abi.BARRIER, U32, LANES) & 31)
        chosen = parked.select(which, 0)
        barriers.set(barriers.get() | code.intrinsic("vector.reduce.or", U32, [chosen], of=chosen.type))
    with code.when(alive.get().equals(0)):
        code.give(abi.DONE)
    freed = code.variable(zero)
    freed.set(zero)
    with code.loop(16) as number, code.when(((barriers.get() >> number.to(U32)) & 1).differs(0)):
        answer = builder.call(settle, [code["block"].handle, number.handle])
        freed.set(freed.get() | Value(code, U32, answer))
    progress = freed.get().differs(0) | runs.get().differs(0)
    phases = ((barriers.get() >> abi.PHASE) & 1).differs(0)
    with code.when(~progress & ~phases):
        code.give(abi.DEADLOCKED)
    with code.when(phases):
        _release_phases(code, block, progress)
    with code.when(yielded.get().differs(0)):
        turns.set(turns.get() - 1)
        with code.when(turns.get() < 0):
            code.give(abi.YIELDED)
    builder.branch(turn)
    return code.function


def _park_together(code: FunctionCode, warp: Record) -> None:
    """The lanes of a warp that waits as a whole become lanes that wait: not all of its block do so."""
    together = warp.get(abi.TOGETHER, U32)
    with code.when(together.differs(0)):
        following = (together & ((1 << abi.TOGETHER_BITS) - 1)) - 1
        for place, value in (
            (abi.PCS, following | abi.PARKED),
            (abi.BARRIER, (together >> abi.TOGETHER_BITS) & 15),
            (abi.BARRIER_ARGUMENT, code.constant(U32, 0)),
        ):
            warp.pointer(place, U32).store(value.spread(LANES))
        warp.set(abi.TOGETHER, code.constant(U32, 0))


def _release_phases(code: FunctionCode, block: Record, progress: Value) -> None:
    """Let lanes that wait for a phase ask again. If they did so often, and nothing happened: a deadlock."""
    size, frames = block.at(abi.LAUNCH).get(abi.FRAME_BYTES), block.get(abi.FRAMES)
    moved = progress | block.get(abi.PHASES).differs(block.get(abi.PHASES_SEEN))
    block.set(abi.PHASES_SEEN, block.get(abi.PHASES))
    block.set(abi.TRIES, moved.select(code.constant(i64, 0), block.get(abi.TRIES) + 1))
    with code.when(block.get(abi.TRIES) > MOST_TRIES):
        code.give(abi.DEADLOCKED)
    with code.loop(block.at(abi.LAUNCH).get(abi.WARPS)) as index:
        warp = Record(code, frames + index * size)
        pcs = warp.get(abi.PCS, U32, LANES)
        parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
        waits = parked & warp.get(abi.BARRIER, U32, LANES).equals(abi.PHASE)
        warp.pointer(abi.PCS, U32).store(waits.select(pcs & (abi.PARKED - 1), pcs))


def _write_run_grid(module: ir.Module, run_block: Any, name: str) -> None:
    """`name(arguments)`: resume a block if one is under way, then take blocks until none is left."""
    from lanewise.jit.float_mode import float_mode
    from lanewise.jit.simd import Code

    inner = FunctionCode(module, "run_grid", ("block", "resume"), WORD)
    inner.function.attributes.add("noinline")
    block = inner.record("block")
    launch = block.at(abi.LAUNCH)
    builder = inner.builder
    take = inner.function.append_basic_block("take")
    run = inner.function.append_basic_block("run")
    builder.cbranch(inner["resume"].differs(0).handle, run, take)
    builder.position_at_end(take)
    place = launch.pointer(abi.NEXT_BLOCK, i64)._typed(i64)
    one = ir.Constant(ir.IntType(64), 1)
    number = Value(inner, i64, builder.atomic_rmw("add", place, one, "seq_cst"))
    with inner.when(~(number < launch.get(abi.BLOCKS))):
        block.set(abi.LINEAR, -1)
        inner.give(abi.DONE)
    _begin(inner, block, launch, number)
    builder.branch(run)
    builder.position_at_end(run)
    ended = Value(inner, U32, builder.call(run_block, [inner["block"].handle]))
    with inner.when(ended.differs(abi.DONE)):
        inner.give(ended)
    builder.branch(take)

    outer = Code(module, name, ("block", "resume"))
    with float_mode(outer, "rn"):
        status = outer.builder.call(inner.function, [outer["block"].handle, outer["resume"].handle])
    Record(outer, outer["block"]).set(abi.STATUS, Value(outer, U32, status).to(U64).to(i64))
    outer.end()


def _begin(code: FunctionCode, block: Record, launch: Record, number: Value) -> None:
    """A block of threads at its start: numbers, fresh frames, zeroed shared and local memory."""
    builder = code.builder
    block.set(abi.LINEAR, number)
    block.set(abi.STEPS, 0)
    block.set(abi.TRIES, 0)
    x, y = launch.get(abi.NCTAID), launch.get(abi.NCTAID + 8)

    def divided(a: Value, b: Value) -> tuple[Value, Value]:
        quotient = Value(code, i64, builder.sdiv(a.handle, b.handle))
        return quotient, a - quotient * b

    rest, first = divided(number, x)
    third, second = divided(rest, y)
    for axis, value in enumerate((first, second, third)):
        block.set(abi.CTAID + 8 * axis, value)
    for barrier in range(16):
        block.set(abi.ARRIVED + 8 * barrier, 0)
    warps, frame_bytes = launch.get(abi.WARPS), launch.get(abi.FRAME_BYTES)
    with code.loop(warps) as index:
        start = index * frame_bytes
        warp = Record(code, block.get(abi.FRAMES) + start)
        _copy(code, warp.address, launch.get(abi.TEMPLATE) + start, code.constant(i64, abi.REGISTERS))
        _zero(code, warp.address + abi.REGISTERS, frame_bytes - abi.REGISTERS)
        warp.set(abi.BLOCK, code["block"])
    _zero(code, block.get(abi.SHARED), launch.get(abi.SHARED_BYTES))
    _zero(code, block.get(abi.LOCAL), launch.get(abi.LOCAL_BYTES) * warps * LANES)


def _copy(code: FunctionCode, to: Value, source: Value, size: Value) -> None:
    pointer = ir.IntType(8).as_pointer()
    function = code.external(
        "llvm.memcpy.p0.p0.i64", ir.VoidType(), [pointer, pointer, ir.IntType(64), ir.IntType(1)]
    )
    handles = [code.builder.inttoptr(each.handle, pointer) for each in (to, source)]
    code.builder.call(function, [*handles, size.handle, ir.Constant(ir.IntType(1), 0)])


def _zero(code: FunctionCode, to: Value, size: Value) -> None:
    pointer = ir.IntType(8).as_pointer()
    function = code.external(
        "llvm.memset.p0.i64", ir.VoidType(), [pointer, ir.IntType(8), ir.IntType(64), ir.IntType(1)]
    )
    handle = code.builder.inttoptr(to.handle, pointer)
    code.builder.call(
        function, [handle, ir.Constant(ir.IntType(8), 0), size.handle, ir.Constant(ir.IntType(1), 0)]
    )
