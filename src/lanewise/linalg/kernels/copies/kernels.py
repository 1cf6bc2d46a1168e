"""Kernels that copy matrices for TMA and wgmma: realigned, transposed, or f32 as parts of bf16.

One launch copies both operands. Its blocks write what the product reads first at the end, so that it is found
in the L2 cache; the product, launched to overlap with it, begins while the last of them are at work.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import Format, bf16, f32, u8
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout
from lanewise.linalg.kernels.copies.chunks import CHUNK, Chunk, split_number, store_chunk, whole_granules
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.parameters import Field

#: Rows and columns of a tile, those of a tile of bytes, and the threads that copy it.
TILE, BYTES_TILE, THREADS = 64, 128, 256
#: Chunks of 16 bytes of a line of a tile of bytes, which is as many lines of 16.
_CHUNKS = BYTES_TILE // CHUNK
#: Chunks of 16 bytes of the result that each thread makes (of each plane, if there are several).
CHUNKS_EACH = {1: 4, 3: 2}
_WORDS = {1: u8, 2: u16, 4: u32}


class Kind(NamedTuple):
    """What is compiled in of one operand's copy."""

    #: Bytes of an element as it is read.
    size: int
    transposed: bool = False
    #: 1: bytes are copied; 3: f32 becomes three planes of bf16.
    planes: int = 1
    #: Whether there are several matrices, and whether all lines begin at multiples of 16 bytes, or of four if
    #: bytes are transposed.
    batched: bool = False
    aligned: bool = False
    #: Whether chunks are counted with 64 bits; whether there are too few bytes to read 16 at once.
    wide: bool = False
    tiny: bool = False

    @property
    def source(self) -> Format:
        """The type of the elements that are read."""
        return f32 if self.planes > 1 else _WORDS[self.size]

    @property
    def target(self) -> Format:
        """The type of the elements that are written."""
        return bf16 if self.planes > 1 else _WORDS[self.size]

    @property
    def transposes_words(self) -> bool:
        """Whether bytes are transposed that can be read four at once."""
        return self.transposed and self.size == 1 and self.aligned

    @property
    def per_chunk(self) -> int:
        """Elements of 16 bytes of the result."""
        return CHUNK // (2 if self.planes > 1 else self.size)


class Lines(NamedTuple):
    """An operand's lines in memory, before and after, as one launch has them."""

    source: Field
    target: Field
    lines: Field = lw.i32
    length: Field = lw.i32
    #: Elements from line to line, and from matrix to matrix (or from plane to plane).
    leading: Field = lw.i64
    padded: Field = lw.i32
    source_stride: Field = lw.i64
    target_stride: Field = lw.i64
    matrices: Field = lw.i32
    #: n // chunks of a line = (n · magic) >> 32 >> shift, for n below 2³¹.
    magic: Field = lw.u32
    shift: Field = lw.u32


def division(divisor: int) -> tuple[int, int]:
    """Return the multiplier and the shift that divide numbers below 2³¹ by a divisor of at least 2.

    >>> magic, shift = division(264)
    >>> all((n * magic >> 32) >> shift == n // 264 for n in (0, 263, 264, 2**31 - 1))
    True
    """
    bits = (divisor - 1).bit_length()
    return -(-(1 << (31 + bits)) // divisor), bits - 1


@made_by_constants
def copying(first: Kind, second: Kind | None = None) -> Kernel:
    """Return the kernel that copies one operand, or two."""
    of_first = Lines(lw.Ptr[first.source], lw.Ptr[first.target, 16])
    if second is None:

        @lw.kernel(max_threads=THREADS)
        def copy(lines: of_first):
            lw.launch_dependents()
            copy_part(first, lines, lw.grid_dim.x - 1 - lw.block_idx.x)

        return copy

    of_second = Lines(lw.Ptr[second.source], lw.Ptr[second.target, 16])

    @lw.kernel(max_threads=THREADS)
    def copy_both(first_lines: of_first, second_lines: of_second, blocks: lw.i32):
        lw.launch_dependents()
        if lw.block_idx.x < blocks:
            copy_part(first, first_lines, blocks - 1 - lw.block_idx.x)
        else:
            copy_part(second, second_lines, lw.grid_dim.x - 1 - lw.block_idx.x)

    return copy_both


@lw.device
def copy_part(kind, given, block) -> None:
    """Copy one block's part of an operand: some chunks of its lines, or a tile."""
    if kind.transposed:
        if kind.planes > 1:
            split_tile(given, block)
        elif kind.transposes_words:
            transpose_bytes(given, block)
        else:
            transpose_tile(kind.size, kind.source, given, block)
    else:
        copy_chunks(kind, given, block)


@lw.device
def copy_chunks(kind, given, block) -> None:
    """Copy chunks of 16 bytes, neighbours by neighbouring threads: all of them are loaded, then stored."""
    per_thread = CHUNKS_EACH[kind.planes]
    per_line = given.padded // kind.per_chunk
    # the block's first chunk, as a line and the chunks before it in this line
    if kind.wide:
        first = block.to(lw.u64) * (THREADS * per_thread)
        line = (first // per_line.to(lw.u64)).to(lw.i32)
        before = (first - line.to(lw.u64) * per_line.to(lw.u64)).to(lw.u32)
    else:
        first = (block * (THREADS * per_thread)).to(lw.u32)
        start = divided(first, given)
        line, before = start.to(lw.i32), first - start * per_line.to(lw.u32)
    limits = whole_granules(kind, given)
    places, loaded = [], []
    for i in range(per_thread):
        number = before + lw.thread_idx.x.to(lw.u32) + i * THREADS
        further = divided(number, given)
        column = (number - further * per_line.to(lw.u32)).to(lw.i32) * kind.per_chunk
        place = line + further.to(lw.i32)
        matrix = lw.i32(0)
        row = place
        if kind.batched:
            matrix = place // given.lines
            row = place - matrix * given.lines
        places.append((place, matrix, row, column))
        flat = row.to(lw.i64) * given.leading + column.to(lw.i64)
        if kind.batched:
            flat = flat + matrix.to(lw.i64) * given.source_stride
        loaded.append(Chunk(kind, given, flat, given.length - column, limits))
    for i in range(per_thread):
        place, matrix, row, column = places[i]
        if place < given.lines * given.matrices:
            to = row.to(lw.i64) * given.padded.to(lw.i64) + column.to(lw.i64)
            if kind.planes > 1:
                numbers = loaded[i].as_planes()
                for plane in range(kind.planes):
                    at = (matrix * kind.planes + plane).to(lw.i64) * given.target_stride + to
                    store_chunk(given.target + at, numbers[plane])
            else:
                at = to + matrix.to(lw.i64) * given.target_stride if kind.batched else to
                store_chunk(given.target + at, loaded[i].words())


@lw.device
def divided(number, given):
    """Return a number below 2³¹ divided by the chunks of a line."""
    return lw.mulhi(number, given.magic) >> given.shift


# transposed copies of tiles, through shared memory ----------------------------------------------------------


def tiles_of(length: int, padded: int, of_bytes: bool) -> int:
    """Return how many tiles a matrix has whose lines of `length` become lines of `padded` elements."""
    side = BYTES_TILE if of_bytes else TILE
    return -(-padded // side) * -(-length // side)


@lw.device
def corner(given, block, side):
    """Return a tile's matrix, its first line and its first element of each line."""
    across = lw.cdiv(given.length, side)
    along = lw.cdiv(given.padded, side)
    matrix, tile = block // (across * along), block % (across * along)
    return matrix.to(lw.i64), tile // across * side, tile % across * side


@lw.device
def load_tile(tile, given, at, zero) -> None:
    """Load a tile into shared memory, with zeros outside of the matrix.

    What lies outside is read at the nearest place inside, so that no load waits for a branch.
    """
    matrix, first_row, first_column = at
    base = given.source + matrix * given.source_stride
    values = []
    for step in range(0, TILE * TILE, THREADS):
        row = lw.min(first_row + (step + lw.thread_idx.x) // TILE, given.lines - 1)
        column = lw.min(first_column + (step + lw.thread_idx.x) % TILE, given.length - 1)
        values.append(base[row.to(lw.i64) * given.leading + column.to(lw.i64)])
    for step in range(0, TILE * TILE, THREADS):
        row, column = (step + lw.thread_idx.x) // TILE, (step + lw.thread_idx.x) % TILE
        inside = (first_row + row < given.lines) & (first_column + column < given.length)
        tile[row, column] = lw.where(inside, values[step // THREADS], zero)
    lw.syncthreads()


@lw.device
def transpose_tile(size, word, given, block) -> None:
    """Copy a tile to its place in the transpose, whose rows are padded with zeros."""
    per_word = 4 // size
    # a word more than the tile's width keeps columns of the tile in different banks
    tile = lw.shared(word, Layout((TILE, TILE), (TILE + per_word, 1)))
    at = corner(given, block, TILE)
    load_tile(tile, given, at, word(0))
    matrix, first_row, first_column = at
    for step in range(0, TILE * TILE // per_word, THREADS):
        number = step + lw.thread_idx.x
        column, row = number // (TILE // per_word), number % (TILE // per_word) * per_word
        packed = lw.u32(0)
        for i in range(per_word):
            packed = packed | (tile[row + i, column].to(lw.u32) << (8 * size * i))
        if (first_column + column < given.length) & (first_row + row < given.padded):
            to = (first_column + column).to(lw.i64) * given.padded.to(lw.i64) + (first_row + row).to(lw.i64)
            place = given.target + matrix * given.target_stride + to
            lw.asm("st.global.b32 [{p}], {v};", p=place, v=packed)


@lw.device
def split_tile(given, block) -> None:
    """Copy a tile of f32 to its place in the transpose, as three planes of bf16."""
    tile = lw.shared(f32, Layout((TILE, TILE), (TILE + 1, 1)))
    at = corner(given, block, TILE)
    load_tile(tile, given, at, f32(0.0))
    matrix, first_row, first_column = at
    for step in range(0, TILE * TILE // 8, THREADS):
        column, row = (step + lw.thread_idx.x) // (TILE // 8), (step + lw.thread_idx.x) % (TILE // 8) * 8
        parts = [split_number(tile[row + i, column]) for i in range(8)]
        if (first_column + column < given.length) & (first_row + row < given.padded):
            to = (first_column + column).to(lw.i64) * given.padded.to(lw.i64) + (first_row + row).to(lw.i64)
            for plane in range(3):
                place = given.target + (matrix * 3 + plane) * given.target_stride + to
                words = [lw.bitcast(lw.pack(parts[i][plane], parts[i + 1][plane]), u32) for i in (0, 2, 4, 6)]
                store_chunk(place, words)


@lw.device
def transpose_bytes(given, block) -> None:
    """Copy a tile of bytes, whose lines begin at multiples of four, to its place in the transpose.

    A thread loads four neighbours of 16 lines and transposes them in registers. Through shared memory,
    chunks of 16 bytes come together to lines of 128.
    """
    tile = lw.shared(u32, Layout((BYTES_TILE, BYTES_TILE // 4), (BYTES_TILE // 4, 1)), align=CHUNK)
    matrix, first_row, first_column = corner(given, block, BYTES_TILE)
    base = given.source + matrix * given.source_stride
    lane, warp = lw.thread_idx.x % 32, lw.thread_idx.x // 32
    column = first_column + 4 * lane
    words = [lw.u32(0) for _ in range(CHUNK)]
    if given.length >= 4:  # what lies outside is read at the nearest place inside: no load waits for a branch
        nearest = lw.min(column, given.length // 4 * 4 - 4).to(lw.i64)
        for i in range(CHUNK):
            row = lw.min(first_row + warp * CHUNK + i, given.lines - 1)
            place = (base + (row.to(lw.i64) * given.leading + nearest)).address
            words[i] = lw.pointer(place, u32, "global", 4).load(cache="nc")
    for i in range(CHUNK):
        inside = (first_row + warp * CHUNK + i < given.lines) & (column + 4 <= given.length)
        words[i] = lw.where(inside, words[i], lw.u32(0))
    if (column < given.length) & (column + 4 > given.length):
        for i in range(CHUNK):
            row = first_row + warp * CHUNK + i
            for j in range(3):
                if (row < given.lines) & (column + j < given.length):
                    value = base[row.to(lw.i64) * given.leading + (column + j).to(lw.i64)]
                    words[i] = words[i] | (value.to(lw.u32) << (8 * j))
    transposed = [transposed_bytes(words[i : i + 4]) for i in range(0, CHUNK, 4)]
    for j in range(4):
        line = 4 * lane + j
        place = tile.ptr(line, (warp ^ (lane % _CHUNKS)) * 4)
        lw.pointer(place.address, u32, "shared", CHUNK).store([transposed[i][j] for i in range(4)])
    lw.syncthreads()
    for step in range(0, BYTES_TILE * _CHUNKS, THREADS):
        line, chunk = (step + lw.thread_idx.x) // _CHUNKS, (step + lw.thread_idx.x) % _CHUNKS
        place = tile.ptr(line, (chunk ^ (line // 4 % _CHUNKS)) * 4)
        loaded = lw.pointer(place.address, u32, "shared", CHUNK).load(4)
        if (first_column + line < given.length) & (first_row + chunk * CHUNK < given.padded):
            to = (first_column + line).to(lw.i64) * given.padded.to(lw.i64) + (first_row + chunk * CHUNK).to(
                lw.i64
            )
            store_chunk(given.target + matrix * given.target_stride + to, loaded)


def transposed_bytes(words) -> list[Scalar]:
    """Return four words of four bytes with rows and columns exchanged."""

    def picked(a, b, bytes_: int) -> Scalar:
        return lw.asm("prmt.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=a, b=b, c=lw.u32(bytes_))

    low = picked(words[0], words[1], 0x5140), picked(words[2], words[3], 0x5140)
    high = picked(words[0], words[1], 0x7362), picked(words[2], words[3], 0x7362)
    return [
        picked(*low, 0x5410), picked(*low, 0x7632), picked(*high, 0x5410), picked(*high, 0x7632),
    ]  # fmt: skip
