//@arch sm_90a
// Bulk and tensor copies and reductions out of shared memory: groups, who waits, where.
#include "instructions.cuh"
#define ROWS 8
#define COLS 32

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the source is overwritten before TMA has read it
extern "C" __global__ void store_source_overwritten(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait_read<0>();  //+
        s[0] = 7;  //!
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the committing thread waits, but the others overwrite the source with no barrier in between
extern "C" __global__ void store_overwritten_by_others(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait_read<0>();
    }
    __syncthreads();  //+
    s[T] = 7;  //!
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | without commit_group the wait has no group to wait for
extern "C" __global__ void store_no_commit(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();  //+
        bulk_wait_read<0>();  //!
        s[0] = 7;  //!
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | one group may be under way, but there is one buffer
extern "C" __global__ void store_waits_for_too_few(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    REPEAT(t, 4) {
        s[T] = x[64 * t + T];  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_store(y + 64 * t, s, 256);  //!
            bulk_commit();
            bulk_wait_read<1>();  //-
            bulk_wait_read<0>();  //+
        }
        __syncthreads();
    }
    if (T == 0) bulk_wait<0>();
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | two buffers, and wait_group.read 2 in place of 1
extern "C" __global__ void store_two_buffers(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    REPEAT(t, 4) {
        if (T == 0) {
            bulk_wait_read<2>();  //-
            bulk_wait_read<1>();  //+
        }
        __syncthreads();
        s[t % 2][T] = x[64 * t + T];  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) bulk_store(y + 64 * t, s[t % 2], 256), bulk_commit();  //!
    }
    if (T == 0) bulk_wait<0>();
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0, f32[64]=0 | other threads read the result with nothing that waits for the copy
extern "C" __global__ void store_read_too_early(const float* x, float* y, float* z) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();  //+
    }
    __syncthreads();
    z[T] = y[63 - T];  //!
    if (T == 0) bulk_wait<0>();  //-
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0, f32[64]=0 | wait_group.read says that the source was read, not that the target was written
extern "C" __global__ void store_read_after_wait_read(const float* x, float* y, float* z) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait_read<0>();  //-
        bulk_wait<0>();  //+
    }
    __syncthreads();
    z[T] = y[63 - T];  //!
}

//@ TMA | asynchronous copy/race/bulk copy | 1, 64 | f32[64], f32[64]=0 | thread 0 commits and thread 32 waits: it has no group to wait for
extern "C" __global__ void store_another_waits(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) bulk_store(y, s, 256), bulk_commit();  //!
    if (T == 32) bulk_wait_read<0>();  //-!
    if (T == 0) bulk_wait_read<0>();  //+
    __syncthreads();
    s[T] = 7;  //!
}

//@ TMA | asynchronous copy/race/bulk copy | 1, 128 | map f32[8x32]=0 8x32, f32[256] | the lane that waits was elected, the one that committed is lane 0 of another warp
extern "C" __global__ void tile_store_other_warp_waits(MAP map, const float* x) {
    __shared__ __align__(128) float s[ROWS * COLS];
    for (int i = T; i < 256; i += 128) s[i] = x[i];
    fence_async_shared();
    __syncthreads();
    if (WARP == 0 && elect()) store_2d(&map, 0, 0, s), bulk_commit();  //!
    if (WARP == 1 && elect()) bulk_wait_read<0>();  //-!
    if (WARP == 0 && elect()) bulk_wait_read<0>();  //+
    __syncthreads();
    for (int i = T; i < 256; i += 128) s[i] = 0;  //!
}

//@ TMA | misaligned/bulk copy/trap/out of bounds | 1, 64 | map f32[16x32]=0 8x32 | a store at a negative coordinate: the SM traps
extern "C" __global__ void tile_store_negative(MAP map) {
    __shared__ __align__(128) float s[ROWS * COLS];
    for (int i = T; i < 256; i += 64) s[i] = i;
    fence_async_shared();
    __syncthreads();
    int y = -4;  //-
    int y = 12;  //+
    if (T == 0) {
        store_2d(&map, 0, y, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | misaligned/bulk copy/trap/out of bounds | 1, 64 | map f32[16x64]=0 8x32 | a reduction at a negative innermost coordinate: the SM traps
extern "C" __global__ void tile_add_negative(MAP map) {
    __shared__ __align__(128) float s[ROWS * COLS];
    for (int i = T; i < 256; i += 64) s[i] = i;
    fence_async_shared();
    __syncthreads();
    int x = -16;  //-
    int x = 48;  //+
    if (T == 0) {
        add_2d(&map, x, 0, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | misaligned/bulk copy/trap | 1, 64 | map f16[8x64]=0 8x32 | a store at an innermost coordinate of 4 halves
extern "C" __global__ void tile_store_odd_coordinate(MAP map) {
    __shared__ __align__(128) __half s[ROWS * COLS];
    for (int i = T; i < 256; i += 64) s[i] = __float2half(i);
    fence_async_shared();
    __syncthreads();
    int x = 4;  //-
    int x = 8;  //+
    if (T == 0) {
        store_2d(&map, x, 0, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | misaligned/bulk copy | 1, 64 | f32[64], f32[68]=0 | a target in global memory that is no multiple of 16 bytes
extern "C" __global__ void store_misaligned(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    y += 2;  //-
    y += 4;  //+
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | uninitialised | 1, 64 | map f32[8x32]=0 8x32 | TMA stores a row that nobody wrote
extern "C" __global__ void tile_store_unwritten_row(MAP map) {
    __shared__ __align__(128) float s[ROWS][COLS];
    int rows = ROWS - 1;  //-
    int rows = ROWS;  //+
    for (int i = T; i < rows * COLS; i += 64) s[i / COLS][i % COLS] = i;
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        store_2d(&map, 0, 0, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | out of bounds | 1, 64 | f32[64], f32[48]=0 | a bulk store past the end of the array
extern "C" __global__ void store_past_array(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //-!
        bulk_store(y, s, 192);  //+
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | race/asynchronous copy | 2, 64 | map f32[16x32]=0 8x32 | both blocks store a tile to the same rows
extern "C" __global__ void tile_stores_collide(MAP map) {
    __shared__ __align__(128) float s[ROWS][COLS];
    for (int i = T; i < ROWS * COLS; i += 64) s[i / COLS][i % COLS] = i + 1000.f * blockIdx.x;
    fence_async_shared();
    __syncthreads();
    int row = 4 * blockIdx.x;  //-
    int row = ROWS * blockIdx.x;  //+
    if (T == 0) {
        store_2d(&map, 0, row, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | race/asynchronous copy | 2, 64 | f32[64], f32[64]=0 | one block adds by TMA, the other with plain loads and stores
extern "C" __global__ void bulk_add_and_plain_add(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (blockIdx.x == 0) {
        if (T == 0) {
            bulk_add(y, s, 256);  //!
            bulk_commit();
            bulk_wait<0>();
        }
    } else {
        y[T] += s[T];  //-!
        atomicAdd(y + T, s[T]);  //+
    }
}

//@ TMA | advice asynchronous copy/race/bulk copy | 1, 64 | f32[64], f32[64]=0 | the block ends before TMA has read its shared memory
extern "C" __global__ void store_then_exit(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();  //!
        bulk_wait_read<0>();  //+
    }
}  //!

//@ TMA | race/asynchronous copy | 2, 64 | f32[64], f32[64]=0, f32[64]=0, i32[1]=0 | a flag says that the tile is in global memory, but only its source was read
extern "C" __global__ void store_then_flag(const float* x, float* y, float* z, int* flag) {
    __shared__ __align__(128) float s[64];
    if (blockIdx.x == 0) {
        s[T] = x[T];
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_store(y, s, 256);  //!
            bulk_commit();
            bulk_wait_read<0>();  //-
            bulk_wait<0>();  //+
            asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
        }
    } else {
        int seen = 0;
        if (T == 0)
            while (!seen) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        __syncthreads();
        z[T] = y[T];  //!
    }
}

//@ TMA | asynchronous copy/race | 1, 64 | map f32[2x8x32]=0 1x8x32, f32[512] | the second slice is put into the buffer from which the first is being stored
extern "C" __global__ void slices_share_buffer(MAP map, const float* x) {
    __shared__ __align__(128) float s[ROWS * COLS];
    for (int z = 0; z < 2; z++) {
        for (int i = T; i < 256; i += 64) s[i] = x[256 * z + i];  //!
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            store_3d(&map, 0, 0, z, s);  //!
            bulk_commit();
            bulk_wait_read<0>();  //+
        }
        __syncthreads();  //+
    }
    if (T == 0) bulk_wait<0>();
}
