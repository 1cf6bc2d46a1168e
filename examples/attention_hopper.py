"""Flash attention, forward, on Hopper: `lw.attention`, its kernel under the checker, and what one launch is.

A block of the kernel has one warp that loads by TMA, and two or three warpgroups of 64 queries that multiply
by wgmma. They walk over the keys from the last tile to the first. The tensor cores compute the scores of a
tile and add the values of the one before; while they finish the latter, the warpgroup computes exponentials
of the scores. The kernel is `src/lanewise/linalg/kernels/attention/`, in the order in which one reads it:
`kernel.py` (who does what), `consumer.py` (mainloop and epilogue), `softmax.py`, `tile_scheduler.py`.

    python examples/attention_hopper.py

benchmarks/attention.py measures it beside FlashAttention-2 and cuDNN.
"""

from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

import lanewise as lw
from lanewise.linalg.kernels.attention.kernel import launches_of
from lanewise.linalg.kernels.attention.plans import tile_of
from lanewise.linalg.kernels.attention.sizes import Operands, Sizes

#: Multiprocessors of a small GPU: its blocks have more than one tile of queries each.
MULTIPROCESSORS = 3


def prepare(q: Any, k: Any, v: Any, out: Any, causal: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments, for arrays of [heads, length, size] in bf16."""
    heads, length, depth = q.shape
    sizes = Sizes(1, heads, k.shape[0], length, k.shape[1], depth)
    tile = tile_of(sizes, causal, batch_invariant=True)  # one launch, whose blocks see all keys of a tile
    operands = Operands(q[None], k[None], v[None], out[None])
    (launch,) = launches_of(sizes, lw.bf16, causal, tile, operands, 1 / sqrt(depth), MULTIPROCESSORS)
    return launch.kernel, launch.arguments


def reference(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Return attention in f64."""
    q, k, v = (operand.astype(np.float64) for operand in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def main() -> None:
    """Compare with f64; look for mistakes in the causal kernel, which does all that the plain one does."""
    rng = np.random.default_rng(0)
    for depth, length, causal in ((64, 200, False), (128, 300, True)):
        q, k, v = (rng.normal(size=(2, length, depth)).astype(ml_dtypes.bfloat16) for _ in range(3))
        out = lw.attention(q, k, v, causal=causal, batch_invariant=True)
        if causal:
            checked = np.zeros_like(q)
            configured, arguments = prepare(q, k, v, checked, causal)
            report = lw.check(configured, *arguments)
            print("causal:", report.findings[0] if report.findings else "nothing found")
            assert not report.findings and (checked == out).all()
        error = np.abs(out.astype(np.float64) - reference(q, k, v, causal)).max()
        print(f"{'causal' if causal else 'plain'}: largest error {error:.4f}")
        assert error < 0.02


if __name__ == "__main__":
    main()
