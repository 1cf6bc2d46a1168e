"""A GEMM by TMA and tcgen05, of one block and of pairs, on a B200 and on the CPU machine: the same bits."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from gpu.forms import arch

SOURCE = Path(__file__).parents[1] / "machine" / "kernels" / "tcgen05_tma.cu"


@pytest.mark.skipif(arch() not in ("sm_100a", "sm_103a"), reason="tcgen05 is of sm_100a")
@pytest.mark.parametrize(("name", "blocks"), [("gemm", 1), ("gemm_of_pairs", 2)])
def test_a_gemm_is_the_same_on_both(name: str, blocks: int) -> None:
    import torch

    m, n, k = 512, 256, 640
    rng = np.random.default_rng(blocks)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    columns = 128 // blocks
    launched = lw.cuda(SOURCE, arch=arch())[name][(m // 128, n // 128), 128, 3 * (128 + columns) * 128]

    def maps(first: Any, second: Any) -> list[Any]:
        pairs = ((first, 128), (second, columns))
        return [lw.tensor_map(each, (rows, 64), swizzle="128B", dtype="bf16") for each, rows in pairs]

    here, there = np.zeros((m, n), np.float32), torch.zeros((m, n), dtype=torch.float32, device="cuda")
    launched(*maps(a, b), here, n, k)
    on_device = [torch.from_numpy(each.view(np.int16)).cuda().view(torch.bfloat16) for each in (a, b)]
    launched(*maps(*on_device), there, n, k)
    assert np.array_equal(here.view(np.uint32), there.cpu().numpy().view(np.uint32))
