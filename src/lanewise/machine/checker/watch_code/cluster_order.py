"""Compiled code of what orders the blocks of a cluster: its barrier.

After it everything that any block has done counts as known to the cluster. So no right kernel is accused;
races with blocks of other clusters that happened before the barrier are not found in these blocks.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, PartialRelease, WarpClock, WatchRecord
from lanewise.machine.checker.watch_code.async_clocks import follows
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, least, wide
from lanewise.machine.codegen.function_code import U32, Record


def write_cluster_order(module: ir.Module) -> None:
    """Write `release_cluster(block)`: the barrier of a cluster is complete; `block` is one of its blocks."""
    code = WatchCode(module, "release_cluster", ("block",))
    block = code.record("block")
    launch, watch = block.at(BlockRecord.launch), block.at(BlockRecord.watch).at(BlockWatch.watch)
    # An epoch of its own, in which no warp has published anything.
    now = least(watch.get(WatchRecord.now) + 1, watch.get(WatchRecord.log_size) - 1)
    watch.set(WatchRecord.now, now)
    slot = (now & (records.RELEASES_KEPT - 1)) * PartialRelease.BYTES
    Record(code, watch.get(WatchRecord.partial_releases) + slot).set(
        PartialRelease.epoch, code.constant(U32, 0)
    )
    with code.loop(launch.get(LaunchRecord.cluster_blocks)) as rank:
        member = Record(code, block.get(BlockRecord.members) + rank * MemberRow.BYTES).at(MemberRow.block)
        observed = member.at(BlockRecord.watch)
        with (
            code.when(member.get(BlockRecord.ended).equals(0)),
            code.loop(launch.get(LaunchRecord.warps)) as index,
        ):
            warp = Record(code, member.get(BlockRecord.frames) + index * launch.get(LaunchRecord.frame_bytes))
            clock = Record(code, observed.get(BlockWatch.clocks) + index * WarpClock.BYTES)
            clock.set(WarpClock.acquired, now)
            clock.set(WarpClock.least, now)
            pcs = warp.get(WarpFrame.pcs, U32, LANES)
            parked = (pcs > abi.PARKED - 1) & (pcs < abi.EXITED)
            here = parked & warp.get(WarpFrame.barrier, U32, LANES).equals(abi.WAITS_FOR_CLUSTER)
            lanes = Value(code, U32, code.builder.bitcast(here.handle, ir.IntType(32)))
            with code.when(lanes.differs(0)):
                code.call_number(module.functions["synchronise"], warp.address, wide(lanes))
            observed.set(BlockWatch.fresh, 1)
        with code.when(follows(observed)):
            code.call_number(module.functions["meet_async"], observed.address)
    watch.set(WatchRecord.current, 0)
    code.done()
