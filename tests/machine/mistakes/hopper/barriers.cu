//@arch sm_90a
// mbarriers of copies and pipelines: init, parity, arrivals, bytes, the life of a barrier.
#include "instructions.cuh"
#define MAKE(bar, count)                        \
    if (T == 0) init(bar, count), fence_init(); \
    __syncthreads();

//@ transactions | mbarrier/race/uninitialised/barrier | 1, 64 | f32[64], f32[64]=0 | another warp waits before the barrier was made
extern "C" __global__ void wait_before_init(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 32) {
        init(bar, 1);  //!
        fence_init();
        arrive_expect(bar, 256);
        bulk_load(s, x, 256, bar);
    }
    __syncthreads();  //+
    wait(bar, 0);  //!
    y[T] = s[T];  //!
}

//@ transactions | mbarrier/race/uninitialised/barrier | 1, 64 | f32[64], f32[64]=0 | the barrier was never made
extern "C" __global__ void never_initialised(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ transactions | advice mbarrier/proxy/barrier | 1, 64 | f32[64], f32[64]=0 | no fence between the init and the copy, whose proxy need not see the barrier
extern "C" __global__ void init_without_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1);  //!
    if (T == 0) fence_init();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | mbarrier/barrier | 1, 64 | f32[128], f32[128]=0 | the barrier is made again for the second tile
extern "C" __global__ void initialised_twice(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)  //+
    REPEAT(t, 2) {
        MAKE(bar, 1)  //-!
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);
        wait(bar, 0);  //-
        wait(bar, t);  //+
        y[64 * t + T] = s[T];
        fence_async_shared();
        __syncthreads();
    }
}

//@ transactions | mbarrier/race/barrier | 1, 64 | f32[64], f32[64]=0 | the 32 lanes of a warp make the barrier, with two counts
extern "C" __global__ void initialised_by_warp(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (WARP == 0) init(bar, 1 + LANE / 31), fence_init();  //-!
    if (WARP == 0) init(bar, 1), fence_init();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    if (T == 0) arrive(bar);  //-
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | mbarrier/race/barrier | 1, 64 | f32[64], f32[64]=0 | two warps make the barrier with two counts
extern "C" __global__ void initialised_by_two_warps(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (LANE == 0) init(bar, 1), fence_init();  //-!
    if (T == 0) init(bar, 1), fence_init();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | asynchronous copy/race/uninitialised/mbarrier/barrier | 1, 64 | f32[64], f32[64]=0 | parity 1 of a new barrier passes at once
extern "C" __global__ void first_parity_wrong(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 1);  //-!
    wait(bar, 0);  //+
    y[T] = s[T];  //!
}

//@ transactions | asynchronous copy/race/mbarrier/barrier | 1, 64 | f32[256], f32[256]=0 | the parity is not flipped: every second wait passes at once
extern "C" __global__ void tile_parity_not_flipped(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, 0);  //-!
        wait(bar, t & 1);  //+
        y[64 * t + T] = s[T];  //!
        fence_async_shared();
        __syncthreads();
    }
}

//@ transactions | asynchronous copy/race/mbarrier/uninitialised/barrier | 1, 64 | f32[256], f32[256]=0 | in a ring of two stages the parity is flipped with every tile, not with every round
extern "C" __global__ void parity_flipped_too_often(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2];
    if (T == 0) init(full[0], 1), init(full[1], 1), fence_init();
    __syncthreads();
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(full[t % 2], 256), bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);  //!
        wait(full[t % 2], t & 1);  //-!
        wait(full[t % 2], t / 2 & 1);  //+
        y[64 * t + T] = s[t % 2][T];  //!
        __syncthreads();
    }
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[256], f32[256]=0 | the producer's first wait for an empty stage has parity 0: nobody ever released it
extern "C" __global__ void producer_parity_wrong(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 32);
        fence_init();
    }
    __syncthreads();
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty[t % 2], t / 2 & 1);  //-!
            wait(empty[t % 2], t / 2 + 1 & 1);  //+
            arrive_expect(full[t % 2], 256);
            bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);  //!
            y[64 * t + T] = s[t % 2][T];
            y[64 * t + T + 32] = s[t % 2][T + 32];
            arrive(empty[t % 2]);
        }
    }
}

//@ transactions | mbarrier/race/asynchronous copy/barrier | 1, 160 | f32[512], f32[512]=0 | the empty barrier counts one arrival, and each of the four consumer warps releases
extern "C" __global__ void four_releases_for_one(const float* x, float* y) {
    __shared__ __align__(128) float s[2][128];
    __shared__ u64 full[2], empty[2];
    u32 releases = 1;  //-
    u32 releases = 4;  //+
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], releases);
        fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 512);
                bulk_load(s[t % 2], x + 128 * t, 512, full[t % 2]);  //!
            }
    } else {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            y[128 * t + T] = s[t % 2][T];  //!
            __syncwarp();
            if (LANE == 0) arrive(empty[t % 2]);  //!
        }
    }
}

//@ transactions | mbarrier/asynchronous copy/race/uninitialised/barrier | 1, 64 | f32[64], f32[64]=0 | all threads arrive at a barrier for one
extern "C" __global__ void more_arrivals_than_count(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) expect(bar, 256), bulk_load(s, x, 256, bar);
    __syncthreads();
    arrive(bar);  //-!
    if (T == 0) arrive(bar);  //+
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[64], f32[64]=0 | one thread arrives at a barrier for 64
extern "C" __global__ void fewer_arrivals_than_count(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    if (T != 0) arrive(bar);  //+
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ transactions | mbarrier/race/uninitialised/barrier | 1, 64 | f32[64], f32[64]=0 | a buffer that lies over the barrier is written while the barrier is in use
extern "C" __global__ void barrier_overwritten(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    u64& bar = *reinterpret_cast<u64*>(s + 64);
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    s[64 + T] = s[T];  //-!
    __syncthreads();
    if (T == 0) arrive(bar);  //!
    wait(bar, 1);  //!
    y[T] = s[T];
}

//@ transactions | mbarrier/race/asynchronous copy/proxy/barrier | 1, 64 | f32[96], f32[64]=0 | a copy is as long as the tile and the barrier behind it
extern "C" __global__ void barrier_copied_over(const float* x, float* y) {
    __shared__ __align__(128) float s[96];
    u64& bar = *reinterpret_cast<u64*>(s + 64);
    MAKE(bar, 1)
    u32 bytes = 320;  //-
    u32 bytes = 256;  //+
    if (T == 0) arrive_expect(bar, bytes), bulk_load(s, x, bytes, bar);  //!
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ transactions | mbarrier/race/barrier | 1, 64 | f32[64], f32[64]=0 | shared memory is used again for numbers, while the barrier in it was not given up
extern "C" __global__ void memory_reused_without_inval(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ __align__(8) float scratch[64];
    u64& bar = *reinterpret_cast<u64*>(scratch);
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    __syncthreads();
    if (T == 0) inval(bar);  //+
    __syncthreads();
    scratch[T] = s[T] * 2;  //!
    __syncthreads();
    y[T] = scratch[63 - T];
}

//@ transactions | mbarrier/uninitialised/barrier | 1, 64 | f32[64], f32[64]=0 | the barrier is used after mbarrier.inval
extern "C" __global__ void used_after_inval(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    __syncthreads();
    if (T == 0) inval(bar);  //-!
    __syncthreads();
    if (T == 0) arrive(bar);  //!
    wait(bar, 1);  //!
    y[T] = s[T];
}

//@ transactions | mbarrier/barrier | 1, 64 | f32[64], f32[64]=0, u32:1048576 | 2²⁰ bytes are expected: the count ends one below
extern "C" __global__ void expects_too_many_bytes(const float* x, float* y, u32 bytes) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    bytes = 256;  //+
    if (T == 0) arrive_expect(bar, bytes), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | mbarrier/barrier | 1, 64 | f32[64], f32[64]=0, u32:0 | a count of no arrivals
extern "C" __global__ void count_of_zero(const float* x, float* y, u32 count) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    count = 1;  //+
    if (T == 0) init(bar, count), fence_init();  //!
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);
    y[T] = s[T];
}

//@ transactions | asynchronous copy/race/uninitialised/mbarrier/barrier | 1, 64 | f32[64], f32[64]=0 | try_wait may give up, and nobody looks at what it says
extern "C" __global__ void try_wait_once(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    try_wait(bar, 0);  //-!
    while (!try_wait(bar, 0)) {}  //+
    y[T] = s[T];  //!
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[64], f32[64]=0 | two threads expect the bytes of one copy
extern "C" __global__ void expected_twice(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 2)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    if (T == 32) arrive_expect(bar, 256);  //-!
    if (T == 32) arrive(bar);  //+
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[256], f32[256]=0 | full and empty are mixed up where the stage is released
extern "C" __global__ void releases_full(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 1), fence_init();
    __syncthreads();
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty, t + 1 & 1);  //!
            arrive_expect(full, 256);
            bulk_load(s, x + 64 * t, 256, full);
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full, t & 1);  //!
            y[64 * t + T] = s[T] + s[T + 32];
            __syncwarp();
            if (T == 0) arrive(full);  //-!
            if (T == 0) arrive(empty);  //+
        }
    }
}

//@ transactions | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | the stage is released before it is read
extern "C" __global__ void released_before_read(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 32), fence_init();
    __syncthreads();
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty, t + 1 & 1);
            arrive_expect(full, 256);
            bulk_load(s, x + 64 * t, 256, full);  //!
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full, t & 1);
            arrive(empty);  //-
            y[64 * t + T] = s[T] + s[T + 32];  //!
            arrive(empty);  //+
        }
    }
}

//@ transactions | asynchronous copy/race | 1, 64 | f32[256], f32[256]=0 | lane 0 releases the stage for a warp whose lanes may still read
extern "C" __global__ void released_for_others(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 1), fence_init();
    __syncthreads();
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty, t + 1 & 1);
            arrive_expect(full, 256);
            bulk_load(s, x + 64 * t, 256, full);  //!
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full, t & 1);
            if (T == 0) {
                y[64 * t] = s[0];
                arrive(empty);  //-
            } else {
                y[64 * t + T] = s[T];  //!
            }
            __syncwarp();  //+
            if (T == 0) arrive(empty);  //+
        }
    }
}

//@ transactions | misaligned | 1, 64 | f32[64], f32[64]=0 | a barrier at 4 bytes
extern "C" __global__ void transaction_barrier_misaligned(const float* x, float* y) {
    __shared__ __align__(128) float s[72];
    u64& bar = *reinterpret_cast<u64*>(s + 65);  //-
    u64& bar = *reinterpret_cast<u64*>(s + 66);  //+
    if (T == 0) init(bar, 1), fence_init();  //!
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);  //!
    y[T] = s[T];
}

//@ transactions | mbarrier/barrier | 1, 64 | f32[64], f32[64]=0 | arrive.noComplete is the arrival that completes the phase
extern "C" __global__ void no_complete_completes(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    s[T] = x[T];
    if (T < 32) asm volatile("{ .reg .b64 t; mbarrier.arrive.noComplete.shared::cta.b64 t, [%0], 1; }" ::"r"(shared(&bar)) : "memory");  //+
    if (T < 32) arrive(bar);  //-
    __syncthreads();
    if (T >= 32) arrive(bar);  //+
    if (T >= 32) asm volatile("{ .reg .b64 t; mbarrier.arrive.noComplete.shared::cta.b64 t, [%0], 1; }" ::"r"(shared(&bar)) : "memory");  //-!
    wait(bar, 0);
    y[T] = s[63 - T];
}

//@ transactions | barrier/deadlock/endless/mbarrier | 1, 64 | f32[64], f32[64]=0 | cp.async.mbarrier.arrive adds the arrival that it makes: the count of 64 is never reached
extern "C" __global__ void cp_async_without_noinc(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 64)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(s + T)), "l"(x + T) : "memory");
    asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");  //-!
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");  //+
    wait(bar, 0);  //!
    y[T] = s[63 - T];
}

//@ transactions | asynchronous copy | 1, 64 | f32[64], f32[64]=0 | the barrier is given up while a copy that it counts is under way
extern "C" __global__ void inval_while_copying(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    wait(bar, 0);  //+
    __syncthreads();
    if (T == 0) inval(bar);  //!
    y[T] = x[63 - T];
}

//@ transactions | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | one warp waits for the copy, and the other one gives the barrier up
extern "C" __global__ void inval_by_a_warp_that_has_not_waited(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar, 1)
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);
    if (WARP == 1) wait(bar, 0), y[T] = s[T];  //!
    __syncthreads();  //+
    if (T == 0) inval(bar);  //!
}

//@ transactions | asynchronous copy | 1, 64 | f32[256], f32[64]=0 | the barrier is given up while cp.async, whose end arrives at it, is under way
extern "C" __global__ void inval_while_cp_async_is_tracked(const float* x, float* y) {
    __shared__ __align__(128) float s[256];
    __shared__ u64 bar;
    MAKE(bar, 64)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(s + T * 4)), "l"(x + T * 4) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory");
    wait(bar, 0);  //+
    __syncthreads();
    if (T == 0) inval(bar);  //!
    y[T] = x[63 - T];
}
