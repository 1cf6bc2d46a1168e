//@arch sm_90a
// Who has arrived where: lanes of a warp that arrive apart, tests whose result nobody looks at, mbarriers as data.
#include "instructions.cuh"

//@ mbarrier | race/mbarrier | 1, 64 | f32[64], f32[64]=0 | the lanes that initialise one mbarrier give it different counts
extern "C" __global__ void lanes_init_different_counts(const float* x, float* y) {
    __shared__ u64 bar;
    if (T < 32) init(bar, 64 + T % 2);  //-!
    if (T < 32) init(bar, 64);  //+
    fence_init();
    __syncthreads();
    arrive(bar);
    if (T == 0) arrive(bar);  //-
    wait(bar, 0);
    y[T] = x[T];
}

//@ mbarrier | - | 1, 64 | f32[64], f32[64]=0 | all lanes of a warp initialise one mbarrier, and one invalidates it
extern "C" __global__ void lanes_init_together(const float* x, float* y) {
    __shared__ u64 bar;
    if (T < 32) init(bar, 64);
    fence_init();
    __syncthreads();
    arrive(bar);
    wait(bar, 0);
    __syncthreads();
    if (T == 40) inval(bar);
    y[T] = x[T];
}

//@ mbarrier | race | 1, 64 | f32[64], f32[64]=0 | a lane arrives twice; another one writes after its own arrival, and before that second one
extern "C" __global__ void written_before_second_arrival(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 65);
    __syncthreads();
    if (T != 5) s[T] = x[T];  //-
    s[T] = x[T];  //+
    arrive(bar);
    if (T == 5) s[T] = x[T];  //-!
    if (T == 3) arrive(bar);
    wait(bar, 0);
    y[T] = s[63 - T];  //!
}

//@ mbarrier | race/asynchronous copy | 1, 96 | f32[64], f32[64]=0 | a warp fills a tile and announces it; one lane announces another; the readers wait for that one only
extern "C" __global__ void waits_for_the_other_tile(const float* x, float* y) {
    __shared__ __align__(128) float q[32], k[64];
    __shared__ u64 q_full, k_full;
    if (T == 0) init(q_full, 32), init(k_full, 1), fence_init();
    __syncthreads();
    if (WARP == 2) {
        q[LANE] = x[LANE];  //!
        arrive(q_full);
        if (elect()) arrive_expect(k_full, 256), bulk_load(k, x, 256, k_full);
    } else {
        wait(q_full, 0);  //+
        wait(k_full, 0);
        y[T] = q[T % 32] + k[T];  //!
    }
}

//@ mbarrier | race/asynchronous copy | 1, 96 | f32[64], f32[64]=0 | the same with cp.async of some lanes, and the waits in the other order
extern "C" __global__ void waits_for_the_other_copies(const float* x, float* y) {
    __shared__ __align__(128) float q[64], k[64];
    __shared__ u64 q_full, k_full;
    if (T == 0) init(q_full, 32), init(k_full, 1), fence_init();
    __syncthreads();
    if (WARP == 2) {
        if (LANE < 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(q + 4 * LANE)), "l"(x + 4 * LANE) : "memory");  //!
        asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared(&q_full)) : "memory");
        arrive(q_full);
        if (LANE == 0) arrive_expect(k_full, 256), bulk_load(k, x, 256, k_full);
    } else {
        wait(k_full, 0);
        wait(q_full, 0);  //+
        y[T] = q[T] + k[T];  //!
    }
}

//@ mbarrier | race | 1, 96 | f32[64], f32[64]=0 | the halves of a warp announce their halves of a tile apart; the readers wait for one of them
extern "C" __global__ void waits_for_half_a_warp(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u64 low, high;
    if (T == 0) init(low, 16), init(high, 16);
    __syncthreads();
    if (WARP == 2) {
        s[LANE] = x[LANE];  //!
        if (LANE < 16) arrive(low);
        else arrive(high);
    } else {
        if (WARP == 0) wait(low, 0);
        if (WARP == 0) wait(high, 0);  //+
        barrier(1, 64);
        y[T] = s[T % 32];  //!
    }
}

//@ mbarrier | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the second test of a phase is the last, and nobody looks at its result
extern "C" __global__ void tested_twice(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    if (!try_wait(bar, 0)) {
        try_wait(bar, 0);  //-
        while (!try_wait(bar, 0)) {}  //+
    }
    y[T] = s[63 - T];  //!
}

//@ mbarrier | asynchronous copy/race | 1, 64 | f32[64], f32[128]=0 | the first phase is waited for in a loop, the second one is only tested
extern "C" __global__ void second_phase_only_tested(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s[0], x, 256, bar);
    while (!try_wait(bar, 0)) {}
    y[T] = s[0][63 - T];
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s[1], x, 256, bar);  //!
    try_wait(bar, 1);  //-
    while (!try_wait(bar, 1)) {}  //+
    y[64 + T] = s[1][63 - T];  //!
}

//@ mbarrier | - | 1, 64 | f32[64], f32[64]=0 | a test ahead of other work; the thread waits only if it failed
extern "C" __global__ void tested_ahead(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    u32 done = try_wait(bar, 0);
    float more = x[T] * 2;
    if (!done) wait(bar, 0);
    y[T] = s[63 - T] + more;
}

//@ mbarrier | mbarrier | 1, 64 | f32[64], f32[64]=0 | the memory of an mbarrier becomes part of a tile, and nobody has invalidated it
extern "C" __global__ void tile_over_barrier(const float* x, float* y) {
    __shared__ __align__(16) float s[64];
    __shared__ float t[64];
    u64& bar = *reinterpret_cast<u64*>(s + 8);
    if (T == 0) init(bar, 64);
    __syncthreads();
    t[T] = x[T];
    arrive(bar);
    wait(bar, 0);
    float v = t[63 - T];
    __syncthreads();
    if (T == 0) inval(bar);  //+
    __syncthreads();
    s[T] = v;  //!
    __syncthreads();
    y[T] = s[63 - T];
}

//@ mbarrier | mbarrier | 1, 64 | f32[64], f32[64]=0 | the words of an mbarrier are read as numbers
extern "C" __global__ void barrier_read_as_data(const float* x, float* y) {
    __shared__ u64 bar[2];
    if (T == 0) init(bar[0], 64), bar[1] = 7;
    __syncthreads();
    arrive(bar[0]);
    wait(bar[0], 0);
    y[T] = x[T] + static_cast<float>(bar[0]);  //-!
    y[T] = x[T] + static_cast<float>(bar[1]);  //+
}

//@ mbarrier | mbarrier | 1, 64 | f32[64], f32[64]=0 | a sum is kept in the word of an mbarrier by atomics
extern "C" __global__ void sum_in_barrier(const float* x, float* y) {
    __shared__ __align__(8) u32 words[4];
    u64& bar = *reinterpret_cast<u64*>(words);
    if (T == 0) init(bar, 64), words[2] = 0;
    __syncthreads();
    arrive(bar);
    wait(bar, 0);
    atomicAdd(words + 1, 1u);  //-!
    atomicAdd(words + 2, 1u);  //+
    __syncthreads();
    y[T] = x[T] + words[2];
}
