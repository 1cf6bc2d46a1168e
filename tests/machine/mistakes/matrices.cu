// ldmatrix and wmma: order, overlap, addresses, leading dimensions.
#include <cuda_fp16.h>
#include <mma.h>
#define T threadIdx.x
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
#define LDMATRIX(v, p) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(SHARED(p)) : "memory")
using namespace nvcuda;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

//@ matrix accesses | advice race/uninitialised | 1, 32 | f16[64], u32[32]=0 | a tile of halves stored by lanes, taken by ldmatrix with no __syncwarp
extern "C" __global__ void ldmatrix_no_syncwarp(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    s[T] = x[T];  //!
    s[T + 32] = x[T + 32];  //!
    __syncwarp();  //+
    unsigned v;
    LDMATRIX(v, s + T % 8 * 8);  //!
    y[T] = v;
}

//@ matrix accesses | race/uninitialised | 1, 64 | f16[128], u32[64]=0 | each warp takes the tile that the other one stores
extern "C" __global__ void ldmatrix_of_other_warp(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[2][64];
    int w = T / 32, lane = T % 32;
    reinterpret_cast<__half2*>(s[w])[lane] = reinterpret_cast<const __half2*>(x)[T];  //!
    __syncwarp();  //-
    __syncthreads();  //+
    unsigned v;
    LDMATRIX(v, s[1 - w] + lane % 8 * 8);  //!
    y[T] = v;
}

//@ matrix accesses | race | 1, 64 | f16[512], u32[64]=0 | the next tile is stored while the other warp still takes this one
extern "C" __global__ void ldmatrix_then_refill(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[128];
    unsigned sum = 0;
    for (int i = 0; i < 4; i++) {
        reinterpret_cast<__half2*>(s)[T] = reinterpret_cast<const __half2*>(x)[i * 64 + T];  //!
        __syncthreads();
        unsigned v;
        LDMATRIX(v, s + T % 16 * 8);  //!
        sum += v;
        __syncthreads();  //+
    }
    y[T] = sum;
}

//@ matrix accesses | out of bounds | 1, 32 | f16[128], u32[32]=0 | x1 takes eight rows; lane numbers beyond 8 address other memory in x4
extern "C" __global__ void ldmatrix_x4_of_small_tile(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[128];
    for (int i = T; i < 128; i += 32) s[i] = x[i];
    __syncwarp();
    unsigned a, b, c, d;
    const __half* row = s + T * 8;  //-
    const __half* row = s + T % 16 * 8;  //+
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"  //!
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(SHARED(row)) : "memory");  //!
    y[T] = a + b + c + d;
}

//@ matrix accesses | advice race | 1, 32 | f16[256], u32[32]=0 | ldmatrix converges the warp; it orders no other memory
extern "C" __global__ void ldmatrix_as_barrier(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    __shared__ unsigned words[32];
    reinterpret_cast<__half2*>(s)[T] = reinterpret_cast<const __half2*>(x)[T];
    __syncwarp();
    words[T] = T * 3;  //!
    unsigned v;
    LDMATRIX(v, s + T % 8 * 8);
    __syncwarp();  //+
    y[T] = v + words[31 - T];  //!
}

//@ matrix accesses | advice race/uninitialised | 1, 32 | f16[256], f16[256], f32[256]=0 | wmma loads a tile that the lanes have just stored
extern "C" __global__ void wmma_load_no_sync(const __half* a, const __half* b, float* c) {
    __shared__ __align__(32) __half s[256];
    for (int i = T; i < 256; i += 32) s[i] = a[i];  //!
    __syncwarp();  //+
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, s, 16);  //!
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

//@ matrix accesses | advice race | 1, 32 | f16[256], f16[256], f32[256]=0 | the lanes read a tile that wmma has stored, with no __syncwarp
extern "C" __global__ void wmma_store_then_read(const __half* a, const __half* b, float* c) {
    __shared__ __align__(32) float s[256];
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(s, fc, 16, wmma::mem_row_major);  //!
    __syncwarp();  //+
    for (int i = T; i < 256; i += 32) c[i] = s[i] * 2;  //!
}

//@ matrix accesses | race | 1, 64 | f16[256], f16[256], f32[512]=0 | two warps store their tiles to one place
extern "C" __global__ void wmma_store_overlap(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, T / 32 * 1.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //-!
    wmma::store_matrix_sync(c + T / 32 * 256, fc, 16, wmma::mem_row_major);  //+
}

//@ matrix accesses | race | 1, 32 | f16[256], f16[256], f32[512]=0 | a leading dimension of 8 for rows of 16: the rows overlap
extern "C" __global__ void wmma_store_rows_overlap(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 8, wmma::mem_row_major);  //-!
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //+
}

//@ matrix accesses | out of bounds | 1, 32 | f16[256], f16[256], f32[256]=0 | a leading dimension of 32 for a tile of 16 columns
extern "C" __global__ void wmma_leading_dimension(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 32);  //-!
    wmma::load_matrix_sync(fa, a, 16);  //+
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

//@ matrix accesses | wmma/misaligned | 1, 32 | f16[320], f16[256], f32[256]=0 | a leading dimension of 17 halves: rows must lie 16 bytes apart
extern "C" __global__ void wmma_odd_leading_dimension(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 17);  //-!
    wmma::load_matrix_sync(fa, a, 16);  //+
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

//@ matrix accesses | wmma/misaligned | 1, 32 | f16[320], f16[256], f32[256]=0 | a tile that begins at an odd half
extern "C" __global__ void wmma_pointer_misaligned(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a + 1, 16);  //-!
    wmma::load_matrix_sync(fa, a + 16, 16);  //+
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

//@ matrix accesses | wmma/divergence | 1, 32 | f16[512], f16[256], f32[256]=0 | lanes of one warp give different pointers
extern "C" __global__ void wmma_pointer_by_lane(const __half* a, const __half* b, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a + T / 16 * 256, 16);  //-!
    wmma::load_matrix_sync(fa, a + T / 32 * 256, 16);  //+
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

//@ matrix accesses | out of bounds | 1, 32 | f16[256], f16[256], f32[200]=0 | the output ends inside the last tile
extern "C" __global__ void wmma_store_beyond(const __half* a, const __half* b, float* c) {
    __shared__ __align__(32) float s[256];
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //-!
    wmma::store_matrix_sync(s, fc, 16, wmma::mem_row_major);  //+
    __syncwarp();
    for (int i = T; i < 200; i += 32) c[i] += s[i];  //+
}

//@ registers | uninitialised | 1, 32 | f16[256], f32[256]=0 | the second operand was never loaded
extern "C" __global__ void wmma_operand_not_loaded(const __half* a, float* c) {
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::fill_fragment(fb, __float2half(1.0f));  //+
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);  //!
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //!
}

//@ matrix accesses | race | 1, 64 | f16[512], f16[512], f32[512]=0 | the epilogue reuses the input tile's memory with no barrier
extern "C" __global__ void wmma_epilogue_reuse(const __half* a, const __half* b, float* c) {
    __shared__ __align__(32) unsigned char raw[2048];
    __half* tile = reinterpret_cast<__half*>(raw);
    float* out = reinterpret_cast<float*>(raw);
    int w = T / 32;
    for (int i = T; i < 256; i += 64) tile[i] = a[i];
    __syncthreads();
    FragmentA fa; FragmentB fb; FragmentC fc;
    wmma::load_matrix_sync(fa, tile, 16);  //!
    wmma::load_matrix_sync(fb, b + w * 256, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    __syncthreads();  //+
    wmma::store_matrix_sync(out + w * 256, fc, 16, wmma::mem_row_major);  //!
    __syncthreads();
    for (int i = T; i < 512; i += 64) c[i] = out[i];
}
