"""Scales of blocks on their way to the warpgroups that multiply: through shared memory, many steps ahead.

A warp of the warpgroup that loads copies the scales by cp.async, four steps at once, and further ahead than
TMA loads the operands. So nobody waits for them: global memory takes longer to answer than some steps take to
be multiplied. The scales of four steps lie side by side. Where they do so in global memory, too, one copy
takes all of them: each copy takes a cycle of the pipe through which wgmma reads shared memory.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout
from lanewise.linalg.families.build import ROWS, SCALE_GROUPS, TOGETHER, WARPGROUP, Build
from lanewise.linalg.families.tile_order import numbers

#: Threads that copy: each arrives at the barrier of a stage when its copies are there.
COPYING = 32
_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];"


class BlockScales:
    """The scales of one kernel: `copy` is called by a warp, `of_step` by the threads that multiply.

    Four steps of a tile are a group; the last group of a tile may have fewer. A step's place is its number in
    the tile and the state of its group.
    """

    def __init__(self, build: Build) -> None:
        T = self.build = build
        #: Set by the kernel: where the scales are, and the sizes of the result.
        self.given: Any = None
        self.sizes: Any = None
        self.rows, self.columns = build.scales_of_stage
        offset = T.shared_bytes - T.parts_bytes - T.scale_bytes
        count = self.rows + self.columns
        shape, strides = (count, TOGETHER, SCALE_GROUPS), (TOGETHER, 1, TOGETHER * count)
        self.array = lw.dynamic_shared(f32, Layout(shape, strides), offset=offset)
        warps = T.consumers * WARPGROUP // 32
        self.groups = lw.Pipeline(SCALE_GROUPS, bytes=T.scale_bytes // SCALE_GROUPS, consumers=warps)

    def init(self) -> None:
        """Prepare the barriers: each lane that copies arrives when its copies are there."""
        self.groups.full.init(COPYING)
        self.groups.empty.init(self.groups.consumers)

    @lw.device
    def copy(self, tiles: Any, steps: Any, place: Any) -> None:
        """Copy the scales of all tiles of this block, one group after the other."""
        T, (across, along), given = self.build, self.build.cluster, self.given
        filling = self.groups.producer_state()
        wide_a, wide_b = self.wide(0, given.scale_a, steps), self.wide(1, given.scale_b, steps)
        for tile in numbers(tiles, tiles.first, tiles.step):
            row, column, _ = tiles[tile]
            of_a = self.places(0, (row * across + place.row) * T.bm)
            of_b = self.places(1, (column * along + place.column) * T.bn)
            for first in lw.range(0, steps, TOGETHER):
                self.groups.acquire(filling)
                count = steps - first
                self.copy_some(given.scale_a, of_a, (0, first, count), filling.stage, wide_a)
                self.copy_some(given.scale_b, of_b, (1, first, count), filling.stage, wide_b)
                lw.asm(_ARRIVE, needs=("sm_80", "7.0"), barrier=self.groups.barrier(filling).pointer)
                filling = filling.next()

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
    def copy_some(self, source: Any, places: Any, part: Any, group: Any, wide: Any) -> None:
        """Copy a group's scales of rows or columns; `part` is (axis, the first step, how many are left)."""
        axis, step, left = part
        start, count = (0, self.rows) if axis == 0 else (self.rows, self.columns)
        along_k = self.given.scale_strides[2 * axis + 1]
        for i in range(len(places)):
            index = i * COPYING + lw.lane_id()
            if (i + 1) * COPYING <= count or index < count:
                from_ = source + (places[i] + step * along_k)
                if wide is None or not wide:
                    for each in range(TOGETHER):
                        if each < left:
                            target = self.array.ptr(start + index, each, group)
                            lw.cp_async(target, from_ + each * along_k, 4)
                else:
                    target = self.array.ptr(start + index, 0, group).aligned(16)
                    lw.cp_async(target, from_.aligned(16), 16)

    def first(self) -> Any:
        """Return the place of the first step."""
        return lw.i32(0), self.groups.consumer_state()

    @lw.device
    def next(self, place: Any, steps: Any, more: Any) -> Any:
        """Return the place of the step after one; that of the last of all steps if there are no more."""
        step, group = place
        further, after = step + 1, group.next()
        over = more & ((further == steps) | (further % TOGETHER == 0))
        stage, phase = lw.where(over, after.stage, group.stage), lw.where(over, after.phase, group.phase)
        further = lw.where(more, lw.where(further == steps, 0, further), step)
        return further, group.with_children([stage, phase])

    @lw.device
    def give_back(self, place: Any, steps: Any, more: Any) -> None:
        """Give a group back after a step, if the warp has read the last of its scales."""
        step, group = place
        if more & ((step + 1 == steps) | (step % TOGETHER == TOGETHER - 1)):
            lw.syncwarp()
            if lw.lane_id() == 0:
                self.groups.release(group)

    @lw.device
    def of_step(self, place: Any, own: Any, warp: Any) -> Any:
        """Return the scales of this thread's rows, two of each 64, and of its columns or pieces of them."""
        T, lane = self.build, lw.lane_id()
        self.groups.wait(place[1])
        array = self.array[None, place[0] % TOGETHER, place[1].stage]
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
