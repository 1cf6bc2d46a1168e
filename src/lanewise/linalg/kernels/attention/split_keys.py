"""Keys that are divided among blocks, where there are too few tiles of queries to keep a GPU busy: each block
leaves the sums of its part in memory, and a second kernel adds them ("flash decoding").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import element_steps
from lanewise.linalg.kernels.attention.sizes import Operands, Sizes
from lanewise.linalg.kernels.attention.softmax import base_of, exp2_approx, lse_of, of_seen, share_of
from lanewise.linalg.kernels.family import Launch, launch, made_by_constants
from lanewise.linalg.kernels.fused_epilogue import LOG2_E

LANES = 32
#: Warps of a block that adds parts.
WARPS = 8
#: The most parts that one warp adds alone. If there are more, all warps of a block share those of a query.
_PARTS_OF_A_WARP = 8
#: The most parts that a block adds.
_MOST_PARTS = 128
#: Parts whose sums a lane loads before it adds them.
_TOGETHER = 4


def partial_bytes(sizes: Sizes, parts: int) -> int:
    """Return the bytes of all parts' sums; none if keys are not divided.

    >>> partial_bytes(Sizes(1, 8, 8, 4, 4096, 128), 16)
    266240
    """
    return 4 * parts * sizes.batch * sizes.heads * sizes.queries * (sizes.depth + 2) if parts > 1 else 0


class PartialSums:
    """The sums of all parts and queries in memory, behind them their highest scores and totals.

    `rows` counts the queries of all heads and batches.
    """

    def __init__(self, memory, parts, rows, depth: int) -> None:
        self.rows, self.depth, self.sums = rows, depth, memory
        self.scores = memory + parts.to(lw.i64) * rows.to(lw.i64) * depth

    @lw.device
    def of(self, part, row):
        """Return where the sums of a part and a query lie, and its highest score and total."""
        place = part.to(lw.i64) * self.rows.to(lw.i64) + row.to(lw.i64)
        return (self.sums + place * self.depth).aligned(8), (self.scores + place * 2).aligned(8)

    @lw.device
    def store(self, part, row, sums, highest, total) -> None:
        """Store a lane's share of the accumulators of a query."""
        place, scores = self.of(part, row)
        for i in range(0, len(sums), 2):
            (place + (i * 4 + lw.lane_id() % 4 * 2)).aligned(8).store([sums[i], sums[i + 1]])
        if lw.lane_id() % 4 == 0:
            scores.store([highest, total])


@lw.device
def weights_of(partial, row, parts, factor, most):
    """Return the factor of each part's sums, part p in lane p % 32, the sum of all totals by these factors,
    and the highest score; there are `most` parts at most."""
    numbers = [lw.lane_id() + LANES * i for i in range(-(-most // LANES))]
    highest, totals = [], []
    for number in numbers:
        _, place = partial.of(lw.min(number, parts - 1), row)
        score, total = place.load(2)
        highest.append(lw.where(number < parts, score, f32(-np.inf)))
        totals.append(lw.where(number < parts, total, f32(0.0)))
    top = highest[0]
    for score in highest[1:]:
        top = lw.max(top, score)
    top = lw.warp_reduce(top, "max")
    base = base_of(top, factor)
    weights = [exp2_approx(score * factor - base) for score in highest]
    total = weights[0] * totals[0]
    for weight, of_part in zip(weights[1:], totals[1:], strict=True):
        total = lw.fma(weight, of_part, total)
    return weights, lw.warp_reduce(total), top


@lw.device
def added(partial, row, parts, weights, first, step):
    """Return a lane's share of the weighted sums of every so many parts from the first on: two columns of
    each 64, those behind the last one again."""
    lane, depth = lw.lane_id(), partial.depth
    columns = [lw.min(start + 2 * lane, depth - 2) for start in range(0, depth, 2 * LANES)]
    sums = [[f32(0.0), f32(0.0)] for _ in columns]
    most = len(weights) * LANES if step > 1 else _PARTS_OF_A_WARP
    for begin in range(0, most, step * _TOGETHER):
        if begin < parts:
            numbers = [first + (begin + step * i) for i in range(_TOGETHER)]
            places = [partial.of(lw.min(number, parts - 1), row)[0] for number in numbers]
            loaded = [[(place + column).aligned(8).load(2) for column in columns] for place in places]
            for number, more in zip(numbers, loaded, strict=True):
                share = lw.shfl_sync(weights[begin // LANES], number % LANES)
                for pair, both in zip(sums, more, strict=True):
                    for n in range(2):
                        pair[n] = lw.where(number < parts, lw.fma(share, both[n], pair[n]), pair[n])
    return sums


@made_by_constants
def merging(dtype: Format, depth: int, shared: bool) -> Kernel:
    """Return the kernel that adds parts in a fixed order: a warp for each query, or a block if it is `shared`
    by the warps."""
    starts = range(0, depth, 2 * LANES)
    step, rows_of_block = (WARPS, 1) if shared else (1, WARPS)
    of_strides: Any = (lw.i64,) * 3  # of batches, heads and rows of results

    @lw.kernel(max_threads=WARPS * LANES)
    def merge(
        sums: lw.Ptr[f32, 16], Out: lw.Ptr[dtype, 16], lse: lw.Ptr[f32], parts: lw.i32, heads: lw.i32,
        queries: lw.i32, rows: lw.i32, strides: of_strides, scale: f32,
    ):  # fmt: skip
        lw.wait_on_dependencies()
        warp, lane = lw.thread_idx.x // LANES, lw.lane_id()
        row = lw.block_idx.x * rows_of_block + (0 if shared else warp)
        if row < rows:
            partial = PartialSums(sums, parts, rows, depth)
            most = _MOST_PARTS if shared else _PARTS_OF_A_WARP
            weights, total, highest = weights_of(partial, row, parts, scale * LOG2_E, most)
            values = added(partial, row, parts, weights, warp if shared else 0, step)
            if shared:
                values = over_warps(values, warp, lane)
            share = share_of(total)
            head, query = row // queries, row % queries
            indices = head // heads, head % heads, query
            steps = [index.to(lw.i64) * stride for index, stride in zip(indices, strides, strict=True)]
            place = Out + (steps[0] + steps[1] + steps[2])
            if (warp == 0) if shared else True:
                for start, pair in zip(starts, values, strict=True):
                    if start + 2 * lane < depth:
                        results = [of_seen(total, value * share).to(dtype) for value in pair]
                        (place + (start + 2 * lane)).aligned(4).store(results)
                if (lse != 0) & (lane == 0):
                    lse[row] = lse_of(highest, total, scale)

    return merge


@lw.device
def over_warps(values, warp, lane):
    """Return a lane's values added over the warps of a block in order, through shared memory."""
    kept = lw.shared(f32, (WARPS, len(values), LANES, 2))
    for number, pair in enumerate(values):
        kept.ptr(warp, number, lane, 0).aligned(8).store(pair)
    lw.syncthreads()
    for number, pair in enumerate(values):
        for other in range(WARPS):
            more = kept.ptr(other, number, lane, 0).aligned(8).load(2)
            for n in range(2):
                pair[n] = pair[n] + more[n] if other else more[n]
    return values


def merge_launch(sizes: Sizes, dtype: Format, operands: Operands, scale: float, parts: int) -> Launch:
    """Return the launch that adds the parts of an attention, which may begin before they are all there."""
    rows, shared = sizes.batch * sizes.heads * sizes.queries, parts > _PARTS_OF_A_WARP
    blocks = rows if shared else -(-rows // WARPS)
    arguments = (
        operands.partial, operands.out, operands.lse, parts, sizes.heads, sizes.queries, rows,
        *element_steps(operands.out)[:3], scale,
    )  # fmt: skip
    return launch(merging(dtype, sizes.depth, shared)[blocks, WARPS * LANES], arguments, overlap=True)
