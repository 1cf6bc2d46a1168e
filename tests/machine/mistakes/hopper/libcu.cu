//@arch sm_90a
// Bulk copies, transaction barriers and fences as libcu++ and cuda::ptx write them.
#include <cuda/barrier>
#include <cuda/ptx>
#include "instructions.cuh"
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
