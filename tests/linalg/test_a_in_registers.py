"""A that is loaded as it lies and goes to wgmma from registers, with the bits of a copied A.

It is f32 that is split into bf16 there, tf32 that lies along M, or rows of 8 or 16 bits at any address.
"""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.kernels.hopper.launches import kernel
from lanewise.linalg.operand_copies import as_loaded, with_copies
from lanewise.linalg.options import Options
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.candidates import ranked
from lanewise.linalg.planning.planner import built, plan_of, require_kernel
from lanewise.linalg.rules import problem_of_sizes, request_of
from linalg.hopper_products import plan, some
from linalg.kernels_on_cpu import _pointers, by_kernels

#: Precision, sizes (batch, m, n, k), which of A and B are transposed, and the plan.
CASES: dict[str, tuple[str, tuple[int, int, int, int], str, Any]] = {
    "rows by TMA": ("f32", (1, 72, 12, 132), "", plan((64, 16, 64), stages=2)),
    "columns by TMA": ("f32", (2, 132, 8, 68), "ab", plan((128, 8, 64), stages=2)),
    "rows at any address": ("f32", (1, 71, 12, 131), "b", plan((64, 16, 64), stages=3)),
    "columns at any address": ("f32", (3, 133, 8, 67), "a", plan((64, 8, 64), stages=2)),
    "rows at multiples of 8 bytes, B first": (
        "f32", (1, 7, 138, 262), "b", plan((128, 8, 64), stages=2, swap=True),
    ),
    "parts of K": ("f32", (2, 70, 24, 329), "", plan((64, 16, 64), stages=2, split=2)),
    "groups of K": ("f32", (1, 130, 40, 578), "a", plan((128, 40, 64), stages=2, groups=3, gather=True)),
    "tf32": ("tf32", (1, 132, 40, 203), "a", plan((64, 40, 32), stages=3)),
    "tf32, K-major B": ("tf32", (2, 72, 12, 68), "ab", plan((192, 16, 32), stages=2)),
    "tf32, B first": ("tf32", (1, 36, 264, 260), "", plan((256, 24, 32), stages=3, swap=True)),
    "tf32, clusters": ("tf32", (3, 200, 70, 132), "ab", plan((128, 32, 32), cluster=(2, 2), stages=3)),
    "tf32, shared lines": ("tf32", (1, 132, 72, 100), "ab", plan((64, 32, 32), cluster=(1, 4), stages=2)),
    "tf32, alternating": ("tf32", (2, 260, 40, 100), "a", plan((128, 24, 32), schedule="pingpong")),
    "tf32, parts of K": ("tf32", (1, 68, 48, 480), "ab", plan((64, 32, 32), stages=2, split=2)),
    "tf32, groups": ("tf32", (2, 24, 100, 400), "", plan((64, 8, 32), swap=True, groups=3, gather=True)),
}  # fmt: skip


#: Type, sizes, which of A and B are transposed, how many elements the arrays begin behind a multiple of 64
#: bytes, and the plan: rows that TMA cannot load.
ODD_CASES: dict[str, tuple[str, tuple[int, int, int, int], str, int, Any]] = {
    "rows": ("float16", (1, 71, 12, 131), "b", 0, plan((64, 16, 64), stages=3)),
    "columns, a batch": ("bfloat16", (3, 133, 8, 67), "a", 1, plan((128, 8, 64), stages=2)),
    "rows of whole words, B first": ("float16", (1, 7, 137, 262), "b", 0, plan((128, 8, 64), swap=True)),
    "columns, B first": ("bfloat16", (1, 13, 199, 70), "", 5, plan((64, 16, 64), stages=2, swap=True)),
    "parts of K": ("float16", (2, 70, 24, 329), "", 3, plan((64, 16, 64), stages=2, split=2)),
    "groups of K": ("bfloat16", (1, 131, 40, 578), "a", 0, plan((128, 40, 64), groups=3, gather=True)),
    "alternating": ("float16", (2, 261, 40, 101), "", 7, plan((128, 24, 64), schedule="pingpong")),
    "clusters": ("bfloat16", (1, 300, 70, 133), "b", 1, plan((64, 32, 64), cluster=(2, 1), stages=3)),
    "128 rows of a warpgroup": ("float16", (1, 300, 20, 133), "a", 1, plan((256, 24, 64), stages=3)),
    "f32, rows": ("float32", (1, 71, 12, 131), "b", 1, plan((64, 16, 64), stages=3)),
    "f32, columns": ("float32", (2, 133, 16, 67), "a", 3, plan((128, 16, 64), stages=2)),
    "8 bits": ("int8", (2, 100, 20, 333), "b", 1, plan((64, 24, 128), stages=3)),
}  # fmt: skip


def operands(rng: Any, sizes: tuple[int, int, int, int], turned: str) -> tuple[Any, Any]:
    """A and B, of which some lie transposed; numbers of very different sizes, some not finite."""
    batch, m, n, k = sizes
    lead = (batch,) if batch > 1 else ()

    def matrix(name: str, rows: int, columns: int) -> Any:
        shape = (*lead, columns, rows) if name in turned else (*lead, rows, columns)
        made = (rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)).astype(np.float32)
        return made.swapaxes(-1, -2) if name in turned else made

    a, b = matrix("a", m, k), matrix("b", k, n)
    if min(m, k) > 7:
        a[..., 1, 2], a[..., 3, 5], a[..., 5, 7] = np.inf, np.nan, -np.inf
    return a, b


def by_both_plans(a: Any, b: Any, chosen: Plan, **keywords: Any) -> tuple[Plan, Any]:
    """Return a plan with what it copies, and its result: the same on the CPU and by kernels that copy A."""
    problem = request_of(a, b, Options(**keywords)).problem
    assert problem is not None
    chosen = with_copies(problem, replace(chosen, a_in_registers=True))
    assert not (chosen.copy_b if chosen.swap else chosen.copy_a)
    copied = with_copies(problem, replace(chosen, a_in_registers=False, stages=2))
    assert copied.copy_b if chosen.swap else copied.copy_a
    wanted = lw.matmul(a, b, plan=copied, **keywords)
    assert np.array_equal(lw.matmul(a, b, plan=chosen, **keywords), wanted, equal_nan=True)
    result = by_kernels(a, b, plan=chosen, **keywords)
    assert np.array_equal(result, wanted, equal_nan=True)
    return chosen, result


def require_no_races(a: Any, b: Any, chosen: Plan, **keywords: Any) -> None:
    """Check all kernels of a plan with copies that come as late as they may."""
    request = request_of(a, b, Options(**keywords))
    assert request.problem is not None
    family = family_of("warpgroup")
    pointers = _pointers(request, family.workspace_bytes(request.problem, chosen))
    for configured, arguments, _ in family.launches(request.problem, chosen, pointers):
        report = lw.check(configured, *arguments, schedule="late")
        assert report.ok, report


@pytest.mark.parametrize("name", some(CASES, "rows by TMA", "parts of K", "tf32", "tf32, clusters"))
def test_bits_are_those_of_a_copied_operand(name: str) -> None:
    """The kernel has the CPU's bits, which are those of a plan that copies both; nothing races."""
    precision, sizes, turned, chosen = CASES[name]
    a, b = operands(np.random.default_rng(len(name)), sizes, turned)
    chosen, _ = by_both_plans(a, b, chosen, precision=precision)
    require_no_races(a, b, chosen, precision=precision)


def odd_operands(rng: Any, dtype: str, sizes: tuple[int, int, int, int], turned: str, first: int) -> Any:
    """A and B of a type that begin somewhere in a larger array, whose other elements are not finite."""
    batch, m, n, k = sizes
    lead = (batch,) if batch > 1 else ()

    def matrix(name: str, rows: int, columns: int) -> Any:
        shape = (*lead, columns, rows) if name in turned else (*lead, rows, columns)
        size = int(np.prod(shape))
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        whole = np.full(size + first + 64, 99 if dtype == "int8" else np.nan).astype(kind)
        numbers = rng.integers(-90, 91, size) if dtype == "int8" else rng.standard_normal(size)
        whole[first : first + size] = numbers.astype(kind)
        made = whole[first : first + size].reshape(shape)
        return made.swapaxes(-1, -2) if name in turned else made

    return matrix("a", m, k), matrix("b", k, n)


@pytest.mark.parametrize("name", some(ODD_CASES, "rows", "columns, a batch", "alternating", "f32, rows"))
def test_rows_at_any_address(name: str) -> None:
    """The kernel has the bits of a copied operand; it reads nothing outside of the arrays; nothing races."""
    dtype, sizes, turned, first, chosen = ODD_CASES[name]
    a, b = odd_operands(np.random.default_rng(len(name)), dtype, sizes, turned, first)
    chosen, _ = by_both_plans(a, b, chosen)
    require_no_races(a, b, chosen)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(3, 150), st.integers(3, 40), st.integers(3, 200)),
    rows=st.sampled_from([64, 128]),
    turned=st.sampled_from(["", "a", "b", "ab"]),
    first=st.integers(0, 8),
)  # fmt: skip
def test_odd_rows_of_any_sizes(sizes: tuple[int, int, int, int], rows: int, turned: str, first: int) -> None:
    """Rows of any length that begin anywhere, with a bias."""
    batch, m, n, k = sizes
    m, k = m | 1, k | 1  # TMA loads neither rows nor columns
    a, b = odd_operands(np.random.default_rng(k), "float16", (batch, m, n, k), turned, first)
    bias = np.random.default_rng(m).standard_normal(n).astype(np.float32)
    by_both_plans(a, b, plan((rows, -(-n // 8) * 8, 64), stages=2), bias=bias, activation="relu")


@pytest.mark.parametrize("layout", ["nn", "tn"])
@pytest.mark.parametrize("tile", [(128, 240, 64), (256, 104, 64), (64, 256, 64)], ids=str)
def test_the_largest_tiles_of_odd_rows_have_registers(layout: str, tile: tuple[int, int, int]) -> None:
    """ptxas spills none, and does not serialise the wgmma."""
    problem = problem_of_sizes(4095, 4096, 4095, "bf16", layout=layout)
    chosen = with_copies(problem, plan(tile, stages=2, a_in_registers=True))
    cubin = kernel(as_loaded(problem, chosen), chosen).cubin()
    assert cubin.resources["warpgroup"].spill_stores == 0
    assert "serialized" not in cubin.log


def test_planner_reads_a_long_odd_matrix_once() -> None:
    """The longer operand is not copied if TMA cannot load its rows, however it lies."""
    for m, n, k, layout in ((13602, 72, 1129, "nn"), (72, 13603, 1129, "tn"), (4001, 130, 4095, "tt")):
        chosen = plan_of(problem_of_sizes(m, n, k, "bf16", layout=layout), "sm_90a")
        assert chosen.a_in_registers and not (chosen.copy_a if m > n else chosen.copy_b), chosen
    aligned = problem_of_sizes(13600, 72, 1128, "bf16", layout="nn")
    assert not any(ranked(aligned).choices["a_in_registers"])


@pytest.mark.parametrize(("dtype", "longest"), [("f32", 1 << 29), ("bf16", 1 << 30)])
def test_lines_of_two_gib_are_copied(dtype: str, longest: int) -> None:
    """Threads count what is left of a line in 32 bits."""
    chosen = [
        plan_of(problem_of_sizes(3, 200, longest + more, dtype, layout="nt"), "sm_90a") for more in (-1, 1)
    ]
    assert [each.a_in_registers for each in chosen] == [True, False]
    forced = plan((64, 8, 64), stages=2, a_in_registers=True, copy_b=True)
    with pytest.raises(lw.LanewiseError, match="a has lines of 2 GiB or more"):
        require_kernel(problem_of_sizes(200, 8, longest + 1, dtype, layout="nt"), forced)


@pytest.mark.parametrize(("precision", "tile"), [("f32", (64, 8, 64)), ("tf32", (64, 8, 32))])
def test_blocks_with_several_tiles_split_k(precision: str, tile: tuple[int, int, int]) -> None:
    """Sums are sent when the barriers of the other blocks are ready."""
    a, b = operands(np.random.default_rng(4), (1, 132, 20, 264), "ab")
    request = request_of(a, b, Options(precision=precision))
    assert request.problem is not None
    chosen = with_copies(request.problem, plan(tile, stages=2, split=2, a_in_registers=True))
    family = family_of("warpgroup")
    pointers = _pointers(request, family.workspace_bytes(request.problem, chosen))
    *copies, (configured, arguments, _) = family.launches(request.problem, chosen, pointers, 4)
    for copy, given_to_copy, _ in copies:
        copy(*given_to_copy)
    report = lw.check(configured, *arguments, schedule="late")
    assert report.ok, report
    assert np.array_equal(request.result, lw.matmul(a, b, precision=precision, plan=chosen), equal_nan=True)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    # a result or an operand of one line may lie along either of its axes
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(2, 80), st.integers(2, 300)),
    shape=st.sampled_from([((64, 16, 32), 2), ((128, 24, 32), 3), ((256, 16, 32), 2)]),
    swap=st.booleans(),
    across=st.booleans(),
    out=st.sampled_from(["float32", "float16"]),
)  # fmt: skip
def test_tf32_of_any_sizes(
    sizes: tuple[int, int, int, int], shape: Any, swap: bool, across: bool, out: str
) -> None:
    """A of any number of rows that begin at multiples of 16 bytes, and B along K or along N, with a bias."""
    batch, fours, other, k = sizes
    m, n = (other, 4 * fours) if swap else (4 * fours, other)
    turned = ("a" if across else "") if swap else ("a" if across else "ab")
    a, b = operands(np.random.default_rng(k), (batch, m, n, k), turned)
    bias = np.random.default_rng(m).standard_normal(n).astype(np.float32)
    tile, stages = shape
    by_both_plans(
        a, b, plan(tile, stages=stages, swap=swap), precision="tf32", out_dtype=out, bias=bias,
        activation="relu",
    )  # fmt: skip


def test_fragments_of_tf32_have_no_bank_conflicts() -> None:
    """Every load of a warp reads all banks once."""
    a, b = operands(np.random.default_rng(2), (1, 128, 64, 128), "ab")
    request = request_of(a, b, Options(precision="tf32"))
    assert request.problem is not None
    chosen = plan((128, 64, 32), stages=2, a_in_registers=True)
    pointers = _pointers(request, 0)
    ((configured, arguments, _),) = family_of("warpgroup").launches(request.problem, chosen, pointers)
    counters = lw.check(configured, *arguments).counters
    assert counters["smsp__inst_executed_op_shared_ld.sum"] >= 8 * 16 * 4  # warps, loads of a stage, stages
    assert counters["sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 0


@pytest.mark.parametrize(
    "chosen",
    [plan((64, 256, 32)), plan((128, 256, 32), cluster=(2, 1)), plan((192, 176, 32), stages=3),
     plan((256, 160, 32), stages=3), plan((128, 160, 32), schedule="pingpong")],
    ids=str,
)  # fmt: skip
def test_the_largest_tiles_of_tf32_have_registers(chosen: Plan) -> None:
    """ptxas spills none, and does not serialise the wgmma."""
    problem = problem_of_sizes(4096, 4096, 4096, "f32", precision="tf32", layout="tt")
    plan = replace(chosen, a_in_registers=True)
    cubin = kernel(as_loaded(problem, plan), plan).cubin()
    assert cubin.resources["warpgroup"].spill_stores == 0
    assert "serialized" not in cubin.log


@pytest.mark.parametrize("layout", ["nn", "tt", "tn", "nt"])
def test_planner_reads_tf32_as_it_lies(layout: str) -> None:
    """The larger operand is not copied if it lies along M or N; one that lies along K needs no registers."""
    for m, n, k in ((8192, 64, 4096), (64, 8192, 4096), (4096, 4096, 4096), (640, 768, 512)):
        problem = problem_of_sizes(m, n, k, "f32", precision="tf32", layout=layout, batch=2)
        chosen = plan_of(problem, "sm_90a")
        first = oriented(problem, chosen).a
        assert not (chosen.a_in_registers and first.k_major)
        if layout == "nt":
            assert not any(ranked(problem).choices["a_in_registers"])
        elif (m >= n and layout[0] == "t") or (n >= m and layout[1] == "n"):
            assert chosen.a_in_registers


def test_planner_copies_what_tma_cannot_load() -> None:
    """Rows at no multiples of 16 bytes."""
    problem = problem_of_sizes(8191, 64, 4096, "f32", precision="tf32", layout="tt")
    assert not any(ranked(problem).choices["a_in_registers"])
    assert not plan_of(problem, "sm_90a").a_in_registers


def test_what_cannot_go_through_registers_is_refused() -> None:
    """Other types, families, tiles, a copy of the same operand; elements with gaps are copied first."""
    a, b = np.ones((64, 256), np.float32), np.ones((256, 16), np.float32)
    good = plan((64, 16, 64), a_in_registers=True, copy_b=True)
    lw.matmul(a, b, precision="f32", plan=good)
    for bad, reason in (
        (replace(good, copy_a=True), "copy_a=False"),
        (
            replace(good, family="warp", tile=(64, 8, 16), copy_b=False),
            "plans of family 'warp' have a_in_registers=False",
        ),
        (replace(good, tile=(256, 16, 64), stages=2), "64 rows for each warpgroup"),
    ):
        with pytest.raises(lw.LanewiseError, match=reason):
            lw.matmul(a, b, precision="f32", plan=bad)
    with pytest.raises(lw.LanewiseError, match="rows that TMA cannot load"):
        lw.matmul(a.astype(np.float16), b.astype(np.float16), plan=replace(good, copy_b=False))
    along_m, column = np.ones((256, 63), np.int8).T, np.ones((256, 16), np.int8)
    with pytest.raises(lw.LanewiseError, match="of 8 bits, along K"):
        lw.matmul(along_m, column, plan=replace(good, tile=(64, 16, 128)))
    of_tf32 = replace(good, tile=(64, 16, 32))
    across = np.ones((256, 64), np.float32).T
    lw.matmul(across, b, precision="tf32", plan=of_tf32)
    with pytest.raises(lw.LanewiseError, match="neighbours lie along M"):
        lw.matmul(a, b, precision="tf32", plan=of_tf32)
    with pytest.raises(lw.LanewiseError, match="TMA cannot load a as it lies"):
        lw.matmul(across[:63].copy("F"), b, precision="tf32", plan=of_tf32)
    tall = problem_of_sizes(256, 256, 256, "f32", precision="tf32", layout="tt")
    assert built(tall, replace(of_tf32, tile=(256, 176, 32), copy_b=False)) is None  # too few registers
