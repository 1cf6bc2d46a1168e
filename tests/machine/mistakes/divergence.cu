// Barriers, whole-warp instructions, shuffles and votes that not all threads reach.
#include <cuda_fp16.h>
#include <mma.h>
#define T threadIdx.x
#define ALL 0xffffffffu
using namespace nvcuda;

//@ divergence | deadlock/barrier/divergence/race | 1, 64 | f32[64], f32[64]=0 | the barrier stands in a branch that one warp does not take
extern "C" __global__ void barrier_in_branch(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[T];
    if (T < 32) {
        __syncthreads();  //-!
        s[T] += 1;  //!
    }
    __syncthreads();  //!
    y[T] = s[63 - T];  //!
}

//@ divergence | divergence/barrier/deadlock/race | 1, 64 | f32[64], f32[64]=0 | odd and even lanes of a warp meet at different barriers
extern "C" __global__ void barrier_in_both_branches(const float* x, float* y) {
    __shared__ float s[64];
    if (T % 2) {
        s[T] = x[T];
        __syncthreads();  //-!
    } else {
        s[T] = -x[T];
        __syncthreads();  //-!
    }
    __syncthreads();  //+
    y[T] = s[63 - T];
}

//@ divergence | advice divergence/barrier/deadlock | 1, 64 | f32[50], f32[64]=0, i32:50 | lanes beyond n return before the barrier of their warp
extern "C" __global__ void return_before_barrier(const float* x, float* y, int n) {
    __shared__ float s[64];
    if (T >= n) return;  //-!
    s[T] = T < n ? x[T] : 0;
    __syncthreads();  //!
    if (T < n) y[T] = s[n - 1 - T];
}

//@ divergence | divergence/barrier/deadlock/race | 1, 96 | f32[96], f32[96]=0 | the barrier is in a loop that warps leave at different rounds
extern "C" __global__ void barrier_in_ragged_loop(const float* x, float* y) {
    __shared__ float s[96];
    int rounds = 1 + T / 32;  //-
    int rounds = 3;  //+
    for (int i = 0; i < rounds; i++) {
        s[T] = x[T] + i;  //!
        __syncthreads();  //!
    }
    y[T] = s[(T + 32) % 96];  //!
}

//@ divergence | divergence/barrier/deadlock/race | 1, 64 | f32[64], f32[64]=0 | a warp breaks out of the loop with the barrier in it
extern "C" __global__ void break_before_barrier(const float* x, float* y) {
    __shared__ float s[64];
    for (int i = 0; i < 4; i++) {
        if (i == 2 && T >= 32) break;  //-
        if (i == 2) break;  //+
        s[T] = x[T] + i;  //!
        __syncthreads();  //!
    }
    __syncthreads();  //!
    y[T] = s[63 - T];  //!
}

//@ divergence | divergence/barrier/deadlock/race | 1, 64 | f32[64], f32[64]=0 | __syncthreads in a switch on the warp
extern "C" __global__ void barrier_in_switch(const float* x, float* y) {
    __shared__ float s[64];
    switch (T / 32) {
        case 0: s[T] = x[T]; __syncthreads(); s[T] += 1; break;  //!
        case 1: s[T] = 2 * x[T]; break;  //-
        case 1: s[T] = 2 * x[T]; __syncthreads(); break;  //+
    }
    __syncthreads();  //!
    y[T] = s[63 - T];  //!
}

//@ divergence | divergence/barrier/deadlock | 1, 64 | i32[64]%5, i32[64]=0 | a barrier that depends on data
extern "C" __global__ void barrier_on_data(const int* x, int* y) {
    __shared__ int s[64];
    s[T] = x[T];
    if (x[T] > 2) __syncthreads();  //-!
    __syncthreads();  //!
    y[T] = s[63 - T];
}

//@ divergence | divergence/barrier/deadlock | 1, 64 | i32[64]%5, i32[64]=0 | __syncthreads_count in a short circuit: lanes without the first condition do not come
extern "C" __global__ void count_in_short_circuit(const int* x, int* y) {
    if (x[T] > 2 && __syncthreads_count(x[T] > 3) > 4) y[T] = 1;  //-!
    int big = __syncthreads_count(x[T] > 3);  //+
    if (x[T] > 2 && big > 4) y[T] = 1;  //+
    __syncthreads();  //!
}

//@ divergence | divergence/wmma | 1, 32 | f16[256], f16[256], f32[256]=0 | wmma in a branch of half a warp
extern "C" __global__ void wmma_in_branch(const __half* a, const __half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    if (T < 16) {  //-
        wmma::load_matrix_sync(fa, a, 16);  //!
        wmma::load_matrix_sync(fb, b, 16);  //!
        wmma::mma_sync(fc, fa, fb, fc);  //!
        wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //!
    }  //-
}

//@ divergence | divergence | 1, 32 | u32[64], u32[32], f32[128]=0 | mma.sync.aligned reached by the even lanes only
extern "C" __global__ void mma_in_branch(const unsigned* a, const unsigned* b, float* d) {
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    if (T % 2 == 0)  //-
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"  //!
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[T]), "r"(a[T + 32]), "r"(b[T]));  //!
    d[T * 4] = c0; d[T * 4 + 1] = c1; d[T * 4 + 2] = c2; d[T * 4 + 3] = c3;
}

//@ divergence | divergence | 1, 20 | f16[64], u32[20]=0 | ldmatrix in a block of 20 threads
extern "C" __global__ void ldmatrix_in_partial_warp(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    for (int i = T; i < 64; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    unsigned v = 0, a = __cvta_generic_to_shared(&s[T % 8 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(a) : "memory");  //-!
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");  //+
    y[T] = v;
}

//@ divergence | divergence | 1, 32 | f16[64], u32[32]=0 | ldmatrix by the eight lanes whose addresses count
extern "C" __global__ void ldmatrix_by_eight_lanes(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    s[T] = x[T]; s[T + 32] = x[T + 32];
    __syncwarp();
    unsigned v = 0, a = __cvta_generic_to_shared(&s[T % 8 * 8]);
    if (T < 8)  //-
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(a) : "memory");  //!
    y[T] = v;
}

//@ divergence | divergence/barrier/deadlock | 1, 128 | f32[100], f32[128]=0, i32:100 | the tile loop ends earlier for the threads beyond n
extern "C" __global__ void ragged_tile_loop(const float* x, float* y, int n) {
    __shared__ float s[128];
    float sum = 0;
    for (int i = T; i < n; i += 128) {  //-
    for (int base = 0; base < n; base += 128) {  //+
        int i = base + T;  //+
        s[T] = i < n ? x[i] : 0;
        __syncthreads();  //!
        sum += s[T];
    }
    y[T] = sum;
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | f32[32], f32[32]=0 | the mask names all lanes, half of them never come
extern "C" __global__ void shuffle_full_mask_in_branch(const float* x, float* y) {
    float v = x[T];
    if (T < 16) {
        v += __shfl_down_sync(ALL, v, 8);  //-!
        v += __shfl_down_sync(0xffff, v, 8, 16);  //+
        y[T] = v;  //!
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | f32[32], f32[32]=0 | a value is taken from a lane outside the mask
extern "C" __global__ void shuffle_from_outside_mask(const float* x, float* y) {
    if (T < 16) {
        float v = __shfl_sync(0xffff, x[T], T + 8);  //-!
        float v = __shfl_sync(0xffff, x[T], (T + 8) % 16);  //+
        y[T] = v;  //!
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 20 | f32[20], f32[20]=0 | a block of 20 threads reduced as if it had 32
extern "C" __global__ void shuffle_of_absent_threads(const float* x, float* y) {
    float v = x[T];
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_down_sync((1u << 20) - 1, v, d);  //!
        v += other;  //-!
        if (T + d < 20) v += other;  //+
    }
    if (T == 0) *y = v;  //!
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[32], f32[32]=0 | a lane that is not in its own mask
extern "C" __global__ void lane_not_in_mask(const float* x, float* y) {
    float v = __shfl_xor_sync(0x7fffffff, x[T], 1);  //-!
    float v = __shfl_xor_sync(0xffffffff, x[T], 1);  //+
    y[T] = v;
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[30], f32[1]=0, i32:30 | lanes beyond n return, the others shuffle with all
extern "C" __global__ void return_before_shuffle(const float* x, float* y, int n) {
    if (T >= n) return;  //-
    float v = x[T];  //-
    float v = T < n ? x[T] : 0;  //+
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(ALL, v, d);  //!
    if (T == 0) *y = v;
}

//@ shuffles | advice divergence/shuffle | 1, 32 | i32[32]%2, u32[32]=0 | a ballot in a branch names lanes that are elsewhere
extern "C" __global__ void ballot_in_branch(const int* x, unsigned* y) {
    unsigned mask = __ballot_sync(ALL, x[T]);
    if (x[T]) {
        y[T] = __ballot_sync(ALL, T > 10);  //-!
        y[T] = __ballot_sync(mask, T > 10);  //+
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | i32[32]%2, i32[32]=0 | the leader of the mask is broadcast from a lane that did not take part
extern "C" __global__ void broadcast_from_lane_zero(const int* x, int* y) {
    unsigned mask = __ballot_sync(ALL, x[T]);
    if (x[T]) {
        int leader = 0;  //-
        int leader = __ffs(mask) - 1;  //+
        y[T] = __shfl_sync(mask, T * 10, leader);  //!
    }
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[32], f32[32]=0 | loops of different length, each with a shuffle of all lanes
extern "C" __global__ void shuffle_in_ragged_loop(const float* x, float* y) {
    float v = x[T];
    int rounds = T % 4;  //-
    int rounds = 3;  //+
    for (int i = 0; i < rounds; i++) v += __shfl_xor_sync(ALL, v, 1);  //!
    y[T] = v;
}

//@ shuffles | divergence/shuffle | 1, 32 | i32[32], i32[32]=0 | __syncwarp of all lanes in one branch only
extern "C" __global__ void syncwarp_in_branch(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];
    if (T < 8) {
        __syncwarp();  //-!
    }
    __syncwarp();  //+
    if (T < 8) y[T] = s[T];
    if (T >= 8) { int v = x[T]; __syncwarp(0xffffff00); y[T] = v; }
}
