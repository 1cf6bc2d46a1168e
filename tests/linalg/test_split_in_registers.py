"""f32 that is split into bf16 in registers: A as it lies, at any address, with the bits of a copied A."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.operand_copies import with_copies
from lanewise.linalg.options import Options
from lanewise.linalg.rules import request_of
from linalg.hopper_products import plan, some
from linalg.kernels_on_cpu import _pointers, by_kernels

#: Sizes (batch, m, n, k), which of A and B are transposed, and the plan.
CASES: dict[str, tuple[tuple[int, int, int, int], str, Any]] = {
    "rows by TMA": ((1, 72, 12, 132), "", plan((64, 16, 64), stages=2)),
    "columns by TMA": ((2, 132, 8, 68), "ab", plan((128, 8, 64), stages=2)),
    "rows at any address": ((1, 71, 12, 131), "b", plan((64, 16, 64), stages=3)),
    "columns at any address": ((3, 133, 8, 67), "a", plan((64, 8, 64), stages=2)),
    "rows at multiples of 8 bytes, B first": ((1, 7, 138, 262), "b", plan((128, 8, 64), stages=2, swap=True)),
    "parts of K": ((2, 70, 24, 329), "", plan((64, 16, 64), stages=2, split=2)),
    "groups of K": ((1, 130, 40, 578), "a", plan((128, 40, 64), stages=2, groups=3, gather=True)),
}


def operands(rng: Any, sizes: tuple[int, int, int, int], turned: str) -> tuple[Any, Any]:
    """A and B, of which some lie transposed; numbers of very different sizes, some not finite."""
    batch, m, n, k = sizes
    lead = (batch,) if batch > 1 else ()

    def matrix(name: str, rows: int, columns: int) -> Any:
        shape = (*lead, columns, rows) if name in turned else (*lead, rows, columns)
        made = (rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)).astype(np.float32)
        return made.swapaxes(-1, -2) if name in turned else made

    a, b = matrix("a", m, k), matrix("b", k, n)
    a[..., 1, 2], a[..., 3, 5], a[..., 5, 7] = np.inf, np.nan, -np.inf
    return a, b


@pytest.mark.parametrize("name", some(CASES, "rows by TMA", "parts of K"))
def test_bits_are_those_of_a_copied_operand(name: str) -> None:
    """The kernel has the CPU's bits, which are those of a plan that copies both; nothing races."""
    sizes, turned, chosen = CASES[name]
    a, b = operands(np.random.default_rng(len(name)), sizes, turned)
    problem = request_of(a, b, Options(precision="f32")).problem
    assert problem is not None
    chosen = with_copies(problem, replace(chosen, a_in_registers=True))
    assert (chosen.copy_a, chosen.copy_b) == ((True, False) if chosen.swap else (False, True))
    both = replace(chosen, a_in_registers=False, copy_a=True, copy_b=True, stages=2)
    wanted = lw.matmul(a, b, precision="f32", plan=both)
    assert np.array_equal(lw.matmul(a, b, precision="f32", plan=chosen), wanted, equal_nan=True)
    assert np.array_equal(by_kernels(a, b, plan=chosen, precision="f32"), wanted, equal_nan=True)
    request = request_of(a, b, Options(precision="f32"))
    family = family_of("warpgroup")
    pointers = _pointers(request, family.workspace_bytes(problem, chosen))
    for configured, arguments, _ in family.launches(problem, chosen, pointers):
        report = lw.check(configured, *arguments, schedule="late")
        assert report.ok, report


def test_what_cannot_be_split_in_registers_is_refused() -> None:
    """Other types, families, tiles, a copy of the same operand; elements with gaps are copied first."""
    a, b = np.ones((64, 256), np.float32), np.ones((256, 16), np.float32)
    good = plan((64, 16, 64), a_in_registers=True, copy_b=True)
    lw.matmul(a, b, precision="f32", plan=good)
    for bad, reason in (
        (replace(good, copy_a=True), "copy_a=False"),
        (replace(good, family="warp", tile=(64, 8, 16), copy_b=False), "family 'warpgroup'"),
        (replace(good, tile=(256, 16, 64), stages=2), "64 rows for each warpgroup"),
    ):
        with pytest.raises(lw.LanewiseError, match=reason):
            lw.matmul(a, b, precision="f32", plan=bad)
    with pytest.raises(lw.LanewiseError, match="products of f32"):
        lw.matmul(a.astype(np.float16), b.astype(np.float16), plan=replace(good, copy_b=False))
