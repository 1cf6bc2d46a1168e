"""Whole products by TMA and tcgen05 in CUDA C++: a ring of stages, one block or a pair, in every schedule."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.isa.asynchronous.products import tcgen05_instruction
from nvrtc import need_nvrtc

ARCH = "sm_100a"
SOURCE = Path(__file__).parent / "kernels" / "tcgen05_tma.cu"


@pytest.mark.parametrize(("name", "blocks"), [("gemm", 1), ("gemm_of_pairs", 2)])
def test_a_gemm_has_the_bits_of_its_instruction(name: str, blocks: int) -> None:
    need_nvrtc()
    m, n, k = 256, 128, 320
    rng = np.random.default_rng(blocks)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    instruction = tcgen05_instruction(f"tcgen05.mma.cta_group::{blocks}.kind::f16", n=128, a="bf16", b="bf16")
    expected = instruction.gemm(a, np.ascontiguousarray(b.T), arch=ARCH)
    columns = 128 // blocks  # of B that a block holds
    maps = [lw.tensor_map(each, (rows, 64), swizzle="128B") for each, rows in ((a, 128), (b, columns))]
    launched = lw.cuda(SOURCE, arch=ARCH)[name][(m // 128, n // 128), 128, 3 * (128 + columns) * 128]
    for schedule in ("early", "late", 1):
        d = np.zeros((m, n), np.float32)
        launched(*maps, d, n, k, schedule=schedule)
        assert np.array_equal(d.view(np.uint32), expected.view(np.uint32)), schedule
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(d - exact).max() <= 1e-4
