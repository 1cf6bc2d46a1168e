"""A bf16 product with three stages of shared memory: while one tile is multiplied, two more are on their way.

Four warps compute 64 × 64 of C, 32 × 32 each. cp.async brings the tiles of A and B for a later step into the
stage that was multiplied last; a group of copies is committed for each step, and waited for two steps later.

    python examples/pipelined_gemm.py
"""

from typing import Any

import numpy as np

import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
BM, BN, BK = 64, 64, 32
STAGES, THREADS = 3, 128


def fetch(source: Any, stride: Any, target: Any, first: Any, limit: Any) -> None:
    """Start the copies of a tile from (row, column) `first` on; what lies beyond `limit` becomes zero."""
    rows, columns = target.shape
    across = columns // 8  # pieces of 16 bytes in a row
    for number in range(rows * across // THREADS):
        piece = lw.thread_idx.x + number * THREADS
        row, col = piece // across, piece % across * 8
        inside = (first[0] + row < limit[0]) & (first[1] + col < limit[1])
        address = source + ((first[0] + row) * stride + first[1] + col)
        lw.cp_async(target.ptr(row, col), address, 16, src_bytes=lw.where(inside, 16, 0))


@lw.kernel(max_threads=THREADS)
def pipelined_gemm(
    A: lw.Ptr[lw.bf16, 16], B: lw.Ptr[lw.bf16, 16], C: lw.Ptr[lw.f32, 8], M: lw.i32, N: lw.i32, K: lw.i32
) -> None:  # fmt: skip
    """C = A · B; N and K are multiples of 8, M is anything."""
    lane, warp = lw.lane_id(), lw.thread_idx.x // 32
    row, col = lw.block_idx.y * BM, lw.block_idx.x * BN
    # Rows of A have 64 bytes, of B 128: swizzles put eight rows of an 8×8 matrix into eight bank groups.
    As = [lw.shared(lw.bf16, (BM, BK), swizzle=lw.Swizzle(2, 3, 3)) for _ in range(STAGES)]
    Bs = [lw.shared(lw.bf16, (BK, BN), swizzle=lw.Swizzle(3, 3, 3)) for _ in range(STAGES)]

    def start(step: Any, stage: int) -> None:
        fetch(A, K, As[stage], (row, step * BK), (M, K))
        fetch(B, N, Bs[stage], (step * BK, col), (K, N))
        lw.cp_async_commit()

    for stage in range(STAGES - 1):
        start(stage, stage)
    acc = [[mma.zeros() for _ in range(4)] for _ in range(2)]  # 2 × 4 tiles of 16 × 8
    m, n = warp // 2 * 32, warp % 2 * 32
    steps = lw.cdiv(K, BK)
    for first in lw.range(0, steps, STAGES):
        for stage in range(STAGES):  # unrolled: which stage is which is known while tracing
            lw.cp_async_wait(STAGES - 2)  # the copies of this step are done; the next step's may be under way
            lw.syncthreads()  # of all threads; and everybody is done with the stage before this one
            start(first + stage + STAGES - 1, (stage + STAGES - 1) % STAGES)
            for k in range(0, BK, 16):
                a = [lw.ldmatrix(As[stage].ptr(m + i + lane % 16, k + lane // 16 * 8)) for i in (0, 16)]
                for j in range(0, 32, 16):
                    at = Bs[stage].ptr(k + lane % 16, n + j + lane // 16 * 8)
                    b = lw.ldmatrix(at, trans=True).registers
                    for i in range(2):
                        acc[i][j // 8] = mma(a[i].registers, b[:2], acc[i][j // 8])
                        acc[i][j // 8 + 1] = mma(a[i].registers, b[2:], acc[i][j // 8 + 1])
    lw.cp_async_wait(0)
    for i in range(2):
        for j in range(4):
            for value in (0, 2):  # and its neighbour in the row
                r, c = acc[i][j].element(value)
                r, c = row + m + i * 16 + r, col + n + j * 8 + c
                if (r < M) & (c < N):
                    (C + (r * N + c)).store(acc[i][j][value : value + 2])


def configured(m: int, n: int) -> Any:
    """The kernel with a grid for an m × n product."""
    return pipelined_gemm[(-(-n // BN), -(-m // BM)), THREADS]


def launch(a: Any, b: Any, c: Any, **options: Any) -> None:
    """C = A · B of bf16 matrices: NumPy ones on the CPU, CUDA ones on their GPU."""
    (m, k), n = a.shape, b.shape[1]
    configured(m, n)(a, b, c, m, n, k, **options)


def main() -> None:
    """100 × 72 × 200, bit for bit as the instruction adds up, and a check of the kernel."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=size).astype(lw.bf16.dtype) for size in ((100, 200), (200, 72)))
    c = np.zeros((100, 72), np.float32)
    report = lw.check(configured(100, 72), a, b, c, 100, 72, 200, arch="sm_90")
    assert np.array_equal(c, mma.gemm(a, b, arch="sm_90")), "NOT right"
    assert report.ok, f"NOT without findings: {report}"
    print("100 × 72 × 200 bf16, three stages: equal to mma.gemm; nothing found")


if __name__ == "__main__":
    main()
