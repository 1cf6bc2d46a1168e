"""Rung 2: the WMMA API of the CUDA programming guide: a warp computes a 16×16 tile of C from global memory.

Fragments are loaded, multiplied and stored in the fewest words; who holds which element is nobody's concern.
"""

from functools import cache
from typing import Any

import parts

import lanewise as lw
from lanewise import wmma


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format) -> lw.Kernel:
    """The kernel for a format of A and B, and one of the sums, which C has as well."""

    @lw.kernel
    def with_wmma(
        A: lw.Ptr[dtype, 32], B: lw.Ptr[dtype, 32], C: lw.Ptr[dtype, 32], M: lw.i32, N: lw.i32, K: lw.i32
    ) -> None:  # fmt: skip
        row, col = lw.block_idx.y * 16, lw.block_idx.x * 16
        a = wmma.fragment(wmma.matrix_a, 16, 16, 16, dtype, wmma.row_major)
        b = wmma.fragment(wmma.matrix_b, 16, 16, 16, dtype, wmma.row_major)
        acc = wmma.fragment(wmma.accumulator, 16, 16, 16, accumulate)
        wmma.fill_fragment(acc, 0.0)
        for k in lw.range(0, K, 16):
            wmma.load_matrix_sync(a, A + row * K + k, K)
            wmma.load_matrix_sync(b, B + k * N + col, N)
            wmma.mma_sync(acc, a, b, acc)
        # C has the format of A and B, so the sums pass through shared memory to be rounded.
        sums = lw.shared(accumulate, (16, 16), align=32)
        wmma.store_matrix_sync(sums.ptr(0, 0), acc, 16, wmma.mem_row_major)
        lw.syncwarp()
        r, c = lw.lane_id() // 2, lw.lane_id() % 2 * 8
        values = sums.ptr(r, c).load(8)
        (C + (row + r) * N + col + c).store([value.to(dtype) for value in values])

    return with_wmma


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B for multiples of 16 × 16 × 16."""
    (m, k), n = a.shape, b.shape[1]
    if m % 16 or n % 16 or k % 16:
        raise ValueError(f"this rung takes multiples of 16 × 16 × 16, not {m} × {n} × {k}")
    return kernel(parts.format_of(a), accumulate)[(n // 16, m // 16), 32], (a, b, c, m, n, k), {}
