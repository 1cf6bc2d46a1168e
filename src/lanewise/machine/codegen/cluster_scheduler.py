"""The scheduler of clusters and of the grid as compiled code.

The blocks of a cluster take turns on one host thread, and have a barrier. A block that only waits for others
of its cluster gives way to the next one. Once no block of the cluster can go on, it is a deadlock. The
function that Python calls takes blocks, or clusters, until none is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit import ir
from lanewise.jit.float_mode import float_mode
from lanewise.jit.simd import Code, Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockQueue, BlockRecord, LaunchRecord, MemberRow, RunStatus, WarpFrame
from lanewise.machine.async_records import PendingOperations
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.codegen.pending_operations import forget_copies
from lanewise.machine.codegen.run_order import block_in_order
from lanewise.machine.codegen.threaded_code import BarrierHook
from lanewise.machine.tensor_memory_records import TENSOR_BYTES, TensorAllocator

WORD = ir.IntType(32)
LANES = abi.LANES


def divided(code: FunctionCode, number: Value, by: Value) -> tuple[Value, Value]:
    """Return quotient and remainder of two numbers that are not negative."""
    quotient = number // by
    return quotient, number - quotient * by


def member_row(code: FunctionCode, block: Record, rank: Value) -> Record:
    """Return the row of a block in the table of its cluster, by rank."""
    return Record(code, block.get(BlockRecord.members) + rank * MemberRow.BYTES)


@contextmanager
def each_frame(code: FunctionCode, block: Record) -> Iterator[Record]:
    """Run the body for every warp of every block of a cluster that has not exited, with the warp's frame."""
    launch = block.at(BlockRecord.launch)
    with code.loop(launch.get(LaunchRecord.cluster_blocks)) as rank:
        member = member_row(code, block, rank).at(MemberRow.block)
        with (
            code.when(member.get(BlockRecord.ended).equals(0)),
            code.loop(launch.get(LaunchRecord.warps)) as index,
        ):
            frames = member.get(BlockRecord.frames)
            yield Record(code, frames + index * launch.get(LaunchRecord.frame_bytes))


def write_settle_cluster(module: ir.Module, hook: BarrierHook | None) -> ir.Function:
    """Write `settle_cluster(block)`: complete the cluster's barrier if all of its threads are there; 1 if so.

    Threads that have exited are not waited for (PTX ISA, barrier.cluster).
    """
    code = FunctionCode(module, "settle_cluster", ("block",), WORD)
    block = code.record("block")
    missing, arrived = (code.variable(code.constant(u32, 0)) for _ in range(2))
    with each_frame(code, block) as warp:
        alive = _bits(code, warp.get(WarpFrame.pcs, u32, LANES).differs(abi.EXITED))
        here = warp.get(WarpFrame.cluster_arrived, u32)
        missing.set(missing.get() | (alive & ~here))
        arrived.set(arrived.get() | (alive & here))
    with code.when(missing.get().differs(0) | arrived.get().equals(0)):
        code.give(0)
    if hook is not None:
        hook(code, block, code.constant(i64, abi.WAITS_FOR_CLUSTER), code.constant(i64, 0))
    with each_frame(code, block) as warp:
        warp.set(WarpFrame.cluster_arrived, code.constant(u32, 0))
        release_waiting(code, warp, abi.WAITS_FOR_CLUSTER)
    code.give(1)
    return code.function


def release_waiting(code: FunctionCode, warp: Record, condition: int) -> None:
    """Let the lanes of a warp that wait for a condition go on."""
    pcs = warp.get(WarpFrame.pcs, u32, LANES)
    parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
    waits = parked & warp.get(WarpFrame.barrier, u32, LANES).equals(condition)
    warp.pointer(WarpFrame.pcs, u32).store(waits.select(pcs & (abi.PARKED - 1), pcs))


def _bits(code: FunctionCode, condition: Value) -> Value:
    """Return conditions of 32 lanes as the bits of a word."""
    return Value(code, u32, code.builder.bitcast(condition.handle, WORD))


def write_run_cluster(
    module: ir.Module, run_block: ir.Function, settle_cluster: ir.Function, in_vain: ir.Function
) -> ir.Function:
    """Write `run_cluster(block)`: run the blocks of a cluster in turn and return a `RunStatus`.

    `block` is the first one of the cluster. If a block stops, its rank is left in `running_member`, and the
    next call begins with it.
    """
    code = FunctionCode(module, "run_cluster", ("block",), WORD)
    block = code.record("block")
    count = block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)
    builder = code.builder
    zero, no = code.constant(i64, 0), code.constant(BOOL, 0)
    phases = code.variable(zero)
    yielded, alive, moved = (code.variable(no) for _ in range(3))
    turn = code.function.append_basic_block("turn")
    builder.branch(turn)
    builder.position_at_end(turn)
    phases.set(zero)
    for counter in (yielded, alive, moved):
        counter.set(no)
    first = block.get(BlockRecord.running_member)
    with code.loop(count) as index:
        rank = divided(code, first + index, count)[1]
        row = member_row(code, block, rank)
        member = row.at(MemberRow.block)
        with code.when(member.get(BlockRecord.ended).equals(0)):
            block.set(BlockRecord.running_member, rank)
            ended = code.invoke(run_block, member.address)
            done = ended.equals(RunStatus.DONE)
            with code.when(done):
                member.set(BlockRecord.ended, 1)
                row.set(MemberRow.bytes, 0)
            waits = ended.equals(RunStatus.BLOCKED) | ended.equals(RunStatus.DEADLOCKED)
            yields = ended.equals(RunStatus.YIELDED)
            with code.when(~done & ~waits & ~yields):
                code.give(ended)
            yielded.set(yielded.get() | yields)
            alive.set(alive.get() | ~done)
            moved.set(moved.get() | done)
        phases.set(phases.get() + member.get(BlockRecord.phases))
    block.set(BlockRecord.running_member, zero)
    with code.when(~alive.get()):
        code.give(RunStatus.DONE)
    settled = code.invoke(settle_cluster, code["block"]).differs(0)
    moved.set(moved.get() | settled | phases.get().differs(block.get(BlockRecord.phases_seen)))
    block.set(BlockRecord.phases_seen, phases.get())
    with code.when(yielded.get() | moved.get()):
        block.set(BlockRecord.phase_tries, 0)
    with code.when(yielded.get()):
        code.give(RunStatus.YIELDED)
    with code.when(~moved.get()), code.when(code.invoke(in_vain, code["block"]).differs(0)):
        code.give(RunStatus.DEADLOCKED)
    builder.branch(turn)
    return code.function


def next_cluster(code: FunctionCode, block: Record) -> tuple[Value, Value]:
    """Take the next cluster of a block's queue: return the number of its first block, and whether it is one.

    Blocks are numbered cluster by cluster. Nobody else gets the same one, on any host thread.
    """
    queue, size = block.at(BlockRecord.queue), block.at(BlockRecord.launch).get(LaunchRecord.cluster_blocks)
    counter = queue.pointer(BlockQueue.next, i64)._typed(i64)
    number = Value(code, i64, code.builder.atomic_rmw("add", counter, size.handle, "seq_cst"))
    return number, number < queue.get(BlockQueue.end)


def first_blocks(code: FunctionCode, launch: Record, number: Value) -> list[Value]:
    """Return the coordinates, in the grid, of the first block of the cluster with a number.

    Clusters are numbered along x, then y, then z.
    """
    sizes = [launch.get(LaunchRecord.cluster + 8 * axis) for axis in range(3)]
    blocks = [launch.get(LaunchRecord.nctaid + 8 * axis) for axis in range(3)]
    clusters = [divided(code, block, size)[0] for block, size in zip(blocks, sizes, strict=True)]
    rest, first = divided(code, number, clusters[0])
    third, second = divided(code, rest, clusters[1])
    return [place * size for place, size in zip((first, second, third), sizes, strict=True)]


def begin_cluster(
    code: FunctionCode, block: Record, launch: Record, begin: ir.Function, number: Value
) -> None:
    """Write code that begins all blocks of the cluster with a number; they are numbered as clusters are."""
    sizes = [launch.get(LaunchRecord.cluster + 8 * axis) for axis in range(3)]
    blocks = [launch.get(LaunchRecord.nctaid + 8 * axis) for axis in range(3)]
    firsts = first_blocks(code, launch, number)
    block.set(BlockRecord.running_member, 0)
    with code.loop(launch.get(LaunchRecord.cluster_blocks)) as rank:
        row = member_row(code, block, rank)
        member = row.at(MemberRow.block)
        others, in_x = divided(code, rank, sizes[0])
        in_z, in_y = divided(code, others, sizes[1])
        x, y, z = (first + inside for first, inside in zip(firsts, (in_x, in_y, in_z), strict=True))
        linear = (z * blocks[1] + y) * blocks[0] + x
        code.invoke(begin, member.address, linear)
        member.set(BlockRecord.ended, 0)
        row.set(MemberRow.bytes, launch.get(LaunchRecord.shared_bytes))


# the grid ---------------------------------------------------------------------------------------------------


def write_run_grid(
    module: ir.Module,
    run_block: ir.Function,
    run_cluster: ir.Function,
    name: str,
    permuted: ir.Function | None,
) -> None:
    """Write `name(arguments)`: resume a block if one was interrupted, then run blocks until none is left.

    In a launch of clusters the block is the first one of a cluster, and whole clusters are run.
    """
    begin = _write_begin(module)
    inner = FunctionCode(module, "run_grid", ("block", "resume"), WORD)
    inner.function.attributes.add("noinline")
    block = inner.record("block")
    launch = block.at(BlockRecord.launch)
    builder = inner.builder
    take = inner.function.append_basic_block("take")
    run = inner.function.append_basic_block("run")
    builder.cbranch(inner["resume"].differs(0).handle, run, take)
    builder.position_at_end(take)
    size = launch.get(LaunchRecord.cluster_blocks)
    number, is_left = next_cluster(inner, block)
    with inner.when(~is_left):
        block.set(BlockRecord.linear, -1)
        inner.give(RunStatus.DONE)
    alone = size.equals(1)
    begin_one, begin_all, ran = (
        inner.function.append_basic_block(name) for name in ("begin_one", "begin_all", "ran")
    )
    builder.cbranch(alone.handle, begin_one, begin_all)
    builder.position_at_end(begin_one)
    chosen = block_in_order(inner, launch, permuted, number) if permuted is not None else number
    inner.invoke(begin, inner["block"], chosen)
    builder.branch(run)
    builder.position_at_end(begin_all)
    cluster = divided(inner, number, size)[0]
    if permuted is not None:
        cluster = block_in_order(inner, launch, permuted, cluster)
    begin_cluster(inner, block, launch, begin, cluster)
    builder.branch(run)
    builder.position_at_end(run)
    ended = inner.variable(inner.constant(u32, 0))
    several = launch.get(LaunchRecord.cluster_blocks).differs(1)
    with inner.when(several):
        ended.set(inner.invoke(run_cluster, inner["block"]))
        builder.branch(ran)
    ended.set(inner.invoke(run_block, inner["block"]))
    builder.branch(ran)
    builder.position_at_end(ran)
    with inner.when(ended.get().differs(RunStatus.DONE)):
        inner.give(ended.get())
    builder.branch(take)

    outer = Code(module, name, ("block", "resume"))
    with float_mode(outer, "rn"):
        status = outer.builder.call(inner.function, [outer["block"].handle, outer["resume"].handle])
    Record(outer, outer["block"]).set(BlockRecord.status, Value(outer, u32, status).to(u64).to(i64))
    outer.end()


def _write_begin(module: ir.Module) -> ir.Function:
    """`begin(block, number)`: set a block's index, copy fresh frames, clear shared and local memory."""
    code = FunctionCode(module, "begin", ("block", "number"), WORD)
    block, number = code.record("block"), code["number"]
    launch = block.at(BlockRecord.launch)
    block.set(BlockRecord.linear, number)
    block.set(BlockRecord.steps, 0)
    block.set(BlockRecord.phase_tries, 0)
    block.set(BlockRecord.idle_time, 0)
    block.set(BlockRecord.turn, 0)
    for note in (BlockRecord.overrun, BlockRecord.overrun_at_once, BlockRecord.surplus):
        block.set(note, 0)
    for own, given in (
        (BlockRecord.slice, LaunchRecord.first_slice),
        (BlockRecord.whole_slice, LaunchRecord.first_slice),
        (BlockRecord.turns, LaunchRecord.first_turns),
        (BlockRecord.order, LaunchRecord.order),
    ):
        block.set(own, launch.get(given))
    with code.when(block.get(BlockRecord.pending).differs(0)):  # what a seed draws depends on the block alone
        block.at(BlockRecord.pending).set(PendingOperations.draws, 0)
        forget_copies(code, block)
    x, y = launch.get(LaunchRecord.nctaid), launch.get(LaunchRecord.nctaid + 8)
    rest, first = divided(code, number, x)
    third, second = divided(code, rest, y)
    for axis, value in enumerate((first, second, third)):
        block.set(BlockRecord.ctaid + 8 * axis, value)
    for barrier in range(abi.BARRIERS):
        block.set(BlockRecord.arrived + 8 * barrier, 0)
    with code.when(block.get(BlockRecord.tensor_memory).differs(0)):
        code.zero_bytes(block.get(BlockRecord.tensor_memory), code.number(TENSOR_BYTES))
        code.zero_bytes(block.get(BlockRecord.tensor_allocator), code.number(TensorAllocator.BYTES))
    warps, frame_bytes = launch.get(LaunchRecord.warps), launch.get(LaunchRecord.frame_bytes)
    with code.loop(warps) as index:
        start = index * frame_bytes
        warp = Record(code, block.get(BlockRecord.frames) + start)
        state_bytes = code.constant(i64, WarpFrame.registers)
        code.copy_bytes(warp.address, launch.get(LaunchRecord.template) + start, state_bytes)
        code.zero_bytes(warp.address + WarpFrame.registers, frame_bytes - WarpFrame.registers)
        warp.set(WarpFrame.block, code["block"])
    code.zero_bytes(block.get(BlockRecord.shared), launch.get(LaunchRecord.shared_bytes))
    code.zero_bytes(block.get(BlockRecord.local), launch.get(LaunchRecord.local_bytes) * warps * LANES)
    code.give(0)
    return code.function
