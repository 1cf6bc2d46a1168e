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


class OneTile:
    """The tile of a block that computes one: columns along x, rows along y, the batch along z."""

    first, count, step = 0, 1, 1

    def __init__(self, cluster: int, batched: bool) -> None:
        self.cluster, self.batched = cluster, batched

    def __getitem__(self, number: Any) -> tuple[Any, Any, Any]:
        """Return (row, column, matrix of the batch) of the tile."""
        column = lw.block_idx.x // self.cluster if self.cluster > 1 else lw.block_idx.x
        return lw.block_idx.y, column, lw.block_idx.z if self.batched else 0


def numbers(tiles: Any, first: Any, step: Any) -> Any:
    """Return the numbers of a block's tiles: a loop of the kernel, or 0 alone."""
    return range(1) if isinstance(tiles, OneTile) else lw.range(first, tiles.count, step)
