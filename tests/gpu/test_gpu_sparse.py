"""Products with a 2:4 sparse B on a Hopper GPU: bit for bit those of the CPU, which are sums of wgmma.sp."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.random_products import bits

pytestmark = pytest.mark.gpu

TYPES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "s8": "int8"}


def numbers(torch: Any, shape: tuple[int, ...], name: str, seed: int) -> Any:
    """Return random numbers of a type on the GPU."""
    torch.manual_seed(seed)
    if name == "s8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    return torch.randn(shape, device="cuda").to(getattr(torch, TYPES[name]))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(300, 264, 528), (129, 135, 100), (1, 512, 1024)])
def test_the_bits_of_the_cpu(torch: Any, name: str, shape: tuple[int, int, int]) -> None:
    """Whole tiles and tails along M, N and K, also of rows that TMA cannot load; b on the GPU or the host."""
    m, n, k = shape
    a, b = numbers(torch, (m, k), name, 1), numbers(torch, (k, n), name, 2)
    on_gpu, on_host = lw.sparsify(b), lw.sparsify(b.cpu())
    expected = lw.matmul(a.cpu(), on_host)
    for sparse in (on_gpu, on_host, on_gpu):
        assert bits(lw.matmul(a, sparse)) == bits(expected)
    assert bits(lw.matmul(a.cpu(), on_gpu)) == bits(expected)


@pytest.mark.parametrize("result", ["f16", "bf16", "f32", "e4m3"])
def test_results_and_epilogues(torch: Any, result: str) -> None:
    """Results of all types, with a bias, an activation and a residual, and `out` of other strides."""
    a, b = numbers(torch, (200, 256), "bf16", 3), numbers(torch, (256, 136), "bf16", 4)
    sparse = lw.sparsify(b)
    bias, residual = torch.randn(136, device="cuda"), torch.randn(200, 136, device="cuda").half()
    given: dict[str, Any] = {"activation": "silu", "alpha": 0.5, "out_dtype": result}
    found = lw.matmul(a, sparse, bias=bias, residual=residual, **given)
    expected = lw.matmul(a.cpu(), sparse, bias=bias.cpu(), residual=residual.cpu(), **given)
    assert bits(found) == bits(expected)
    out = torch.empty_like(found.t().contiguous()).t()
    lw.matmul(a, sparse, bias=bias, residual=residual, activation="silu", alpha=0.5, out=out)
    assert bits(out.contiguous()) == bits(expected)


def test_operands_that_are_copied_or_not_contiguous(torch: Any) -> None:
    """A transposed a, one with steps, a batch, and a vector."""
    b = numbers(torch, (128, 72), "f16", 5)
    sparse = lw.sparsify(b)
    for a in (
        numbers(torch, (128, 40), "f16", 6).t(),
        numbers(torch, (40, 256), "f16", 7)[:, ::2],
        numbers(torch, (3, 5, 128), "f16", 8),
        numbers(torch, (5, 3, 128), "f16", 8).transpose(0, 1),
        numbers(torch, (128,), "f16", 9),
    ):
        assert bits(lw.matmul(a, sparse)) == bits(lw.matmul(a.cpu(), sparse))


def test_calls_of_one_kind_on_other_memory(torch: Any) -> None:
    """Other matrices of one shape, with and without keywords, on the GPU or in host memory at first."""
    bias = torch.randn(72, device="cuda")
    cases: list[dict[str, Any]] = [
        {}, {"bias": bias, "activation": "relu"}, {"alpha": 2.0}, {"alpha": 3.0}, {"scale_out": 0.5},
        {"out_dtype": torch.float32},
    ]  # fmt: skip
    for turn in range(16):  # machine code takes over on the way
        a, b = (numbers(torch, shape, "bf16", 20 + turn) for shape in ((40, 128), (128, 72)))
        sparse = lw.sparsify(b if turn % 3 else b.cpu())
        for given in cases:
            on_cpu = {name: each.cpu() if name == "bias" else each for name, each in given.items()}
            expected = bits(lw.matmul(a.cpu(), sparse, **on_cpu))
            assert bits(lw.matmul(a, sparse, **given)) == expected
            if "out_dtype" not in given:
                out = torch.empty(40, 72, dtype=a.dtype, device="cuda")
                assert lw.matmul(a, sparse, out=out, **given) is out and bits(out) == expected
    with pytest.raises(lw.LanewiseError, match="out overlaps a"):
        square = numbers(torch, (128, 128), "bf16", 40)
        lw.matmul(square, lw.sparsify(square), out=square)


def test_streams_and_graphs(torch: Any) -> None:
    """The same bits from a graph and on another stream."""
    a, sparse = numbers(torch, (256, 512), "bf16", 10), lw.sparsify(numbers(torch, (512, 384), "bf16", 11))
    expected = lw.matmul(a, sparse)
    for _ in range(16):  # machine code takes over on the way
        assert torch.equal(lw.matmul(a, sparse), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = lw.matmul(a, sparse)
    found.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    other = lw.matmul(a, sparse, stream=stream)
    stream.synchronize()
    assert torch.equal(other, expected)


def test_arrays_of_cupy() -> None:
    """Arrays of CuPy are pruned and multiplied on their GPU."""
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(13)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((70, 136), (136, 72)))
    expected = lw.matmul(a, lw.sparsify(b))
    for sparse in (lw.sparsify(cupy.asarray(b)), lw.sparsify(b)):
        assert cupy.asnumpy(lw.matmul(cupy.asarray(a), sparse)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", TYPES)
def test_pruning_on_the_gpu(torch: Any, name: str) -> None:
    """What is kept of a matrix on the GPU is what is kept of it in host memory: zeros and equals, too."""
    b = numbers(torch, (64, 40), name, 12)
    b[:16] = b[:1]
    b[20:23] = 0
    on_gpu, on_host = lw.sparsify(b.t().contiguous().t()), lw.sparsify(b.cpu())
    assert np.array_equal(on_gpu.values.view(np.uint8), on_host.values.view(np.uint8))
    assert np.array_equal(on_gpu.indices, on_host.indices)
