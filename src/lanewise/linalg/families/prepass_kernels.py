"""Kernels that copy matrices for TMA and wgmma: realigned, transposed, or f32 as parts of bf16."""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import bf16, f32, u8
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout

#: Bytes that a thread copies at once; threads of a block, and rows that each copies.
CHUNK, THREADS, ROWS_AT_ONCE = 16, 256, 4
#: Rows and columns of a tile that goes through shared memory.
TILE = 64
_WORDS = {1: u8, 2: u16, 4: u32}


@cache
def realigning(size: int) -> Any:
    """Return the kernel that copies rows of `size`-byte elements to rows at multiples of 16 bytes."""
    word, per_chunk = _WORDS[size], CHUNK // size

    @lw.kernel(max_threads=THREADS)
    def realign(
        source: lw.Ptr[word], target: lw.Ptr[word, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
    ):  # fmt: skip
        column = (lw.block_idx.x * THREADS + lw.thread_idx.x) * per_chunk
        matrix = lw.block_idx.z.to(lw.i64)
        last = (rows - 1).to(lw.i64) * leading + columns.to(lw.i64)  # elements from the first to the end
        base = source + matrix * source_stride
        if column < padded:
            for number in range(ROWS_AT_ONCE):
                row = lw.block_idx.y * ROWS_AT_ONCE + number
                if row < rows:
                    flat = row.to(lw.i64) * leading + column.to(lw.i64)
                    place = (
                        target
                        + matrix * target_stride
                        + row.to(lw.i64) * padded.to(lw.i64)
                        + column.to(lw.i64)
                    )
                    words = copied_chunk(base, flat, last, columns - column, size)
                    store_chunk(place, words)

    return realign


@lw.device
def copied_chunk(base: Any, flat: Any, last: Any, left: Any, size: Any) -> Any:
    """Return 16 bytes from an element on as four words; beyond the row's end they are zero.

    Inside of the array five aligned words are read and shifted; at its ends, element by element.
    """
    per_word = 4 // size
    address = (base + flat).address.to(lw.u64)
    shift = (address & 3).to(lw.u32) * 8
    words = [lw.u32(0) for _ in range(4)]
    inside = (flat >= per_word) & (flat + 5 * per_word < last)
    if inside:
        read = []
        for i in range(5):
            read.append(lw.asm("ld.global.nc.b32 {d}, [{p}];", d=lw.u32, p=(address - (address & 3)) + 4 * i))
        for i in range(4):
            words[i] = lw.asm(
                "shf.r.clamp.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=read[i], b=read[i + 1], c=shift
            )
    else:
        for i in range(4):
            for j in range(per_word):
                if i * per_word + j < left:
                    value = base[flat + (i * per_word + j)].to(lw.u32)
                    words[i] = words[i] | (value << (8 * size * j))
    for i in range(4):
        here = left - i * per_word  # elements of this word that belong to the row
        if here < per_word:
            kept = lw.max(here, 0) * (8 * size)
            words[i] = lw.where(kept == 0, lw.u32(0), words[i] & ((lw.u32(1) << kept.to(lw.u32)) - 1))
    return words


@lw.device
def store_chunk(place: Any, words: Any):
    """Store four words at an address that is a multiple of 16 bytes."""
    lw.pointer(place.address, u32, "global", CHUNK).store(words)


@cache
def transposing(size: int) -> Any:
    """Return the kernel that copies a matrix of `size`-byte elements to its transpose, rows padded."""
    word = _WORDS[size]
    per_word = 4 // size
    # a line more than the tile's width keeps columns of the tile in different banks
    layout = Layout((TILE, TILE), (TILE + per_word, 1))

    @lw.kernel(max_threads=THREADS)
    def transpose(
        source: lw.Ptr[word], target: lw.Ptr[word, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
    ):  # fmt: skip
        tile = lw.shared(word, layout)
        thread = lw.thread_idx.x
        first_row, first_column = lw.block_idx.y * TILE, lw.block_idx.x * TILE
        matrix = lw.block_idx.z.to(lw.i64)
        base = source + matrix * source_stride
        for step in range(0, TILE * TILE, THREADS):
            row, column = (step + thread) // TILE, (step + thread) % TILE
            value = word(0)
            if (first_row + row < rows) & (first_column + column < columns):
                value = base[(first_row + row).to(lw.i64) * leading + (first_column + column).to(lw.i64)]
            tile[row, column] = value
        lw.syncthreads()
        for step in range(0, TILE * TILE // per_word, THREADS):
            number = step + thread
            column, row = number // (TILE // per_word), number % (TILE // per_word) * per_word
            packed = lw.u32(0)
            for i in range(per_word):
                packed = packed | (tile[row + i, column].to(lw.u32) << (8 * size * i))
            if (first_column + column < columns) & (first_row + row < padded):
                at = (first_column + column).to(lw.i64) * padded.to(lw.i64) + (first_row + row).to(lw.i64)
                lw.asm("st.global.b32 [{p}], {v};", p=target + matrix * target_stride + at, v=packed)

    return transpose


@cache
def splitting(transposed: bool) -> Any:
    """Return the kernel that writes f32 numbers as three bf16 numbers, in planes with padded rows.

    The first is x rounded towards zero, the others what is left, rounded to nearest; their sum is x.
    """
    columns_of_tile = TILE + 1  # columns of the tile lie in different banks

    @lw.kernel(max_threads=THREADS)
    def split(
        source: lw.Ptr[f32], target: lw.Ptr[bf16, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, plane: lw.i64,
    ):  # fmt: skip
        tile = lw.shared(f32, Layout((TILE, TILE), (columns_of_tile, 1)))
        thread = lw.thread_idx.x
        first_row, first_column = lw.block_idx.y * TILE, lw.block_idx.x * TILE
        matrix = lw.block_idx.z.to(lw.i64)
        base = source + matrix * source_stride
        for step in range(0, TILE * TILE, THREADS):
            row, column = (step + thread) // TILE, (step + thread) % TILE
            value = f32(0.0)
            if (first_row + row < rows) & (first_column + column < columns):
                value = base[(first_row + row).to(lw.i64) * leading + (first_column + column).to(lw.i64)]
            tile[row, column] = value
        lw.syncthreads()
        # lines of the result, eight numbers at once
        line_first, inner_first = (first_column, first_row) if transposed else (first_row, first_column)
        lines = columns if transposed else rows
        for step in range(0, TILE * TILE // 8, THREADS):
            line, inner = (step + thread) // (TILE // 8), (step + thread) % (TILE // 8) * 8
            parts = [
                split_number(tile[inner + i, line] if transposed else tile[line, inner + i]) for i in range(8)
            ]
            if (line_first + line < lines) & (inner_first + inner < padded):
                at = (line_first + line).to(lw.i64) * padded.to(lw.i64) + (inner_first + inner).to(lw.i64)
                for part in range(3):
                    place = target + (matrix * 3 + part) * plane + at
                    words = [
                        lw.bitcast(lw.pack(parts[i][part], parts[i + 1][part]), u32) for i in (0, 2, 4, 6)
                    ]
                    store_chunk(place, words)

    return split


@lw.device
def split_number(value: Any) -> Any:
    """Return an f32 as three bf16 whose sum it is; of an infinity the others are zero."""
    high = value.to(bf16, rounding="rz")
    rest = lw.where(lw.abs(value) < float("inf"), value - high.to(f32), f32(0.0))
    middle = rest.to(bf16)
    low = (rest - middle.to(f32)).to(bf16)
    return high, middle, low
