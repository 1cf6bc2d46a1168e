//@arch sm_90a
// Bulk copies, tensor copies and wgmma that leave the array which they begin in, or which their address is of.
#include "instructions.cuh"
// One barrier for one arrival, made by thread 0 and seen by the block and by TMA.
#define MAKE(bar)                    \
    if (T == 0) init(bar, 1), fence_init(); \
    __syncthreads();

//@ TMA | out of bounds | 1, 32 | f32[64], f32[64]=0 | 256 bytes into an array of 128: the next array is overwritten
extern "C" __global__ void bulk_load_into_next_array(const float* x, float* y) {
    __shared__ __align__(128) float a[32];
    __shared__ __align__(128) float b[32];
    __shared__ u64 bar;
    b[T] = -1;
    fence_async_shared();
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 256);  //-
        arrive_expect(bar, 128);  //+
        bulk_load(a, x, 256, bar);  //-!
        bulk_load(a, x, 128, bar);  //+
    }
    wait(bar, 0);
    y[T] = a[T], y[32 + T] = b[T];
}

//@ TMA | out of bounds | 1, 64 | f32[256], f32[64]=0, i32:3 | a ring of two stages, and the third copy takes stage 2
extern "C" __global__ void bulk_load_stage_too_far(const float* x, float* y, int tiles) {
    __shared__ __align__(128) float ring[2][64];
    __shared__ __align__(128) float sums[64];
    __shared__ u64 bar;
    sums[T] = 0;
    fence_async_shared();
    MAKE(bar)
    REPEAT(i, tiles) {
        int stage = i;  //-
        int stage = i % 2;  //+
        if (T == 0) arrive_expect(bar, 256), bulk_load(ring[stage], x + 64 * i, 256, bar);  //!
        wait(bar, i % 2);
        sums[T] += ring[i % 2][T];
        fence_async_shared();
        __syncthreads();
    }
    y[T] = sums[T];
}

//@ TMA | out of bounds | 1, 64 | f32[128]=0 | twice as many bytes are stored as the array has
extern "C" __global__ void bulk_store_past_array(float* y) {
    __shared__ __align__(128) float a[64];
    __shared__ __align__(128) float b[64];
    a[T] = T, b[T] = -1;
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, a, 512);  //-!
        bulk_store(y, a, 256), bulk_store(y + 64, b, 256);  //+
        bulk_commit(), bulk_wait<0>();
    }
}

//@ TMA | out of bounds | 1, 64 | f32[128]=0 | a reduction that begins in the middle of an array and ends in the next
extern "C" __global__ void bulk_add_past_array(float* y) {
    __shared__ __align__(128) float a[64];
    __shared__ __align__(128) float b[64];
    a[T] = T, b[T] = 1;
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_add(y, a + 32, 256);  //-!
        bulk_add(y, a + 32, 128), bulk_add(y + 64, b, 256);  //+
        bulk_commit(), bulk_wait<0>();
    }
}

//@ TMA | out of bounds | 1, 32 | map f32[8x32] 8x32, f32[128]=0 | a box of eight rows into an array of four
extern "C" __global__ void box_past_array(MAP map, float* y) {
    __shared__ __align__(128) float tile[4][32];  //-
    __shared__ __align__(128) float tile[8][32];  //+
    __shared__ __align__(128) float sums[4][32];
    __shared__ u64 bar;
    for (int i = 0; i < 4; i++) sums[i][T] = 0;
    fence_async_shared();
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 1024), load_2d(tile, &map, 0, 0, bar);  //!
    wait(bar, 0);
    for (int i = 0; i < 4; i++) sums[i][T] += tile[i][T];
    for (int i = 0; i < 4; i++) y[32 * i + T] = sums[i][T];
}

//@ TMA | out of bounds | 1, 32 | map f16[16x64] 16x64 128B, f16[64]=0 | a swizzled box that begins a row too late
extern "C" __global__ void swizzled_box_begins_too_late(MAP map, half* y) {
    __shared__ __align__(1024) half tile[16][64];
    __shared__ __align__(128) half bias[64];
    __shared__ u64 bar;
    bias[T] = __float2half(1), bias[32 + T] = __float2half(2);
    fence_async_shared();
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 2048), load_2d(tile[1], &map, 0, 0, bar);  //-!
    if (T == 0) arrive_expect(bar, 2048), load_2d(tile[0], &map, 0, 0, bar);  //+
    wait(bar, 0);
    y[T] = tile[8][T], y[32 + T] = bias[T];
}

//@ TMA | out of bounds | 1, 32 | map f32[8x32] 8x32 | a box of eight rows from an array of four
extern "C" __global__ void box_stored_past_array(MAP map) {
    __shared__ __align__(128) float tile[4][32];  //-
    __shared__ __align__(128) float tile[8][32];  //+
    __shared__ __align__(128) float next[4][32];
    for (int i = 0; i < 4; i++) tile[i][T] = i, next[i][T] = -1;
    for (int i = 4; i < 8; i++) tile[i][T] = i;  //+
    fence_async_shared();
    __syncthreads();
    if (T == 0) store_2d(&map, 0, 0, tile), bulk_commit(), bulk_wait<0>();  //!
    if (T == 0) add_2d(&map, 0, 0, tile), bulk_commit(), bulk_wait<0>();  //!
}

// Fills halves of shared memory with ones, for the asynchronous proxy.
DEVICE void fill(half* p, int count) {
    for (int i = T; i < count; i += blockDim.x) p[i] = __float2half(1);
    fence_async_shared();
}

//@ wgmma | out of bounds | 1, 128 | f32[512]=0 | A has 64 rows, its array 32: the rest is read from the next array
extern "C" __global__ void wgmma_a_past_array(float* y) {
    __shared__ __align__(128) half a[32 * 16];  //-
    __shared__ __align__(128) half a[64 * 16];  //+
    __shared__ __align__(128) half b[64 * 16];
    fill(a, sizeof(a) / 2), fill(b, 64 * 16);
    __syncthreads();
    float d[4] = {};
    wgmma_fence(), wgmma(d, plain(a), plain(b)), wgmma_commit(), wgmma_wait<0>();  //!
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ wgmma | out of bounds | 1, 128 | f32[512]=0 | B with the strides of a tile four times as wide
extern "C" __global__ void wgmma_b_wrong_stride(float* y) {
    __shared__ __align__(128) half b[8 * 16];
    __shared__ __align__(128) half a[64 * 16];
    fill(a, 64 * 16), fill(b, 8 * 16);
    __syncthreads();
    float d[4] = {};
    u64 from_b = descriptor(b, 1024, 256);  //-
    u64 from_b = descriptor(b, 128, 256);  //+
    wgmma_fence(), wgmma(d, plain(a), from_b), wgmma_commit(), wgmma_wait<0>();  //!
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ wgmma | out of bounds | 1, 128 | f32[512]=0, i32:2 | the loop over K goes a slice too far, into the tile of B
extern "C" __global__ void wgmma_slice_too_far(float* y, int slices) {
    __shared__ __align__(128) half a[2][64 * 16];
    __shared__ __align__(128) half b[3][8 * 16];
    fill(a[0], 2 * 64 * 16), fill(b[0], 3 * 8 * 16);
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    slices += 1;  //-
    u64 from_a = plain(a), from_b = plain(b);
    REPEAT(i, slices) {
        wgmma(d, from_a + 128 * i, from_b + 16 * i);  //!
    }
    wgmma_commit(), wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ wgmma | out of bounds | 1, 128 | f32[512]=0 | a swizzled A whose array has half of its rows
extern "C" __global__ void wgmma_swizzled_past_array(float* y) {
    __shared__ __align__(1024) half a[32][64];  //-
    __shared__ __align__(1024) half a[64][64];  //+
    __shared__ __align__(1024) half b[64][64];
    fill(a[0], sizeof(a) / 2), fill(b[0], 64 * 64);
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    for (int k = 0; k < 4; k++) wgmma(d, swizzled(&a[0][16 * k]), swizzled(&b[0][16 * k]));  //!
    wgmma_commit(), wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ clusters | out of bounds | 2, 32, cluster 2 | f32[128]=0 | a copy into the other block that overruns the array there
extern "C" __global__ void copy_past_array_of_other_block(float* y) {
    __shared__ __align__(128) float out[64];
    __shared__ __align__(128) float in[32];  //-
    __shared__ __align__(128) float in[64];  //+
    __shared__ __align__(128) float kept[32];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    out[T] = rank, out[32 + T] = T, kept[T] = -1;
    fence_async_shared();
    if (T == 0) init(bar, 1), arrive_expect(bar, 256), fence_init();
    cluster_sync();
    if (T == 0) copy_cluster(mapa(in, rank ^ 1), out, 256, mapa(&bar, rank ^ 1));  //!
    wait(bar, 0);
    y[64 * rank + T] = in[T], y[64 * rank + 32 + T] = kept[T];
    cluster_sync();
}

//@ clusters | out of bounds | 2, 64, cluster 2 | f32[128]=0 | 64 threads store into an array of 32 in the other block
extern "C" __global__ void store_async_past_array(float* y) {
    __shared__ __align__(16) u32 in[32];  //-
    __shared__ __align__(16) u32 in[64];  //+
    __shared__ __align__(16) u32 kept[64];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    kept[T] = 7;
    if (T == 0) init(bar, 1), arrive_expect(bar, 256), fence_init();
    cluster_sync();
    store_async(mapa(in + T, rank ^ 1), T, mapa(&bar, rank ^ 1));  //!
    wait(bar, 0);
    y[64 * rank + T] = in[T % 32] + kept[T];
    cluster_sync();
}

//@ clusters | out of bounds | 2, 32, cluster 2 | f32[64], f32[64]=0 | both blocks get more bytes than their array has
extern "C" __global__ void multicast_past_array(const float* x, float* y) {
    __shared__ __align__(128) float tile[32];  //-
    __shared__ __align__(128) float tile[64];  //+
    __shared__ __align__(128) float kept[32];
    __shared__ u64 bar;
    kept[T] = 1;
    fence_async_shared();
    if (T == 0) init(bar, 1), arrive_expect(bar, 256), fence_init();
    cluster_sync();
    if (T == 0 && cluster_rank() == 0) load_multicast(tile, x, 256, bar, 3);  //!
    wait(bar, 0);
    y[32 * cluster_rank() + T] = tile[T] + kept[T];
    cluster_sync();
}

//@ clusters | out of bounds | 2, 64, cluster 2 | f32[128]=0 | plain stores past the end of an array in the other block
extern "C" __global__ void store_past_array_of_other_block(float* y) {
    __shared__ float in[32];  //-
    __shared__ float in[64];  //+
    __shared__ float kept[64];
    u32 rank = cluster_rank();
    kept[T] = 7;
    cluster_sync();
    store_cluster(mapa(in, rank ^ 1) + 4 * T, T);  //!
    cluster_sync();
    y[64 * rank + T] = in[T % 32] + kept[T];
}

//@ views | out of bounds | 1, 32 | @bulk_views | a copy from one view reads on into another
extern "C" __global__ void bulk_load_past_view(const float* x, const float* z, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 512);
        bulk_load(s, x, 512, bar);  //-!
        bulk_load(s, x, 256, bar), bulk_load(s + 64, z, 256, bar);  //+
    }
    wait(bar, 0);
    for (int i = T; i < 128; i += 32) y[i] = s[i];
}

//@ views | out of bounds | 1, 64 | @disjoint_views | a copy to one view writes on into another
extern "C" __global__ void bulk_store_past_view(float* y, float* z) {
    __shared__ __align__(128) float s[128];
    s[T] = T, s[64 + T] = -T;
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y + 16, s, 256);  //-!
        bulk_store(y, s, 256), bulk_store(z, s + 64, 256);  //+
        bulk_commit(), bulk_wait<0>();
    }
}

//@ views | out of bounds | 1, 64 | @overlapping_views | a copy past the end of a view, in what only the other one has
extern "C" __global__ void bulk_store_past_overlapping_view(float* y, float* z) {
    __shared__ __align__(128) float s[128];
    s[T] = T, s[64 + T] = -T;
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y + 32, s, 512);  //-!
        bulk_store(y + 32, s, 256), bulk_store(z + 64, s + 64, 256);  //+
        bulk_commit(), bulk_wait<0>();
    }
}

//@ TMA | - | 1, 128, 20480 | map f16[64x64] 64x64 128B, f32[512]=0 | dynamic shared memory is one variable, however it is cut
extern "C" __global__ void dynamic_memory_is_one_variable(MAP map, float* y) {
    extern __shared__ __align__(16) unsigned char raw[];
    unsigned char* begin = reinterpret_cast<unsigned char*>((reinterpret_cast<size_t>(raw) + 1023) / 1024 * 1024);
    half* a = reinterpret_cast<half*>(begin);
    half* b = a + 64 * 64;
    u64& bar = *reinterpret_cast<u64*>(begin + 16384);
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 16384), load_2d(a, &map, 0, 0, bar), load_2d(b, &map, 0, 0, bar);
    wait(bar, 0);
    float d[4] = {};
    wgmma_fence();
    for (int k = 0; k < 4; k++) wgmma(d, swizzled(a + 16 * k), swizzled(b + 16 * k));
    wgmma_commit(), wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
}

//@ TMA | - | 1, 32 | f32[64], f32[64]=0 | members of one structure are one variable
struct Storage {
    alignas(128) float first[32];
    float second[32];
    u64 bar;
};
extern "C" __global__ void members_are_one_variable(const float* x, float* y) {
    __shared__ Storage storage;
    MAKE(storage.bar)
    if (T == 0) arrive_expect(storage.bar, 256), bulk_load(storage.first, x, 256, storage.bar);
    wait(storage.bar, 0);
    y[T] = storage.first[T], y[32 + T] = storage.second[T];
}

//@ TMA | - | 1, 32 | f32[64], f32[64]=0, i32:1 | an address that is chosen among two arrays
extern "C" __global__ void chosen_among_two_arrays(const float* x, float* y, int which) {
    __shared__ __align__(128) float a[32];
    __shared__ __align__(128) float b[64];
    __shared__ u64 bar;
    MAKE(bar)
    float* chosen = which ? b : a;
    if (T == 0) arrive_expect(bar, which ? 256 : 128), bulk_load(chosen, x, which ? 256 : 128, bar);
    wait(bar, 0);
    y[T] = chosen[T];
}
