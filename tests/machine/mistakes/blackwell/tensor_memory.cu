//@arch sm_100a
// Tensor memory: columns, products in flight, waits of loads and stores.
#include "products.cuh"
constexpr u32 SHAPE = instruction(128, 32, 1, 0, 0);
#define FILL(tile, n, from) \
    for (int i = T; i < n; i += blockDim.x) tile[i] = from[i];
// Tiles of A and B in shared memory, an mbarrier, and columns of tensor memory at d.
#define BEGIN(columns)                                                        \
    __shared__ __align__(128) __half sa[2048], sb[512];                       \
    __shared__ u64 bar;                                                       \
    __shared__ u32 place;                                                     \
    FILL(sa, 2048, a)                                                         \
    FILL(sb, 512, b)                                                          \
    fence_async_shared();                                                     \
    if (T == 0) init(bar, 1), fence_init();                                   \
    if (WARP == 0) allocate<1>(place, columns);                               \
    fence_before_sync();                                                      \
    __syncthreads();                                                          \
    fence_after_sync();                                                       \
    const u32 d = place, mine = lanes_of_warp(d);                             \
    u32 x[32];
#define TILE(p) matrix(p, 128, 256, NONE)
#define MULTIPLY(d, adds) multiply(d, TILE(sa), TILE(sb), SHAPE, adds)
#define STORE(y) \
    for (int i = 0; i < 32; i++) y[T * 32 + i] = __uint_as_float(x[i]);
#define MEET                \
    fence_before_sync();    \
    __syncthreads();        \
    fence_after_sync();
#define END(columns) \
    MEET             \
    if (WARP == 0) free_columns<1>(d, columns);

// sums ------------------------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the sums are loaded, and nothing tells when the product is complete
extern "C" __global__ void sums_never_committed(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);  //+
    }
    __syncthreads();
    wait(bar, 0);  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the sums are loaded before the mbarrier of the commit was waited for
extern "C" __global__ void sums_never_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    __syncthreads();
    wait(bar, 0);  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    wait(bar, 0);  //-
    END(32)
}

//@ tensor memory | tensor memory/barrier | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a wait for the other parity returns at once
extern "C" __global__ void sums_wrong_parity(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    __syncthreads();
    wait(bar, 1);  //-!
    wait(bar, 0);  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    wait(bar, 0);
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one warp waits for the product, and the others do not wait for it
extern "C" __global__ void sums_awaited_by_one_warp(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    if (WARP == 0) wait(bar, 0);
    MEET  //+
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the commit comes before the product that it should tell of
extern "C" __global__ void sums_committed_before(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        commit(bar);  //-
        MULTIPLY(d, 0);  //!
        commit(bar);  //+
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | of two products the commit tells of the first one
extern "C" __global__ void second_product_not_committed(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(bar);  //-
        MULTIPLY(d, 1);  //!
        commit(bar);  //+
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | another thread commits: its commit tells of its own operations alone
extern "C" __global__ void committed_by_another_thread(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) MULTIPLY(d, 0);  //!
    MEET
    if (T == 32) commit(bar);  //-
    if (T == 0) commit(bar);  //+
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory/barrier | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a loop waits for the parity of the round before
extern "C" __global__ void sums_parity_of_round_before(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 4) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(bar);
        }
        wait(bar, t + 1 & 1);  //-!
        wait(bar, t & 1);  //+
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();
        MEET
    }
    STORE(y)
    wait(bar, 1);
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | sums are overwritten by a store while a product is added to them
extern "C" __global__ void sums_stored_over_in_flight(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    wait(bar, 0);  //+
    fence_after_sync();
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine, x);  //!
    wait_stores();
    wait(bar, 0);
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the first product is added to what nobody has written
extern "C" __global__ void accumulates_into_unset_columns(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 1);  //-!
        MULTIPLY(d, 0);  //+
        MULTIPLY(d, 1);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the product wrote 32 columns, and the next 32 are loaded
extern "C" __global__ void loads_unset_columns(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine + 32);  //-!
    load_lanes(x, mine);  //+
    wait_loads();
    STORE(y)
    END(64)
}

// operands --------------------------------------------------------------------------------------------------

//@ tensor memory | asynchronous copy/race | 1, 128 | f16[2048], f16[512], f32[4096]=0 | A is overwritten while the product may still read it
extern "C" __global__ void operand_overwritten_in_flight(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    __syncthreads();
    wait(bar, 0);  //+
    for (int i = T; i < 512; i += 128) sa[i] = b[i];  //!
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | asynchronous copy/race | 1, 128 | f16[2048], f16[512], f32[4096]=0 | B is loaded again by a bulk copy while the product may still read it
extern "C" __global__ void operand_loaded_over_in_flight(const __half* a, const __half* b, float* y) {
    __shared__ u64 full;
    if (T == 0) init(full, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
        wait(bar, 0);  //+
        arrive_expect(full, 1024);
        bulk_load(sb, b, 1024, full);  //!
    }
    wait(bar, 0);
    wait(full, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ proxies | proxy | 1, 128 | f16[2048], f16[512], f32[4096]=0 | plain stores fill B again, and no fence makes them visible to the product
extern "C" __global__ void operand_not_fenced(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    FILL(sb, 512, a)  //!
    fence_async_shared();  //+
    MEET
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | race | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the product reads what other warps store, with no barrier between
extern "C" __global__ void operand_stored_with_no_barrier(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    FILL(sb, 512, a)  //!
    fence_async_shared();
    MEET  //+
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | asynchronous copy | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the product begins before the bulk copy of B is complete
extern "C" __global__ void operand_not_waited_for(const __half* a, const __half* b, float* y) {
    __shared__ u64 full;
    if (T == 0) init(full, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        arrive_expect(full, 1024);
        bulk_load(sb, b, 1024, full);  //!
        wait(full, 0);  //+
        MULTIPLY(d, 0);  //!
        commit(bar);
        wait(full, 0);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | map f16[128x64] 128x64 128B, f16[512], f32[4096]=0 | TMA writes A with a swizzle, and the descriptor has none
extern "C" __global__ void operand_swizzled_otherwise(MAP a_map, const __half* b, float* y) {
    __shared__ __align__(1024) __half tile[128 * 64];
    __shared__ u64 full;
    const __half* a = b;
    if (T == 0) init(full, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        arrive_expect(full, 128 * 128);
        load_2d(tile, &a_map, 0, 0, full);  //!
        wait(full, 0);
        u64 described = matrix(tile, 128, 1024, NONE);  //-
        u64 described = matrix(tile, 16, 1024, OF_128_BYTES);  //+
        multiply(d, described, TILE(sb), SHAPE, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

// A in tensor memory ----------------------------------------------------------------------------------------

#define WEIGHTS                                         \
    u32 w[16];                                          \
    for (int i = 0; i < 16; i++) w[i] = 0x3c003c00 + i;

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | A is stored to tensor memory, and no wait::st comes before the product
extern "C" __global__ void stored_factor_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    store_lanes(mine + 32, w);  //!
    wait_stores();  //+
    MEET
    if (T == 0) {
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    wait_stores();
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | four warps store A, and the product does not wait for all of them
extern "C" __global__ void stored_factor_not_synchronised(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    store_lanes(mine + 32, w);  //!
    wait_stores();
    MEET  //+
    if (T == 96) {
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the next A is stored while the product may still read the last one
extern "C" __global__ void factor_stored_over_in_use(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    REPEAT(t, 2) {
        store_lanes(mine + 32, w);  //!
        wait_stores();
        MEET
        if (T == 0) {
            multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, t);  //!
            commit(bar);
        }
        wait(bar, t);  //+
        MEET
    }
    wait(bar, 1);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(64)
}

//@ tensor memory | uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the product takes A from columns that nobody has written
extern "C" __global__ void factor_never_stored(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    store_lanes(mine + 16, w);  //-
    store_lanes(mine + 32, w);  //+
    wait_stores();
    MEET
    if (T == 0) {
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);  //!
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(64)
}

//@ tensor memory | uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | three of four warps store their rows of A, and all rows of the sums are loaded
extern "C" __global__ void rows_of_factor_missing(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    if (WARP < 3)  //-
    store_lanes(mine + 32, w);
    wait_stores();
    MEET
    if (T == 0) {
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 1);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(64)
}

//@ tensor memory | - | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one warp stores its rows of A, and loads those rows of the sums: nobody reads the others
extern "C" __global__ void rows_of_factor_not_used(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    WEIGHTS
    if (WARP == 1) {
        store_lanes(mine + 32, w);
        wait_stores();
    }
    MEET
    if (T == 0) {
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 0);
        multiply_from_lanes(d, d + 32, TILE(sb), SHAPE, 1);
        commit(bar);
    }
    if (WARP == 1) {
        wait(bar, 0);
        fence_after_sync();
        load_lanes(x, mine);
        wait_loads();
        STORE(y)
    }
    wait(bar, 0);
    END(64)
}

// loads and stores of warps ---------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the next product overwrites the sums while loads may still read them
extern "C" __global__ void loads_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();  //+
        MEET
    }
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the warps wait for their loads after they have told the thread that multiplies
extern "C" __global__ void loads_waited_for_too_late(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();  //+
        MEET
        if (WARP != 0) wait_loads();  //-
    }
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | advice tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | all that a warp loads is stored before it tells the thread that multiplies, so that the loads are done; but it does not wait for them
extern "C" __global__ void loads_stored_but_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();  //+
        STORE(y)
        MEET
    }
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | of what a warp loads it stores all but one register before it tells the thread that multiplies
extern "C" __global__ void loads_stored_but_for_one(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);  //!
            commit(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);  //!
        wait_loads();  //+
        for (int i = 0; i < 31; i++) y[T * 32 + i] = __uint_as_float(x[i]);
        MEET
        y[T * 32 + 31] = __uint_as_float(x[31]);
    }
    END(32)
}

//@ tensor memory | - | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a wait in a branch that every warp takes is a wait
extern "C" __global__ void loads_waited_for_in_a_branch(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);
            commit(bar);
        }
        wait(bar, t);
        fence_after_sync();
        load_lanes(x, mine);
        if (y != nullptr) wait_loads();
        MEET
    }
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the next product overwrites the sums, and nobody waits for the warps that load them
extern "C" __global__ void loads_not_synchronised(const __half* a, const __half* b, float* y) {
    __shared__ u64 next;
    if (T == 0) init(next, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    MEET  //+
    if (T == 96) {
        MULTIPLY(d, 0);  //!
        commit(next);
    }
    wait(next, 0);
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the thread that multiplies goes on to the next product, and does not wait for the warps that load the sums
extern "C" __global__ void loads_not_synchronised_with_issuer(const __half* a, const __half* b, float* y) {
    __shared__ u64 next;
    if (T == 0) init(next, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(bar);
    }
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    MEET  //+
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(next);
    }
    wait(next, 0);
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a warp loads what it has just stored, with no wait::st between
extern "C" __global__ void load_after_store_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine, x);  //!
    wait_stores();  //+
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 256 | f16[2048], f16[512], f32[4096]=0 | a warp loads what another one has stored to the lanes that both reach, with no barrier
extern "C" __global__ void stored_by_another_warp(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T < 128) {
        for (int i = 0; i < 32; i++) x[i] = T + i;
        store_lanes(mine, x);  //!
        wait_stores();
    }
    MEET  //+
    if (T >= 128) {
        load_lanes(x, mine);  //!
        wait_loads();
        STORE((y - 4096))
    }
    END(32)
}

//@ tensor memory | tensor memory | 1, 256 | f16[2048], f16[512], f32[4096]=0 | a warp waits for its stores after it has told the warps that load them
extern "C" __global__ void stores_waited_for_too_late(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T < 128) {
        for (int i = 0; i < 32; i++) x[i] = T + i;
        store_lanes(mine, x);  //!
        wait_stores();  //+
    }
    MEET
    if (T < 128) {
        wait_stores();
    } else {
        load_lanes(x, mine);  //!
        wait_loads();
        STORE((y - 4096))
    }
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | two threads add products to the same sums, and nothing orders them
extern "C" __global__ void two_threads_multiply(const __half* a, const __half* b, float* y) {
    __shared__ u64 first;
    if (T == 0) init(first, 1), fence_init();
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(first);
    }
    if (T == 32) {
        wait(first, 0);  //+
        fence_after_sync();
        MULTIPLY(d, 1);  //!
        commit(bar);
    }
    wait(first, 0);
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

// tcgen05.cp ------------------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | what tcgen05.cp copies is loaded before the copy is complete
extern "C" __global__ void copied_scales_not_waited_for(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    u32 v[1];
    if (T == 0) {
        copy_scales(d, matrix(sb, 128, 128, NONE));  //!
        commit(bar);
    }
    wait(bar, 0);  //+
    fence_after_sync();
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v[0]) : "r"(mine));  //!
    wait_loads();
    y[T] = v[0];
    wait(bar, 0);
    END(32)
}

//@ tensor memory | asynchronous copy/race | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the source of tcgen05.cp is overwritten while it may still be read
extern "C" __global__ void copied_scales_overwritten(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        copy_scales(d, matrix(sb, 128, 128, NONE));  //!
        commit(bar);
        wait(bar, 0);  //+
        sb[8] = a[0];  //!
    }
    wait(bar, 0);
    y[T] = 1;
    END(32)
}

//@ proxies | proxy | 1, 128 | f16[2048], f16[512], f32[4096]=0 | scale factors are stored, and no fence makes them visible to tcgen05.cp
extern "C" __global__ void copied_scales_not_fenced(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        sb[8] = a[0];  //!
        fence_async_shared();  //+
        copy_scales(d, matrix(sb, 128, 128, NONE));  //!
        commit(bar);
    }
    wait(bar, 0);
    y[T] = 1;
    END(32)
}

// columns ---------------------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the columns are never freed: the next block on the multiprocessor waits for ever
extern "C" __global__ void columns_never_freed(const __half* a, const __half* b, float* y) {
    BEGIN(32)  //!
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine, x);
    wait_stores();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)  //+
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the columns are freed twice
extern "C" __global__ void columns_freed_twice(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    x[0] = T;
    y[T] = x[0];
    if (WARP == 1) free_columns<1>(d, 32);  //-!
    END(32)  //!
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | fewer columns are freed than were allocated
extern "C" __global__ void columns_freed_in_part(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    x[0] = T;
    y[T] = x[0];
    END(32)  //-!
    END(64)  //+
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | 48 columns: only powers of two from 32 to 512 are allocated
extern "C" __global__ void columns_no_power_of_two(const __half* a, const __half* b, float* y) {
    BEGIN(48)  //-!
    BEGIN(64)  //+
    x[0] = T;
    y[T] = x[0];
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | columns are allocated after the block has given up the right to
extern "C" __global__ void columns_after_permit(const __half* a, const __half* b, float* y) {
    __shared__ u32 more;
    BEGIN(32)
    if (WARP == 0) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&more)) : "memory");  //-!
    x[0] = T;
    y[T] = x[0];
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | 32 columns are allocated, and those behind them are stored to
extern "C" __global__ void columns_beyond_allocation(const __half* a, const __half* b, float* y) {
    BEGIN(32)  //-
    BEGIN(64)  //+
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine + 8, x);  //!
    wait_stores();
    load_lanes(x, mine + 8);
    wait_loads();
    STORE(y)
    END(32)  //-
    END(64)  //+
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the columns are loaded after they were freed
extern "C" __global__ void columns_after_free(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine, x);
    wait_stores();
    MEET  //-
    if (WARP == 0) free_columns<1>(d, 32);  //-
    MEET
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    MEET  //+
    if (WARP == 0) free_columns<1>(d, 32);  //+
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the columns are freed while a product may still write them
extern "C" __global__ void columns_freed_in_flight(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(bar);
    }
    x[0] = T;
    y[T] = x[0];
    wait(bar, 0);  //+
    END(32)  //!
    wait(bar, 0);  //-
}

//@ tensor memory | tensor memory | 1, 256 | f16[2048], f16[512], f32[4096]=0 | the warps that free the columns do not wait for those that load them
extern "C" __global__ void columns_freed_before_others_load(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    if (T < 128) {
        for (int i = 0; i < 32; i++) x[i] = T + i;
        store_lanes(mine, x);
        wait_stores();
    }
    MEET
    if (T < 128) {
        asm volatile("bar.sync 1, 128;" ::: "memory");  //-
        asm volatile("bar.sync 1, 256;" ::: "memory");  //+
        if (WARP == 0) free_columns<1>(d, 32);  //!
    } else {
        load_lanes(x, mine);  //!
        wait_loads();
        asm volatile("bar.arrive 1, 256;" ::: "memory");  //+
        STORE((y - 4096))
    }
}

//@ tensor memory | tensor memory/tensor product | 1, 160 | f16[2048], f16[512], f32[4096]=0 | the columns are freed after the first product, and another thread has issued a second one
extern "C" __global__ void columns_freed_before_another_product(const __half* a, const __half* b, float* y) {
    BEGIN(64)
    __shared__ u64 second;
    if (T == 0) init(second, 1), fence_init();
    MEET
    if (T == 128) {
        MULTIPLY(d, 0);
        commit(bar);
        MULTIPLY(d + 32, 0);  //!
        commit(second);
    }
    if (T < 128) {
        wait(bar, 0);
        fence_after_sync();
        load_lanes(x, mine);
        wait_loads();
        STORE(y)
        wait(second, 0);  //+
        asm volatile("bar.sync 1, 128;" ::: "memory");
        if (WARP == 0) free_columns<1>(d, 64);  //!
    }
    wait(second, 0);
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | each warp names the lanes of the next one, which it does not reach
extern "C" __global__ void lanes_of_another_warp(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    for (int i = 0; i < 32; i++) x[i] = T + i;
    u32 there = d + (((WARP + 1) % 4) << 21);  //-
    u32 there = mine;  //+
    store_lanes(there, x);  //!
    wait_stores();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory/divergence | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one lane of a warp loads: tcgen05.ld is for all of them
extern "C" __global__ void load_by_one_lane(const __half* a, const __half* b, float* y) {
    BEGIN(32)
    for (int i = 0; i < 32; i++) x[i] = T + i;
    store_lanes(mine, x);
    wait_stores();
    if (LANE == 0) load_lanes(x, mine);  //-!
    load_lanes(x, mine);  //+
    wait_loads();
    STORE(y)
    END(32)
}

// stages ----------------------------------------------------------------------------------------------------

// Two stages of B, which one thread loads and another multiplies.
#define RING                                                                             \
    __shared__ __align__(128) __half stage[2][512];                                      \
    __shared__ u64 full[2], empty[2];                                                    \
    if (T == 0) {                                                                        \
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 1);                 \
        fence_init();                                                                    \
    }                                                                                    \
    BEGIN(32)
#define STEP(t) multiply(d, TILE(sa), TILE(stage[t % 2]), SHAPE, t > 0)

//@ tensor memory | asynchronous copy/race/mbarrier | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a stage is loaded again, and nobody waits until the product has read it
extern "C" __global__ void stage_refilled_too_early(const __half* a, const __half* b, float* y) {
    RING
    if (T == 64)
        REPEAT(t, 6) {
            wait(empty[t % 2], t / 2 + 1 & 1);  //+
            arrive_expect(full[t % 2], 1024);  //!
            bulk_load(stage[t % 2], b, 1024, full[t % 2]);  //!
        }
    if (T == 0) {
        REPEAT(t, 6) {
            wait(full[t % 2], t / 2 & 1);
            STEP(t);  //!
            commit(empty[t % 2]);
        }
        commit(bar);
    }
    __syncthreads();
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | asynchronous copy/race | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a stage is released by a plain arrival before its product is complete
extern "C" __global__ void stage_released_by_arrival(const __half* a, const __half* b, float* y) {
    RING
    if (T == 64)
        REPEAT(t, 6) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 1024);
            bulk_load(stage[t % 2], b, 1024, full[t % 2]);  //!
        }
    if (T == 0) {
        REPEAT(t, 6) {
            wait(full[t % 2], t / 2 & 1);
            STEP(t);  //!
            arrive(empty[t % 2]);  //-
            commit(empty[t % 2]);  //+
        }
        commit(bar);
    }
    __syncthreads();
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | asynchronous copy/race/uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the product does not wait until its stage is full
extern "C" __global__ void stage_not_full(const __half* a, const __half* b, float* y) {
    RING
    if (T == 64)
        REPEAT(t, 6) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 1024);
            bulk_load(stage[t % 2], b, 1024, full[t % 2]);  //!
        }
    if (T == 0) {
        REPEAT(t, 6) {
            wait(full[t % 2], t / 2 & 1);  //+
            STEP(t);  //!
            commit(empty[t % 2]);
        }
        commit(bar);
    }
    __syncthreads();
    wait(full[0], 0);
    wait(bar, 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the sums are loaded after the commit of the last stage but one
extern "C" __global__ void sums_after_another_stage(const __half* a, const __half* b, float* y) {
    RING
    if (T == 64)
        REPEAT(t, 6) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 1024);
            bulk_load(stage[t % 2], b, 1024, full[t % 2]);
        }
    if (T == 0)
        REPEAT(t, 6) {
            wait(full[t % 2], t / 2 & 1);
            STEP(t);  //!
            commit(empty[t % 2]);
        }
    __syncthreads();
    wait(empty[0], 0);
    wait(empty[1], 0);  //+
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    wait(empty[1], 0);
    END(32)
}
