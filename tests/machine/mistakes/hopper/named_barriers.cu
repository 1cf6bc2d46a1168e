//@arch sm_90a
// Named barriers that groups of warps share: who comes to one has to know that it was complete the last time.
// Groups of warps with counters of their own: what all of them fenced before their barrier, one thread releases.
#include "instructions.cuh"
#define SYNC(id, n) barrier(id, n)
#define ARRIVE(id, n) asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(n) : "memory")
#define FENCE() asm volatile("fence.sc.gpu;" ::: "memory")

//@ named barriers | barrier | 1, 128 | f32[128], f32[128]=0 | two pairs of warps share an id; the second pair starts when the first has begun, and only time keeps them apart
extern "C" __global__ void apart_by_time_alone(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];
    if (T < 64) {
        ARRIVE(2, 128);
        SYNC(1, 64);  //!
    } else {
        SYNC(2, 128);
        SYNC(1, 64);  //-!
        SYNC(3, 64);  //+
    }
    y[T] = s[T ^ 32];
}

//@ named barriers | barrier/deadlock | 1, 128 | f32[256], f32[256]=0 | epilogues that take turns share a barrier: the next one begins when the sums are there, and not when the last one is done
extern "C" __global__ void epilogues_share_an_id(const float* x, float* y) {
    __shared__ float s[2][64];
    int group = T / 64, i = T % 64;
    if (group == 1) ARRIVE(4, 128);
    for (int t = 0; t < 2; t++) {
        SYNC(4 + group, 128);
        float sum = x[128 * t + T];
        s[group][i] = sum;
        if (t == 0 || group == 0) ARRIVE(5 - group, 128);
        SYNC(1, 64);  //-!
        SYNC(1 + group, 64);  //+
        y[128 * t + T] = s[group][i ^ 32];
        SYNC(1, 64);  //-!
        SYNC(1 + group, 64);  //+
    }
}

//@ named barriers | barrier/race/deadlock | 1, 128 | f32[256], f32[256]=0 | a warp that only arrives does so again, and does not know whether the others have come
extern "C" __global__ void arrives_again(const float* x, float* y) {
    __shared__ float s[4][64];
    for (int t = 0; t < 4; t++) {
        if (T < 64) {
            s[t][T] = x[64 * t + T];
            ARRIVE(1, 128);  //!
            SYNC(2, 128);  //+
        } else {
            SYNC(1, 128);  //!
            y[64 * t + T - 64] = s[t][127 - T];
            ARRIVE(2, 128);  //+
        }
    }
}

//@ named barriers | - | 1, 192 | f32[192], f32[192]=0 | three groups pass a turn round by barriers at which the next one waits, and the last one only arrives
extern "C" __global__ void turns_of_three_groups(const float* x, float* y) {
    __shared__ float s[64];
    int group = T / 64;
    for (int t = 0; t < 3; t++) {
        if (t > 0 || group > 0) SYNC(1 + group, 128);
        s[T % 64] = x[T] + t;
        SYNC(4, 64);
        y[T] = s[T % 64 ^ 32];
        SYNC(4, 64);
        if (t < 2 || group < 2) ARRIVE(1 + (group + 1) % 3, 128);
    }
}

//@ named barriers | - | 1, 96 | f32[96], f32[96]=0 | one id for different groups of warps, with the block's barrier between
extern "C" __global__ void one_id_in_turn(const float* x, float* y) {
    __shared__ float s[96];
    s[T] = x[T];
    if (WARP < 2) SYNC(1, 64);
    __syncthreads();
    if (WARP > 0) SYNC(1, 64);
    y[T] = s[95 - T];
}

//@ named barriers | race | 2, 160 | f32[256], f32[260]=0, u32[2]=0 | pairs of warps count themselves, while others are at work, with no fence behind their sums
extern "C" __global__ void tickets_of_pairs_no_fence(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last[2];
    if (T < 128) {
        const int pair = T / 64, place = blockIdx.x * 128 + T;
        y[place] = x[place] * 2;  //!
        FENCE();  //+
        SYNC(1 + pair, 64);
        if (T % 64 == 0) {
            last[pair] = atomicInc(&tickets[pair], 1) == 1;
            FENCE();
        }
        SYNC(1 + pair, 64);
        if (last[pair] && T % 64 < 2) {
            float sum = 0;
            for (int i = 0; i < 64; i++) sum += y[(T % 64) * 128 + pair * 64 + i];  //!
            y[256 + 2 * pair + T % 64] = sum;
        }
    }
    SYNC(0, 160);
}

//@ named barriers | race | 2, 160 | f32[256], f32[260]=0, u32[2]=0 | one thread counts its pair of warps, while others are at work, before the other warp has fenced
extern "C" __global__ void tickets_of_pairs_no_barrier(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last[2];
    if (T < 128) {
        const int pair = T / 64, place = blockIdx.x * 128 + T;
        y[place] = x[place] * 2;  //!
        FENCE();
        SYNC(1 + pair, 64);  //+
        if (T % 64 == 0) {
            last[pair] = atomicInc(&tickets[pair], 1) == 1;
            FENCE();
        }
        SYNC(1 + pair, 64);
        if (last[pair] && T % 64 < 2) {
            float sum = 0;
            for (int i = 0; i < 64; i++) sum += y[(T % 64) * 128 + pair * 64 + i];  //!
            y[256 + 2 * pair + T % 64] = sum;
        }
    }
    SYNC(0, 160);
}

//@ named barriers | race | 2, 160 | f32[256], f32[260]=0, u32[2]=0 | pairs of warps count themselves, while others are at work, and store behind their fence
extern "C" __global__ void tickets_of_pairs_fence_too_early(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last[2];
    if (T < 128) {
        const int pair = T / 64, place = blockIdx.x * 128 + T;
        FENCE();  //-
        y[place] = x[place] * 2;  //!
        FENCE();  //+
        SYNC(1 + pair, 64);
        if (T % 64 == 0) {
            last[pair] = atomicInc(&tickets[pair], 1) == 1;
            FENCE();
        }
        SYNC(1 + pair, 64);
        if (last[pair] && T % 64 < 2) {
            float sum = 0;
            for (int i = 0; i < 64; i++) sum += y[(T % 64) * 128 + pair * 64 + i];  //!
            y[256 + 2 * pair + T % 64] = sum;
        }
    }
    SYNC(0, 160);
}
