//@arch sm_90a
// Flags of the cluster's scope in shared memory of another block, and of the block's scope behind them: a release
// that an acquire reads orders what came before, also what its thread had learnt of others (PTX ISA, causality order).
#include "instructions.cuh"
#define RANK cluster_rank()
#define OTHER (cluster_rank() ^ 1)

DEVICE void release_flag(u32 flag, u32 value) { asm volatile("st.release.cluster.shared::cluster.u32 [%0], %1;" ::"r"(flag), "r"(value) : "memory"); }
DEVICE void set_flag(u32 flag, u32 value) { asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(flag), "r"(value) : "memory"); }
DEVICE u32 acquire_flag(u32 flag) { u32 value; asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(flag) : "memory"); return value; }
DEVICE u32 read_flag(u32 flag) { u32 value; asm volatile("ld.relaxed.cluster.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(flag) : "memory"); return value; }
DEVICE void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
DEVICE u32 add_both(u32 flag, u32 value) { u32 old; asm volatile("atom.acq_rel.cluster.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(flag), "r"(value) : "memory"); return old; }
DEVICE void release_in_block(u32* flag, u32 value) { asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared(flag)), "r"(value) : "memory"); }
DEVICE u32 acquire_in_block(u32* flag) { u32 value; asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared(flag)) : "memory"); return value; }
DEVICE void clear(u32& flag) { if (T == 0) flag = 0; cluster_sync(); }

//@ scopes | race | 2, 32, cluster 2 | f32[64], f32[64]=0 | the flag in the other block is stored relaxed: it may arrive before the data
extern "C" __global__ void cluster_flag_not_released(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u32 flag;
    clear(flag);
    store_cluster(mapa(s + T, OTHER), x[32 * blockIdx.x + T]);  //!
    __syncwarp();
    if (T == 0) {
        set_flag(mapa(&flag, OTHER), 1);  //-
        release_flag(mapa(&flag, OTHER), 1);  //+
    }
    while (acquire_flag(shared(&flag)) == 0);
    y[32 * blockIdx.x + T] = s[31 - T];  //!
    cluster_sync();
}

//@ scopes | advice race | 2, 32, cluster 2 | f32[64], f32[64]=0 | the flag is read relaxed, and no fence follows: reads of the data may come first
extern "C" __global__ void cluster_flag_not_acquired(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u32 flag;
    clear(flag);
    store_cluster(mapa(s + T, OTHER), x[32 * blockIdx.x + T]);  //!
    fence_cluster();
    __syncwarp();
    if (T == 0) set_flag(mapa(&flag, OTHER), 1);
    while (read_flag(shared(&flag)) == 0);
    fence_cluster();  //+
    y[32 * blockIdx.x + T] = s[31 - T];  //!
    cluster_sync();
}

//@ scopes | race | 2, 64, cluster 2 | f32[128], f32[128]=0 | one warp releases the flag before the other one has written its half
extern "C" __global__ void cluster_flag_before_the_other_warp(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u32 flag;
    clear(flag);
    s[T] = x[64 * blockIdx.x + T];  //!
    __syncthreads();  //+
    __syncwarp();  //-
    if (T == 0) {
        release_flag(mapa(&flag, OTHER), 1);
        while (acquire_flag(shared(&flag)) == 0);
    }
    __syncthreads();
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + 63 - T, OTHER));  //!
    cluster_sync();
}

//@ scopes | advice race | 2, 64, cluster 2 | f32[128], f32[128]=0 | a barrier of the cluster made by hand: its counter is polled relaxed
extern "C" __global__ void cluster_counter_polled_relaxed(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u32 count;
    clear(count);
    s[T] = x[64 * blockIdx.x + T];  //!
    __syncthreads();
    if (T == 0) {
        add_both(mapa(&count, 0), 1);
        while (read_flag(mapa(&count, 0)) < 2);  //-
        while (acquire_flag(mapa(&count, 0)) < 2);  //+
    }
    __syncthreads();
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + 63 - T, OTHER));  //!
    cluster_sync();
}

//@ scopes | race | 4, 32, cluster 4 | f32[32], f32[128]=0 | a flag goes from block to block, and one of them hands it on without waiting for it
extern "C" __global__ void cluster_flag_handed_on_too_early(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u32 flag;
    clear(flag);
    if (RANK == 0) s[T] = x[T];  //!
    __syncwarp();
    if (T == 0) {
        while (RANK % 2 > 0 && acquire_flag(shared(&flag)) == 0);  //-
        while (RANK > 0 && acquire_flag(shared(&flag)) == 0);  //+
        if (RANK < 3) release_flag(mapa(&flag, RANK + 1), 1);
    }
    __syncwarp();
    y[32 * blockIdx.x + T] = load_cluster(mapa(s + 31 - T, 0));  //!
    cluster_sync();
}

//@ scopes | race | 2, 64, cluster 2 | f32[64], f32[64]=0 | what a flag of the cluster told one warp it tells another by a flag of the block, which does not wait
extern "C" __global__ void cluster_flag_then_block_flag(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u32 flag, told;
    if (T == 0) told = 0;
    clear(flag);
    if (WARP == 0) {
        store_cluster(mapa(s + LANE, OTHER), x[32 * blockIdx.x + LANE]);  //!
        __syncwarp();
        if (LANE == 0) {
            release_flag(mapa(&flag, OTHER), 1);
            while (acquire_flag(shared(&flag)) == 0);
            release_in_block(&told, 1);
        }
    } else {
        while (acquire_in_block(&told) == 0);  //+
        y[32 * blockIdx.x + LANE] = s[31 - LANE];  //!
    }
    __syncwarp();
    cluster_sync();
}

//@ scopes | - | 2, 32, cluster 2 | f32[256], f32[256]=0 | a ring of four rounds over two flags: data goes one way, credits the other
extern "C" __global__ void cluster_flags_of_a_ring(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u32 full, empty;
    if (T == 0) empty = 0;
    clear(full);
    REPEAT(t, 4) {
        if (RANK == 0) {
            while (acquire_flag(shared(&empty)) < t);
            store_cluster(mapa(s + T, 1), x[32 * t + T]);
            __syncwarp();
            if (T == 0) release_flag(mapa(&full, 1), t + 1);
        } else {
            while (acquire_flag(shared(&full)) < t + 1);
            y[32 * t + T] = s[31 - T];
            __syncwarp();
            if (T == 0) release_flag(mapa(&empty, 0), t + 1);
        }
    }
    cluster_sync();
}
