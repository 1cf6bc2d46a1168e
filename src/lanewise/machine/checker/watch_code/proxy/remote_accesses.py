"""Accesses to the shared memory of other blocks of a cluster are put on record here.

The memory of a block is gone when its last thread has exited. So each access by another block has to happen
before the exit of at least one thread of the block: it waits at the cluster's barrier, for a phase of an
mbarrier or for a flag that comes after the access. `exits.py` looks at that when threads exit.
"""

from lanewise.jit.lane_functions import choose, lanes_in
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.proxy_records import RemoteAccess
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.watch_code.clocks.vector_clocks import watch_of
from lanewise.machine.checker.watch_code.watch_module import LaneLongs

#: A phase and the number of its mbarrier in one word: the number plus one is in the low bits.
NUMBER_BITS = 8


@inlined
def is_in_cluster(watch: BlockWatch) -> bool:
    """Return whether a block has other blocks beside it that may access its memory."""
    return watch.remote_accesses != 0


@inlined
def remote_access(home: BlockWatch, warp: int) -> RemoteAccess:
    """Return the RemoteAccess of a warp, by its number in the cluster, to the memory of a block."""
    return RemoteAccess.at(home.remote_accesses + warp * RemoteAccess.BYTES)


@inlined
def running_remote_access(watch: BlockWatch, home: BlockWatch) -> RemoteAccess:
    """Return the RemoteAccess of the running warp to the memory of another block."""
    return remote_access(home, watch.first_warp - watch.cluster_first + watch.clock.index)


@compiled()
def note_remote(watch: BlockWatch, home: BlockWatch, site: int, addresses: LaneLongs, active: int) -> None:
    """Lanes access another block's memory."""
    noted, lanes = running_remote_access(watch, home), lanes_in(active)
    noted.epoch = choose(lanes, watch.epoch, noted.epoch)
    noted.row = choose(lanes, site, noted.row)
    noted.phase = choose(lanes, 0, noted.phase)
    noted.address = choose(lanes, addresses.longs, noted.address)


@inlined
def note_remote_arrival(watch: BlockWatch, home: BlockWatch, lane: int, number: int, phase: int) -> None:
    """Note that the access just noted is an arrival in a phase of an mbarrier of the other block."""
    if is_in_cluster(home):
        running_remote_access(watch, home).phase[lane] = (phase << NUMBER_BITS) | (number + 1)


@compiled()
def cluster_wait(frame: WarpFrame, site: int, active: int) -> None:
    """Lanes wait at the barrier of their cluster."""
    clock = watch_of(frame.block).clocks[frame.index]
    clock.cluster_unwaited = clock.cluster_unwaited & ~active
