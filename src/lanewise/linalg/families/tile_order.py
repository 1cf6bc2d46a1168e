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
