"""An epilogue of one's own in a batch: it gets rows and columns of its own matrix, however it is computed.

A batch with one b is computed as one long a, and a product may be computed as its transpose. NumPy is the
oracle: the product without the function, and the function on NumPy's own indices.
"""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.cpu import epilogue as cpu_epilogue
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.kernels.sparse.metadata import ordered_metadata
from lanewise.linalg.kernels.sparse.plans import sparse_plan
from lanewise.linalg.operands import View
from lanewise.linalg.options import Options
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import request_of
from linalg.kernels_on_cpu import by_kernels

_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32}


@lw.epilogue
def marked(value: Any, row: Any, column: Any) -> Any:
    """Add a number that tells the row and the column."""
    return value + (row * 64 + column).to(lw.f32)


def operands(seed: int, kind: str, batch: tuple[int, ...], m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return small integers, whose products are exact in every type."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-2, 3, (*batch, m, k)).astype(_TYPES[kind])
    return a, rng.integers(-2, 3, (k, n)).astype(_TYPES[kind])


def expected(a: Any, b: Any) -> Any:
    """Return the product, marked by NumPy's own indices."""
    whole = np.matmul(a.astype(np.float32), b.astype(np.float32))
    return whole + 64 * np.arange(a.shape[-2])[:, None] + np.arange(b.shape[-1])


CASES: dict[str, Any] = {
    "tf32, b broadcast": ("tf32", (3,), 7, 24, 40, "sm_90a", {}),
    "one row each": ("f16", (5,), 1, 16, 32, "sm_90a", {}),
    "two axes": ("bf16", (2, 3), 5, 20, 33, "sm_90a", {}),
    "the transpose": ("f16", (4,), 9, 24, 64, "sm_90a", {"swap": True}),
    "columns contiguous": ("f16", (12,), 1, 10, 64, "sm_90a", {"turned": True}),
    "groups of K": ("f16", (2,), 6, 16, 256, "sm_90a", {"groups": 2}),
    "groups that are gathered": ("f16", (2,), 6, 16, 256, "sm_90a", {"groups": 3, "gather": True}),
    "split f32": ("f32", (3,), 5, 16, 40, "sm_90a", {}),
    "mma.sync": ("f16", (3,), 7, 20, 40, "sm_80", {}),
    "mma.sync, columns contiguous": ("f16", (9,), 1, 11, 24, "sm_80", {"turned": True}),
}


def plan_with(kind: str, arch: str, changes: dict[str, Any]) -> Plan | None:
    """Return a plan with changes; None for the planner's own."""
    changes = {name: value for name, value in changes.items() if name != "turned"}
    if not changes:
        return None
    return Plan("warpgroup", arch, (64, 16, 64), 2, **changes)


@sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_functions_get_rows_of_their_own_matrix(name: str) -> None:
    """On a GPU's kernels and on the CPU."""
    kind, batch, m, n, k, arch, changes = CASES[name]
    a, b = operands(3, kind, batch, m, n, k)
    keywords: dict[str, Any] = {"out_dtype": "float32", "epilogue": marked}
    if kind in ("f32", "tf32"):
        keywords["precision"] = kind
    if changes.get("turned"):
        # Rows of one element each: the folded result has contiguous columns.
        keywords["out"] = np.zeros((n, *batch, m), np.float32).transpose(1, 2, 0)
    problem = request_of(a, b, Options(**keywords)).problem
    assert problem is not None and problem.batch == 1 and problem.m == m * np.prod(batch), "not folded"
    wanted = expected(a, b)
    assert np.array_equal(lw.matmul(a, b, arch=arch, **keywords), wanted)
    plan = plan_with(kind, arch, changes)
    assert np.array_equal(by_kernels(a, b, arch, plan, **keywords), wanted)


@pytest.mark.parametrize("scaled", [False, True])
def test_small_matrices_of_a_batch_are_few_launches_of_the_epilogue(
    scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In host memory: one for all of them, unless each has scales of its own."""
    rng = np.random.default_rng(11)
    a = rng.integers(-2, 3, (30, 3, 8)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.integers(-2, 3, (30, 8, 5)).astype(ml_dtypes.float8_e4m3fn)
    residual = rng.integers(-2, 3, (30, 3, 5)).astype(np.float32)
    bias, rows = np.arange(3, dtype=np.float32)[:, None], np.array([1, 2, 4], np.float32)[:, None]
    scale = np.broadcast_to(rows, (30, 3, 1)).copy() if scaled else rows
    made, make = [], cpu_epilogue._element_kernel

    def noted(*kind: Any) -> Any:
        kernel = make(*kind)

        class Noted:
            def __getitem__(self, shape: Any) -> Any:
                made.append(shape)
                return kernel[shape]

        return Noted()

    monkeypatch.setattr(cpu_epilogue, "_element_kernel", noted)
    keywords: dict[str, Any] = {"bias": bias, "residual": residual, "epilogue": marked, "out_dtype": "f32"}
    found = lw.matmul(a, b, scale_a=scale, **keywords)
    wanted = np.matmul(a.astype(np.float32), b.astype(np.float32)) * rows + bias + residual
    assert (found == wanted + 64 * np.arange(3)[:, None] + np.arange(5)).all()
    assert len(made) == (30 if scaled else 1)


def test_functions_of_groups_get_rows_of_their_group() -> None:
    rng = np.random.default_rng(4)
    a = rng.integers(-2, 3, (11, 32)).astype(np.float16)
    b = rng.integers(-2, 3, (3, 32, 8)).astype(np.float16)
    found = lw.grouped_matmul(a, b, [4, 4, 11], out_dtype="float32", epilogue=marked)
    wanted = [expected(a[:4], b[0]), expected(a[4:], b[2])]
    assert np.array_equal(found, np.concatenate(wanted))


@only_with_everything
def test_functions_of_sparse_products() -> None:
    """wgmma.sp computes the transpose: the function gets its own matrix's rows there, too."""
    rng = np.random.default_rng(8)
    a = rng.integers(-2, 3, (4, 6, 64)).astype(np.float16)
    sparse = lw.sparsify(rng.integers(-2, 3, (64, 24)).astype(np.float16))
    wanted = expected(a, sparse.dense())
    keywords: dict[str, Any] = {"out_dtype": "float32", "epilogue": marked}
    assert np.array_equal(lw.matmul(a, sparse, **keywords), wanted)
    values = np.ascontiguousarray(sparse.values)
    kept = View((32, 24), (1, 32), sparse.format, values.ctypes.data, "numpy", None, values.T)
    request = request_of(a, sparse, Options(**keywords), kept=kept)
    assert request.problem is not None and request.problem.m == 24, "not folded"
    problem = replace(request.problem, sparse=True)
    metadata = ordered_metadata(sparse.indices, sparse.format)
    pointers = Pointers(a.reshape(24, 64), values, request.result.reshape(24, 24), metadata=metadata)
    run(launches.launches(problem, sparse_plan(problem), pointers, multiprocessors=4))
    assert np.array_equal(request.result, wanted)


def test_kernels_of_folded_batches_are_compiled_once() -> None:
    """How many rows a matrix has is an argument, and not compiled in."""
    compiled = set()
    for m, count in ((8, 6), (12, 4)):
        a, b = operands(0, "f16", (count,), m, 32, 64)
        problem = request_of(a, b, Options(epilogue=marked)).problem
        assert problem is not None
        plan = plan_of(problem, "sm_90a")
        compiled.add(traits_of(oriented(problem, plan), plan))
    assert len(compiled) == 1
