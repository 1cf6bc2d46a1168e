"""Stores of results whose lines begin at any address, where TMA cannot store.

A subtile of results lies in shared memory as lines of 16-byte chunks. In memory, a line begins `head`
elements before a multiple of 16 bytes. From there on it is stored 16 bytes at once, each made of two
neighbouring chunks. The elements before and behind that are stored one by one, at the same time by different
threads.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.trace.types import u32
from lanewise.linalg.kernels.copies.chunks import CHUNK, moved_down, store_chunk
from lanewise.linalg.kernels.hopper.traits import WARPGROUP


@lw.device
def store_lines(output, at, buffer) -> None:
    """Store one subtile from shared memory: `at` are its first row and column."""
    T = output.traits
    memory = output.memory
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
    T = output.traits
    memory = output.memory
    inner = chunk * (CHUNK * 8 // T.out.bits)
    place = output.sC.ptr(line, inner % memory.box_columns, inner // memory.box_columns, buffer, output.own)
    return lw.pointer(place.address, u32, "shared", CHUNK).load(4)


@lw.device
def store_chunks(output, at, buffer) -> None:
    """Store what lies between the first and the last multiple of 16 bytes of each line."""
    T = output.traits
    memory = output.memory
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
    T = output.traits
    memory = output.memory
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
    T = output.traits
    memory = output.memory
    wide = memory.box_columns * memory.subtile_boxes
    along, limit = (at[0], output.last_row) if T.transposed else (at[1], output.N)
    for number in lw.range(lw.thread_idx.x % WARPGROUP, memory.box_rows * wide, WARPGROUP):
        line, inner = number // wide, number % wide
        place, inside = start_of(output, at, line)
        if inside & (along + inner < limit):
            place[inner] = output.sC[
                line, inner % memory.box_columns, inner // memory.box_columns, buffer, output.own
            ]
