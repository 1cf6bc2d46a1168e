"""Blackwell in the kernel language: tensor memory, products in it, cluster launch control; bit for bit."""

import numpy as np
import pytest

import lanewise as lw
import ptxas
from everything import sampled
from shared_tests.tensor_memory import PRODUCTS, every_block_once, product, there_and_back


def assemble(kernel: lw.Kernel) -> None:
    """Let ptxas take a kernel for sm_100a, where there is one."""
    if ptxas.find_ptxas() is None:
        pytest.skip("ptxas is not installed")
    assert ptxas.assemble(kernel.ptx("sm_100a"), "sm_100a") == []


def test_rows_are_stored_and_loaded() -> None:
    x = np.random.default_rng(5).normal(size=(128, 32)).astype(np.float32)
    halves, packed = np.zeros((128, 16), np.float32), np.zeros((128, 16), lw.bf16.dtype)
    there_and_back[1, 128](x, halves, packed, arch="sm_100a")
    assert np.array_equal(halves, x[:, 16:].astype(np.float16).astype(np.float32))
    assert np.array_equal(packed[:, 8:], x[:, 24:].astype(lw.bf16.dtype))
    assemble(there_and_back)


@sampled(4)
@pytest.mark.parametrize(("m", "n", "a", "d", "a_in_tensor_memory"), PRODUCTS)
def test_a_product_has_the_bits_of_its_instruction(
    m: int, n: int, a: str, d: str, a_in_tensor_memory: bool
) -> None:
    mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=m, n=n, a=a, b=a, d=d)
    kernel, rng = product(mma, a_in_tensor_memory), np.random.default_rng(m + n)
    left, right = (rng.normal(size=(rows, 64)).astype(mma.a.format.dtype) for rows in (m, n))
    sums = np.zeros((m, n), mma.d.format.dtype)
    kernel[1, 128](left, right, sums, arch="sm_100a")
    assert np.array_equal(sums, mma.gemm(left, right.T, arch="sm_100a"))
    assemble(kernel)


def test_work_that_was_taken_over_is_done_once() -> None:
    done = np.zeros(37, np.int32)
    every_block_once[37, 64](done, arch="sm_100a")
    assert np.array_equal(done, np.ones(37, np.int32))
    assemble(every_block_once)
