"""Vector clocks: blocks and epochs begin, what the running warp knows of others, suspicions are reported.

What orders the lanes of a warp is in `warp_order.py`, barriers and fences are in `block_order.py`, and
`happens_before.py` answers which access happened before which.
"""

from lanewise.jit.lane_functions import address_of, choose, mask_of, set_bits, smallest
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker.proxy_records import AsyncClock, RemoteAccess
from lanewise.machine.checker.records import BlockWatch, LaneClocks, SiteRow, WarpClock, WatchRecord
from lanewise.machine.checker.watch_code.watch_module import FAR, LANES, LaneWords, clear_bytes, report


@inlined
def watch_of(block: BlockRecord) -> BlockWatch:
    """Return what the watch keeps for a block."""
    return BlockWatch.at(block.watch)


@inlined
def frame_of(block: BlockRecord, index: int) -> WarpFrame:
    """Return the frame of a warp by its number in the block."""
    return WarpFrame.at(block.frames + index * block.launch.frame_bytes)


@inlined
def row_of(frame: WarpFrame, site: int) -> SiteRow:
    """Return a row of the site table."""
    return watch_of(frame.block).watch.sites[site]


@compiled(noinline=True)
def suspect(kind: int, frame: WarpFrame, site: int, lane: int, address: int, epoch: int, who: int) -> None:
    """Count a suspicion at an instruction, and report it to Python up to the row's limit."""
    launch = watch_of(frame.block).watch
    row = launch.sites[site]
    row.counts[kind] += 1
    if row.limits[kind] > 0:
        row.limits[kind] -= 1
        report(launch.callback, kind, frame, site, lane, address, epoch, who)


# which warp an epoch belongs to -----------------------------------------------------------------------------


@inlined
def warp_of(watch: BlockWatch, epoch: int) -> int:
    """Return the warp of an epoch, counted over all blocks of the watch."""
    return watch.watch.log[epoch]


@inlined
def local_warp(watch: BlockWatch, epoch: int) -> int:
    """Return the warp of an epoch, counted from the first warp of this block."""
    return warp_of(watch, epoch) - watch.first_warp


@inlined
def in_block(watch: BlockWatch, warp: int) -> bool:
    """Return whether a warp, counted from the first of this block, belongs to it."""
    return (warp >= 0) & (warp < watch.warps)


@inlined
def in_cluster(watch: BlockWatch, epoch: int) -> bool:
    """Return whether an epoch is one of a warp of the block's cluster."""
    number = warp_of(watch, epoch) - watch.cluster_first
    return (number >= 0) & (number < watch.warps * watch.cluster_blocks)


@inlined
def rank_of(watch: BlockWatch, epoch: int) -> int:
    """Return the rank of the block in the cluster that an epoch belongs to."""
    return (warp_of(watch, epoch) - watch.cluster_first) // watch.warps


@inlined
def epochs_exhausted(watch: BlockWatch) -> bool:
    """Return whether there are no more epochs, so that nothing can be ordered any more."""
    return watch.epoch == watch.watch.log_size - 1


# lanes ------------------------------------------------------------------------------------------------------


@inlined
def alive_lanes(frame: WarpFrame) -> int:
    """Return the lanes of a warp that have not exited, as bits."""
    return mask_of(frame.pcs != abi.EXITED)


@inlined
def has_exited(frame: WarpFrame) -> bool:
    """Return whether all lanes of a warp have exited."""
    return alive_lanes(frame) == 0


@inlined
def lane_is_in(lane: int, lanes: int) -> bool:
    """Return whether a lane's bit is set in a mask."""
    return (lanes >> lane) & 1 != 0


@inlined
def complete_copies(lanes: LaneClocks, now: int) -> int:
    """Return the epoch up to which the asynchronous copies of all lanes of a warp are complete."""
    copied = lanes.copied
    return smallest(choose(lanes.issued > copied, copied, now))


@inlined
def operand_of(frame: WarpFrame, lane: int, register: int, constant: int) -> int:
    """Return a 32-bit operand of an instruction: of a register at an offset, else a constant."""
    return LaneWords.at(address_of(frame) + register).words[lane] if register > 0 else constant


# blocks and epochs ------------------------------------------------------------------------------------------


@inlined
def next_epoch(launch: WatchRecord) -> int:
    """Begin a new epoch and return it; the last one goes on for ever."""
    now = min(launch.now + 1, launch.log_size - 1)
    launch.now = now
    return now


@inlined
def barrier_of(watch: BlockWatch, number: int) -> WarpClock:
    """Return the clock of a barrier, which is used from now on."""
    watch.barriers_used = watch.barriers_used | 1 << number
    return watch.barriers[number]


@compiled()
def begin_block(watch: BlockWatch, linear: int) -> None:
    """Begin a thread block with fresh clocks."""
    launch, warps = watch.watch, watch.warps
    watch.linear = linear
    now = next_epoch(launch)
    watch.start = now
    watch.first_warp = launch.next_warp
    launch.begun[launch.next_warp // warps] = linear
    launch.next_warp += warps
    clear_bytes(address_of(watch.clocks), warps * WarpClock.BYTES)
    for number in set_bits(watch.barriers_used):
        clear_bytes(address_of(watch.barriers[number]), WarpClock.BYTES)
    watch.barriers_used = 0
    clear_bytes(watch.local_shadow, warps * LANES * (watch.local_bytes >> 2))
    for index in range(warps):
        clock = watch.clocks[index]
        clock.index = index
        clock.synced = now - 1
        clock.least = FAR if warps == 1 else 0
        lanes = watch.lane_clocks[index]
        lanes.groups = 0
        lanes.issued = 0
        lanes.copied = 0
    watch.own_after = now
    watch.followed_count = 0
    if watch.remote_accesses != 0:
        clear_bytes(watch.remote_accesses, warps * watch.cluster_blocks * RemoteAccess.BYTES)
    if watch.async_clocks != 0:
        clear_bytes(watch.async_clocks, (warps + abi.BARRIERS) * AsyncClock.BYTES)
        clear_bytes(watch.register_states, watch.register_bytes)
        clear_bytes(watch.tensor_clocks, watch.tensor_clock_bytes)


@compiled()
def begin_epoch(frame: WarpFrame) -> None:
    """Begin a new epoch of a warp."""
    block = frame.block
    watch = watch_of(block)
    launch = watch.watch
    begins = block.linear != watch.linear
    if begins:  # the blocks of a cluster begin together
        first_warp = launch.next_warp
        for rank in range(block.launch.cluster_blocks):
            member = block.members[rank].block
            watch_of(member).cluster_first = first_warp
            begin_block(watch_of(member), member.linear)
    if begins | (launch.current != address_of(frame)):
        watch.own_after = launch.now
    now = next_epoch(launch)
    launch.current = address_of(frame)
    index = frame.index
    launch.log[now] = watch.first_warp + index
    watch.epoch = now
    watch.fresh = 0
    clock = watch.clocks[index]
    clock.last = now
    watch.clock = clock
    watch.running_lanes = watch.lane_clocks[index]
    set_floors(watch)


@compiled()
def set_floors(watch: BlockWatch) -> None:
    """Compute the epochs up to which everything happened before."""
    clock = watch.clock
    acquired, synced = clock.acquired, clock.synced
    known = min(acquired, synced)
    # Other blocks of a cluster may access shared memory too.
    in_own, in_all = clock.least, clock.cluster_known
    shared_by_all = min(in_own, in_all) if watch.cluster_blocks > 1 else in_own
    known_shared = min(max(acquired, shared_by_all, watch.start - 1), synced)
    # What only some lanes have learnt, or by a release that was incomplete, is looked at access by access.
    if clock.learnt_count == 0:
        clock.global_known = known
        clock.shared_known = known_shared
    incomplete = clock.incomplete_from
    bound = incomplete if incomplete != 0 else FAR
    watch.global_floor = min(known, clock.global_known, bound)
    watch.shared_floor = min(known_shared, clock.shared_known, bound)
    if epochs_exhausted(watch):
        watch.shared_floor = FAR
        watch.global_floor = FAR


@inlined
def watch_of_running(frame: WarpFrame) -> BlockWatch:
    """Return the watch of the block of the warp that runs; a new epoch of the warp begins if it has to."""
    block = frame.block
    watch = watch_of(block)
    has_turn = watch.watch.current == address_of(frame)
    if (not has_turn) | (watch.fresh != 0) | (block.linear != watch.linear):
        begin_epoch(frame)
    return watch
