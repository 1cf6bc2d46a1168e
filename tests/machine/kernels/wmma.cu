// D = A B + C of one warp and 16x16x16 through nvcuda::wmma, with any layouts and types of sums.
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;

template <class T, class S, class LayoutA, class LayoutB>
__device__ void product(const T* a, const T* b, const S* c, S* d, int lda, int ldb, int ldc, wmma::layout_t order) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, S> sums;
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(sums, c, ldc, order);
    wmma::mma_sync(sums, fa, fb, sums);
    wmma::store_matrix_sync(d, sums, ldc, order);
}

// Block i of 8: bit 0 the layout of A, bit 1 that of B, bit 2 that of C and D; row where 0, column where 1.
template <class T, class S>
__global__ void layouts(const T* a, const T* b, const S* c, S* d, int lda, int ldb, int ldc) {
    const int i = blockIdx.x;
    const wmma::layout_t order = i & 4 ? wmma::mem_col_major : wmma::mem_row_major;
    a += i * 16 * lda, b += i * 16 * ldb, c += i * 16 * ldc, d += i * 16 * ldc;
    switch (i & 3) {
        case 0: product<T, S, wmma::row_major, wmma::row_major>(a, b, c, d, lda, ldb, ldc, order); break;
        case 1: product<T, S, wmma::col_major, wmma::row_major>(a, b, c, d, lda, ldb, ldc, order); break;
        case 2: product<T, S, wmma::row_major, wmma::col_major>(a, b, c, d, lda, ldb, ldc, order); break;
        case 3: product<T, S, wmma::col_major, wmma::col_major>(a, b, c, d, lda, ldb, ldc, order); break;
    }
}

template __global__ void layouts(const half*, const half*, const half*, half*, int, int, int);
template __global__ void layouts(const half*, const half*, const float*, float*, int, int, int);
template __global__ void layouts(const __nv_bfloat16*, const __nv_bfloat16*, const float*, float*, int, int, int);

// The tile of C that a warp has, K in steps of 16; alpha and beta as cuBLAS has them, fragment by fragment.
extern "C" __global__ void gemm(const half* a, const half* b, float* c, int m, int n, int k, float alpha, float beta) {
    const int warp_m = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warp_n = blockIdx.y * blockDim.y + threadIdx.y;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums, old;
    wmma::fill_fragment(sums, 0.0f);
    const int row = warp_m * 16, col = warp_n * 16;
    if (row >= m || col >= n) return;
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(fa, a + row * k + i, k);
        wmma::load_matrix_sync(fb, b + i * n + col, n);
        wmma::mma_sync(sums, fa, fb, sums);
    }
    wmma::load_matrix_sync(old, c + row * n + col, n, wmma::mem_row_major);
    for (int i = 0; i < old.num_elements; i++) old.x[i] = __fmaf_rn(alpha, sums.x[i], __fmul_rn(beta, old.x[i]));
    wmma::store_matrix_sync(c + row * n + col, old, n, wmma::mem_row_major);
}
