//@arch sm_90a
// A stage that plain loads have read is filled again by TMA. Behind barriers of the block and of the warp a fence
// between the proxies has to lie on the way; what an mbarrier hands over needs none by custom.
#include "instructions.cuh"

DEVICE void bar_sync(int number, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

//@ proxies | advice proxy | 1, 64 | f32[512], f32[64]=0 | three stages, filled one tile ahead: a barrier and a wait lie between
extern "C" __global__ void three_stages_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[3][64];
    __shared__ u64 bar[3];
    if (T == 0) {
        REPEAT(i, 3) init(bar[i], 1);
        fence_init();
    }
    __syncthreads();
    float sum = 0;
    if (T == 0) arrive_expect(bar[0], 256), bulk_load(s[0], x, 256, bar[0]);
    REPEAT(t, 8) {
        int next = (t + 1) % 3;
        if (T == 0 && t < 7) arrive_expect(bar[next], 256), bulk_load(s[next], x + 64 * (t + 1), 256, bar[next]);  //!
        wait(bar[t % 3], t / 3 & 1);
        sum += s[t % 3][63 - T];  //!
        fence_async_shared();  //+
        __syncthreads();
    }
    y[T] = sum;
}

//@ proxies | advice proxy | 1, 96 | f32[256], f32[64]=0 | two warps read and meet a third at a named barrier, which loads the next tile
extern "C" __global__ void named_barrier_then_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 64) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        if (T < 64) {
            wait(bar, t & 1);
            sum += s[63 - T];  //!
            if (T < 32) fence_async_shared();  //-
            fence_async_shared();  //+
        }
        bar_sync(1, 96);
    }
    if (T < 64) y[T] = sum;
}

//@ proxies | advice proxy | 1, 64 | f32[256], f32[64]=0 | the fence is one of global memory; in the right twin the thread that loads fences behind the barrier
extern "C" __global__ void fence_of_other_space(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, t & 1);
        sum += s[63 - T];  //!
        fence_async_global();
        __syncthreads();
        if (T == 0) fence_async_shared();  //+
    }
    y[T] = sum;
}

//@ proxies | advice proxy | 1, 64 | f32[256], f32[1]=0 | one thread alone reads, and one of another warp loads the next tile
extern "C" __global__ void read_by_one_thread(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 32) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        if (T == 0) {
            wait(bar, t & 1);
            REPEAT(i, 64) sum += s[i];  //!
            fence_async_shared();  //+
        }
        __syncthreads();
    }
    if (T == 0) y[0] = sum;
}

//@ proxies | - | 1, 96 | f32[512], f32[64]=0 | a ring of mbarriers, as CUTLASS has it: all threads give a stage back, no fence
extern "C" __global__ void ring_without_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        REPEAT(i, 2) init(full[i], 1), init(empty[i], 64);
        fence_init();
    }
    __syncthreads();
    float sum = 0;
    if (T == 64) {
        REPEAT(t, 8) {
            wait(empty[t % 2], (t / 2 & 1) ^ 1);
            arrive_expect(full[t % 2], 256), bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);
        }
    }
    if (T < 64) {
        REPEAT(t, 8) {
            wait(full[t % 2], t / 2 & 1);
            sum += s[t % 2][63 - T];
            arrive(empty[t % 2]);
        }
        y[T] = sum;
    }
}

//@ proxies | - | 1, 96 | f32[512], f32[64]=0 | the same with an arrival of each warp, behind a barrier of its lanes; all threads meet after each two tiles
extern "C" __global__ void ring_and_barriers(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        REPEAT(i, 2) init(full[i], 1), init(empty[i], 2);
        fence_init();
    }
    __syncthreads();
    float sum = 0;
    REPEAT(tile, 4) {
        for (int t = 2 * tile; t < 2 * tile + 2; t++) {
            if (T == 64) {
                wait(empty[t % 2], (t / 2 & 1) ^ 1);
                arrive_expect(full[t % 2], 256), bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);
            }
            if (T < 64) {
                wait(full[t % 2], t / 2 & 1);
                sum += s[t % 2][63 - T];
                __syncwarp();
                if (T % 32 == 0) arrive(empty[t % 2]);
            }
        }
        __syncthreads();
    }
    if (T < 64) y[T] = sum;
}

//@ proxies | - | 1, 96 | f32[256], f32[64]=0 | readers meet at a barrier of their own, and one of them gives the stage back for all
extern "C" __global__ void given_back_by_one(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 1), fence_init();
    __syncthreads();
    float sum = 0;
    if (T == 64) {
        REPEAT(t, 4) wait(empty, (t & 1) ^ 1), arrive_expect(full, 256), bulk_load(s, x + 64 * t, 256, full);
    }
    if (T < 64) {
        REPEAT(t, 4) {
            wait(full, t & 1);
            sum += s[63 - T];
            bar_sync(1, 64);
            if (T == 0) arrive(empty);
        }
        y[T] = sum;
    }
}

//@ proxies | - | 1, 32 | f32[256], f32[32]=0 | all lanes of a warp arrive at an mbarrier, and one of them waits and loads
extern "C" __global__ void warp_by_mbarrier(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 32), fence_init();
    __syncwarp();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 0) wait(empty, (t & 1) ^ 1), arrive_expect(full, 256), bulk_load(s, x + 64 * t, 256, full);
        wait(full, t & 1);
        sum += s[31 - T] + s[63 - T];
        arrive(empty);
    }
    y[T] = sum;
}
