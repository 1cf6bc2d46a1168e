"""The tile scheduler, lw.PersistentTiles: which tiles a block computes that stays for several of them.

Tiles are counted in groups of rows, column by column inside a group, so that tiles computed at the same time
lie close together and share what they read in L2.
"""

from typing import Any

from lanewise.lang.intrinsics.maths import minimum
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.special_registers import block_idx, grid_dim
from lanewise.lang.trace.traced import describe


class PersistentTiles:
    """The tiles that this block, or its cluster, takes of `rows` × `columns` of them, `group` rows at a time.

    Inside a kernel: `for number in lw.range(tiles.first, tiles.count, tiles.step):`, then
    `row, column = tiles[number]`. `cluster` is how many neighbouring blocks along x take one tile together.
    """

    def __init__(self, rows: Any, columns: Any, *, group: int = 8, cluster: int = 1) -> None:
        for name, value in (("group", group), ("cluster", cluster)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise current().error(f"{name}= of lw.PersistentTiles is 1 or more, not {describe(value)}")
        self.rows, self.columns, self.group = rows, columns, group
        self.count = rows * columns
        self.first = block_idx.x // cluster
        self.step = grid_dim.x // cluster

    def __iter__(self) -> Any:
        raise current().error(
            "only the running kernel knows how many tiles there are: write for number in "
            "lw.range(tiles.first, tiles.count, tiles.step), and tiles[number] in it"
        )

    def __getitem__(self, number: Any) -> tuple[Any, Any]:
        """Return (row, column) of a tile by its number."""
        whole = self.columns * self.group
        first = number // whole * self.group
        rest, height = number % whole, minimum(self.rows - first, self.group)
        return first + rest % height, rest // height
