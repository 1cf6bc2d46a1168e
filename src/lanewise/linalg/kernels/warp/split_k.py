"""How K is shared in kernels of mma.sync: by the warps of a block, and by the blocks of a cluster.

Each warp of a block may sum one part of K, and so may each block of a cluster, whose blocks run on different
multiprocessors. Parts are added in order: those of a block first, through its shared memory, then the blocks'
sums, through that of the blocks that own them.
"""

from __future__ import annotations

from math import gcd

from lanewise import lang as lw
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.warp.tiles import LANES
from lanewise.linalg.kernels.warp.traits import WarpTraits


def part_of_k(T: WarpTraits, K, team) -> tuple[Scalar, Scalar]:
    """Return where the part of K begins that a team of a block sums, and how long parts are: all but the
    last, and those that K is too short for."""
    step, parts = T.plan.tile[2], T.plan.split * T.plan.groups
    if parts == 1:
        return lw.i32(0), K
    part = team + lw.cluster.rank() * T.plan.split if T.plan.groups > 1 else team
    length = lw.cdiv(lw.cdiv(K, step), parts) * step
    return part * length, length


@lw.device
def added_parts(T, acc, team):
    """Return the sums of a block's parts of K, added in order, for the warps that have the first part."""
    lw.syncthreads()  # all warps have left the operands' tiles, whose place the sums take
    parts, flat = T.plan.split - 1, [tile for row in acc for tile in row]
    per_tile = len(flat[0])
    layout = Layout((T.team, len(flat) * per_tile, parts), (1, T.team, T.team * len(flat) * per_tile))
    sums = lw.dynamic_shared(T.problem.sums, layout)
    thread = lw.thread_idx.x % T.team
    if team > 0:
        for i in range(len(flat)):
            for j in range(per_tile):
                sums[thread, i * per_tile + j, team - 1] = flat[i][j]
    lw.syncthreads()
    if team == 0:
        for part in range(parts):
            for i in range(len(flat)):
                for j in range(per_tile):
                    flat[i][j] = flat[i][j] + sums[thread, i * per_tile + j, part]
    return acc


class ClusterExchange:
    """How the blocks of a cluster, each of which has summed a part of K, add their sums of a tile.

    Each block owns an equal part of each warp's sums: some of its fragments, and of those, if there are fewer
    fragments than blocks, the ones in some lanes. All warps write their sums to the shared memory of the
    owners and arrive there at an mbarrier. The owner adds them in order. Nobody reads or writes the shared
    memory of a block that has left: a block waits for all that is sent to it.
    """

    def __init__(self, traits: WarpTraits) -> None:
        T = self.traits = traits
        groups, (wm, wn) = T.plan.groups, T.warp
        fragments, self.values = wm // T.mma.m * (wn // T.mma.n), T.mma.m * T.mma.n // LANES
        #: Owners of different fragments, and of different lanes of the same ones; what each of them owns.
        self.shares = gcd(fragments, groups)
        self.lane_shares = groups // self.shares
        self.fragments, self.lanes = fragments // self.shares, LANES // self.lane_shares
        sizes = (self.values, self.lanes, T.team // LANES, self.fragments, groups)
        offset = T.shared_bytes - T.exchange_bytes
        self.sums = lw.dynamic_shared(T.problem.sums, Layout(sizes), offset=offset)
        self.ready = lw.mbarrier(T.team // LANES)

    @lw.device
    def begin(self) -> None:
        """Prepare the barriers, for an arrival from each block, and say to the cluster that this one runs."""
        if lw.thread_idx.x == 0:
            self.ready.init(self.traits.plan.groups)
            lw.fence_mbarrier_init()
        lw.syncwarp()
        lw.cluster.arrive(relaxed=True)  # the fence has released the barriers

    @lw.device
    def wait(self) -> None:
        """Wait until all blocks of the cluster run: others may write to their shared memory then."""
        lw.syncwarp()
        lw.cluster.wait()

    @lw.device
    def added(self, sent):
        """Return the fragments that the block owns with all blocks' sums, the number of the first of them,
        and whether this lane has any of them; `sent` are the block's own sums of the tile."""
        T, rank, lane, warp = self.traits, lw.cluster.rank(), lw.lane_id(), lw.thread_idx.x // LANES
        share, within = lane // self.lanes, lane % self.lanes
        for number in range(len(sent)):
            place = self.sums.ptr(0, within, warp, number % self.fragments, rank)
            owner = number // self.fragments * self.lane_shares + share
            lw.cluster.map(place, owner).store([sent[number][i] for i in range(self.values)])
        lw.syncwarp()
        if lane < T.plan.groups:
            self.ready[warp].remote(lane).arrive()
        self.ready[warp].wait(0, scope="cluster")
        totals = []
        for number in range(self.fragments):
            total = T.mma.zeros()
            for group in range(T.plan.groups):
                more = self.sums.ptr(0, within, warp, number, group).load(self.values)
                for i in range(self.values):
                    total[i] = total[i] + more[i] if group else more[i]
            totals.append(total)
        return totals, rank // self.lane_shares * self.fragments, rank % self.lane_shares == share
