"""Products with a 2:4 sparse B: calls in host memory, and the kernel of wgmma.sp on the CPU machine."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled
from lanewise.formats import FORMATS, Format
from lanewise.linalg.arrays import COUNTER_BYTES, Pointers
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches
from lanewise.linalg.kernels.sparse.metadata import indices_of, metadata_shape, ordered_metadata, prune_into
from lanewise.linalg.kernels.sparse.plans import fitted, sparse_plan
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Operand, Problem
from linalg.hopper_products import matrix, operand, some

#: (M, N, K, format, format of the result, tile, cluster, whether rows of a and of the result are contiguous)
CASES = [
    (72, 136, 136, "bf16", "bf16", (128, 64), (1, 1), True, True),
    (70, 300, 200, "f16", "f32", (128, 64), (2, 1), True, True),
    (72, 136, 200, "f16", "f16", (128, 32), (1, 2), False, True),
    (72, 135, 72, "bf16", "bf16", (64, 64), (1, 1), True, True),
    (40, 136, 144, "e4m3", "bf16", (64, 16), (1, 1), True, True),
    (40, 136, 272, "e5m2", "e4m3", (128, 64), (1, 1), True, False),
    (70, 132, 112, "s8", "s32", (64, 64), (1, 1), True, True),
    (130, 520, 64, "bf16", "bf16", (256, 128), (2, 1), True, True),
]


def problem_of(a: Any, values: Any, k: int, out: Any, epilogue: Epilogue, fmt: Format, to: Format) -> Problem:
    """Return the problem of a product with a sparse b, whose kept values are (N, K/2)."""
    sums = FORMATS["s32" if fmt.kind == "int" else "f32"]
    a_rows, out_rows = (each.strides[1] == each.itemsize for each in (a, out))
    return Problem(
        a.shape[0], values.shape[0], k, operand(a, a_rows, a_rows, fmt), operand(values.T, False, True, fmt),
        operand(out, out_rows, out_rows, to), sums, epilogue=epilogue, sparse=True,
    )  # fmt: skip


def values_of(sparse: Any) -> Any:
    """Return what is kept of a matrix as it lies on a GPU: rows padded to 16 bytes."""
    found = np.zeros((sparse.shape[1], sparse.leading), sparse.values.dtype)
    found[:, : sparse.k // 2] = sparse.values
    return found[:, : sparse.k // 2]


@sampled(2)
@pytest.mark.parametrize("case", some(CASES, CASES[0], CASES[4]), ids=str)
def test_kernel(case: Any) -> None:
    """The kernel gives the bits that the call gives in host memory, and the checker finds nothing."""
    m, n, k, name, result, tile, cluster, a_rows, out_rows = case
    fmt, to = FORMATS[name], FORMATS[result]
    rng = np.random.default_rng(5)
    a, b = matrix(rng, (m, k), fmt, a_rows), matrix(rng, (k, n), fmt, True)
    sparse = lw.sparsify(b)
    out: Any = np.zeros((m, n) if out_rows else (n, m), to.dtype)
    out = out if out_rows else out.T
    values = values_of(sparse)
    problem = problem_of(a, values, k, out, Epilogue(), fmt, to)
    plan = Plan("sparse", "sm_90a", (*tile, 128 // (fmt.bits // 8)), 3, cluster)
    pointers = Pointers(a, values, out, metadata=ordered_metadata(sparse.indices, fmt))
    configured, arguments, _ = launches.launches(problem, plan, pointers, multiprocessors=4)[0]
    configured(*arguments)
    assert out.tobytes() == lw.matmul(a, sparse, out_dtype=result).tobytes()
    for schedule in ("late", "early") if EVERYTHING else ("late",):
        assert lw.check(configured, *arguments, schedule=schedule).ok


@only_with_everything
@pytest.mark.parametrize("name", some(("bf16", "e4m3"), "bf16"))
def test_copied_operand_and_epilogue(name: str) -> None:
    """A dense operand that TMA cannot load is copied first; bias and activation are those of the CPU."""
    fmt = FORMATS[name]
    m, n, k = 40, 72, 100
    rng = np.random.default_rng(6)
    a, b = matrix(rng, (m, k + 1), fmt, True)[:, 1:], matrix(rng, (k, n), fmt, True)
    if name == "e4m3":
        a = matrix(rng, (m, k), fmt, False)
    sparse = lw.sparsify(b)
    values = values_of(sparse)
    bias: Any = rng.normal(size=n).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    epilogue = Epilogue(bias="row", bias_dtype=FORMATS["f32"], activation="relu")
    problem = problem_of(a, values, k, out, epilogue, fmt, FORMATS["f32"])
    plan = sparse_plan(problem)
    assert plan.copy_a
    workspace = np.zeros(launches.workspace_bytes(problem, plan) + 128, np.uint8)
    workspace = workspace[-workspace.ctypes.data % 128 :]
    assert len(workspace) > COUNTER_BYTES
    metadata = ordered_metadata(sparse.indices, fmt)
    pointers = Pointers(a, values, out, bias=bias, workspace=workspace, metadata=metadata)
    run(launches.launches(problem, plan, pointers, multiprocessors=4))
    wanted = lw.matmul(a, sparse, bias=bias, activation="relu", out_dtype="f32")
    assert out.tobytes() == wanted.tobytes()


def test_fused_calls() -> None:
    """What is fused with a product is applied to the sums of the sparse instruction."""
    rng = np.random.default_rng(7)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((3, 7, 100), (100, 24)))
    sparse = lw.sparsify(b)
    sums = lw.matmul(a, sparse, out_dtype="f32")
    bias, residual = rng.normal(size=24).astype(np.float32), rng.normal(size=(3, 7, 24)).astype(np.float16)
    found = lw.matmul(a, sparse, bias=bias, activation="relu", residual=residual, alpha=0.5)
    wanted = np.maximum(sums * np.float32(0.5) + bias, 0) + residual.astype(np.float32)
    np.testing.assert_array_equal(found, wanted.astype(np.float16))
    out = np.empty((24, 7, 3), np.float16).transpose(2, 1, 0)
    assert lw.matmul(a, sparse, out=out) is out
    np.testing.assert_array_equal(out, sums.astype(np.float16))
    column = rng.normal(size=(7, 1)).astype(np.float32)
    with_column = lw.matmul(a, sparse, bias=column, out_dtype="f32")
    np.testing.assert_array_equal(with_column, sums + column)


def test_mixed_small_floats_with_scales() -> None:
    """The dense operand may be of the other 8-bit float, and both may have scales."""
    rng = np.random.default_rng(8)
    a = rng.normal(size=(7, 100)).astype(FORMATS["e5m2"].dtype)
    sparse = lw.sparsify(rng.normal(size=(100, 24)).astype(FORMATS["e4m3"].dtype))
    scales = rng.uniform(0.5, 2, 7).astype(np.float32)
    found = lw.matmul(a, sparse, scale_a=scales, scale_b=0.5, out_dtype="f32")
    exact = a.astype(np.float64) @ sparse.dense().astype(np.float64) * 0.5 * scales[:, None]
    np.testing.assert_allclose(found, exact, atol=0.02)


@pytest.mark.parametrize(("rows", "k"), [(0, 8), (4, 0)])
def test_empty_products(rows: int, k: int) -> None:
    """No rows give no results; a K of 0 gives what is fused with zeros."""
    a, b = np.ones((rows, k), np.float16), np.ones((k, 8), np.float16)
    found = lw.matmul(a, lw.sparsify(b), bias=np.ones(8, np.float16))
    assert found.shape == (rows, 8) and (found == 1).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accumulate": "f32"}, "take no accumulate="),
        ({"precision": "f32"}, "take no precision="),
        ({"arch": "sm_80"}, "planned for sm_90a"),
        ({"bias": np.ones(3, np.float16)}, "bias has shape"),
        ({"out": np.ones((7, 3), np.float16)}, "out has shape"),
        ({"out_dtype": "f64"}, "give"),
    ],
)
def test_refused(given: Any, message: str) -> None:
    """Keywords that sparse products do not take are refused with the reason."""
    a, b = np.ones((7, 8), np.float16), np.ones((8, 4), np.float16)
    with pytest.raises(lw.LanewiseError, match=message):
        lw.matmul(a, lw.sparsify(b), **given)
    with pytest.raises(lw.LanewiseError, match="K"):
        lw.sparsify(np.ones((6, 4), np.float16))


def test_scales_of_blocks_are_refused() -> None:
    """Sums of wgmma.sp are not promoted."""
    fmt = FORMATS["e4m3"].dtype
    a, b = np.ones((8, 256), fmt), np.ones((256, 128), fmt)
    with pytest.raises(lw.LanewiseError, match="blocks"):
        lw.matmul(a, lw.sparsify(b), scale_a=np.ones((8, 2), np.float32), scale_b=np.ones((2, 1), np.float32))


@pytest.mark.parametrize("name", ["f16", "e4m3", "s8"])
@pytest.mark.parametrize("sizes", [(1, 8, 4), (4096, 4096, 4096), (17, 14336, 4096), (70, 135, 36)])
def test_every_problem_has_a_plan(name: str, sizes: tuple[int, int, int]) -> None:
    """Plans can be had for few and for many rows, of all types of results."""
    m, n, k = sizes
    fmt = FORMATS[name]
    results = ("s32", "f16") if name == "s8" else ("f16", "f32", "e4m3")
    for result in results:
        to = FORMATS[result]
        dense, kept = (Operand(fmt, True, -(-each // 16) * 16) for each in (k, k // 2))
        for rows in (True, False):
            out = Operand(to, rows, n if rows else m, alignment=16 if n % 16 == m % 16 == 0 else 2)
            sums = FORMATS["s32" if name == "s8" else "f32"]
            problem = Problem(m, n, k, dense, kept, out, sums, sparse=True)
            plan = sparse_plan(problem)
            assert plan.stages >= 3
            assert fitted(problem, plan.tile[:2], plan.cluster) is not None


@pytest.mark.parametrize("name", some(("f16", "bf16", "e4m3", "e5m2", "s8"), "bf16", "s8"))
def test_pruning_kernel(name: str) -> None:
    """The kernel keeps what `lw.sparsify` keeps in host memory, of any bits: NaN, zeros and equals, too."""
    fmt = FORMATS[name]
    k, n, word = 100, 70, np.dtype(np.uint8 if fmt.bits == 8 else np.uint16)
    bits: Any = np.random.default_rng(9).integers(0, 1 << fmt.bits, (k, n)).astype(word)
    bits[:8], bits[16:19] = bits[0], 0
    sparse = lw.sparsify(bits.view(fmt.dtype))
    values = np.zeros((n, sparse.leading), word)
    metadata = np.zeros(metadata_shape(n, k, fmt.bits // 8), np.int32)
    prune_into(bits.reshape(-1), values, metadata, (k, n), (n, 1), sparse.leading, fmt)
    assert values[:, : k // 2].tobytes() == sparse.values.tobytes()
    assert metadata.tobytes() == ordered_metadata(sparse.indices, fmt).tobytes()
    np.testing.assert_array_equal(indices_of(metadata, n, k, fmt), sparse.indices)
