"""The five example kernels on a GPU: right against torch in double precision, and for products bit by bit."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu.device import torch_here

pytestmark = pytest.mark.gpu
torch = torch_here()

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def random(*size: int, dtype: Any) -> Any:
    torch.manual_seed(0)
    return torch.randn(*size, device="cuda").to(dtype)


def test_bias_gelu() -> None:
    for rows, columns in ((64, 4096), (3, 8), (5, 1304)):
        x, bias = random(rows, columns, dtype=torch.float16), random(columns, dtype=torch.float16)
        y = torch.full_like(x, float("nan"))
        example("bias_gelu").launch(x, bias, y)
        right = torch.nn.functional.gelu(x.double() + bias.double(), approximate="tanh")
        assert (y.double() - right).abs().max() < 4e-3


def test_softmax() -> None:
    for rows, columns in ((256, 1000), (1, 1), (7, 4096)):
        x = random(rows, columns, dtype=torch.float32) * 20
        y = torch.full_like(x, float("nan"))
        example("softmax").launch(x, y)
        assert (y.double() - torch.softmax(x.double(), 1)).abs().max() < 1e-6


def test_rms_norm() -> None:
    for rows, columns in ((256, 4096), (1, 8), (7, 1544)):
        x, weight = random(rows, columns, dtype=torch.bfloat16), random(columns, dtype=torch.bfloat16)
        y = torch.full_like(x, float("nan"))
        example("rms_norm").launch(x, weight, y)
        scale = torch.rsqrt((x.double() ** 2).mean(1, keepdim=True) + 1e-6)
        right = x.double() * scale * weight.double()
        assert ((y.double() - right).abs() / right.abs().clamp(min=1e-3)).max() < 2.0**-8


def test_pipelined_gemm() -> None:
    module = example("pipelined_gemm")
    for m, n, k in ((512, 512, 1024), (100, 72, 200), (1, 8, 8)):
        a, b = random(m, k, dtype=torch.bfloat16), random(k, n, dtype=torch.bfloat16)
        c = torch.full((m, n), float("nan"), device="cuda")
        module.launch(a, b, c)
        right = a.double() @ b.double()
        assert (c.double() - right).abs().max() < 1e-3 * right.abs().max() + 1e-6
    host = [x.cpu().view(torch.int16).numpy().view(module.lw.bf16.dtype) for x in (a, b)]
    again = np.zeros((1, 8), np.float32)
    module.launch(*host, again, arch="sm_90")
    if torch.cuda.get_device_capability() == (9, 0):
        assert np.array_equal(again, c.cpu().numpy())


def test_block_scaled_gemm() -> None:
    module = example("block_scaled_gemm")
    rng = np.random.default_rng(0)
    for m, n, k in ((512, 256, 1024), (100, 50, 192), (1, 1, 64)):
        arrays = [each for size in ((m, k), (n, k)) for each in module.quantized(rng.normal(size=size))]
        a, scale_a, bt, scale_b = (torch.from_numpy(each).cuda() for each in arrays)
        c = torch.full((m, n), float("nan"), device="cuda")
        module.launch(a, bt, scale_a, scale_b, c)
        right = module.wanted(arrays[0], arrays[2], arrays[1], arrays[3])
        assert np.abs(c.cpu().numpy() - right).max() < 1e-5 * np.abs(right).max()
