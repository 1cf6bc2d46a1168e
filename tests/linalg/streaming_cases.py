"""Products that stream a long matrix at any address: their sizes, layouts and plans."""

from typing import Any

import numpy as np

from lanewise.linalg.plan import Plan

ARCH = "sm_90a"
#: Sizes, how a and b are stored (a t: transposed), the tile, parts of K in a block and blocks of a cluster
#: that share it, stages, and where arrays begin.
CASES = {
    "along K, odd": ((70, 3, 333), "nt", (64, 8, 64), (1, 1), 2, (0, 0)),
    "along K, both begin anywhere": ((45, 7, 301), "nt", (32, 8, 128), (2, 1), 1, (3, 5)),
    "along K by columns": ((40, 5, 259), "nn", (32, 8, 64), (1, 1), 3, (1, 1)),
    "along K, long b": ((13, 77, 390), "nt", (16, 32, 64), (2, 1), 2, (5, 2)),
    "along K, long b by columns": ((9, 50, 131), "tt", (16, 64, 64), (1, 1), 2, (7, 0)),
    "along M": ((150, 3, 97), "tt", (64, 8, 32), (1, 1), 2, (1, 4)),
    "along M by columns": ((131, 12, 150), "tn", (128, 16, 32), (2, 1), 2, (6, 3)),
    "along N": ((5, 201, 187), "nn", (16, 128, 32), (1, 1), 4, (1, 3)),
    "along N by columns": ((3, 67, 100), "tn", (16, 64, 16), (2, 1), 2, (2, 7)),
    "fewer rows than a warp has": ((5, 3, 70), "nt", (32, 8, 64), (1, 1), 1, (1, 2)),
    "K that ends with a step": ((33, 2, 256), "nt", (32, 8, 128), (1, 1), 2, (1, 1)),
    "K shorter than a step": ((33, 2, 17), "tn", (64, 8, 32), (1, 1), 1, (0, 1)),
    "a cluster, owners by lanes": ((70, 3, 501), "nt", (64, 8, 32), (1, 8), 2, (1, 3)),
    "a cluster, by fragments and lanes": ((13, 77, 490), "nt", (16, 32, 32), (2, 4), 1, (5, 2)),
    "a cluster, by fragments": ((131, 12, 250), "tn", (128, 16, 16), (1, 8), 2, (6, 3)),
    "a cluster along N": ((5, 201, 203), "nn", (16, 128, 32), (2, 2), 3, (1, 3)),
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
    return a, b, Plan("warp", ARCH, tile, stages, split=split, groups=groups, schedule="streaming")
