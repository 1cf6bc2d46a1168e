"""The sizes of an attention, and the tile by which it is computed: what was fastest on an H200."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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


#: The fastest on an H200, by the size of a head and whether it is causal. Results depend on `keys` alone.
TILES = {
    (64, False): Tile(128, 3, 3, ordered=True, persistent=True),
    (64, True): Tile(128, 3, 2, ordered=True, persistent=True),
    (96, False): Tile(128, 2, 2, persistent=True),
    (96, True): Tile(128, 2, 2),
    (128, False): Tile(128, 2, 2, persistent=True),
    (128, True): Tile(128, 2, 2),
    (256, False): Tile(80, 2, 2),
    (256, True): Tile(80, 2, 2),
}
HEAD_SIZES = tuple(sorted({size for size, _ in TILES}))


def tile_of(sizes: Sizes, causal: bool) -> Tile:
    """Return the tile of an attention. It depends on sizes alone, so that bits are the same on all devices.

    >>> tile_of(Sizes(1, 8, 8, 4096, 4096, 256), causal=False).keys
    80
    """
    return TILES[sizes.depth, causal]
