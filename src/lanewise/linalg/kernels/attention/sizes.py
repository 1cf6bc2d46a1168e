"""A call of `lw.attention`, its sizes, and the tile by which it is computed: what was fastest on an H200."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from lanewise.formats import Format
from lanewise.linalg.operands import View


class Sizes(NamedTuple):
    """The sizes of an attention: batches, heads of queries and of keys, lengths, the size of a head."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int


@dataclass(frozen=True)
class Tile:
    """How an attention is computed: keys of a tile, warpgroups that multiply, stages of keys and values."""

    keys: int = 128
    consumers: int = 2
    stages: int = 2
    #: Whether consumers multiply one after the other, so that one computes exponentials while another does.
    ordered: bool = False
    #: Whether a block computes many tiles of queries, and loads the next while it finishes one.
    persistent: bool = False

    @property
    def queries(self) -> int:
        """Queries of a tile: 64 of each consumer."""
        return 64 * self.consumers


class AttentionCall(NamedTuple):
    """A call of `lw.attention` whose arguments fit together; views have four axes."""

    q: View
    k: View
    v: View
    out: View
    lse: View | None
    sizes: Sizes
    causal: bool
    scale: float

    @property
    def dtype(self) -> Format:
        """The type of queries, keys, values and results."""
        return self.q.format

    @property
    def views(self) -> tuple[View, View, View, View]:
        """Queries, keys, values and results."""
        return self.q, self.k, self.v, self.out


#: Keys of a tile by the size of a head; those of which the whole tiles are fewest take the least time.
KEYS = {64: (128,), 96: (112,), 128: (128,), 256: (80, 64)}
#: What a tile of keys costs beside its keys, in keys.
_KEYS_OF_A_STEP = 18
#: The fastest tiles of many queries on an H200, by the size of a head, and their speed beside each other.
MANY = {
    64: {Tile(consumers=3, ordered=True, persistent=True): 1.3, Tile(ordered=True, persistent=True): 1.0},
    96: {Tile(consumers=3, ordered=True, persistent=True): 1.0},
    128: {Tile(persistent=True): 1.0},
    256: {Tile(persistent=True): 1.0},
}
#: The tile of at most 64 queries.
FEW = Tile(consumers=1)
HEAD_SIZES = tuple(KEYS)


def tile_of(sizes: Sizes, causal: bool) -> Tile:
    """Return the tile of an attention. It depends on sizes alone, so that bits are the same on all devices;
    they depend on the number of keys alone, which is the same for few queries and for many.

    >>> tile_of(Sizes(1, 8, 8, 4096, 4096, 256), True).keys, tile_of(Sizes(1, 8, 8, 1, 4096, 256), True).keys
    (80, 80)
    """
    keys = min(KEYS[sizes.depth], key=lambda count: -(-sizes.keys // count) * (count + _KEYS_OF_A_STEP))
    if sizes.queries <= FEW.queries:
        return replace(FEW, keys=keys)
    rates = MANY[sizes.depth]
    fastest = min(rates, key=lambda tile: _scores(sizes, causal, tile.queries, keys) / rates[tile])
    return replace(fastest, keys=keys)


def _scores(sizes: Sizes, causal: bool, queries: int, keys: int) -> int:
    """Return how many scores of a head are computed by tiles of so many queries and keys.

    >>> _scores(Sizes(1, 1, 1, 256, 256, 64), True, 128, 128) // 128**2
    3
    """
    tiles = 0
    for end in range(queries, sizes.queries + queries, queries):
        seen = min(sizes.keys, end + sizes.keys - sizes.queries) if causal else sizes.keys
        tiles += max(1, -(-seen // keys))
    return tiles * queries * keys
