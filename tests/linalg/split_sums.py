"""Sums of a product whose K is split into parts, in the order of the kernels."""

from typing import Any

import numpy as np

from lanewise.formats import bf16, f32
from lanewise.linalg.plan import Plan
from linalg.hopper_products import sums_of


def in_parts(a: Any, b: Any, chosen: Plan) -> Any:
    """The sums of parts of K, those of a group added first, then the groups."""
    steps = -(-a.shape[1] // chosen.tile[2])
    share = -(-steps // (chosen.split * chosen.groups)) * chosen.tile[2]
    total: Any = None
    for group in range(chosen.groups):
        sums: Any = None
        for part in range(group * chosen.split, (group + 1) * chosen.split):
            at = slice(part * share, (part + 1) * share)
            left, right = np.ascontiguousarray(a[:, at]), np.ascontiguousarray(b[at])
            one = np.zeros((a.shape[0], b.shape[1]), np.float32)
            if left.shape[1]:
                one = sums_of(left, right, bf16, bf16, f32)
            sums = one if sums is None else sums + one
        total = sums if total is None else total + sums
    return total
