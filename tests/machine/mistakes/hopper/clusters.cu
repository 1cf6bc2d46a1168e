//@arch sm_90a
// Clusters: distributed shared memory, remote arrivals, st.async, multicast, blocks that have left.
#include "instructions.cuh"
#define RANK cluster_rank()
#define OTHER (cluster_rank() ^ 1)
#define MAKE(bar, count)                        \
    if (T == 0) init(bar, count), fence_init(); \
    cluster_sync();

//@ clusters | race | 2, 64, cluster 2 | f32[128], f32[128]=0 | barrier.cluster.arrive.relaxed releases nothing
extern "C" __global__ void dsmem_relaxed_arrive(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];  //!
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  //-
    cluster_arrive();  //+
    cluster_wait();
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, OTHER));  //!
    cluster_sync();
}

//@ clusters | race | 2, 64, cluster 2 | f32[128], f32[128]=0 | the memory is written between arrive and wait
extern "C" __global__ void dsmem_written_after_arrive(const float* x, float* y) {
    __shared__ float s[64];
    cluster_arrive();  //-
    s[T] = x[64 * blockIdx.x + T];  //!
    cluster_arrive();  //+
    cluster_wait();
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, OTHER));  //!
    cluster_sync();
}

//@ clusters | bad rank/cluster/out of bounds | 2, 64, cluster 2 | f32[128], f32[128]=0 | a rank that the cluster does not have
extern "C" __global__ void mapa_of_missing_rank(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];
    cluster_sync();
    u32 rank = RANK + 1;  //-
    u32 rank = (RANK + 1) % 2;  //+
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, rank));  //!
    cluster_sync();
}

//@ clusters | out of bounds | 2, 64, cluster 2 | f32[128], f32[128]=0 | past the end of the other block's shared memory
extern "C" __global__ void dsmem_out_of_bounds(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];
    cluster_sync();
    u32 past = 64 * RANK;  //-
    u32 past = 0;  //+
    y[64 * blockIdx.x + T] = load_cluster(mapa(s, OTHER) + 4 * (T + past));  //!
    cluster_sync();
}

//@ clusters | barrier/deadlock/divergence | 2, 64, cluster 2 | f32[128], f32[128]=0 | one block waits at the cluster's barrier, the other for an arrival that comes behind it
extern "C" __global__ void cluster_barrier_in_branch(const float* x, float* y) {
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (RANK == 0) {
        cluster_sync();  //-!
        if (T == 0) arrive_cluster(mapa(&bar, 1));
        cluster_sync();  //+
    } else {
        wait_cluster(bar, 0);  //!
        y[T] = x[T];
        cluster_sync();
    }
}

//@ clusters | race/divergence/barrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | one warp passes by the cluster's barrier and reads
extern "C" __global__ void cluster_barrier_of_one_warp(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];  //!
    if (WARP == 0) cluster_sync();  //-!
    cluster_sync();  //+
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, OTHER));  //!
    cluster_sync();
}

//@ clusters | barrier/deadlock/race | 2, 64, cluster 2 | f32[128], f32[128]=0 | barrier.cluster.wait with no arrive before it
extern "C" __global__ void cluster_wait_alone(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];  //!
    cluster_arrive();  //+
    cluster_wait();  //!
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, OTHER));
    cluster_sync();
}

//@ clusters | advice barrier/deadlock | 2, 64, cluster 2 | f32[128], f32[128]=0 | two arrivals at the cluster's barrier with no wait between them
extern "C" __global__ void cluster_arrive_twice(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * blockIdx.x + T];
    cluster_arrive();
    cluster_arrive();  //-!
    cluster_wait();
    y[64 * blockIdx.x + T] = load_cluster(mapa(s + T, OTHER));
    cluster_sync();
}

//@ clusters | mbarrier/race/cluster/barrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | a remote arrival before the other block has made its barrier
extern "C" __global__ void remote_arrive_before_init(const float* x, float* y) {
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();  //!
    cluster_sync();  //+
    __syncthreads();  //-
    if (T == 0) arrive_cluster(mapa(&bar, OTHER));  //!
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = x[64 * blockIdx.x + T];
    cluster_sync();
}

//@ clusters | advice mbarrier/proxy | 2, 64, cluster 2 | f32[128], f32[128]=0 | the other block's TMA uses the barrier, whose init has no fence.mbarrier_init
extern "C" __global__ void remote_init_without_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1);  //!
    if (T == 0) fence_init();  //+
    cluster_sync();
    if (T == 0) arrive_expect(bar, 256);
    cluster_sync();
    if (T == 0 && RANK == 0) load_multicast(s, x, 256, bar, 3);  //!
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[T];
    cluster_sync();
}

//@ clusters | cluster/race/mbarrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | a block releases the other's stage, which may have left already
extern "C" __global__ void remote_arrive_after_exit(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 2), fence_init();
    cluster_sync();
    if (T == 0) {
        arrive_expect(full, 256);
        bulk_load(s, x + 64 * blockIdx.x, 256, full);
    }
    wait(full, 0);
    y[64 * blockIdx.x + T] = s[T];
    if (T == 0) arrive_cluster(mapa(&empty, 0)), arrive_cluster(mapa(&empty, 1));  //!
    wait_cluster(empty, 0);  //+
}

//@ clusters | barrier/deadlock/endless/mbarrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | the arrival is meant for the other block, but the address is one's own
extern "C" __global__ void arrive_without_mapa(const float* x, float* y) {
    __shared__ u64 bar;
    MAKE(bar, 64)
    if (RANK == 0) {
        arrive_cluster(shared(&bar));  //-!
        arrive_cluster(mapa(&bar, 1));  //+
    } else {
        wait_cluster(bar, 0);  //!
        y[T] = x[T];
    }
    cluster_sync();  //!
}

//@ clusters | mbarrier/race/asynchronous copy/barrier | 2, 64, cluster 2 | f32[512], f32[1024]=0 | the empty barrier counts the threads of one block, but those of both arrive
extern "C" __global__ void remote_release_count(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    u32 releases = 1;  //-
    u32 releases = 2;  //+
    if (T == 0) init(full, 1), init(empty, releases), fence_init();
    cluster_sync();
    REPEAT(t, 4) {
        if (T == 0) {
            arrive_expect(full, 256);
            if (RANK == 0) {
                wait_cluster(empty, t + 1 & 1);  //!
                load_multicast(s, x + 64 * t, 256, full, 3);  //!
            }
        }
        wait_cluster(full, t & 1);
        y[256 * blockIdx.x + 64 * t + T] = s[T];  //!
        __syncthreads();
        if (T == 0) arrive_cluster(mapa(&empty, 0));  //!
    }
    cluster_sync();
}

//@ clusters | asynchronous copy/race | 2, 64, cluster 2 | f32[128], f32[512]=0 | the multicast refills a stage that its own block has released, but the other one still reads
extern "C" __global__ void multicast_local_release(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 2), fence_init();
    cluster_sync();
    REPEAT(t, 2) {
        if (T == 0) {
            arrive_expect(full, 256);
            if (RANK == 0) {
                wait_cluster(empty, t + 1 & 1);
                load_multicast(s, x + 64 * t, 256, full, 3);  //!
            }
        }
        wait_cluster(full, t & 1);
        if (T == 0 && RANK == 0) arrive(empty), arrive(empty);  //-
        y[256 * blockIdx.x + 64 * t + T] = s[T];  //!
        __syncthreads();
        if (T == 0) arrive_cluster(mapa(&empty, 0));  //+
    }
    cluster_sync();
}

//@ clusters | mbarrier/barrier/deadlock/asynchronous copy | 2, 64, cluster 2 | f32[64], f32[128]=0 | a multicast to a block that expects no bytes
extern "C" __global__ void multicast_unexpected(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) {
        if (RANK == 0) arrive_expect(bar, 256);  //-
        if (RANK == 1) arrive(bar);  //-!
        arrive_expect(bar, 256);  //+
    }
    cluster_sync();
    if (T == 0 && RANK == 0) load_multicast(s, x, 256, bar, 3);  //!
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[T];  //!
    cluster_sync();
}

//@ clusters | out of bounds/cluster/bulk copy/mbarrier | 2, 64, cluster 2 | f32[64], f32[128]=0, i32:7 | a multicast to a rank that the cluster does not have
extern "C" __global__ void multicast_missing_rank(const float* x, float* y, int mask) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    mask = 3;  //+
    if (T == 0) arrive_expect(bar, 256);
    cluster_sync();
    if (T == 0 && RANK == 0) load_multicast(s, x, 256, bar, mask);  //!
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[T];
    cluster_sync();
}

//@ clusters | mbarrier/barrier/deadlock/asynchronous copy/race/uninitialised | 2, 64, cluster 2 | f32[128], f32[128]=0 | both blocks copy half of the tile to both, but each expects only its own half
extern "C" __global__ void multicast_halves_expected(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) {
        arrive_expect(bar, 256);  //-!
        arrive_expect(bar, 512);  //+
        load_multicast(s + 64 * RANK, x + 64 * RANK, 256, bar, 3);  //!
    }
    wait_cluster(bar, 0);  //!
    y[64 * blockIdx.x + T] = s[T] + s[64 + T];  //!
    cluster_sync();
}

//@ clusters | barrier/deadlock/endless/mbarrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | each block expects the copies of both, but there is a copy to the other only
extern "C" __global__ void multicast_expects_more(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 bar;
    s[64 * RANK + T] = 0;
    MAKE(bar, 1)
    if (T == 0) {
        arrive_expect(bar, 512);  //-!
        arrive_expect(bar, 256);  //+
        load_multicast(s + 64 * RANK, x + 64 * RANK, 256, bar, 1 << OTHER);  //!
    }
    wait_cluster(bar, 0);  //!
    y[64 * blockIdx.x + T] = s[T] + s[64 + T];
    cluster_sync();
}

//@ clusters | race/asynchronous copy/uninitialised | 2, 64, cluster 2 | u32[128], u32[128]=0 | what st.async stores is read without waiting for its barrier
extern "C" __global__ void store_async_no_wait(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256);
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));  //!
    wait_cluster(bar, 0);  //+
    __syncthreads();  //-
    y[64 * blockIdx.x + T] = s[T];  //!
    cluster_sync();
}

//@ clusters | mbarrier/barrier/deadlock/race/asynchronous copy/uninitialised | 2, 64, cluster 2 | u32[128], u32[128]=0 | a word too few is expected of st.async: the phase may complete before the last one
extern "C" __global__ void store_async_expects_less(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) {
        arrive_expect(bar, 252);  //-!
        arrive_expect(bar, 256);  //+
    }
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));  //!
    wait_cluster(bar, 0);  //!
    y[64 * blockIdx.x + T] = s[T];  //!
    cluster_sync();
}

//@ clusters | cluster/mbarrier/barrier/race | 2, 64, cluster 2 | u32[128], u32[128]=0 | the barrier of st.async is not in the block that the data goes to
extern "C" __global__ void store_async_own_barrier(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256);
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], shared(&bar));  //-!
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));  //+
    wait_cluster(bar, 0);
    y[64 * blockIdx.x + T] = s[T];  //!
    cluster_sync();
}

//@ clusters | asynchronous copy/race | 2, 64, cluster 2 | f32[128], f32[128]=0 | the source of a copy to the other block is overwritten before that block has it
extern "C" __global__ void cluster_copy_source_overwritten(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar;
    from[T] = x[64 * blockIdx.x + T];
    fence_async_shared();
    MAKE(bar, 1)
    if (T == 0) {
        arrive_expect(bar, 256);
        copy_cluster(mapa(to, OTHER), from, 256, mapa(&bar, OTHER));  //!
    }
    wait_cluster(bar, 0);
    cluster_sync();  //+
    __syncthreads();  //-
    from[T] = 0;  //!
    y[64 * blockIdx.x + T] = to[T];
    cluster_sync();
}

//@ clusters | proxy | 2, 64, cluster 2 | f32[128], f32[128]=0 | the other block stores into a tile that TMA then copies out, with no fence between the proxies
extern "C" __global__ void dsmem_no_proxy_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    cluster_sync();
    store_cluster(mapa(s + T, OTHER), x[64 * blockIdx.x + T]);  //!
    fence_async();  //+
    cluster_sync();
    if (T == 0) {
        bulk_store(y + 64 * blockIdx.x, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ clusters | out of bounds/cluster/barrier/mbarrier | 2, 64, cluster 2 | f32[128], f32[128]=0 | a wait on the other block's barrier: only one's own can be waited for
extern "C" __global__ void wait_on_remote_barrier(const float* x, float* y) {
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive(bar);
    u32 mine = mapa(&bar, OTHER);  //-
    u32 mine = shared(&bar);  //+
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @p bra D; bra L; D: }" ::"r"(mine) : "memory");  //!
    y[64 * blockIdx.x + T] = x[64 * blockIdx.x + T];
    cluster_sync();
}

//@ proxies | proxy | 2, 64, cluster 2 | u32[128], u32[128]=0 | what st.async stored is copied on by TMA, with no fence between the proxies
extern "C" __global__ void store_async_then_bulk_store(const u32* x, u32* y) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256);
    store_async(mapa(s + T, OTHER), x[64 * blockIdx.x + T], mapa(&bar, OTHER));
    if (T == 0) {
        wait_cluster(bar, 0);
        fence_async_shared();  //+
        bulk_store(y + 64 * blockIdx.x, s, 256);  //!
        bulk_commit(), bulk_wait<0>();
    }
    cluster_sync();
}

//@ clusters | advice race | 2, 64, cluster 2 | f32[128], f32[128]=0 | data of the other block are awaited with the default scope, that of the own block
extern "C" __global__ void wait_at_own_scope(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    store_cluster(mapa(s + T, OTHER), x[64 * RANK + T]);  //!
    arrive_cluster(mapa(&bar, OTHER));
    wait(bar, 0);  //-!
    wait_cluster(bar, 0);  //+
    y[64 * RANK + T] = s[63 - T];  //!
    cluster_sync();
}

//@ clusters | - | 2, 96, cluster 2 | f32[128], f32[128]=0 | one warp waits at the cluster's scope, and tells the others of its block, who wait at that of the block
extern "C" __global__ void told_on_at_own_scope(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar, here;
    if (T == 0) init(bar, 64), init(here, 32), fence_init();
    cluster_sync();
    if (WARP == 2) {
        wait_cluster(bar, 0);
        arrive(here);
    } else {
        store_cluster(mapa(s + T, OTHER), x[64 * RANK + T]);
        arrive_cluster(mapa(&bar, OTHER));
        wait(here, 0);
        y[64 * RANK + T] = s[63 - T];
    }
    cluster_sync();
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | reads before a remote arrival, and writes after a wait with the default scope, as in CUTLASS's pipelines
extern "C" __global__ void released_at_own_scope(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 64), fence_init();
    s[T] = x[64 * RANK + T];
    cluster_sync();
    y[64 * RANK + T] = load_cluster(mapa(s + T, OTHER));
    arrive_cluster(mapa(&bar, OTHER));
    wait(bar, 0);
    s[T] = 0;
}
