"""Which queries a block computes: one tile of queries of a head, or many, one after the other.

A persistent block takes its next tile from a counter in memory, so that no block has more work than another.
Its producer asks for it, and tells the consumers through shared memory. Where the keys of a tile are divided,
each of its blocks (the first axis of the grid) has some of the tiles of keys.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.linalg.kernels.attention.traits import Traits

#: How many tiles of a head are computed at the same time, at least, if it has so many: keys that one of them
#: loads are in L2 for the others.
_AT_ONCE = 4
#: How many tiles each block has of heads that are computed together, at least: the last ones are short.
_EACH = 4


class QueryTiles:
    """The tiles of queries of all heads, and the tiles of keys that they see.

    `heads` counts the heads of queries of all batches; `counter` is a word in memory that is zero before the
    launch and after it, or null: then a block takes every so many tiles as there are blocks.
    """

    def __init__(self, traits: Traits, lengths, heads, counter) -> None:
        T = self.traits = traits
        self.queries, self.keys = lengths
        self.heads, self.counter = heads, counter
        self.blocks = lw.cdiv(self.queries, T.tile.queries)
        self.count = self.blocks * heads
        #: The head and the first query of a tile, of one that is computed and of the next one.
        self.announced = lw.shared(lw.i32, (2, 2)) if T.tile.persistent else None

    # one tile -----------------------------------------------------------------------------------------------

    @lw.device
    def place(self, number):
        """Return the head and the first query of a tile; causal ones begin with the longest."""
        T, heads, first_head = self.traits, self.heads, 0
        if T.causal and T.tile.persistent:
            grid = lw.grid_dim.x
            together = lw.min(lw.cdiv(grid, _AT_ONCE), lw.cdiv(_EACH * grid, self.blocks))
            together = lw.cdiv(heads, lw.cdiv(heads, together))
            first_head = number // (together * self.blocks) * together
            number = number - first_head * self.blocks
            together = lw.min(together, heads - first_head)
            head, block = number % together, number // together
        else:
            head, block = number // self.blocks, number % self.blocks
        if T.causal:
            block = self.blocks - 1 - block
        return first_head + head, block * T.tile.queries

    @lw.device
    def part(self, first):
        """Return the first tile of keys that the block has of the queries from `first` on, and the one after
        its last; both are the same if there are fewer tiles than parts."""
        end = self.seen(first + self.traits.tile.queries)
        if not self.traits.divided:
            return 0, end
        part, parts = lw.block_idx.x, lw.grid_dim.x
        return part * end // parts, (part + 1) * end // parts

    @lw.device
    def seen(self, end):
        """Return how many tiles of keys the queries before `end` see; one if they see nothing."""
        keys = self.keys
        if self.traits.causal:
            keys = lw.max(lw.min(keys, end + (keys - self.queries)), 1)
        return lw.cdiv(lw.assume(keys, nonnegative=True), self.traits.tile.keys)

    @lw.device
    def masked(self, query, tiles):
        """Return how many of so many tiles of keys, the last of them, have keys that a query from `query` on
        does not see."""
        if not self.traits.masks_more:
            return 1
        whole = lw.max(query + (self.keys - self.queries) + 1, 0)
        return lw.max(tiles - lw.assume(whole, nonnegative=True) // self.traits.tile.keys, 1)

    # one after the other ------------------------------------------------------------------------------------

    @lw.device
    def next(self, number):
        """Return the number of the tile after this one; all tiles are done if it is `count` or more."""
        if not self.traits.tile.persistent:
            return self.count
        if self.counter != 0:
            # Blocks ask as often as there are tiles, so the counter is zero again after the last one.
            number = lw.atomic_inc(self.counter, (self.count - 1).to(lw.u32)).to(lw.i32)
        return number + lw.grid_dim.x

    @lw.device
    def announce(self, asked, head, first) -> None:
        """Tell the consumers what comes next, before the producer commits its queries; no head: nothing.

        A place is written again two tiles later: the consumers have met behind their results in between.
        """
        slot = 1 - asked.phase
        self.announced[slot, 0] = head
        self.announced[slot, 1] = first

    @lw.device
    def receive(self, queries):
        """Return the head and the first query that were announced with these queries."""
        return self.announced[queries.phase, 0], self.announced[queries.phase, 1]
