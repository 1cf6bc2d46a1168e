"""The sums of parts of K: each is written to the shared memory of its block, and they are added in order."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.linalg.kernels.int4.traits import LANES
from lanewise.linalg.kernels.warp.epilogue import finished_sum


@lw.device
def put_sums(T, acc, steps) -> None:
    """Write a thread's sums to shared memory, where the stages were: zeros if there was none."""
    sums = lw.dynamic_shared(f32, T.sums)
    lw.barrier(1, T.consumers)  # nobody reads stages any more
    lane, thread = lw.lane_id(), lw.thread_idx.x % T.team_threads
    column = thread // LANES * 16 + lane // 4
    for i in range(T.tile.rows // 2):
        row = i // 4 * 8 + lane % 4 * 2 + i % 2
        place = row, column + i // 2 % 2 * 8, lw.thread_idx.x // T.team_threads
        sums[place] = lw.where(steps > 0, acc[i], f32(0.0))


@lw.device
def store_sums(T, Out, strides, given, first_row, parts, sizes) -> None:
    """Add the parts of K, each in the shared memory of a block, and store a share of the tile's results."""
    M, N = sizes
    sums = lw.dynamic_shared(f32, T.sums)
    rank = lw.cluster.rank() if T.tile.split > 1 else 0
    first_column = lw.block_idx.x // T.tile.split * T.columns
    across = T.columns // T.width
    count = lw.min(M - first_row, T.tile.rows) * across
    for piece in lw.range(lw.thread_idx.x + rank * T.consumers, count, T.tile.split * T.consumers):
        row, column = piece // across, piece % across * T.width
        teams = [sums.ptr(row, column, team).aligned(4 * T.width) for team in range(T.tile.block_parts)]
        places = [
            lw.cluster.map(place, part) if T.tile.split > 1 else place
            for part in range(T.tile.split)
            for place in teams
        ]
        values = [place.load(T.width) if T.width > 1 else [place.load()] for place in places]
        row, column = first_row + row, first_column + column
        results = []
        for i in range(T.width):
            total = values[0][i]
            for part in range(1, T.tile.parts):
                total = lw.where(part < parts, total + values[part][i], total)
            results.append(finished_sum(T, given, total, row, column + i, M, N).to(T.out))
        target = Out + (row.to(lw.i64) * strides[0] + column.to(lw.i64) * strides[1])
        if column + (T.width - 1) < N:
            target.aligned(T.width * T.out.bits // 8).store(results)
        else:
            for i in range(T.width - 1):
                if column + i < N:
                    target[i] = results[i]


@lw.device
def meet(T) -> None:
    """Wait for all blocks of the cluster."""
    if T.tile.split > 1:
        lw.cluster.sync()
