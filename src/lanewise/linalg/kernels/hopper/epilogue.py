"""How a warpgroup's sums leave its registers: epilogue, rounding, shared memory, TMA or guarded stores."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import bf16, e4m3, e5m2, f16, f32
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.fused_epilogue import (
    changes_values,
    column_terms,
    finished,
    pair_of_small,
    rounded,
    row_terms,
)
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory, line_swizzle
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Store, Traits
from lanewise.linalg.kernels.row_stores import Row, own_columns, rows_at_once, store_rows


def staged_results(traits: Traits, boxes: bool = False) -> Any:
    """Return the shared memory of results: (row, column of a box, box, which buffer, consumer).

    As `boxes` that TMA stores, some of them one below the other, it has an axis for these: (row of a box,
    column of a box, which box downwards, box, which buffer, consumer).
    """
    memory, size = SharedMemory(traits), traits.out.bits // 8
    rows, wide, subtile = memory.staged_rows, memory.box_columns, memory.subtile_bytes // size
    high, pitch = memory.box_rows if boxes else rows, memory.pitch
    layout = Layout(
        (high, wide, rows // high, memory.subtile_boxes, memory.buffers, traits.consumers),
        (pitch, 1, high * pitch, rows * pitch, subtile, memory.buffers * subtile),
    )
    if not boxes:
        layout = Layout(layout.shape[:2] + layout.shape[3:], layout.stride[:2] + layout.stride[3:])
    swizzle = line_swizzle(size, memory.box_swizzle) if memory.box_swizzle else None
    return lw.dynamic_shared(traits.out, layout, swizzle=swizzle, offset=memory.offsets["results"])


@lw.device
def pair(low, high, dtype):
    """Return two finished values as neighbours in the result's format: in one register, or as both."""
    if low.dtype == dtype:
        return lw.pack(low, high) if dtype == f16 else (low, high)
    low, high = low.to(f32), high.to(f32)
    if dtype in (f16, bf16):
        return lw.pack(low, high, dtype)
    if dtype in (e4m3, e5m2):
        return pair_of_small(low, high, dtype)
    return (low.to(dtype), high.to(dtype))


def move_forward(values, count: int, total: int) -> None:
    """Move all but the first `count` of `total` registers to the front, in place."""
    for i in range(total - count):
        values[i] = values[i + count]


class TileEpilogue:
    """The epilogue of one consumer: all of its threads call `load_row_terms` and `store` for each tile.

    Scales and biases are loaded before the products end, so that nothing in the epilogue waits for memory.
    Those of rows stay in registers. Those of columns, more than a thread has registers for, are spread over
    the threads until the epilogue begins, and are then exchanged through shared memory.
    """

    def __init__(self, traits: Traits, C, given, own, N, leading) -> None:
        self.traits, self.C, self.given, self.own, self.N, self.leading = traits, C, given, own, N, leading
        self.memory = SharedMemory(traits)
        self.sC = staged_results(traits)
        self.boxes = staged_results(traits, boxes=True) if traits.store is Store.TMA else None
        self.lane = lw.lane_id()
        self.warp = lw.shfl_sync(lw.thread_idx.x % WARPGROUP // 32, 0)
        self.thread = lw.thread_idx.x % WARPGROUP
        #: Terms of the tile's columns, (column, which, consumer), and the factor that all of them have.
        self.terms: Array | None = None
        if traits.column_terms:
            shape = (traits.store_columns, len(traits.column_terms), traits.consumers)
            strides = (1, traits.store_columns, traits.store_columns * len(traits.column_terms))
            layout = Layout(shape, strides)
            self.terms = lw.dynamic_shared(f32, layout, offset=self.memory.offsets["terms"])
        self.factor: Scalar | None = None
        if traits.problem.epilogue.scale_b is not None and "factor" not in traits.column_terms:
            self.factor = given.scale_b[0]
        #: The row after the last that is stored, and the matrix of the batch or where it begins.
        self.last_row: Scalar | None = None
        self.batch: Scalar | None = None
        #: Where in a box the first of the columns lies that are written now.
        self.first_staged: Scalar | int = 0
        #: What `load_row_terms` loaded: the terms of this thread's two rows of each 64.
        self.of_rows: list[list[tuple[Scalar | None, ...]]] | None = None
        # Numbers for all elements are loaded once.
        if traits.problem.epilogue.scale_a == "tensor":
            given.scale_a = [given.scale_a[0]]
        if traits.problem.epilogue.scale_out:
            given.scale_out = [given.scale_out[0]]

    @lw.device
    def load_row_terms(self, first_row) -> None:
        """Load the scales and biases of a tile's rows."""
        T = self.traits
        own_row = first_row + self.warp * 16 + self.lane // 4
        self.of_rows = []
        for block in range(T.consumer_rows // ROWS):
            rows = [lw.min(own_row + block * ROWS + 8 * i, self.last_row - 1) for i in range(2)]
            self.of_rows.append([row_terms(T.problem.epilogue, self.given, row) for row in rows])

    @lw.device
    def column_values(self, first_column):
        """Load this thread's share of what each column of a tile is scaled by and of what is added to it.

        The loads are issued before the last products are awaited, so that their latency is hidden.
        """
        T, given = self.traits, self.given
        terms = []
        for kind in T.column_terms:
            for first in range(0, T.store_columns, WARPGROUP):
                column = lw.min(first_column + first + self.thread, self.N - 1)
                terms.append(given.bias[column] if kind == "bias" else given.scale_b[column])
        return terms

    @lw.device
    def share_column_values(self, values) -> None:
        """Write what each thread has loaded to shared memory, as f32, for all threads of the warpgroup."""
        T = self.traits
        per_term = len(values) // len(T.column_terms)
        for i in range(len(values)):
            column = i % per_term * WARPGROUP + self.thread
            whole = (i % per_term + 1) * WARPGROUP <= T.store_columns
            if whole or column < T.store_columns:
                self.terms[column, i // per_term, self.own] = values[i].to(f32)
        lw.barrier(1 + self.own, WARPGROUP)

    @lw.device
    def store(self, accumulators, first_row, first_column, values=None) -> None:
        """Store a warpgroup's rows of a tile; `values` are those of its columns where they were loaded."""
        T, memory = self.traits, self.memory
        subtiles = memory.subtiles // len(accumulators)
        if T.store is Store.WARPS and not T.column_terms:
            lw.syncwarp()  # the last tile's results have been read
        if T.column_terms:
            if T.store in (Store.WARPS, Store.ROWS):
                lw.barrier(1 + self.own, WARPGROUP)  # so have its columns' terms
            self.share_column_values(self.column_values(first_column) if values is None else values)
        for block in range(len(accumulators)):
            row = first_row + block * ROWS
            of_rows = self.of_rows[block]
            if T.store is Store.ROWS:
                self.store_whole_sectors(accumulators[block], row, first_column, of_rows, block)
                continue
            if T.loops:
                # Registers have no addresses: those of the next subtile move to the front.
                values = accumulators[block]
                # the same for each subtile: the next one's buffer is free, or this one's is awaited
                whole = memory.buffers > 1 and memory.subtiles % memory.buffers == 0
                unread = memory.buffers - 2 if whole else None
                for subtile in lw.range(subtiles):
                    start, number = subtile * memory.subtile_columns, block * subtiles + subtile
                    at, buffer = (row, first_column + start, start), number % memory.buffers
                    self.store_subtile(
                        values, (0, memory.subtile_columns), at, of_rows, buffer, unread, unread
                    )
                    move_forward(values, memory.subtile_columns // 2, T.store_columns // 2)
                continue
            for inside in range(subtiles):
                from_column, which = inside * memory.subtile_columns, block * subtiles + inside
                columns = (from_column, min(memory.subtile_columns, T.store_columns - from_column))
                place = (row, first_column + from_column, from_column)
                before, after = memory.unread(which - 1), memory.unread(which)
                self.store_subtile(
                    accumulators[block], columns, place, of_rows, which % memory.buffers, before, after
                )

    @lw.device
    def store_whole_sectors(self, acc, row, column, of_rows, block) -> None:
        """Store 64 rows of a tile that begin at a row and a column: a thread each row, by a bulk copy."""
        T, memory = self.traits, self.memory
        buffer = block % memory.buffers
        lw.tma.wait(memory.buffers - 1, read=True)
        lw.syncwarp()  # what the buffer had has been read
        part = T.store_columns
        if T.loops:
            part = max(width for width in (32, 16, 8) if T.store_columns % width == 0)
        for start in lw.range(0, T.store_columns, part) if T.loops else (0,):
            self.first_staged = start
            self.write_subtile(acc, (0, part), (row, column + start, start), of_rows, buffer)
            move_forward(acc, part // 2, T.store_columns // 2)
        lw.fence_proxy_async()
        lw.syncwarp()
        line = self.warp * 16 + self.lane % 16
        place = self.C + (row + line).to(lw.i64) * self.leading + column.to(lw.i64) + self.batch
        begin, end = own_columns(T, place, column, self.N)
        if (self.lane < 16) & (row + line < self.last_row) & (begin < end):
            source = self.sC.ptr(line, 0, 0, buffer, self.own)
            target, source = ((each + begin).aligned(16) for each in (place, source))
            lw.tma.copy(target, source, (end - begin) * (T.out.bits // 8))
        lw.tma.commit()

    @lw.device
    def store_subtile(self, acc, columns, at, of_rows, buffer, before, after) -> None:
        """Store one subtile, 64 rows `at` a row and column, and a column of the tile.

        `columns` are the first of its sums among the registers, and how many. `before` and `after` say how
        many subtiles TMA may still read from shared memory when this subtile and when the next one begins.
        """
        T, memory = self.traits, self.memory
        if T.store is Store.WARPS:
            if memory.buffers == 1:
                lw.syncwarp()  # what the buffer had has been read
            self.write_subtile(acc, columns, at, of_rows, buffer)
            lw.syncwarp()
            if T.aligned_rows:
                self.store_own_rows(at, columns[1], buffer)
            else:
                self.store_lines(at, (self.warp * 16, self.warp * 16 + 16, 1), columns[1], buffer)
            return
        if T.store is not Store.TMA or before is None:
            # the buffer's last contents have been read; else the subtile before has seen to that
            self.wait_for_reads(0)
            lw.barrier(1 + self.own, WARPGROUP)
        self.write_subtile(acc, columns, at, of_rows, buffer)
        if T.store is Store.TMA:
            lw.fence_proxy_async()
            if after is not None:
                self.wait_for_reads(after)  # the next subtile's buffer is free
        lw.barrier(1 + self.own, WARPGROUP)
        if T.store is Store.TMA:
            if (self.warp == 0) & lw.elect_one():
                lead = (self.batch,) if T.batched else ()
                row, column = (at[1], at[0]) if T.transposed else at[:2]
                lines, across = (columns[1], ROWS) if T.transposed else (ROWS, columns[1])
                for down in range(lines // memory.box_rows):
                    for box in range(across // memory.box_columns):
                        place = (row + down * memory.box_rows, column + box * memory.box_columns)
                        stored = self.boxes[None, None, down, box, buffer, self.own]
                        lw.tma.store(self.C, (*lead, *place), stored)
                lw.tma.commit()
        elif T.aligned_rows and not T.transposed:
            self.store_wide(at, columns[1], buffer)
        else:
            self.store_lines(at, (self.warp, columns[1], 4), memory.box_columns, buffer)  # transposed

    @lw.device
    def wait_for_reads(self, most) -> None:
        """Let the thread that stores by TMA wait until at most so many stores have not read shared memory."""
        if self.traits.store is Store.ROWS:
            lw.tma.wait(most, read=True)
        if self.traits.store is Store.TMA:  # noqa: SIM102, decided while tracing
            if (self.warp == 0) & lw.elect_one():
                lw.tma.wait(most, read=True)

    @lw.device
    def finished_pair(self, acc, first, of_row, of_columns, row, column):
        """Return elements `first` and `first + 1` of the sums after the epilogue."""
        epilogue, given = self.traits.problem.epilogue, self.given
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
            finished(
                epilogue, given, values[i], of_row, of_columns[i], residuals[i], (row, column + i),
                self.traits.out,
            )
            for i in range(2)
        ]  # fmt: skip

    @lw.device
    def write_subtile(self, acc, columns, place, of_rows, buffer) -> None:
        """Write the columns of one subtile, after the epilogue, to shared memory."""
        T, memory = self.traits, self.memory
        start, count = columns
        own_row = place[0] + self.warp * 16 + self.lane // 4
        across = count if T.transposed else memory.box_columns
        most = 2 if T.out in (f16, bf16) else 1
        _, first_column, first_of_tile = place
        starts = [
            (box + inside, min(most, (min(across, count - box) - inside) // 8))
            for box in range(0, count, across)
            for inside in range(0, min(across, count - box), 8 * most)
        ]
        for at, eights in starts:
            pairs = []
            for eight in range(eights):
                own = at + 8 * eight + 2 * (self.lane % 4)
                column, of_columns = first_column + own, self.terms_of_columns(first_of_tile + own)
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
    def terms_of_columns(self, column):
        """Return the factor and the bias of two neighbouring columns of the tile."""
        T = self.traits
        factors, biases = [self.factor, self.factor], [None, None]
        for kind in range(len(T.column_terms)):
            pair = self.terms.ptr(column, kind, self.own).load(2)
            if T.column_terms[kind] == "bias":
                biases = pair
            else:
                factors = pair
        return [(factors[i], biases[i]) for i in range(2)]

    @lw.device
    def write_rows(self, pairs, at, eights, buffer) -> None:
        """Write 16 rows of a warp and 8 or 16 columns as rows of a box."""
        T, memory, lane, rows = self.traits, self.memory, self.lane, self.warp * 16
        box, column = at // memory.box_columns, at % memory.box_columns
        column = column + self.first_staged
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
    def write_columns(self, pairs, at, eights, buffer) -> None:
        """Write 16 rows of a warp and 8 or 16 columns with the columns as rows of a box."""
        T, memory, lane, rows = self.traits, self.memory, self.lane, self.warp * 16
        wide = memory.box_columns
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
    def store_own_rows(self, at, columns, buffer) -> None:
        """Store this warp's 16 rows of a subtile from shared memory, 16 bytes at once, what lies inside.

        Neighbouring lanes store one row, of 128 bytes if the subtile is not a narrow one.
        """
        memory, per_store = self.memory, 128 // self.traits.out.bits
        lanes = memory.box_columns // per_store
        rows = min(16, 32 // lanes)  # that are stored at once
        line, inner = self.warp * 16 + self.lane // lanes % rows, self.lane % lanes * per_store
        row, column = at[0] + line, at[1] + inner
        last = self.N if columns == memory.box_columns else lw.min(self.N, at[1] + columns)
        starts = range(0, 16, rows)
        values = [self.sC.ptr(line + i, inner, 0, buffer, self.own).load(per_store) for i in starts]
        place = self.C + row.to(lw.i64) * self.leading + column.to(lw.i64) + self.batch
        for i in starts:
            inside = (row + i < self.last_row) & (column < last)
            if inside if rows * lanes == 32 else inside & (self.lane < rows * lanes):
                (place + self.leading * i).aligned(16).store(values[i // rows])

    @lw.device
    def store_lines(self, at, lines: tuple[int, int, int], width: int, buffer) -> None:
        """Store lines of a subtile that begin at any address: a warp has those from a first one to a last one
        (of the tile's rows or, if it is stored transposed, of its columns) that are a step apart; each has as
        many elements as its `width`."""
        T, memory = self.traits, self.memory
        first_line, end, step = lines
        outer, along, last, limit = at[0], at[1], self.last_row, self.N
        if T.transposed:
            outer, along, last, limit = at[1], at[0], self.N, self.last_row
        together = rows_at_once(width)
        place = self.C + outer.to(lw.i64) * self.leading + along.to(lw.i64) + self.batch
        count = lw.min(limit - along, width)
        for begin in lw.range(first_line, end, step * together):
            rows = []
            for i in range(together):
                line = begin + i * step
                is_line = (outer + line < last) & (line < end)
                held = lw.min(line, memory.staged_rows - 1)
                rows.append(
                    Row(
                        place + self.leading * line.to(lw.i64),
                        self.sC.ptr(held, 0, 0, buffer, self.own),
                        lw.where(is_line, count, 0),
                    )
                )
            store_rows(rows, width, T.out.bits // 8)

    @lw.device
    def store_wide(self, at, columns, buffer) -> None:
        """Store one subtile from shared memory, 16 bytes at once, rows that lie inside alone."""
        T, memory, thread = self.traits, self.memory, self.thread
        per_store = 128 // T.out.bits
        chunks = columns // per_store
        for first in range(0, ROWS * chunks, WARPGROUP):
            number = first + thread
            line, inner = number // chunks, number % chunks * per_store
            row, column = at[0] + line, at[1] + inner
            inside_turn = True if first + WARPGROUP <= ROWS * chunks else number < ROWS * chunks
            if (row < self.last_row) & (column < self.N) & inside_turn:
                box, inside = inner // memory.box_columns, inner % memory.box_columns
                values = self.sC.ptr(line, inside, box, buffer, self.own).load(per_store)
                place = self.C + row.to(lw.i64) * self.leading + column.to(lw.i64) + self.batch
                place.aligned(16).store(values)


class RegisterEpilogue(TileEpilogue):
    """The epilogue of one consumer that stores from its registers; all of its threads call `store`."""

    def __init__(self, traits: Traits, C, given, N, leading) -> None:
        self.traits, self.C, self.given, self.N, self.leading = traits, C, given, N, leading
        self.lane, self.thread = lw.lane_id(), lw.thread_idx.x % WARPGROUP
        self.warp = lw.shfl_sync(self.thread // 32, 0)
        #: The row after the last that is stored, and where the matrix of the batch begins, if there are some.
        self.last_row: Scalar | None = None
        self.batch: Scalar | None = None

    def load_row_terms(self, first_row) -> None:
        """Load nothing: a thread reads what its rows need when it stores them."""

    @lw.device
    def store(self, accumulators, first_row, first_column, values=None) -> None:
        """Store a warpgroup's rows of a tile, eight columns at a time; `values` of columns are read anew."""
        for block in range(len(accumulators)):
            for four in range(self.traits.store_columns // 8):
                sums = [accumulators[block][4 * four + i] for i in range(4)]
                self.store_eight(sums, first_row + block * ROWS, first_column + 8 * four)

    @lw.device
    def store_eight(self, sums, first_row, first_column) -> None:
        """Store a warpgroup's 64 rows of eight columns: each thread has two pairs, eight rows apart."""
        epilogue = self.traits.problem.epilogue
        column = first_column + 2 * (self.lane % 4)
        of_columns = [column_terms(epilogue, self.given, lw.min(column + i, self.N - 1)) for i in range(2)]
        for half in range(2):
            row = first_row + self.warp * 16 + self.lane // 4 + 8 * half
            of_row = row_terms(epilogue, self.given, lw.min(row, self.last_row - 1))
            values = self.finished_pair(sums, 2 * half, of_row, of_columns, row, column)
            self.store_pair([rounded(value, self.traits.out) for value in values], row, column)

    @lw.device
    def store_pair(self, values, row, column) -> None:
        """Store two neighbours of a row, what lies inside of the result alone."""
        T = self.traits
        if T.aligned_rows and not T.transposed:
            if (row < self.last_row) & (column < self.N):
                self.place(row, column).aligned(2 * T.out.bits // 8).store(values)
        else:
            for i in range(2):
                outer, inner = (column + i, row) if T.transposed else (row, column + i)
                if (row < self.last_row) & (column + i < self.N):
                    self.place(outer, inner)[0] = values[i]

    def place(self, outer, inner) -> Pointer:
        """Return where an element of the result lies, by its line and its place in the line."""
        element = self.C + outer.to(lw.i64) * self.leading + inner.to(lw.i64)
        return element if self.batch is None else element + self.batch
