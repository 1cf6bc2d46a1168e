"""Products with 4-bit weights: their kernel, their launches, and that of the kernel that unpacks weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise import lang as lw
from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.multiprocessor import LARGEST_GRID
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import Pointers, element_steps
from lanewise.linalg.kernels.family import Launch, launch, made_by_constants
from lanewise.linalg.kernels.int4 import by_warpgroups, by_warps
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, GROUP_STEP, Packed
from lanewise.linalg.kernels.int4.plans import Tile
from lanewise.linalg.kernels.int4.sums import ResultTile, meet
from lanewise.linalg.kernels.int4.traits import LINE, Traits
from lanewise.linalg.kernels.int4.unpacking import UNPACKING, WeightParameters, Weights, unpacking
from lanewise.linalg.kernels.parameters import Sizes, arguments_of, epilogue_types
from lanewise.linalg.kernels.tile_traits import compiled_in
from lanewise.linalg.problem import Problem

#: Columns of results that are stored at once where they lie side by side.
_WIDTH = 4


@made_by_constants
def product(T: Traits) -> Kernel:
    """Return the kernel of a product; the grid is (tiles of columns · blocks that share K, tiles of rows)."""
    of_scales: Any = lw.Ptr[T.dtype, 16]
    of_packed: Any = WeightParameters(lw.Ptr[lw.i32, 16], of_scales, lw.i32, lw.i32, lw.i32)
    of_rows: Any = of_scales if T.tile.teams else lw.TensorMap[T.dtype, (T.tile.rows, LINE), 2 * LINE]
    of_results: Any = lw.Ptr[T.out]
    of_sizes: Any = Sizes()
    of_epilogue: Any = epilogue_types(T.problem.epilogue, T.wide, scales=False)
    cluster = T.tile.split if T.tile.split > 1 else None

    @lw.kernel(max_threads=T.threads, min_blocks=T.tile.at_once, cluster=cluster)
    def int4_product(
        A: of_rows, packed: of_packed, C: of_results, sizes: of_sizes, lda: lw.i64,
        out_row: lw.i64, out_column: lw.i64, epilogue: of_epilogue,
    ) -> None:  # fmt: skip
        (M, N, K, _), weights = sizes, Weights(packed)
        if T.width > 1:
            out_row, out_column = lw.assume(out_row, multiple_of=T.width), lw.i64(1)
        result = ResultTile(T, C, (out_row, out_column), (M, N, weights.chunks), epilogue)
        if T.tile.teams:
            rows = (A, M, K, lw.assume(lda, multiple_of=8))
            result.finish(by_warps.mainloop(T, rows, weights, result))
        else:
            by_warpgroups.multiply(T, A, weights, result)
        meet(T)  # nobody leaves while others read its sums

    return int4_product


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
        "A": pointers.a, "W": pointers.b, "scales": pointers.metadata, "chunks": chunks,
        "per_group": group // GROUP_STEP, "groups": groups,
        "out_row": out.strides[0], "out_column": out.strides[1],
        "lda": element_steps(pointers.a)[0],  # of rows that were copied first not that of the problem
    }  # fmt: skip
    grid = (tile.blocks(problem.m, problem.n) // down, down)
    return launch(product(traits)[grid, traits.threads, traits.shared_bytes], arguments)


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
    words, scales, matrix = memory
    arguments = (words, scales, chunks, group // GROUP_STEP, groups, matrix, n)
    return launch(unpacking(dtype)[(chunks, _tiles(n, COLUMNS, "columns")), UNPACKING], arguments)
