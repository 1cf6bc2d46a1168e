"""The function that Python calls to run a grid: it takes blocks, or clusters, until none is left."""

from lanewise.jit import ir
from lanewise.jit.float_mode import float_mode
from lanewise.jit.simd import Code, Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, RunStatus, WarpFrame
from lanewise.machine.async_records import PendingOperations
from lanewise.machine.codegen.cluster_scheduler import begin_cluster, divided, next_cluster
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record, copy_bytes, zero_bytes
from lanewise.machine.codegen.pending_copies import forget_copies
from lanewise.machine.codegen.run_order import block_in_order
from lanewise.machine.tensor_memory_records import TENSOR_BYTES, TensorAllocator

WORD = ir.IntType(32)
LANES = abi.LANES


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
    builder.call(begin, [inner["block"].handle, chosen.handle])
    builder.branch(run)
    builder.position_at_end(begin_all)
    cluster = divided(inner, number, size)[0]
    if permuted is not None:
        cluster = block_in_order(inner, launch, permuted, cluster)
    begin_cluster(inner, block, launch, begin, cluster)
    builder.branch(run)
    builder.position_at_end(run)
    ended = inner.variable(inner.constant(U32, 0))
    several = launch.get(LaunchRecord.cluster_blocks).differs(1)
    with inner.when(several):
        ended.set(Value(inner, U32, builder.call(run_cluster, [inner["block"].handle])))
        builder.branch(ran)
    ended.set(Value(inner, U32, builder.call(run_block, [inner["block"].handle])))
    builder.branch(ran)
    builder.position_at_end(ran)
    with inner.when(ended.get().differs(RunStatus.DONE)):
        inner.give(ended.get())
    builder.branch(take)

    outer = Code(module, name, ("block", "resume"))
    with float_mode(outer, "rn"):
        status = outer.builder.call(inner.function, [outer["block"].handle, outer["resume"].handle])
    Record(outer, outer["block"]).set(BlockRecord.status, Value(outer, U32, status).to(U64).to(i64))
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
        zero_bytes(code, block.get(BlockRecord.tensor_memory), code.number(TENSOR_BYTES))
        zero_bytes(code, block.get(BlockRecord.tensor_allocator), code.number(TensorAllocator.BYTES))
    warps, frame_bytes = launch.get(LaunchRecord.warps), launch.get(LaunchRecord.frame_bytes)
    with code.loop(warps) as index:
        start = index * frame_bytes
        warp = Record(code, block.get(BlockRecord.frames) + start)
        state_bytes = code.constant(i64, WarpFrame.registers)
        copy_bytes(code, warp.address, launch.get(LaunchRecord.template) + start, state_bytes)
        zero_bytes(code, warp.address + WarpFrame.registers, frame_bytes - WarpFrame.registers)
        warp.set(WarpFrame.block, code["block"])
    zero_bytes(code, block.get(BlockRecord.shared), launch.get(LaunchRecord.shared_bytes))
    zero_bytes(code, block.get(BlockRecord.local), launch.get(LaunchRecord.local_bytes) * warps * LANES)
    code.give(0)
    return code.function
