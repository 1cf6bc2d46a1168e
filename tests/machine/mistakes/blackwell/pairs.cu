//@arch sm_100a
// Pairs of blocks: who issues, whose memory is read and written, whom a commit tells.
#include "products.cuh"
constexpr u32 SHAPE = instruction(256, 32, 1, 0, 0);
#define FILL(tile, n, from) \
    for (int i = T; i < n; i += blockDim.x) tile[i] = from[i];
#define CLUSTER asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#define BEGIN                                               \
    __shared__ __align__(128) __half sa[2048], sb[256];     \
    __shared__ u64 bar;                                     \
    __shared__ u32 place;                                   \
    FILL(sa, 2048, a)                                       \
    FILL(sb, 256, b)                                        \
    fence_async_shared();                                   \
    if (T == 0) init(bar, 1), fence_init();                 \
    if (WARP == 0) allocate<2>(place, 32);                  \
    fence_before_sync();                                    \
    CLUSTER                                                 \
    fence_after_sync();                                     \
    const u32 d = place, mine = lanes_of_warp(d);           \
    const bool leads = cluster_rank() == 0;                 \
    u32 x[32];
#define TILE(p) matrix(p, 128, 256, NONE)
#define MULTIPLY(d, adds) multiply_by_pair(d, TILE(sa), TILE(sb), SHAPE, adds)
#define STORE(y) \
    for (int i = 0; i < 32; i++) y[(blockIdx.x * 128 + T) * 32 + i] = __uint_as_float(x[i]);
#define END              \
    fence_before_sync(); \
    CLUSTER              \
    fence_after_sync();  \
    if (WARP == 0) free_columns<2>(d, 32);

//@ tensor memory | tensor memory | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the second block loads its half of the sums before the product is complete
extern "C" __global__ void partner_does_not_wait(const __half* a, const __half* b, float* y) {
    BEGIN
    if (leads && T == 0) {
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);
    }
    CLUSTER
    if (leads) wait(bar, 0);  //-
    wait(bar, 0);  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    wait(bar, 0);
    END
}

//@ tensor memory | tensor memory/barrier | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the commit tells the first block alone: the other one waits for ever
extern "C" __global__ void partner_not_told(const __half* a, const __half* b, float* y) {
    BEGIN
    if (leads && T == 0) {
        MULTIPLY(d, 0);
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(&bar)) : "memory");  //-!
        commit_to_pair(bar);  //+
    }
    wait(bar, 0);  //!
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | asynchronous copy/race | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the second block overwrites its half of A while the first one's product reads it
extern "C" __global__ void partner_overwrites_operand(const __half* a, const __half* b, float* y) {
    BEGIN
    if (leads && T == 0) {
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);
    }
    CLUSTER
    wait(bar, 0);  //+
    if (!leads) sa[T] = b[T];  //!
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | tensor product/tensor memory | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the block of rank 1 issues the product
extern "C" __global__ void issued_by_odd_block(const __half* a, const __half* b, float* y) {
    BEGIN
    bool issues = !leads;  //-
    bool issues = leads;  //+
    if (issues && T == 0) {
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | proxy | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the second block stores to its half of B, and no fence makes that visible to the product
extern "C" __global__ void partner_does_not_fence(const __half* a, const __half* b, float* y) {
    BEGIN
    if (!leads) {
        FILL(sb, 256, a)  //!
        fence_async_shared();  //+
    }
    CLUSTER
    if (leads && T == 0) {
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | tensor memory | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the next product overwrites sums that the second block may still be loading
extern "C" __global__ void partner_still_loads(const __half* a, const __half* b, float* y) {
    BEGIN
    REPEAT(t, 2) {
        if (leads && T == 0) {
            MULTIPLY(d, 0);  //!
            commit_to_pair(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);  //!
        if (leads) wait_loads();  //-
        wait_loads();  //+
        fence_before_sync();
        CLUSTER
        fence_after_sync();
    }
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | tensor memory/tensor product/cluster/barrier/deadlock | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the second block ends while the first one's product may still read its half of B
extern "C" __global__ void partner_leaves_early(const __half* a, const __half* b, float* y) {
    BEGIN
    if (leads && T == 0) {
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);  //!
    }
    if (!leads) {
        if (WARP == 0) free_columns<2>(d, 32);  //-!
        return;  //-
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END  //!
}

//@ tensor memory | tensor memory/barrier/deadlock/endless | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the commit is for the second block alone, and the first one waits for ever
extern "C" __global__ void issuer_not_told(const __half* a, const __half* b, float* y) {
    BEGIN
    if (leads && T == 0) {
        MULTIPLY(d, 0);
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(shared(&bar)), "h"(static_cast<unsigned short>(2)) : "memory");  //-!
        commit_to_pair(bar);  //+
    }
    wait(bar, 0);  //!
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | asynchronous copy/race/uninitialised | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the product waits for the copy of its own block, and the other one's half of B may not have come
extern "C" __global__ void partner_still_copies(const __half* a, const __half* b, float* y) {
    __shared__ u64 full;
    if (T == 0) init(full, 1), fence_init();
    BEGIN
    if (T == 0) {
        arrive_expect(full, 512);
        bulk_load(sb, b, 512, full);  //!
    }
    if (T == 0) wait(full, 0);  //+
    CLUSTER  //+
    if (leads && T == 0) {
        wait(full, 0);
        MULTIPLY(d, 0);  //!
        commit_to_pair(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    wait(full, 0);
    END
}

//@ tensor memory | uninitialised | 2, 128, cluster 2 | f16[2048], f16[512], f32[8192]=0 | the first block clears its half of the sums, and the second one does not
extern "C" __global__ void partner_does_not_clear(const __half* a, const __half* b, float* y) {
    BEGIN
    for (int i = 0; i < 32; i++) x[i] = 0;
    if (leads) store_lanes(mine, x);  //-
    store_lanes(mine, x);  //+
    wait_stores();
    fence_before_sync();
    CLUSTER
    fence_after_sync();
    if (leads && T == 0) {
        MULTIPLY(d, 1);  //!
        commit_to_pair(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END
}

//@ tensor memory | race | 2, 128, cluster 2 | map f16[64x64] 32x64, f16[4096]=0 | tcgen05.alloc of the pair waits for both blocks, but orders nothing: the bytes of the second block may come before mbarrier.init of the first
extern "C" __global__ void alloc_for_cluster_barrier(const __grid_constant__ CUtensorMap map, __half* y) {
    __shared__ __align__(128) __half tile[2048];
    __shared__ u64 bar;
    __shared__ u32 place;
    if (T == 0) init(bar, 1), fence_init();
    if (WARP == 0) allocate<2>(place, 32);
    fence_before_sync();
    __syncthreads();  //-
    CLUSTER  //+
    fence_after_sync();
    const u32 d = place;
    if (T == 0) {
        if (cluster_rank() == 0) arrive_expect(bar, 8192);
        load_2d_of_pair(tile, &map, 0, cluster_rank() * 32, bar);  //!
        if (cluster_rank() == 0) wait(bar, 0);
    }
    CLUSTER
    for (int i = T; i < 2048; i += 128) y[cluster_rank() * 2048 + i] = tile[i];
    END
}

//@ tensor memory | race | 2, 128, cluster 2 | f16[1]=0 | the commit arrives in both blocks, and nothing orders it after mbarrier.init of the second
extern "C" __global__ void commit_before_init_of_partner(__half* y) {
    __shared__ u64 bar;
    __shared__ u32 place;
    if (T == 0) init(bar, 1), fence_init();
    if (WARP == 0) allocate<2>(place, 32);
    fence_before_sync();
    __syncthreads();  //-
    CLUSTER  //+
    fence_after_sync();
    const u32 d = place;
    if (cluster_rank() == 0 && T == 0) commit_to_pair(bar);  //!
    wait(bar, 0);
    END
}
