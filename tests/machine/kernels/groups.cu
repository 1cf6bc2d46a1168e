// Sums by cooperative groups: tiles of 8, warps, the block; and the threads that happen to be there.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void sum_by_groups(const int* x, int* tiles, int* blocks, int* odds) {
    __shared__ int parts[64];
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    const int rank = block.group_index().x * block.size() + block.thread_rank();
    int sum = x[rank];
    for (int step = tile.size() / 2; step; step /= 2) sum += tile.shfl_down(sum, step);
    if (tile.thread_rank() == 0) tiles[rank / 8] = parts[tile.meta_group_rank()] = sum;
    block.sync();
    const auto warp = cg::tiled_partition<32>(block);
    if (warp.meta_group_rank() == 0) {
        const int own = warp.thread_rank() < block.size() / 8 ? parts[warp.thread_rank()] : 0;
        const int all = cg::reduce(warp, own, cg::plus<int>());
        if (warp.thread_rank() == 0) blocks[block.group_index().x] = all;
    }
    if (x[rank] % 2) {
        const auto odd = cg::coalesced_threads();
        if (odd.thread_rank() == 0) atomicAdd(odds, odd.size());
    }
}
