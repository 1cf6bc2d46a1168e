//@arch sm_90a
// Accesses to the memory of a block that may have exited: nothing that comes after them is waited for there.
#include "instructions.cuh"
#define RANK cluster_rank()
#define OTHER (cluster_rank() ^ 1)

//@ clusters | cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | a block reads the other one's tile, and nothing keeps that block until it has
extern "C" __global__ void read_from_exited(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    y[64 * RANK + T] = load_cluster(mapa(s + T, OTHER));  //!
    cluster_sync();  //+
}

//@ clusters | cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | the first block stores its sums into the second, which does not use them and may be gone
extern "C" __global__ void store_into_exited(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = 0;
    cluster_sync();
    y[64 * RANK + T] = x[64 * RANK + T];
    if (RANK == 0) store_cluster(mapa(s + T, 1), x[T]);  //!
    cluster_sync();  //+
}

//@ clusters | cluster | 4, 64, cluster 4 | u32[256]%8, u32[8]=0 | a histogram in the first block, which copies it out before the others have added to it, and leaves
extern "C" __global__ void histogram_of_cluster(const u32* x, u32* y) {
    __shared__ u32 bins[8];
    if (T < 8) bins[T] = 0;
    cluster_sync();
    atomicAdd((u32*)generic(bins + x[64 * blockIdx.x + T], 0), 1u);  //!
    cluster_sync();  //+
    if (RANK == 0) {
        __syncthreads();
        if (T < 8) y[T] = atomicAdd(bins + T, 0u);
    }
}

//@ clusters | cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | the cluster's barrier comes before the last read
extern "C" __global__ void cluster_barrier_too_early(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    float sum = load_cluster(mapa(s + T, OTHER));
    cluster_sync();  //-
    sum += load_cluster(mapa(s + (T + 1) % 64, OTHER));  //!
    cluster_sync();  //+
    y[64 * RANK + T] = sum;
}

//@ clusters | cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | at the end the threads arrive at the cluster's barrier, but do not wait
extern "C" __global__ void arrives_and_leaves(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    y[64 * RANK + T] = load_cluster(mapa(s + T, OTHER));  //!
    cluster_arrive();
    cluster_wait();  //+
}

//@ clusters | cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | only the block that reads waits at the end; the one that is read arrives and leaves
extern "C" __global__ void only_reader_waits(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    if (RANK == 0) y[T] = load_cluster(mapa(s + T, 1));  //!
    cluster_arrive();
    if (RANK == 0) cluster_wait();  //-
    cluster_wait();  //+
}

//@ clusters | cluster | 2, 96, cluster 2 | f32[256], f32[512]=0 | consumers release the last stages in both blocks, and the producers do not wait for that
extern "C" __global__ void last_releases_unawaited(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 4);
        fence_init();
    }
    cluster_sync();
    if (WARP == 2) {
        if (LANE == 0) {
            REPEAT(t, 4) {
                wait_cluster(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 256);
                if (RANK == 0) load_multicast(s[t % 2], x + 64 * t, 256, full[t % 2], 3);
            }
            for (int t = 4; t < 6; t++) wait_cluster(empty[t % 2], t / 2 + 1 & 1);  //+
        }
    } else {
        REPEAT(t, 4) {
            wait_cluster(full[t % 2], t / 2 & 1);
            y[256 * RANK + 64 * t + T] = s[t % 2][T];
            __syncwarp();
            if (LANE < 2) arrive_cluster(mapa(&empty[t % 2], LANE));  //!
        }
    }
}

//@ clusters | cluster | 2, 96, cluster 2 | f32[256], f32[512]=0 | the producers wait for all but the very last release
extern "C" __global__ void drains_one_stage_less(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 4);
        fence_init();
    }
    cluster_sync();
    if (WARP == 2) {
        if (LANE == 0) {
            REPEAT(t, 4) {
                wait_cluster(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], 256);
                if (RANK == 0) load_multicast(s[t % 2], x + 64 * t, 256, full[t % 2], 3);
            }
            for (int t = 4; t < 5; t++) wait_cluster(empty[t % 2], t / 2 + 1 & 1);  //-
            for (int t = 4; t < 6; t++) wait_cluster(empty[t % 2], t / 2 + 1 & 1);  //+
        }
    } else {
        REPEAT(t, 4) {
            wait_cluster(full[t % 2], t / 2 & 1);
            y[256 * RANK + 64 * t + T] = s[t % 2][T];
            __syncwarp();
            if (LANE < 2) arrive_cluster(mapa(&empty[t % 2], LANE));  //!
        }
    }
}

//@ clusters | cluster | 2, 64, cluster 2 | f32[64], f32[64]=0 | stores of a warp into the other block, announced by one lane; nobody there waits for the announcement
extern "C" __global__ void announced_to_nobody(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    cluster_sync();
    if (RANK == 0 && WARP == 0) {
        store_cluster(mapa(s + LANE, 1), x[LANE]);  //!
        __syncwarp();
        if (LANE == 0) arrive_cluster(mapa(&bar, 1));  //!
    }
    if (RANK == 1 && WARP == 1) {
        wait_cluster(bar, 0);  //+
        y[LANE] = x[LANE];
    }
}

//@ clusters | cluster | 2, 64, cluster 2 | u32[64], u32[64]=0 | the other block adds to a counter here; the thread that owns it does not poll it before it leaves
extern "C" __global__ void counter_not_polled(const u32* x, u32* y) {
    __shared__ u32 counter;
    if (T == 0) counter = 0;
    cluster_sync();
    if (RANK == 0) add_cluster(mapa(&counter, 1), 1);  //!
    if (RANK == 1 && T == 0)
        while (poll(&counter) < 64) {}  //+
    y[T] = x[T];
}

//@ clusters | cluster | 2, 64, cluster 2 | u32[64], u32[64]=0 | a relaxed arrival in the other block: it orders nothing, but a wait for its phase keeps the block
extern "C" __global__ void relaxed_arrival_unawaited(const u32* x, u32* y) {
    __shared__ u64 bar;
    if (T == 0) init(bar, 64), fence_init();
    cluster_sync();
    if (RANK == 0) {
        y[T] = x[T];
        arrive_relaxed(mapa(&bar, 1));  //!
    } else if (T == 40) {
        wait_cluster(bar, 0);  //+
    }
}

//@ clusters | cluster | 4, 32, cluster 4 | f32[128], f32[128]=0 | each block waits for the next one's arrival, but it is the previous one that stores into it
extern "C" __global__ void waits_for_wrong_neighbour(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u64 bar;
    if (T == 0) init(bar, 32), fence_init();
    cluster_sync();
    u32 next = (RANK + 1) % 4, before = (RANK + 3) % 4;
    store_cluster(mapa(s + T, next), x[32 * RANK + T]);  //!
    arrive_cluster(mapa(&bar, before));  //-!
    arrive_cluster(mapa(&bar, next));  //+
    wait_cluster(bar, 0);
    y[32 * RANK + T] = x[32 * RANK + T];
}

//@ clusters | cluster/asynchronous copy | 2, 64, cluster 2 | u32[64], u32[64]=0 | st.async into a block that does not wait for it
extern "C" __global__ void store_async_into_exited(const u32* x, u32* y) {
    __shared__ u32 s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    cluster_sync();
    if (RANK == 0) {
        store_async(mapa(s + T, 1), x[T], mapa(&bar, 1));  //!
    } else if (T == 0) {
        arrive_expect(bar, 256);
        wait_cluster(bar, 0);  //+
    }
    y[T] = x[T];
}

//@ clusters | cluster/asynchronous copy | 2, 32, cluster 2 | f32[64], f32[128]=0 | a multicast into both blocks, of which the second does not wait for it
extern "C" __global__ void multicast_into_exited(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init(), arrive_expect(bar, 256);
    cluster_sync();
    if (RANK == 0 && T == 0) load_multicast(s, x, 256, bar, 3);  //!
    if (RANK == 0) wait(bar, 0);  //-
    wait(bar, 0);  //+
    if (RANK == 0) y[T] = s[T];
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | the block that is read stays for one warp that waits; its other warp leaves early
extern "C" __global__ void one_warp_stays(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 64), fence_init();
    s[T] = x[64 * RANK + T];
    cluster_sync();
    if (RANK == 0) {
        y[T] = load_cluster(mapa(s + T, 1));
        arrive_cluster(mapa(&bar, 1));
    } else if (WARP == 0) {
        wait_cluster(bar, 0);
    }
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | all threads of the reader synchronise, and one of them tells the block that was read
extern "C" __global__ void one_thread_tells(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    s[T] = x[64 * RANK + T];
    cluster_sync();
    y[64 * RANK + T] = load_cluster(mapa(s + T, OTHER));
    __syncthreads();
    if (T == 32) arrive_cluster(mapa(&bar, OTHER));
    if (T == 5) wait_cluster(bar, 0);
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0, u32[2]=0 | a flag in global memory keeps the block that is read
extern "C" __global__ void kept_by_global_flag(const float* x, float* y, u32* done) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    y[64 * RANK + T] = load_cluster(mapa(s + T, OTHER));
    __syncthreads();
    if (T == 0) {
        __threadfence();
        atomicExch(done + RANK, 1u);
        while (atomicAdd(done + OTHER, 0u) == 0) {}
        __threadfence();
    }
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | after the last barrier blocks access their own memory only, also by mapa
extern "C" __global__ void own_memory_at_the_end(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[64 * RANK + T];
    cluster_sync();
    float sum = load_cluster(mapa(s + T, OTHER));
    cluster_sync();
    sum += load_cluster(mapa(s + 63 - T, RANK));
    y[64 * RANK + T] = sum;
}

//@ clusters | - | 4, 32, cluster 4 | f32[128], f32[128]=0 | the first block reads the second one, tells the third, and that tells the second
extern "C" __global__ void told_by_a_third_block(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u64 bar;
    if (T == 0) init(bar, 32), fence_init();
    s[T] = x[32 * RANK + T];
    cluster_sync();
    if (RANK == 0) {
        y[T] = load_cluster(mapa(s + T, 1));
        arrive_cluster(mapa(&bar, 2));
    } else if (RANK == 2) {
        wait_cluster(bar, 0);
        arrive_cluster(mapa(&bar, 1));
    }
    if (RANK == 1) wait_cluster(bar, 0);
}

//@ clusters | advice cluster | 2, 64, cluster 2 | f32[128], f32[128]=0 | the arrival at the last barrier is relaxed: it does not wait for the stores into the other block
extern "C" __global__ void relaxed_at_the_end(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = 0;
    cluster_sync();
    y[64 * RANK + T] = x[64 * RANK + T];
    store_cluster(mapa(s + T, OTHER), x[T]);  //!
    cluster_arrive_relaxed();  //-
    cluster_arrive();  //+
    cluster_wait();
}

// copies out of a block's own memory, which an mbarrier of another block counts

//@ clusters | asynchronous copy | 2, 64, cluster 2 | f32[128], f32[128]=0 | the second block sends its tile to the first and leaves: its memory may be another block's while the copy reads it
extern "C" __global__ void sender_leaves(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    from[T] = x[64 * RANK + T];
    fence_async_shared();
    cluster_sync();
    if (RANK == 1) {
        if (T == 0) copy_cluster(mapa(to, 0), from, 256, mapa(&bar, 0));  //!
    } else {
        if (T == 0) arrive_expect(bar, 256);
        wait_cluster(bar, 0);
        y[T] = to[T];
    }
    cluster_sync();  //+
}

//@ clusters | asynchronous copy | 2, 64, cluster 2 | f32[128], f32[128]=0 | the sender stays until the cluster's barrier, at which the other block arrives before it has waited for the copy
extern "C" __global__ void sender_stays_too_short(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    from[T] = x[64 * RANK + T];
    fence_async_shared();
    cluster_sync();
    if (T == 0 && RANK == 0) arrive_expect(bar, 256);
    if (T == 0 && RANK == 1) copy_cluster(mapa(to, 0), from, 256, mapa(&bar, 0));  //!
    if (RANK == 0) wait_cluster(bar, 0);  //+
    cluster_sync();
    if (RANK == 0) wait_cluster(bar, 0);
    if (RANK == 0) y[T] = to[T];
}

//@ clusters | asynchronous copy | 2, 64, cluster 2 | f32[128], f32[128]=0 | two blocks exchange tiles: each waits for what it gets, and for nothing that tells it that its own tile has arrived
extern "C" __global__ void exchange_unanswered(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar, done;
    if (T == 0) init(bar, 1), init(done, 64), fence_init();
    from[T] = x[64 * RANK + T];
    fence_async_shared();
    cluster_sync();
    if (T == 0) {
        arrive_expect(bar, 256);
        copy_cluster(mapa(to, OTHER), from, 256, mapa(&bar, OTHER));  //!
    }
    wait_cluster(bar, 0);
    y[64 * RANK + T] = to[T];
    arrive_cluster(mapa(&done, OTHER));  //+
    wait_cluster(done, 0);  //+
}

//@ clusters | asynchronous copy | 4, 32, cluster 4 | f32[128], f32[128]=0 | partial sums travel round a ring by copies; the last ones are not waited for by those who send them
extern "C" __global__ void ring_without_end(const float* x, float* y) {
    __shared__ __align__(128) float tile[4][32];
    __shared__ u64 bar[4];
    if (T == 0) {
        for (int i = 0; i < 4; i++) init(bar[i], 1);
        fence_init();
    }
    tile[0][T] = x[32 * RANK + T];
    fence_async_shared();
    cluster_sync();
    float sum = tile[0][T];
    for (int i = 0; i < 3; i++) {
        u32 next = (RANK + 1) % 4;
        if (T == 0) {
            arrive_expect(bar[i], 128);
            copy_cluster(mapa(tile[i + 1], next), tile[i], 128, mapa(&bar[i], next));  //!
        }
        wait_cluster(bar[i], 0);
        sum += tile[i + 1][T];
        __syncwarp();
    }
    y[32 * RANK + T] = sum;
    cluster_sync();  //+
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | the answer to a tile is a tile: the first copy was complete before the second one began
extern "C" __global__ void answered_by_a_copy(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    from[T] = x[64 * RANK + T];
    fence_async_shared();
    cluster_sync();
    if (T == 0) {
        arrive_expect(bar, 256);
        if (RANK == 1) copy_cluster(mapa(to, 0), from, 256, mapa(&bar, 0));
    }
    wait_cluster(bar, 0);
    if (RANK == 0) {
        from[T] = 2 * to[T];
        fence_async_shared();
        __syncthreads();
        if (T == 0) copy_cluster(mapa(to, 1), from, 256, mapa(&bar, 1));
    }
    if (RANK == 1) {
        y[T] = to[T];
        __syncthreads();
        if (T == 0) arrive_cluster(mapa(&bar, 0));
    } else {
        wait_cluster(bar, 1);
    }
}

//@ clusters | - | 2, 64, cluster 2 | f32[128], f32[128]=0 | one warp of the sender stays for the other block's arrival, and the one that sent leaves
extern "C" __global__ void another_warp_stays(const float* x, float* y) {
    __shared__ __align__(128) float from[64], to[64];
    __shared__ u64 bar, done;
    if (T == 0) init(bar, 1), init(done, 64), fence_init();
    from[T] = x[64 * RANK + T];
    fence_async_shared();
    cluster_sync();
    if (RANK == 1) {
        if (T == 0) copy_cluster(mapa(to, 0), from, 256, mapa(&bar, 0));
        if (WARP == 1) wait_cluster(done, 0);
        return;
    }
    if (T == 0) arrive_expect(bar, 256);
    wait_cluster(bar, 0);
    y[T] = to[T];
    arrive_cluster(mapa(&done, 1));
}
