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


#: The fastest on an H200 by the size of a head: of many queries, and of at most 64.
TILES = {
    64: (Tile(128, 3, 2, ordered=True, persistent=True), Tile(128, 1, 3)),
    96: (Tile(112, 3, 2, ordered=True, persistent=True), Tile(112, 1, 2)),
    128: (Tile(128, 2, 2, persistent=True), Tile(128, 1, 3)),
    256: (Tile(80, 2, 2, ordered=True, persistent=True), Tile(80, 1, 2)),
}
HEAD_SIZES = tuple(TILES)
#: Queries of a tile with one consumer.
_FEW = 64


def tile_of(sizes: Sizes) -> Tile:
    """Return the tile of an attention. It depends on sizes alone, so that bits are the same on all devices;
    they depend on the number of keys alone, which is the same for few queries and for many.

    >>> tile_of(Sizes(1, 8, 8, 4096, 4096, 256)).keys, tile_of(Sizes(1, 8, 8, 1, 4096, 256)).consumers
    (80, 1)
    """
    many, few = TILES[sizes.depth]
    return few if sizes.queries <= _FEW else many
