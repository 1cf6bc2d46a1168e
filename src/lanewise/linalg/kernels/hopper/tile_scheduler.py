"""The tile scheduler: which tile of which matrix a block computes next, and its place in a cluster.

Persistent blocks go through groups of rows (the raster order, for L2), then through the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lanewise import lang as lw
from lanewise.lang.trace.scalar import Scalar
from lanewise.linalg.kernels.hopper.traits import Traits


class TileScheduler:
    """Tiles numbered through `rows` × `columns` of each matrix, `raster` rows at a time, and the batch.

    The first of a cluster's tiles is `first`, the next `step` further; there are `count` in all.
    """

    def __init__(self, rows, columns, batch, raster, cluster: int) -> None:
        self.rows, self.columns, self.raster = rows, columns, raster
        self.each = rows * columns
        self.batch = batch
        self.count = self.each if batch is None else self.each * batch
        self.first = lw.block_idx.x // cluster
        self.step = lw.grid_dim.x // cluster

    __iter__ = None

    def __getitem__(self, number) -> tuple[Scalar, Scalar, Scalar | int]:
        """Return (row, column, matrix of the batch) of a tile."""
        matrix: Scalar | int = 0
        if self.batch is not None:
            matrix = number // self.each
            number = number - matrix * self.each
        whole = self.columns * self.raster
        band = number // whole
        first, rest = band * self.raster, number - band * whole
        height = lw.min(self.rows - first, self.raster)
        column = rest // height
        return first + rest - column * height, column, matrix


class AmongExperts(NamedTuple):
    """Where a block is among the experts: the number of one, its first unit, its first row and the row after
    its last, and whether it is time for the tiles that are half empty."""

    expert: Scalar
    first_unit: Scalar
    start: Scalar
    end: Scalar
    late: Scalar


class GroupedTiles:
    """Tiles of products with different rows: those of the first expert, then those of the second, and so on.

    Where an expert's rows lie is read while the kernel runs, so that the number of tiles is not known before;
    `count` is more than there can be. If there are no `starts`, an expert's rows begin where those of the one
    before it end. Nobody has looked at `ends` then: one that is smaller than the start, or larger than M, is
    taken as the nearest that is neither.

    A tile of which at most half of the rows are an expert's takes half of the time if there are two
    consumers. If experts have many rows, these tiles come after all others, so that blocks end at nearly the
    same time. With few rows they do not: the matrix of an expert would be read from memory twice.

    A cluster of 2 × 1 blocks has two rows of tiles of an expert, whose B it shares. A row that is left over
    is computed by both blocks, alternately along its columns, and they share nothing.

    A unit is what a block or a cluster computes at once.
    """

    def __init__(self, traits, place, bounds, experts, M, columns) -> None:
        self.traits, self.in_cluster, self.M = traits, place, M
        (self.starts, self.ends), self.experts, self.columns = bounds, experts, columns
        self.paired = traits.plan.cluster[0] == 2
        self.has_halves = traits.consumers == 2
        self.given_starts = self.starts.address != 0
        self.halves_last = experts * (2 * traits.bm) <= M if self.has_halves else False
        self.count = (lw.cdiv(M, traits.bm) + experts) * columns
        self.first = lw.block_idx.x // traits.cluster_size
        self.step = lw.grid_dim.x // traits.cluster_size

    @lw.device
    def begin(self) -> AmongExperts:
        """Return the state at the first expert; there is at least one."""
        start, end = self.bounds(0, lw.i32(0))
        return AmongExperts(lw.i32(0), lw.i32(0), start, end, lw.i32(0))

    @lw.device
    def bounds(self, expert, start):
        """Return where an expert's rows begin and end; `start` is the end of the one before it."""
        if self.given_starts:
            start = self.starts[expert]
        return start, lw.min(lw.max(self.ends[expert], start), self.M)

    @lw.device
    def last_row(self):
        """Return the row after those of all experts, if they follow each other."""
        end = lw.i32(0)
        for expert in lw.range(self.experts):
            end = lw.max(end, lw.min(self.ends[expert], self.M))
        return end

    @lw.device
    def rows(self, state):
        """Return how many rows of tiles of the state's expert come early, and how many late."""
        length, high = lw.max(state.end - state.start, 0), self.traits.bm
        every = lw.cdiv(length, high)
        if not self.has_halves:
            return every, 0
        early = lw.where(self.halves_last, (length + (high // 2 - 1)) // high, every)
        return early, every - early

    @lw.device
    def units(self, state):
        """Return how many units of the state's expert are computed now."""
        early, late = self.rows(state)
        if self.paired:
            left = lw.cdiv(self.columns, 2)
            early, late = early // 2 * self.columns + early % 2 * left, late * left
        else:
            early, late = early * self.columns, late * self.columns
        return lw.where(state.late != 0, late, early) if self.has_halves else early

    @lw.device
    def move(self, unit, state):
        """Return the state at the expert that a unit belongs to; its number is `experts` beyond the last."""
        expert, first, start, end, late = state
        units = self.units(state)
        while (unit >= first + units) & (expert < self.experts):
            expert = expert + 1
            first = first + units
            if self.has_halves:  # noqa: SIM102, decided while tracing
                if (expert == self.experts) & self.halves_last & (late == 0):
                    expert = lw.i32(0)
                    end = lw.i32(0)
                    late = lw.i32(1)
            if expert < self.experts:
                start, end = self.bounds(expert, end)
                units = self.units(AmongExperts(expert, first, start, end, late))
        return AmongExperts(expert, first, start, end, late)

    @lw.device
    def first_element(self, unit, state):
        """Return the first row and column of this block's tile, and whether its cluster shares B."""
        T = self.traits
        early, _ = self.rows(state)
        late = state.late != 0
        local = unit - state.first_unit
        if not self.paired:
            rows = lw.max(lw.where(late, 1, early), 1)
            column = local // rows
            row = local - column * rows + lw.where(late, early, 0)
            first_row, along = state.start + row * T.bm, T.plan.cluster[1]
            return first_row, (column * along + self.in_cluster.column) * T.bn, True
        together = lw.where(late, 0, early // 2 * self.columns)
        shares = local < together
        pairs = lw.max(early // 2, 1)
        column = local // pairs
        row = 2 * (local - column * pairs) + self.in_cluster.row
        row = lw.where(shares, row, lw.where(late, early, early - 1))
        column = lw.where(shares, column, 2 * (local - together) + self.in_cluster.row)
        return state.start + row * T.bm, column * T.bn, shares


class OneTile:
    """The one tile of a block: columns along x, rows along y, groups of K and the batch along z."""

    first, count, step = 0, 1, 1

    def __init__(self, cluster: int, batched: bool, groups: int) -> None:
        self.cluster, self.batched, self.groups = cluster, batched, groups

    __iter__ = None

    def __getitem__(self, number) -> tuple[Scalar, Scalar, Scalar | int]:
        """Return (row, column, matrix of the batch) of the tile."""
        column = lw.block_idx.x // self.cluster if self.cluster > 1 else lw.block_idx.x
        matrix: Scalar | int = 0
        if self.batched:
            matrix = lw.block_idx.z // self.groups if self.groups > 1 else lw.block_idx.z
        return lw.block_idx.y, column, matrix


def numbers(tiles, first, step) -> Iterable[Scalar | int]:
    """Return the numbers of a block's tiles: a loop of the kernel, or 0 alone."""
    return range(1) if isinstance(tiles, OneTile) else lw.range(first, tiles.count, step)


class Place:
    """Where a block is in its cluster: its row and column among those that share loads, and its part of K."""

    def __init__(self, traits: Traits) -> None:
        across, split = traits.plan.cluster[0], traits.plan.split
        self.rank = lw.cluster.rank() if traits.cluster_size > 1 else 0
        self.multicast_rank = self.rank % traits.multicasting if split > 1 else self.rank
        self.first_of_multicast = self.rank - self.multicast_rank
        self.row: Scalar | int = 0
        self.column: Scalar | int = 0
        if traits.multicasting > 1:
            self.row, self.column = self.multicast_rank % across, self.multicast_rank // across

    def part(self, traits: Traits) -> Scalar | int:
        """Return the number of this block's part of K."""
        split, groups = traits.plan.split, traits.plan.groups
        part = self.rank // traits.multicasting if split > 1 else 0
        return part + lw.block_idx.z % groups * split if groups > 1 else part

    def first_element(self, traits: Traits, row, column) -> tuple[Scalar, Scalar]:
        """Return the first row and column of this block's part of a cluster's tile."""
        across, along = traits.plan.cluster
        return (row * across + self.row) * traits.bm, (column * along + self.column) * traits.column_step

    def targets(self, traits: Traits) -> tuple[Scalar | int, Scalar | int]:
        """Return the blocks that this one loads for, a bit for each: A for those with the same rows, B for
        those with the same columns."""
        across, along = traits.plan.cluster
        of_a: Scalar | int = sum(1 << (row * across) for row in range(along))
        of_b: Scalar | int = (1 << across) - 1
        if traits.multicasting < traits.cluster_size or along > 1:
            of_a = lw.i32(of_a) << (self.row + self.first_of_multicast)
            of_b = lw.i32(of_b) << (self.column * across + self.first_of_multicast)
        return of_a, of_b
