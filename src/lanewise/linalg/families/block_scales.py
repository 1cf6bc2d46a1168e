"""Scales of blocks on their way to the warpgroups that multiply: through shared memory, stage by stage.

A warp of the warpgroup that loads copies the scales of each stage by cp.async, as far ahead as TMA loads the
operands. So nobody waits for them: global memory takes longer to answer than a stage takes to be multiplied.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout
from lanewise.linalg.families.build import ROWS, Build
from lanewise.linalg.families.tile_order import numbers

#: Threads that copy: each arrives at the barrier of a stage when its copies are there.
COPYING = 32
_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];"


class BlockScales:
    """The scales of one kernel: `copy` is called by a warp, `of_stage` by the threads that multiply."""

    def __init__(self, build: Build, given: Any, M: Any, N: Any) -> None:
        T = self.build = build
        self.given, self.sizes = given, (M, N)
        self.rows, self.columns = build.scales_of_stage
        offset = T.shared_bytes - T.parts_bytes - T.scale_bytes
        each = T.scale_bytes // T.stages // 4  # first those of columns, which are read as pairs
        self.array = lw.dynamic_shared(f32, Layout((each, T.stages), (1, each)), offset=offset)

    @lw.device
    def copy(self, pipeline: Any, tiles: Any, steps: Any, place: Any) -> None:
        """Copy the scales of all tiles of this block, one stage after the other."""
        T, (across, along) = self.build, self.build.cluster
        filling = pipeline.producer_state()
        row_k, column_k = self.given.scale_strides[1], self.given.scale_strides[3]
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, _ = tiles[number]
            of_a = self.places(0, (row * across + place.row) * T.bm)
            of_b = self.places(1, (column * along + place.column) * T.bn)
            for step in lw.range(steps):
                pipeline.acquire(filling)
                self.copy_some(self.given.scale_a, of_a, step * row_k, self.columns, self.rows, filling.stage)
                self.copy_some(self.given.scale_b, of_b, step * column_k, 0, self.columns, filling.stage)
                lw.asm(_ARRIVE, needs=("sm_80", "7.0"), barrier=pipeline.barrier(filling).pointer)
                filling = filling.next()

    def places(self, axis: int, first: Any) -> list[Any]:
        """Return where this thread's scales of a tile's rows (axis 0) or columns lie, for the first block."""
        each = (self.build.promote or (1, 1))[axis]
        count = (self.rows, self.columns)[axis]
        length = (self.build.bm, self.build.bn)[axis] // count
        lane, stride = lw.lane_id(), self.given.scale_strides[2 * axis]
        found = []
        for start in range(0, count, COPYING):
            at = lw.min(first + (start + lane) * length, self.sizes[axis] - 1)
            found.append(at // each * stride)
        return found

    @lw.device
    def copy_some(self, source: Any, places: Any, offset: Any, first: Any, count: Any, stage: Any) -> None:
        """Copy a stage's scales of rows or of columns to the array from `first` on."""
        for number in range(len(places)):
            index = number * COPYING + lw.lane_id()
            if (number + 1) * COPYING <= count or index < count:
                lw.cp_async(self.array.ptr(first + index, stage), source + (places[number] + offset), 4)

    @lw.device
    def of_stage(self, stage: Any, own: Any, warp: Any) -> Any:
        """Return the scales of this thread's rows, two of each 64, and of its columns or pieces of them."""
        T, lane = self.build, lw.lane_id()
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
