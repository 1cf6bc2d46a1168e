//@arch sm_90a
// Bulk copies, transaction barriers and clusters as libcu++, cuda::ptx and cooperative groups write them.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include "instructions.cuh"
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
#define BARRIER(bar, count)                                     \
    __shared__ Barrier bar;                                     \
    if (T == 0) {                                               \
        init(&bar, count);                                      \
        ptx::fence_proxy_async(ptx::space_shared);              \
    }                                                           \
    __syncthreads();

//@ TMA | asynchronous copy/race/uninitialised | 1, 64 | i32[64], i32[64]=0 | cuda::ptx: the tile is read before the token was waited for
extern "C" __global__ void libcu_tile_not_waited(const int* x, int* y) {
    __shared__ __align__(128) int s[64];
    BARRIER(bar, 64)
    Barrier::arrival_token token;
    if (T == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x, 256, cuda::device::barrier_native_handle(bar));  //!
        token = cuda::device::barrier_arrive_tx(bar, 1, 256);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));  //+
    y[T] = s[63 - T];  //!
    bar.wait(std::move(token));  //-
}

//@ TMA | asynchronous copy/race/uninitialised/mbarrier/barrier | 1, 64 | i32[64], i32[64]=0 | libcu++: arrive in place of barrier_arrive_tx: no bytes are expected
extern "C" __global__ void libcu_arrive_without_bytes(const int* x, int* y) {
    __shared__ __align__(128) int s[64];
    BARRIER(bar, 64)
    Barrier::arrival_token token;
    if (T == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x, 256, cuda::device::barrier_native_handle(bar));  //!
        token = bar.arrive();  //-!
        token = cuda::device::barrier_arrive_tx(bar, 1, 256);  //+
    } else {
        token = bar.arrive();  //!
    }
    bar.wait(std::move(token));  //!
    y[T] = s[63 - T];  //!
}

//@ proxies | proxy | 1, 64 | i32[64], i32[64]=0 | libcu++: the tile is changed and copied out with no fence_proxy_async
extern "C" __global__ void libcu_no_proxy_fence(const int* x, int* y) {
    __shared__ __align__(128) int s[64];
    BARRIER(bar, 1)
    if (T == 0) {
        cuda::memcpy_async(s, x, cuda::aligned_size_t<16>(256), bar);
        bar.arrive();
    }
    bar.wait_parity(false);
    s[T] += 1;  //!
    ptx::fence_proxy_async(ptx::space_shared);  //+
    __syncthreads();
    if (T == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, 256);  //!
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | i32[64], i32[64]=0 | cuda::ptx: the buffer is cleared before the copy out of it was waited for
extern "C" __global__ void libcu_store_not_waited(const int* x, int* y) {
    __shared__ __align__(128) int s[64];
    s[T] = x[T];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (T == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, 256);  //!
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  //+
    }
    __syncthreads();
    s[T] = 0;  //!
    if (T == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  //-
}

//@ TMA | - | 1, 64 | map f32[8x32] 8x32, map f32[8x32]=0 8x32 | cuda::ptx: a tile in and out, as the programming guide has it
extern "C" __global__ void libcu_tile_in_and_out(MAP from, MAP to) {
    __shared__ __align__(128) float s[256];
    BARRIER(bar, 64)
    Barrier::arrival_token token;
    if (T == 0) {
        int32_t at[2] = {0, 0};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, s, &from, at, cuda::device::barrier_native_handle(bar));
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(s));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = T; i < 256; i += 64) s[i] *= 2;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (T == 0) {
        int32_t at[2] = {0, 0};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, at, s);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
    __syncthreads();
    if (T == 0) (&bar)->~Barrier();
}

//@ clusters | race/cluster/uninitialised | 2, 64, cluster 2 | f32[128], f32[128]=0 | the other block's memory is read before that block has written it
extern "C" __global__ void dsmem_no_first_sync(const float* x, float* y) {
    __shared__ float s[64];
    auto cluster = cg::this_cluster();
    s[T] = x[64 * blockIdx.x + T];  //!
    cluster.sync();  //+
    __syncthreads();  //-
    float* other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
    y[64 * blockIdx.x + T] = other[T];  //!
    cluster.sync();
}

//@ clusters | cluster/race | 2, 64, cluster 2 | f32[128], f32[128]=0 | a block may leave while the other still reads its memory
extern "C" __global__ void dsmem_no_last_sync(const float* x, float* y) {
    __shared__ float s[64];
    auto cluster = cg::this_cluster();
    s[T] = x[64 * blockIdx.x + T];
    cluster.sync();
    float* other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
    y[64 * blockIdx.x + T] = other[T];  //!
    cluster.sync();  //+
}

//@ clusters | race | 2, 64, cluster 2 | f32[128], f32[128]=0 | the owner overwrites its memory while the other block reads
extern "C" __global__ void dsmem_overwritten(const float* x, float* y) {
    __shared__ float s[64];
    auto cluster = cg::this_cluster();
    s[T] = x[64 * blockIdx.x + T];
    cluster.sync();
    y[64 * blockIdx.x + T] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[T];  //!
    cluster.sync();  //+
    s[T] = 0;  //!
    cluster.sync();
}

//@ clusters | race/cluster/uninitialised | 2, 64, cluster 2 | i32[256]%64, i32[64]=0 | a block clears its part of the histogram while others may already add to it
extern "C" __global__ void histogram_no_first_sync(const int* x, int* y) {
    __shared__ int bins[32];
    auto cluster = cg::this_cluster();
    if (T < 32) bins[T] = 0;  //!
    cluster.sync();  //+
    __syncthreads();  //-
    for (int i = 0; i < 2; i++) {
        int bin = x[128 * blockIdx.x + 64 * i + T];
        atomicAdd(cluster.map_shared_rank(bins, bin / 32) + bin % 32, 1);  //!
    }
    cluster.sync();
    if (T < 32) y[32 * blockIdx.x + T] = bins[T];
}

//@ clusters | cluster/race | 2, 64, cluster 2 | i32[256]%64, i32[64]=0 | a block reads its part of the histogram while the other may still add to it
extern "C" __global__ void histogram_no_last_sync(const int* x, int* y) {
    __shared__ int bins[32];
    auto cluster = cg::this_cluster();
    if (T < 32) bins[T] = 0;
    cluster.sync();
    for (int i = 0; i < 2; i++) {
        int bin = x[128 * blockIdx.x + 64 * i + T];
        atomicAdd(cluster.map_shared_rank(bins, bin / 32) + bin % 32, 1);  //!
    }
    cluster.sync();  //+
    __syncthreads();  //-
    if (T < 32) y[32 * blockIdx.x + T] = bins[T];  //!
}

//@ clusters | - | 4, 64, cluster 4 | f32[256], f32[1]=0 | a reduction: each block sums up, the first one gathers from the others
extern "C" __global__ void cluster_reduction(const float* x, float* y) {
    __shared__ float s[64], total;
    auto cluster = cg::this_cluster();
    s[T] = x[64 * blockIdx.x + T];
    for (int n = 32; n; n /= 2) {
        __syncthreads();
        if (T < n) s[T] += s[T + n];
    }
    if (T == 0) total = s[0];
    cluster.sync();
    if (cluster.block_rank() == 0 && T == 0) {
        float sum = 0;
        for (int r = 0; r < 4; r++) sum += *cluster.map_shared_rank(&total, r);
        *y = sum;
    }
    cluster.sync();
}

//@ clusters | - | 2, 64, cluster 2 | i32[256]%64, i32[64]=0 | a histogram whose bins lie in both blocks
extern "C" __global__ void cluster_histogram(const int* x, int* y) {
    __shared__ int bins[32];
    auto cluster = cg::this_cluster();
    if (T < 32) bins[T] = 0;
    cluster.sync();
    for (int i = 0; i < 2; i++) {
        int bin = x[128 * blockIdx.x + 64 * i + T];
        atomicAdd(cluster.map_shared_rank(bins, bin / 32) + bin % 32, 1);
    }
    cluster.sync();
    if (T < 32) y[32 * blockIdx.x + T] = bins[T];
}

//@ clusters | - | 4, 64, cluster 2 | f32[128], f32[256]=0 | the first block of a cluster loads by TMA, the other one reads from it
extern "C" __global__ void __cluster_dims__(2, 1, 1) leader_loads(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    auto cluster = cg::this_cluster();
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    if (cluster.block_rank() == 0) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * (blockIdx.x / 2), 256, bar);
        wait(bar, 0);
    }
    cluster.sync();
    y[64 * blockIdx.x + T] = cluster.map_shared_rank(s, 0)[T];
    cluster.sync();
}
