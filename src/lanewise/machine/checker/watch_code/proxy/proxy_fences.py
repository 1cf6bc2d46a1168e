"""The rules of fence.proxy.async: whether a fence lies between a plain access and the asynchronous proxy's.

The asynchronous proxy may see an old value of what was written, and may overwrite what is still read, unless
there is a fence. What a fence notes when it is executed: `fence_proxies` in `async_clocks.py`.
"""

from __future__ import annotations

from lanewise.jit.lane_functions import any_lane, choose, lanes_in, largest
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import in_block, local_warp, warp_of
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_clock, running_clock, warp_fence

#: The answers of `fenced`: no fence, one in the thread that wrote, one in the warp that issues the operation,
#: after it had learnt of the write.
UNFENCED, FENCED, FENCED_BY_ISSUER = 0, 1, 2


@inlined
def fenced_by_own_warp(watch: BlockWatch, epoch: int, lanes: int, shared: bool) -> int:
    """Return whether the lanes of the running warp that wrote in an epoch have fenced since."""
    clock = running_clock(watch)
    fences = clock.last_fence if shared else clock.last_global_fence
    if not any_lane(lanes_in(lanes) & (fences < epoch)):
        return FENCED
    # Another lane of the warp has fenced, after the lanes had synchronised.
    return FENCED_BY_ISSUER if largest(fences) >= epoch else UNFENCED


@inlined
def fenced_in_other_block(watch: BlockWatch, epoch: int, shared: bool) -> int:
    """Return whether a write of another block was fenced: by a warp of that block, or by the running warp."""
    writer, clock = warp_of(watch, epoch), running_clock(watch)
    first = writer - writer % watch.warps
    for warp in range(first, first + watch.warps):
        last = warp_fence(watch, warp)
        if (last.warp == warp + 1) & (last.epoch >= epoch):
            return FENCED
    fences = clock.last_fence if shared else clock.last_global_fence
    return FENCED if largest(fences) >= epoch else UNFENCED


@inlined
def fenced_by_writers(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> bool:
    """Return whether the lanes of another warp that wrote in an epoch have fenced, and `me` comes later."""
    clock, wrote = async_clock(watch, local_warp(watch, epoch)), lanes_in(lanes)
    fences = clock.last_fence if shared else clock.last_global_fence
    if any_lane(wrote & (fences < epoch)):
        return False
    return ordered(watch, largest(choose(wrote, fences, 0)), 0, lanes, me) == ORDERED


@compiled()
def fenced(watch: BlockWatch, epoch: int, lanes: int, shared: bool, me: int) -> int:
    """Return whether a plain write is visible to the asynchronous proxy: a fence.proxy.async lies between.

    The write was made in an epoch, by some lanes of that epoch's warp. The fence belongs after the write, in
    the thread that wrote, and `me` comes after the fence (FENCED). One that the issuing warp executes after
    it has learnt of the write works on hardware, but PTX does not promise it (FENCED_BY_ISSUER).
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
def fenced_since(watch: BlockWatch, epoch: int) -> bool:
    """Return whether a warp of the block has executed a fence between the proxies after an epoch."""
    is_fenced = False
    for warp in range(watch.first_warp, watch.first_warp + watch.warps):
        last = warp_fence(watch, warp)
        is_fenced = is_fenced | ((last.warp == warp + 1) & (last.epoch > epoch))
    return is_fenced


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
