"""How sums leave tensor memory: each thread loads its row, some columns at a time, and stores it."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import e4m3, e5m2, f32
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.blackwell.traits import BlackwellTraits
from lanewise.linalg.kernels.fused_epilogue import rounded
from lanewise.linalg.kernels.warp.epilogue import finished_sum, store_pair
from lanewise.linalg.types import BLOCK

#: Columns that a thread loads at once.
_COLUMNS = 32
#: Bytes that are stored at once, at most.
_TOGETHER = 16


class RowEpilogue:
    """The epilogue of one thread, which has a row of each tile."""

    def __init__(self, traits: BlackwellTraits, C, given, sizes, strides) -> None:
        self.traits, self.C, self.given, self.sizes = traits, C, given, sizes
        self.leading, self.stride = strides.ldo, strides.batch_out
        self.residual = given.residual
        self.row: Scalar | None = None
        self.column: Scalar | None = None
        self.line: Pointer | None = None

    def begin(self, first_row, first_column, matrix) -> None:
        """Begin a tile of a matrix of the batch."""
        T = self.traits
        self.row, self.column, self.line = first_row + lw.thread_idx.x, first_column, self.C
        if T.problem.batch > 1:
            which = matrix.to(lw.i64)
            self.line = self.C + which * self.stride
            if T.problem.epilogue.residual is not None:
                self.given.residual = self.residual + which * self.given.residual_batch

    @lw.device
    def store(self, acc) -> None:
        """Store this thread's row of a tile."""
        count = min(_COLUMNS, self.traits.bn)
        for first in lw.range(0, self.traits.bn, count):
            sums = acc.load(first, count)
            self.store_some([sums[i] for i in range(count)], self.column + first)

    @lw.device
    def promoted(self, acc, totals, step):
        """Return this thread's totals with the sums of one stage: scaled by fma, or added."""
        T, count = self.traits, min(_COLUMNS, self.traits.bn)
        of_row = self.scale(0, self.row, step) if T.scaled_by_blocks else None
        scaled = []
        for first in range(0, T.bn, count):
            sums = acc.load(first, count)
            for i in range(count):
                total = totals[first + i]
                if of_row is None:
                    scaled.append(total + sums[i])
                else:
                    of_column = self.scale(1, self.column + (first + i), step)
                    scaled.append(lw.fma(sums[i], of_row * of_column, total))
        return scaled

    def scale(self, axis: int, line, step) -> Scalar:
        """Return the scale of a row (axis 0) or a column and a block of K."""
        given, at = self.given, lw.min(line, self.sizes[axis] - 1)
        scales, pitch, pitch_k = (
            (given.scale_a, given.scale_row, given.scale_row_k),
            (given.scale_b, given.scale_column, given.scale_column_k),
        )[axis]
        block = at if self.traits.problem.scale_blocks[axis] == 1 else at // BLOCK
        return scales[block * pitch + step * pitch_k]

    @lw.device
    def store_totals(self, totals) -> None:
        """Store this thread's row of totals."""
        count = min(_COLUMNS, self.traits.bn)
        for first in range(0, self.traits.bn, count):
            self.store_some(totals[first : first + count], self.column + first)

    @lw.device
    def store_some(self, sums, column) -> None:
        """Store neighbours of this thread's row, from a column on: what lies inside of the result alone."""
        T, (M, N) = self.traits, self.sizes
        values = [finished_sum(T, self.given, sums[i], self.row, column + i, M, N) for i in range(len(sums))]
        small = T.out in (e4m3, e5m2)
        if T.transposed:
            for i in range(len(values)):
                place = self.line + ((column + i).to(lw.i64) * self.leading + self.row.to(lw.i64))
                inside = (self.row < M) & (column + i < N)
                if small:
                    store_pair(T, place, [values[i], f32(0.0)], inside, inside & False, True)
                elif inside:
                    place.store(rounded(values[i], T.out))
            return
        place = self.line + (self.row.to(lw.i64) * self.leading + column.to(lw.i64))
        if T.aligned_rows and not small:
            per_store = _TOGETHER * 8 // T.out.bits
            for i in range(0, len(values), per_store):
                if (self.row < M) & (column + i < N):
                    (place + i).aligned(_TOGETHER).store(
                        [rounded(x, T.out) for x in values[i : i + per_store]]
                    )
            return
        for i in range(0, len(values), 2):
            inside = [(self.row < M) & (column + i + j < N) for j in range(2)]
            store_pair(T, place + i, values[i : i + 2], *inside, T.aligned_rows)
