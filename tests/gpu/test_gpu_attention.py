"""`lw.attention` on a Hopper GPU: random shapes against f64, the same bits in every run, the CPU."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from linalg.attention_oracle import require_right

pytestmark = pytest.mark.gpu


def on_host(tensor: Any) -> Any:
    """A tensor as an array of f32 in host memory."""
    return tensor.float().cpu().numpy()


def drawn(torch: Any, rng: Any, most: float) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Random queries, keys and values, and options."""
    depth, dtype = int(rng.choice([64, 96, 128, 256])), rng.choice(["float16", "bfloat16"])
    batch, key_heads, group = (int(each) for each in rng.integers(1, 4, 3))
    queries, keys = (int(each) for each in most ** rng.random(2))
    keys = queries if rng.random() < 0.4 else keys
    if rng.random() < 0.3:  # few queries of many keys, which are divided among blocks
        queries, keys, batch = int(rng.integers(1, 20)), keys * 10, 1
    shapes = [(batch, key_heads * group, queries, depth)] + [(batch, key_heads, keys, depth)] * 2
    tensors = [torch.randn(each, device="cuda").to(getattr(torch, dtype)) for each in shapes]
    if rng.random() < 0.4:
        tensors = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in tensors]
    return *tensors, {"causal": bool(rng.random() < 0.5), "scale": [None, 0.1, 1.0][int(rng.integers(3))]}


def test_random_shapes_are_right_and_the_same_in_every_run(torch: Any) -> None:
    sequence = np.random.SeedSequence()
    print(sequence.entropy)
    rng = np.random.default_rng(sequence)
    for _ in range(60):
        q, k, v, options = drawn(torch, rng, 1500)
        print(q.shape, k.shape, q.dtype, options)
        out, lse = lw.attention(q, k, v, return_lse=True, **options)
        assert torch.equal(out, lw.attention(q, k, v, **options))
        rounded = on_host(out).astype(np.float16 if out.dtype == torch.float16 else ml_dtypes.bfloat16)
        require_right(rounded, lse.cpu().numpy(), *map(on_host, (q, k, v)), **options)


def test_the_cpu_has_the_same_bits(torch: Any) -> None:
    sequence = np.random.SeedSequence()
    print(sequence.entropy)
    rng = np.random.default_rng(sequence)
    for _ in range(12):
        q, k, v, options = drawn(torch, rng, 150)
        print(q.shape, k.shape, q.dtype, options)
        out, lse = lw.attention(q, k, v, return_lse=True, **options)
        other, logarithms = lw.attention(q.cpu(), k.cpu(), v.cpu(), return_lse=True, **options)
        assert torch.equal(out.cpu(), other) and torch.equal(lse.cpu(), logarithms)


def test_tensors_that_tma_cannot_load_and_an_out_that_it_cannot_store(torch: Any) -> None:
    q, k, v = (torch.randn(2, 3, 50, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    whole = lw.attention(q, k, v)
    odd = torch.zeros(2, 3, 50, 67, device="cuda", dtype=torch.bfloat16)[..., 1:65]
    odd.copy_(q)
    assert torch.equal(lw.attention(odd, k, v), whole)
    out = torch.zeros(2, 3, 64, 50, device="cuda", dtype=torch.bfloat16).mT
    assert lw.attention(q, k, v, out=out) is out and torch.equal(out, whole)
    graph: Any = torch.cuda.CUDAGraph()
    target = torch.zeros_like(q)
    with torch.cuda.graph(graph):
        lw.attention(q, k, v, out=target)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(target, whole)
