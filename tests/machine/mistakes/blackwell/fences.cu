//@arch sm_100a
// The fences of tcgen05 around barriers and mbarriers, and who allocates and frees: what the PTX ISA asks for, and known kernels leave out.
#include "products.cuh"
constexpr u32 SHAPE = instruction(128, 32, 1, 0, 0);
#define FILL(tile, n, from) \
    for (int i = T; i < n; i += blockDim.x) tile[i] = from[i];
#define BEGIN(columns)                                                        \
    __shared__ __align__(128) __half sa[2048], sb[512];                       \
    __shared__ u64 full[2], empty[2];                                         \
    __shared__ u32 place;                                                     \
    FILL(sa, 2048, a)                                                         \
    FILL(sb, 512, b)                                                          \
    fence_async_shared();                                                     \
    if (T == 0) {                                                             \
        for (int i = 0; i < 2; i++) init(full[i], COMMITS), init(empty[i], READERS); \
        fence_init();                                                         \
    }                                                                         \
    if (WARP == 0) allocate<1>(place, columns);                               \
    fence_before_sync();                                                      \
    __syncthreads();                                                          \
    fence_after_sync();                                                       \
    const u32 d = place, mine = lanes_of_warp(d);                             \
    u32 x[32];
#define TILE(p) matrix(p, 128, 256, NONE)
#define MULTIPLY(d, adds) multiply(d, TILE(sa), TILE(sb), SHAPE, adds)
#define STORE(y) \
    for (int i = 0; i < 32; i++) y[T % 128 * 32 + i] = __uint_as_float(x[i]);
#define MEET                \
    fence_before_sync();    \
    __syncthreads();        \
    fence_after_sync();
#define END(columns) \
    MEET             \
    if (WARP == 0) free_columns<1>(d, columns);

#define SUMS constexpr int COMMITS = 1, READERS = 4;
#define FROM_ONE                                  \
    for (int i = 0; i < 32; i++) x[i] = T + i;    \
    store_lanes(mine, x);                         \
    wait_stores();

// at a barrier of the block ---------------------------------------------------------------------------------

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | warps store where a product is added, and do not fence before they meet
extern "C" __global__ void stores_not_fenced_before(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    FROM_ONE  //!
    fence_before_sync();  //+
    __syncthreads();
    fence_after_sync();
    if (T == 0) {
        MULTIPLY(d, 1);  //!
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the thread that multiplies does not fence after the warps have met
extern "C" __global__ void product_not_fenced_after(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    FROM_ONE  //!
    fence_before_sync();
    __syncthreads();
    if (T == 0) {
        fence_after_sync();  //+
        MULTIPLY(d, 1);  //!
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the two fences stand on the wrong sides of the barrier
extern "C" __global__ void fences_on_wrong_sides(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    FROM_ONE  //!
    fence_after_sync();  //-
    fence_before_sync();  //+
    __syncthreads();
    fence_before_sync();  //-
    fence_after_sync();  //+
    if (T == 0) {
        MULTIPLY(d, 1);  //!
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one of four warps fences before they meet
extern "C" __global__ void one_warp_fences(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    FROM_ONE  //!
    if (WARP == 0) fence_before_sync();  //-
    fence_before_sync();  //+
    __syncthreads();
    fence_after_sync();
    if (T == 0) {
        MULTIPLY(d, 1);  //!
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

// after a commit --------------------------------------------------------------------------------------------

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the sums are loaded behind the mbarrier of the commit, without a fence
extern "C" __global__ void sums_not_fenced_after(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();  //+
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the fence comes before the wait for the commit
extern "C" __global__ void sums_fenced_too_early(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    fence_after_sync();  //-
    wait(full[0], 0);
    fence_after_sync();  //+
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one warp waits for the product, and the others fence before they meet it
extern "C" __global__ void sums_fenced_before_meeting(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    if (WARP == 0) wait(full[0], 0);
    fence_after_sync();
    fence_before_sync();
    __syncthreads();
    fence_after_sync();  //+
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice fence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | only the first of three products is loaded behind a fence
extern "C" __global__ void sums_fenced_once(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    REPEAT(t, 3) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(full[0]);
        }
        wait(full[0], t & 1);
        if (t == 0) fence_after_sync();  //-
        fence_after_sync();  //+
        load_lanes(x, mine);  //!
        wait_loads();
        MEET
    }
    STORE(y)
    END(32)
}

// between warps that multiply and warps that load -----------------------------------------------------------

//@ tensor memory | advice fence | 1, 160 | f16[2048], f16[512], f32[4096]=0 | warps say at an mbarrier that they have loaded, without a fence
extern "C" __global__ void release_not_fenced(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 128)
        REPEAT(t, 3) {
            wait(empty[0], t & 1 ^ 1);
            fence_after_sync();
            MULTIPLY(d, 0);  //!
            commit(full[0]);
        }
    if (WARP < 4) {
        REPEAT(t, 3) {
            wait(full[0], t & 1);
            fence_after_sync();
            load_lanes(x, mine);  //!
            wait_loads();
            fence_before_sync();  //+
            if (LANE == 0) arrive(empty[0]);
        }
        STORE(y)
    }
    END(32)
}

//@ tensor memory | advice fence | 1, 160 | f16[2048], f16[512], f32[4096]=0 | the thread that multiplies waits for the loads of others, and does not fence
extern "C" __global__ void acquire_not_fenced(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 128)
        REPEAT(t, 3) {
            wait(empty[0], t & 1 ^ 1);
            fence_after_sync();  //+
            MULTIPLY(d, 0);  //!
            commit(full[0]);
        }
    if (WARP < 4) {
        REPEAT(t, 3) {
            wait(full[0], t & 1);
            fence_after_sync();
            load_lanes(x, mine);  //!
            wait_loads();
            fence_before_sync();
            if (LANE == 0) arrive(empty[0]);
        }
        STORE(y)
    }
    END(32)
}

// allocation ------------------------------------------------------------------------------------------------

//@ tensor memory | advice tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | another warp frees the columns than the one that allocated them
extern "C" __global__ void columns_freed_by_another_warp(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    FROM_ONE
    STORE(y)
    MEET
    if (WARP == 2) free_columns<1>(d, 32);  //-!
    if (WARP == 0) free_columns<1>(d, 32);  //+
}

//@ tensor memory | advice tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a block asks for more columns than it asked for before
extern "C" __global__ void columns_of_growing_number(const __half* a, const __half* b, float* y) {
    __shared__ u32 first, second;
    constexpr int FIRST = 64, SECOND = 128;  //-
    constexpr int FIRST = 128, SECOND = 64;  //+
    if (WARP == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&first)), "n"(FIRST) : "memory");
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&second)), "n"(SECOND) : "memory");  //!
    }
    __syncthreads();
    y[T] = 1;
    if (WARP == 0) {
        free_columns<1>(first, FIRST);
        free_columns<1>(second, SECOND);
    }
}

// lanes of one warp -----------------------------------------------------------------------------------------

//@ tensor memory | advice tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one lane of each warp waits for the product, and the others only meet it at the load
extern "C" __global__ void product_seen_by_one_lane(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    __syncwarp();
    if (LANE == 0) wait(full[0], 0);
    __syncwarp();  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | - | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one lane of one warp waits for the product, and the block's barrier tells all
extern "C" __global__ void product_seen_by_one_thread(const __half* a, const __half* b, float* y) {
    SUMS BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(full[0]);
        wait(full[0], 0);
    }
    MEET
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}
