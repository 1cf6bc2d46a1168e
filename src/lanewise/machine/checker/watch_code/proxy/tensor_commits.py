"""tcgen05.commit: which operations of a thread are complete once a phase of an mbarrier is.

A commit tells of everything that its thread has issued to the pipe before. A thread may rely on an operation
if it knows the phase of any later commit of the same thread to be complete. By the PTX ISA it needs a
tcgen05.fence::after_thread_sync as well before an asynchronous instruction of its own.
"""

from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker.proxy_records import PHASES_KEPT, NotedOperation
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.tensor_memory.records import COMMITS_KEPT, TensorClock
from lanewise.machine.checker.watch_code.clocks.happens_before import ORDERED, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import in_block, local_warp
from lanewise.machine.checker.watch_code.proxy.async_clocks import operation
from lanewise.machine.checker.watch_code.proxy.phases import followed_barrier, phase_is_known, phase_of


@inlined
def tensor_clock(watch: BlockWatch, index: int) -> TensorClock:
    """Return the TensorClock of a warp by its number in the block."""
    return TensorClock.at(watch.tensor_clocks + index * TensorClock.BYTES)


@compiled()
def tensor_is_complete(watch: BlockWatch, product: NotedOperation, epoch: int, me: int) -> bool:
    """Return whether an operation of the pipe of tcgen05 is known to be complete."""
    home = product.home
    # Another cluster, or an earlier one.
    if (home.cluster_first != watch.cluster_first) | (epoch < home.start):
        return True
    clock = tensor_clock(home, product.agent)
    count = clock.commit_count
    # What was committed longer ago than the commits go back counts as known.
    if count > COMMITS_KEPT and epoch < clock.commits[count & (COMMITS_KEPT - 1)].epoch:
        return True
    for number in range(max(count - COMMITS_KEPT, 0), count):
        commit = clock.commits[number & (COMMITS_KEPT - 1)]
        is_later = (commit.epoch > epoch) & (commit.lane == product.lane)
        if is_later and phase_is_known(watch, commit.home, commit.number, commit.phase, me):
            return True
    return False


@compiled()
def is_fenced(watch: BlockWatch, epoch: int) -> bool:
    """Return whether the running warp knew of an epoch at its last tcgen05.fence::after_thread_sync."""
    clock, now = tensor_clock(watch, watch.clock.index), watch.clock
    if clock.after_fence < epoch:
        return False
    local = local_warp(watch, epoch)
    if not in_block(watch, local):
        return True
    knows = (now.acquired >= epoch) | (now.seen[local] >= epoch)
    knew = (clock.after_acquired >= epoch) | (clock.after_seen[local] >= epoch)
    return knew | (not knows)  # known in another way, which is not followed back to the fence


@inlined
def knew_witness(watch: BlockWatch, epoch: int, lanes: int, me: int) -> bool:
    """Return whether the warp knew at its last fence of lanes of another one that saw a phase complete."""
    return is_fenced(watch, epoch) and ordered(watch, epoch, 0, lanes, me) == ORDERED


@compiled()
def completion_is_fenced(watch: BlockWatch, epoch: int, me: int) -> bool:
    """Return whether the warp knew at its last fence that an operation of the pipe, complete now, was."""
    product, own = operation(watch, epoch), tensor_clock(watch, watch.clock.index)
    home = product.home
    if (product.epoch != epoch) | (home.cluster_first != watch.cluster_first) | (epoch < home.start):
        return True  # too long ago
    clock = tensor_clock(home, product.agent)
    for number in range(max(clock.commit_count - COMMITS_KEPT, 0), clock.commit_count):
        commit = clock.commits[number & (COMMITS_KEPT - 1)]
        if (commit.epoch > epoch) & (commit.lane == product.lane):
            barrier = followed_barrier(commit.home, commit.number)
            now = barrier.phase
            if (commit.phase == 0) | (commit.phase < now - (PHASES_KEPT - 1)):
                return True  # not on record
            for later in range(commit.phase, now):
                seen = phase_of(barrier, later)
                for warp in range(watch.warps):
                    at = seen.witnessed[warp]
                    is_own = (warp == watch.clock.index) & (commit.home is watch)
                    if (at != 0) & is_own & (at <= own.after_fence):
                        return True
                    if (at != 0) & (not is_own) and knew_witness(watch, at, seen.witnesses[warp], me):
                        return True
    return False
