"""Blackwell in the kernel language on a GPU: tensor memory as the CPU machine has it, held against a B200."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from shared_tests.tensor_memory import PRODUCTS, every_block_once, product, there_and_back

pytestmark = pytest.mark.gpu
torch = torch_here("tensor memory needs sm_100a", lambda capability: capability[0] == 10)


def on_both(kernel: lw.Kernel, grid: int, block: int, *arrays: Any) -> None:
    """Launch a kernel on the CPU machine and on the GPU, and compare all bytes of its arrays."""
    there = [torch.from_numpy(each.view(np.uint8).copy()).cuda() for each in arrays]
    kernel[grid, block](*arrays, arch="sm_100a")
    kernel[grid, block](*(each.data_ptr() for each in there))
    torch.cuda.synchronize()
    for here, copy in zip(arrays, there, strict=True):
        assert np.array_equal(here.view(np.uint8), copy.cpu().numpy())


def test_rows_are_stored_and_loaded() -> None:
    x = np.random.default_rng(5).normal(size=(128, 32)).astype(np.float32)
    on_both(there_and_back, 1, 128, x, np.zeros((128, 16), np.float32), np.zeros((128, 16), lw.bf16.dtype))


@pytest.mark.parametrize(("m", "n", "a", "d", "a_in_tensor_memory"), PRODUCTS)
def test_a_product_has_the_machine_s_bits(m: int, n: int, a: str, d: str, a_in_tensor_memory: bool) -> None:
    mma = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=m, n=n, a=a, b=a, d=d)
    rng = np.random.default_rng(m + n)
    left, right = (rng.normal(size=(rows, 64)).astype(mma.a.format.dtype) for rows in (m, n))
    on_both(product(mma, a_in_tensor_memory), 1, 128, left, right, np.zeros((m, n), mma.d.format.dtype))


def test_work_that_was_taken_over_is_done_once() -> None:
    on_both(every_block_once, 37, 64, np.zeros(37, np.int32))
