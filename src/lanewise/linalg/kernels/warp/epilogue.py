"""How a warp's sums leave its registers: epilogue, rounding, and guarded stores of neighbours together.

A warp has 16 bytes of each of eight rows at once, which memory would write as halves of sectors. So a tile of
results goes through shared memory, where it fits, and each warp stores whole lines of it.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import e4m3, e5m2, f32, f64
from lanewise.lang.trace.types import u32
from lanewise.layout import Layout
from lanewise.linalg.kernels.copies.chunks import CHUNK, store_chunk
from lanewise.linalg.kernels.fused_epilogue import (
    changes_values,
    column_terms,
    finished,
    pair_of_small,
    rounded,
    row_terms,
)
from lanewise.linalg.kernels.row_stores import Row, rows_at_once, store_rows
from lanewise.linalg.kernels.warp.tiles import LANES


@lw.device
def store_lines(T, acc, matrix, leading, tile, own, M, N, given):
    """Store the tile of a block, which begins at a row and a column; `own` is a warp's part of it."""
    (bm, bn, _), (row, column) = T.plan.tile, tile
    results = lw.dynamic_shared(T.out, Layout((bm, bn), (T.staged_columns, 1)))
    lw.syncthreads()  # all warps have left the operands' tiles
    if lw.thread_idx.x < T.team:
        put_results(T, acc, results, tile, own, M, N, given)
    lw.syncthreads()
    place = matrix + row.to(lw.i64) * leading + column
    high, wide = lw.min(M - row, bm), lw.min(N - column, bn)
    if bn <= LANES:
        for first in range(0, bm * bn, T.threads):
            number = first + lw.thread_idx.x
            line, c = number // bn, number % bn
            if (line < high) & (c < wide):
                (place + line.to(lw.i64) * leading + c).store(results[line, c])
    elif T.problem.out.alignment >= CHUNK:
        store_chunks(T, results, place, leading, high, wide)
    else:
        store_elements(T, results, place, leading, high, wide)


@lw.device
def store_chunks(T, results, place, leading, high, wide):
    """Store rows that begin at multiples of 16 bytes, 16 bytes at once, and what is left one by one."""
    bn, size = T.plan.tile[1], T.out.bits // 8
    per_chunk = CHUNK // size
    across = bn // per_chunk
    lanes = min(across, LANES)
    for line in lw.range(lw.thread_idx.x // lanes, high, T.threads // lanes):
        start = place + line.to(lw.i64) * leading
        for first in range(0, across, lanes):
            c = (first + lw.thread_idx.x % lanes) * per_chunk
            words = lw.pointer(results.ptr(line, c).address, u32, "shared", CHUNK).load(4)
            if c + per_chunk <= wide:
                store_chunk(start + c, words)
    if wide % per_chunk != 0:
        for line in lw.range(lw.thread_idx.x // per_chunk, high, T.threads // per_chunk):
            c = wide // per_chunk * per_chunk + lw.thread_idx.x % per_chunk
            if c < wide:
                (place + line.to(lw.i64) * leading + c).store(results[line, c])


@lw.device
def store_elements(T, results, place, leading, high, wide):
    """Store rows that begin at any address, each by one warp."""
    (bm, bn, _), warps = T.plan.tile, T.threads // LANES
    together = rows_at_once(bn)
    for first in lw.range(lw.thread_idx.x // LANES, high, warps * together):
        rows = []
        for i in range(together):
            line = first + i * warps
            target = place + line.to(lw.i64) * leading
            rows.append(Row(target, results.ptr(lw.min(line, bm - 1), 0), lw.where(line < high, wide, 0)))
        store_rows(rows, bn, T.out.bits // 8)


@lw.device
def put_results(T, acc, results, tile, own, M, N, given):
    """Write a warp's part of the results to shared memory."""
    for i in range(len(acc)):
        for j in range(len(acc[i])):
            values = acc[i][j]
            for first in range(0, len(values), 2):
                r, c = values.element(first)
                r, c = own[0] + i * T.mma.m + r, own[1] + j * T.mma.n + c
                pair = [
                    finished_sum(T, given, values[first + n], tile[0] + r, tile[1] + c + n, M, N)
                    for n in range(2)
                ]
                results.ptr(r, c).store([rounded(value, T.out) for value in pair])


@lw.device
def store(T, part, matrix, leading, row, column, M, N, given):
    """Store the sums of a warp, whose part of the tile begins at a row and a column: the fragments that its
    block owns, the number of the first of them, and whether this lane has any of them."""
    (sums, first, is_owner), across = part, T.warp[1] // T.mma.n
    if is_owner:
        for number in range(len(sums)):
            i, j = (first + number) // across, (first + number) % across
            place = row + i * T.mma.m, column + j * T.mma.n
            store_fragment(T, sums[number], matrix, leading, *place, M, N, given)


@lw.device
def store_fragment(T, values, matrix, leading, row, column, M, N, given):
    """Store a fragment of sums that begins at a row and a column."""
    together = T.problem.out.alignment * 8 >= 2 * T.out.bits
    leading = lw.assume(leading, multiple_of=2) if together else leading
    for first in range(0, len(values), 2):
        r, c = values.element(first)
        r, c = row + r, column + c
        pair = [finished_sum(T, given, values[first + n], r, c + n, M, N) for n in range(2)]
        place = matrix + r.to(lw.i64) * leading + c
        store_pair(T, place, pair, (r < M) & (c < N), (r < M) & (c + 1 < N), together)


@lw.device
def store_pair(T, place, pair, inside, second_inside, together):
    """Store two neighbours of a row, as far as they lie in the matrix."""
    if T.out in (e4m3, e5m2):
        both = pair_of_small(pair[0].to(f32), pair[1].to(f32), T.out)
        if together:
            if second_inside:
                lw.asm("st.global.b16 [{p}], {v};", p=place, v=both)
        else:
            if second_inside:
                lw.asm("st.global.b8 [{p}], {v};", p=place + 1, v=both >> 8)
        if inside & ~second_inside if together else inside:
            lw.asm("st.global.b8 [{p}], {v};", p=place, v=both & 0xFF)
    else:
        pair = [rounded(value, T.out) for value in pair]
        if together:
            if second_inside:
                place.store(pair)
            elif inside:
                place.store(pair[0])
        else:
            if inside:
                place.store(pair[0])
            if second_inside:
                (place + 1).store(pair[1])


@lw.device
def finished_sum(T, given, value, row, column, M, N):
    """Return a sum after the epilogue; where it lies outside the matrix, of the nearest place inside."""
    epilogue = T.problem.epilogue
    if not changes_values(epilogue):
        return value
    outer_row, outer_column = row, column
    row, column = lw.min(row, M - 1), lw.min(column, N - 1)
    residual = None
    if epilogue.residual is not None:
        residual = epilogue.residual.dtype(0.0)
        # the nearest place inside is another thread's, which may have stored there, in place of the residual
        if (outer_row < M) & (outer_column < N):
            place = row.to(lw.i64) * given.residual_row + column.to(lw.i64) * given.residual_column
            residual = given.residual[place]
    if T.wide is f64:
        return finished_f64(epilogue, given, value, row, column, residual)
    of_row, of_column = row_terms(epilogue, given, row), column_terms(epilogue, given, column)
    more = None if residual is None else residual.to(f32)
    return finished(epilogue, given, value, of_row, of_column, more, (row, column), T.out)


@lw.device
def finished_f64(epilogue, given, value, row, column, residual):
    """Return an f64 after the epilogue: each operation rounded by itself."""
    if epilogue.alpha:
        value = value * given.alpha
    if epilogue.bias is not None:
        value = value + given.bias[column if epilogue.bias == "row" else row]
    if epilogue.activation == "relu":
        value = lw.where(lw.isnan(value), value, lw.max(value, f64(0.0)))  # max.NaN is not for f64
    if residual is not None:
        value = value + (residual * given.beta if epilogue.beta else residual)
    return value
