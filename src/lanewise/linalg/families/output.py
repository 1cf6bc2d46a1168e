"""How a warpgroup's sums leave its registers: epilogue, rounding, shared memory, then TMA or guarded stores."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import bf16, e4m3, e5m2, f16, f32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.epilogue_code import changes_values, column_terms, finished, row_terms
from lanewise.linalg.families.build import LINE, ROWS, WARPGROUP, Build

#: Bits of the swizzle for boxes with rows of 128, 64, 32 and 16 bytes.
_SWIZZLE_BITS = {128: 3, 64: 2, 32: 1, 16: 0}


def staging(build: Build, offset: int) -> Any:
    """Return the shared memory of results: (row of a box, column of a box, box, which turn, consumer)."""
    rows, wide, boxes, size = build.box_rows, build.box_columns, build.turn_boxes, build.out.bits // 8
    turn = build.turn_bytes // size
    layout = Layout(
        (rows, wide, boxes, build.buffers, build.consumers),
        (wide, 1, rows * wide, turn, build.buffers * turn),
    )
    bits = _SWIZZLE_BITS[wide * size]
    swizzle = Swizzle(bits, 4 - (size.bit_length() - 1), 3) if bits else None
    return lw.dynamic_shared(build.out, layout, swizzle=swizzle, offset=offset)


@lw.device
def pair(low: Any, high: Any, dtype: Any) -> Any:
    """Return two finished values as neighbours of the result's format: a register of 16 or 32 bits, or both."""
    if dtype in (f16, bf16):
        if low.dtype == dtype:
            return lw.pack(low, high)
        return lw.pack(low, high, dtype)
    if dtype in (e4m3, e5m2):
        text = f"cvt.rn.satfinite.{dtype.name}x2.f32 {{d}}, {{high}}, {{low}};"
        return lw.asm(text, needs=("sm_89", "8.1"), d=lw.u16, high=high, low=low)
    return (low.to(dtype), high.to(dtype))


@lw.device
def finished_pair(build: Any, given: Any, acc: Any, first: Any, of_row: Any, of_columns: Any, at: Any, M: Any, N: Any):
    """Return elements `first` and `first + 1` of an accumulator after the epilogue."""
    epilogue = build.epilogue
    values = [acc[first], acc[first + 1]]
    if not changes_values(epilogue):
        return values
    row, column = at
    residuals = [None, None]
    if epilogue.residual is not None:
        residuals = [f32(0.0), f32(0.0)]
        place = given.residual + row.to(lw.i64) * given.residual_row + column.to(lw.i64) * given.residual_column
        if (row < M) & (column < N):
            residuals[0] = place[0].to(f32)
        if (row < M) & (column + 1 < N):
            residuals[1] = place[given.residual_column].to(f32)
    return [
        finished(epilogue, given, values[i], of_row, of_columns[i], residuals[i], (row, column + i))
        for i in range(2)
    ]


@lw.device
def store_tile(build: Any, C: Any, sC: Any, given: Any, accs: Any, first_row: Any, first_column: Any, batch: Any, own: Any, M: Any, N: Any, leading: Any):  # fmt: skip
    """Store a warpgroup's rows of a tile; `own` is the number of the consumer."""
    thread = lw.thread_idx.x % WARPGROUP
    lane, warp = lw.lane_id(), lw.shfl_sync(thread // 32, 0)
    turn_columns = build.store_columns if build.transposed else build.box_columns * build.turn_boxes
    turn = 0
    for block in range(len(accs)):
        row = first_row + block * ROWS
        own_row = row + warp * 16 + lane // 4
        of_rows = [row_terms(build.epilogue, given, lw.min(own_row + 8 * i, M - 1)) for i in range(2)]
        for start in range(0, build.store_columns, turn_columns):
            buffer = turn % build.buffers
            if not build.store_by_tma or turn == 0 and build.turns % 2 or build.buffers == 1:
                # the buffer's last contents have been read; else the turn before has seen to that
                wait_for_reads(build, warp)
                lw.barrier(1 + own, WARPGROUP)
            write_turn(
                build, sC, given, accs[block], start, turn_columns, own_row, first_column, of_rows, buffer, own, M, N
            )
            if build.store_by_tma:
                lw.fence_proxy_async()
                if build.buffers > 1:
                    wait_for_reads(build, warp)
            lw.barrier(1 + own, WARPGROUP)
            if build.store_by_tma:
                if (warp == 0) & lw.elect_one():
                    for box in range(build.turn_boxes):
                        at = (row, first_column + start + box * build.box_columns)
                        if build.transposed:
                            at = (first_column + start, row + box * build.box_columns)
                        lead = (batch,) if build.batched else ()
                        lw.tma.store(C, (*lead, *at), sC[None, None, box, buffer, own])
                    lw.tma.commit()
            else:
                store_guarded(build, C, sC, row, first_column + start, batch, buffer, own, M, N, leading)
            turn += 1


@lw.device
def wait_for_reads(build: Any, warp: Any):
    """Let the thread that stores by TMA wait until all of its stores have read shared memory."""
    if build.store_by_tma:
        if (warp == 0) & lw.elect_one():
            lw.tma.wait(0, read=True)


@lw.device
def write_turn(build: Any, sC: Any, given: Any, acc: Any, start: Any, count: Any, own_row: Any, first_column: Any, of_rows: Any, buffer: Any, own: Any, M: Any, N: Any):  # fmt: skip
    """Write the columns of one turn, after the epilogue, to shared memory."""
    sixteen_bits = build.out in (f16, bf16)
    pairs_at_once = 2 if sixteen_bits and (count if build.transposed else build.box_columns) >= 16 else 1
    lane = lw.lane_id()
    for at in range(0, count, 8 * pairs_at_once):
        pairs = []
        for eight in range(pairs_at_once):
            columns = first_column + start + at + 8 * eight + 2 * (lane % 4)
            of_columns = [
                column_terms(build.epilogue, given, lw.min(columns + i, N - 1))
                if build.epilogue.scale_b is not None or build.epilogue.bias == "row"
                else (None, None)
                for i in range(2)
            ]
            for half in range(2):
                first = (start + at + 8 * eight) // 8 * 4 + 2 * half
                low, high = finished_pair(
                    build, given, acc, first, of_rows[half], of_columns, (own_row + 8 * half, columns), M, N
                )
                pairs.append(pair(low, high, build.out))
        if build.transposed:
            write_columns(build, sC, pairs, at, pairs_at_once, buffer, own)
        else:
            write_rows(build, sC, pairs, at, pairs_at_once, buffer, own)


@lw.device
def write_rows(build: Any, sC: Any, pairs: Any, at: Any, eights: Any, buffer: Any, own: Any):
    """Write 16 rows of a warp and 8 or 16 columns as rows of a box."""
    lane, warp = lw.lane_id(), lw.shfl_sync(lw.thread_idx.x % WARPGROUP // 32, 0)
    box, column = at // build.box_columns, at % build.box_columns
    if build.out in (f16, bf16):
        further = lane // 16 * 8 if eights == 2 else 0
        lw.stmatrix(sC.ptr(warp * 16 + lane % 16, column + further, box, buffer, own), pairs)
    else:
        for half in range(2):
            place = sC.ptr(warp * 16 + lane // 4 + 8 * half, column + 2 * (lane % 4), box, buffer, own)
            if build.out in (e4m3, e5m2):
                lw.asm("st.shared.b16 [{p}], {v};", p=place, v=pairs[half])
            else:
                place.store(pairs[half])


@lw.device
def write_columns(build: Any, sC: Any, pairs: Any, at: Any, eights: Any, buffer: Any, own: Any):
    """Write 16 rows of a warp and 8 or 16 columns with the columns as rows of a box."""
    lane, warp = lw.lane_id(), lw.shfl_sync(lw.thread_idx.x % WARPGROUP // 32, 0)
    wide = build.box_columns
    if build.out in (f16, bf16):
        column = at + lane % 8 + (lane // 16 * 8 if eights == 2 else 0)
        lw.stmatrix(sC.ptr(column, warp * 16 + lane // 8 % 2 * 8, 0, buffer, own), pairs, trans=True)
    else:
        for half in range(2):
            row = warp * 16 + lane // 4 + 8 * half
            values = pairs[half]
            if build.out in (e4m3, e5m2):
                values = (values & 0xFF, values >> 8)
            for i in range(2):
                place = sC.ptr(at + 2 * (lane % 4) + i, row % wide, row // wide, buffer, own)
                if build.out in (e4m3, e5m2):
                    lw.asm("st.shared.b8 [{p}], {v};", p=place, v=values[i])
                else:
                    place.store(values[i])


@lw.device
def store_guarded(build: Any, C: Any, sC: Any, row: Any, column: Any, batch: Any, buffer: Any, own: Any, M: Any, N: Any, leading: Any):  # fmt: skip
    """Store one turn from shared memory, neighbouring threads neighbouring elements, what lies inside alone."""
    thread = lw.thread_idx.x % WARPGROUP
    wide = build.box_columns * build.turn_boxes
    for first in range(0, build.box_rows * wide, WARPGROUP):
        number = first + thread
        line, inner = number // wide, number % wide
        inside = (row + line < M) & (column + inner < N)
        place = (row + line).to(lw.i64) * leading + (column + inner).to(lw.i64) + batch
        if build.transposed:
            inside = (row + inner < M) & (column + line < N)
            place = (column + line).to(lw.i64) * leading + (row + inner).to(lw.i64) + batch
        if inside:
            C[place] = sC[line, inner % build.box_columns, inner // build.box_columns, buffer, own]
