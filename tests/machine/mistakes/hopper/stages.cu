//@arch sm_90a
// Pipelines of several stages: parities, stages, releases, the fences and barriers of their epilogues.
#include "instructions.cuh"
#define MAKE(bar, count)                        \
    if (T == 0) init(bar, count), fence_init(); \
    __syncthreads();
template <int N>
DEVICE void make_ring(u64 (&full)[N], u64 (&empty)[N], u32 releases) {
    if (T == 0) {
        for (int i = 0; i < N; i++) init(full[i], 1), init(empty[i], releases);
        fence_init();
    }
    __syncthreads();
}

//@ transactions | asynchronous copy/race/uninitialised/mbarrier/barrier/deadlock | 1, 64 | f32[384], f32[384]=0 | a ring of three stages, whose parity changes with every second tile
extern "C" __global__ void ring_of_three_parity(const float* x, float* y) {
    __shared__ __align__(128) float s[3][64];
    __shared__ u64 full[3];
    if (T == 0) {
        for (int i = 0; i < 3; i++) init(full[i], 1);
        fence_init();
    }
    __syncthreads();
    REPEAT(t, 6) {
        int stage = t % 3;
        if (T == 0) arrive_expect(full[stage], 256), bulk_load(s[stage], x + 64 * t, 256, full[stage]);  //!
        wait(full[stage], t / 2 & 1);  //-!
        wait(full[stage], t / 3 & 1);  //+
        y[64 * t + T] = s[stage][T];  //!
        __syncthreads();
    }
}

//@ TMA | asynchronous copy/race/uninitialised | 1, 64 | f32[256], f32[256]=0 | the consumer waits for one stage and reads the other
extern "C" __global__ void stage_off_by_one(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    make_ring(full, empty, 32);
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 256);
            bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);  //!
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            const float* tile = s[(t + 1) % 2];  //-
            const float* tile = s[t % 2];  //+
            y[64 * t + T] = tile[T] + tile[T + 32];  //!
            arrive(empty[t % 2]);
        }
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[128], f32[128]=0 | the group is committed before the store that belongs to it: the wait knows nothing of it
extern "C" __global__ void commit_before_store(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    REPEAT(t, 2) {
        s[T] = x[64 * t + T];  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_commit();  //-
            bulk_store(y + 64 * t, s, 256);  //!
            bulk_commit();  //+
            bulk_wait_read<0>();
        }
        __syncthreads();
    }
    if (T == 0) bulk_commit(), bulk_wait<0>();
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | the fence is in one of the two warps that write
extern "C" __global__ void fence_in_one_warp(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    if (WARP == 0) fence_async_shared();  //-
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ named barriers | race/barrier/proxy/deadlock | 1, 160 | f32[128], f32[128]=0 | the barrier of four consumer warps counts three
extern "C" __global__ void named_barrier_lacks_a_warp(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    if (WARP == 4) return;
    s[T] = x[T];  //!
    fence_async_shared();
    barrier(1, 96);  //-!
    barrier(1, 128);  //+
    if (T == 0) {
        bulk_store(y, s, 512);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | mbarrier/barrier/deadlock/asynchronous copy/uninitialised/race | 1, 64 | map f32[12x32] 8x32, f32[512]=0 | the bytes of the last box are those inside of the tensor: TMA counts the whole box
extern "C" __global__ void tail_expects_less(MAP map, float* y) {
    __shared__ __align__(128) float s[256];
    __shared__ u64 bar;
    MAKE(bar, 1)
    REPEAT(t, 2) {
        u32 bytes = t == 1 ? 512 : 1024;  //-
        u32 bytes = 1024;  //+
        if (T == 0) arrive_expect(bar, bytes), load_2d(s, &map, 0, 8 * t, bar);  //!
        wait(bar, t);  //!
        for (int i = T; i < 256; i += 64) y[256 * t + i] = s[i];  //!
        fence_async_shared();
        __syncthreads();
    }
}

//@ wgmma | asynchronous copy/race | 1, 160 | map f16[256x16] 64x16 32B, map f16[8x16] 8x16 32B, f32[512]=0 | the stage is released after commit_group, while the product may still read it
extern "C" __global__ void stage_released_in_flight(MAP a, MAP b, float* y) {
    __shared__ __align__(1024) __half sa[2][64 * 16], sb[8 * 16];
    __shared__ u64 full[2], empty[2], once;
    if (T == 0) init(once, 1);
    make_ring(full, empty, 1);
    if (WARP == 4) {
        if (LANE == 0) {
            arrive_expect(once, 256);
            load_2d(sb, &b, 0, 0, once);
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 2048);
                load_2d(sa[t % 2], &a, 0, 64 * t, full[t % 2]);  //!
            }
        }
    } else {
        float d[4] = {0, 0, 0, 0};
        u64 db = descriptor(sb, 16, 256, SWIZZLE_32B);
        wait(once, 0);
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
            wgmma_fence();
            wgmma(d, descriptor(sa[t % 2], 16, 256, SWIZZLE_32B), db);  //!
            wgmma_commit();
            barrier(1, 128);  //-
            if (T == 0) arrive(empty[t % 2]);  //-!
            wgmma_wait<0>();
            for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
            barrier(1, 128);  //+
            if (T == 0) arrive(empty[t % 2]);  //+
        }
        for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
    }
}

//@ proxies | proxy | 1, 32 | u32[32], f16[512]=0 | stmatrix writes the tile of a store by TMA with no fence between them
extern "C" __global__ void stmatrix_then_store(const u32* x, __half* y) {
    __shared__ __align__(128) __half s[4 * 64];
    u32 v = x[T];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(shared(s + 8 * T)), "r"(v) : "memory");  //!
    fence_async_shared();  //+
    __syncwarp();
    if (T == 0) {
        bulk_store(y, s, 512);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | asynchronous copy/race/uninitialised | 1, 64 | f32[64], f32[64], f32[64]=0 | each operand has a barrier of its own, and only the first is waited for
extern "C" __global__ void second_barrier_not_waited(const float* a, const float* b, float* y) {
    __shared__ __align__(128) float sa[64], sb[64];
    __shared__ u64 bars[2];
    if (T == 0) {
        init(bars[0], 1), init(bars[1], 1), fence_init();
        arrive_expect(bars[0], 256), bulk_load(sa, a, 256, bars[0]);
        arrive_expect(bars[1], 256), bulk_load(sb, b, 256, bars[1]);  //!
    }
    __syncthreads();
    wait(bars[0], 0);
    wait(bars[1], 0);  //+
    y[T] = sa[T] + sb[T];  //!
}

//@ transactions | barrier/deadlock/mbarrier/asynchronous copy/uninitialised | 1, 64 | f32[64], f32[128], f32[64]=0 | the bytes of two operands are swapped between their barriers
extern "C" __global__ void bytes_swapped(const float* a, const float* b, float* y) {
    __shared__ __align__(128) float sa[64], sb[128];
    __shared__ u64 bars[2];
    u32 bytes_a = 512, bytes_b = 256;  //-
    u32 bytes_a = 256, bytes_b = 512;  //+
    if (T == 0) {
        init(bars[0], 1), init(bars[1], 1), fence_init();
        arrive_expect(bars[0], bytes_a), bulk_load(sa, a, 256, bars[0]);  //!
        arrive_expect(bars[1], bytes_b), bulk_load(sb, b, 512, bars[1]);  //!
    }
    __syncthreads();
    wait(bars[0], 0);  //!
    wait(bars[1], 0);  //!
    y[T] = sa[T] + sb[T];
}

//@ transactions | asynchronous copy/race/mbarrier/barrier/deadlock/uninitialised | 1, 64 | f32[384], f32[384]=0 | a persistent kernel begins every tile with parity 0, though a tile has three steps
extern "C" __global__ void parity_begins_anew(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    u32 parity = 0;
    REPEAT(tile, 2) {
        parity = 0;  //-
        REPEAT(k, 3) {
            int t = 3 * tile + k;
            if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
            wait(bar, parity);  //!
            parity ^= 1;
            y[64 * t + T] = s[T];  //!
            fence_async_shared();
            __syncthreads();
        }
    }
}

//@ transactions | mbarrier/race/asynchronous copy/barrier | 1, 160 | f32[512], f32[512]=0 | empty counts the four warps, and every thread arrives
extern "C" __global__ void threads_arrive_for_warps(const float* x, float* y) {
    __shared__ __align__(128) float s[2][128];
    __shared__ u64 full[2], empty[2];
    make_ring(full, empty, 4);
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 512);
                bulk_load(s[t % 2], x + 128 * t, 512, full[t % 2]);  //!
            }
    } else {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            y[128 * t + T] = s[t % 2][T];  //!
            __syncwarp();
            arrive(empty[t % 2]);  //-!
            if (LANE == 0) arrive(empty[t % 2]);  //+
        }
    }
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[256], f32[256]=0 | the producer makes one tile less than the consumer waits for
extern "C" __global__ void one_tile_less(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    make_ring(full, empty, 32);
    int tiles = 3;  //-
    int tiles = 4;  //+
    if (T == 32) {
        REPEAT(t, tiles) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 256);
            bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);  //!
            y[64 * t + T] = s[t % 2][T] + s[t % 2][T + 32];
            arrive(empty[t % 2]);
        }
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[128], f32[128]=0 | one thread has waited until the tile was read, and the others write it again without a barrier
extern "C" __global__ void read_wait_not_shared(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    REPEAT(t, 2) {
        s[T] = x[64 * t + T];  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_store(y + 64 * t, s, 256);  //!
            bulk_commit();
            bulk_wait_read<0>();
        }
        __syncthreads();  //+
    }
    if (T == 0) bulk_wait<0>();
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | stages are closer together than a tile is long: a copy reaches into the next stage
extern "C" __global__ void stages_overlap(const float* x, float* y) {
    __shared__ __align__(128) float s[256];
    __shared__ u64 full[2];
    int pitch = 96;  //-
    int pitch = 128;  //+
    if (T == 0) {
        init(full[0], 1), init(full[1], 1), fence_init();
        for (int i = 0; i < 2; i++) arrive_expect(full[i], 512), bulk_load(s + pitch * i, x + 128 * i, 512, full[i]);  //!
    }
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        wait(full[i], 0);
        y[128 * i + T] = s[pitch * i + T];  //!
        y[128 * i + T + 64] = s[pitch * i + T + 64];  //!
    }
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f32[128], f32[64]=0 | cp.async.mbarrier.arrive stands before the second copy, which it does not cover
extern "C" __global__ void arrives_before_last_copy(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 bar;
    MAKE(bar, 64)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(s + T)), "l"(x + T) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");  //-
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(s + 64 + T)), "l"(x + 64 + T) : "memory");  //!
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");  //+
    wait(bar, 0);
    y[T] = s[63 - T] + s[127 - T];  //!
}

//@ wgmma | wgmma | 1, 128 | f16[1024], f16[128], f32[512]=0 | wait_group 1 before the sums are stored: the last group may still be at work
extern "C" __global__ void epilogue_after_wait_one(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[64 * 16], sb[8 * 16];
    for (int i = T; i < 1024; i += 128) sa[i] = a[i];
    sb[T] = b[T];
    fence_async_shared();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<1>();  //-
    wgmma_wait<0>();  //+
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");  //!
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];  //!
}

//@ TMA | race/asynchronous copy/proxy | 1, 256 | f32[256], f32[256]=0 | two warpgroups use one buffer for their stores, and nothing orders them
extern "C" __global__ void buffer_of_two_warpgroups(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 order;
    MAKE(order, 128)
    int group = T / 128, t = T % 128;
    if (group == 1) wait(order, 0);  //+
    s[t] = x[T];  //!
    fence_async_shared();
    barrier(1 + group, 128);
    if (t == 0) {
        bulk_store(y + 128 * group, s, 512);  //!
        bulk_commit();
        bulk_wait_read<0>();
    }
    barrier(1 + group, 128);
    if (group == 0) arrive(order);
    if (t == 0) bulk_wait<0>();
}

//@ mbarrier | - | 1, 64 | f32[64], f32[64]=0 | what a lane wrote comes back to its neighbour by way of another warp: right
extern "C" __global__ void back_by_another_warp(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 there, back;
    if (T == 0) init(there, 32), init(back, 32);
    __syncthreads();
    if (WARP == 0) {
        s[T] = x[T];
        arrive(there);
        wait(back, 0);
        y[T] = s[31 - T];
    } else {
        wait(there, 0);
        arrive(back);
    }
}
