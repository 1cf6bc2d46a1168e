"""Grouped products: experts of different sizes, empty ones among them, in one launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.formats import bf16, f32
from lanewise.linalg.families import warpgroup
from linalg.hopper_products import operand, plan, product, some, sums_of


@pytest.mark.parametrize(
    ("sizes", "n"), some([((70, 0, 3, 130, 0), 72), ((0, 64, 1), 71)], ((70, 0, 3, 0), 72))
)
def test_experts(sizes: tuple[int, ...], n: int) -> None:
    """Each expert's rows are multiplied by its own matrix; rows of nobody are left as they are."""
    k, gap = 72, 5
    rng = np.random.default_rng(4)
    ends = np.cumsum(sizes).astype(np.int32) + gap
    starts = (ends - np.array(sizes)).astype(np.int32)
    m = int(ends[-1]) + gap
    problem, pointers, _ = product(m, n, k, bf16, bf16, bf16, layout="NT")
    weights: Any = rng.normal(size=(len(sizes), n, k)).astype(bf16.dtype)
    pointers.b = weights.swapaxes(-1, -2)
    pointers.starts, pointers.ends = starts, ends
    problem = replace(problem, experts=len(sizes), b=operand(pointers.b, False, True, bf16))
    configured, arguments = warpgroup.prepared(
        problem, plan((64, 64, 64), cluster=(1, 2) if n == 72 else (1, 1)), pointers, multiprocessors=4
    )
    configured(*arguments)
    wanted = np.zeros((m, n), bf16.dtype)
    for expert, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end > start:
            sums = sums_of(pointers.a[start:end], np.ascontiguousarray(pointers.b[expert]), bf16, bf16, f32)
            wanted[start:end] = sums.astype(bf16.dtype)
    assert np.array_equal(pointers.out, wanted)
    if EVERYTHING:
        assert lw.check(configured, *arguments, schedule="late").ok


@pytest.mark.parametrize(
    ("given", "taken", "n"),
    some(
        [((70, 70, 73), (70, 70, 73), 72), ((5, 3, 200, 90), (5, 5, 90, 90), 71), ((-4, 64), (0, 64), 64)],
        ((5, 3, 60), (5, 5, 60), 72),
    ),
)
def test_experts_that_follow_each_other(given: tuple[int, ...], taken: tuple[int, ...], n: int) -> None:
    """Without starts, rows begin where those before them end; strange ends are moved, other rows cleared."""
    k, m = 72, 90
    rng = np.random.default_rng(5)
    problem, pointers, _ = product(m, n, k, bf16, bf16, bf16, layout="NT")
    weights: Any = rng.normal(size=(len(given), n, k)).astype(bf16.dtype)
    pointers.b, pointers.ends = weights.swapaxes(-1, -2), np.array(given, np.int32)
    pointers.out[...] = 7
    problem = replace(
        problem, experts=len(given), b=operand(pointers.b, False, True, bf16), consecutive=True,
        clears_rest=True,
    )  # fmt: skip
    configured, arguments = warpgroup.prepared(problem, plan((64, 64, 64)), pointers, multiprocessors=2)
    configured(*arguments)
    wanted = np.zeros((m, n), bf16.dtype)
    for expert, (start, end) in enumerate(zip((0, *taken), taken, strict=False)):
        if end > start:
            sums = sums_of(pointers.a[start:end], np.ascontiguousarray(pointers.b[expert]), bf16, bf16, f32)
            wanted[start:end] = sums.astype(bf16.dtype)
    assert np.array_equal(pointers.out, wanted)
    if EVERYTHING:
        assert lw.check(configured, *arguments, schedule="late").ok
