"""The bits of `lw.matmul` on a CPU: the order of sums of docs/matmul.md, held against `instruction.gemm`."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.linalg.cpu.sums import fused_multiply_add, rounded_tf32
from linalg.kernels_on_cpu import by_kernels

WGMMA = "wgmma.mma_async.sync.aligned.m64n256k{}.{}.{}.{}"


def numbers(seed: int, *shape: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    """Random numbers of a dtype."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def same_bits(one: Any, other: Any) -> None:
    """Assert that two arrays are the same, bit for bit."""
    assert one.dtype == other.dtype and one.tobytes() == np.ascontiguousarray(other).tobytes()


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (np.float16, WGMMA.format(16, "f32", "f16", "f16")),
        (ml_dtypes.bfloat16, WGMMA.format(16, "f32", "bf16", "bf16")),
        (ml_dtypes.float8_e4m3fn, WGMMA.format(32, "f32", "e4m3", "e4m3")),
        (np.float64, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    ],
)
def test_one_chain_along_k(dtype: Any, text: str) -> None:
    a, b = numbers(1, 40, 333, dtype=dtype), numbers(2, 333, 24, dtype=dtype)
    plan = lw.plan(a, b).with_(split=1, groups=1)
    sums = lw.instruction(text).gemm(a, b, arch="sm_90a")
    same_bits(lw.matmul(a, b, plan=plan), sums.astype(plan.problem.out.dtype.dtype))


def test_parts_of_k_are_added_in_order() -> None:
    a, b = numbers(3, 16, 1000), numbers(4, 1000, 8)
    mma = lw.instruction(WGMMA.format(16, "f32", "f16", "f16"))
    plan = lw.plan(a, b, out_dtype="f32").with_(split=3, groups=1, tile=(64, 64, 64))
    parts = [mma.gemm(a[:, x : x + 384], b[x : x + 384], arch="sm_90a") for x in (0, 384, 768)]
    same_bits(lw.matmul(a, b, out_dtype="f32", plan=plan), (parts[0] + parts[1]) + parts[2])


def test_groups_of_parts_are_added_after_the_parts() -> None:
    a, b = numbers(20, 16, 1024), numbers(21, 1024, 8)
    mma = lw.instruction(WGMMA.format(16, "f32", "f16", "f16"))
    plan = lw.plan(a, b, out_dtype="f32").with_(split=2, groups=2, tile=(64, 64, 64))
    p = [mma.gemm(a[:, x : x + 256], b[x : x + 256], arch="sm_90a") for x in range(0, 1024, 256)]
    same_bits(lw.matmul(a, b, out_dtype="f32", plan=plan), (p[0] + p[1]) + (p[2] + p[3]))


def test_block_scales_are_promoted_with_fma() -> None:
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = numbers(5, 8, 300, dtype=e4m3), numbers(6, 300, 140, dtype=e4m3)
    scale_a, scale_b = np.abs(numbers(7, 8, 3, dtype=np.float32)), np.abs(numbers(8, 3, 2, dtype=np.float32))
    mma = lw.instruction(WGMMA.format(32, "f32", "e4m3", "e4m3"))
    total = np.zeros((8, 140), np.float32)
    for block in range(3):
        some = slice(128 * block, 128 * block + 128)
        part = mma.gemm(a[:, some], b[some], arch="sm_90a")
        factor = scale_a[:, block, None] * np.repeat(scale_b[block], 128)[None, :140]
        for place in np.ndindex(total.shape):  # exact fma, one by one, in integers
            total[place] = exact_fma(part[place], factor[place], total[place])
    same_bits(lw.matmul(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype="f32", plan=None), total)


def exact_fma(x: Any, y: Any, z: Any) -> np.float32:
    """x·y + z rounded once, through fractions of integers."""
    from fractions import Fraction

    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    distance = {each: abs(Fraction(float(each)) - exact) for each in around}
    least = min(distance.values())
    nearest = [each for each in around if distance[each] == least]
    return min(nearest, key=lambda each: int(each.view(np.int32)) & 1)


def test_fused_multiply_add_rounds_once() -> None:
    rng = np.random.default_rng(9)
    x, y = (rng.standard_normal(3000).astype(np.float32) for _ in range(2))
    z = (-x.astype(np.float64) * y * (1 + rng.integers(-3, 4, 3000) * 2.0**-24)).astype(np.float32)
    found = fused_multiply_add(x, y, z)
    assert all(found[i] == exact_fma(x[i], y[i], z[i]) for i in range(3000))


def test_tf32_is_rounded_as_tensor_maps_do() -> None:
    a, b = numbers(10, 9, 64, dtype=np.float32), numbers(11, 64, 8, dtype=np.float32)
    mma = lw.instruction(WGMMA.format(8, "f32", "tf32", "tf32"))
    expected = mma.gemm(rounded_tf32(a), rounded_tf32(b), arch="sm_90a")
    same_bits(
        lw.matmul(a, b, precision="tf32", plan=lw.plan(a, b, precision="tf32").with_(split=1, groups=1)),
        expected,
    )
    halves = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, np.nan], np.float32)
    assert rounded_tf32(halves)[:2].tolist() == [1.0, 1 + 2.0**-9]
    assert rounded_tf32(halves).view(np.uint32)[2] == 0x7FFFE000


@pytest.mark.parametrize("batches", [((), ()), ((3,), ()), ((2, 1), (3,))])
@pytest.mark.parametrize("kind", ["f32", "promoted", "blocks"])
def test_blocks_of_k_have_the_same_bits_side_by_side(
    kind: str, batches: tuple[tuple[int, ...], tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is a chain of its own, and they are added in order, however many are computed at once."""
    rng, m, k, n = np.random.default_rng(15), 5, 700, 6
    dtype = np.float32 if kind == "f32" else ml_dtypes.float8_e4m3fn
    a, b = (
        rng.normal(size=(*batches[0], m, k)).astype(dtype),
        rng.normal(size=(*batches[1], k, n)).astype(dtype),
    )
    keywords: dict[str, Any] = {} if kind == "f32" else {"accumulate": "f32", "out_dtype": "f32"}
    if kind == "blocks":
        scale_a, scale_b = rng.random((m, 6)).astype(np.float32), rng.random((6, 1)).astype(np.float32)
        keywords = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": "f32"}
    found = []
    for elements in (1, 20_000, 1 << 22):
        monkeypatch.setattr("lanewise.linalg.cpu.sums._ELEMENTS_AT_ONCE", elements)
        found.append(lw.matmul(a, b, **keywords))
    same_bits(found[1], found[0])
    same_bits(found[2], found[0])


def test_sums_of_f16_are_rounded_after_each_instruction() -> None:
    a, b = numbers(12, 8, 200), numbers(13, 200, 8)
    mma = lw.instruction(WGMMA.format(16, "f16", "f16", "f16"))
    same_bits(lw.matmul(a, b, accumulate="f16"), mma.gemm(a, b, arch="sm_90a"))


@pytest.mark.parametrize(
    ("dtype", "n", "k", "precision"),
    [("f2", 496, 11755, None), ("f4", 180, 401, "tf32"), ("f4", 137, 11155, None), ("f4", 1, 462, None)],
)
def test_batch_invariant_rows_do_not_depend_on_how_they_lie(
    dtype: str, n: int, k: int, precision: str | None
) -> None:
    """Rows that TMA cannot load, a row by itself (which has no stride), results with strides of their own."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(18, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)

    def multiplied(rows: Any, out: Any = None) -> Any:
        return lw.matmul(rows, b, out=out, precision=precision, batch_invariant=True)

    whole = multiplied(a)
    for first, last in ((0, 1), (1, 2), (0, 3)):
        same_bits(multiplied(a[first:last]), whole[first:last])
        same_bits(multiplied(np.asfortranarray(a[first:last])), whole[first:last])
    same_bits(multiplied(a[2]), whole[2])
    frames = (
        np.zeros((18, n + 2), dtype)[:, 1:-1],
        np.zeros((n, 18), dtype).T,
        np.zeros((18, 2 * n), dtype)[:, ::2],
    )
    for out in frames:
        same_bits(multiplied(a, out), whole)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.float8_e4m3fn])
def test_batch_invariant_rows_do_not_depend_on_rows_beside_them(dtype: Any) -> None:
    a, b = numbers(14, 300, 8192, dtype=dtype), numbers(15, 8192, 64, dtype=dtype)
    whole = lw.matmul(a, b, batch_invariant=True, out_dtype="f32")
    for rows in (slice(0, 1), slice(3, 40), slice(299, 300)):
        same_bits(lw.matmul(a[rows], b, batch_invariant=True, out_dtype="f32"), whole[rows])
    plans = [lw.plan(each, b, batch_invariant=True).plan for each in (a[:1], a)]
    assert len({(plan.split, plan.groups) for plan in plans}) == 1
    assert plans[0].split * plans[0].groups > 1  # else the test shows nothing


def test_other_archs_have_sums_of_their_own() -> None:
    a, b = numbers(16, 16, 512), numbers(17, 512, 16)
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    found = {}
    for arch in ("sm_80", "sm_89", "sm_90a"):
        plan = lw.plan(a, b, arch=arch, out_dtype="f32").with_(split=1, groups=1)
        found[arch] = lw.matmul(a, b, arch=arch, out_dtype="f32", plan=plan)
    same_bits(found["sm_80"], mma.gemm(a, b, arch="sm_80"))
    assert found["sm_80"].tobytes() != found["sm_90a"].tobytes()


def test_batches_have_the_bits_of_single_products() -> None:
    a, b = numbers(18, 3, 20, 64), numbers(19, 3, 64, 16)
    found = lw.matmul(a, b)
    for i in range(3):
        same_bits(lw.matmul(a[i], b[i]), found[i])


@pytest.mark.parametrize("seed", range(4))
def test_scattered_views_have_the_bits_of_their_copies(seed: int) -> None:
    """A GPU copies them first, and plans for the copies; f32's bits depend on the plan."""
    rng = np.random.default_rng(seed)
    m, n, k = rng.integers(20, 180, 3)
    room = rng.standard_normal((2 * k, 2 * m)).astype(np.float32)
    a, b = room[::2, ::2].T, rng.standard_normal((n, k)).astype(np.float32).T
    expected = lw.matmul(a.copy(order="C"), b)
    assert (lw.matmul(a, b) == expected).all()
    out = np.zeros((2 * m, 2 * n), np.float32)[::2, ::2]
    assert lw.matmul(a, b, out=out) is out and (out == expected).all()


def test_the_plan_of_scattered_views_is_that_of_the_call() -> None:
    rng = np.random.default_rng(np.random.SeedSequence())
    m, n, k = (int(size) for size in rng.integers(20, 600, 3))
    wide = rng.standard_normal((3, m, 2 * k)).astype(np.float32)
    b = np.moveaxis(rng.standard_normal((k, n, 3)).astype(np.float32), 2, 0)
    for a in (wide[0, :, ::2], wide[0, :, k - 1 :: -1], wide[:, :, 1::2]):
        for right in (b[0], b):
            for out in (None, np.zeros((3, m, 2 * n), np.float32)[..., ::2]):
                given: dict[str, Any] = {}
                if out is not None and (a.ndim, right.ndim) != (2, 2):
                    given["out"] = out
                planned = lw.plan(a, right, precision="tf32", **given)
                copies = [each.copy(order="C") for each in (a, right)]
                assert planned.plan == lw.plan(*copies, precision="tf32").plan
                expected = lw.matmul(a, right, precision="tf32", **given).copy()
                same_bits(lw.matmul(a, right, precision="tf32", plan=planned, **given), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nan_is_that_of_the_kernels(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (5, 1, 300) if seed % 2 else (3, 9, 40)  # a single column is computed as the transpose
    a, b, bias, residual = (
        numbers(seed + i, *s, dtype=dtype) for i, s in enumerate(((m, k), (k, n), (n,), (m, n)))
    )
    for array in (a, b, bias, residual):
        for number in (np.inf, -np.inf, np.nan, -np.nan):
            array[rng.random(array.shape) < 0.02] = number
    keywords: dict[str, Any] = {"bias": bias, "residual": residual} if seed > 1 else {}
    arch = "sm_80" if dtype is np.float64 else "sm_90a"
    result = lw.matmul(a, b, arch=arch, **keywords)
    assert np.isnan(result).any()
    same_bits(result, by_kernels(a, b, arch, **keywords))
    if dtype is np.float16:
        keywords["out_dtype"] = "bf16"
        same_bits(lw.matmul(a, b, **keywords), by_kernels(a, b, **keywords))
