"""Softmax over rows: one block for each row, its elements in registers, two reductions over the block.

The largest element is subtracted first, so that no power overflows. A thread keeps its share of the row in
registers from the first pass to the last: memory is read once and written once.

    python examples/softmax.py
"""

from typing import Any

import numpy as np

import lanewise as lw

THREADS = 128
LOG2_E = 1.4426950408889634  # exp(x) is exp2(x · log2(e)), and the GPU has exp2


@lw.kernel(max_threads=THREADS)
def softmax(X: lw.Ptr[lw.f32], Y: lw.Ptr[lw.f32], N: lw.Constexpr) -> None:
    """Y = softmax(X) for rows of N elements, any number that registers can hold; the grid is the rows."""
    row = lw.block_idx.x * N
    thread = lw.thread_idx.x
    share = -(-N // THREADS)  # elements of a thread: thread, thread + 128, …
    values = [lw.f32(-np.inf) for _ in range(share)]
    for i in range(share):
        if thread + i * THREADS < N:
            values[i] = X[row + thread + i * THREADS]
    largest = lw.block_reduce(lw.max(*values, -np.inf), "max")
    powers = [lw.exp2((value - largest) * LOG2_E) for value in values]
    total = powers[0]
    for power in powers[1:]:
        total = total + power
    scale = 1.0 / lw.block_reduce(total, "sum")
    for i in range(share):
        if thread + i * THREADS < N:
            Y[row + thread + i * THREADS] = powers[i] * scale


def launch(x: Any, y: Any, **options: Any) -> None:
    """y = softmax(x) over rows: NumPy arrays on the CPU, CUDA ones on their GPU."""
    rows, columns = x.shape
    softmax[rows, THREADS](x, y, N=columns, **options)


def wanted(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same in double precision."""
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def main() -> None:
    """Rows of 300 elements, some of them large, against NumPy in double precision, and a check."""
    x = np.random.default_rng(0).normal(scale=20, size=(5, 300)).astype(np.float32)
    x[3] += 1e4
    y = np.zeros_like(x)
    report = lw.check(softmax[len(x), THREADS], x, y, N=300, arch="sm_90")
    error = np.abs(y - wanted(x)).max()
    assert report.ok and error < 1e-6, f"NOT right: {error}, {report}"
    print(f"softmax: largest error {error:.1e}, sums {y.sum(1).round(5).tolist()}; nothing found")


if __name__ == "__main__":
    main()
