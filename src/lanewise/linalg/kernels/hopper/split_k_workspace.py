"""Split-K over clusters: sums of one tile, added in order by whichever comes last, through a workspace.

Each writes its sums to global memory and counts itself; the one that finds all others counted reads all of
them and adds them in order of K. Nobody waits, and the result does not depend on who was last. The last one
sets the counter back to zero.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits


def workspace_bytes(traits: Traits, m: int, n: int, batch: int) -> int:
    """Return the bytes of all clusters' sums of a problem."""
    across, along = traits.plan.cluster
    tiles = -(-m // (traits.bm * across)) * across * -(-n // (traits.bn * along)) * along * batch
    return tiles * traits.bm * traits.bn * 4 * traits.plan.groups


def fragment_of(traits: Traits, memory, number, group, block, four, thread) -> Pointer:
    """Return where four sums of a thread lie: of a consumer's share of a tile, of one group's cluster."""
    blocks, slots = traits.consumer_rows // ROWS, traits.store_columns // 2
    start = (number * traits.plan.groups + group) * (blocks * slots * WARPGROUP)
    place = (block * (slots // 4) + four) * (4 * WARPGROUP) + 4 * thread
    return (memory + start + place).aligned(16)


class SplitInWorkspace:
    """The exchange between clusters; its methods are called by all threads of a consumer."""

    def __init__(self, traits: Traits, counters, memory) -> None:
        self.traits, self.counters, self.memory = traits, counters, memory
        self.blocks = traits.consumer_rows // ROWS
        self.slots = traits.store_columns // 2
        self.flags = lw.shared(lw.i32, traits.consumers)

    def _number(self, own, mine) -> Scalar:
        """Return the number of a consumer's share of a tile, the same in all clusters of the tile."""
        T = self.traits
        matrix = lw.block_idx.z // T.plan.groups
        place = (matrix * lw.grid_dim.y + lw.block_idx.y) * (lw.grid_dim.x // T.cluster_size)
        tile = (place + lw.block_idx.x // T.cluster_size) * T.multicasting
        if T.multicasting > 1:
            tile = tile + lw.cluster.rank() % T.multicasting
        return (tile * T.owners + mine) * T.consumers + own

    def _place(self, number, group, block: int, four: int) -> Pointer:
        """Return where four sums of this thread lie."""
        thread = lw.thread_idx.x % WARPGROUP
        return fragment_of(self.traits, self.memory, number, group, block, four, thread)

    @lw.device
    def leave(self, sums, own, mine) -> None:
        """Write this cluster's sums to the workspace."""
        number, group = self._number(own, mine), lw.block_idx.z % self.traits.plan.groups
        for block in range(self.blocks):
            for four in range(self.slots // 4):
                place = self._place(number, group, block, four)
                place.store([sums[block][4 * four + i] for i in range(4)])

    @lw.device
    def last(self, sums, own, mine):
        """Write this cluster's sums and return whether those of all others were there before."""
        T = self.traits
        number = self._number(own, mine)
        thread = lw.thread_idx.x % WARPGROUP
        self.leave(sums, own, mine)
        lw.fence("gpu")
        lw.barrier(1 + own, WARPGROUP)
        if thread == 0:
            before = lw.atomic_add(self.counters + number, 1)
            self.flags[own] = (before == T.plan.groups - 1).to(lw.i32)
            if before == T.plan.groups - 1:
                self.counters[number] = 0
            lw.fence("gpu")
        lw.barrier(1 + own, WARPGROUP)
        return self.flags[own] == 1

    @lw.device
    def sums(self, own, mine):
        """Return the sums of all clusters, added in order: a list for each 64 rows."""
        number = self._number(own, mine)
        totals = []
        for block in range(self.blocks):
            values = []
            for four in range(self.slots // 4):
                added = list(self._place(number, 0, block, four).load(4, cache="cg"))
                for group in range(1, self.traits.plan.groups):
                    more = self._place(number, group, block, four).load(4, cache="cg")
                    added = [added[i] + more[i] for i in range(4)]
                values += added
            totals.append(values)
        return totals
