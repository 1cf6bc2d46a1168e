"""How a warpgroup's sums leave its registers: epilogue, rounding, shared memory, TMA or guarded stores."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import bf16, e4m3, e5m2, f16, f32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.epilogue_code import changes_values, column_terms, finished, row_terms
from lanewise.linalg.families.build import ROWS, WARPGROUP, Build

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
    """Return two finished values as neighbours in the result's format: in one register, or as both."""
    if dtype in (f16, bf16):
        if low.dtype == dtype:
            return lw.pack(low, high)
        return lw.pack(low, high, dtype)
    if dtype in (e4m3, e5m2):
        text = f"cvt.rn.satfinite.{dtype.name}x2.f32 {{d}}, {{high}}, {{low}};"
        return lw.asm(text, needs=("sm_89", "8.1"), d=lw.u16, high=high, low=low)
    return (low.to(dtype), high.to(dtype))


def _terms(build: Build, found: Any) -> list[Any]:
    """Return a column's terms, (factor, bias), without those that are the same for all columns or missing."""
    factor, bias = found
    kept = [factor] if build.epilogue.scale_b == "row" else []
    return [*kept, bias] if build.epilogue.bias == "row" else kept


def rotate(values: Any, count: int, total: int) -> None:
    """Move the first `count` of `total` registers behind the others, all in place."""
    moved = [values[i] for i in range(count)]
    for i in range(total - count):
        values[i] = values[i + count]
    for i in range(count):
        values[total - count + i] = moved[i]


class Output:
    """The stores of one consumer: `ahead` and `store` are called by all of its threads, for each tile.

    Scales and biases are loaded by `ahead`, before the products, so that nothing in the epilogue waits for
    memory. Those of rows stay in registers. Those of columns, more than a thread has registers for, are
    spread over the threads until the epilogue begins, and are then exchanged through shared memory.
    """

    def __init__(self, build: Build, C: Any, given: Any, own: Any, N: Any, leading: Any) -> None:
        self.build, self.C, self.given, self.own, self.N, self.leading = build, C, given, own, N, leading
        self.sC = staging(build, build.stages * build.stage_bytes)
        self.lane = lw.lane_id()
        self.warp = lw.shfl_sync(lw.thread_idx.x % WARPGROUP // 32, 0)
        #: The row after the last that is stored, and the matrix of the batch or where it begins.
        self.last_row: Any = None
        self.batch: Any = None
        #: What `ahead` loaded: terms of each 64 rows, those of this thread's share of the columns.
        self.of_rows: Any = None
        self.of_own_columns: Any = None
        self.first_column: Any = None
        if build.terms_of_columns:
            shape = (build.store_columns, build.terms_of_columns, build.consumers)
            offset = build.shared_bytes - build.parts_bytes - build.scale_bytes - build.column_bytes
            self.of_columns = lw.dynamic_shared(f32, Layout(shape), offset=offset)
        # Numbers for all elements are loaded once.
        if build.epilogue.scale_a == "tensor":
            given.scale_a = [given.scale_a[0]]
        if build.epilogue.scale_b == "tensor":
            given.scale_b = [given.scale_b[0]]
        if build.epilogue.scale_out:
            given.scale_out = [given.scale_out[0]]
        if build.transposed:
            self.turn_columns = build.store_columns
        else:
            self.turn_columns = build.box_columns * build.turn_boxes

    @lw.device
    def ahead(self, first_row: Any, first_column: Any) -> None:
        """Load the scales and biases of a tile's rows and columns."""
        T = self.build
        self.first_column, self.of_rows, self.of_own_columns = first_column, [], []
        own_row = first_row + self.warp * 16 + self.lane // 4
        for block in range(T.consumer_rows // ROWS):
            rows = [lw.min(own_row + block * ROWS + 8 * i, self.last_row - 1) for i in range(2)]
            self.of_rows.append([row_terms(T.epilogue, self.given, row) for row in rows])
        if T.terms_of_columns:
            for start in range(0, T.store_columns, WARPGROUP):
                column = lw.min(first_column + start + lw.thread_idx.x % WARPGROUP, self.N - 1)
                found = column_terms(T.epilogue, self.given, column)
                self.of_own_columns.append(_terms(T, found))

    @lw.device
    def exchange_columns(self) -> None:
        """Write what this thread has of the columns' terms where all threads of the consumer read them."""
        T = self.build
        for start in range(0, T.store_columns, WARPGROUP):
            column = start + lw.thread_idx.x % WARPGROUP
            whole = start + WARPGROUP <= T.store_columns
            if whole or column < T.store_columns:
                for number in range(T.terms_of_columns):
                    value = self.of_own_columns[start // WARPGROUP][number]
                    self.of_columns[column, number, self.own] = value
        lw.barrier(1 + self.own, WARPGROUP)

    @lw.device
    def terms_of_pair(self, column: Any) -> Any:
        """Return the factors and biases of two neighbouring columns, of which `column` is the first."""
        T = self.build
        inside = column - self.first_column
        factors: Any = (None, None)
        biases: Any = (None, None)
        if T.epilogue.scale_b == "row":
            factors = self.of_columns.ptr(inside, 0, self.own).load(2)
        elif T.epilogue.scale_b is not None:
            factors = (self.given.scale_b[0], self.given.scale_b[0])
        if T.epilogue.bias == "row":
            biases = self.of_columns.ptr(inside, T.terms_of_columns - 1, self.own).load(2)
        return [(factors[i], biases[i]) for i in range(2)]

    @lw.device
    def store(self, accs: Any, first_row: Any, first_column: Any) -> None:
        """Store a warpgroup's rows of a tile, for which `ahead` was called."""
        T, turns = self.build, self.build.store_columns // self.turn_columns
        if T.terms_of_columns:
            self.exchange_columns()
        for block in range(len(accs)):
            row = first_row + block * ROWS
            own_row = row + self.warp * 16 + self.lane // 4
            of_rows = self.of_rows[block]
            if T.long_epilogue and turns > 1:
                # a loop: registers have no addresses, so those of the next turn move to the front
                values = accs[block]
                for turn in lw.range(turns):
                    column = first_column + turn * self.turn_columns
                    buffer, first = (block * turns + turn) % T.buffers, block == 0 and turn == 0
                    self.store_turn(values, 0, (row, column), own_row, of_rows, buffer, first)
                    rotate(values, self.turn_columns // 2, T.store_columns // 2)
            else:
                for number in range(turns):
                    which, start = (block * turns + number) % T.buffers, number * self.turn_columns
                    at = (row, first_column + start)
                    self.store_turn(accs[block], start, at, own_row, of_rows, which, block + number == 0)

    @lw.device
    def store_turn(
        self, acc: Any, start: Any, at: Any, own_row: Any, of_rows: Any, buffer: Any, first: Any
    ) -> None:
        """Store one turn, 64 rows `at` a row and column; its sums begin at column `start`."""
        T = self.build
        if not T.store_by_tma or T.buffers == 1 or (T.turns % T.buffers and first):
            # the buffer's last contents have been read; else the turn before has seen to that
            self.wait_for_reads(0)
            lw.barrier(1 + self.own, WARPGROUP)
        self.write_turn(acc, start, at[1], own_row, of_rows, buffer)
        if T.store_by_tma:
            lw.fence_proxy_async()
            if T.buffers > 1:
                self.wait_for_reads(T.buffers - 2)  # the next turn's buffer is free
        lw.barrier(1 + self.own, WARPGROUP)
        if T.store_by_tma:
            if (self.warp == 0) & lw.elect_one():
                lead = (self.batch,) if T.batched else ()
                for box in range(T.turn_boxes):
                    place = (at[0], at[1] + box * T.box_columns)
                    if T.transposed:
                        place = (at[1], at[0] + box * T.box_columns)
                    lw.tma.store(self.C, (*lead, *place), self.sC[None, None, box, buffer, self.own])
                lw.tma.commit()
        elif T.wide_stores and not T.transposed:
            self.store_wide(at, buffer)
        else:
            self.store_guarded(at, buffer)

    @lw.device
    def wait_for_reads(self, most: Any) -> None:
        """Let the thread that stores by TMA wait until at most so many stores have not read shared memory."""
        if self.build.store_by_tma:  # noqa: SIM102, decided while tracing
            if (self.warp == 0) & lw.elect_one():
                lw.tma.wait(most, read=True)

    @lw.device
    def finished_pair(self, acc: Any, first: Any, of_row: Any, of_columns: Any, row: Any, column: Any) -> Any:
        """Return elements `first` and `first + 1` of the sums after the epilogue."""
        epilogue, given = self.build.epilogue, self.given
        values = [acc[first], acc[first + 1]]
        if not changes_values(epilogue):
            return values
        residuals = [None, None]
        if epilogue.residual is not None:
            residuals = [f32(0.0), f32(0.0)]
            step = given.residual_column
            place = given.residual + row.to(lw.i64) * given.residual_row + column.to(lw.i64) * step
            if (row < self.last_row) & (column < self.N):
                residuals[0] = place[0].to(f32)
            if (row < self.last_row) & (column + 1 < self.N):
                residuals[1] = place[step].to(f32)
        return [
            finished(epilogue, given, values[i], of_row, of_columns[i], residuals[i], (row, column + i))
            for i in range(2)
        ]

    @lw.device
    def write_turn(
        self, acc: Any, start: Any, first_column: Any, own_row: Any, of_rows: Any, buffer: Any
    ) -> None:
        """Write the columns of one turn, after the epilogue, to shared memory."""
        T = self.build
        across = self.turn_columns if T.transposed else T.box_columns
        eights = 2 if T.out in (f16, bf16) and across >= 16 else 1
        for at in range(0, self.turn_columns, 8 * eights):
            pairs = []
            for eight in range(eights):
                column = first_column + at + 8 * eight + 2 * (self.lane % 4)
                of_columns = self.terms_of_pair(column)
                for half in range(2):
                    first = (start + at + 8 * eight) // 8 * 4 + 2 * half
                    row = own_row + 8 * half
                    low, high = self.finished_pair(acc, first, of_rows[half], of_columns, row, column)
                    pairs.append(pair(low, high, T.out))
            if T.transposed:
                self.write_columns(pairs, at, eights, buffer)
            else:
                self.write_rows(pairs, at, eights, buffer)

    @lw.device
    def write_rows(self, pairs: Any, at: Any, eights: Any, buffer: Any) -> None:
        """Write 16 rows of a warp and 8 or 16 columns as rows of a box."""
        T, lane, rows = self.build, self.lane, self.warp * 16
        box, column = at // T.box_columns, at % T.box_columns
        if T.out in (f16, bf16):
            further = lane // 16 * 8 if eights == 2 else 0
            lw.stmatrix(self.sC.ptr(rows + lane % 16, column + further, box, buffer, self.own), pairs)
        else:
            for half in range(2):
                row = rows + lane // 4 + 8 * half
                place = self.sC.ptr(row, column + 2 * (lane % 4), box, buffer, self.own)
                if T.out in (e4m3, e5m2):
                    lw.asm("st.shared.b16 [{p}], {v};", p=place, v=pairs[half])
                else:
                    place.store(pairs[half])

    @lw.device
    def write_columns(self, pairs: Any, at: Any, eights: Any, buffer: Any) -> None:
        """Write 16 rows of a warp and 8 or 16 columns with the columns as rows of a box."""
        T, lane, rows = self.build, self.lane, self.warp * 16
        wide = T.box_columns
        if T.out in (f16, bf16):
            column = at + lane % 8 + (lane // 16 * 8 if eights == 2 else 0)
            place = self.sC.ptr(column, rows + lane // 8 % 2 * 8, 0, buffer, self.own)
            lw.stmatrix(place, pairs, trans=True)
        else:
            for half in range(2):
                row = rows + lane // 4 + 8 * half
                values = pairs[half]
                if T.out in (e4m3, e5m2):
                    values = (values & 0xFF, values >> 8)
                for i in range(2):
                    place = self.sC.ptr(at + 2 * (lane % 4) + i, row % wide, row // wide, buffer, self.own)
                    if T.out in (e4m3, e5m2):
                        lw.asm("st.shared.b8 [{p}], {v};", p=place, v=values[i])
                    else:
                        place.store(values[i])

    @lw.device
    def store_guarded(self, at: Any, buffer: Any) -> None:
        """Store one turn from shared memory, element by element, what lies inside alone."""
        T, thread = self.build, lw.thread_idx.x % WARPGROUP
        row, column = at
        wide = T.box_columns * T.turn_boxes
        for first in range(0, T.box_rows * wide, WARPGROUP):
            number = first + thread
            line, inner = number // wide, number % wide
            here = (row + inner, column + line) if T.transposed else (row + line, column + inner)
            outer, along = (here[1], here[0]) if T.transposed else here
            if (here[0] < self.last_row) & (here[1] < self.N):
                value = self.sC[line, inner % T.box_columns, inner // T.box_columns, buffer, self.own]
                self.C[outer.to(lw.i64) * self.leading + along.to(lw.i64) + self.batch] = value

    @lw.device
    def store_wide(self, at: Any, buffer: Any) -> None:
        """Store one turn from shared memory, 16 bytes at once, rows that lie inside alone."""
        T, thread = self.build, lw.thread_idx.x % WARPGROUP
        each = 128 // T.out.bits
        chunks = T.box_columns * T.turn_boxes // each
        for first in range(0, ROWS * chunks, WARPGROUP):
            number = first + thread
            line, inner = number // chunks, number % chunks * each
            row, column = at[0] + line, at[1] + inner
            if (row < self.last_row) & (column < self.N):
                box, inside = inner // T.box_columns, inner % T.box_columns
                values = self.sC.ptr(line, inside, box, buffer, self.own).load(each)
                place = self.C + row.to(lw.i64) * self.leading + column.to(lw.i64) + self.batch
                place.aligned(16).store(values)
