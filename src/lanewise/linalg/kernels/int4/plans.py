"""The plan of a product with 4-bit weights: its tile, by the times of stages that an H200 took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lanewise.linalg.kernels.int4.packing import COLUMNS
from lanewise.linalg.planning.gpus import GPUS, resident
from lanewise.linalg.problem import Problem


@dataclass(frozen=True)
class Tile:
    """How a product is divided."""

    #: Rows of a tile.
    rows: int
    #: Tiles of columns of a block: a warpgroup multiplies each.
    tiles: int
    #: Blocks of a cluster, each of which sums a part of K.
    split: int
    #: Blocks of a multiprocessor.
    at_once: int

    def blocks(self, m: int, n: int) -> int:
        """Return the blocks of a product."""
        return -(-m // self.rows) * -(-n // (COLUMNS * self.tiles)) * self.split

    @property
    def multiprocessors(self) -> int:
        """Multiprocessors of an H200 that clusters of so many blocks fill."""
        count: int = resident(self.split, GPUS["sm_90a"].multiprocessors)
        return count


#: Blocks of a multiprocessor, by rows of a tile and tiles of columns.
_AT_ONCE = {
    (8, 1): 4, (16, 1): 4, (32, 1): 3, (64, 1): 2, (128, 1): 2,
    (8, 2): 3, (16, 2): 3, (32, 2): 2, (64, 2): 2, (128, 2): 1, (256, 2): 1,
}  # fmt: skip
#: Rows from which on there may be several rows of tiles.
_MANY_ROWS = 128
#: Blocks that share K.
_PARTS = (1, 2, 3, 4, 6, 8)
# Microseconds on an H200, fitted to products of ten layers with 8 to 1024 rows, on which they are off by 5 %
# (benchmarks/results/h200_int4_plans.json).
#: A stage of a block that is alone: in all, for each row, and for a second tile of columns.
_LATENCY, _ROW_LATENCY, _SECOND_LATENCY = 0.219, 0.00265, 0.126
#: What a stage takes of its multiprocessor: for a tile of columns, for each row of it, and to load a row.
_TILE, _ROW, _LOAD = 0.138, 0.0017, 0.00034
#: Adding the sums of a cluster: in all, and for each row of a tile of columns. To begin with further blocks.
_EXCHANGE, _ROW_EXCHANGE, _WAVE = 0.83, 0.0037, 1.33


def tile_of(m: int, n: int, chunks: int) -> Tile:
    """Return how a product is divided: as takes the least time on an H200.

    The order of sums depends on it, so that it is the same for all GPUs.
    """
    return min(candidates(m, n), key=lambda tile: (_microseconds(tile, m, n, chunks), tile.split, tile.rows))


def candidates(m: int, n: int) -> Iterator[Tile]:
    """Yield divisions. All blocks run at the same time if they share K, else it does not pay; nor do several
    rows of small tiles, each of which unpacks all weights."""
    for (rows, tiles), at_once in _AT_ONCE.items():
        if rows < min(m, _MANY_ROWS):
            continue
        for split in _PARTS:
            tile = Tile(rows, tiles, split, at_once)
            if split == 1 or tile.blocks(m, n) <= tile.multiprocessors * at_once:
                yield tile


def _microseconds(tile: Tile, m: int, n: int, chunks: int) -> float:
    """Return the time of a product, but for what all divisions take."""
    alone = _LATENCY + _ROW_LATENCY * tile.rows + _SECOND_LATENCY * (tile.tiles - 1)
    busy = tile.tiles * (_TILE + _ROW * tile.rows) + _LOAD * tile.rows
    waves, rest = divmod(tile.blocks(m, n), tile.multiprocessors * tile.at_once)
    stage = waves * max(tile.at_once * busy, alone)
    if rest:
        stage += max(-(-rest // tile.multiprocessors) * busy, alone)
        waves += 1
    exchange = _EXCHANGE + _ROW_EXCHANGE * tile.rows * tile.tiles if tile.split > 1 else 0.0
    return -(-chunks // tile.split) * stage + waves * (exchange + _WAVE)


def int4_plan(problem: Problem, chunks: int) -> Tile:
    """Return how a product is divided; if results must not vary, all numbers of rows have the same sums.

    `chunks` are the weights' tiles of K.
    """
    tile = tile_of(problem.m, problem.n, chunks)
    if problem.batch_invariant:
        return replace(tile, split=tile_of(1, problem.n, chunks).split)
    return tile
