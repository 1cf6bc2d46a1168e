"""The plan of a product with 4-bit weights: its tile, by the times of stages that an H200 took."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lanewise.linalg.kernels.int4.packing import COLUMNS, TILES
from lanewise.linalg.planning.gpus import GPUS, resident
from lanewise.linalg.problem import Problem


@dataclass(frozen=True)
class Tile:
    """How a product is divided."""

    #: Rows of a tile; blocks of a cluster, each of which sums a part of K; blocks of a multiprocessor.
    rows: int
    split: int
    at_once: int


#: Kinds of tiles, and the microseconds of a stage of K on a multiprocessor of an H200.
_KINDS = {
    Tile(8, 1, 2): 0.39, Tile(16, 1, 2): 0.42, Tile(32, 1, 2): 0.47, Tile(64, 1, 2): 0.58,
    Tile(128, 1, 1): 0.81, Tile(256, 1, 1): 1.41,
}  # fmt: skip
#: Blocks that share K, and the microseconds that adding their sums takes, in all and for a row of a tile.
_PARTS, _EXCHANGE, _ROW_EXCHANGE = (1, 2), 0.5, 0.04


def tile_of(m: int, n: int, chunks: int) -> Tile:
    """Return how a product is divided: as takes the least time on an H200.

    The order of sums depends on it, so that it is the same for all GPUs.
    """

    def microseconds(kind: Tile, parts: int) -> float:
        blocks = -(-m // kind.rows) * -(-n // (COLUMNS * TILES)) * parts
        waves: int = -(-blocks // resident(parts, GPUS["sm_90a"].multiprocessors))
        exchange = _EXCHANGE + _ROW_EXCHANGE * kind.rows if parts > 1 else 0.0
        return waves * (-(-chunks // parts) * _KINDS[kind] + exchange)

    estimates = [(microseconds(kind, parts), parts, kind) for kind in _KINDS for parts in _PARTS]
    _, parts, kind = min(estimates, key=lambda estimate: estimate[:2])
    return replace(kind, split=parts)


def int4_plan(problem: Problem, chunks: int) -> Tile:
    """Return how a product is divided; if results must not vary, all numbers of rows have the same sums.

    `chunks` are the weights' tiles of K.
    """
    tile = tile_of(problem.m, problem.n, chunks)
    if problem.batch_invariant:
        return replace(tile, split=tile_of(1, problem.n, chunks).split)
    return tile
