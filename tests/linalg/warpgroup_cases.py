"""Products of the warpgroup kernels: sizes, plans, and results rounded to their type."""

from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.formats import bf16, e4m3, e5m2, f16, f32, s8, s32, tf32
from lanewise.linalg.plan import Plan
from linalg.hopper_products import plan

Case = tuple[dict[str, Any], Plan, int]


def case(m: int, n: int, k: int, types: tuple[Any, ...], chosen: Plan, blocks: int, **more: Any) -> Case:
    """A problem whose A, B and result have some types, its plan, and how many blocks compute it."""
    a, b, out = types
    return {"m": m, "n": n, "k": k, "a": a, "b": b, "out": out, **more}, chosen, blocks


#: Of most there are fewer blocks than tiles, so that some blocks compute several.
CASES: dict[str, Case] = {
    "cooperative in a cluster": case(
        300, 520, 200, (bf16, bf16, bf16), plan((128, 256, 64), cluster=(2, 1)), 4
    ),
    "pingpong": case(
        300, 264, 136, (f16, f16, f32), plan((64, 128, 64), schedule="pingpong"), 2, layout="NT"
    ),
    "both transposed, shared rows": case(
        264, 200, 72, (bf16, bf16, bf16), plan((256, 128, 64), cluster=(1, 2)), 2, layout="TT"
    ),
    # More steps along K than stages, so that the warpgroups multiply the last stages one after the other.
    "small tiles in a cluster": case(
        300, 136, 200, (bf16, bf16, bf16), plan((128, 64, 64), cluster=(2, 1), stages=2), 2, layout="NT"
    ),
    "odd result": case(65, 131, 64, (bf16, bf16, bf16), plan((64, 64, 64)), 2, layout="NT"),
    "batch": case(70, 40, 96, (bf16, bf16, bf16), plan((64, 64, 64), schedule="pingpong"), 2, batch=3),
    "columns contiguous": case(72, 104, 64, (bf16, bf16, bf16), plan((128, 64, 64)), 1, rows_of_out=False),
    "e4m3 by e5m2": case(100, 96, 272, (e4m3, e5m2, bf16), plan((128, 96, 128)), 1, layout="NT"),
    "s8": case(100, 96, 272, (s8, s8, s32), plan((128, 96, 128)), 1, layout="NT", sums=s32),
    "tf32": case(100, 96, 100, (tf32, tf32, f32), plan((128, 64, 32)), 1, layout="NT"),
    "f16 sums": case(100, 96, 104, (f16, f16, f16), plan((128, 96, 64)), 1, sums=f16),
    "boxes without a swizzle": case(100, 160, 72, (bf16, bf16, bf16), plan((64, 40, 64)), 2, layout="NT"),
    "stored by warps": case(100, 200, 72, (bf16, bf16, bf16), plan((64, 200, 64)), 2, layout="NT"),
    "turns of different width": case(
        200, 216, 72, (bf16, bf16, bf16), replace(plan((128, 208, 64)), stages=5), 1, layout="NT"
    ),
    "more columns than an instruction": case(
        300, 720, 200, (bf16, bf16, bf16), plan((128, 336, 64), cluster=(2, 1), stages=2), 2, layout="NT"
    ),
    "more columns, contiguous along N": case(
        140, 408, 72, (bf16, bf16, bf16), plan((64, 384, 64), schedule="pingpong", stages=2), 2
    ),
    # Subtiles of 32, 32, 32 and 16 columns.
    "subtiles of different width, stored transposed": case(
        232, 200, 72, (f16, f16, f16), plan((128, 112, 64), stages=7, swap=True), 1
    ),
    "more columns, stored transposed": case(
        408,
        200,
        72,
        (bf16, bf16, f32),
        plan((128, 288, 64), cluster=(2, 1), stages=2, swap=True),
        2,
        layout="NT",
    ),
    # Three boxes of B, or of A, whose lines two blocks share.
    "shared lines": case(
        200, 320, 72, (bf16, bf16, bf16), plan((128, 160, 64), cluster=(2, 1), stages=2), 2, layout="TN"
    ),
    "shared lines of A": case(
        192, 320, 72, (bf16, bf16, bf16), plan((192, 64, 64), cluster=(1, 2), stages=2), 2, layout="TT"
    ),
    "three consumers": case(
        300, 100, 200, (bf16, bf16, e4m3), plan((192, 112, 64), cluster=(2, 1), stages=3), 2, layout="NT"
    ),
}


def rounded(values: Any, dtype: Any) -> Any:
    """Return sums in the result's type; e4m3 saturates."""
    if dtype.name == "float8_e4m3fn":
        return np.clip(values, -448, 448).astype(dtype)
    return values.astype(dtype)
