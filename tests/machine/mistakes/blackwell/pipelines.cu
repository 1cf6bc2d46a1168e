//@arch sm_100a
// Warps that load, multiply and store at the same time: phases, accumulators in turn, who frees what and when.
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

// counts of arrivals ----------------------------------------------------------------------------------------

//@ tensor memory | barrier/mbarrier/deadlock/endless | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the mbarrier expects two commits, and there is one: all wait for ever
extern "C" __global__ void commit_of_two_expected(const __half* a, const __half* b, float* y) {
    constexpr int READERS = 1;
    constexpr int COMMITS = 2;  //-
    constexpr int COMMITS = 1;  //+
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(full[0]);  //!
    }
    wait(full[0], 0);  //!
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

//@ tensor memory | tensor memory/mbarrier/barrier | 1, 128 | f16[2048], f16[512], f32[4096]=0 | two threads commit, and the mbarrier expects one: the phase is complete after the first
extern "C" __global__ void commits_of_two_threads(const __half* a, const __half* b, float* y) {
    constexpr int READERS = 1;
    constexpr int COMMITS = 1;  //-
    constexpr int COMMITS = 2;  //+
    BEGIN(64)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(full[0]);  //!
    }
    if (T == 32) {
        MULTIPLY(d + 32, 0);  //!
        commit(full[0]);  //!
    }
    wait(full[0], 0);  //!
    fence_after_sync();
    load_lanes(x, mine + 32);  //!
    wait_loads();
    STORE(y)
    MEET
    wait(full[0], 0);  //+
    END(64)
}

//@ tensor memory | tensor memory | 1, 160 | f16[2048], f16[512], f32[4096]=0 | one of four warps says that the sums were read, and the others may still read them
extern "C" __global__ void sums_released_by_one_warp(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1;
    constexpr int READERS = 1;  //-
    constexpr int READERS = 4;  //+
    BEGIN(32)
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
            fence_before_sync();
            if (T == 0) arrive(empty[0]);  //-
            if (LANE == 0) arrive(empty[0]);  //+
        }
        STORE(y)
    }
    END(32)
}

// accumulators in turn --------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 160 | f16[2048], f16[512], f32[4096]=0 | the sums are released before the loads from them are complete
extern "C" __global__ void sums_released_before_loads(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 4;
    BEGIN(32)
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
            wait_loads();  //+
            fence_before_sync();
            __syncwarp();
            if (LANE == 0) arrive(empty[0]);
            wait_loads();  //-
        }
        STORE(y)
    }
    END(32)
}

//@ tensor memory | tensor memory/barrier/mbarrier | 1, 160 | f16[2048], f16[512], f32[4096]=0 | the thread that multiplies does not wait until the sums of the tile before were read
extern "C" __global__ void sums_never_released(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 4;
    BEGIN(64)
    if (T == 128)
        REPEAT(t, 4) {
            wait(empty[t % 2], t / 2 & 1 ^ 1);  //+
            fence_after_sync();
            MULTIPLY(d + t % 2 * 32, 0);  //!
            commit(full[t % 2]);
        }
    if (WARP < 4) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);  //!
            fence_after_sync();
            load_lanes(x, mine + t % 2 * 32);  //!
            wait_loads();
            fence_before_sync();
            __syncwarp();
            if (LANE == 0) arrive(empty[t % 2]);  //!
        }
        STORE(y)
    }
    END(64)
}

//@ tensor memory | tensor memory | 1, 160 | f16[2048], f16[512], f32[4096]=0 | of two accumulators the one is waited for, and the other one is read
extern "C" __global__ void sums_of_the_other_accumulator(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 4;
    BEGIN(64)
    if (T == 128)
        REPEAT(t, 4) {
            wait(empty[t % 2], t / 2 & 1 ^ 1);
            fence_after_sync();
            MULTIPLY(d + t % 2 * 32, 0);  //!
            commit(full[t % 2]);
        }
    if (WARP < 4) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            fence_after_sync();
            load_lanes(x, mine + (t + 1) % 2 * 32);  //-!
            load_lanes(x, mine + t % 2 * 32);  //+
            wait_loads();
            fence_before_sync();
            __syncwarp();
            if (LANE == 0) arrive(empty[t % 2]);
            if (t == 0) wait(full[1], 0);  //-
        }
        STORE(y)
    }
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | two pipelines have accumulators whose columns overlap
extern "C" __global__ void accumulators_overlap(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(64)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    if (T == 32) {
        MULTIPLY(d + 16, 0);  //-!
        MULTIPLY(d + 32, 0);  //+
        commit(full[1]);
    }
    wait(full[0], 0);
    wait(full[1], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(64)
}

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | another thread shifts rows of the sums, and nothing orders that after the product
extern "C" __global__ void rows_shifted_in_flight(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);  //!
        commit(full[0]);
    }
    if (T == 32) {
        wait(full[0], 0);  //+
        fence_after_sync();
        asm volatile("tcgen05.shift.cta_group::1.down [%0];" ::"r"(d) : "memory");  //!
        commit(full[1]);
    }
    wait(full[0], 0);
    wait(full[1], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
}

// columns ---------------------------------------------------------------------------------------------------

//@ tensor memory | tensor memory | 1, 128 | f16[2048], f16[512], f32[4096]=0 | one warp frees the columns while the others may still load from them
extern "C" __global__ void columns_freed_while_loaded(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);  //!
    wait_loads();
    STORE(y)
    MEET  //+
    if (WARP == 0) free_columns<1>(d, 32);  //!
}

//@ tensor memory | race/uninitialised | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the address of the columns is read before the warp that allocates has written it
extern "C" __global__ void address_read_too_early(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[2048], sb[512];
    __shared__ u64 bar;
    __shared__ u32 place;
    FILL(sa, 2048, a)
    FILL(sb, 512, b)
    fence_async_shared();
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();  //-
    if (WARP == 0) allocate<1>(place, 32);  //!
    fence_before_sync();
    __syncthreads();  //+
    fence_after_sync();
    const u32 d = place;  //!
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(bar);
    }
    wait(bar, 0);
    y[T] = 1;
    MEET
    if (WARP == 0) free_columns<1>(d, 32);
}

//@ tensor memory | tensor memory/barrier/deadlock/endless | 1, 128 | f16[2048], f16[512], f32[4096]=0 | 512 columns are allocated while the block holds 32: it waits for itself
extern "C" __global__ void columns_of_whole_memory(const __half* a, const __half* b, float* y) {
    __shared__ u32 first, second;
    if (WARP == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&first)) : "memory");
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(shared(&second)) : "memory");  //-!
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&second)) : "memory");  //+
    }
    __syncthreads();
    y[T] = 1;
    if (WARP == 0) {
        free_columns<1>(first, 32);
        free_columns<1>(second, 32);
    }
}

// the end of an mbarrier ------------------------------------------------------------------------------------

//@ tensor memory | asynchronous copy | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the mbarrier of the last commit is given up, and nobody has waited for it
extern "C" __global__ void inval_before_the_commit_arrives(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(full[0]);
        commit(empty[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    wait(empty[0], 0);  //+
    END(32)
    if (T == 0) inval(full[0]), inval(empty[0]);  //!
}

//@ tensor memory | asynchronous copy | 1, 128 | f16[2048], f16[512], f32[4096]=0 | the mbarriers' memory becomes a buffer while a commit to one of them is under way
extern "C" __global__ void mbarrier_reused_before_the_commit_arrives(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(32)
    REPEAT(t, 2) {
        if (T == 0) {
            MULTIPLY(d, 0);
            commit(full[t]);
            commit(empty[0]);
        }
        wait(full[t], 0);
        fence_after_sync();
        load_lanes(x, mine);
        wait_loads();
        if (t == 0) wait(empty[0], 0);
        MEET
    }
    STORE(y)
    wait(empty[0], 1);  //+
    END(32)
    if (T == 0) inval(empty[0]);  //!
    __syncthreads();
    u32* const words = reinterpret_cast<u32*>(&empty[0]);
    if (T < 2) words[T] = T;
    __syncthreads();
    if (T < 2) y[T] += words[1 - T];
}

//@ tensor memory | - | 1, 128 | f16[2048], f16[512], f32[4096]=0 | a later commit of the thread has arrived: so have the earlier ones, whose mbarriers are given up
extern "C" __global__ void inval_after_a_later_commit(const __half* a, const __half* b, float* y) {
    constexpr int COMMITS = 1, READERS = 1;
    BEGIN(32)
    if (T == 0) {
        MULTIPLY(d, 0);
        commit(empty[0]);
        commit(full[0]);
    }
    wait(full[0], 0);
    fence_after_sync();
    load_lanes(x, mine);
    wait_loads();
    STORE(y)
    END(32)
    if (T == 0) inval(full[0]), inval(empty[0]);
}
