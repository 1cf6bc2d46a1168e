//@arch sm_90a
// wgmma: accumulators and operands in flight, fences, groups, warpgroups, descriptors.
#include "instructions.cuh"
// Fills a tile of N halves with ordinary stores that the asynchronous proxy sees behind the next barrier.
#define FILL(tile, n, from)                                         \
    for (int i = T; i < n; i += blockDim.x) tile[i] = from[i];      \
    fence_async_shared();
#define STORE(y, d) \
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512]=0 | the sums are stored before the group was waited for
extern "C" __global__ void wgmma_read_before_wait(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();  //+
    y[T] = d[0];  //!
    wgmma_wait<0>();  //-
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512]=0 | the sums are scaled while the group is in flight
extern "C" __global__ void wgmma_scaled_in_flight(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();  //+
    float e[4];
    for (int i = 0; i < 4; i++) asm volatile("mul.f32 %0, %1, 0f40000000;" : "=f"(e[i]) : "f"(d[i]));  //!
    wgmma_wait<0>();  //-
    STORE(y, e)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[1024]=0 | one group may still be in flight, and its sums are stored
extern "C" __global__ void wgmma_waits_for_first_group(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {}, e[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));
    wgmma_commit();
    wgmma(e, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<1>();
    STORE(y, d)
    wgmma_wait<0>();  //+
    STORE((y + 512), e)  //!
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512]=0 | no commit_group: wait_group has nothing to wait for
extern "C" __global__ void wgmma_no_commit(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();  //+
    wgmma_wait<0>();
    STORE(y, d)  //!
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512], f32[512]=0 | sums are loaded into registers with no wgmma.fence before wgmma
extern "C" __global__ void wgmma_no_fence(const __half* a, const __half* b, const float* c, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = c[T * 4 + i];  //!
    wgmma_fence();  //+
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512]=0 | the sums are scaled between two groups with no fence before the second
extern "C" __global__ void wgmma_no_second_fence(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    REPEAT(t, 2) {
        wgmma(d, plain(sa), plain(sb));  //!
        wgmma_commit();
        wgmma_wait<0>();
        for (int i = 0; i < 4; i++) d[i] *= 0.5f;  //!
        wgmma_fence();  //+
    }
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | u32[512], f16[128], f32[512]=0 | A in registers: loaded again with no fence before the second wgmma
extern "C" __global__ void wgmma_a_registers_no_fence(const u32* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sb[128];
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    u32 r[4];
    REPEAT(t, 2) {
        for (int i = 0; i < 4; i++) r[i] = a[(T * 4 + i + t) % 512] & 0x3bff3bff;  //!
        if (t == 0) wgmma_fence();  //-
        wgmma_fence();  //+
        wgmma(d, r, plain(sb));  //!
        wgmma_commit();
        wgmma_wait<0>();
    }
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[1024], f16[128], f32[512]=0 | the sums of one product are the A registers of the next before they are there
extern "C" __global__ void wgmma_chained_too_early(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {}, e[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();  //+
    u32 p[4];
    for (int i = 0; i < 4; i++) p[i] = __float_as_uint(d[i]) >> 16 & 0x3fff;  //!
    wgmma_fence();
    wgmma(e, p, plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, e)
}

//@ wgmma | warpgroup/wgmma/divergence/barrier/deadlock | 1, 128 | f16[1024], f16[128], f32[512]=0 | three of the four warps of the warpgroup multiply
extern "C" __global__ void wgmma_three_warps(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    int warps = 3;  //-
    int warps = 4;  //+
    float d[4] = {};
    if (WARP < warps) {
        wgmma_fence();  //!
        wgmma(d, plain(sa), plain(sb));  //!
        wgmma_commit();  //!
        wgmma_wait<0>();  //!
    }
    STORE(y, d)
}

//@ wgmma | warpgroup/wgmma/divergence/barrier/deadlock | 1, 256 | f16[1024], f16[128], f32[1024]=0 | warps 2 to 5 multiply: four warps, but no warpgroup
extern "C" __global__ void wgmma_split_warpgroup(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    bool mine = WARP >= 2 && WARP < 6;  //-
    bool mine = WARP >= 4;  //+
    float d[4] = {};
    if (mine) {
        wgmma_fence();  //!
        wgmma(d, plain(sa), plain(sb));  //!
        wgmma_commit();  //!
        wgmma_wait<0>();  //!
    }
    STORE(y, d)
}

//@ wgmma | warpgroup/wgmma/divergence/barrier/deadlock | 1, 128 | f16[1024], f16[128], f32[512]=0 | half of the lanes of a warp multiply
extern "C" __global__ void wgmma_half_warp(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    if (T % 32 < 16)  //-
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race/divergence | 1, 128 | f16[1024], f16[128], f32[512]=0 | only the first warp waits for the group
extern "C" __global__ void wgmma_one_warp_waits(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    if (WARP == 0)  //-
    wgmma_wait<0>();  //!
    __syncthreads();
    STORE(y, d)  //!
}

//@ wgmma | warpgroup/divergence | 1, 128 | f16[1024], f16[128], f32[512]=0 | each warp names its own 16 rows: a descriptor is one for the whole warpgroup
extern "C" __global__ void wgmma_descriptor_per_warp(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[2048], sb[128];
    for (int i = T; i < 2048; i += 128) sa[i] = a[i % 1024];
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa + 256 * WARP), plain(sb));  //-!
    wgmma(d, plain(sa), plain(sb));  //+
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | uninitialised | 1, 128 | f16[1024], f16[128], f32[512]=0 | the last rows of A were never written
extern "C" __global__ void wgmma_reads_unwritten(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 896, a)  //-
    FILL(sa, 1024, a)  //+
    FILL(sb, 128, b)
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | out of bounds/uninitialised | 1, 128 | f16[1024], f16[128], f32[512]=0 | a stride of 1024 bytes between 8 × 8 matrices leads past the tile
extern "C" __global__ void wgmma_stride_too_large(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    u32 stride = 1024;  //-
    u32 stride = 256;  //+
    float d[4] = {};
    wgmma_fence();
    wgmma(d, descriptor(sa, 128, stride), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | out of bounds/uninitialised | 1, 128 | f16[2048], f16[256], f32[512]=0 | the second step along K is taken in bytes where the descriptor counts units of 16
extern "C" __global__ void wgmma_step_in_bytes(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[2048], sb[256];
    FILL(sa, 2048, a)
    FILL(sb, 256, b)
    __syncthreads();
    u64 step_a = 2048, step_b = 256;  //-
    u64 step_a = 2048 >> 4, step_b = 256 >> 4;  //+
    float d[4] = {};
    wgmma_fence();
    for (int k = 0; k < 2; k++) wgmma(d, plain(sa) + k * step_a, plain(sb) + k * step_b);  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | wgmma/swizzle/proxy | 1, 128 | map f16[64x64] 64x64 128B, map f16[8x64] 8x64 128B, f32[512]=0 | TMA writes with swizzle 128B, the descriptor reads with 64B
extern "C" __global__ void wgmma_other_swizzle(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half sa[4096], sb[512];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 9216), load_2d(sa, &ma, 0, 0, bar), load_2d(sb, &mb, 0, 0, bar);  //!
    wait(bar, 0);
    float d[4] = {};
    wgmma_fence();
    wgmma(d, descriptor(sa, 16, 1024, SWIZZLE_64B), descriptor(sb, 16, 1024, SWIZZLE_64B));  //-!
    wgmma(d, swizzled(sa), swizzled(sb));  //+
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | wgmma/swizzle/proxy | 1, 128 | map f16[64x64] 64x64, map f16[8x64] 8x64, map f16[64x64] 64x64 128B, map f16[8x64] 8x64 128B, f32[512]=0 | TMA writes plain rows, the descriptor reads with swizzle 128B
extern "C" __global__ void wgmma_swizzle_of_plain_rows(MAP plain_a, MAP plain_b, MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half sa[4096], sb[512];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 9216), load_2d(sa, &plain_a, 0, 0, bar), load_2d(sb, &plain_b, 0, 0, bar);  //-!
    if (T == 0) arrive_expect(bar, 9216), load_2d(sa, &ma, 0, 0, bar), load_2d(sb, &mb, 0, 0, bar);  //+
    wait(bar, 0);
    float d[4] = {};
    wgmma_fence();
    wgmma(d, swizzled(sa), swizzled(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race/proxy | 1, 128 | f16[2048], f16[128], f32[512]=0 | the next tile is stored over A before the group was waited for
extern "C" __global__ void wgmma_operand_overwritten(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sb, 128, b)
    float d[4] = {};
    REPEAT(t, 2) {
        for (int i = T; i < 1024; i += 128) sa[i] = a[1024 * t + i];  //!
        fence_async_shared();
        __syncthreads();
        wgmma_fence();
        wgmma(d, plain(sa), plain(sb));  //!
        wgmma_commit();
        wgmma_wait<0>();  //+
        __syncthreads();
    }
    wgmma_wait<0>();  //-
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 128 | f16[2048], f16[128], f32[512]=0 | the next tile is copied over A by TMA before the group was waited for
extern "C" __global__ void wgmma_operand_refilled(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    FILL(sb, 128, b)
    float d[4] = {};
    REPEAT(t, 2) {
        __syncthreads();
        if (T == 0) arrive_expect(bar, 2048), bulk_load(sa, a + 1024 * t, 2048, bar);  //!
        wait(bar, t);
        wgmma_fence();
        wgmma(d, plain(sa), plain(sb));  //!
        wgmma_commit();
        wgmma_wait<0>();  //+
    }
    wgmma_wait<0>();  //-
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 160 | f16[8192], f16[128], f32[512]=0 | a consumer releases the stage before its products are done
extern "C" __global__ void wgmma_released_early(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[2][1024], sb[128];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 1);
        fence_init();
    }
    FILL(sb, 128, b)
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 8) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 2048);
                bulk_load(sa[t % 2], a + 1024 * t, 2048, full[t % 2]);  //!
            }
        return;
    }
    float d[4] = {};
    REPEAT(t, 8) {
        wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        wgmma(d, plain(sa[t % 2]), plain(sb));  //!
        wgmma_commit();
        if (T == 0) arrive(empty[t % 2]);  //-
        wgmma_wait<0>();
        if (T == 0) arrive(empty[t % 2]);  //+
    }
    STORE(y, d)
}

//@ wgmma | wgmma/asynchronous copy/race | 1, 160 | f16[8192], f16[128], f32[512]=0 | one group stays in flight, but its own stage is released in place of the one before
extern "C" __global__ void wgmma_released_one_early(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[3][1024], sb[128];
    __shared__ u64 full[3], empty[3];
    if (T == 0) {
        for (int i = 0; i < 3; i++) init(full[i], 1), init(empty[i], 1);
        fence_init();
    }
    FILL(sb, 128, b)
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 8) {
                wait(empty[t % 3], t / 3 + 1 & 1);
                arrive_expect(full[t % 3], 2048);
                bulk_load(sa[t % 3], a + 1024 * t, 2048, full[t % 3]);  //!
            }
        return;
    }
    float d[4] = {};
    REPEAT(t, 8) {
        wait(full[t % 3], t / 3 & 1);
        wgmma_fence();
        wgmma(d, plain(sa[t % 3]), plain(sb));  //!
        wgmma_commit();
        wgmma_wait<1>();
        if (T == 0) arrive(empty[t % 3]);  //-
        if (T == 0 && t > 0) arrive(empty[(t - 1) % 3]);  //+
    }
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | asynchronous copy/race/uninitialised | 1, 128 | map f16[64x64] 64x64 128B, map f16[8x64] 8x64 128B, f32[512]=0 | the products begin before the tiles are there
extern "C" __global__ void wgmma_before_tiles(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half sa[4096], sb[512];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (T == 0) arrive_expect(bar, 9216), load_2d(sa, &ma, 0, 0, bar), load_2d(sb, &mb, 0, 0, bar);  //!
    __syncthreads();  //-
    wait(bar, 0);  //+
    float d[4] = {};
    wgmma_fence();
    for (int k = 0; k < 4; k++) wgmma(d, swizzled(sa + 16 * k), swizzled(sb + 16 * k));  //!
    wgmma_commit();
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | uninitialised | 1, 128 | f16[1024], f16[128], f32[512]=0 | the sums begin with what happened to be in their registers
extern "C" __global__ void wgmma_sums_unset(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    FILL(sa, 1024, a)
    FILL(sb, 128, b)
    __syncthreads();
    float d[4];
    asm volatile("{ .reg .f32 d0, d1, d2, d3;\n"
                 "wgmma.fence.sync.aligned;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0, d1, d2, d3}, %4, %5, 1, 1, 1, 0, 0;\n"  //-!
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0, d1, d2, d3}, %4, %5, 0, 1, 1, 0, 0;\n"  //+
                 "wgmma.commit_group.sync.aligned;\n"
                 "wgmma.wait_group.sync.aligned 0;\n"
                 "mov.f32 %0, d0; mov.f32 %1, d1; mov.f32 %2, d2; mov.f32 %3, d3; }"  //!
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "l"(plain(sa)), "l"(plain(sb)) : "memory");  //!
    STORE(y, d)  //!
}
