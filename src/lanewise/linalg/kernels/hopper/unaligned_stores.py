"""Results in shared memory, and stores of those whose lines begin at any address, where TMA cannot store.

A subtile of results lies in shared memory as lines of 16-byte chunks. In memory, a line begins `head`
elements before a multiple of 16 bytes. From there on it is stored 16 bytes at once, each made of two
neighbouring chunks. The elements before and behind that are stored one by one, at the same time by different
threads.

TMA stores results whose rows begin at multiples of 16 bytes, and nobody waits for it. If threads that
multiply store others, the tensor cores stand still meanwhile. So the idle warps of the loading warpgroup of a
persistent block do, while the others multiply the next tile.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.copies.chunks import CHUNK, moved_down, store_chunk
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits

#: Bits of the swizzle for boxes with rows of 128, 64 and 32 bytes; others have none.
_SWIZZLE_BITS = {128: 3, 64: 2, 32: 1}


def staged_results(traits: Traits, boxes: bool = False) -> Any:
    """Return the shared memory of results: (row, column of a box, box, which buffer, consumer).

    As `boxes` that TMA stores, some of them one below the other, it has an axis for these: (row of a box,
    column of a box, which box downwards, box, which buffer, consumer).
    """
    memory, size = SharedMemory(traits), traits.out.bits // 8
    rows, wide, subtile = memory.staged_rows, memory.box_columns, memory.subtile_bytes // size
    high = memory.box_rows if boxes else rows
    layout = Layout(
        (high, wide, rows // high, memory.subtile_boxes, memory.buffers, traits.consumers),
        (wide, 1, high * wide, rows * wide, subtile, memory.buffers * subtile),
    )
    if not boxes:
        layout = Layout(layout.shape[:2] + layout.shape[3:], layout.stride[:2] + layout.stride[3:])
    bits = _SWIZZLE_BITS.get(wide * size, 0)
    swizzle = Swizzle(bits, 4 - (size.bit_length() - 1), 3) if bits else None
    return lw.dynamic_shared(traits.out, layout, swizzle=swizzle, offset=memory.offsets["results"])


@lw.device
def store_lines(output, at, buffer) -> None:
    """Store one subtile from shared memory: `at` are its first row and column."""
    T, memory = output.traits, output.memory
    wide = memory.box_columns * memory.subtile_boxes
    along, limit = (at[0], output.last_row) if T.transposed else (at[1], output.N)
    if along + wide <= limit:
        store_chunks(output, at, buffer)
        store_ends(output, at, buffer)
    else:
        store_elements(output, at, buffer)


@lw.device
def start_of(output, at, line):
    """Return where a line of a subtile begins in memory, and whether it is one of the result's."""
    outer, along = at[0] + line, at[1]
    last = output.last_row
    if output.traits.transposed:
        outer, along = at[1] + line, at[0]
        last = output.N
    return output.C + (outer.to(lw.i64) * output.leading + along.to(lw.i64) + output.batch), outer < last


@lw.device
def head_of(place, size):
    """Return how many elements there are from an address to the next multiple of 16 bytes."""
    return ((0 - place.address.to(lw.u32)) & (CHUNK - 1)).to(lw.i32) // size


@lw.device
def chunk_in_shared(output, line, chunk, buffer):
    """Return a chunk of a line as four words."""
    T, memory = output.traits, output.memory
    inner = chunk * (CHUNK * 8 // T.out.bits)
    place = output.sC.ptr(line, inner % memory.box_columns, inner // memory.box_columns, buffer, output.own)
    return lw.pointer(place.address, u32, "shared", CHUNK).load(4)


@lw.device
def store_chunks(output, at, buffer) -> None:
    """Store what lies between the first and the last multiple of 16 bytes of each line."""
    T, memory = output.traits, output.memory
    size, chunks = T.out.bits // 8, memory.box_columns * memory.subtile_boxes * T.out.bits // 8 // CHUNK
    total = memory.box_rows * chunks
    loaded = []
    for first in range(0, total, WARPGROUP):
        number = lw.min(first + lw.thread_idx.x % WARPGROUP, total - 1)
        line, chunk = number // chunks, number % chunks
        words = [*chunk_in_shared(output, line, chunk, buffer)]
        if chunks > 1:
            words += chunk_in_shared(output, line, lw.min(chunk + 1, chunks - 1), buffer)
        else:
            words += [lw.u32(0) for _ in range(4)]
        loaded.append(words)
    for first in range(0, total, WARPGROUP):
        number = first + lw.thread_idx.x % WARPGROUP
        line, chunk = number // chunks, number % chunks
        place, inside = start_of(output, at, line)
        head = head_of(place, size)
        words = moved_down(loaded[first // WARPGROUP], (head * size).to(lw.u32), size)
        if inside & ((head == 0) | (chunk < chunks - 1)) & (number < total):
            store_chunk(place + (head + chunk * (CHUNK // size)), words)


@lw.device
def store_ends(output, at, buffer) -> None:
    """Store the first and last elements of each line, as many as make one chunk."""
    T, memory = output.traits, output.memory
    per_chunk = CHUNK * 8 // T.out.bits
    wide = memory.box_columns * memory.subtile_boxes
    total = memory.box_rows * per_chunk
    for first in range(0, total, WARPGROUP):
        number = first + lw.thread_idx.x % WARPGROUP
        line, edge = number // per_chunk, number % per_chunk
        place, inside = start_of(output, at, line)
        head = head_of(place, T.out.bits // 8)
        inner = lw.where(edge < head, edge, wide - per_chunk + edge)
        if inside & (head > 0) & (number < total):
            box, column = inner // memory.box_columns, inner % memory.box_columns
            place[inner] = output.sC[line, column, box, buffer, output.own]


@lw.device
def store_elements(output, at, buffer) -> None:
    """Store a subtile at the result's edge: one element after the other, what lies inside alone."""
    T, memory = output.traits, output.memory
    wide = memory.box_columns * memory.subtile_boxes
    along, limit = (at[0], output.last_row) if T.transposed else (at[1], output.N)
    for number in lw.range(lw.thread_idx.x % WARPGROUP, memory.box_rows * wide, WARPGROUP):
        line, inner = number // wide, number % wide
        place, inside = start_of(output, at, line)
        if inside & (along + inner < limit):
            place[inner] = output.sC[
                line, inner % memory.box_columns, inner // memory.box_columns, buffer, output.own
            ]


# by idle warps ----------------------------------------------------------------------------------------------


#: Named barriers of each consumer: a subtile of results is in shared memory; it has been read.
STAGED, READ = 4, 10
#: Threads that store: three warps; one warp loads. Each pair of barriers has these and a consumer's.
LOADING = 32
STORING = WARPGROUP - LOADING
BOTH = WARPGROUP + STORING
#: Rows that begin equally far behind a multiple of 16 bytes are so many apart, as elements have two bytes or
#: more; of 8-bit elements it takes twice as many.
_APART = {8: 16, 16: 8, 32: 8}


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
        T, memory = self.traits, self.memory
        subtiles = memory.subtiles * ROWS // T.consumer_rows
        if tiles.first < tiles.count:
            for own in range(T.consumers):
                lw.arrive(READ + own, BOTH)
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, matrix = tiles[number]
            if T.batched:
                self.batch = matrix.to(lw.i64) * self.stride
            first_row, first_column = place.first_element(T, row, column)
            for block in range(T.consumer_rows // ROWS):
                for subtile in range(subtiles):
                    for own in range(T.consumers):
                        self.own = own
                        lw.barrier(STAGED + own, BOTH)
                        self.store_subtile(
                            first_row + own * T.consumer_rows + block * ROWS,
                            first_column + subtile * memory.subtile_columns,
                        )
                        further = (block + 1) * ROWS < T.consumer_rows or subtile + 1 < subtiles
                        if further or number + tiles.step < tiles.count:
                            lw.arrive(READ + own, BOTH)

    @lw.device
    def store_subtile(self, row, column) -> None:
        """Store one subtile from shared memory: each warp has rows that begin equally far behind 16 bytes."""
        T, memory = self.traits, self.memory
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
        T, memory = self.traits, self.memory
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
