"""Published shapes of products on the machine: WMMA, HGEMM, integers, bits, sparse; bit for bit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from machine.classics import classic

MULTISTAGE = "hgemm_multistage<64, 64, 32, 3, 2, 2>"


def normal(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "sums", "name", "arch"),
    [
        ("half", "half", "f16.f16", "sm_75"),
        ("half", "float", "f32.f32", "sm_90"),
        ("__nv_bfloat16", "float", "f32.bf16.bf16.f32", "sm_80"),
    ],
)
def test_wmma_in_all_layouts(inputs: str, sums: str, name: str, arch: str) -> None:
    number = {"half": np.float16, "float": np.float32, "__nv_bfloat16": ml_dtypes.bfloat16}
    lda, ldb, ldc = 24, 16, 32
    a, b = normal((8, 16, lda), number[inputs], 1), normal((8, 16, ldb), number[inputs], 2)
    c = normal((8, 16, ldc), number[sums], 3)
    d = np.zeros_like(c)
    classic("wmma")[f"layouts<{inputs}, {sums}>"][8, 32](a, b, c, d, lda, ldb, ldc, arch=arch)
    wmma = lw.instruction(f"wmma.mma.sync.aligned.row.col.m16n16k16.{name}")
    for block in range(8):
        turned = [matrix[block, :, :16] for matrix in (a, b, c, d)]
        for place, bit in ((0, 1), (1, 2), (2, 4), (3, 4)):
            turned[place] = np.ascontiguousarray(turned[place].T if block & bit else turned[place])
        assert same_bits(turned[3], wmma(*turned[:3], arch=arch)), f"layouts {block:03b}"
    assert not d[:, :, 16:].any()


def test_wmma_product_with_alpha_and_beta() -> None:
    m, n, k = 64, 48, 80
    a, b, c = normal((m, k), np.float16, 1), normal((k, n), np.float16, 2), normal((m, n), np.float32, 3)
    out = c.copy()
    classic("wmma")["gemm"][(1, 2), (128, 2)](a, b, out, m, n, k, 1.5, -0.75)
    sums = lw.instruction("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32").gemm(a, b, arch="sm_80")
    scaled = np.float32(-0.75) * c
    assert same_bits(out, (1.5 * sums.astype(np.float64) + scaled).astype(np.float32))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_naive_hgemm(arch: str) -> None:
    m, n, k = 64, 48, 96
    a, b = normal((m, k), np.float16, 1), normal((k, n), np.float16, 2)
    c = np.zeros((m, n), np.float16)
    kernel = classic("hgemm_naive")["hgemm_naive"]
    kernel[(n // 8, m // 16), 32](a, np.ascontiguousarray(b.T), c, m, n, k, arch=arch)
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    assert same_bits(c, mma.gemm(a, b, arch=arch))


@sampled(2)
@pytest.mark.parametrize("k", [32, 64, 256])  # fewer steps than stages too
def test_multistage_hgemm(k: int) -> None:
    m, n = 128, 192
    a, b = normal((m, k), np.float16, 1), normal((k, n), np.float16, 2)
    c = np.zeros((m, n), np.float32)
    kernel = classic("hgemm_multistage")[MULTISTAGE]
    kernel[(n // 64, m // 64), 128, 3 * 128 * 32 * 2](a, np.ascontiguousarray(b.T), c, m, n, k)
    assert same_bits(
        c, lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").gemm(a, b, arch="sm_80")
    )


def test_int8_product() -> None:
    m, n, k = 64, 24, 160
    rng = np.random.default_rng(4)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    c = np.zeros((m, n), np.int32)
    kernel = classic("int_products")["int8_gemm"]
    kernel[(n // 8, m // 32), 64](a, np.ascontiguousarray(b.T), c, m, n, k)
    assert (c == a.astype(np.int32) @ b.astype(np.int32)).all()


def test_products_of_bits() -> None:
    m, n, words = 32, 16, 24
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 1 << 32, (lines, words), np.uint32) for lines in (m, n))
    both, differ = np.zeros((m, n), np.int32), np.zeros((m, n), np.int32)
    classic("int_products")["bit_products"][(n // 8, m // 16), 32](a, b, both, differ, n, words)
    assert (both == np.bitwise_count(a[:, None] & b).sum(-1)).all()
    assert (differ == np.bitwise_count(a[:, None] ^ b).sum(-1)).all()


def test_sparse_product_with_metadata() -> None:
    rng = np.random.default_rng(6)
    kept, b = normal((16, 16), np.float16, 7), normal((32, 8), np.float16, 8)
    places = np.sort(rng.permuted(np.tile(np.arange(4), (16, 8, 1)), axis=-1)[:, :, :2], axis=-1).astype(
        np.uint16
    )
    shifts = 2 * np.arange(8, dtype=np.uint16)
    words = (places.reshape(16, 2, 8) << shifts).sum(-1).astype(np.uint16)
    d = np.zeros((16, 8), np.float32)
    classic("sparse")["sparse"][1, 32](
        kept.view(np.uint32), np.ascontiguousarray(b.T).view(np.uint32), words, d
    )
    mma = lw.instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    zero = np.zeros((16, 8), np.float32)
    assert same_bits(d, mma(kept, b, zero, metadata=places.reshape(16, 16).astype(np.uint8), arch="sm_80"))
    dense = np.zeros((16, 8, 4))
    np.put_along_axis(dense, places.astype(np.int64), kept.reshape(16, 8, 2).astype(np.float64), axis=-1)
    assert np.allclose(d, dense.reshape(16, 32) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)
