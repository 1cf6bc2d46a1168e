"""An int8 product with m16n8k32: four signed bytes a register, summed in 32-bit integers without error.

B is given transposed, as quantised weights usually are: N rows of K bytes. Four warps compute 64 × 32 of C.

    python examples/int8_gemm.py
"""

from typing import Any

import numpy as np

import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
BM, BN, BK = 64, 32, 64


@lw.kernel(max_threads=128)
def int8_gemm(
    A: lw.Ptr[lw.i8, 16], Bt: lw.Ptr[lw.i8, 16], C: lw.Ptr[lw.i32, 8], M: lw.i32, N: lw.i32, K: lw.i32
) -> None:  # fmt: skip
    """C = A · Btᵀ; K is a multiple of 16, M and N are anything."""
    tid, lane, warp = lw.thread_idx.x, lw.lane_id(), lw.thread_idx.x // 32
    row, col = lw.block_idx.y * BM, lw.block_idx.x * BN
    # Rows of 64 bytes: their four 16-byte pieces are XORed with half the row's number.
    As = lw.shared(lw.i8, (BM, BK), swizzle=lw.Swizzle(2, 4, 3))
    Bs = lw.shared(lw.i8, (BN, BK), swizzle=lw.Swizzle(2, 4, 3))
    acc = [mma.zeros() for _ in range(BN // 8)]
    for k in lw.range(0, K, BK):
        for array, source, first, limit in ((As, A, row, M), (Bs, Bt, col, N)):
            for number in range(array.shape[0] * BK // 16 // 128):
                r, c = (tid + number * 128) // 4, (tid + number * 128) % 4 * 16
                inside = (first + r < limit) & (k + c < K)
                lw.cp_async(
                    array.ptr(r, c), source + ((first + r) * K + k + c), 16, src_bytes=lw.where(inside, 16, 0)
                )
        lw.cp_async_wait()
        lw.syncthreads()
        for step in range(0, BK, 32):
            # ldmatrix moves pairs of bytes as it moves halves: four matrices are 16 rows of 32 bytes.
            a = lw.ldmatrix(As.ptr(warp * 16 + lane % 16, step + lane // 16 * 16))
            for n in range(0, BN, 16):
                b = lw.ldmatrix(Bs.ptr(n + lane // 16 * 8 + lane % 8, step + lane // 8 % 2 * 16)).registers
                acc[n // 8] = mma(a.registers, b[:2], acc[n // 8])
                acc[n // 8 + 1] = mma(a.registers, b[2:], acc[n // 8 + 1])
        lw.syncthreads()
    for n in range(BN // 8):
        for i in range(4):
            r, c = acc[n].element(i)
            r, c = row + warp * 16 + r, col + n * 8 + c
            if (r < M) & (c < N):
                C[r * N + c] = acc[n][i]


def launch(a: Any, bt: Any, c: Any, **options: Any) -> None:
    """C = A · Btᵀ of int8 matrices: NumPy ones on the CPU, CUDA ones on their GPU."""
    (m, k), n = a.shape, bt.shape[0]
    int8_gemm[(-(-n // BN), -(-m // BM)), 128](a, bt, c, m, n, k, **options)


def main() -> None:
    """100 × 50 × 80, against NumPy: integers have no rounding."""
    rng = np.random.default_rng(0)
    a, bt = (rng.integers(-128, 128, size).astype(np.int8) for size in ((100, 80), (50, 80)))
    c = np.zeros((100, 50), np.int32)
    launch(a, bt, c, arch="sm_80")
    assert np.array_equal(c, a.astype(np.int32) @ bt.T.astype(np.int32)), "NOT right"
    print("100 × 50 × 80 int8: equal to NumPy's product in int32")


if __name__ == "__main__":
    main()
