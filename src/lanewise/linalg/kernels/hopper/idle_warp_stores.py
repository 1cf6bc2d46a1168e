"""Results that the idle warps of the loading warpgroup store, while the others multiply the next tile.

TMA stores results whose rows begin at multiples of 16 bytes, and nobody waits for it. Other results are
stored by threads. If those that multiply do it, the tensor cores stand still meanwhile.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u32
from lanewise.linalg.kernels.copies.chunks import CHUNK, moved_down, store_chunk
from lanewise.linalg.kernels.hopper.epilogue import TileEpilogue, staged_results
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits
from lanewise.linalg.kernels.hopper.unaligned_stores import head_of, start_of

#: Named barriers of each consumer: a subtile of results is in shared memory; it has been read.
_STAGED, _READ = 4, 10
#: Threads that store: three warps; one warp loads. Each pair of barriers has these and a consumer's.
LOADING = 32
STORING = WARPGROUP - LOADING
_BOTH = WARPGROUP + STORING
#: Rows that begin equally far behind a multiple of 16 bytes are so many apart, as elements have two bytes or
#: more; of 8-bit elements it takes twice as many.
_APART = {8: 16, 16: 8, 32: 8}


class IdleWarpEpilogue(TileEpilogue):
    """What one consumer does to have its results stored: it writes them to shared memory."""

    @lw.device
    def store_subtile(self, acc, columns, at, of_rows, buffer, before, after) -> None:
        """Write one subtile to shared memory as soon as the last one has been read."""
        lw.barrier(_READ + self.own, _BOTH)
        self.write_subtile(acc, columns, at, of_rows, buffer)
        lw.arrive(_STAGED + self.own, _BOTH)


class IdleWarpStores:
    """The warps that store all consumers' results, subtile after subtile."""

    def __init__(self, traits: Traits, C, N, M, leading, stride) -> None:
        self.traits, self.C, self.N, self.leading, self.stride = traits, C, N, leading, stride
        self.memory, self.sC = SharedMemory(traits), staged_results(traits)
        self.thread, self.lane = lw.thread_idx.x - LOADING, lw.lane_id()
        #: The consumer whose results are stored, the row after the last, and where the matrix begins.
        self.own: Scalar | int = 0
        self.last_row = M
        self.batch: Scalar | int = 0

    @lw.device
    def run(self, tiles, place) -> None:
        """Store the results of this block's tiles."""
        T = self.traits
        memory = self.memory
        subtiles = memory.subtiles * ROWS // T.consumer_rows
        if tiles.first < tiles.count:
            for own in range(T.consumers):
                lw.arrive(_READ + own, _BOTH)
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, matrix = tiles[number]
            if T.batched:
                self.batch = matrix.to(lw.i64) * self.stride
            first_row, first_column = place.first_element(T, row, column)
            for block in range(T.consumer_rows // ROWS):
                for subtile in range(subtiles):
                    for own in range(T.consumers):
                        self.own = own
                        lw.barrier(_STAGED + own, _BOTH)
                        self.store_subtile(
                            first_row + own * T.consumer_rows + block * ROWS,
                            first_column + subtile * memory.subtile_columns,
                        )
                        further = (block + 1) * ROWS < T.consumer_rows or subtile + 1 < subtiles
                        if further or number + tiles.step < tiles.count:
                            lw.arrive(_READ + own, _BOTH)

    @lw.device
    def store_subtile(self, row, column) -> None:
        """Store one subtile from shared memory: each warp has rows that begin equally far behind 16 bytes."""
        T = self.traits
        memory = self.memory
        apart = _APART[T.out.bits]
        columns = lw.min(self.N - column, memory.subtile_columns)
        for first in lw.range(lw.shfl_sync(self.thread // 32, 0), apart, STORING // 32):
            head = head_of(start_of(self, (row, column), first)[0], T.out.bits // 8)
            self.store_chunks((row, column), first, apart, head, columns)
            self.store_ends((row, column), first, apart, head, columns)

    @lw.device
    def store_chunks(self, at, first, apart, head, columns) -> None:
        """Store what lies between the first and the last multiple of 16 bytes of each row.

        A lane has the same chunk of all rows, which it shifts by the same number of bytes.
        """
        T = self.traits
        memory = self.memory
        size = T.out.bits // 8
        per_chunk, chunks = CHUNK // size, memory.subtile_columns * size // CHUNK
        lanes = min(chunks, 32)  # of a row
        together = next(rows for rows in (8, 4, 2, 1) if rows * lanes <= 32 and rows * apart <= ROWS)  # rows
        step = together * apart
        row = first + lw.min(self.lane // lanes, together - 1) * apart
        further = (
            step * memory.box_columns * size // 4
        )  # words of shared memory; swizzles repeat every eight rows
        for chunk in range(0, chunks, lanes):
            mine = chunk + self.lane % lanes
            inside = head + (mine + 1) * per_chunk <= columns
            if together * lanes < 32:
                inside = inside & (self.lane < together * lanes)
            one = self.words_at(row, lw.min(mine, chunks - 1) * per_chunk)
            other = self.words_at(row, lw.min(mine + 1, chunks - 1) * per_chunk)
            place = start_of(self, at, row)[0] + (head + mine * per_chunk)
            for line in lw.range(at[0] + row, at[0] + row + ROWS, step):
                words = [*one.load(4), *other.load(4)]
                if inside & (line < self.last_row):
                    store_chunk(place, moved_down(words, (head * size).to(lw.u32), size))
                one, other, place = one + further, other + further, place + self.leading * step

    def words_at(self, row, inner) -> Pointer:
        """Return a pointer to words of a row of the subtile, from a chunk on."""
        wide = self.memory.box_columns
        place = self.sC.ptr(row, inner % wide, inner // wide, 0, self.own)
        return lw.pointer(place.address, u32, "shared", CHUNK)

    @lw.device
    def store_ends(self, at, first, apart, head, columns) -> None:
        """Store the elements of each row before its first chunk, and those behind its last one."""
        T = self.traits
        wide = self.memory.box_columns
        per_chunk = CHUNK * 8 // T.out.bits
        slots = 2 * per_chunk
        step = 32 // slots * apart
        row, slot = first + self.lane // slots * apart, self.lane % slots
        behind = lw.max(head + (columns - head) // per_chunk * per_chunk, 0)  # the first behind all chunks
        inner = lw.where(slot < per_chunk, slot, behind + slot - per_chunk)
        limit = lw.where(slot < per_chunk, lw.min(head, columns), columns)
        inside = inner < limit
        inner = lw.min(inner, self.memory.subtile_columns - 1)
        place = start_of(self, at, row)[0] + inner
        for line in lw.range(0, ROWS, step):
            if inside & (at[0] + row + line < self.last_row):
                place[0] = self.sC[row + line, inner % wide, inner // wide, 0, self.own]
            place = place + self.leading * step
