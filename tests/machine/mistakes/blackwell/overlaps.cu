//@arch sm_100a
// Columns of tensor memory that serve two ends: operands of one product, sums and operands, two accumulators.
#include "products.cuh"
DEVICE void multiply_tf32_from_lanes(u32 d, u32 a, u64 b, u32 described) { asm volatile("tcgen05.mma.cta_group::1.kind::tf32 [%0], [%1], %2, %3, 0;" ::"r"(d), "r"(a), "l"(b), "r"(described) : "memory"); }
constexpr u32 SHAPE = instruction(128, 32, 1, 0, 0), SCALED = scaled_instruction(128, 32, 0, 1, 0), SPARSE = SHAPE | 1 << 2;
#define BEGIN(columns)                                                        \
    __shared__ __align__(1024) __half sa[2048];                               \
    __shared__ __align__(1024) __half sb[2048];                               \
    __shared__ u64 bar, more;                                                 \
    __shared__ u32 place;                                                     \
    for (int i = T; i < 2048; i += 128) sa[i] = a[i % 512], sb[i] = b[i % 512]; \
    fence_async_shared();                                                     \
    if (T == 0) init(bar, 1), init(more, 1), fence_init();                    \
    if (WARP == 0) allocate<1>(place, columns);                               \
    MEET                                                                      \
    const u32 d = place, mine = lanes_of_warp(d);                             \
    u32 x[32];
#define TILE(p) matrix(p, 128, 256, NONE)
#define LONG_TILE(p) matrix(p, 128, 512, NONE)
#define SCALES(p) matrix(p, 128, 128, NONE)
#define MEET                \
    fence_before_sync();    \
    __syncthreads();        \
    fence_after_sync();
#define STORE(from) \
    load_lanes(x, mine + from); \
    wait_loads();               \
    for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
#define READ             \
    wait(bar, 0);        \
    fence_after_sync();  \
    STORE(0)
#define END(columns) \
    MEET             \
    if (WARP == 0) free_columns<1>(d, columns);
#define PUT(to, word)                          \
    for (int i = 0; i < 32; i++) x[i] = word;  \
    store_lanes(mine + to, x);                 \
    wait_stores();                             \
    MEET

// operands of one product -----------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | A lies in the last columns of D: the product reads what it may have overwritten
extern "C" __global__ void factor_under_the_sums(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    PUT(24, 0x3c003c00)  //-
    PUT(32, 0x3c003c00)  //+
    if (T == 0) {
        multiply_from_lanes(d, d + 24, TILE(sb), SHAPE, 0);  //-!
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(128)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors of A are copied to columns of D
extern "C" __global__ void scales_under_the_sums(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 28, SCALES(sa));  //-
        copy_scales(d + 32, SCALES(sa));  //+
        copy_scales(d + 36, SCALES(sb));
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 28, d + 36, 0);  //-!
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 36, 0);  //+
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors of B begin in the last column of D
extern "C" __global__ void second_scales_under_the_sums(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 40, SCALES(sa));
        copy_scales(d + 31, SCALES(sb));  //-
        copy_scales(d + 32, SCALES(sb));  //+
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 40, d + 31, 0);  //-!
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 40, d + 32, 0);  //+
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the metadata of a sparse A lies in a column of D
extern "C" __global__ void metadata_under_the_sums(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    PUT(0, 0x44444444)  //-
    PUT(64, 0x44444444)  //+
    if (T == 0) {
        multiply_sparse(d, TILE(sa), LONG_TILE(sb), d + 5, SPARSE, 0);  //-!
        multiply_sparse(d, TILE(sa), LONG_TILE(sb), d + 64, SPARSE, 0);  //+
        commit(bar);
    }
    READ
    END(128)
}

// sums that are read as something else ----------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the second product takes the first one's sums of 32 bits for an A of 16 bits; the right one converts them
extern "C" __global__ void sums_read_as_a_factor(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    if (T == 0) {
        multiply(d + 64, TILE(sa), TILE(sb), SHAPE, 0);  //!
        commit(more);
    }
    wait(more, 0);
    fence_after_sync();
    load_lanes(x, mine + 64);  //+
    wait_loads();  //+
    PUT(64, 0x3c003c00)  //+
    if (T == 0) {
        multiply_from_lanes(d, d + 64, TILE(sb), SHAPE, 0);  //!
        commit(bar);
    }
    READ
    END(128)
}

//@ tensor memory | uninitialised | 1, 128 | f16[512], f16[512], f32[4096]=0 | one warp stores its rows of A over the first product's sums, and all warps load rows of D; in the right one it alone does
extern "C" __global__ void factor_in_the_rows_of_one_warp(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    if (T == 0) {
        multiply(d + 64, TILE(sa), TILE(sb), SHAPE, 0);
        commit(more);
    }
    wait(more, 0);
    fence_after_sync();
    if (WARP == 0) {
        load_lanes(x, mine + 64);
        wait_loads();
        for (int i = 0; i < 32; i++) x[i] = 0x3c003c00;
        store_lanes(mine + 64, x);
        wait_stores();
    }
    MEET
    if (T == 0) {
        multiply_from_lanes(d, d + 64, TILE(sb), SHAPE, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    {  //-
    if (WARP == 0) {  //+
        load_lanes(x, mine);  //!
        wait_loads();
        for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
    }
    END(128)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors of A are read from another product's sums
extern "C" __global__ void sums_read_as_scales(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    if (T == 0) {
        multiply(d + 64, TILE(sa), TILE(sb), SHAPE, 0);  //!
        copy_scales(d + 32, SCALES(sa));
        copy_scales(d + 36, SCALES(sb));
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 64, d + 36, 0);  //-!
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 36, 0);  //+
        commit(bar);
    }
    READ
    END(128)
}

// results that nobody has read ------------------------------------------------------------------------------

//@ tensor memory | advice tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | a second accumulator begins in the middle of the first one
extern "C" __global__ void accumulator_over_half_of_another(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //!
        multiply(d + 16, TILE(sa), TILE(sb), SHAPE, 0);  //-!
        multiply(d + 32, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    STORE(16)  //-
    STORE(32)  //+
    END(64)
}

//@ tensor memory | advice tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | two accumulators lie in the same columns: the first sums are lost
extern "C" __global__ void accumulator_over_another(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);
        multiply(d, TILE(sa), TILE(sb), SHAPE, 1);  //!
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //-!
        multiply(d + 32, TILE(sa), TILE(sb), SHAPE, 0);  //+
        commit(bar);
    }
    READ
    END(64)
}

//@ tensor memory | advice tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | the scale factors of B are copied over half of those of A
extern "C" __global__ void scales_over_other_scales(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 32, SCALES(sa));  //!
        copy_scales(d + 34, SCALES(sb));  //-!
        copy_scales(d + 36, SCALES(sb));  //+
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 34, 0);  //-
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 36, 0);  //+
        commit(bar);
    }
    READ
    END(64)
}

// loads under way -------------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 160 | f16[512], f16[512], f32[4096]=0 | the loading warps release the sums, meet, and wait for their loads behind that
extern "C" __global__ void loads_awaited_behind_the_release(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    __shared__ u64 empty;
    if (T == 0) init(empty, 128), fence_init();
    MEET
    if (T == 128) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);
        commit(bar);
        wait(empty, 0);
        fence_after_sync();
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);  //!
        commit(more);
    }
    if (T < 128) {
        wait(bar, 0);
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();  //+
        fence_before_sync();
        arrive(empty);
        wait_loads();  //-
        asm volatile("barrier.sync 1, 128;" ::: "memory");
        __threadfence_block();
        for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
        wait(more, 0);
    }
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[512], f16[512], f32[4096]=0 | warp 0 frees the columns while the loads of others may be under way: they use what they load behind the barrier
extern "C" __global__ void freed_under_a_load(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();  //+
    MEET
    if (WARP == 0) free_columns<1>(d, 32);  //!
    for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
}

// right: columns that serve one end after the other ---------------------------------------------------------

//@ tensor memory | - | 1, 128 | f16[512], f16[512], f32[4096]=0, i32:64 | the loads are not waited for, and only some threads store what they have computed of them: nobody uses it after the columns are freed
extern "C" __global__ void freed_behind_stores_of_some(const __half* a, const __half* b, float* y, int rows) {
    BEGIN(32)
    if (T == 0) {
        multiply(d, TILE(sa), TILE(sb), SHAPE, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    for (int i = 0; i < 32; i++)
        if (T < rows) y[T * 32 + i] = 2 * __uint_as_float(x[i]);
    END(32)
}

//@ tensor memory | - | 1, 128 | f16[512], f16[512], f32[4096]=0 | the converted sums lie over the sums, as in attention, and the next sums over both
extern "C" __global__ void factor_over_loaded_sums(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    __shared__ u64 ready[2], done[2];
    if (T == 0) init(ready[0], 1), init(ready[1], 1), init(done[0], 1), init(done[1], 1), fence_init();
    MEET
    for (int t = 0; t < 2; t++) {
        if (T == 0) {
            multiply(d + 64, TILE(sa), TILE(sb), SHAPE, 0);
            commit(ready[t]);
        }
        wait(ready[t], 0);
        fence_after_sync();
        load_lanes(x, mine + 64);
        wait_loads();
        u32 p[16];
        for (int i = 0; i < 16; i++) {
            __half2 h = __floats2half2_rn(__uint_as_float(x[2 * i]), __uint_as_float(x[2 * i + 1]));
            p[i] = *reinterpret_cast<u32*>(&h);
        }
        store_lanes(mine + 64, p);
        wait_stores();
        MEET
        if (T == 0) {
            multiply_from_lanes(d, d + 64, TILE(sb), SHAPE, t);
            multiply_from_lanes(d, d + 72, TILE(sb), SHAPE, 1);
            commit(done[t]);
        }
        wait(done[t], 0);
        fence_after_sync();
    }
    STORE(0)
    END(128)
}

//@ tensor memory | - | 1, 128 | f16[512], f16[512], f32[4096]=0 | the next tile's sums come over a tile of which two warps have loaded their part, and over scale factors that nobody needed
extern "C" __global__ void sums_of_a_part_of_the_lanes(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        copy_scales(d + 32, SCALES(sa));
        copy_scales(d + 36, SCALES(sb));
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 36, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    if (WARP < 2) {
        load_lanes(x, mine);
        wait_loads();
        for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
    }
    MEET
    if (T == 0) {
        copy_scales(d + 32, SCALES(sa));
        copy_scales(d + 36, SCALES(sb));
        copy_scales(d + 36, SCALES(sb));
        multiply_scaled(d, TILE(sa), TILE(sb), SCALED, d + 32, d + 36, 0);
        commit(more);
    }
    wait(more, 0);
    fence_after_sync();
    STORE(0)
    END(64)
}

//@ tensor memory | - | 1, 128 | f16[512], f16[512], f32[4096]=0 | sums of 32 bits lie as an A of tf32 does, and the next product reads them
extern "C" __global__ void sums_read_as_tf32(const __half* a, const __half* b, float* y) {
    BEGIN(128)
    if (T == 0) {
        multiply(d + 64, TILE(sa), TILE(sb), SHAPE, 0);
        multiply_tf32_from_lanes(d, d + 64, TILE(sb), instruction(128, 32, 1, 2, 2));
        commit(bar);
    }
    READ
    END(128)
}
