//@arch sm_90a
// Warps with roles: who counts at which barrier, who may release what, and what order they keep.
#include "instructions.cuh"
DEVICE void ldmatrix(u32 (&v)[4], const void* p) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(shared(p)) : "memory"); }

//@ transactions | asynchronous copy/race/mbarrier | 1, 96 | f32[512], f32[512]=0 | two warps read the stages, and only the first is counted at empty
extern "C" __global__ void second_consumer_not_counted(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    u32 releases = 32;  //-
    u32 releases = 64;  //+
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], releases);
        fence_init();
    }
    __syncthreads();
    if (T == 64) {
        REPEAT(t, 8) {
            wait(empty[t % 2], t / 2 + 1 & 1);
            arrive_expect(full[t % 2], 256);
            bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);  //!
        }
    } else if (T < 64) {
        REPEAT(t, 8) {
            wait(full[t % 2], t / 2 & 1);
            y[64 * t + T] = s[t % 2][T];  //!
            if (T < 32) arrive(empty[t % 2]);  //-
            arrive(empty[t % 2]);  //+
        }
    }
}

//@ transactions | asynchronous copy/race/uninitialised/mbarrier | 1, 64 | f32[64], f32[64]=0 | the thread arrives before it says how many bytes are to come: the phase is complete at once
extern "C" __global__ void arrives_before_expect(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) {
        init(bar, 1), fence_init();
        arrive(bar);  //-!
        expect(bar, 256);  //!
        arrive(bar);  //+
        bulk_load(s, x, 256, bar);  //!
    }
    __syncthreads();
    wait(bar, 0);  //!
    y[T] = s[T];  //!
}

//@ transactions | asynchronous copy/race | 1, 160 | f32[512], f32[512]=0 | one thread releases for four warps, which only a barrier of its own warp has gathered
extern "C" __global__ void released_for_other_warps(const float* x, float* y) {
    __shared__ __align__(128) float s[128];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 1), fence_init();
    __syncthreads();
    if (T == 128) {
        REPEAT(t, 4) {
            wait(empty, t + 1 & 1);
            arrive_expect(full, 512);
            bulk_load(s, x + 128 * t, 512, full);  //!
        }
    } else if (T < 128) {
        REPEAT(t, 4) {
            wait(full, t & 1);
            y[128 * t + T] = s[T];  //!
            __syncwarp();  //-
            barrier(1, 128);  //+
            if (T == 0) arrive(empty);
        }
    }
}

//@ wgmma | asynchronous copy/race | 1, 160 | map f16[384x16] 64x16 32B, map f16[8x16] 8x16 32B, f32[512]=0 | wait_group 1 lets the last product go on, and its stage is the one that is released
extern "C" __global__ void releases_the_latest_stage(MAP a, MAP b, float* y) {
    __shared__ __align__(1024) __half sa[3][64 * 16], sb[8 * 16];
    __shared__ u64 full[3], empty[3], once;
    if (T == 0) {
        for (int i = 0; i < 3; i++) init(full[i], 1), init(empty[i], 128);
        init(once, 1), fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0) {
            arrive_expect(once, 256);
            load_2d(sb, &b, 0, 0, once);
            REPEAT(t, 6) {
                wait(empty[t % 3], t / 3 + 1 & 1);
                arrive_expect(full[t % 3], 2048);
                load_2d(sa[t % 3], &a, 0, 64 * t, full[t % 3]);  //!
            }
        }
    } else {
        float d[4] = {0, 0, 0, 0};
        wait(once, 0);
        REPEAT(t, 6) {
            wait(full[t % 3], t / 3 & 1);
            for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
            wgmma_fence();
            wgmma(d, descriptor(sa[t % 3], 16, 256, SWIZZLE_32B), descriptor(sb, 16, 256, SWIZZLE_32B));  //!
            wgmma_commit();
            wgmma_wait<1>();
            arrive(empty[t % 3]);  //-!
            if (t > 0) arrive(empty[(t - 1) % 3]);  //+
        }
        wgmma_wait<0>();
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
        for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | the fence stands before the stores that it is for
extern "C" __global__ void fence_before_stores(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    fence_async_shared();  //-
    s[T] = x[T];  //!
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ TMA | advice asynchronous copy/race | 1, 32 | f16[1024], u32[512]=0 | the next tile is loaded over one that ldmatrix may still read in other lanes
extern "C" __global__ void ldmatrix_and_next_load(const __half* x, u32* y) {
    __shared__ __align__(128) __half s[256];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncwarp();
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 512), bulk_load(s, x + 256 * t, 512, bar);  //!
        wait(bar, t & 1);
        u32 v[4];
        ldmatrix(v, s + 8 * T);  //!
        fence_async_shared();
        __syncwarp();  //+
        for (int i = 0; i < 4; i++) y[128 * t + 4 * T + i] = v[i];
    }
}

//@ TMA | race/asynchronous copy/proxy | 2, 64 | f32[64], f32[64]=0, f32[64]=0, i32[1]=0 | a block reads the sums that another adds to by TMA, behind a flag that does not wait for them
extern "C" __global__ void flag_before_sums(const float* x, float* sums, float* y, int* flag) {
    __shared__ __align__(128) float s[64];
    if (blockIdx.x == 0) {
        s[T] = x[T];
        fence_async_shared();
        __syncthreads();
        if (T == 0) {
            bulk_add(sums, s, 256);  //!
            bulk_commit();
            bulk_wait_read<0>();  //-
            bulk_wait<0>();  //+
            __threadfence();
            *static_cast<volatile int*>(flag) = 1;
            bulk_wait<0>();
        }
    } else {
        if (T == 0) {
            while (*static_cast<volatile int*>(flag) == 0) {}
            __threadfence();
        }
        __syncthreads();
        y[T] = sums[T];  //!
    }
}

//@ transactions | out of bounds/mbarrier/race/uninitialised/barrier/deadlock | 1, 64 | f32[256], f32[256]=0 | there are two stages, and the producer counts three of them at empty
extern "C" __global__ void third_of_two_stages(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2];
    __shared__ u64 empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 32);
        fence_init();
    }
    __syncthreads();
    int stages = 3;  //-
    int stages = 2;  //+
    if (T == 32) {
        REPEAT(t, 4) {
            wait(empty[t % stages], t / stages + 1 & 1);  //!
            arrive_expect(full[t % 2], 256);  //!
            bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);  //!
        }
    } else if (T < 32) {
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);  //!
            y[64 * t + T] = s[t % 2][T] + s[t % 2][T + 32];  //!
            arrive(empty[t % 2]);
        }
    }
}

//@ wgmma | uninitialised/out of bounds/race/proxy | 1, 128 | f16[1024], f16[128], f32[512]=0 | the stride between the matrices of A is twice what it is: half of them lie beyond the tile
extern "C" __global__ void stride_too_large(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[64 * 16], sb[8 * 16], rest[64 * 16];
    for (int i = T; i < 1024; i += 128) sa[i] = a[i];
    sb[T] = b[T];
    if (y == nullptr) rest[T] = b[0];
    fence_async_shared();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
    wgmma_fence();
    u32 stride = 512;  //-
    u32 stride = 256;  //+
    wgmma(d, descriptor(sa, 128, stride), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i])::"memory");
    for (int i = 0; i < 4; i++) y[4 * T + i] = d[i];
    if (y == nullptr) y[T] = __half2float(rest[127 - T]);
}

//@ named barriers | barrier/race/deadlock/divergence | 1, 256 | f32[256], f32[256]=0 | two groups of four warps meet at the same named barrier, each with its own count
extern "C" __global__ void barrier_of_both_groups(const float* x, float* y) {
    __shared__ float s[256];
    int group = T / 128;
    REPEAT(t, 2) {
        s[T] = x[T] + t;  //!
        barrier(1, 128);  //-!
        barrier(1 + group, 128);  //+
        y[T] = s[T ^ 127];  //!
        if (group == 0) barrier(3, 128);
        if (group == 1) barrier(4, 128);
    }
}

//@ clusters | race/cluster | 2, 32, cluster 2 | u32[32]%8, u32[16]=0 | a histogram of the cluster: the owner reads its bins while the other block may still add to them
extern "C" __global__ void histogram_read_early(const u32* x, u32* y) {
    __shared__ u32 bins[8];
    u32 rank = cluster_rank();
    if (T < 8) bins[T] = 0;
    cluster_sync();
    u32 there = mapa(bins + x[T], x[T] & 1);
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(there) : "memory");  //!
    __syncwarp();  //-
    cluster_sync();  //+
    if (T < 8) y[8 * rank + T] = bins[T];  //!
    cluster_sync();
}

//@ clusters | advice race | 2, 32, cluster 2 | f32[64], f32[64]=0 | what was stored in the other block is told by an arrival of the block's scope
extern "C" __global__ void remote_arrival_of_block_scope(const float* x, float* y) {
    __shared__ float s[32];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    if (T == 0) init(bar, 32), fence_init();
    cluster_sync();
    store_cluster(mapa(s + T, rank ^ 1), x[32 * rank + T]);  //!
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(mapa(&bar, rank ^ 1)) : "memory");  //-!
    arrive_cluster(mapa(&bar, rank ^ 1));  //+
    wait_cluster(bar, 0);
    y[32 * rank + T] = s[T];  //!
    cluster_sync();
}
