"""tcgen05.commit: which operations of a thread are complete once a phase of an mbarrier is.

A commit tells of everything that its thread has issued to the pipe before. A thread may rely on an operation
if it knows the phase of any later commit of the same thread to be complete.
"""

from __future__ import annotations

from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker.proxy_records import NotedOperation
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.tensor_memory.records import COMMITS_KEPT, TensorClock
from lanewise.machine.checker.watch_code.proxy.phases import phase_is_known


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
