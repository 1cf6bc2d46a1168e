"""A block-scaled int8 product: groups of 64 along K have a scale of their own in every row of A and of Bᵀ.

Quantised weights and activations are stored so: C[m, n] = Σ over groups g of sA[m, g] · sB[n, g] · Σ a · b.
The inner sum is exact, in 32-bit integers on the Tensor Cores; the outer one is in f32. Four warps compute
64 × 32 of C; a step of the loop is one group.

    python examples/block_scaled_gemm.py
"""

from typing import Any

import numpy as np

import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
BM, BN, GROUP = 64, 32, 64
THREADS = 128


@lw.kernel(max_threads=THREADS)
def block_scaled_gemm(
    A: lw.Ptr[lw.i8, 16], Bt: lw.Ptr[lw.i8, 16], ScaleA: lw.Ptr[lw.f32], ScaleB: lw.Ptr[lw.f32],
    C: lw.Ptr[lw.f32], M: lw.i32, N: lw.i32, K: lw.i32,
) -> None:  # fmt: skip
    """C = A · Btᵀ with scales of shape (M, K / 64) and (N, K / 64); K is a multiple of 64."""
    tid, lane, warp = lw.thread_idx.x, lw.lane_id(), lw.thread_idx.x // 32
    row, col = lw.block_idx.y * BM, lw.block_idx.x * BN
    groups = K // GROUP
    # Rows of 64 bytes: their four 16-byte pieces are XORed with half the row's number.
    As = lw.shared(lw.i8, (BM, GROUP), swizzle=lw.Swizzle(2, 4, 3))
    Bs = lw.shared(lw.i8, (BN, GROUP), swizzle=lw.Swizzle(2, 4, 3))
    total = [[lw.f32(0.0) for _ in range(4)] for _ in range(BN // 8)]
    places = [mma.zeros().element(i) for i in range(4)]  # of this lane's four sums in a 16×8 tile
    rows = [row + warp * 16 + places[i][0] for i in (0, 2)]
    columns = [col + places[i][1] for i in (0, 1)]
    for g in lw.range(groups):
        for array, source, first, limit in ((As, A, row, M), (Bs, Bt, col, N)):
            for number in range(array.shape[0] * GROUP // 16 // THREADS):
                r, c = (tid + number * THREADS) // 4, (tid + number * THREADS) % 4 * 16
                size = lw.where(first + r < limit, 16, 0)  # rows beyond the matrix are zeros
                lw.cp_async(array.ptr(r, c), source + ((first + r) * K + g * GROUP + c), 16, src_bytes=size)
        lw.cp_async_wait()
        lw.syncthreads()
        acc = [mma.zeros() for _ in range(BN // 8)]  # exact sums of this group
        for step in range(0, GROUP, 32):
            a = lw.ldmatrix(As.ptr(warp * 16 + lane % 16, step + lane // 16 * 16)).registers
            for n in range(0, BN, 16):
                b = lw.ldmatrix(Bs.ptr(n + lane // 16 * 8 + lane % 8, step + lane // 8 % 2 * 16)).registers
                acc[n // 8] = mma(a, b[:2], acc[n // 8])
                acc[n // 8 + 1] = mma(a, b[2:], acc[n // 8 + 1])
        # A lane's four sums of a tile lie in two rows and two columns: it needs two scales of each.
        scale_a = [ScaleA[lw.min(r, M - 1) * groups + g] for r in rows]
        for n in range(BN // 8):
            scale_b = [ScaleB[lw.min(c + n * 8, N - 1) * groups + g] for c in columns]
            for i in range(4):
                scale = scale_a[i // 2] * scale_b[i % 2]
                total[n][i] = lw.fma(acc[n][i].to(lw.f32), scale, total[n][i])
        lw.syncthreads()  # all have read the tiles, and the next step writes them again
    for n in range(BN // 8):
        for i in range(4):
            r, c = rows[i // 2], columns[i % 2] + n * 8
            if (r < M) & (c < N):
                C[r * N + c] = total[n][i]


def configured(m: int, n: int) -> Any:
    """The kernel with a grid for an m × n product."""
    return block_scaled_gemm[(-(-n // BN), -(-m // BM)), THREADS]


def launch(a: Any, bt: Any, scale_a: Any, scale_b: Any, c: Any, **options: Any) -> None:
    """C = A · Btᵀ with scales: NumPy arrays on the CPU, CUDA ones on their GPU."""
    (m, k), n = a.shape, bt.shape[0]
    configured(m, n)(a, bt, scale_a, scale_b, c, m, n, k, **options)


def quantized(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A matrix as bytes and scales: in each group of 64 the largest magnitude becomes 127."""
    groups = x.reshape(len(x), -1, GROUP)
    scales = np.abs(groups).max(2).astype(np.float32) / 127
    return np.rint(groups / scales[..., None]).astype(np.int8).reshape(x.shape), scales


def wanted(
    a: np.ndarray[Any, Any], bt: np.ndarray[Any, Any], scale_a: Any, scale_b: Any
) -> np.ndarray[Any, Any]:
    """The same in double precision."""
    left, right = (
        (x.reshape(len(x), -1, GROUP) * s[..., None].astype(np.float64)).reshape(x.shape)
        for x, s in ((a, scale_a), (bt, scale_b))
    )
    return np.asarray(left @ right.T)


def main() -> None:
    """100 × 50 × 192 against NumPy in double precision, and a check of the kernel."""
    rng = np.random.default_rng(0)
    (a, scale_a), (bt, scale_b) = (quantized(rng.normal(size=size)) for size in ((100, 192), (50, 192)))
    c = np.zeros((100, 50), np.float32)
    report = lw.check(configured(100, 50), a, bt, scale_a, scale_b, c, 100, 50, 192, arch="sm_90")
    error = np.abs(c - wanted(a, bt, scale_a, scale_b)).max() / np.abs(c).max()
    assert report.ok and error < 1e-6, f"NOT right: {error}, {report}"
    print(
        f"100 × 50 × 192 int8 in groups of {GROUP}: largest error {error:.1e} of the largest; nothing found"
    )


if __name__ == "__main__":
    main()
