// Cooperative groups: tiles, coalesced groups, and the shuffles and votes of lanes that are not there.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#define T threadIdx.x
#define ALL 0xffffffffu
namespace cg = cooperative_groups;

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

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | f32[32], f32[32]=0 | the mask names all lanes, half of them never come
extern "C" __global__ void shuffle_full_mask_in_branch(const float* x, float* y) {
    float v = x[T];
    if (T < 16) {
        v += __shfl_down_sync(ALL, v, 8);  //-!
        v += __shfl_down_sync(0xffff, v, 8, 16);  //+
        y[T] = v;  //!
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | f32[32], f32[32]=0 | a value is taken from a lane outside the mask
extern "C" __global__ void shuffle_from_outside_mask(const float* x, float* y) {
    if (T < 16) {
        float v = __shfl_sync(0xffff, x[T], T + 8);  //-!
        float v = __shfl_sync(0xffff, x[T], (T + 8) % 16);  //+
        y[T] = v;  //!
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 20 | f32[20], f32[20]=0 | a block of 20 threads reduced as if it had 32
extern "C" __global__ void shuffle_of_absent_threads(const float* x, float* y) {
    float v = x[T];
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_down_sync((1u << 20) - 1, v, d);  //!
        v += other;  //-!
        if (T + d < 20) v += other;  //+
    }
    if (T == 0) *y = v;  //!
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[32], f32[32]=0 | a lane that is not in its own mask
extern "C" __global__ void lane_not_in_mask(const float* x, float* y) {
    float v = __shfl_xor_sync(0x7fffffff, x[T], 1);  //-!
    float v = __shfl_xor_sync(0xffffffff, x[T], 1);  //+
    y[T] = v;
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[30], f32[1]=0, i32:30 | lanes beyond n return, the others shuffle with all
extern "C" __global__ void return_before_shuffle(const float* x, float* y, int n) {
    if (T >= n) return;  //-
    float v = x[T];  //-
    float v = T < n ? x[T] : 0;  //+
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(ALL, v, d);  //!
    if (T == 0) *y = v;
}

//@ shuffles | advice divergence/shuffle | 1, 32 | i32[32]%2, u32[32]=0 | a ballot in a branch names lanes that are elsewhere
extern "C" __global__ void ballot_in_branch(const int* x, unsigned* y) {
    unsigned mask = __ballot_sync(ALL, x[T]);
    if (x[T]) {
        y[T] = __ballot_sync(ALL, T > 10);  //-!
        y[T] = __ballot_sync(mask, T > 10);  //+
    }
}

//@ shuffles | divergence/shuffle/uninitialised | 1, 32 | i32[32]%2, i32[32]=0 | the leader of the mask is broadcast from a lane that did not take part
extern "C" __global__ void broadcast_from_lane_zero(const int* x, int* y) {
    unsigned mask = __ballot_sync(ALL, x[T]);
    if (x[T]) {
        int leader = 0;  //-
        int leader = __ffs(mask) - 1;  //+
        y[T] = __shfl_sync(mask, T * 10, leader);  //!
    }
}

//@ shuffles | divergence/shuffle | 1, 32 | f32[32], f32[32]=0 | loops of different length, each with a shuffle of all lanes
extern "C" __global__ void shuffle_in_ragged_loop(const float* x, float* y) {
    float v = x[T];
    int rounds = T % 4;  //-
    int rounds = 3;  //+
    for (int i = 0; i < rounds; i++) v += __shfl_xor_sync(ALL, v, 1);  //!
    y[T] = v;
}

//@ shuffles | divergence/shuffle | 1, 32 | i32[32], i32[32]=0 | __syncwarp of all lanes in one branch only
extern "C" __global__ void syncwarp_in_branch(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];
    if (T < 8) {
        __syncwarp();  //-!
    }
    __syncwarp();  //+
    if (T < 8) y[T] = s[T];
    if (T >= 8) { int v = x[T]; __syncwarp(0xffffff00); y[T] = v; }
}
