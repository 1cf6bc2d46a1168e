"""Run a CUDA C++ kernel on the CPU: a half-precision product with ldmatrix and mma, bit for bit as on a GPU.

Needs NVRTC (`pip install "lanewise[cuda]"`), no GPU and no compiler.
"""

import time

import numpy as np

import lanewise as lw

HGEMM = r"""
#include <cuda_fp16.h>

// One warp for each 16x8 tile of C = A B. A is MxK by rows, B is KxN by columns.
extern "C" __global__ void hgemm(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ half a_tile[16][16], b_tile[8][16];
    const int row = blockIdx.y * 16, col = blockIdx.x * 8, lane = threadIdx.x, line = lane / 2, part = lane % 2 * 8;
    unsigned a[4], b[2], c[2] = {0, 0};
    for (int k = 0; k < K; k += 16) {
        *(int4*)&a_tile[line][part] = *(const int4*)&A[(row + line) * K + k + part];
        if (line < 8) *(int4*)&b_tile[line][part] = *(const int4*)&B[(col + line) * K + k + part];
        __syncthreads();
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
            : "r"((unsigned)__cvta_generic_to_shared(&a_tile[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
            : "=r"(b[0]), "=r"(b[1])
            : "r"((unsigned)__cvta_generic_to_shared(&b_tile[lane % 8][lane / 8 % 2 * 8])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        __syncthreads();
    }
    *(unsigned*)&C[(row + lane / 4) * N + col + lane % 4 * 2] = c[0];
    *(unsigned*)&C[(row + lane / 4 + 8) * N + col + lane % 4 * 2] = c[1];
}
"""  # noqa: E501  # CUDA C++ as it is written


def main() -> None:
    """Compile it, run it as an A100 and as an H100 would, and compare with the instruction on arrays."""
    m, n, k = 256, 256, 512
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    b_by_columns = np.ascontiguousarray(b.T)
    hgemm = lw.cuda(HGEMM, arch="sm_80")["hgemm"][(n // 8, m // 16), 32]
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    results = {}
    for arch in ("sm_80", "sm_90"):
        c = np.zeros((m, n), np.float16)
        hgemm(a, b_by_columns, c, m, n, k, arch=arch)  # compiled, on the first run
        start = time.perf_counter()
        hgemm(a, b_by_columns, c, m, n, k, arch=arch)
        rate = 2 * m * n * k / (time.perf_counter() - start) / 1e9
        same = c.tobytes() == mma.gemm(a, b, arch=arch).tobytes()
        print(f"{arch}: {rate:.1f} GFLOP/s; {'the bits of' if same else 'NOT the bits of'} {mma.text}")
        results[arch] = c
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for arch, c in results.items():
        print(f"{arch}: largest error {np.abs(c - exact).max():.4f}")
    print(f"elements in which they differ: {(results['sm_80'] != results['sm_90']).sum()} of {m * n}")


if __name__ == "__main__":
    main()
