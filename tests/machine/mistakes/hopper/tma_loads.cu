//@arch sm_90a
// Bulk and tensor copies into shared memory: phases, bytes, addresses.
#include "instructions.cuh"
#define ROWS 8
#define COLS 32
#define BYTES (ROWS * COLS * 4)
// One barrier for one arrival, made by thread 0 and seen by the block and by TMA.
#define MAKE(bar)                    \
    if (T == 0) init(bar, 1), fence_init(); \
    __syncthreads();

//@ TMA | asynchronous copy/race/uninitialised | 1, 64 | f32[64], f32[64]=0 | the tile is read before its bytes have arrived
extern "C" __global__ void bulk_load_no_wait(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);  //+
    __syncthreads();  //-
    y[T] = s[T];  //!
}

//@ TMA | asynchronous copy/race/uninitialised | 1, 128 | f32[64], f32[64]=0 | only thread 0 waits; the others read with nothing behind its wait
extern "C" __global__ void bulk_load_one_waits(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 96) {
        arrive_expect(bar, 256);
        bulk_load(s, x, 256, bar);  //!
        wait(bar, 0);
    }
    __syncthreads();  //+
    if (T < 64) y[T] = s[T];  //!
}

//@ TMA | asynchronous copy/race/uninitialised | 1, 64 | f32[128], f32[128]=0 | the second tile is read behind the barrier of the first
extern "C" __global__ void bulk_load_wrong_barrier(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 bar[2];
    if (T == 0) init(bar[0], 1), init(bar[1], 1), fence_init();
    __syncthreads();
    if (T == 0)
        for (int i = 0; i < 2; i++) arrive_expect(bar[i], 256), bulk_load(s[i], x + 64 * i, 256, bar[i]);  //!
    for (int i = 0; i < 2; i++) {
        wait(bar[0], 0);  //-
        wait(bar[i], 0);  //+
        y[64 * i + T] = s[i][T];  //!
    }
}

//@ TMA | asynchronous copy/race/mbarrier/uninitialised | 1, 64 | f32[64], f32[64]=0 | half of the bytes are expected: the phase completes before the rest is there
extern "C" __global__ void bulk_load_expects_less(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 128);  //-!
        arrive_expect(bar, 256);  //+
        bulk_load(s, x, 128, bar);  //!
        bulk_load(s + 32, x + 32, 128, bar);  //!
    }
    wait(bar, 0);
    y[T] = s[T];  //!
}

//@ TMA | barrier/deadlock/endless/mbarrier | 1, 64 | f32[64], f32[64]=0 | more bytes are expected than arrive: the wait never ends
extern "C" __global__ void bulk_load_expects_more(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 512);  //-!
        arrive_expect(bar, 256);  //+
        bulk_load(s, x, 256, bar);  //!
    }
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ TMA | asynchronous copy/race/mbarrier/uninitialised/barrier/deadlock | 1, 64 | f32[64], f32[64]=0 | elements are counted where bytes are meant
extern "C" __global__ void bulk_load_expects_elements(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 64);  //-!
        arrive_expect(bar, 64 * sizeof(float));  //+
        bulk_load(s, x, 64 * sizeof(float), bar);  //!
    }
    wait(bar, 0);  //!
    y[T] = s[T];  //!
}

//@ TMA | asynchronous copy/race/mbarrier/uninitialised | 1, 64 | f32[64], f32[64]=0 | no bytes are expected: the arrival alone completes the phase
extern "C" __global__ void bulk_load_expects_nothing(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive(bar);  //-!
        arrive_expect(bar, 256);  //+
        bulk_load(s, x, 256, bar);  //!
    }
    wait(bar, 0);  //!
    y[T] = s[T];  //!
}

//@ TMA | asynchronous copy/race/mbarrier/uninitialised | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | the arrival completes the phase before the bytes are expected
extern "C" __global__ void tile_expect_after_arrive(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive(bar);  //-!
        expect(bar, BYTES);  //!
        arrive(bar);  //+
        load_2d(s, &map, 0, 0, bar);  //!
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];  //!
}

//@ TMA | asynchronous copy/race/mbarrier/uninitialised/barrier/deadlock | 1, 64 | map f32[6x32] 8x32, f32[256]=0 | rows outside of the tensor are not expected, but count as bytes
extern "C" __global__ void tile_expects_rows_inside(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, 2 * COLS * 4);  //-!
        arrive_expect(bar, BYTES);  //+
        load_2d(s, &map, 0, 4, bar);  //!
    }
    wait(bar, 0);  //!
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];  //!
}

//@ TMA | asynchronous copy/race/mbarrier/barrier/deadlock | 1, 128 | map f32[8x32] 8x32, f32[256]=0 | all lanes of the producer warp issue the copy, and 32 times the bytes arrive
extern "C" __global__ void tile_whole_warp_loads(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (WARP == 3) {
        if (LANE == 0) arrive_expect(bar, BYTES);
        __syncwarp();
        load_2d(s, &map, 0, 0, bar);  //-!
        if (LANE == 0) load_2d(s, &map, 0, 0, bar);  //+
    }
    wait(bar, 0);  //!
    for (int i = T; i < 256; i += 128) y[i] = s[i / COLS][i % COLS];  //!
}

//@ TMA | misaligned/bulk copy | 1, 64 | f32[64], f32[64]=0 | a target in shared memory that is no multiple of 16 bytes
extern "C" __global__ void bulk_load_misaligned_target(const float* x, float* y) {
    __shared__ __align__(128) float s[68];
    __shared__ u64 bar;
    MAKE(bar)
    float* target = s + 2;  //-
    float* target = s + 4;  //+
    if (T == 0) arrive_expect(bar, 256), bulk_load(target, x, 256, bar);  //!
    wait(bar, 0);
    y[T] = target[T];
}

//@ TMA | misaligned/bulk copy | 1, 64 | f32[68], f32[64]=0 | a source in global memory that is no multiple of 16 bytes
extern "C" __global__ void bulk_load_misaligned_source(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    int first = 1;  //-
    int first = 4;  //+
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + first, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[T];
}

//@ TMA | misaligned/bulk copy | 1, 64 | f32[64], f32[64]=0, i32:63 | 63 floats: a number of bytes that is no multiple of 16
extern "C" __global__ void bulk_load_odd_bytes(const float* x, float* y, int n) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    u32 bytes = n * 4;  //-
    u32 bytes = (n * 4 + 15) & ~15;  //+
    if (T == 0) arrive_expect(bar, bytes), bulk_load(s, x, bytes, bar);  //!
    wait(bar, 0);
    if (T < n) y[T] = s[T];
}

//@ TMA | misaligned/bulk copy | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | a tile at 64 bytes: tensor copies want multiples of 128
extern "C" __global__ void tile_misaligned_target(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS + 32];
    __shared__ u64 bar;
    MAKE(bar)
    float* tile = s + 16;  //-
    float* tile = s + 32;  //+
    if (T == 0) arrive_expect(bar, BYTES), load_2d(tile, &map, 0, 0, bar);  //!
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = tile[i];
}

//@ TMA | misaligned/bulk copy/trap | 1, 64 | map f32[8x64] 8x32, f32[256]=0 | an innermost coordinate of 2 floats is no multiple of 16 bytes: the SM traps
extern "C" __global__ void tile_odd_coordinate(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    int x = 2;  //-
    int x = 4;  //+
    if (T == 0) arrive_expect(bar, BYTES), load_2d(s, &map, x, 0, bar);  //!
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];
}

//@ TMA | out of bounds | 1, 64 | f32[64], f32[64]=0 | a copy past the end of the array
extern "C" __global__ void bulk_load_past_array(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    const float* source = x + 32;  //-
    const float* source = x;  //+
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, source, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[T];
}

//@ TMA | out of bounds | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | the box has more rows than the buffer
extern "C" __global__ void tile_larger_than_buffer(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS - 4][COLS];  //-
    __shared__ __align__(128) float s[ROWS][COLS];  //+
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, BYTES), load_2d(s, &map, 0, 0, bar);  //!
    wait(bar, 0);
    for (int i = T; i < 128; i += 64) y[i] = s[i / COLS][i % COLS];
}

//@ TMA | uninitialised | 1, 64 | map f32[8x32] 4x32, f32[256]=0 | rows are read that the box does not have
extern "C" __global__ void tile_smaller_than_read(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, BYTES / 2), load_2d(s, &map, 0, 0, bar);
    wait(bar, 0);
    int n = 256;  //-
    int n = 128;  //+
    for (int i = T; i < n; i += 64) y[i] = s[i / COLS][i % COLS];  //!
}

//@ TMA | asynchronous copy/race | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | padding is stored into the tile while the copy is under way
extern "C" __global__ void tile_written_in_flight(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, BYTES), load_2d(s, &map, 0, 0, bar);  //!
    wait(bar, 0);  //+
    if (T < ROWS) s[T][0] = 0;  //!
    wait(bar, 0);  //-
    __syncthreads();
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the source in global memory is overwritten while it is copied
extern "C" __global__ void bulk_load_source_overwritten(float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    __syncthreads();  //-
    wait(bar, 0);  //+
    x[T] = 0;  //!
    wait(bar, 0);  //-
    y[T] = s[T];
}

//@ TMA | tensor map/out of bounds/bulk copy/misaligned | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | a map by value without __grid_constant__ is copied to local memory, where TMA cannot read it
extern "C" __global__ void tile_map_in_local_memory(const CUtensorMap map, float* y) {  //-
extern "C" __global__ void tile_map_in_local_memory(MAP map, float* y) {  //+
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, BYTES), load_2d(s, &map, 0, 0, bar);  //!
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];
}

//@ TMA | tensor map/bulk copy | 1, 64 | map f32[8x32] 8x32, f32[256]=0 | a copy of three dimensions by a map of two
extern "C" __global__ void tile_wrong_rank(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS][COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        arrive_expect(bar, BYTES);
        load_3d(s, &map, 0, 0, 0, bar);  //-!
        load_2d(s, &map, 0, 0, bar);  //+
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i / COLS][i % COLS];
}

//@ TMA | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | the buffer is refilled while others still read it
extern "C" __global__ void bulk_load_refill_early(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, t & 1);
        y[64 * t + T] = s[T];  //!
        fence_async_shared();
        __syncthreads();  //+
    }
}

//@ TMA | asynchronous copy/race | 1, 128 | map f32[32x32] 8x32, f32[1024]=0 | the producer of a ring of two stages does not wait until they are empty
extern "C" __global__ void ring_without_empty(MAP map, float* y) {
    __shared__ __align__(128) float s[2][ROWS * COLS];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 96);
        fence_init();
    }
    __syncthreads();
    if (WARP == 3) {
        if (LANE == 0)
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);  //+
                arrive_expect(full[t % 2], BYTES);
                load_2d(s[t % 2], &map, 0, ROWS * t, full[t % 2]);  //!
            }
    } else {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            for (int i = T; i < 256; i += 96) y[256 * t + i] = s[t % 2][i];  //!
            arrive(empty[t % 2]);
        }
    }
}

//@ TMA | asynchronous copy/mbarrier/bulk copy/race | 1, 64 | f32[64], f32[64]=0 | the block ends while a copy into its shared memory is under way
extern "C" __global__ void bulk_load_after_end(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 bar[2];
    if (T == 0) init(bar[0], 1), init(bar[1], 1), fence_init();
    __syncthreads();
    if (T == 0) {
        arrive_expect(bar[0], 256), bulk_load(s[0], x, 256, bar[0]);
        arrive_expect(bar[1], 256), bulk_load(s[1], x, 256, bar[1]);  //!
    }
    wait(bar[0], 0);
    y[T] = s[0][T];
    wait(bar[1], 0);  //+
}
