"""Scales of blocks: on their way to the consumers, through shared memory, stage by stage, and into the sums.

A warp of the producer's warpgroup copies the scales of each stage by cp.async, as far ahead as TMA loads the
operands. So nobody waits for them: global memory takes longer to answer than a stage takes to be multiplied.
The accumulator of a stage is scaled by `promote`.
"""

from __future__ import annotations

from math import gcd

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.loaded_apart import arrive_when_copied
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import ROWS, Traits

#: Threads that copy: each arrives at the barrier of a stage when its copies are there.
COPYING = 32


class BlockScales:
    """The scales of one kernel: `copy` is called by a warp, `of_stage` by the threads that multiply."""

    def __init__(self, traits: Traits, given, M, N) -> None:
        self.traits, self.given, self.sizes = traits, given, (M, N)
        self.rows, self.columns = traits.scales_of_stage
        memory, stages = SharedMemory(traits), traits.plan.stages
        per_stage = memory.scale_bytes // stages // 4  # first those of columns, which are read as pairs
        layout = Layout((per_stage, stages), (1, per_stage))
        self.array = lw.dynamic_shared(f32, layout, offset=memory.offsets["scales"])

    @lw.device
    def copy(self, pipeline, tiles, steps, place) -> None:
        """Copy the scales of all tiles of this block, one stage after the other."""
        filling = pipeline.producer_state()
        row_k, column_k = self.given.scale_row_k, self.given.scale_column_k
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, _ = tiles[number]
            first_row, first_column = place.first_element(self.traits, row, column)
            of_a, of_b = self.places(0, first_row), self.places(1, first_column)
            for step in lw.range(steps):
                pipeline.acquire(filling)
                self.copy_some(self.given.scale_a, of_a, step * row_k, self.columns, self.rows, filling.stage)
                self.copy_some(self.given.scale_b, of_b, step * column_k, 0, self.columns, filling.stage)
                arrive_when_copied(pipeline.barrier(filling))
                filling = filling.next()

    def places(self, axis: int, first) -> list[Scalar]:
        """Return where this thread's scales of a tile's rows (axis 0) or columns lie, for the first block."""
        per_scale, count = self.traits.problem.scale_blocks[axis], (self.rows, self.columns)[axis]
        length = self.traits.plan.tile[axis] // count
        lane, stride = lw.lane_id(), (self.given.scale_row, self.given.scale_column)[axis]
        offsets = []
        for start in range(0, count, COPYING):
            at = lw.min(first + (start + lane) * length, self.sizes[axis] - 1)
            offsets.append(at // per_scale * stride)
        return offsets

    @lw.device
    def copy_some(self, source, places, offset, first, count, stage) -> None:
        """Copy a stage's scales of rows or of columns to the array from `first` on."""
        for number in range(len(places)):
            index = number * COPYING + lw.lane_id()
            if (number + 1) * COPYING <= count or index < count:
                lw.cp_async(self.array.ptr(first + index, stage), source + (places[number] + offset), 4)

    @lw.device
    def of_stage(self, stage, own, warp):
        """Return the scales of this thread's rows, two of each 64, and of its columns or pieces of them."""
        T, lane = self.traits, lw.lane_id()
        first = own * T.consumer_rows
        of_rows, of_columns = [], []
        for block in range(T.consumer_rows // ROWS):
            for half in range(2):
                index = first + block * ROWS + warp * 16 + lane // 4 + 8 * half
                if self.rows < T.bm:
                    index = (first + block * ROWS) // (T.bm // self.rows)
                of_rows.append(self.array[self.columns + index, stage])
        if self.columns < T.bn:
            for piece in range(self.columns):
                of_columns.append(self.array[piece, stage])
        else:
            for eight in range(0, T.bn, 8):
                of_columns += self.array.ptr(eight + 2 * (lane % 4), stage).load(2)
        return of_rows, of_columns


@lw.device
def promote(traits, totals, accumulators, scales, column=0):
    """Return the totals with one stage's sums: scaled by fma with the product of their scales, or added.

    `scales` are those of this thread's rows and columns, empty if there are none; `column` is the first of a
    piece of the tile.
    """
    of_rows, of_columns = scales
    _, columns_per_scale = traits.problem.scale_blocks
    for block in range(len(accumulators)):
        for number in range(traits.piece // 2):
            i = column // 2 + number
            if not of_rows:
                totals[block][i] = totals[block][i] + accumulators[block][number]
                continue
            which = i // 4 * 2 + i % 2
            if columns_per_scale > 1:
                which = i // 4 * 8 // gcd(traits.bn, columns_per_scale)
            scale = of_rows[2 * block + i // 2 % 2] * of_columns[which]
            totals[block][i] = lw.fma(accumulators[block][number], scale, totals[block][i])
    return totals
