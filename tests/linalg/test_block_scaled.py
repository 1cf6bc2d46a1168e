"""Block-scaled products: mxfp8, mxfp4, nvfp4 for sm_100a, their scales in both orders, `lw.quantize`."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled
from lanewise.errors import LanewiseError
from lanewise.linalg.block_scaling import BLOCK_FORMATS
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.options import Options
from lanewise.linalg.rules import request_of
from linalg.blackwell_calls import matrix
from linalg.kernels_on_cpu import _pointers, by_kernels

ARCH = "sm_100a"
E2M1, E4M3, E5M2 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
E8M0 = ml_dtypes.float8_e8m0fnu
#: Elements, scales, elements of a block, and the instruction.
FORMATS: dict[str, tuple[Any, Any, int, str]] = {
    "mxfp8": (E4M3, E8M0, 32, "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32"),
    "mxfp4": (E2M1, E8M0, 32, "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32"),
    "nvfp4": (E2M1, E4M3, 16, "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"),
}


def factors(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Any:
    """Return random scales: powers of two, or positive numbers of e4m3."""
    numbers = 2.0 ** rng.integers(-6, 7, shape) * (
        1 if dtype == E8M0 else rng.choice([1, 1.25, 1.875], shape)
    )
    return numbers.astype(dtype)


def product(name: str, m: int, n: int, k: int, seed: int, of_b: Any = None) -> tuple[Any, Any, Any, Any]:
    """Return A, B and their scales, in random layouts."""
    rng = np.random.default_rng(seed)
    element, factor, block, _ = FORMATS[name]
    count = -(-k // block)
    a, b = matrix(rng, (m, k), element), matrix(rng, (k, n), of_b or element)
    scale_a, scale_b = factors(rng, (m, count), factor), factors(rng, (count, n), factor)
    return a, b, scale_a, scale_b if seed % 2 else np.asfortranarray(scale_b)


def exact(name: str, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """Return the product in float64."""
    block, k = FORMATS[name][2], a.shape[1]
    left = a.astype(float) * np.repeat(scale_a.astype(float), block, 1)[:, :k]
    return left @ (b.astype(float) * np.repeat(scale_b.astype(float), block, 0)[:k])


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_products_are_chains_of_the_instruction(name: str, swizzled: bool) -> None:
    """Elements and scales past the end of K are zeros."""
    rng = np.random.default_rng(len(name))
    for seed in range(2):
        m, n, k = (int(each) for each in rng.integers(1, 200, 3))
        a, b, scale_a, scale_b = product(name, m, n, k, seed)
        given = (lw.SwizzledScales.of(scale_a), lw.SwizzledScales.of(scale_b.T)) if swizzled else (
            scale_a, scale_b,
        )  # fmt: skip
        result = lw.matmul(a, b, scale_a=given[0], scale_b=given[1], arch=ARCH, out_dtype="f32")
        _, _, block, text = FORMATS[name]
        mma = lw.instruction(text, m=128, n=8, a=lw.formats.format_of(a.dtype).name,
                             b=lw.formats.format_of(b.dtype).name)  # fmt: skip
        missing = -k % mma.k
        whole_a, whole_b = np.pad(a, ((0, 0), (0, missing))), np.pad(b, ((0, missing), (0, 0)))
        more = (k + missing) // block - scale_a.shape[1]
        zeros = {
            axis: np.zeros((m, more) if axis else (more, n), np.uint8).view(scale_a.dtype) for axis in (0, 1)
        }
        sums = mma.gemm(
            whole_a, whole_b, arch=ARCH, scale_a=np.concatenate([scale_a, zeros[1]], 1),
            scale_b=np.concatenate([scale_b, zeros[0]], 0),
        )  # fmt: skip
        assert np.array_equal(result, sums)
        wanted = exact(name, a, b, scale_a, scale_b)
        assert np.allclose(result, wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())


@sampled(36)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FORMATS)
def test_host_arrays_get_the_bits_of_the_kernels(name: str, seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    m, n, k = (int(each) for each in rng.integers(1, 300, 3))
    if seed % 2:
        m, n, k = (-(-each // 16) * 16 for each in (m, n, k))
    mixed = E5M2 if name == "mxfp8" and seed % 3 == 0 else None
    a, b, scale_a, scale_b = product(name, m, n, k, seed, mixed)
    keywords: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b}
    if seed % 3 == 1:
        keywords["scale_a"] = lw.SwizzledScales.of(scale_a)
    if seed % 3 == 2:
        keywords |= {"bias": rng.normal(size=n).astype(np.float32), "activation": "relu", "alpha": 0.5}
    plan = lw.plan(a, b, arch=ARCH, **keywords).with_(swap=seed % 4 == 2).plan
    result, expected = lw.matmul(a, b, plan=plan, **keywords), by_kernels(a, b, ARCH, plan, **keywords)
    assert np.array_equal(result.view(np.uint16), expected.view(np.uint16))


def test_a_plan_says_what_is_made_first() -> None:
    a, b, scale_a, scale_b = product("mxfp8", 128, 64, 256, 1)
    order_a, order_b = lw.SwizzledScales.of(scale_a), lw.SwizzledScales.of(scale_b.T)
    for scales, said in (
        ((scale_a, scale_b), "scale_a and scale_b in 128×4 order"),
        ((order_a, scale_b), "scale_b in 128×4 order"),
        ((order_a, order_b), "nothing"),
    ):
        planned = lw.plan(a, b, arch=ARCH, scale_a=scales[0], scale_b=scales[1])
        assert dict(planned.rows())["made first"] == said


@only_with_everything
@pytest.mark.parametrize("name", FORMATS)
def test_kernels_are_silent_under_check(name: str) -> None:
    """Two stages and two blocks: scale factors in shared and tensor memory are overwritten many times."""
    a, b, scale_a, scale_b = product(name, 260, 140, 1100, 1)
    keywords: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": "f32"}
    plan = lw.plan(a, b, arch=ARCH, **keywords).with_(stages=2).plan
    request = request_of(a, b, Options(**keywords))
    assert request.problem is not None
    family = family_of("blackwell")
    pointers = _pointers(request, family.workspace_bytes(request.problem, plan))
    launches = family.launches(request.problem, plan, pointers, multiprocessors=2)
    for launch in launches:
        for schedule in ("in order", "late", 3) if EVERYTHING else ("late",):
            report = lw.check(launch.kernel, *launch.arguments, arch=ARCH, schedule=schedule)
            assert report.ok, report
        launch()
    assert np.array_equal(request.result, lw.matmul(a, b, plan=plan, **keywords))


def test_batches_vectors_and_results_in_place() -> None:
    a, b, scale_a, scale_b = product("mxfp8", 40, 24, 100, 3)
    keywords: dict[str, Any] = {"arch": ARCH, "out_dtype": "f32"}
    single = lw.matmul(a, b, scale_a=scale_a, scale_b=scale_b, **keywords)
    batch = lw.matmul(
        np.stack([a, a[::-1]]), b, scale_a=np.stack([scale_a, scale_a[::-1]]), scale_b=scale_b, **keywords
    )
    assert np.array_equal(batch, np.stack([single, single[::-1]]))
    row = lw.matmul(a[0], b, scale_a=scale_a[:1], scale_b=scale_b, **keywords)
    assert np.array_equal(row, single[0])
    out = np.zeros((24, 40), np.float32).T
    assert lw.matmul(a, b, scale_a=scale_a, scale_b=scale_b, arch=ARCH, out=out) is out
    assert np.array_equal(out, single)
    empty = lw.matmul(a[:, :0], b[:0], scale_a=scale_a[:, :0], scale_b=scale_b[:0], **keywords)
    assert not empty.any() and empty.shape == (40, 24)


def test_a_scale_that_is_nan_makes_a_row_nan() -> None:
    a, b, scale_a, scale_b = product("mxfp8", 20, 16, 64, 4)
    scale_a.view(np.uint8)[7, 1] = 0xFF
    result = lw.matmul(a, b, scale_a=scale_a, scale_b=scale_b, arch=ARCH, out_dtype="f32")
    assert np.isnan(result[7]).all() and np.isfinite(np.delete(result, 7, 0)).all()


# scales in NVIDIA's order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (128, 4), (129, 5), (300, 13), (32, 8)])
def test_swizzled_scales_lie_where_cublas_reads_them(rows: int, count: int) -> None:
    """Factor f of row r is byte 16·(r mod 32) + 4·(r mod 128 div 32) + f mod 4 of its 512 bytes."""
    plain = np.random.default_rng(rows).integers(0, 255, (rows, count)).astype(np.uint8)
    swizzled = lw.SwizzledScales.of(plain)
    deep = -(-count // 4)
    for r, f in np.ndindex(rows, count):
        block = r // 128 * deep + f // 4
        assert swizzled.array[block * 512 + r % 32 * 16 + r % 128 // 32 * 4 + f % 4] == plain[r, f]
    assert swizzled.array.sum(dtype=int) == plain.sum(dtype=int)  # padding is zeros
    assert np.array_equal(swizzled.plain(), plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((np.zeros(511, E8M0), 3, 4), "are 512 bytes, whole blocks of 128 × 4; the array has 511"),
     ((np.zeros(512, np.float32), 3, 4), "not of float32"), (([1], 3, 4), "not of list"),
     ((np.zeros(512, E8M0), -1, 4), "rows=-1"), ((np.zeros(512, E8M0), 1, True), "factors=True")],
)  # fmt: skip
def test_swizzled_scales_say_what_is_wrong(arguments: tuple[Any, int, int], message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        lw.SwizzledScales(*arguments)


def test_swizzled_scales_of_other_arrays() -> None:
    with pytest.raises(LanewiseError, match="not of float32"):
        lw.SwizzledScales.of(np.ones((3, 4), np.float32))
    torch = pytest.importorskip("torch")
    plain = torch.tensor([[1.0, 2.0, 4.0]] * 130).to(torch.float8_e8m0fnu)
    swizzled = lw.SwizzledScales.of(plain)
    again = lw.SwizzledScales(torch.from_numpy(swizzled.array.view(np.uint8)).view(plain.dtype), 130, 3)
    assert np.array_equal(again.plain().view(np.uint8), plain.view(torch.uint8).numpy())


def test_a_batch_with_swizzled_scales_of_b() -> None:
    rng = np.random.default_rng(2)
    w = lw.quantize(rng.normal(size=(64, 16)).astype("f4"), "mxfp8")
    rows = [lw.quantize(rng.normal(size=(8, 64)).astype("f4"), "mxfp8", axis=1) for _ in range(2)]
    a, scale_a = (np.stack([getattr(each, part) for each in rows]) for part in ("values", "scales"))
    plain, swizzled = (
        lw.matmul(a, w.values, scale_a=scale_a, scale_b=scale_b, arch=ARCH)
        for scale_b in (w.scales, lw.SwizzledScales.of(w.scales.T))
    )
    assert plain.shape == (2, 8, 16) and plain.tobytes() == swizzled.tobytes()


# what is refused --------------------------------------------------------------------------------------------

A8, B8 = np.zeros((20, 64), E4M3), np.zeros((64, 12), E4M3)
A4, B4 = np.zeros((20, 64), E2M1), np.zeros((64, 12), E2M1)
MX_A, MX_B = np.ones((20, 2), E8M0), np.ones((2, 12), E8M0)
NV_A, NV_B = np.ones((20, 4), E4M3), np.ones((4, 12), E4M3)


@pytest.mark.parametrize(
    ("a", "b", "scales", "message"),
    [(A8, B8, (MX_A, None), "scale_a has factors of mxfp8; scale_b must have them, too"),
     (A8, B8, (None, MX_B), "scale_b has factors of mxfp8; scale_a must have them, too"),
     (A8, B8, (MX_A, np.ones((1, 12), np.float32)), "scale_b must have them, too"),
     (A8, B8, (NV_A, NV_B), "scales of float8_e4m3fn must be float32, or float8_e8m0fnu"),
     (A8, B8, (MX_A, MX_B.T), r"which is \(2, 12\): pass scale_b.T"),
     (A8, B8, (MX_A[:, :1], MX_B), r"has shape \(20, 1\); mxfp8 has a factor for each 32"),
     (A8, B8, (lw.SwizzledScales.of(MX_A[:3]), MX_B), "scales of 3 rows, 2 each; mxfp8 with a K of 64"),
     (A8, B8, (lw.SwizzledScales(np.ones(1024, E8M0)[::2], 20, 2), MX_B), "scale_a is not contiguous"),
     (A4, B4, (None, None), "products of float4_e2m1fn are block-scaled"),
     (A4, B4, (2.0, 1.0), "products of float4_e2m1fn are block-scaled"),
     (A4, B4, (MX_A, NV_B), "scale_a has factors of mxfp4 and scale_b of nvfp4"),
     (A4, B4, (NV_A.astype(np.float16), NV_B), "must be float8_e8m0fnu .mxfp4. or float8_e4m3fn .nvfp4."),
     (A4, B8, (MX_A, MX_B), "a is float4_e2m1fn and b is float8_e4m3fn; both must have the same type"),
     (A8.astype(np.float16), B8.astype(np.float16), (MX_A, MX_B), "scale_a is for e4m3, e5m2 and int8"),
     (A8.astype(np.int8), B8.astype(np.int8), (MX_A, MX_B), "scales of int8 must be float32"),
     (MX_A, MX_B, (None, None), "float8_e8m0fnu cannot be multiplied")],
)  # fmt: skip
def test_scales_that_do_not_fit_are_refused(a: Any, b: Any, scales: Any, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        lw.matmul(a, b, scale_a=scales[0], scale_b=scales[1], arch=ARCH)


@pytest.mark.parametrize("arch", [None, "sm_90a", "sm_80", "sm_120a"])
def test_other_archs_have_no_block_scaled_products(arch: str | None) -> None:
    """The sentence says which arch has them, and which scales this one has."""
    with pytest.raises(LanewiseError, match=r"no products of mxfp8: arch='sm_100a' has them; .*float32"):
        lw.matmul(A8, B8, scale_a=MX_A, scale_b=MX_B, arch=arch)


def test_scales_of_float32_are_what_they_were() -> None:
    rows, columns = np.full((20, 1), 0.5, np.float32), np.full((1, 12), 4, np.float32)
    ones = np.ones((20, 64), E4M3), np.ones((64, 12), E4M3)
    for arch in ("sm_90a", ARCH):
        assert (lw.matmul(*ones, scale_a=rows, scale_b=columns, arch=arch, out_dtype="f32") == 128).all()


# quantization -----------------------------------------------------------------------------------------------


def numbers(seed: int, shape: tuple[int, int], dtype: Any = np.float32) -> Any:
    """Return numbers of many magnitudes, with a block of zeros and one of tiny numbers."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=shape) * np.exp2(rng.integers(-30, 20, (shape[0], 1)))
    found[:, :33] *= rng.random((shape[0], 1)) < 0.8
    return found.astype(dtype)


@pytest.mark.parametrize(("name", "dtype"), [("mxfp8", E4M3), ("mxfp8", E5M2), ("mxfp4", E2M1)])
def test_mx_formats_follow_ocp(name: str, dtype: Any) -> None:
    """The shared exponent is floor(log2(largest)) less that of the element's largest number; then elements
    are rounded to nearest even, and those beyond the largest number become it."""
    x = numbers(1, (30, 100))
    found = lw.quantize(x, name, axis=1, dtype=dtype)
    assert found.values.dtype == dtype and found.scales.dtype == E8M0 and found.factor == 1
    assert found.scales.shape == (30, 4)
    most = {E4M3: 448.0, E5M2: 57344.0, E2M1: 6.0}[dtype]
    for r, f in np.ndindex(30, 4):
        part = x[r, 32 * f : 32 * f + 32].astype(float)
        largest = abs(part).max()
        exponent = -127.0 if largest == 0 else np.floor(np.log2(largest)) - np.floor(np.log2(most))
        scale = 2.0 ** max(exponent, -127.0)
        assert float(found.scales[r, f]) == scale
        wanted = np.clip(part / scale, -most, most).astype(dtype)
        assert np.array_equal(found.values[r, 32 * f : 32 * f + 32].view(np.uint8), wanted.view(np.uint8))


def test_nvfp4_has_a_scale_of_the_tensor_too() -> None:
    w = numbers(2, (50, 40), ml_dtypes.bfloat16).T  # (K, N): blocks lie along K
    found = lw.quantize(w, "nvfp4")
    assert found.scales.shape == (3, 50) and found.scales.dtype == E4M3 and found.values.dtype == E2M1
    largest = abs(w.astype(float)).max()
    assert found.factor == float(np.float32(largest / (448 * 6)))
    grid = {
        dtype: np.arange(256 if dtype == E4M3 else 16, dtype=np.uint8).view(dtype).astype(float)
        for dtype in (E4M3, E2M1)
    }

    def nearest(value: float, dtype: Any) -> float:
        return float(np.nanmin(abs(grid[dtype] - value)))

    for f, c in np.ndindex(3, 50):
        part = w[16 * f : 16 * f + 16, c].astype(float)
        wanted, scale = abs(part).max() / 6 / found.factor, float(found.scales[f, c])
        assert abs(scale - wanted) == nearest(wanted, E4M3)
        for x, value in zip(part, found.values[16 * f : 16 * f + 16, c].astype(float), strict=True):
            wanted = x / (scale * found.factor) if scale else 0.0
            assert abs(value - wanted) == nearest(wanted, E2M1)
    assert float(found.scales.astype(float).max()) == 448


@pytest.mark.parametrize("name", FORMATS)
def test_quantized_operands_multiply(name: str) -> None:
    rng = np.random.default_rng(9)
    x, w = rng.normal(size=(30, 100)).astype(np.float32), rng.normal(size=(100, 20)).astype(np.float16)
    left, right = lw.quantize(x, name, axis=1), lw.quantize(w, name)
    assert abs(left.dequantize() - x).max() < 0.25 * abs(x).max()
    result = lw.matmul(left, right, arch=ARCH, out_dtype="f32")
    wanted = left.dequantize().astype(float) @ right.dequantize().astype(float)
    assert np.allclose(result, wanted, rtol=1e-5, atol=1e-5)
    assert lw.plan(left, right, arch=ARCH).problem.block_format == name
    apart = lw.matmul(
        left.values, right.values, scale_a=left.scales, scale_b=right.scales, arch=ARCH, out_dtype="f32",
        alpha=left.factor * right.factor,
    )  # fmt: skip
    assert np.array_equal(result, apart)
    zeros = lw.quantize(np.zeros((32, 4), np.float32), name)
    assert not zeros.dequantize().any() and zeros.factor == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda x: lw.quantize(x, "mxfp6"), "makes 'int4', 'mxfp8', 'mxfp4' or 'nvfp4', not 'mxfp6'"),
     (lambda x: lw.quantize(x, "mxfp8", group=64), "blocks of mxfp8 have 32 elements"),
     (lambda x: lw.quantize(x, "mxfp8", axis=2), "axis=2 must be 0"),
     (lambda x: lw.quantize(x, "mxfp4", dtype="e4m3"), "elements of mxfp4 are float4_e2m1fn"),
     (lambda x: lw.quantize(x * np.inf, "mxfp8"), "infinities or NaN"),
     (lambda x: lw.quantize(x, "int4", axis=1), "groups of int4 lie along axis 0"),
     (lambda x: lw.matmul(lw.quantize(x, "mxfp8"), x, arch=ARCH), "a is scaled along axis 0"),
     (lambda x: lw.matmul(lw.quantize(x, "mxfp8", axis=1), x, arch=ARCH), "both must have the same type"),
     (lambda x: lw.matmul(lw.quantize(x, "mxfp8", axis=1), lw.quantize(x, "mxfp8"), arch=ARCH, scale_a=2.0),
      "a has scales of its own")],
)  # fmt: skip
def test_quantize_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        call(np.ones((32, 32), np.float32))


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_matrices_without_elements(name: str) -> None:
    """Sums over no elements of K are zeros."""
    for m, k in ((0, 40), (3, 0), (0, 0)):
        a = lw.quantize(np.ones((m, k), np.float32), name, axis=1)
        b = lw.quantize(np.ones((k, 5), np.float32), name)
        assert a.dequantize().shape == (m, k) and a.scales.shape == (m, -(-k // BLOCK_FORMATS[name].block))
        result = lw.matmul(a, b, arch="sm_100a", out_dtype="f32")
        assert result.shape == (m, 5) and not result.any()


def test_every_format_is_tested() -> None:
    assert set(FORMATS) == set(BLOCK_FORMATS)
