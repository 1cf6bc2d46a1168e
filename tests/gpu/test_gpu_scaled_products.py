"""Products of 8-bit numbers with scales on a GPU: bit for bit what the CPU gives for the same plan."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from lanewise.linalg.plan import Plan

pytestmark = pytest.mark.gpu
torch = torch_here("wgmma needs sm_90a", lambda capability: capability[0] == 9)


def plan(tile: tuple[int, int], cluster: tuple[int, int] = (1, 1), **given: Any) -> Plan:
    """Return a plan of the Hopper kernels for 8-bit operands."""
    return Plan("warpgroup", "sm_90a", (*tile, 128), **{"stages": 4, **given}, cluster=cluster)


def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return e4m3 matrices in host memory, both contiguous along K."""
    torch.manual_seed(m + n + k)
    return torch.randn(m, k).to(torch.float8_e4m3fn), torch.randn(n, k).to(torch.float8_e4m3fn).t()


def scales(form: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return random scales of a form, the blocks' with strides of their own."""
    blocks = -(-k // 128)
    shapes = {
        "tensor": ((1,), (1,)),
        "rows": ((m, 1), (1, n)),
        "blocks": ((m, blocks), (blocks, -(-n // 128))),
    }
    if form == "blocks along M":  # as TMA would want them: neighbours along M are neighbours in memory
        return (torch.rand(blocks, m) + 0.5).t(), torch.rand(blocks, -(-n // 128)) + 0.5
    of_a, of_b = shapes[form]
    return torch.rand(of_a) + 0.5, torch.rand(of_b) + 0.5


def on_gpu(tensor: Any) -> Any:
    """Return a tensor on the GPU with the strides that it has."""
    there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    return there.copy_(tensor)


@pytest.mark.parametrize(
    ("form", "chosen"),
    [
        ("blocks", plan((128, 128), (2, 1))),
        ("blocks", plan((128, 128), (2, 1), schedule="by turns")),
        ("blocks along M", plan((192, 128), (1, 2), stages=3)),
        ("blocks", plan((64, 64), swap=True)),
        ("rows", plan((128, 128), (2, 1), schedule="pingpong")),
        ("rows", plan((64, 64), split=2)),
        ("rows", plan((64, 48), swap=True)),
        ("tensor", plan((128, 96))),
    ],
    ids=lambda each: each if isinstance(each, str) else f"{each.tile} {each.schedule}",
)
def test_scales_have_the_bits_of_the_cpu(form: str, chosen: Plan) -> None:
    """There are tails of rows, columns and K, and with small tiles several of them for each thread block."""
    m, n, k = (40, 400, 1040) if chosen.swap else (1030, 1400, 784)
    a, b = operands(m, n, k)
    scale_a, scale_b = scales(form, m, n, k)
    wanted = lw.matmul(a, b, scale_a=scale_a, scale_b=scale_b, plan=chosen)
    found = lw.matmul(a.cuda(), on_gpu(b), scale_a=on_gpu(scale_a), scale_b=on_gpu(scale_b), plan=chosen)
    assert np.array_equal(found.cpu().view(torch.int16).numpy(), wanted.view(torch.int16).numpy())
