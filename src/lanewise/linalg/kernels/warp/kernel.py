"""The kernel of the mma.sync family: tiles by cp.async, fragments by ldmatrix, sums in registers.

A block computes one tile of the result, or its sums over a part of K. Its warps each own a part of the tile;
while they multiply one step along K, ldmatrix brings the fragments of the next, and cp.async the tiles some
stages ahead. Turing has no cp.async: there each tile passes through registers.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import tf32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.parameters import Sizes, Strides, epilogue_types
from lanewise.linalg.kernels.warp.epilogue import store, store_lines
from lanewise.linalg.kernels.warp.split_k import ClusterExchange, added_parts, part_of_k
from lanewise.linalg.kernels.warp.tiles import LANES, fragment, share_out, split_fragments
from lanewise.linalg.kernels.warp.traits import WarpTraits
from lanewise.linalg.sum_order import plane_products


def in_groups(number, tall, wide, group: int) -> tuple[Scalar, Scalar]:
    """Some rows of tiles at a time, column by column: blocks that run together share rows and columns."""
    first = number // (wide * group) * group
    rest, size = number % (wide * group), lw.min(tall - first, group)
    return first + rest % size, rest // size


@made_by_constants
def compiled(T: WarpTraits) -> Kernel:
    """Return the kernel for some constants."""
    T.require_possible()
    (bm, bn, _), (wm, wn) = T.plan.tile, T.warp
    tile_a, tile_b = T.tiles
    width_a, width_b = tile_a.width(T.problem.a.alignment), tile_b.width(T.problem.b.alignment)
    of_epilogue = epilogue_types(T.problem.epilogue, T.wide)
    of_sizes, of_strides = Sizes(), Strides(*(lw.i64,) * 6)
    of_a = lw.Ptr[T.a, T.problem.a.alignment]
    of_b = lw.Ptr[T.b, T.problem.b.alignment]
    of_out = lw.Ptr[T.out, T.problem.out.alignment]
    groups = T.plan.groups

    @lw.kernel(max_threads=T.threads, cluster=groups if groups > 1 else None)
    def by_warps(
        A: of_a, B: of_b, C: of_out,
        sizes: of_sizes, strides: of_strides, epilogue: of_epilogue,
    ):  # fmt: skip
        M, N, K = (lw.assume(size, nonnegative=True) for size in sizes[:3])
        lda, ldb, ldo, batch_a, batch_b, batch_out = strides
        lda, ldb = lw.assume(lda, multiple_of=width_a), lw.assume(ldb, multiple_of=width_b)
        batch_a, batch_b = lw.assume(batch_a, multiple_of=width_a), lw.assume(batch_b, multiple_of=width_b)
        exchange = ClusterExchange(T) if groups > 1 else None
        if exchange is not None:
            exchange.begin()
        row, column, matrix = lw.block_idx.x // groups, lw.block_idx.y, lw.block_idx.z
        if not T.one_group:
            row, column = in_groups(row, lw.cdiv(M, bm), lw.cdiv(N, bn), T.plan.group)
            matrix = lw.block_idx.y
        row, column, batch = row * bm, column * bn, matrix.to(lw.i64)
        team = lw.thread_idx.x // T.team if T.plan.split > 1 else lw.i32(0)
        start, length = part_of_k(T, K, team)
        warp = lw.thread_idx.x % T.team // LANES
        own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
        sA = tile_a.array(T.all_stages, 0)
        sB = tile_b.array(T.all_stages, T.all_stages * tile_a.elements * tile_a.size)
        behind_a, behind_b = (
            tile.behind(T.all_stages, offset) if shifted else None
            for tile, shifted, offset in zip(T.tiles, T.shifted, T.offsets_behind, strict=True)
        )
        copies = [
            share_out(
                tile, matrix + batch * stride + start.to(lw.i64) * (1 if tile.k_major else leading), leading,
                first, (limit, lw.min(K - start, length)), array, T.team, width, T.asynchronous,
                None if behind is None else (matrix, behind),
            )
            for tile, matrix, leading, stride, first, limit, array, width, behind in (
                (tile_a, A, lda, batch_a, row, M, sA, width_a, behind_a),
                (tile_b, B, ldb, batch_b, column, N, sB, width_b, behind_b),
            )
        ]  # fmt: skip
        acc = mainloop(T, copies, (sA, sB), (own_row, own_column), team, length)
        if exchange is not None:
            exchange.wait()
        if T.plan.split > 1:
            acc = added_parts(T, acc, team)
        epilogue.residual = epilogue.residual + batch * epilogue.residual_batch
        matrix = C + batch * batch_out
        if T.stages_results:
            store_lines(T, acc, matrix, ldo, (row, column), (own_row, own_column), M, N, epilogue)
        elif team == 0:
            fragments = [tile for row_of_tiles in acc for tile in row_of_tiles]
            part = (fragments, 0, True) if exchange is None else exchange.added(fragments)
            store(T, part, matrix, ldo, row + own_row, column + own_column, M, N, epilogue)

    return by_warps


@lw.device
def with_products(T, a, b, acc):
    """Return a warp's sums with the products of its fragments of one step added."""
    for i in range(len(a)):
        for j in range(len(b)) if i % 2 == 0 else reversed(range(len(b))):
            acc[i][j] = multiplied(T, a[i], b[j], acc[i][j])
    return acc


@lw.device
def multiplied(T, a, b, total):
    """Return sums with the products of two fragments added; those of split f32 are summed by themselves."""
    if T.planes == 1:
        return T.mma(a, b, total)
    part = T.mma.zeros()
    for plane_a, plane_b in plane_products(T.planes, T.problem.is_transpose):
        part = T.mma(a[plane_a], b[plane_b], part)
    for i in range(len(total)):
        total[i] = total[i] + part[i]
    return total


@lw.device
def mainloop(T, copies, shared, own, team, K):
    """Return a warp's sums over K: tiles are copied some stages ahead, fragments are loaded a step ahead.

    Warps that sum another part of K have stages of their own.
    """
    mma, stages, bk = T.mma, T.plan.stages, T.plan.tile[2]
    (wm, wn), (tile_a, tile_b), (sA, sB), (own_row, own_column) = T.warp, T.tiles, shared, own
    steps, rounds, base = bk // mma.k, T.a is tf32, team * stages

    def fetch(along_k, stage):
        loaded = [copy.start(along_k, base + stage) for copy in copies]
        if T.asynchronous:
            lw.cp_async_commit()
        return loaded

    def arrive(loaded, stage):
        for copy, values in zip(copies, loaded, strict=True):
            copy.put(values, base + stage)
        if T.asynchronous:
            lw.cp_async_wait(max(stages - 2, 0))
        if any(T.shifted):
            lw.syncwarp()
        for copy in copies:
            copy.shift(base + stage)
        lw.syncthreads()

    def load(step, stage):
        k = step * mma.k
        rows, columns = range(0, wm, mma.m), range(0, wn, mma.n)
        if T.planes > 1:
            return (
                [split_fragments(mma.a, sA, tile_a, own_row + i, k, base + stage) for i in rows],
                [split_fragments(mma.b, sB, tile_b, own_column + j, k, base + stage) for j in columns],
            )
        return (
            [fragment(mma.a, sA, tile_a, own_row + i, k, base + stage, rounds) for i in rows],
            [fragment(mma.b, sB, tile_b, own_column + j, k, base + stage, rounds) for j in columns],
        )

    loaded = [fetch(lw.i32(stage * bk), stage) for stage in range(max(stages - 1, 1))]
    arrive(loaded[0], lw.i32(0))
    loaded = loaded[1:]
    acc = [[mma.zeros() for _ in range(0, wn, mma.n)] for _ in range(0, wm, mma.m)]
    if stages == 1:  # it is all of K
        for step in range(steps):
            acc = with_products(T, *load(step, 0), acc)
        return acc
    a, b = load(0, 0)
    read, write = lw.i32(0), lw.i32(stages - 1)
    for k in lw.range(0, K, bk):
        for step in range(steps):
            if step == 0:  # the stage that all warps have left
                loaded = [*loaded, fetch(k + (stages - 1) * bk, write)]
                write = lw.where(write == stages - 1, 0, write + 1)
            if step == steps - 1:
                read = lw.where(read == stages - 1, 0, read + 1)
                arrive(loaded[0], read)
                loaded = loaded[1:]
            following = load((step + 1) % steps, read)
            acc = with_products(T, a, b, acc)
            a, b = following
    if T.asynchronous:
        lw.cp_async_wait(0)
    return acc
