"""Which queries a block computes: one tile of queries of a head, or many, one after the other."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.linalg.kernels.attention.traits import Traits


class QueryTiles:
    """The tiles of queries of one block, and the tiles of keys that they see.

    `heads` counts the heads of queries of all batches.
    """

    def __init__(self, traits: Traits, lengths, heads) -> None:
        T = self.traits = traits
        self.queries, self.keys = lengths
        self.heads = heads
        self.blocks = lw.cdiv(self.queries, T.queries)
        #: How many of the tiles are this block's, and by how much its place moves from round to round.
        self.count, self.shift = 1, 0
        if T.tile.persistent and T.causal:
            # Tiles of one round are about as long as each other, and get shorter from round to round. So a
            # block that has a longer one in this round has a shorter one in the next.
            rounds = lw.cdiv(self.blocks * heads, lw.grid_dim.x)
            self.shift = lw.cdiv(lw.grid_dim.x, rounds)
            place = (lw.block_idx.x + (rounds - 1) * self.shift) % lw.grid_dim.x
            last = (rounds - 1) * lw.grid_dim.x + place
            self.count = rounds - lw.where(last < self.blocks * heads, 0, 1)
        elif T.tile.persistent:
            self.count = lw.cdiv(self.blocks * heads - lw.block_idx.x, lw.grid_dim.x)

    __iter__ = None  # only the running kernel knows how many there are

    @lw.device
    def __getitem__(self, number):
        """Return the head, the first query and the number of tiles of keys of this block's tile."""
        T = self.traits
        if T.tile.persistent:
            place = lw.block_idx.x
            if T.causal:
                place = (place + number * self.shift) % lw.grid_dim.x
            number = number * lw.grid_dim.x + place
        else:
            number = lw.block_idx.x
        if T.tile.persistent and T.causal:
            head, block = number % self.heads, number // self.heads
        else:
            head, block = number // self.blocks, number % self.blocks
        if T.causal:  # the longest first
            block = self.blocks - 1 - block
        first = block * T.queries
        return head, first, self.seen(first + T.queries)

    @lw.device
    def seen(self, end):
        """Return how many tiles of keys the queries before `end` see; one if they see nothing."""
        keys = self.keys
        if self.traits.causal:
            keys = lw.max(lw.min(keys, end + (keys - self.queries)), 1)
        return lw.cdiv(lw.assume(keys, nonnegative=True), self.traits.tile.keys)

    @lw.device
    def masked(self, query, tiles):
        """Return how many of the last tiles of keys have some that a query from `query` on does not see."""
        if not self.traits.masks_more:
            return 1
        whole = lw.max(query + (self.keys - self.queries) + 1, 0)
        return lw.max(tiles - lw.assume(whole, nonnegative=True) // self.traits.tile.keys, 1)
