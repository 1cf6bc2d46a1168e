"""Products with 4-bit weights on a Hopper GPU: bit for bit those of the CPU."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.random_products import bits

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_random_products_have_the_bits_of_the_cpu(torch: Any, dtype: str) -> None:
    """Few rows beside large weights and many rows, tails, what is fused, rows that are copied first."""
    sequence = np.random.SeedSequence()
    print(sequence.entropy)
    rng = np.random.default_rng(sequence)
    largest = [(600, 900, 300), (8, 12000, 4000)] * 8
    sizes = [tuple(int(size) for size in each ** rng.random(3)) for each in largest]
    for m, k, n in [(8, 12000, 4096), (7, 14336, 8192), *sizes]:
        print(m, k, n)
        weights = lw.quantize(torch.randn(k, n, device="cuda").to(getattr(torch, dtype)))
        x = torch.randn(m, k, device="cuda").to(getattr(torch, dtype))
        given: dict[str, Any] = {"out_dtype": str(rng.choice(["f16", "bf16", "f32", "e4m3"]))}
        more: dict[str, Any] = {}
        if rng.random() < 0.5:
            more["bias"], given["activation"] = torch.randn(n, device="cuda"), "gelu"
        if rng.random() < 0.3:
            more["residual"] = torch.randn(m, n, device="cuda")
        expected = lw.matmul(x.cpu(), weights, **given, **{name: each.cpu() for name, each in more.items()})
        assert bits(lw.matmul(x, weights, **given, **more)) == bits(expected)


def test_weights_stay_where_they_are_and_many_rows_are_right(torch: Any) -> None:
    weights = lw.quantize(torch.randn(512, 384, device="cuda", dtype=torch.bfloat16))
    kept = weights.dequantize()
    assert kept.is_cuda and kept.shape == (512, 384)
    for m in (1, 64, 256, 257, 2000):
        x = torch.randn(m, 512, device="cuda", dtype=torch.bfloat16)
        exact = x.double() @ kept.double()
        assert (lw.matmul(x, weights).double() - exact).abs().max() <= exact.abs().max() * 2**-8
        assert torch.equal(lw.matmul(x, weights), lw.matmul(x, weights))


def test_repeated_calls_read_the_weights_and_rows_that_they_are_given(torch: Any) -> None:
    """Machine code makes a call after some of its kind, on other weights, rows and results."""
    layers = [lw.quantize(torch.randn(512, 384, device="cuda", dtype=torch.bfloat16)) for _ in range(2)]
    bias = torch.randn(384, device="cuda")
    for keywords in ({}, {"bias": bias}, {"out": torch.empty(5, 384, device="cuda", dtype=torch.bfloat16)}):
        for number in range(40):
            x, weights = torch.randn(5, 512, device="cuda", dtype=torch.bfloat16), layers[number % 2]
            product = lw.matmul(x, weights, **keywords)
            exact = x.double() @ weights.dequantize().double() + (bias.double() if "bias" in keywords else 0)
            assert (product.double() - exact).abs().max() <= exact.abs().max() * 2**-8
