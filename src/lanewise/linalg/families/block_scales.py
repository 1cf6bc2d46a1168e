"""Scales of blocks on their way to the warpgroups that multiply: through shared memory, some steps ahead.

A warp of the warpgroup that loads copies the scales of each step by cp.async, as far ahead as TMA loads the
operands. So nobody waits for them: global memory takes longer to answer than a step takes to be multiplied.
The scales of four steps lie side by side. Where they do so in global memory, too, they are copied at once:
each copy of its own takes a cycle of the pipe through which wgmma reads shared memory.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout
from lanewise.linalg.families.build import ROWS, TOGETHER, Build
from lanewise.linalg.families.tile_order import numbers

#: Threads that copy: each arrives at the barrier of a stage when its copies are there.
COPYING = 32
_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];"


class BlockScales:
    """The scales of one kernel: `copy` is called by a warp, `of_step` by the threads that multiply.

    Steps are numbered through all tiles of a block. Those of four steps are a group; groups take turns.
    """

    def __init__(self, build: Build, given: Any, M: Any, N: Any) -> None:
        T = self.build = build
        self.given, self.sizes = given, (M, N)
        self.rows, self.columns = build.scales_of_stage
        offset = T.shared_bytes - T.parts_bytes - T.scale_bytes
        count = self.rows + self.columns
        shape, strides = (count, TOGETHER, T.scale_groups), (TOGETHER, 1, TOGETHER * count)
        self.array = lw.dynamic_shared(f32, Layout(shape, strides), offset=offset)

    @lw.device
    def copy(self, pipeline: Any, tiles: Any, steps: Any, place: Any) -> None:
        """Copy the scales of all tiles of this block, one step after the other."""
        T, (across, along), given = self.build, self.build.cluster, self.given
        filling, number = pipeline.producer_state(), lw.i32(0)
        _, row_k, _, column_k = given.scale_strides
        wide_a, wide_b = self.wide(0, given.scale_a, steps), self.wide(1, given.scale_b, steps)
        for tile in numbers(tiles, tiles.first, tiles.step):
            tile_row, tile_column, _ = tiles[tile]
            of_a = self.places(0, (tile_row * across + place.row) * T.bm)
            of_b = self.places(1, (tile_column * along + place.column) * T.bn)
            for step in lw.range(steps):
                pipeline.acquire(filling)
                self.copy_some(given.scale_a, of_a, step * row_k, (0, self.rows), number, wide_a)
                self.copy_some(
                    given.scale_b, of_b, step * column_k, (self.rows, self.columns), number, wide_b
                )
                lw.asm(_ARRIVE, needs=("sm_80", "7.0"), barrier=pipeline.barrier(filling).pointer)
                filling, number = filling.next(), number + 1

    def wide(self, axis: int, source: Any, steps: Any) -> Any:
        """Return whether a group of A's (axis 0) or B's scales is 16 aligned bytes, in memory and in tiles.

        None says that it is never asked: few scales are not worth it.
        """
        if (self.build.promote or (0, 0))[axis] != 1:
            return None
        each, along_k = self.given.scale_strides[2 * axis : 2 * axis + 2]
        whole = (steps % TOGETHER == 0) & (each % TOGETHER == 0) & (along_k == 1)
        return whole & ((source.address & 15) == 0)

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
    def copy_some(self, source: Any, places: Any, offset: Any, part: Any, number: Any, wide: Any) -> None:
        """Copy a step's scales of rows or columns, a `part` of the array: its first one, and how many."""
        (first, count), inside, group = part, number % TOGETHER, self.group(number)
        for i in range(len(places)):
            index = i * COPYING + lw.lane_id()
            if (i + 1) * COPYING <= count or index < count:
                target, from_ = self.array.ptr(first + index, inside, group), source + (places[i] + offset)
                if wide is None or not wide:
                    lw.cp_async(target, from_, 4)
                elif inside == 0:
                    lw.cp_async(target.aligned(16), from_.aligned(16), 16)

    def group(self, number: Any) -> Any:
        """Return which of the groups in shared memory a step is in."""
        return number // TOGETHER % self.build.scale_groups

    @lw.device
    def of_step(self, number: Any, own: Any, warp: Any) -> Any:
        """Return the scales of this thread's rows, two of each 64, and of its columns or pieces of them."""
        T, lane = self.build, lw.lane_id()
        array = self.array[None, number % TOGETHER, self.group(number)]
        first = own * T.consumer_rows
        of_rows, of_columns = [], []
        for block in range(T.consumer_rows // ROWS):
            for half in range(2):
                index = first + block * ROWS + warp * 16 + lane // 4 + 8 * half
                if self.rows < T.bm:
                    index = (first + block * ROWS) // (T.bm // self.rows)
                of_rows.append(array[index])
        if self.columns < T.bn:
            for piece in range(self.columns):
                of_columns.append(array[self.rows + piece])
        else:
            for eight in range(0, T.bn, 8):
                of_columns += [array[self.rows + eight + 2 * (lane % 4) + i] for i in range(2)]
        return of_rows, of_columns
