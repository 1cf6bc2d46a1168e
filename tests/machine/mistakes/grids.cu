// The barrier of the grid, at which all threads of all blocks have to arrive.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

//@ cooperative groups | divergence | 2, 64 | i32[128]=0, i32[128]=0 | a warp of each block returns before grid.sync()
extern "C" __global__ void warp_leaves_before_grid(int* x, int* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    x[i] = i;
    if (threadIdx.x >= 32) return;  //-
    cg::this_grid().sync();  //!
    y[i] = x[127 - i];
}

//@ cooperative groups | divergence | 2, 64 | i32[128]=0, i32[128]=0 | half of each warp returns before grid.sync()
extern "C" __global__ void half_warps_leave_before_grid(int* x, int* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    x[i] = i;
    if (threadIdx.x % 32 >= 16) return;  //-
    cg::this_grid().sync();  //!
    y[i] = x[i ^ 64];
}

//@ cooperative groups | divergence | 3, 64 | i32[192]=0, i32[192]=0, i32:150 | threads beyond the end return before grid.sync()
extern "C" __global__ void tail_leaves_before_grid(int* x, int* y, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;  //-
    if (i < n) x[i] = i;
    cg::this_grid().sync();  //!
    if (i < n) y[i] = x[n - 1 - i];
}

//@ cooperative groups | divergence | 2, 48 | i32[96]=0, i32[96]=0 | one thread returns between two barriers of the grid; blocks are no multiple of a warp
extern "C" __global__ void thread_leaves_between_grids(int* x, int* y) {
    int i = blockIdx.x * 48 + threadIdx.x;
    x[i] = i;
    cg::this_grid().sync();
    int v = x[95 - i];
    if (threadIdx.x == 40) return;  //-
    cg::this_grid().sync();  //!
    y[i] = v;
}
