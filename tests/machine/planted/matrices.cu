// arch: sm_80
// Matrix instructions: rows, pointers and strides.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
#define LDMATRIX_X4(r, p) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)))
#define FRAGMENTS                                                        \
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;   \
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
#define FINISH                     \
  float sum = 0;                   \
  for (int k = 0; k < a.num_elements; ++k) sum += float(a.x[k]); \
  y[threadIdx.x] = sum;

// Rows of 40 bytes, which no row of ldmatrix may have.
// [1, 32] arange:f16:640 zeros:u32:32
__global__ void ldmatrix_with_rows_of_40_bytes(const half* x, unsigned* y) {
  __shared__ __align__(16) half tile[16 * 24];
  int i = threadIdx.x;
  for (int k = i; k < 16 * 24; k += 32) tile[k] = x[k];
  __syncthreads();
  unsigned r[4];
  LDMATRIX_X4(r, tile + 20 * (i % 16) + 8 * (i / 16));                            // bug <- misaligned
  LDMATRIX_X4(r, tile + 24 * (i % 16) + 8 * (i / 16));                            // fix
  y[i] = r[0] + r[1] + r[2] + r[3];
}

// Rows that reach beyond the tile.
// [1, 32] arange:f16:256 zeros:u32:32
__global__ void ldmatrix_past_the_tile(const half* x, unsigned* y) {
  __shared__ __align__(16) half tile[16 * 16];
  int i = threadIdx.x;
  for (int k = i; k < 256; k += 32) tile[k] = x[k];
  __syncthreads();
  unsigned r[4];
  LDMATRIX_X4(r, tile + 24 * (i % 16) + 8 * (i / 16));  // bug <- out of bounds
  LDMATRIX_X4(r, tile + 16 * (i % 16) + 8 * (i / 16));  // fix
  y[i] = r[0] + r[1] + r[2] + r[3];
}

// A tile of which the last rows were not filled.
// [1, 32] arange:f16:256 zeros:u32:32
__global__ void ldmatrix_of_rows_nobody_filled(const half* x, unsigned* y) {
  __shared__ __align__(16) half tile[16 * 16];
  int i = threadIdx.x;
  for (int k = i; k < 240; k += 32) tile[k] = x[k];  // bug
  for (int k = i; k < 256; k += 32) tile[k] = x[k];  // fix
  __syncthreads();
  unsigned r[4];
  LDMATRIX_X4(r, tile + 16 * (i % 16) + 8 * (i / 16));  // <- uninitialised
  y[i] = r[0] + r[1] + r[2] + r[3];
}

// A tile that another warp has not finished.
// [1, 64] arange:f16:256 zeros:u32:64
__global__ void ldmatrix_before_the_barrier(const half* x, unsigned* y) {
  __shared__ __align__(16) half tile[16 * 16];
  int i = threadIdx.x, lane = i % 32;
  for (int k = i; k < 256; k += 64) tile[k] = x[k];
  __syncthreads();  // fix
  unsigned r[4];
  LDMATRIX_X4(r, tile + 16 * (lane % 16) + 8 * (lane / 16));  // <- race
  y[i] = r[0] + r[1] + r[2] + r[3];
}

// A tile that begins on a multiple of 16 bytes, not of 32.
// [1, 32] arange:f16:512 zeros:f32:32
__global__ void wmma_pointer_of_16_bytes(const half* x, float* y) {
  FRAGMENTS
  wmma::load_matrix_sync(a, x + 8, 16);   // bug <- wmma
  wmma::load_matrix_sync(a, x + 16, 16);  // fix
  FINISH
}

// Rows whose distance is no multiple of 8 elements.
// [1, 32] arange:f16:512 zeros:f32:32
__global__ void wmma_ldm_of_20(const half* x, float* y) {
  FRAGMENTS
  wmma::load_matrix_sync(a, x, 20);  // bug <- wmma
  wmma::load_matrix_sync(a, x, 24);  // fix
  FINISH
}

// Lanes that do not agree on the distance of rows.
// [1, 32] arange:f16:512 zeros:f32:32
__global__ void wmma_ldm_that_differs(const half* x, float* y) {
  FRAGMENTS
  wmma::load_matrix_sync(a, x, threadIdx.x < 8 ? 16 : 24);  // bug <- wmma
  wmma::load_matrix_sync(a, x, 24);                        // fix
  FINISH
}

// Lanes that do not agree on the tile.
// [1, 32] arange:f16:1024 zeros:f32:32
__global__ void wmma_pointer_that_differs(const half* x, float* y) {
  FRAGMENTS
  wmma::load_matrix_sync(a, x + threadIdx.x / 16 * 256, 16);  // bug <- wmma
  wmma::load_matrix_sync(a, x + 256, 16);                     // fix
  FINISH
}

// A result that does not fit into the matrix.
// [1, 32] zeros:f32:15x16
__global__ void wmma_store_past_the_end(float* y) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 1.0f);
  wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);          // bug <- out of bounds
  if (c.num_elements == 0) wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);  // fix
}

// Two warps leave their results in one tile.
// [1, 64] zeros:f32:512
__global__ void wmma_store_of_two_warps(float* y) {
  int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, float(warp));
  wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);               // bug <- race
  wmma::store_matrix_sync(y + 256 * warp, c, 16, wmma::mem_row_major);  // fix
}
