"""The warpgroup family on the CPU machine: the bits of its instruction for any shape, type and layout."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linalg.hopper_products import plan, product

import lanewise as lw
from lanewise.formats import bf16, e4m3, e5m2, f16, f32, s8, s32, tf32
from lanewise.linalg.families import warpgroup
from lanewise.linalg.plan import Plan

EVERYTHING = bool(os.environ.get("LANEWISE_EVERYTHING"))
#: Name, problem, plan, and how many blocks there are: fewer than tiles, so that some compute several.
CASES: dict[str, tuple[dict[str, Any], Plan, int]] = {
    "cooperative in a cluster": (
        dict(m=300, n=520, k=200, a=bf16, b=bf16, out=bf16), plan((128, 256, 64), cluster=(2, 1)), 4,
    ),
    "pingpong": (
        dict(m=300, n=264, k=136, a=f16, b=f16, out=f32, layout="NT"),
        plan((64, 128, 64), schedule="pingpong"), 2,
    ),
    "both transposed, shared rows": (
        dict(m=264, n=200, k=72, a=bf16, b=bf16, out=bf16, layout="TT"), plan((256, 128, 64), cluster=(1, 2)), 2,
    ),
    "odd result": (dict(m=65, n=131, k=64, a=bf16, b=bf16, out=bf16, layout="NT"), plan((64, 64, 64)), 2),
    "batch": (
        dict(m=70, n=40, k=96, a=bf16, b=bf16, out=bf16, batch=3), plan((64, 64, 64), schedule="pingpong"), 2,
    ),
    "columns contiguous": (
        dict(m=72, n=104, k=64, a=bf16, b=bf16, out=bf16, rows_of_out=False), plan((128, 64, 64)), 1,
    ),
    "e4m3 by e5m2": (
        dict(m=100, n=96, k=272, a=e4m3, b=e5m2, out=bf16, layout="NT"), plan((128, 96, 128)), 1,
    ),
    "s8": (dict(m=100, n=96, k=272, a=s8, b=s8, out=s32, sums=s32, layout="NT"), plan((128, 96, 128)), 1),
    "tf32": (dict(m=100, n=96, k=100, a=tf32, b=tf32, out=f32, layout="NT"), plan((128, 64, 32)), 1),
    "f16 sums": (dict(m=100, n=96, k=104, a=f16, b=f16, out=f16, sums=f16), plan((128, 96, 64)), 1),
    "three consumers": (
        dict(m=300, n=100, k=200, a=bf16, b=bf16, out=e4m3, layout="NT"), plan((192, 112, 64), cluster=(2, 1)), 2,
    ),
}  # fmt: skip
USUAL = ("cooperative in a cluster", "pingpong", "odd result", "batch", "s8", "tf32")


@pytest.mark.parametrize("name", CASES if EVERYTHING else USUAL)
def test_bits_are_those_of_the_instruction(name: str) -> None:
    """A product has the sums of wgmma in order of K, rounded once; the kernel is clean under every schedule."""
    sizes, chosen, blocks = CASES[name]
    problem, pointers, sums = product(**sizes)
    configured, arguments = warpgroup.prepared(problem, chosen, pointers, multiprocessors=blocks)
    configured(*arguments)
    assert np.array_equal(pointers.out, rounded(sums, pointers.out.dtype))
    for schedule in ("in order", "late", 7) if EVERYTHING else ("late",):
        report = lw.check(configured, *arguments, schedule=schedule)
        assert report.ok, report


def rounded(values: Any, dtype: Any) -> Any:
    """Return sums in the result's type; e4m3 saturates."""
    if dtype.name == "float8_e4m3fn":
        return np.clip(values, -448, 448).astype(dtype)
    return values.astype(dtype)


def test_launch_is_the_call() -> None:
    """`launch` computes what a prepared kernel does."""
    sizes, chosen, _ = CASES["odd result"]
    problem, pointers, sums = product(**sizes)
    warpgroup.launch(problem, replace(chosen, group=1), pointers)
    assert np.array_equal(pointers.out, sums.astype(pointers.out.dtype))
