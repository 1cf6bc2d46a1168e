"""The shape of a launch: grid, block and dynamic shared memory, as every engine takes it."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.isa.launch_limits import LARGEST_BLOCK, LARGEST_GRID, MOST_THREADS
from lanewise.ptx.model.function import Function

#: Threads of a warp.
WARP = 32


@dataclass(frozen=True)
class Shape:
    """Grid and block, and dynamic shared memory.

    >>> shape = Shape((4, 2, 1), (33, 1, 1))
    >>> shape.blocks, shape.threads, shape.warps
    (8, 33, 2)
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def shape_refusals(function: Function, shape: Shape) -> list[str]:
    """Why no GPU would launch a kernel in such a shape; empty if one would."""
    found = []
    for what, sizes, largest in (
        ("a grid", shape.grid, LARGEST_GRID),
        ("a block", shape.block, LARGEST_BLOCK),
    ):
        if any(size > most for size, most in zip(sizes, largest, strict=True)):
            found.append(f"{what} is at most {largest}, not {sizes}")
    if shape.threads > MOST_THREADS:
        found.append(f"a block has at most {MOST_THREADS} threads; {shape.block} has {shape.threads}")
    for limit, wanted in (("maxntid", "at most"), ("reqntid", "exactly")):
        values = function.limit(limit)
        if values is None:
            continue
        full = (*values, 1, 1)[:3]
        product = full[0] * full[1] * full[2]
        if (limit == "reqntid" and shape.block != full) or shape.threads > product:
            found.append(
                f"{function.name} says .{limit} {full}: {wanted} {product} threads a block, not {shape.block}"
            )
    return found
