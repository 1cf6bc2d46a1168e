// Cooperative groups, and the barriers, pipelines and atomics of libcu++.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#define T threadIdx.x
#define B blockIdx.x
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

//@ cooperative groups | race | 1, 64 | f32[64], f32[64]=0 | a tile of 32 exchanges through shared memory without its sync
extern "C" __global__ void tile_no_sync(const float* x, float* y) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    s[T] = x[T];  //!
    tile.sync();  //+
    y[T] = s[tile.meta_group_rank() * 32 + 31 - tile.thread_rank()];  //!
}

//@ cooperative groups | race | 1, 64 | f32[64], f32[64]=0 | the tile has 8 lanes, the data comes from the next tile
extern "C" __global__ void tile_too_small(const float* x, float* y) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());  //-
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());  //+
    s[T] = x[T];  //!
    tile.sync();
    y[T] = s[T ^ 8];  //!
}

//@ cooperative groups | race | 1, 64 | f32[64], f32[64]=0 | a tile's sync where data crosses warps
extern "C" __global__ void tile_sync_for_block(const float* x, float* y) {
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    s[T] = x[T];  //!
    tile.sync();  //-
    block.sync();  //+
    y[T] = s[T ^ 32];  //!
}

//@ cooperative groups | race | 1, 32 | f32[32], f32[32]=0 | the coalesced group syncs its own lanes; the others' data is read
extern "C" __global__ void coalesced_reads_others(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    if (T % 2) {
        auto active = cg::coalesced_threads();
        active.sync();
        y[T] = s[T - 1];  //!
    }
}

//@ cooperative groups | race | 1, 32 | f32[32], f32[32]=0 | a coalesced group exchanges without its sync
extern "C" __global__ void coalesced_no_sync(const float* x, float* y) {
    __shared__ float s[32];
    if (T < 20) {
        auto active = cg::coalesced_threads();
        s[T] = x[T];  //!
        active.sync();  //+
        y[T] = s[19 - T];  //!
    }
}

//@ cooperative groups | race | 1, 64 | f32[64], f32[2]=0 | reduce gives each tile its own sum; all lanes of both store to one place
extern "C" __global__ void reduce_stored_by_all(const float* x, float* y) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    float sum = cg::reduce(tile, x[T], cg::plus<float>());
    y[0] = sum;  //-!
    if (tile.thread_rank() == 0) y[tile.meta_group_rank()] = sum;  //+
}

//@ cooperative groups | race/asynchronous copy/uninitialised | 1, 64 | f32[64], f32[64]=0 | cg::memcpy_async without wait
extern "C" __global__ void group_copy_no_wait(const float* x, float* y) {
    __shared__ __align__(16) float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x, sizeof(float) * 64);  //!
    cg::wait(block);  //+
    block.sync();  //-
    y[T] = s[63 - T];  //!
}

//@ cooperative groups | race/asynchronous copy | 1, 64 | f32[128], f32[64]=0 | wait_prior<1> leaves the copy that is read in flight
extern "C" __global__ void group_wait_prior(const float* x, float* y) {
    __shared__ __align__(16) float s[2][64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s[0], x, sizeof(float) * 64);
    cg::memcpy_async(block, s[1], x + 64, sizeof(float) * 64);  //!
    cg::wait_prior<1>(block);  //-
    cg::wait_prior<0>(block);  //+
    y[T] = s[0][63 - T] + s[1][63 - T];  //!
    cg::wait(block);
}

//@ cooperative groups | race | 1, 128 | f32[128], f32[128]=0 | an elected thread writes for all with no sync
extern "C" __global__ void elected_thread(const float* x, float* y) {
    __shared__ float scale;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 100) scale = x[3];  //!
    block.sync();  //+
    y[T] = x[T] * scale;  //!
}

//@ cooperative groups | advice deadlock/barrier/divergence | 1, 64 | f32[64], f32[64]=0 | block.sync() in a branch that one warp does not take; its exit counts as arrival
extern "C" __global__ void block_sync_in_branch(const float* x, float* y) {
    auto block = cg::this_thread_block();
    y[T] = x[T];
    if (T < 32) {
        y[T] += 1;
        block.sync();  //-!
    }
    block.sync();  //+
}

//@ cooperative groups | race | 1, 128 | f32[128], f32[128]=0 | a tile of two warps exchanges without its sync
extern "C" __global__ void wide_tile_no_sync(const float* x, float* y) {
    __shared__ cg::block_tile_memory<128> memory;
    __shared__ float s[128];
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    s[T] = x[T];  //!
    tile.sync();  //+
    y[T] = s[T ^ 32];  //!
}

//@ cooperative groups | - | 1, 128 | f32[128], f32[2]=0 | a sum over tiles of two warps, which uses reserved shared memory
extern "C" __global__ void wide_tile_sum(const float* x, float* y) {
    __shared__ cg::block_tile_memory<128> memory;
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    float sum = cg::reduce(tile, x[T], cg::plus<float>());
    if (tile.thread_rank() == 0) y[T / 64] = sum;
}

//@ mbarrier | race/uninitialised/barrier/mbarrier | 1, 64 | f32[64], f32[64]=0 | cuda::barrier: init without a barrier of the block
extern "C" __global__ void libcu_init_not_published(const float* x, float* y) {
    __shared__ Barrier bar;
    __shared__ float s[64];
    if (T == 32) init(&bar, 64);  //!
    __syncthreads();  //+
    s[T] = x[T];
    bar.arrive_and_wait();  //!
    y[T] = s[63 - T];  //!
}

//@ mbarrier | race | 1, 64 | f32[64], f32[64]=0 | cuda::barrier: arrived, but never waited
extern "C" __global__ void libcu_no_wait(const float* x, float* y) {
    __shared__ Barrier bar;
    __shared__ float s[64];
    if (T == 0) init(&bar, 64);
    __syncthreads();
    s[T] = x[T];  //!
    auto token = bar.arrive();
    bar.wait(cuda::std::move(token));  //+
    y[T] = s[63 - T];  //!
}

//@ mbarrier | race | 1, 64 | f32[64], f32[64]=0 | cuda::barrier: arrives before the store that it should publish
extern "C" __global__ void libcu_arrive_too_early(const float* x, float* y) {
    __shared__ Barrier bar;
    __shared__ float s[64];
    if (T == 0) init(&bar, 64);
    __syncthreads();
    s[T] = x[T];  //+
    auto token = bar.arrive();
    s[T] = x[T];  //-!
    bar.wait(cuda::std::move(token));
    y[T] = s[63 - T];  //!
}

//@ mbarrier | deadlock/endless/barrier | 1, 64 | f32[64], f32[64]=0 | cuda::barrier: made for the block, used by one warp
extern "C" __global__ void libcu_wrong_count(const float* x, float* y) {
    __shared__ Barrier bar;
    if (T == 0) init(&bar, 64);  //-!
    if (T == 0) init(&bar, 32);  //+
    __syncthreads();
    y[T] = x[T];
    if (T < 32) bar.arrive_and_wait();  //!
}

//@ mbarrier | asynchronous copy/race/uninitialised | 1, 64 | f32[64], f32[64]=0 | cuda::memcpy_async: the barrier is not awaited
extern "C" __global__ void memcpy_async_no_wait(const float* x, float* y) {
    __shared__ Barrier bar;
    __shared__ float s[64];
    if (T == 0) init(&bar, 64);
    __syncthreads();
    cuda::memcpy_async(&s[T], x + T, sizeof(float), bar);  //!
    bar.arrive_and_wait();  //+
    __syncthreads();  //-
    y[T] = s[63 - T];  //!
}

//@ mbarrier | asynchronous copy/race/uninitialised | 1, 64 | f32[64], f32[64]=0 | cuda::pipeline: the consumer does not wait
extern "C" __global__ void pipeline_no_consumer_wait(const float* x, float* y) {
    __shared__ float s[64];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&s[T], x + T, sizeof(float), pipe);  //!
    pipe.producer_commit();
    pipe.consumer_wait();  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
    pipe.consumer_release();
}

//@ mbarrier | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | cuda::pipeline of a thread: its wait is no barrier of the block
extern "C" __global__ void pipeline_no_barrier(const float* x, float* y) {
    __shared__ float s[64];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&s[T], x + T, sizeof(float), pipe);  //!
    pipe.producer_commit();
    pipe.consumer_wait();
    __syncthreads();  //+
    y[T] = s[63 - T];  //!
    pipe.consumer_release();
}

//@ mbarrier | asynchronous copy/race | 1, 64 | f32[320], f32[64]=0 | cuda::pipeline of a block: a stage is released before it was read
extern "C" __global__ void pipeline_released_too_early(const float* x, float* y) {
    __shared__ float s[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    pipe.producer_acquire();
    cuda::memcpy_async(&s[0][T], x + T, sizeof(float), pipe);
    pipe.producer_commit();
    for (int i = 0; i < 4; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[(i + 1) & 1][T], x + (i + 1) * 64 + T, sizeof(float), pipe);  //!
        pipe.producer_commit();
        pipe.consumer_wait();
        if (i > 0) pipe.consumer_release();  //-
        sum += s[i & 1][63 - T];  //!
        pipe.consumer_release();  //+
        if (i == 0) pipe.consumer_release();  //-
    }
    pipe.consumer_wait();
    y[T] = sum;
    pipe.consumer_release();
}

//@ scopes | race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | release and acquire at block scope between blocks
extern "C" __global__ void release_block_scope(const float* x, float* y, int* flag) {
    constexpr auto scope = cuda::thread_scope_block;  //-
    constexpr auto scope = cuda::thread_scope_device;  //+
    cuda::atomic_ref<int, scope> ready(*flag);
    if (B == 0) {
        y[0] = x[0];  //!
        ready.store(1, cuda::memory_order_release);  //!
    } else {
        while (ready.load(cuda::memory_order_acquire) == 0) {}  //!
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | relaxed where release is needed
extern "C" __global__ void relaxed_for_release(const float* x, float* y, int* flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    if (B == 0) {
        y[0] = x[0];  //!
        ready.store(1, cuda::memory_order_relaxed);  //-!
        ready.store(1, cuda::memory_order_release);  //+
    } else {
        while (ready.load(cuda::memory_order_acquire) == 0) {}
        y[1] = y[0];  //!
    }
}

//@ scopes | advice race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | relaxed where acquire is needed
extern "C" __global__ void relaxed_for_acquire(const float* x, float* y, int* flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    if (B == 0) {
        y[0] = x[0];  //!
        ready.store(1, cuda::memory_order_release);
    } else {
        while (ready.load(cuda::memory_order_relaxed) == 0) {}  //-!
        while (ready.load(cuda::memory_order_acquire) == 0) {}  //+
        y[1] = y[0];  //!
    }
}

//@ atomics | - | 1, 64 | i32[64]%4, i32[64]=0, i32[1]=0 | atomics aggregated by the lanes that take part
extern "C" __global__ void aggregated_atomics(const int* x, int* y, int* count) {
    if (x[T] > 1) {
        auto active = cg::coalesced_threads();
        int start;
        if (active.thread_rank() == 0) start = atomicAdd(count, active.size());
        start = active.shfl(start, 0);
        y[start + active.thread_rank()] = T;
    }
}

//@ global races | - | 2, 64 | f32[128], f32[128]=0, i32[2]=0 | release and acquire at device scope, data of a whole block handed on by cumulativity
extern "C" __global__ void hand_over_by_one_thread(const float* x, float* y, int* flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(flag[0]);
    if (B == 0) {
        y[T] = x[T] * 2;
        __syncthreads();
        if (T == 0) ready.store(1, cuda::memory_order_release);
    } else {
        if (T == 0)
            while (ready.load(cuda::memory_order_acquire) == 0) {}
        __syncthreads();
        y[64 + T] = y[63 - T];
    }
}
