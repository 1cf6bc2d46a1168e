//@arch sm_90a
// Pipelines of clusters: masks of multicast, releases in other blocks, the cluster's barrier, the end of a block.
#include "instructions.cuh"


//@ clusters | barrier/deadlock/mbarrier/cluster | 2, 32, cluster 2 | f32[64], f32[128]=0 | the mask of the multicast leaves out the block that waits for it
extern "C" __global__ void multicast_mask_lacks_block(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    if (T == 0) init(bar, 1), fence_init(), arrive_expect(bar, 256);
    cluster_sync();
    u32 mask = 1;  //-
    u32 mask = 3;  //+
    if (rank == 0 && T == 0) load_multicast(s, x, 256, bar, mask);  //!
    wait(bar, 0);  //!
    y[64 * rank + T] = s[T] + s[T + 32];
    cluster_sync();
}

//@ clusters | asynchronous copy/race/mbarrier/cluster | 2, 64, cluster 2 | f32[256], f32[256]=0 | the consumers of the second block release their own barrier, not that of the producer
extern "C" __global__ void released_at_home(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    u32 rank = cluster_rank();
    if (T == 0) {
        init(full, 1), fence_init();
        init(empty, 32);  //-
        init(empty, 64);  //+
        fence_init();
    }
    cluster_sync();
    if (T == 32) {
        REPEAT(t, 2) {
            if (rank == 0) wait_cluster(empty, t + 1 & 1);
            arrive_expect(full, 256);
            if (rank == 0) load_multicast(s, x + 64 * t, 256, full, 3);  //!
            if (rank == 1) wait(full, t);
        }
    } else if (T < 32) {
        REPEAT(t, 2) {
            wait(full, t);
            y[128 * rank + 64 * t + T] = s[T];  //!
            arrive(empty);  //-!
            arrive_cluster(mapa(&empty, 0));  //+
        }
    }
    cluster_sync();
}

//@ clusters | race/cluster/uninitialised | 2, 32, cluster 2 | f32[64], f32[64]=0 | the arrival at the cluster's barrier is relaxed: it publishes nothing of the tile
extern "C" __global__ void relaxed_arrival(const float* x, float* y) {
    __shared__ float s[32];
    u32 rank = cluster_rank();
    s[T] = x[32 * rank + T];  //!
    cluster_arrive_relaxed();  //-!
    cluster_arrive();  //+
    cluster_wait();
    y[32 * rank + T] = load_cluster(mapa(s + T, rank ^ 1));  //!
    cluster_sync();
}

//@ clusters | race/cluster/barrier/deadlock | 2, 64, cluster 2 | f32[128], f32[128]=0 | only one warp waits at the cluster's barrier, the other reads the other block's tile at once
extern "C" __global__ void one_warp_waits(const float* x, float* y) {
    __shared__ float s[64];
    u32 rank = cluster_rank();
    s[T] = x[64 * rank + T];  //!
    cluster_arrive();
    if (WARP == 0) cluster_wait();  //-
    cluster_wait();  //+
    y[64 * rank + T] = load_cluster(mapa(s + T, rank ^ 1));  //!
    if (WARP == 1) cluster_wait();  //-
    cluster_sync();
}

//@ clusters | cluster/mbarrier/race/barrier | 2, 64, cluster 2 | f32[64], f32[64]=0 | the producer leaves without having seen the last release of the other block
extern "C" __global__ void producer_does_not_drain(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    u32 rank = cluster_rank();
    if (T == 0) init(full, 1), init(empty, 1), fence_init(), arrive_expect(full, 256);
    cluster_sync();
    if (rank == 0) {
        if (T == 0) {
            load_multicast(s, x, 256, full, 3);
            wait(full, 0);
            wait_cluster(empty, 0);  //+
        }
    } else {
        wait(full, 0);
        y[T] = s[T];
        __syncthreads();
        for (int i = 0; i < 100; i++) __nanosleep(10);
        if (T == 0) arrive_cluster(mapa(&empty, 0));  //!
    }
}

//@ clusters | mbarrier/barrier/deadlock/cluster/asynchronous copy | 2, 32, cluster 2 | u32[64], u32[64]=0 | st.async to the other block, which expects half of the bytes
extern "C" __global__ void store_async_expects_half(const u32* x, u32* y) {
    __shared__ u32 s[32];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    u32 bytes = 64;  //-
    u32 bytes = 128;  //+
    if (T == 0) init(bar, 1), fence_init(), arrive_expect(bar, bytes);  //!
    cluster_sync();
    store_async(mapa(s + T, rank ^ 1), x[32 * rank + T], mapa(&bar, rank ^ 1));  //!
    wait_cluster(bar, 0);  //!
    y[32 * rank + T] = s[T];  //!
    cluster_sync();
}

//@ clusters | race/cluster | 2, 32, cluster 2 | f32[64], f32[64]=0 | a block writes its tile again while the other may still read it
extern "C" __global__ void tile_written_again(const float* x, float* y) {
    __shared__ float s[32];
    u32 rank = cluster_rank();
    s[T] = x[32 * rank + T];  //!
    cluster_sync();
    float v = load_cluster(mapa(s + T, rank ^ 1));  //!
    cluster_sync();  //+
    s[T] = v * 2;  //!
    __syncwarp();
    y[32 * rank + T] = s[31 - T];
    cluster_sync();
}

//@ clusters | race/cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | __syncthreads in place of the cluster's barrier
extern "C" __global__ void syncthreads_for_cluster(const float* x, float* y) {
    __shared__ float s[64];
    u32 rank = cluster_rank();
    s[T] = x[64 * rank + T];  //!
    __syncthreads();  //-
    cluster_sync();  //+
    y[64 * rank + T] = load_cluster(mapa(s + T, rank ^ 1));  //!
    cluster_sync();
}
