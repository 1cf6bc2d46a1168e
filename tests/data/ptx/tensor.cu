// WMMA, mma.sync with ldmatrix and cp.async, sparse mma: what matrix kernels are made of.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

__global__ void wmma_tile(const half* a, const half* b, float* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

__global__ void __launch_bounds__(32) hgemm(const half* a, const half* b, half* c, int m, int n, int k) {
  __shared__ __align__(16) half sa[16][16], sb[8][16];
  unsigned acc[2] = {0, 0}, ra[4], rb[2];
  int lane = threadIdx.x, row = blockIdx.y * 16, col = blockIdx.x * 8;
  for (int i = 0; i < k; i += 16) {
    unsigned to = __cvta_generic_to_shared(&sa[lane / 2][lane % 2 * 8]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(a + (row + lane / 2) * k + i + lane % 2 * 8));
    if (lane < 16) *(int4*)&sb[lane / 2][lane % 2 * 8] = *(const int4*)(b + (col + lane / 2) * k + i + lane % 2 * 8);
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    __syncthreads();
    ldmatrix_x4(ra, __cvta_generic_to_shared(&sa[lane % 16][lane / 16 * 8]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(rb[0]), "=r"(rb[1]) : "r"((unsigned)__cvta_generic_to_shared(&sb[lane % 8][lane / 8 % 2 * 8])));
    asm volatile("{ .reg .b32 %%t; mov.b32 %%t, %2;\n\t"
                 "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%%t, %3, %4, %5}, {%6, %7}, {%8, %9}; }\n"
                 : "=r"(acc[0]), "=r"(acc[1])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(acc[0]), "r"(acc[1]));
    __syncthreads();
  }
  *(unsigned*)(c + (row + lane / 4) * n + col + lane % 4 * 2) = acc[0];
  *(unsigned*)(c + (row + lane / 4 + 8) * n + col + lane % 4 * 2) = acc[1];
}

__global__ void sparse(const unsigned* a, const unsigned* b, const unsigned* e, float* d) {
  int t = threadIdx.x;
  float c[4] = {};
  asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, {%0,%1,%2,%3}, %8, 0x1;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[t]), "r"(a[t + 32]), "r"(b[t]), "r"(b[t + 32]), "r"(e[t]));
  for (int i = 0; i < 4; ++i) d[4 * t + i] = c[i];
}
