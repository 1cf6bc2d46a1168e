"""The launches of products with 4-bit weights, and of the kernel that unpacks them to memory."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.multiprocessor import LARGEST_GRID
from lanewise.linalg.arrays import Pointers, element_steps
from lanewise.linalg.kernels.family import Launch, arguments_of, launch
from lanewise.linalg.kernels.int4 import by_warpgroups, by_warps
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, GROUP_STEP, Packed
from lanewise.linalg.kernels.int4.plans import Tile
from lanewise.linalg.kernels.int4.traits import Traits
from lanewise.linalg.kernels.int4.unpacking import UNPACKING, unpacking
from lanewise.linalg.kernels.tile_traits import compiled_in
from lanewise.linalg.problem import Problem

#: Columns of results that are stored at once where they lie side by side.
_WIDTH = 4


def product_launch(problem: Problem, pointers: Pointers, packed: Packed, tile: Tile) -> Launch:
    """Return the launch of a product; `pointers.b` are words, `pointers.metadata` are scales."""
    chunks, group, groups = packed
    out = problem.out
    down = _tiles(problem.m, tile.rows, "rows of a")
    if tile.teams and down > 1:
        raise LanewiseError(f"{tile}: teams multiply up to {tile.rows} rows, and a has {problem.m}")
    beside = out.k_major and out.inner == 1 and out.alignment * 8 >= _WIDTH * out.dtype.bits
    traits = Traits(
        compiled_in(problem), tile, 1 if group % CHUNK == 0 else CHUNK // GROUP_STEP, _WIDTH if beside else 1
    )
    arguments = arguments_of(problem, pointers) | {
        "X": pointers.a, "W": pointers.b, "scales": pointers.metadata, "chunks": chunks,
        "per_group": group // GROUP_STEP, "groups": groups,
    }  # fmt: skip
    arguments["lda"] = element_steps(pointers.a)[0]  # of rows that were copied first not that of the problem
    arguments["out_row"], arguments["out_column"] = out.strides
    grid = (tile.blocks(problem.m, problem.n) // down, down)
    kernel = (by_warps if tile.teams else by_warpgroups).product(traits)
    return launch(kernel[grid, traits.threads, traits.shared_bytes], arguments)


def _tiles(count: int, of_tile: int, name: str) -> int:
    """Return how many tiles there are along the second axis of a grid; an error if it has too few."""
    tiles = -(-count // of_tile)
    if tiles > LARGEST_GRID[1]:
        raise LanewiseError(
            f"{count} {name} are more than a launch with 4-bit weights takes: pass "
            f"{LARGEST_GRID[1] * of_tile} at a time"
        )
    return tiles


def unpack_launch(dtype: Format, memory: Sequence[object], n: int, packed: Packed) -> Launch:
    """Return the launch that writes weights (N, K); `memory` are words, scales and the matrix as words."""
    chunks, group, groups = packed
    arguments = (*memory, n, chunks, group // GROUP_STEP, groups)
    return launch(unpacking(dtype)[(chunks, _tiles(n, COLUMNS, "columns")), UNPACKING], arguments)
