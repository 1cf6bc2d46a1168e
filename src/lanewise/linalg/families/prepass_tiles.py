"""Transposed copies of tiles, through shared memory: of elements as they are, or of f32 as parts of bf16."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.trace.types import u32
from lanewise.layout import Layout
from lanewise.linalg.families.prepass_chunks import split_number, store_chunk

#: Rows and columns of a tile, and the threads that copy it.
TILE, THREADS = 64, 256


def tiles_of(length: int, padded: int) -> int:
    """Return how many tiles a matrix has whose lines of `length` become lines of `padded` elements."""
    return -(-padded // TILE) * -(-length // TILE)


@lw.device
def corner(given: Any, block: Any) -> Any:
    """Return a tile's matrix, its first line and its first element of each line."""
    across = lw.cdiv(given.length, TILE)
    along = lw.cdiv(given.padded, TILE)
    matrix, tile = block // (across * along), block % (across * along)
    return matrix.to(lw.i64), tile // across * TILE, tile % across * TILE


@lw.device
def load_tile(tile: Any, given: Any, at: Any, zero: Any) -> None:
    """Load a tile into shared memory, with zeros outside of the matrix."""
    matrix, first_row, first_column = at
    base = given.source + matrix * given.source_stride
    for step in range(0, TILE * TILE, THREADS):
        row, column = (step + lw.thread_idx.x) // TILE, (step + lw.thread_idx.x) % TILE
        value = zero
        if (first_row + row < given.lines) & (first_column + column < given.length):
            value = base[(first_row + row).to(lw.i64) * given.leading + (first_column + column).to(lw.i64)]
        tile[row, column] = value
    lw.syncthreads()


@lw.device
def transpose_tile(size: Any, word: Any, given: Any, block: Any) -> None:
    """Copy a tile to its place in the transpose, whose rows are padded with zeros."""
    per_word = 4 // size
    # a word more than the tile's width keeps columns of the tile in different banks
    tile = lw.shared(word, Layout((TILE, TILE), (TILE + per_word, 1)))
    at = corner(given, block)
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
def split_tile(given: Any, block: Any) -> None:
    """Copy a tile of f32 to its place in the transpose, as three planes of bf16."""
    tile = lw.shared(f32, Layout((TILE, TILE), (TILE + 1, 1)))
    at = corner(given, block)
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
