"""The rules of fence.proxy.async: when bulk copies and matrix instructions see what plain stores wrote.

Plain accesses and cp.async reach memory by the generic proxy, bulk copies, wgmma and tcgen05 by the
asynchronous one. That may see an old value of what was written, and may overwrite what is still read, unless
a fence.proxy.async lies between: after the plain access, in the thread that made it, and before that thread
synchronises with the one that issues the operation.

A plain access is given by its epoch, which belongs to one warp, and by its lanes in that warp; the operation
that is issued now is `me`, one word with its lane (`happens_before.py`).
"""

from lanewise.jit.lane_functions import any_lane, choose, joined, lanes_in, largest
from lanewise.jit.record_layout import Words
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.proxy_records import AsyncClock
from lanewise.machine.checker.records import BlockWatch, OrderKind
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    in_block,
    local_warp,
    warp_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import (
    async_clock,
    hand_over,
    running_clock,
    warp_fence,
)

# a fence is executed ----------------------------------------------------------------------------------------


@compiled()
def fence_proxies(frame: WarpFrame, site: int, active: int) -> None:
    """Some lanes execute fence.proxy.async, for shared memory, for global memory or for both.

    What these lanes have written by plain stores before is visible to the asynchronous proxy from now on. So
    is what other warps wrote, as far as this one has learnt of it.
    """
    if active == 0:
        return
    watch = watch_of_running(frame)
    watch.fresh = 1  # what follows lies behind the fence
    kind, clock, fencing = watch.watch.sites[site].flags, running_clock(watch), lanes_in(active)
    warp = watch.first_warp + frame.index
    last = warp_fence(watch, warp)
    last.warp = warp + 1
    last.epoch = watch.epoch
    if kind != OrderKind.PROXY_FENCE_SHARED:
        clock.last_global_fence = choose(fencing, watch.epoch, clock.last_global_fence)
        clock.covered_by_own_global_fence = joined(clock.covered_by_own_global_fence, watch.clock.seen)
    if kind != OrderKind.PROXY_FENCE_GLOBAL:
        clock.last_fence = choose(fencing, watch.epoch, clock.last_fence)
        clock.covered_by_own_fence = joined(clock.covered_by_own_fence, watch.clock.seen)
        fence_reads(watch, frame, active)


@inlined
def fence_reads(watch: BlockWatch, frame: WarpFrame, active: int) -> None:
    """A fence of the running warp comes after the plain reads that the warp knows of."""
    known, clock = watch.clock, running_clock(watch)
    hand_over(watch, known.seen)
    # Of the lanes that do not execute the fence: what they did before they synchronised with the others.
    is_whole = alive_lanes(frame) & ~active == 0
    own = watch.epoch if is_whole else known.synced
    clock.handed_over_of[known.index] = max(clock.handed_over_of[known.index], own)


# before the asynchronous proxy accesses what was written ----------------------------------------------------

#: The answers of `fenced`: no fence, one in the thread that wrote, one in the warp that issues the operation,
#: after it had learnt of the write.
UNFENCED, FENCED, FENCED_BY_ISSUER = 0, 1, 2


@compiled()
def fenced(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> int:
    """Return whether a plain write is visible to the asynchronous proxy: a fence.proxy.async lies between.

    The fence belongs after the write, in the thread that wrote, and `me` comes after the fence (FENCED). One
    that the issuing warp executes after it has learnt of the write works on hardware, but PTX does not
    promise it (FENCED_BY_ISSUER).
    """
    writer, clock = local_warp(watch, epoch), running_clock(watch)
    if not in_block(watch, writer):
        return fenced_in_other_block(watch, epoch, shared)
    if writer == watch.clock.index:
        return fenced_by_own_warp(watch, epoch, lanes, shared)
    # What the warp that wrote has told others at barriers of the fences of all of its lanes.
    known = clock.fenced_of[writer] if shared else clock.fenced_global_of[writer]
    if known >= epoch or fenced_by_writers(watch, epoch, lanes, shared, me):
        return FENCED
    by_issuer = clock.covered_by_own_fence[writer] if shared else clock.covered_by_own_global_fence[writer]
    return FENCED_BY_ISSUER if by_issuer >= epoch else UNFENCED


@inlined
def last_fences(clock: AsyncClock, shared: bool) -> Words:
    """Return the epoch of each lane's last fence, for shared or for global memory."""
    return clock.last_fence if shared else clock.last_global_fence


@inlined
def fenced_by_own_warp(watch: BlockWatch, epoch: int, lanes: int, shared: bool) -> int:
    """Return whether the lanes of the running warp that wrote in an epoch have fenced since."""
    fences = last_fences(running_clock(watch), shared)
    if not any_lane(lanes_in(lanes) & (fences < epoch)):
        return FENCED
    # Another lane of the warp has fenced, after the lanes had synchronised.
    return FENCED_BY_ISSUER if largest(fences) >= epoch else UNFENCED


@inlined
def fenced_by_writers(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> bool:
    """Return whether the lanes of another warp that wrote in an epoch have fenced, and `me` comes later."""
    wrote = lanes_in(lanes)
    fences = last_fences(async_clock(watch, local_warp(watch, epoch)), shared)
    if any_lane(wrote & (fences < epoch)):
        return False
    return ordered(watch, largest(choose(wrote, fences, 0)), 0, lanes, me) == ORDERED


@inlined
def fenced_in_other_block(watch: BlockWatch, epoch: int, shared: bool) -> int:
    """Return whether a write of another block was fenced: by a warp of that block, or by the running warp."""
    writer = warp_of(watch, epoch)
    by_block = fenced_by_block(watch, writer - writer % watch.warps, epoch)
    return FENCED if by_block or largest(last_fences(running_clock(watch), shared)) >= epoch else UNFENCED


@inlined
def fenced_by_block(watch: BlockWatch, first: int, epoch: int) -> bool:
    """Return whether a warp of a block, given by its first warp, has fenced in an epoch or later."""
    for warp in range(first, first + watch.warps):
        last = warp_fence(watch, warp)
        if (last.warp == warp + 1) & (last.epoch >= epoch):
            return True
    return False


# before the asynchronous proxy writes over what was read ----------------------------------------------------


@inlined
def reads_handed_over(watch: BlockWatch, epoch: int) -> bool:
    """Return whether the asynchronous proxy may write over what a warp of the block read in an epoch.

    A fence between the proxies lies between, or an mbarrier or a flag has told of the reads. Of other blocks
    it is not known, and counts as such.
    """
    reader = local_warp(watch, epoch)
    if in_block(watch, reader):
        return running_clock(watch).handed_over_of[reader] >= epoch
    return True


@inlined
def fenced_by_readers(watch: BlockWatch, epoch: int, lanes: int) -> bool:
    """Return whether lanes that read in an epoch belong to the running warp, and all have fenced since."""
    is_own = local_warp(watch, epoch) == watch.clock.index
    return is_own and not any_lane(lanes_in(lanes) & (running_clock(watch).last_fence < epoch))
