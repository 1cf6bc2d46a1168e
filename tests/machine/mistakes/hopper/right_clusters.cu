//@arch sm_90a
// Right kernels of clusters in the styles of public Hopper code. Nothing is to be found in them.
#include "instructions.cuh"
#define RANK cluster_rank()
#define OTHER (cluster_rank() ^ 1)
#define MAKE(bar, count)                        \
    if (T == 0) init(bar, count), fence_init(); \
    cluster_sync();

//@ clusters | - | 2, 64, cluster 2 | f32[256], f32[512]=0 | one block multicasts; both release its stage by remote arrivals; a cluster barrier ends it
extern "C" __global__ void multicast_remote_release(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 2);
        fence_init();
    }
    cluster_sync();
    REPEAT(t, 4) {
        int stage = t % 2;
        if (T == 0) {
            arrive_expect(full[stage], 256);
            if (RANK == 0) {
                wait_cluster(empty[stage], t / 2 + 1 & 1);
                load_multicast(s[stage], x + 64 * t, 256, full[stage], 3);
            }
        }
        wait_cluster(full[stage], t / 2 & 1);
        y[256 * blockIdx.x + 64 * t + T] = s[stage][T];
        __syncthreads();
        if (T == 0) arrive_cluster(mapa(&empty[stage], 0));
    }
    cluster_sync();
}

//@ clusters | - | 2, 96, cluster 2 | map f32[32x32] 4x32, f32[2048]=0 | each block multicasts its half of a tile to both; consumers release in both blocks; the producer drains before it leaves
extern "C" __global__ void multicast_halves_drained(MAP map, float* y) {
    __shared__ __align__(128) float s[2][256];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 4);
        fence_init();
    }
    cluster_sync();
    if (WARP == 2) {
        if (LANE == 0) {
            REPEAT(t, 4) {
                wait_cluster(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 1024);
                load_2d_multicast(s[t % 2] + 128 * RANK, &map, 0, 8 * t + 4 * RANK, full[t % 2], 3);
            }
            for (int t = 4; t < 6; t++) wait_cluster(empty[t % 2], t / 2 + 1 & 1);
        }
    } else {
        REPEAT(t, 4) {
            wait_cluster(full[t % 2], t / 2 & 1);
            for (int i = T; i < 256; i += 64) y[1024 * blockIdx.x + 256 * t + i] = s[t % 2][i];
            __syncwarp();
            if (LANE < 2) arrive_cluster(mapa(&empty[t % 2], LANE));
        }
    }
}

//@ clusters | - | 2, 64, cluster 2 | u32[128], u32[128]=0 | st.async into the other block, whose barrier counts the bytes
extern "C" __global__ void store_async_exchange(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256);
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[63 - T];
    cluster_sync();
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | a bulk copy into the other block's shared memory
extern "C" __global__ void copy_to_other_block(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar;
    from[T] = x[64 * blockIdx.x + T];
    fence_async();
    MAKE(bar, 1)
    if (T == 0) {
        arrive_expect(bar, 256);
        copy_cluster(mapa(to, OTHER), from, 256, mapa(&bar, OTHER));
    }
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = to[63 - T];
    cluster_sync();
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | data is stored into the other block, then announced by a remote arrival that releases it
extern "C" __global__ void remote_store_and_arrive(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    store_cluster(mapa(s + T, OTHER), x[64 * blockIdx.x + T]);
    arrive_cluster(mapa(&bar, OTHER));
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[63 - T];
    cluster_sync();
}

//@ clusters | - | 4, 32, cluster 4 | f32[128], f32[128]=0 | a ring of four blocks: each passes what it has to the next, with the cluster's barrier split in two
extern "C" __global__ void cluster_ring(const float* x, float* y) {
    __shared__ float s[2][32];
    s[0][T] = x[32 * blockIdx.x + T];
    float sum = 0;
    REPEAT(t, 4) {
        cluster_arrive();
        sum += x[32 * blockIdx.x + (T + t) % 32];
        cluster_wait();
        sum += s[t % 2][T];
        if (t < 3) store_cluster(mapa(s[(t + 1) % 2] + T, (RANK + 1) % 4), s[t % 2][T]);
    }
    cluster_sync();
    y[32 * blockIdx.x + T] = sum;
}

//@ clusters | - | 2, 160, cluster 2 | map f16[128x128] 64x64 128B, map f16[8x128] 8x64 128B, f32[1024]=0 | a GEMM of two blocks that share B: each has its own A; the first one multicasts B; consumers release in the first block
extern "C" __global__ void gemm_multicast_b(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 2);
        fence_init();
    }
    cluster_sync();
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 2) {
                wait_cluster(empty[t], 1);
                arrive_expect(full[t], 8192 + 1024);
                load_2d(a[t], &ma, 64 * t, 64 * RANK, full[t]);
                if (RANK == 0) load_2d_multicast(b[t], &mb, 64 * t, 0, full[t], 3);
            }
    } else {
        float d[4] = {};
        REPEAT(t, 2) {
            wait_cluster(full[t], 0);
            wgmma_fence();
            for (int k = 0; k < 4; k++) wgmma(d, swizzled(a[t] + 16 * k), swizzled(b[t] + 16 * k));
            wgmma_commit();
            wgmma_wait<0>();
            if (T < 2) arrive_cluster(mapa(&empty[t], T));
        }
        for (int i = 0; i < 4; i++) y[512 * blockIdx.x + T * 4 + i] = d[i];
    }
    __syncwarp();
    cluster_sync();
}

//@ clusters | - | 4, 64, cluster 4 | f32[256], f32[256]=0 | lanes of one warp arrive in all blocks at once, and each block then gives its mbarrier up
extern "C" __global__ void arrivals_in_all_blocks_at_once(const float* x, float* y) {
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (RANK == 1 && T < 4) arrive_cluster(mapa(&bar, T));
    wait_cluster(bar, 0);
    __syncthreads();
    if (T == 0) inval(bar);
    y[64 * blockIdx.x + T] = x[64 * blockIdx.x + T];
    cluster_sync();
}

//@ clusters | - | 2, 64, cluster 2 | u32[128], u32[128]=0 | st.async over what plain stores wrote: both are of the generic proxy, and need no fence
extern "C" __global__ void store_async_after_plain_accesses(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    s[T] = T;
    MAKE(bar, 1)
    const u32 before = s[63 - T];
    cluster_sync();
    if (T == 0) arrive_expect(bar, 256);
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[63 - T] + before;
    cluster_sync();
}
