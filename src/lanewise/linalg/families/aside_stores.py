"""Results that the idle warps of the loading warpgroup store, while the others multiply the next tile.

TMA stores results whose rows begin at multiples of 16 bytes, and nobody waits for it. Other results are
stored by threads. If those that multiply did it, the tensor cores would stand still meanwhile: on an H200,
4095³ of bf16 would take 8 % longer.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.linalg.families.build import ROWS, WARPGROUP, Build
from lanewise.linalg.families.copies.chunks import CHUNK, moved_down, store_chunk
from lanewise.linalg.families.output import Output, staging
from lanewise.linalg.families.tile_order import numbers
from lanewise.linalg.families.unaligned_stores import chunk_in_shared, head_of, start_of

#: Named barriers of each consumer: a turn of results is in shared memory; it has been read.
_STAGED, _READ = 4, 10
#: Threads that store: three warps; one warp loads. Each pair of barriers has these and a consumer's.
LOADING = 32
STORING = WARPGROUP - LOADING
_BOTH = WARPGROUP + STORING


class AsideOutput(Output):
    """What one consumer does to have its results stored: it writes them to shared memory."""

    @lw.device
    def store_turn(
        self, acc: Any, columns: Any, at: Any, of_rows: Any, buffer: Any, before: Any, after: Any
    ) -> None:
        """Write one turn to shared memory as soon as the last one has been read."""
        lw.barrier(_READ + self.own, _BOTH)
        self.write_turn(acc, columns, at, of_rows, buffer)
        lw.arrive(_STAGED + self.own, _BOTH)


class AsideStores:
    """The warps that store all consumers' results, turn after turn."""

    def __init__(self, build: Build, C: Any, N: Any, M: Any, leading: Any, stride: Any) -> None:
        self.build, self.C, self.N, self.leading, self.stride = build, C, N, leading, stride
        self.sC = staging(build, build.stages * build.stage_bytes)
        self.thread = lw.thread_idx.x - LOADING
        #: The consumer whose results are stored, the row after the last, and where the matrix begins.
        self.own: Any = 0
        self.last_row = M
        self.batch: Any = 0

    @lw.device
    def run(self, tiles: Any, place: Any) -> None:
        """Store the results of this block's tiles."""
        T = self.build
        across, along = T.cluster
        turns = T.turns * ROWS // T.consumer_rows
        if tiles.first < tiles.count:
            for own in range(T.consumers):
                lw.arrive(_READ + own, _BOTH)
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, matrix = tiles[number]
            if T.batched:
                self.batch = matrix.to(lw.i64) * self.stride
            first_row = (row * across + place.row) * T.bm
            first_column = (column * along + place.column) * T.bn
            for block in range(T.consumer_rows // ROWS):
                for turn in range(turns):
                    for own in range(T.consumers):
                        self.own = own
                        lw.barrier(_STAGED + own, _BOTH)
                        self.store_turn(
                            first_row + own * T.consumer_rows + block * ROWS,
                            first_column + turn * T.turn_columns,
                        )
                        further = (block + 1) * ROWS < T.consumer_rows or turn + 1 < turns
                        if further or number + tiles.step < tiles.count:
                            lw.arrive(_READ + own, _BOTH)

    @lw.device
    def store_turn(self, row: Any, column: Any) -> None:
        """Store one turn from shared memory; these threads have few registers, so a chunk after the other."""
        at = (row, column)
        if column + self.build.turn_columns <= self.N:
            self.store_chunks(at)
            self.store_ends(at)
        else:
            self.store_elements(at)

    @lw.device
    def store_chunks(self, at: Any) -> None:
        """Store what lies between the first and the last multiple of 16 bytes of each line."""
        T = self.build
        size, chunks = T.out.bits // 8, T.turn_columns * T.out.bits // 8 // CHUNK
        for number in lw.range(self.thread, ROWS * chunks, STORING):
            line, chunk = number // chunks, number % chunks
            place, inside = start_of(self, at, line)
            head = head_of(place, size)
            words = [*chunk_in_shared(self, line, chunk, 0)]
            words += chunk_in_shared(self, line, lw.min(chunk + 1, chunks - 1), 0)
            if inside & ((head == 0) | (chunk < chunks - 1)):
                store_chunk(
                    place + (head + chunk * (CHUNK // size)),
                    moved_down(words, (head * size).to(lw.u32), size),
                )

    @lw.device
    def store_ends(self, at: Any) -> None:
        """Store the first and last elements of each line, as many as make one chunk."""
        T = self.build
        per_chunk = CHUNK * 8 // T.out.bits
        for number in lw.range(self.thread, ROWS * per_chunk, STORING):
            line, each = number // per_chunk, number % per_chunk
            place, inside = start_of(self, at, line)
            head = head_of(place, T.out.bits // 8)
            inner = lw.where(each < head, each, T.turn_columns - per_chunk + each)
            if inside & (head > 0):
                place[inner] = self.sC[line, inner % T.box_columns, inner // T.box_columns, 0, self.own]

    @lw.device
    def store_elements(self, at: Any) -> None:
        """Store a turn at the result's edge: one element after the other, what lies inside alone."""
        T = self.build
        for number in lw.range(self.thread, ROWS * T.turn_columns, STORING):
            line, inner = number // T.turn_columns, number % T.turn_columns
            place, inside = start_of(self, at, line)
            if inside & (at[1] + inner < self.N):
                place[inner] = self.sC[line, inner % T.box_columns, inner // T.box_columns, 0, self.own]
