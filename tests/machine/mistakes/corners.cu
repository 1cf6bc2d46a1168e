// Corners: atomics of 16 bits, shuffles of part of a warp, masks, flags, counters and rings without TMA.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define T threadIdx.x
#define B blockIdx.x
#define ALL 0xffffffffu

//@ atomics | race | 1, 64 | f16[64], f16[2]=0 | halves are added by atomics, and one thread sets the sum to 0 among them
extern "C" __global__ void half_atomic_and_store(const __half* x, __half* y) {
    if (T == 40) y[0] = __float2half(0);  //!
    __syncthreads();  //+
    atomicAdd(y, x[T]);  //!
}

//@ atomics | race | 1, 64 | i32[64], u32[4]=0 | two counters of 16 bits in one word: one is counted by atomics of the word, the other by plain stores
extern "C" __global__ void short_beside_atomic(const int* x, unsigned* y) {
    unsigned short* parts = reinterpret_cast<unsigned short*>(y);
    if (T < 32) atomicAdd(y, 1u);  //!
    if (T == 40) parts[1] = x[T];  //-!
    if (T == 40) parts[3] = x[T];  //+
}

//@ atomics | race | 4, 32 | u32[1]=0, u32[1]=0 | a lock of 16 bits is given back by a plain store
extern "C" __global__ void short_lock(unsigned* lock, unsigned* y) {
    unsigned short* word = reinterpret_cast<unsigned short*>(lock);
    if (T != 0) return;
    while (atomicCAS(word, static_cast<unsigned short>(0), static_cast<unsigned short>(1)) != 0) {}  //!
    __threadfence();
    *y += 1;  //!
    __threadfence();
    *word = 0;  //-!
    atomicCAS(word, static_cast<unsigned short>(1), static_cast<unsigned short>(0));  //+
}

//@ shuffles | uninitialised/divergence | 1, 32 | f32[32], f32[32]=0 | half of the warp adds up, and reads the lanes of the other half
extern "C" __global__ void half_warp_reads_beyond(const float* x, float* y) {
    float v = x[T];
    if (T < 16) {
        int width = 32;  //-
        int width = 16;  //+
        for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0x0000ffffu, v, d, width);  //!
        y[T] = v;  //!
    }
}

//@ shuffles | divergence | 1, 32 | i32[32], i32[32]=0 | the mask is that of all lanes, while the loop has left some of them
extern "C" __global__ void mask_after_break(const int* x, int* y) {
    int v = x[T], limit = T < 20 ? 4 : 2;
    for (int i = 0; i < limit; i++) {
        unsigned mask = ALL;  //-
        unsigned mask = __ballot_sync(i < 2 ? ALL : 0x000fffffu, true);  //+
        v += __shfl_xor_sync(mask, v, 1);  //!
    }
    y[T] = v;
}

//@ warp order | race | 1, 32 | i32[32], i32[32]=0 | lanes synchronise in two halves, and read what the other half wrote
extern "C" __global__ void halves_synchronise(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];  //!
    __syncwarp(T < 16 ? 0x0000ffffu : 0xffff0000u);
    int partner = 31 - T;  //-
    int partner = T ^ 15;  //+
    y[T] = s[partner];  //!
}

//@ scopes | advice race | 1, 64 | i32[1], i32[1]=0 | a flag in shared memory without fences: the value may come after it
extern "C" __global__ void shared_flag_without_fence(const int* x, int* y) {
    __shared__ int value;
    __shared__ volatile int flag;
    if (T == 0) flag = 0;
    __syncthreads();
    if (T == 32) {
        value = x[0];  //!
        __threadfence_block();  //+
        flag = 1;  //!
    } else if (T == 0) {
        while (flag == 0) {}
        __threadfence_block();  //+
        y[0] = value;  //!
    }
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f32[512], f32[512]=0 | a ring of three stages with two groups left in flight, though the stage that is read is the second last
extern "C" __global__ void ring_waits_for_too_few(const float* x, float* y) {
    __shared__ float s[3][64];
    for (int i = 0; i < 2; i++) {
        __pipeline_memcpy_async(&s[i][T], x + 64 * i + T, 4);
        __pipeline_commit();
    }
#pragma unroll 1
    for (int t = 0; t < 8; t++) {
        if (t + 2 < 8) __pipeline_memcpy_async(&s[(t + 2) % 3][T], x + 64 * (t + 2) + T, 4);  //!
        __pipeline_commit();
        __pipeline_wait_prior(3);  //-
        __pipeline_wait_prior(2);  //+
        __syncthreads();
        y[64 * t + T] = s[t % 3][63 - T];  //!
        __syncthreads();
    }
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[512], f32[512]=0 | a ring of two stages: the next copy goes to the stage that others still read
extern "C" __global__ void ring_without_second_barrier(const float* x, float* y) {
    __shared__ float s[2][64];
    __pipeline_memcpy_async(&s[0][T], x + T, 4);
    __pipeline_commit();
#pragma unroll 1
    for (int t = 0; t < 8; t++) {
        if (t + 1 < 8) __pipeline_memcpy_async(&s[(t + 1) % 2][T], x + 64 * (t + 1) + T, 4);  //!
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        y[64 * t + T] = s[t % 2][63 - T];  //!
        __syncthreads();  //+
    }
}

//@ global races | race | 2, 64 | f32[64]=0, f32[64]=0, f32[64]=0, i32[1]=0 | a block releases its flag before all of its warps have stored
extern "C" __global__ void flag_before_barrier(float* x, float* y, float* z, int* flag) {
    if (B == 0) {
        x[T] = T;  //!
        __syncthreads();  //+
        if (T < 32) z[T] = 1;
        if (T == 32) {
            __threadfence();
            *static_cast<volatile int*>(flag) = 1;
        }
    } else {
        if (T == 0) {
            while (*static_cast<volatile int*>(flag) == 0) {}
            __threadfence();
        }
        __syncthreads();
        y[T] = x[T];  //!
    }
}

//@ matrix accesses | race | 1, 64 | u32[64], u32[64]=0 | words of a tile are stored by one warp and read by ldmatrix in another with no barrier
extern "C" __global__ void tile_of_other_warp(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[2][32];
    s[T / 32][T % 32] = x[T];  //!
    __syncwarp();  //-
    __syncthreads();  //+
    unsigned v, at = static_cast<unsigned>(__cvta_generic_to_shared(&s[1 - T / 32][(T % 8) * 4]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at) : "memory");  //!
    y[T] = v;
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | a value that is set for the last iteration only is summed up in all
extern "C" __global__ void set_in_last_iteration(const float* x, float* y) {
    float sum = 0, v;  //-
    float sum = 0, v = 0;  //+
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        asm volatile("{ .reg .pred p; setp.eq.s32 p, %1, 3; @p mov.f32 %0, %2; }" : "+f"(v) : "r"(i), "f"(x[T]));
        asm volatile("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(v));  //!
    }
    y[T] = sum;
}

//@ block barriers | race | 1, 64 | i32[8]=0, i32[512]=0 | the number of a tile is fetched again before all warps have read the last one
extern "C" __global__ void tile_number_overwritten(int* next, int* y) {
    __shared__ int tile;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        if (T == 0) tile = atomicAdd(next, 1);  //!
        __syncthreads();
        y[64 * i + T] = tile;  //!
        __syncthreads();  //+
    }
}

//@ shuffles | advice divergence | 1, 64 | f32[40], f32[2]=0, i32:40 | the last warp has only eight elements, and its shuffle names all lanes
extern "C" __global__ void tail_names_all_lanes(const float* x, float* y, int n) {
    float sum = 0;
    if (T < n) {
        sum = x[T];
        unsigned mask = ALL;  //-
        unsigned mask = T < 32 ? ALL : 0xffu;  //+
        for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(mask, sum, d);  //!
        if (T % 32 == 0) y[T / 32] = sum;
    }
}

//@ divergence | advice barrier/deadlock/divergence/race | 1, 64 | f32[512], f32[64]=0 | the second warp has one tile less, and meets the others at one barrier less
extern "C" __global__ void tiles_by_warp(const float* x, float* y) {
    __shared__ float s[64];
    int tiles = T < 32 ? 4 : 3;  //-
    int tiles = 4;  //+
    float sum = 0;
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
        s[T] = x[64 * t + T];  //!
        __syncthreads();  //!
        sum += s[63 - T];  //!
        __syncthreads();  //!
    }
    s[T] = sum;  //!
    __syncthreads();  //!
    y[T] = s[T ^ 32];  //!
}

//@ atomics | race | 1, 64 | f64[64], f64[1]=0 | a sum of doubles in shared memory is read before all have added to it
extern "C" __global__ void sum_read_early(const double* x, double* y) {
    __shared__ double sum;
    if (T == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[T]);  //!
    __syncthreads();  //+
    if (T == 0) *y = sum;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | a function is called with a value that only some lanes have set
__device__ __noinline__ float doubled(float v) {
    float r;
    asm volatile("add.f32 %0, %1, %1;" : "=f"(r) : "f"(v));  //!
    return r;
}
extern "C" __global__ void argument_without_value(const float* x, float* y) {
    float v;  //-
    float v = 0;  //+
    if (T < 20) asm volatile("mov.f32 %0, %1;" : "=f"(v) : "f"(x[T]));
    y[T] = doubled(v);  //!
}
