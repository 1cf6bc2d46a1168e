"""The tile by which an attention is computed, and into how many parts its keys are divided: what was fastest
on an H200. Both depend on sizes alone, so that bits are the same on all devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from lanewise.formats import bf16
from lanewise.linalg.kernels.attention.sizes import Sizes, Tile
from lanewise.linalg.kernels.attention.traits import Traits
from lanewise.linalg.planning.gpus import GPUS

#: Keys of a tile by the size of a head; heads of 256 have fewer keys in a tile up to `SHORT` keys, and heads
#: of 96 more where all tiles together are shorter by this factor: of 256 keys, 256 instead of 336.
KEYS = {64: 128, 96: 112, 128: 128, 256: 80}
SHORT, KEYS_OF_SHORT = 2048, {256: 64}
MORE_KEYS, SHORTER = {96: 128}, 15 / 16
#: Registers that the scores of a tile, rounded ones and sums of a thread take at most if three warpgroups
#: multiply.
_MOST_OF_THREE = 136
#: The tiles of at most 64 queries, and how many queries may be computed by several of them: undivided ones if
#: there are at most so many for each multiprocessor.
FEW, MOST_BY_FEW, MOST_FOR_EACH = (Tile(consumers=1), Tile(consumers=1, persistent=True)), 1024, 2
#: The tiles of more than 64 queries, by the size of a head.
_BY_TURNS = Tile(ordered=True, persistent=True)
MANY = {
    64: (Tile(ordered=True), replace(_BY_TURNS, consumers=3), _BY_TURNS),
    96: (Tile(ordered=True), replace(_BY_TURNS, consumers=3), _BY_TURNS),
    128: (Tile(persistent=True),),
    256: (Tile(persistent=True),),
}
HEAD_SIZES = tuple(KEYS)
#: Into how many parts keys may be divided.
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
#: The most blocks for each that runs at the same time, if keys are divided.
_MOST_WAVES = 4


@dataclass(frozen=True)
class Costs:
    """What the model of time knows of a GPU, in microseconds: fitted to 491 attentions by 2 to 30 tiles and
    divisions each (`benchmarks/attention_plans.py`)."""

    #: A block's time before its first step, by its consumers, and how much of it a tile takes that is loaded
    #: while the block finishes another.
    begin: tuple[float, ...] = (2.95, 2.99, 3.85)
    again: float = 0.358
    #: A step of 128 keys by the size of a head, for one consumer and more.
    step_64: tuple[float, ...] = (0.748, 1.099, 1.332)
    step_96: tuple[float, ...] = (0.919, 1.391, 1.689)
    step_128: tuple[float, ...] = (1.034, 1.536)
    step_256: tuple[float, ...] = (1.661, 2.571)
    #: How much longer steps take if two blocks share a multiprocessor.
    shared: float = 1.662
    #: How much of the longest tile's time is left at the end, where there are more tiles than blocks at once.
    tail: float = 0.559
    #: The launch that adds parts; MB of a microsecond from memory, and of parts' sums.
    merge: float = 1.901
    bandwidth: float = 4.783
    bandwidth_of_sums: float = 2.912
    #: How far computing and reading overlap: the exponent of the norm of both times.
    overlap: float = 1.729

    def step(self, depth: int, tile: Tile) -> float:
        """Return the time of a step of a tile."""
        steps: tuple[float, ...] = getattr(self, f"step_{depth}")
        return steps[tile.consumers - 1] * tile.keys / 128


H200 = Costs()


def tile_of(sizes: Sizes, causal: bool, batch_invariant: bool = False) -> Tile:
    """Return the tile of an attention. Keys of a tile, which decide the bits, depend on the number of keys
    alone; parts depend on all sizes, and if the call is `batch_invariant`, there is one.

    >>> [tile_of(Sizes(1, 8, 8, queries, 4096, 256), True).keys for queries in (4096, 1)]
    [80, 80]
    >>> [tile_of(Sizes(batch, 8, 8, 1, 4096, 128), False).parts for batch in (1, 64)]
    [16, 1]
    """
    if not causal or sizes.queries <= FEW[0].queries:  # keys may grow from call to call, one by one
        sizes = sizes._replace(keys=_in_tiles(sizes.keys, _keys_of_tile(sizes)))
    return _fastest(sizes, causal, batch_invariant)


@lru_cache(maxsize=4096)
def _fastest(sizes: Sizes, causal: bool, batch_invariant: bool) -> Tile:
    """Return the tile for which the model of time expects the least."""
    tried = undivided(sizes)
    if not batch_invariant:
        tried += dict.fromkeys(divided for tile in tiles_of(sizes) for divided in divisions(sizes, tile))
    return min(tried, key=lambda tile: microseconds(sizes, causal, tile))


def _keys_of_tile(sizes: Sizes) -> int:
    """Return how many keys a tile has.

    >>> [_keys_of_tile(Sizes(1, 8, 8, 64, keys, 96)) for keys in (112, 113, 256, 257, 512, 640)]
    [112, 128, 128, 112, 128, 112]
    """
    keys = KEYS[sizes.depth]
    if sizes.keys <= SHORT:
        keys = KEYS_OF_SHORT.get(sizes.depth, keys)
    more = MORE_KEYS.get(sizes.depth, keys)
    return more if _in_tiles(sizes.keys, more) <= SHORTER * _in_tiles(sizes.keys, keys) else keys


def _in_tiles(keys: int, of_tile: int) -> int:
    """Return how many keys whole tiles have."""
    return -(-keys // of_tile) * of_tile


def tiles_of(sizes: Sizes) -> list[Tile]:
    """Return the tiles that an attention may be computed by."""
    keys = _keys_of_tile(sizes)
    tiles = [*FEW] * (sizes.queries <= MOST_BY_FEW)
    tiles += [*MANY[sizes.depth]] * (sizes.queries > FEW[0].queries)
    three_fit = keys * 3 // 4 + sizes.depth // 2 <= _MOST_OF_THREE
    return [replace(tile, keys=keys) for tile in tiles if tile.consumers < 3 or three_fit]


def undivided(sizes: Sizes) -> list[Tile]:
    """Return those whose blocks see all keys: none of few queries where they are far too many."""
    most = MOST_FOR_EACH * GPUS["sm_90a"].multiprocessors
    if sizes.queries <= FEW[0].queries or _tiles(sizes, FEW[0]) <= most:
        return tiles_of(sizes)
    return [tile for tile in tiles_of(sizes) if tile.consumers > 1]


def divisions(sizes: Sizes, tile: Tile) -> list[Tile]:
    """Return a tile with the keys divided in all ways that give each part a tile of keys, and not too many
    blocks."""
    steps, tiles = -(-sizes.keys // tile.keys), _tiles(sizes, tile)
    most = min(steps, _MOST_WAVES * GPUS["sm_90a"].multiprocessors // tiles)
    return [
        replace(tile, persistent=False, ordered=False, parts=parts) for parts in PARTS if 1 < parts <= most
    ]


def microseconds(sizes: Sizes, causal: bool, tile: Tile, costs: Costs = H200) -> float:
    """Return how long the model of time expects an attention to take, without the launch."""
    traits = Traits(bf16, sizes.depth, replace(tile, parts=1), divided=tile.parts > 1)
    waves = _tiles(sizes, tile) * tile.parts / (GPUS["sm_90a"].multiprocessors * traits.blocks_at_once)
    step = costs.step(sizes.depth, tile)
    if traits.blocks_at_once == 2 and waves > 0.5:
        step *= costs.shared
    begin, steps = costs.begin[tile.consumers - 1], _steps(sizes, causal, tile)
    mean, longest = sum(steps) / len(steps), begin + max(steps) * step
    if tile.parts == 1 and waves > 1:
        again = costs.again if tile.persistent else 1.0
        if steps[0] == steps[-1]:
            computing = (1 - again) * begin + ceil(waves) * (again * begin + mean * step)
        else:
            computing = waves * (again * begin + mean * step) + costs.tail * longest
    elif tile.parts == 1:
        computing = longest
    elif waves > 1:
        computing = ceil(waves) * (begin + max(mean / tile.parts, 1.0) * step)
    else:
        computing = begin + ceil(max(steps) / tile.parts) * step
    rows, keys = sizes.batch * sizes.heads * sizes.queries, sizes.batch * sizes.key_heads * sizes.keys
    reading = 4e-6 * sizes.depth * (rows + keys) / costs.bandwidth
    both = float((computing**costs.overlap + reading**costs.overlap) ** (1 / costs.overlap))
    if tile.parts == 1:
        return both
    return both + costs.merge + 8e-6 * rows * tile.parts * sizes.depth / costs.bandwidth_of_sums


def _tiles(sizes: Sizes, tile: Tile) -> int:
    """Return the tiles of queries of all heads."""
    return -(-sizes.queries // tile.queries) * sizes.batch * sizes.heads


def _steps(sizes: Sizes, causal: bool, tile: Tile) -> list[int]:
    """Return how many tiles of keys each tile of queries of a head sees."""
    ends = range(tile.queries, sizes.queries + tile.queries, tile.queries)
    seen = [min(sizes.keys, end + sizes.keys - sizes.queries) if causal else sizes.keys for end in ends]
    return [max(1, -(-count // tile.keys)) for count in seen]
