"""Transposed copies of tiles, through shared memory: of elements as they are, or of f32 as parts of bf16."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u32
from lanewise.layout import Layout
from lanewise.linalg.kernels.copies.chunks import CHUNK, split_number, store_chunk

#: Rows and columns of a tile, those of a tile of bytes, and the threads that copy it.
TILE, BYTES_TILE, THREADS = 64, 128, 256
#: Chunks of 16 bytes of a line of a tile of bytes, which is as many lines of 16.
_CHUNKS = BYTES_TILE // CHUNK


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
