//@arch sm_100a
// What products read: matrices by their descriptors, scale factors and metadata in tensor memory.
#include "products.cuh"
constexpr u32 SHAPE = instruction(128, 32, 1, 0, 0), SPARSE = SHAPE | 1 << 2, SCALED = scaled_instruction(128, 32, 0, 1, 0);
#define FILL(tile, n, from) \
    for (int i = T; i < n; i += blockDim.x) tile[i] = from[i % 512];
#define BEGIN(columns)                                                        \
    __shared__ __align__(1024) __half sa[2048];                               \
    __shared__ __align__(1024) __half sb[1024];                               \
    __shared__ __align__(128) __half after[2048];                             \
    __shared__ u64 bar, more;                                                 \
    __shared__ u32 place;                                                     \
    FILL(sa, 2048, a)                                                         \
    FILL(sb, 1024, b)                                                         \
    FILL(after, 2048, b)                                                      \
    fence_async_shared();                                                     \
    if (T == 0) init(bar, 1), init(more, 1), fence_init();                    \
    if (WARP == 0) allocate<1>(place, columns);                               \
    fence_before_sync();                                                      \
    __syncthreads();                                                          \
    fence_after_sync();                                                       \
    const u32 d = place, mine = lanes_of_warp(d);                             \
    u32 x[32];
#define TILE(p) matrix(p, 128, 256, NONE)
#define LONG_TILE(p) matrix(p, 128, 512, NONE)
#define STORE(y) \
    for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
#define MEET                \
    fence_before_sync();    \
    __syncthreads();        \
    fence_after_sync();
#define READ             \
    wait(bar, 0);        \
    fence_after_sync();  \
    load_lanes(x, mine); \
    wait_loads();        \
    STORE(y)
#define END(columns) \
    MEET             \
    if (WARP == 0) free_columns<1>(d, columns);

// matrices in shared memory ---------------------------------------------------------------------------------

//@ tensor memory | out of bounds | 1, 128 | f16[512], f16[512], f32[4096]=0 | A begins in the middle of its array, and the product reads on behind it
extern "C" __global__ void factor_beyond_its_array(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa + 1024), TILE(sb), SHAPE, 0);  //-!
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | out of bounds | 1, 128 | f16[512], f16[512], f32[4096]=0 | the stride between groups of eight columns of B is twice as large as it should be
extern "C" __global__ void second_factor_beyond_its_array(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), matrix(sb, 128, 1024, NONE), SHAPE, 0);  //-!
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | out of bounds | 1, 128 | f16[512], f16[512], f32[4096]=0 | the instruction descriptor says N = 128, and B has 64 columns
extern "C" __global__ void factor_with_too_few_columns(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), instruction(128, 128, 1, 0, 0), 0);  //-!
        multiply(d, TILE(sa), TILE(sb), instruction(128, 64, 1, 0, 0), 0);  //+
        commit(bar);
    }
    READ
    END(128)
}

//@ tensor memory | out of bounds | 1, 128 | f16[512], f16[512], f32[4096]=0 | tcgen05.cp copies 512 bytes, and begins 256 bytes before the end of its array
extern "C" __global__ void copied_beyond_its_array(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        copy_scales(d, matrix(sb + 896, 128, 128, NONE));  //-!
        copy_scales(d, matrix(sb, 128, 128, NONE));  //+
        commit(bar);
    }
    wait(bar, 0);
    y[T] = 1;
    END(32)
}

#define TILES                                                     \
    __shared__ __align__(1024) __half tile[128 * 64];             \
    __shared__ u64 full;                                          \
    const __half* a = b;                                          \
    if (T == 0) init(full, 1), fence_init();                      \
    BEGIN(32)                                                     \
    if (T == 0) {                                                 \
        arrive_expect(full, BYTES);                               \
        load_2d(tile, &map, 0, 0, full); }                        \
    if (T == 0) wait(full, 0);

//@ tensor memory | tensor memory | 1, 128 | map f16[128x64] 128x64 128B, f16[512], f32[4096]=0 | TMA writes A with the 128-byte swizzle, and the descriptor has the one of 64 bytes
extern "C" __global__ void factor_of_narrower_swizzle(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 128 * 128;
    TILES  //!
    if (T == 0) {
        multiply(d, matrix(tile, 16, 512, OF_64_BYTES), TILE(sb), SHAPE, 0);  //-!
        multiply(d, matrix(tile, 16, 1024, OF_128_BYTES), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | map f16[128x32] 32x32 64B, f16[512], f32[4096]=0 | TMA writes B with the 64-byte swizzle, and the descriptor has the one of 128 bytes
extern "C" __global__ void second_factor_of_wider_swizzle(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 32 * 64;
    TILES  //!
    if (T == 0) {
        multiply(d, TILE(sa), matrix(tile, 16, 512, OF_128_BYTES), SHAPE, 0);  //-!
        multiply(d, TILE(sa), matrix(tile, 16, 512, OF_64_BYTES), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | map f16[32x64] 32x64 128B, f16[512], f32[4096]=0 | TMA writes scale factors with a swizzle, and tcgen05.cp reads them without
extern "C" __global__ void copied_without_swizzle(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 32 * 128;
    TILES  //!
    if (T == 0) {
        copy_scales(d, matrix(tile, 128, 128, NONE));  //-!
        copy_scales(d, matrix(tile, 16, 1024, OF_128_BYTES));  //+
        commit(bar);
    }
    wait(bar, 0);
    y[T] = 1;
    END(32)
}

//@ tensor memory | advice tensor memory | 1, 128 | map f16[128x64] 128x64 128B, f16[512], f32[4096]=0 | eight rows of A take 1024 bytes, and the descriptor's stride between groups of them is 512
extern "C" __global__ void rows_in_one_another(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 128 * 128;
    TILES
    if (T == 0) {
        multiply(d, matrix(tile, 16, 512, OF_128_BYTES), TILE(sb), SHAPE, 0);  //-!
        multiply(d, matrix(tile, 16, 1024, OF_128_BYTES), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | advice tensor memory | 1, 128 | map f16[32x32] 32x32 64B, f16[512], f32[4096]=0 | the descriptor of the instruction says that B is MN-major, and its parts follow each other as those of a K-major tile
extern "C" __global__ void second_factor_by_columns(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 32 * 64;
    TILES
    if (T == 0) {
        for (int k = 0; k < 2; k++) {
            multiply(d, TILE(sa), matrix(tile + 16 * k, 16, 512, OF_64_BYTES), instruction(128, 32, 1, 0, 0, 0, 1), k);  //-!
            multiply(d, TILE(sa), matrix(tile + 16 * k, 16, 512, OF_64_BYTES), SHAPE, k);  //+
        }
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | - | 1, 128 | map f16[32x32] 32x32 64B, f16[512], f32[4096]=0 | a part of an MN-major B: 16 columns in the middle of a line of 32, at a step of eight lines
extern "C" __global__ void columns_inside_a_line(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 32 * 64;
    TILES
    if (T == 0) {
        for (int k = 0; k < 2; k++) multiply(d, TILE(sa), matrix(tile + 16 + 512 * k, 2048, 512, OF_64_BYTES), instruction(128, 16, 1, 0, 0, 0, 1), k);
        commit(bar);
    }
    wait(bar, 0);
    END(32)
}

//@ tensor memory | advice tensor memory | 1, 128 | map bf16[128x64] 128x64 128B, f16[512], f32[4096]=0 | the tensor map says bf16, and the descriptor of the instruction says that A is f16
extern "C" __global__ void factor_of_another_format(MAP map, const __half* b, float* y) {
    constexpr int BYTES = 128 * 128;
    TILES  //!
    if (T == 0) {
        multiply(d, matrix(tile, 16, 1024, OF_128_BYTES), TILE(sb), SHAPE, 0);  //-!
        multiply(d, matrix(tile, 16, 1024, OF_128_BYTES), TILE(sb), instruction(128, 32, 1, 1, 0), 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

// scale factors ---------------------------------------------------------------------------------------------

#define ONES for (int i = 0; i < 16; i++) w[i] = 0x7f7f7f7f;
#define MULTIPLY_SCALED(sums, factors) multiply_scaled(sums, TILE(sa), TILE(sb), SCALED, factors, factors + 4, 0)

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors of B are never copied to tensor memory
extern "C" __global__ void scales_never_copied(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 32, matrix(after, 128, 128, NONE));
        copy_scales(d + 36, matrix(after, 128, 128, NONE));  //+
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | one warp stores the scale factors to its own lanes: those of the other warps have none
extern "C" __global__ void scales_of_one_warp(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    ONES
    if (WARP == 0) store_lanes(mine + 32, w);  //-
    store_lanes(mine + 32, w);  //+
    wait_stores();
    MEET
    if (T == 0) {
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors are stored, and no wait::st comes before the product
extern "C" __global__ void scales_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    ONES
    store_lanes(mine + 32, w);  //!
    wait_stores();  //+
    MEET
    if (T == 0) {
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    READ
    wait_stores();
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the next scale factors are stored while the product may still read the last ones
extern "C" __global__ void scales_overwritten_in_use(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    ONES
    store_lanes(mine + 32, w);
    wait_stores();
    MEET
    if (T == 0) {
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    MEET
    wait(bar, 0);  //+
    fence_after_sync();
    store_lanes(mine + 32, w);  //!
    wait_stores();
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | one thread copies the scale factors, another one multiplies, and nothing orders the two
extern "C" __global__ void scales_copied_by_another_thread(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 32) {
        copy_scales(d + 32, matrix(after, 128, 128, NONE));  //!
        copy_scales(d + 36, matrix(after, 128, 128, NONE));  //!
        commit(more);
    }
    if (T == 0) {
        wait(more, 0);  //+
        fence_after_sync();
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    wait(more, 0);
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | another thread copies the next scale factors while the product may still read the last ones
extern "C" __global__ void scales_copied_over_in_use(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 32, matrix(after, 128, 128, NONE));
        copy_scales(d + 36, matrix(after, 128, 128, NONE));
        MULTIPLY_SCALED(d, d + 32);  //!
        commit(bar);
    }
    if (T == 32) {
        wait(bar, 0);  //+
        fence_after_sync();
        copy_scales(d + 32, matrix(after, 128, 128, NONE));  //!
        commit(more);
    }
    wait(more, 0);
    READ
    END(64)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | the factors of B fill four columns, and those of 160 columns of B take five
extern "C" __global__ void scales_of_too_few_columns(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half wide[160 * 16];
    FILL(wide, 160 * 16, b)
    BEGIN(256)
    if (T == 0) {
        copy_scales(d + 160, matrix(after, 128, 128, NONE));
        copy_scales(d + 164, matrix(after, 128, 128, NONE));
        copy_scales(d + 168, matrix(after, 128, 128, NONE));  //+
        multiply_scaled(d, TILE(sa), TILE(wide), scaled_instruction(128, 160, 0, 1, 0), d + 160, d + 164, 0);  //!
        commit(bar);
    }
    READ
    END(256)
}

// metadata --------------------------------------------------------------------------------------------------

#define PLACES for (int i = 0; i < 16; i++) w[i] = 0x44444444;
#define MULTIPLY_SPARSE(sums, metadata) multiply_sparse(sums, TILE(sa), LONG_TILE(sb), metadata, SPARSE, 0)

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | the metadata of a sparse A is read from columns that nobody has written
extern "C" __global__ void metadata_never_stored(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    PLACES
    store_lanes(mine + 32, w);
    wait_stores();
    MEET
    if (T == 0) {
        MULTIPLY_SPARSE(d, d + 48);  //-!
        MULTIPLY_SPARSE(d, d + 32);  //+
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the metadata is stored, and no wait::st comes before the product
extern "C" __global__ void metadata_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    PLACES
    store_lanes(mine + 32, w);  //!
    wait_stores();  //+
    MEET
    if (T == 0) {
        MULTIPLY_SPARSE(d, d + 32);  //!
        commit(bar);
    }
    READ
    wait_stores();
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the next metadata is stored while the product may still read the last
extern "C" __global__ void metadata_overwritten_in_use(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    u32 w[16];
    PLACES
    REPEAT(t, 2) {
        store_lanes(mine + 32, w);  //!
        wait_stores();
        MEET
        if (T == 0) {
            MULTIPLY_SPARSE(d, d + 32);  //!
            commit(t ? bar : more);
        }
        if (t == 0) wait(more, 0);  //+
        MEET
    }
    wait(more, 0);
    READ
    END(64)
}

//@ tensor memory | tensor memory/uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | another thread copies the metadata, and nothing orders that before the product
extern "C" __global__ void metadata_copied_by_another_thread(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    for (int i = T; i < 2048; i += 128) after[i] = __ushort_as_half(0x4444);
    fence_async_shared();
    MEET
    if (T == 32) {
        copy_scales(d + 32, matrix(after, 128, 128, NONE));  //!
        commit(more);
    }
    if (T == 0) {
        wait(more, 0);  //+
        fence_after_sync();
        MULTIPLY_SPARSE(d, d + 32);  //!
        commit(bar);
    }
    wait(more, 0);
    READ
    END(64)
}

// sums of which a part has no value -------------------------------------------------------------------------

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | a product of 64 columns is added to sums of which 32 were set
extern "C" __global__ void accumulates_into_partly_set_columns(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //-
        multiply(d, TILE(sa), TILE(sb), instruction(128, 64, 1, 0, 0), 0);  //+
        multiply(d, TILE(sa), TILE(sb), instruction(128, 64, 1, 0, 0), 1);  //!
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | three of four warps clear the sums to which a product is added
extern "C" __global__ void sums_cleared_by_three_warps(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    for (int i = 0; i < 32; i++) x[i] = 0;
    if (WARP < 3) store_lanes(mine, x);  //-
    store_lanes(mine, x);  //+
    wait_stores();
    MEET
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 1);  //!
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | M = 64 leaves the upper 16 lanes of each warp as they are, and they are loaded
extern "C" __global__ void lanes_without_sums(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    u32 v[16];
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), instruction(64, 32, 1, 0, 0), 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_16_lanes(v, mine + (16 << 16));  //-!
    load_16_lanes(v, mine);  //+
    wait_loads();
    for (int i = 0; i < 16; i++) y[T * 16 + i] = __uint_as_float(v[i]);
    END(32)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | M = 64 leaves the upper 16 lanes of each warp as they are; all lanes are loaded, and all are stored
extern "C" __global__ void lanes_without_sums_stored(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), instruction(64, 32, 1, 0, 0), 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    if (T % 32 < 16)  //+
    for (int i = 0; i < 32; i++) y[T * 32 + i] = 2 * __uint_as_float(x[i]) + 1;  //!
    END(32)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | M = 64: the sums of all lanes of a warp are added up by shuffles, and half of them have no value
extern "C" __global__ void lanes_without_sums_added(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), instruction(64, 32, 1, 0, 0), 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    float sum = __uint_as_float(x[0]);  //-
    float sum = T % 32 < 16 ? __uint_as_float(x[0]) : 0;  //+
    for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);  //!
    y[T] = sum;  //!
    END(32)
}

// instruction descriptors ------------------------------------------------------------------------------------

//@ tensor memory | tensor product | 1, 128 | f16[512], f16[512], f32[4096]=0 | N of the instruction descriptor is 0
extern "C" __global__ void product_without_columns(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE & ~(63 << 17), 0);  //-!
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}

//@ tensor memory | tensor product | 1, 128 | f16[512], f16[512], f32[4096]=0 | M of the instruction descriptor is 0
extern "C" __global__ void product_without_rows(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE & ~(31 << 24), 0);  //-!
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(32)
}
