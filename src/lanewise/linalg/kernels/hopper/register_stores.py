"""Results that go from a warpgroup's registers to memory at once, without shared memory and TMA.

For few results the way through shared memory takes longer than the stores.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.fused_epilogue import column_terms, rounded, row_terms
from lanewise.linalg.kernels.hopper.epilogue import TileEpilogue
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP, Traits


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
