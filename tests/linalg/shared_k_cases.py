"""Products of mma.sync whose K warps and the blocks of a cluster share: sizes, layouts and plans."""

from typing import Any

import numpy as np

from lanewise.linalg.plan import Plan

ARCH = "sm_90a"
#: Sizes, how a and b are stored (a t: transposed), the tile, parts of K in a block and blocks of a cluster
#: that share it, stages, and where arrays begin.
CASES = {
    "a warp for each part": ((3, 2, 458), "tn", (16, 8, 64), (8, 1), 1, (1, 3)),
    "one stage, blocks and warps": ((12, 5, 1701), "nt", (16, 8, 128), (4, 4), 1, (5, 2)),
    "one stage of 512 bytes": ((7, 9, 1001), "tt", (16, 8, 256), (1, 4), 1, (0, 1)),
    "owners by lanes": ((70, 3, 501), "nt", (64, 8, 32), (1, 8), 3, (1, 3)),
    "owners by fragments and lanes": ((13, 77, 490), "nt", (16, 64, 32), (2, 4), 2, (5, 2)),
    "owners by fragments": ((61, 50, 250), "tn", (64, 64, 16), (1, 8), 4, (6, 3)),
    "along M and N": ((35, 33, 203), "tn", (32, 32, 32), (2, 2), 2, (1, 3)),
    "a long result": ((700, 5, 130), "nn", (64, 8, 128), (1, 2), 1, (0, 0)),
    "last parts are empty": ((70, 3, 40), "nt", (64, 8, 16), (2, 4), 2, (1, 2)),
    "one stage that is not all of K": ((24, 40, 200), "nt", (16, 8, 32), (2, 1), 1, (0, 0)),
    "rows of 16 bytes": ((24, 40, 264), "nn", (16, 8, 32), (2, 4), 3, (0, 0)),
}  # fmt: skip


def matrix(
    rng: np.random.Generator, shape: tuple[int, ...], is_transposed: bool, dtype: Any, begin: int
) -> Any:
    """Return random numbers that begin at an element of a larger array and end with it."""
    size = int(np.prod(shape))
    numbers = np.zeros(begin + size, dtype)[begin:]
    numbers[:] = rng.standard_normal(size).astype(np.float32).astype(dtype)
    if not is_transposed:
        return numbers.reshape(shape)
    return numbers.reshape(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)


def operands(name: str, dtype: Any, batch: tuple[int, ...] = ()) -> tuple[Any, Any, Plan]:
    """Return a, b and the plan of a case."""
    (m, n, k), layout, tile, (split, groups), stages, begins = CASES[name]
    rng = np.random.default_rng(len(name))
    a = matrix(rng, (*batch, m, k), layout[0] == "t", dtype, begins[0])
    b = matrix(rng, (*batch, k, n), layout[1] == "t", dtype, begins[1])
    return a, b, Plan("warp", ARCH, tile, stages, split=split, groups=groups, schedule="one tile")
