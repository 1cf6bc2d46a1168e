//@arch sm_90a
// Bulk copies of two blocks, or of a block beside plain accesses of another one: nothing orders blocks but a flag.
#include "instructions.cuh"

DEVICE void release_flag(u32* flag) { asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(flag)) : "memory"); }
DEVICE u32 acquire_flag(u32* flag) { u32 value; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(flag)) : "memory"); return value; }
#define MAKE(bar)                           \
    if (T == 0) init(bar, 1), fence_init(); \
    __syncthreads();

//@ TMA | asynchronous copy/race | 2, 64 | f32[128], f32[128]=0 | two blocks store different bytes to one place: the index forgets the block
extern "C" __global__ void bulk_stores_of_two_blocks(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[64 * blockIdx.x + T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //-!
        bulk_store(y + 64 * blockIdx.x, s, 256);  //+
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | asynchronous copy/race | 3, 64 | f32[256], f32[256]=0 | persistent blocks: a tile is counted on by one too few, and two blocks store it
extern "C" __global__ void bulk_stores_of_persistent_blocks(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    for (int tile = blockIdx.x; tile < 4; tile += gridDim.x) {
        s[T] = x[64 * tile + T] + blockIdx.x;
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_store(y + 64 * (tile == 3 ? 2 : tile), s, 256);  //-!
            bulk_store(y + 64 * tile, s, 256);  //+
            bulk_commit();
            bulk_wait<0>();
        }
        __syncthreads();
    }
}

//@ TMA | - | 2, 64 | f32[64], f32[64]=0 | two blocks store equal bytes to one place, which harms nobody
extern "C" __global__ void equal_bulk_stores_of_two_blocks(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ global races | asynchronous copy/race | 2, 64 | f32[64], f32[64]=0, u32[1]=0 | one block loads by a bulk copy what the other one stores over, and does not wait for it
extern "C" __global__ void store_over_a_bulk_load(float* x, float* y, u32* flag) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (blockIdx.x == 0) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
        wait(bar, 0);
        y[T] = s[63 - T];
        __syncthreads();
        if (T == 0) release_flag(flag);
    } else {
        while (acquire_flag(flag) == 0);  //+
        x[T] = 1;  //!
    }
}

//@ global races | asynchronous copy/race | 2, 64 | f32[64], f32[64]=0, u32[1]=0 | one block loads by a bulk copy what the other one stores by another, and does not wait for it
extern "C" __global__ void bulk_store_over_a_bulk_load(float* x, float* y, u32* flag) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    s[T] = 1;
    fence_async_shared();
    MAKE(bar)
    if (blockIdx.x == 0) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
        wait(bar, 0);
        y[T] = s[63 - T];
        __syncthreads();
        if (T == 0) release_flag(flag);
    } else if (T == 0) {
        while (acquire_flag(flag) == 0);  //+
        fence_async_global();  //+
        bulk_store(x, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ global races | asynchronous copy/race | 2, 64 | @mapped_array_and_flag | one block loads by TMA what the other one stores over, and does not wait for it
extern "C" __global__ void store_over_a_tensor_load(MAP map, float* x, float* y, u32* flag) {
    __shared__ __align__(128) float s[256];
    __shared__ u64 bar;
    MAKE(bar)
    if (blockIdx.x == 0) {
        if (T == 0) arrive_expect(bar, 1024), load_2d(s, &map, 0, 0, bar);  //!
        wait(bar, 0);
        y[T] = s[63 - T];
        __syncthreads();
        if (T == 0) release_flag(flag);
    } else {
        while (acquire_flag(flag) == 0);  //+
        x[T] = 1;  //!
    }
}

//@ global races | - | 2, 64 | f32[64], f32[64]=0, u32[1]=0 | the warp that waited for a bulk load tells the other block, not the one that issued it
extern "C" __global__ void waiter_of_a_bulk_load_tells(float* x, float* y, u32* flag) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (blockIdx.x == 0) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
        if (WARP == 1) {
            wait(bar, 0);
            y[LANE] = s[63 - LANE];
            __syncwarp();
            if (LANE == 0) release_flag(flag);
        }
    } else {
        while (acquire_flag(flag) == 0);
        x[T] = 1;
    }
}
