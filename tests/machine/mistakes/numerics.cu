// Solvers, sorts, filters and codecs, written as samples and libraries write them.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda/atomic>
#include <mma.h>
namespace cg = cooperative_groups;
#define T threadIdx.x
#define B blockIdx.x
#define WARP (threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
#define ALL 0xffffffffu

//@ block barriers | race | 1, 64 | f32[64], f32[64], f32[64], f32[64] | cyclic reduction of a tridiagonal system: the neighbour's row is read after it may have been replaced
extern "C" __global__ void cyclic_reduction(float* a, float* b, float* c, float* x) {
    __shared__ float sb[64], sx[64];
    sb[T] = b[T] + 10, sx[T] = x[T];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        float nb = sb[T], nx = sx[T];
        if (T >= d) nb -= 0.5f / sb[T - d], nx -= sx[T - d] * 0.25f;  //!
        __syncthreads();  //+
        sb[T] = nb, sx[T] = nx;  //!
        __syncthreads();
    }
    x[T] = sx[T] / sb[T];
}

//@ block barriers | race | 1, 64 | i32[128]%61, i32[128]=0 | odd-even merge sort: the last passes are within a warp's own elements, but of two warps in turn
extern "C" __global__ void sort_of_two_warps(const int* x, int* y) {
    __shared__ int s[128];
    s[T] = x[T], s[T + 64] = x[T + 64];
    __syncthreads();
    for (int size = 2; size <= 128; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            int p = 2 * T - (T & (stride - 1));
            bool up = (p & size) == 0;
            int a = s[p], b = s[p + stride];  //!
            if ((a > b) == up) s[p] = b, s[p + stride] = a;  //!
            if (stride > 32) __syncthreads(); else __syncwarp();  //-
            __syncthreads();  //+
        }
    y[T] = s[T], y[T + 64] = s[T + 64];
}

//@ uninitialised memory | uninitialised | 1, 96 | f32[96], f32[96]=0 | a filter of radius 2, whose halo on the right is loaded by threads that the block does not have
extern "C" __global__ void halo_on_the_right(const float* x, float* y) {
    __shared__ float s[100];
    s[T + 2] = x[T];
    if (T < 2) s[T] = 0;
    if (T >= 96 && T < 98) s[T + 2] = 0;  //-
    if (T >= 94) s[T + 4] = 0;  //+
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 5; i++) sum += s[T + i];  //!
    y[T] = sum;
}

//@ lanes collide | race | 1, 32 | u8[32]%3, u32[4]=0 | run lengths: every lane of a run stores its own length
extern "C" __global__ void lengths_of_runs(const unsigned char* x, unsigned* y) {
    unsigned same = __match_any_sync(ALL, x[T]);
    unsigned below = __popc(same & ((2u << T) - 1));
    y[x[T]] = below;  //-!
    if (same >> T == 1) y[x[T]] = below;  //+
}

//@ read-modify-write | race | 4, 32 | u32[128], u32[8]=0 | bits of a bloom filter set with |= by many blocks
extern "C" __global__ void bloom_filter(const unsigned* keys, unsigned* bits) {
    unsigned hash = keys[B * 32 + T] * 2654435761u >> 24;
    bits[hash / 32] |= 1u << hash % 32;  //-!
    atomicOr(&bits[hash / 32], 1u << hash % 32);  //+
}

//@ small elements | race | 1, 32 | i32[32]%16, u8[16]=0 | two values of four bits in each byte, stored by two lanes
extern "C" __global__ void nibbles(const int* x, unsigned char* y) {
    int other = __shfl_down_sync(ALL, x[T], 1);
    unsigned char old = y[T / 2];  //-!
    if (T % 2) y[T / 2] = (old & 0x0f) | x[T] << 4;  //-!
    if (T % 2 == 0) y[T / 2] = (old & 0xf0) | x[T];  //-!
    if (T % 2 == 0) y[T / 2] = x[T] | other << 4;  //+
}

//@ cooperative groups | divergence/deadlock/race/barrier | 1, 64 | f32[64], f32[64]=0 | tiles of 16 synchronise in a loop that each lane leaves by itself
extern "C" __global__ void tile_in_a_lane_loop(const float* x, float* y) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    float v = x[T];
    int rounds = T % 3 + 1;  //-
    int rounds = 3;  //+
    for (int i = 0; i < rounds; i++) {
        s[T] = v;  //!
        tile.sync();  //!
        v += s[T ^ 1];  //!
        tile.sync();  //!
    }
    y[T] = v;
}

//@ scopes | race | 2, 32 | i32[32], i32[32]=0, i32[32]=0, u32[1]=0 | cuda::atomic_ref with a release at block scope tells another block
extern "C" __global__ void release_of_the_block(const int* x, int* data, int* y, unsigned* flag) {
    if (B == 0) {
        data[T] = x[T];  //!
        __syncwarp();
        cuda::atomic_ref<unsigned, cuda::thread_scope_block> f(*flag);  //-
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> f(*flag);  //+
        if (T == 0) f.store(1, cuda::memory_order_release);  //!
    } else {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> f(*flag);
        if (T == 0) while (f.load(cuda::memory_order_acquire) == 0) {}  //!
        __syncwarp();
        y[T] = data[T];  //!
    }
}

//@ matrix accesses | race/uninitialised | 1, 64 | f16[512], f16[256], f32[512]=0 | the epilogue of wmma: each warp stores its tile in shared memory, and scales the rows of the other
extern "C" __global__ void scaled_rows_of_the_other(const half* a, const half* b, float* y) {
    using namespace nvcuda;
    __shared__ __align__(32) float s[2][256];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::load_matrix_sync(fa, a + WARP * 256, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(s[WARP], fc, 16, wmma::mem_row_major);  //!
    __syncwarp();  //-
    __syncthreads();  //+
    for (int i = T; i < 512; i += 64) y[i] = s[i / 256][i % 256] * 2;  //!
}

//@ alignment | misaligned | 1, 32 | u8[260], u32[32]=0 | a header of two bytes before packed words
extern "C" __global__ void words_behind_a_header(const unsigned char* x, unsigned* y) {
    const unsigned* words = reinterpret_cast<const unsigned*>(x + 2);  //-
    const unsigned* words = reinterpret_cast<const unsigned*>(x + 4);  //+
    y[T] = words[T];  //!
}

//@ bounds | out of bounds | 2, 64 | f32[100], f32[100]=0, i32:100 | a loop unrolled by two with one guard for both
extern "C" __global__ void unrolled_by_two(const float* x, float* y, int n) {
    int i = (B * 64 + T) * 2;
    if (i < n + 1 - 1) {
        y[i] = x[i];
        if (i + 1 < n) y[i + 1] = x[i + 1];
        if (i + 2 <= n) y[i + 2] = x[i + 1];  //-!
    }
}

//@ heap | heap/race | 1, 32 | i32[32], i32[32]=0 | a list node is freed by the lane that pops it, and read by its neighbour afterwards
extern "C" __global__ void node_freed_too_early(const int* x, int* y) {
    __shared__ int* node;
    if (T == 0) node = static_cast<int*>(malloc(4)), *node = x[0];
    __syncwarp();
    if (T == 0) free(node);  //-!
    __syncwarp();
    y[T] = *node + T;  //!
    __syncwarp();
    if (T == 0) free(node);  //+
}

//@ named barriers | barrier/deadlock/race | 1, 128 | f32[128], f32[128]=0 | pairs of warps meet at a barrier of their own, whose number is that of the warp instead of the pair
extern "C" __global__ void number_of_the_warp(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    int number = 1 + WARP;  //-
    int number = 1 + WARP / 2;  //+
    asm volatile("bar.sync %0, 64;" ::"r"(number) : "memory");  //!
    y[T] = s[T ^ 32];  //!
}

//@ shuffles | advice uninitialised/divergence | 1, 32 | f32[32], f32[32]=0, i32:20 | a segmented scan over n lanes reads lanes that have returned
extern "C" __global__ void scan_of_some(const float* x, float* y, int n) {
    unsigned mask = ALL;  //-
    unsigned mask = __ballot_sync(ALL, T < n);  //+
    if (T >= n) return;
    float v = x[T];
    for (int d = 1; d < 32; d *= 2) {
        float w = __shfl_up_sync(mask, v, d);  //!
        if (T >= d) v += w;
    }
    y[T] = v;
}

//@ endless | endless | 2, 32 | u32[1]=0, i32[64]=0 | a lock is tried by all lanes with a counter of attempts that is never counted
extern "C" __global__ void attempts_never_counted(unsigned* lock, int* y) {
    int attempts = 0;
    if (B == 1 && T == 0) atomicExch(lock, 2);  //-
    while (atomicCAS(lock, 0, 1) == 2 && attempts < 100) {}  //-!
    while (atomicCAS(lock, 0, 0) == 2 && attempts < 100) attempts++;  //+
    y[B * 32 + T] = attempts;
}

//@ registers | uninitialised | 1, 32 | f32[128], f32[32], f32[32]=0 | three of four sums are cleared; the compiler computes the result ahead, and stores a constant
extern "C" __global__ void sums_of_four(const float* a, const float* b, float* y) {
    float sums[4];
    for (int i = 0; i < 3; i++) sums[i] = 0;  //-
    for (int i = 0; i < 4; i++) sums[i] = 0;  //+
    for (int i = 0; i < 4; i++) sums[i] += a[T * 4 + i] * b[T];
    y[T] = sums[0] + sums[1] + sums[2] + sums[3];  //!
}
