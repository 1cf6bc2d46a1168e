"""Which tile of which matrix a persistent block computes next: groups of rows, for L2, then the batch."""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw


class TileOrder:
    """Tiles numbered through `rows` × `columns` of each matrix, `group` rows at a time, and the batch.

    The first of a cluster's tiles is `first`, the next `step` further; there are `count` in all.
    """

    def __init__(self, rows: Any, columns: Any, batch: Any, group: Any, cluster: int) -> None:
        self.rows, self.columns, self.group = rows, columns, group
        self.each = rows * columns
        self.batch = batch
        self.count = self.each if batch is None else self.each * batch
        self.first = lw.block_idx.x // cluster
        self.step = lw.grid_dim.x // cluster

    def __getitem__(self, number: Any) -> tuple[Any, Any, Any]:
        """Return (row, column, matrix of the batch) of a tile."""
        matrix: Any = 0
        if self.batch is not None:
            matrix = number // self.each
            number = number - matrix * self.each
        whole = self.columns * self.group
        band = number // whole
        first, rest = band * self.group, number - band * whole
        height = lw.min(self.rows - first, self.group)
        column = rest // height
        return first + rest - column * height, column, matrix


class GroupedTiles:
    """Tiles of products with different rows: those of the first expert, then those of the second, and so on.

    Where an expert's rows lie is read while the kernel runs, so that the number of tiles is not known before;
    `count` is more than there can be. If there are no `starts`, an expert's rows begin where those of the one
    before it end. Nobody has looked at `ends` then: one that is smaller than the start, or larger than M, is
    taken as the nearest that is neither.

    A tile of which at most `half` rows are an expert's takes half of the time. If experts have many rows,
    these tiles come after all others, so that blocks end at nearly the same time. With few rows they do not:
    the matrix of an expert would be read from memory twice.

    A state is (expert, its first tile, its first row, its last row + 1, whether the halves' turn has come).
    """

    def __init__(
        self, bounds: Any, experts: Any, M: Any, columns: Any, rows_of_tile: int, half: int, cluster: int
    ) -> None:
        (self.starts, self.ends), self.experts, self.columns, self.M = bounds, experts, columns, M
        self.rows_of_tile, self.half = rows_of_tile, half
        self.given_starts = self.starts.address != 0
        self.halves_last = M >= experts * (2 * rows_of_tile) if half else False
        self.count = (lw.cdiv(M, rows_of_tile) + experts) * columns
        self.first = lw.block_idx.x // cluster
        self.step = lw.grid_dim.x // cluster

    @lw.device
    def begin(self) -> tuple[Any, Any, Any, Any, Any]:
        """Return the state of the first expert; there is at least one."""
        start, end = self.bounds(0, lw.i32(0))
        return lw.i32(0), lw.i32(0), start, end, lw.i32(0)

    @lw.device
    def bounds(self, expert: Any, start: Any) -> Any:
        """Return where an expert's rows begin and end; `start` is the end of the one before it."""
        if self.given_starts:
            start = self.starts[expert]
        return start, lw.min(lw.max(self.ends[expert], start), self.M)

    @lw.device
    def last_row(self) -> Any:
        """Return the row after those of all experts, if they follow each other."""
        end = lw.i32(0)
        for expert in lw.range(self.experts):
            end = lw.max(end, lw.min(self.ends[expert], self.M))
        return end

    @lw.device
    def rows(self, state: Any) -> Any:
        """Return how many rows of tiles of the state's expert have their turn, and which is the first."""
        length = lw.max(state[3] - state[2], 0)
        every = lw.cdiv(length, self.rows_of_tile)
        if not self.half:
            return every, 0
        whole = lw.where(self.halves_last, (length + (self.half - 1)) // self.rows_of_tile, every)
        late = state[4] != 0
        return lw.where(late, every - whole, whole), lw.where(late, whole, 0)

    @lw.device
    def move(self, number: Any, state: Any) -> Any:
        """Return the state of the expert that a tile belongs to; its number is `experts` beyond the last."""
        expert, first, start, end, late = state
        tiles = self.rows(state)[0] * self.columns
        while (number >= first + tiles) & (expert < self.experts):
            expert = expert + 1
            first = first + tiles
            if self.half:
                if (expert == self.experts) & self.halves_last & (late == 0):
                    expert = lw.i32(0)
                    end = lw.i32(0)
                    late = lw.i32(1)
            if expert < self.experts:
                start, end = self.bounds(expert, end)
                tiles = self.rows((expert, first, start, end, late))[0] * self.columns
        return expert, first, start, end, late

    @lw.device
    def place(self, number: Any, state: Any) -> tuple[Any, Any]:
        """Return the row and the column of a tile among those of its expert."""
        rows, first = self.rows(state)
        rows = lw.max(rows, 1)
        local = number - state[1]
        column = local // rows
        return local - column * rows + first, column


class OneTile:
    """The one tile of a block: columns along x, rows along y, groups of K and the batch along z."""

    first, count, step = 0, 1, 1

    def __init__(self, cluster: int, batched: bool, groups: int) -> None:
        self.cluster, self.batched, self.groups = cluster, batched, groups

    def __getitem__(self, number: Any) -> tuple[Any, Any, Any]:
        """Return (row, column, matrix of the batch) of the tile."""
        column = lw.block_idx.x // self.cluster if self.cluster > 1 else lw.block_idx.x
        matrix: Any = 0
        if self.batched:
            matrix = lw.block_idx.z // self.groups if self.groups > 1 else lw.block_idx.z
        return lw.block_idx.y, column, matrix


def numbers(tiles: Any, first: Any, step: Any) -> Any:
    """Return the numbers of a block's tiles: a loop of the kernel, or 0 alone."""
    return range(1) if isinstance(tiles, OneTile) else lw.range(first, tiles.count, step)
