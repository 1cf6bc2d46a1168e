//@arch sm_90a
// Right kernels: copies and epilogues in the styles of public Hopper code. Nothing is to be found in them.
#include "instructions.cuh"
#define ROWS 8
#define COLS 32
#define BYTES (ROWS * COLS * 4)
#define MAKE(bar, count)                        \
    if (T == 0) init(bar, count), fence_init(); \
    __syncthreads();

//@ TMA | - | 1, 64 | f32[64], f32[64]=0 | in, changed in place, out: a fence before the barrier, wait_group.read by the thread that committed
extern "C" __global__ void in_place_and_out(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    s[T] += 1;
    fence_async_shared();
    __syncthreads();
    if (T == 0) bulk_store(y, s, 256), bulk_commit(), bulk_wait_read<0>();
}

//@ TMA | - | 1, 64 | f32[64], f32[64]=0 | all threads arrive, and the one that copies expects the bytes
extern "C" __global__ void all_arrive(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    if (T == 0) bulk_load(s, x, 256, bar), arrive_expect(bar, 256);
    else arrive(bar);
    while (!try_wait(bar, 0)) __nanosleep(20);
    y[T] = s[63 - T];
}

//@ TMA | - | 1, 64 | f32[256], f32[256]=0 | one buffer, read by its threads and filled again behind a fence between the proxies and __syncthreads
extern "C" __global__ void refill_after_reads(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    REPEAT(t, 4) {
        if (T == 0) expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar), arrive(bar);
        wait(bar, t & 1);
        y[64 * t + T] = s[63 - T];
        fence_async_shared();
        __syncthreads();
    }
}

//@ TMA | - | 1, 32 | f32[1024], i32[32]%7, f32[1024]=0 | a gather: each lane copies one row; the warp waits for them all
extern "C" __global__ void gather_rows(const float* x, const int* rows, float* y) {
    __shared__ __align__(128) float s[32][32];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init(), arrive_expect(bar, 4096);
    __syncwarp();
    bulk_load(s[T], x + 32 * rows[T], 128, bar);
    wait(bar, 0);
    for (int i = 0; i < 32; i++) y[32 * i + T] = s[i][T];
}

//@ TMA | - | 1, 64 | map f32[6x40] 8x32, f32[256]=0 | a halo: a negative coordinate and rows past the end are zeros, and count as bytes
extern "C" __global__ void halo(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, BYTES), load_2d(s, &map, -4, -1, bar);
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ TMA | - | 1, 64 | map f16[64x64] 64x64 128B, f16[4096]=0 | a swizzled tile is read by threads that undo the swizzle
extern "C" __global__ void swizzled_tile_read(MAP map, __half* y) {
    __shared__ __align__(1024) __half s[4096];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 8192), load_2d(s, &map, 0, 0, bar);
    wait(bar, 0);
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < 8; i++) y[64 * T + 8 * c + i] = s[64 * T + 8 * (c ^ T % 8) + i];
}

//@ TMA | - | 1, 64 | map f32[2x8x32] 1x8x32, map f32[2x8x32]=0 1x8x32 | slices of three dimensions, in and out through the same buffers by TMA alone
extern "C" __global__ void slices_in_and_out(MAP from, MAP to) {
    __shared__ __align__(128) float s[2][ROWS * COLS];
    __shared__ u64 bar[2];
    if (T == 0) {
        init(bar[0], 1), init(bar[1], 1), fence_init();
        for (int z = 0; z < 2; z++) arrive_expect(bar[z], BYTES), load_3d(s[z], &from, 0, 0, z, bar[z]);
        for (int z = 0; z < 2; z++) {
            wait(bar[z], 0);
            store_3d(&to, 0, 0, z, s[z]);
            bulk_commit();
        }
        bulk_wait<0>();
    }
}

//@ TMA | - | 1, 64 | f32[256], f32[256]=0 | two buffers of an epilogue: wait_group.read 1 before the older one is written again
extern "C" __global__ void two_store_buffers(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    REPEAT(t, 4) {
        if (T == 0) bulk_wait_read<1>();
        __syncthreads();
        s[t % 2][T] = x[64 * t + T];
        fence_async_shared();
        __syncthreads();
        if (T == 0) bulk_store(y + 64 * t, s[t % 2], 256), bulk_commit();
    }
    if (T == 0) bulk_wait_read<0>();
}

//@ TMA | - | 1, 128 | f32[512], f32[512]=0 | each warp stores its own part: fence, __syncwarp, one lane copies and waits
extern "C" __global__ void store_by_warps(const float* x, float* y) {
    __shared__ __align__(128) float s[4][128];
    for (int i = LANE; i < 128; i += 32) s[WARP][i] = x[128 * WARP + i];
    fence_async_shared();
    __syncwarp();
    if (elect()) bulk_store(y + 128 * WARP, s[WARP], 512), bulk_commit(), bulk_wait_read<0>();
    __syncwarp();
    s[WARP][LANE] = 0;
}

//@ TMA | - | 4, 64 | f32[256], f32[64]=0 | blocks add to one row of sums by TMA
extern "C" __global__ void reduce_from_blocks(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[64 * blockIdx.x + T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) bulk_add(y, s, 256), bulk_commit(), bulk_wait_read<0>();
}

//@ TMA | - | 2, 64 | map f32[8x32]=0 8x32, f32[256] | split-K: blocks add tiles to one tile by TMA
extern "C" __global__ void reduce_tiles(MAP map, const float* x) {
    __shared__ __align__(128) float s[ROWS * COLS];
    for (int i = T; i < 256; i += 64) s[i] = x[i];
    fence_async_shared();
    __syncthreads();
    if (T == 0) add_2d(&map, 0, 0, s), bulk_commit(), bulk_wait_read<0>();
}

//@ TMA | - | 1, 64 | f32[64], f32[64]=0, f32[64]=0 | what TMA has stored is read by all threads behind the full wait_group of the one that committed
extern "C" __global__ void store_then_read_back(const float* x, float* y, float* z) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) bulk_store(y, s, 256), bulk_commit(), bulk_wait<0>();
    __syncthreads();
    z[T] = y[63 - T];
}

//@ proxies | - | 1, 64 | f32[64]=0, f32[64]=0 | global memory stored to by threads, fenced in each of them, copied in by TMA
extern "C" __global__ void global_and_back(float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    x[T] = T;
    fence_async();
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    y[T] = s[63 - T];
}

//@ proxies | - | 1, 128 | u32[128], map u32[32x4]=0 32x4 | an epilogue of stmatrix: fence in each thread, named barrier, one thread stores by TMA
extern "C" __global__ void stmatrix_epilogue(const u32* x, MAP map) {
    __shared__ __align__(128) u32 s[32 * 4];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared(s + 32 * WARP + LANE % 8 * 4)), "r"(x[T]) : "memory");
    fence_async_shared();
    barrier(2, 128);
    if (T == 64) store_2d(&map, 0, 0, s), bulk_commit(), bulk_wait_read<0>();
}

//@ proxies | - | 1, 128 | f16[1024], f16[128], f32[512]=0 | operands by cp.async: wait, fence in each thread, barrier, wgmma
extern "C" __global__ void cp_async_then_wgmma(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(sa + T * 8)), "l"(a + T * 8) : "memory");
    if (T < 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(sb + T * 8)), "l"(b + T * 8) : "memory");
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    fence_async_shared();
    __syncthreads();
    float d[4];
    wgmma_fence();
    wgmma_first(d, plain(sa), plain(sb));
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ transactions | - | 1, 64 | f32[64], f32[128], f32[64]=0 | copies of threads and of TMA complete one barrier
extern "C" __global__ void mixed_copies(const float* x, const float* z, float* y) {
    __shared__ __align__(128) float s[64], t[128];
    __shared__ u64 bar;
    MAKE(bar, 65)
    if (T == 0) arrive_expect(bar, 512), bulk_load(t, z, 512, bar);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(s + T)), "l"(x + T) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");
    wait(bar, 0);
    y[T] = s[63 - T] + t[127 - T];
}

//@ transactions | - | 1, 64 | f32[64], f32[64]=0 | the barrier is given up, and its memory holds numbers from then on
extern "C" __global__ void memory_after_inval(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    u64& bar = *reinterpret_cast<u64*>(s);
    __shared__ __align__(128) float tile[64];
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(tile, x, 256, bar);
    wait(bar, 0);
    __syncthreads();
    if (T == 0) inval(bar);
    __syncthreads();
    s[T] = tile[T];
    __syncthreads();
    y[T] = s[63 - T];
}

//@ transactions | - | 1, 96 | f32[512], f32[512]=0 | a ring of four stages: phases in a mask of bits, consumers of two warps that release warp by warp
extern "C" __global__ void ring_of_four(const float* x, float* y) {
    __shared__ __align__(128) float s[4][64];
    __shared__ u64 full[4], empty[4];
    if (T < 4) init(full[T], 1), init(empty[T], 2), fence_init();
    __syncthreads();
    u32 phases = WARP == 2 ? 0xf : 0;
    REPEAT(t, 8) {
        int stage = t % 4;
        if (WARP == 2) {
            wait(empty[stage], phases >> stage & 1);
            if (LANE == 0) arrive_expect(full[stage], 256), bulk_load(s[stage], x + 64 * t, 256, full[stage]);
        } else {
            wait(full[stage], phases >> stage & 1);
            y[64 * t + T] = s[stage][T];
            __syncwarp();
            if (LANE == 0) arrive(empty[stage]);
        }
        phases ^= 1 << stage;
    }
}

//@ transactions | - | 1, 64 | f32[64], f32[64]=0 | a time limit, cache hints and prefetches
extern "C" __global__ void hints(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) {
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], 256;" ::"l"(x) : "memory");
        arrive_expect(bar, 256);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], 256, [%2], %3;" ::"r"(shared(s)), "l"(x), "r"(shared(&bar)), "l"(policy) : "memory");
    }
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0, 1000; @p bra D; bra L; D: }" ::"r"(shared(&bar)) : "memory");
    y[T] = s[T];
}

//@ transactions | - | 1, 64 | f32[64], f32[64]=0 | the phase's own token is waited for, as cuda::barrier does
extern "C" __global__ void token_wait(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    u64 token;
    if (T == 0) {
        bulk_load(s, x, 256, bar);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], 256;" : "=l"(token) : "r"(shared(&bar)) : "memory");
    } else {
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(shared(&bar)) : "memory");
    }
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D: }" ::"r"(shared(&bar)), "l"(token) : "memory");
    y[T] = s[63 - T];
}

//@ TMA | - | 1, 128 | f32[128], f32[128]=0 | the bytes of a tail: 16 of them at a time by TMA, the rest by threads
extern "C" __global__ void tail_by_threads(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 bar;
    MAKE(bar, 1)
    int n = 101, whole = n / 4 * 4;
    if (T == 0) arrive_expect(bar, 4 * whole), bulk_load(s, x, 4 * whole, bar);
    if (T >= whole && T < n) s[T] = x[T];
    wait(bar, 0);
    __syncthreads();
    if (T < n) y[T] = s[n - 1 - T];
}
