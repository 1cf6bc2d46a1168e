//@arch sm_90a
// Orders of too little strength: relaxed waits and arrivals, fences of another space, barriers of the cluster.
#include "instructions.cuh"

//@ transactions | advice race | 1, 64 | f32[64], f32[64]=0 | the wait for an mbarrier is relaxed: what was stored before the arrivals need not be seen
extern "C" __global__ void relaxed_wait(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 64), fence_init();
    __syncthreads();
    s[T] = x[T];  //!
    arrive(bar);
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D: }" ::"r"(shared(&bar)), "r"(0) : "memory");  //-!
    wait(bar, 0);  //+
    y[T] = s[63 - T];  //!
}

//@ transactions | race/asynchronous copy | 1, 64 | f32[64], f32[64]=0 | the arrivals at an mbarrier are relaxed: they publish nothing
extern "C" __global__ void relaxed_arrival_of_readers(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 64), fence_init();
    __syncthreads();
    s[T] = x[T];  //!
    asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(shared(&bar)) : "memory");  //-!
    arrive(bar);  //+
    wait(bar, 0);
    y[T] = s[63 - T];  //!
}

//@ proxies | race/proxy | 1, 32 | f32[32], f32[32]=0 | the fence between ordinary stores and a bulk store is that of global memory
extern "C" __global__ void fence_of_the_other_space(const float* x, float* y) {
    __shared__ __align__(128) float s[32];
    s[T] = x[T] + 1;  //!
    fence_async_global();  //-
    fence_async_shared();  //+
    __syncwarp();
    if (T == 0) bulk_store(y, s, 128), bulk_commit(), bulk_wait<0>();  //!
}

//@ clusters | race/cluster | 2, 32, cluster 2 | f32[64], f32[64]=0 | arrivals at the cluster's barrier are relaxed: the neighbour's tile need not be seen
extern "C" __global__ void relaxed_cluster_arrival(const float* x, float* y) {
    __shared__ float s[32];
    u32 rank = cluster_rank();
    s[T] = x[rank * 32 + T];  //!
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  //-!
    cluster_arrive();  //+
    cluster_wait();
    y[rank * 32 + T] = load_cluster(mapa(s + T, rank ^ 1));  //!
    cluster_sync();
}

//@ clusters | race | 2, 64, cluster 2 | f32[128], f32[128]=0 | an mbarrier is initialised behind the last fence.mbarrier_init, and the arrival at the cluster's barrier is relaxed
extern "C" __global__ void mbarrier_behind_the_fence(const float* x, float* y) {
    __shared__ u64 first, second;
    if (T == 0) {
        init(first, 32);
        fence_init();  //-
        init(second, 32);  //!
        fence_init();  //+
    }
    cluster_arrive_relaxed();
    cluster_wait();
    if (T >= 32) arrive(first);
    wait(first, 0);
    if (T >= 32) arrive(second);  //!
    wait(second, 0);  //!
    y[blockIdx.x * 64 + T] = x[blockIdx.x * 64 + T];
}

//@ clusters | race | 2, 32, cluster 2 | f32[64], f32[64]=0 | an mbarrier for the other block is initialised without fence.mbarrier_init before a relaxed arrival
extern "C" __global__ void mbarrier_of_the_peer(const float* x, float* y) {
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    if (T == 0) {
        init(bar, 32);  //!
        fence_init();  //+
    }
    cluster_arrive_relaxed();
    cluster_wait();
    arrive_cluster(mapa(&bar, rank ^ 1));  //!
    wait(bar, 0);  //!
    y[rank * 32 + T] = x[rank * 32 + T];
    cluster_sync();
}

//@ clusters | barrier/cluster/deadlock/divergence | 2, 32, cluster 2 | f32[64], f32[64]=0 | a second arrival at the cluster's barrier before the wait for the first
extern "C" __global__ void two_arrivals(const float* x, float* y) {
    __shared__ float s[32];
    u32 rank = cluster_rank();
    s[T] = x[rank * 32 + T];
    cluster_arrive();
    if (rank == 0) cluster_arrive();  //-!
    cluster_wait();  //!
    y[rank * 32 + T] = load_cluster(mapa(s + T, rank ^ 1));
    cluster_sync();  //!
}

//@ scopes | race | 4, 32, cluster 2 | f32[32], f32[32]=0, f32[128]=0, u32[1]=0 | a fence of the cluster's scope between blocks of different clusters
extern "C" __global__ void fence_of_the_cluster(const float* x, float* data, float* y, u32* flag) {
    if (blockIdx.x == 0) {
        data[T] = x[T];  //!
        asm volatile("fence.acq_rel.cluster;" ::: "memory");  //-
        __threadfence();  //+
        __syncwarp();
        if (T == 0) atomicExch(flag, 1);
    } else if (blockIdx.x == 3) {
        if (T == 0) while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        __syncwarp();
        y[T] = data[T];  //!
    }
}

//@ divergence | divergence | 1, 64 | f32[64], f32[64]=0 | elect.sync of a whole warp in a branch of half of it
extern "C" __global__ void election_in_a_branch(const float* x, float* y) {
    __shared__ u32 count;
    if (T == 0) count = 0;
    __syncthreads();
    if (LANE < 16)  //-
        if (elect()) atomicAdd(&count, 1);  //!
    __syncthreads();
    y[T] = x[T] + count;
}

//@ TMA | asynchronous copy/race/uninitialised | 1, 32 | f32[64], f32[64]=0 | two copies signal one barrier, whose transactions are awaited for the first of them only
extern "C" __global__ void bytes_of_one_of_two(const float* x, float* y) {
    __shared__ __align__(128) float s[2][32];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncwarp();
    if (T == 0) {
        arrive_expect(bar, 128);  //-!
        arrive_expect(bar, 256);  //+
        bulk_load(s[0], x, 128, bar);  //!
        bulk_load(s[1], x + 32, 128, bar);  //!
    }
    wait(bar, 0);
    y[T] = s[0][T], y[T + 32] = s[1][T];  //!
}

//@ TMA | race/asynchronous copy/uninitialised | 1, 64 | f32[128], f32[128]=0 | the epilogue's buffer is filled again after a wait that leaves its own store in flight
extern "C" __global__ void buffer_of_the_epilogue(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    REPEAT(t, 2) {
        s[T] = x[64 * t + T] * 2;  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_store(y + 64 * t, s, 256), bulk_commit();  //!
            bulk_wait_read<1>();  //-
            bulk_wait_read<0>();  //+
        }
        __syncthreads();
    }
    if (T == 0) bulk_wait<0>();
}

//@ clusters | cluster/race/uninitialised/mbarrier/deadlock/barrier | 2, 32, cluster 2 | u32[64], u32[64]=0 | st.async goes to the other block, and tells the barrier of its own block
extern "C" __global__ void barrier_of_the_wrong_block(const u32* x, u32* y) {
    __shared__ u32 s[32];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    if (T == 0) init(bar, 1), fence_init(), arrive_expect(bar, 128);
    cluster_sync();
    store_async(mapa(s + T, rank ^ 1), x[rank * 32 + T], mapa(&bar, rank));  //-!
    store_async(mapa(s + T, rank ^ 1), x[rank * 32 + T], mapa(&bar, rank ^ 1));  //+
    wait_cluster(bar, 0);
    y[rank * 32 + T] = s[T];  //!
    cluster_sync();
}

//@ wgmma | race/wgmma/proxy/asynchronous copy | 1, 128 | f16[1024], f16[128], f32[512]=0 | tile B is loaded for the next product while the last one reads it: the wait leaves one group in flight
extern "C" __global__ void next_b_too_early(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half as[1024], bs[128];
    for (int i = T; i < 1024; i += 128) as[i] = a[i];
    bs[T] = b[T];  //!
    fence_async_shared();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    REPEAT(t, 2) {
        wgmma_fence();
        wgmma(d, plain(as), plain(bs));  //!
        wgmma_commit();
        wgmma_wait<0>();  //+
        __syncthreads();
        bs[T] = b[127 - T];  //!
        fence_async_shared();
        __syncthreads();
    }
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ scopes | - | 4, 32, cluster 2 | f32[64], f32[64]=0, f32[64]=0, u32[2]=0 | a flag in global memory between the blocks of a cluster, at the scope of the cluster
extern "C" __global__ void flag_within_the_cluster(const float* x, float* data, float* y, u32* flags) {
    u32 rank = cluster_rank(), cluster = blockIdx.x / 2;
    if (rank == 0) {
        data[32 * cluster + T] = x[32 * cluster + T];
        __syncwarp();
        if (T == 0) asm volatile("red.release.cluster.global.add.u32 [%0], 1;" ::"l"(flags + cluster) : "memory");
    } else {
        if (T == 0) {
            u32 seen;
            do asm volatile("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(seen) : "l"(flags + cluster) : "memory");
            while (seen == 0);
        }
        __syncwarp();
        y[32 * cluster + T] = data[32 * cluster + T];
    }
}

//@ scopes | race | 4, 32, cluster 2 | u32[1]=0 | atomics of the cluster's scope count for blocks of two clusters
extern "C" __global__ void counted_in_two_clusters(u32* y) {
    asm volatile("red.relaxed.cluster.global.add.u32 [%0], 1;" ::"l"(y) : "memory");  //-!
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(y) : "memory");  //+
}
