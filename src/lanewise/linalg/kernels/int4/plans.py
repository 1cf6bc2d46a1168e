"""The plan of a product with 4-bit weights: its tile, by the times of stages that an H200 took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, hypot

from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.int4.packing import COLUMNS
from lanewise.linalg.planning.gpus import GPUS, resident
from lanewise.linalg.problem import Problem

#: Rows of a tile that teams multiply.
TEAM_ROWS = 8


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
    #: Teams of a block, each of which sums a part of K: a team is four warps that multiply by mma.sync. 0:
    #: there are none, and all warpgroups of a block sum the same part, by wgmma.
    teams: int = 0

    def __post_init__(self) -> None:
        if self.teams and (self.rows, self.tiles) != (TEAM_ROWS, 1):
            raise LanewiseError(f"{self}: teams multiply tiles of {TEAM_ROWS} rows and one tile of columns")

    @property
    def parts(self) -> int:
        """The parts of K that are summed apart."""
        return self.split * self.block_parts

    @property
    def block_parts(self) -> int:
        """The parts of K that a block sums."""
        return max(self.teams, 1)

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
#: A block of teams, and how many of such blocks share K at most.
_OF_TEAMS, _MOST_SPLIT_OF_TEAMS = Tile(TEAM_ROWS, tiles=1, split=1, at_once=2, teams=4), 2
#: Rows from which on there may be several rows of tiles.
_SEVERAL_ROWS_OF_TILES = 128
#: Blocks that share K.
_SPLITS = (1, 2, 3, 4, 6, 8)
# Microseconds on an H200, fitted to products of 46 layers with 1 to 1024 rows:
# benchmarks/results/h200_int4_*.json.
#: A stage of a block that is alone: in all, and for each row.
_LATENCY, _ROW_LATENCY = 0.16, 0.0032
#: What a stage takes of its multiprocessor: for a tile of columns, and for each row of it.
_TILE, _ROW = 0.171, 0.0008
#: Adding the sums of a cluster: in all, and for each row of a tile of columns. To begin with further blocks.
_EXCHANGE, _ROW_EXCHANGE, _WAVE = 0.916, 0.0108, 0.566
#: Blocks of teams: until the first stages have arrived, for a block of each multiprocessor; a stage of all
#: teams of a block; adding the sums of two blocks.
_FIRST_STAGES, _STAGE_OF_TEAMS, _EXCHANGE_OF_TEAMS = 0.736, 0.68, 1.47


def tile_of(m: int, n: int, chunks: int, any_rows: bool = False) -> Tile:
    """Return how a product is divided: as takes the least time on an H200. With `any_rows`, of the tiles of
    wgmma alone, which there are for every number of rows.

    The order of sums depends on it, so that it is the same for all GPUs.
    """
    tiles = [tile for tile in candidates(m, n) if not (any_rows and tile.teams)]
    return min(tiles, key=lambda tile: (_microseconds(tile, m, n, chunks), tile.split, tile.rows))


def candidates(m: int, n: int) -> Iterator[Tile]:
    """Yield divisions. All blocks run at the same time if they share K, else it does not pay; nor do several
    rows of small tiles, each of which unpacks all weights, or tiles larger than the rows."""
    blocks = [Tile(rows, tiles, 1, at_once) for (rows, tiles), at_once in _AT_ONCE.items()]
    fitting = min(block.rows for block in blocks if block.rows >= min(m, _SEVERAL_ROWS_OF_TILES))
    for block in (*blocks, _OF_TEAMS):
        if block.rows < fitting or (m <= _SEVERAL_ROWS_OF_TILES and block.rows > fitting):
            continue
        for split in _SPLITS:
            tile = replace(block, split=split)
            together = tile.blocks(m, n) <= tile.multiprocessors * tile.at_once
            if split == 1 or (together and (not tile.teams or split <= _MOST_SPLIT_OF_TEAMS)):
                yield tile


def _microseconds(tile: Tile, m: int, n: int, chunks: int) -> float:
    """Return the time of a product, but for what all divisions take.

    What a stage waits for and what it computes overlap in part where blocks share a multiprocessor.
    """
    blocks, stages = tile.blocks(m, n), -(-chunks // tile.parts)
    if tile.teams:
        resident_blocks = blocks / tile.multiprocessors
        exchange = _EXCHANGE_OF_TEAMS if tile.split > 1 else 0.0
        return _FIRST_STAGES * resident_blocks + stages * ceil(resident_blocks) * _STAGE_OF_TEAMS + exchange
    alone = _LATENCY + _ROW_LATENCY * tile.rows
    busy = tile.tiles * (_TILE + _ROW * tile.rows)
    waves, rest = divmod(blocks, tile.multiprocessors * tile.at_once)
    stage = waves * hypot(tile.at_once * busy, alone)
    if rest:
        stage += hypot(-(-rest // tile.multiprocessors) * busy, alone)
        waves += 1
    exchange = _EXCHANGE + _ROW_EXCHANGE * tile.rows * tile.tiles if tile.split > 1 else 0.0
    return stages * stage + waves * (exchange + _WAVE)


def int4_plan(problem: Problem, chunks: int) -> Tile:
    """Return how a product is divided; if results must not vary, all numbers of rows have the same sums.

    `chunks` are the weights' tiles of K.
    """
    m, n, same = problem.m, problem.n, problem.batch_invariant
    tile = tile_of(m, n, chunks, same)
    return replace(tile, split=tile_of(1, n, chunks, same).split) if same else tile
