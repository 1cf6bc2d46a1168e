"""RMSNorm, y = x / √(mean(x²) + ε) · weight, in bf16: one block for each row, one reduction over the block.

A row is loaded 16 bytes at a time and stays in registers, as f32, until it is scaled and stored.

    python examples/rms_norm.py
"""

from typing import Any

import numpy as np

import lanewise as lw

WIDTH = 8  # bf16 elements in 16 bytes
THREADS = 128


@lw.kernel(max_threads=THREADS)
def rms_norm(
    X: lw.Ptr[lw.bf16, 16], Weight: lw.Ptr[lw.bf16, 16], Y: lw.Ptr[lw.bf16, 16],
    epsilon: lw.f32, N: lw.Constexpr,
) -> None:  # fmt: skip
    """Rows of N elements, a multiple of 8 that registers can hold; the grid is the rows."""
    thread, groups = lw.thread_idx.x, N // WIDTH
    row = lw.block_idx.x * groups
    x, weight, y = lw.vectorized(X), lw.vectorized(Weight), lw.vectorized(Y)
    share = -(-groups // THREADS)  # groups of a thread: thread, thread + 128, …
    values = [[lw.f32(0.0) for _ in range(WIDTH)] for _ in range(share)]
    for i in range(share):
        if thread + i * THREADS < groups:
            values[i] = [value.to(lw.f32) for value in x[row + thread + i * THREADS]]
    squares = lw.f32(0.0)
    for group in values:
        for value in group:
            squares = lw.fma(value, value, squares)
    scale = lw.rsqrt(lw.block_reduce(squares) * (1.0 / N) + epsilon)
    for i in range(share):
        at = thread + i * THREADS
        if at < groups:
            y[row + at] = [
                (value * scale * factor.to(lw.f32)).to(lw.bf16)
                for value, factor in zip(values[i], weight[at], strict=True)
            ]


def launch(x: Any, weight: Any, y: Any, epsilon: float = 1e-6, **options: Any) -> None:
    """y = rms_norm(x) · weight over rows: NumPy arrays on the CPU, CUDA ones on their GPU."""
    rows, columns = x.shape
    rms_norm[rows, THREADS](x, weight, y, epsilon, N=columns, **options)


def wanted(
    x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], epsilon: float = 1e-6
) -> np.ndarray[Any, Any]:
    """The same in double precision."""
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt((x * x).mean(1, keepdims=True) + epsilon) * weight.astype(np.float64))


def main() -> None:
    """Rows of 1544 elements against NumPy in double precision, and a check of the kernel."""
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=size).astype(lw.bf16.dtype) for size in ((4, 1544), 1544))
    y = np.zeros_like(x)
    report = lw.check(rms_norm[len(x), THREADS], x, weight, y, 1e-6, N=1544, arch="sm_90")
    right = wanted(x, weight)
    error = (np.abs(y.astype(np.float64) - right) / np.maximum(np.abs(right), 1e-3)).max()
    assert report.ok and error < 2.0**-8, f"NOT right: {error}, {report}"
    print(f"RMSNorm: largest relative error {error:.1e}, and bf16 rounds by up to 3.9e-03; nothing found")


if __name__ == "__main__":
    main()
