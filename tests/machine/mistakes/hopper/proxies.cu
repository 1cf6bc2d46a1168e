//@arch sm_90a
// Memory that passes between the generic and the asynchronous proxy, and tensor maps that are changed.
#include "instructions.cuh"
#define ROWS 8
#define COLS 32
#define MAKE(bar)                           \
    if (T == 0) init(bar, 1), fence_init(); \
    __syncthreads();
DEVICE void release(int* flag) { asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory"); }
DEVICE void acquire(int* flag) {
    int seen = 0;
    while (!seen) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | stored by threads, copied out by TMA, no fence.proxy.async
extern "C" __global__ void store_no_proxy_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | only the thread that issues the copy has a fence, before the barrier
extern "C" __global__ void store_fence_of_one(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    if (T == 0)  //-
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | one of two warps has the fence
extern "C" __global__ void store_fence_of_one_warp(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    if (WARP == 1) fence_async_shared();  //-
    fence_async_shared();  //+
    __syncthreads();
    if (T == 32) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | the fence stands before the stores
extern "C" __global__ void store_fence_too_early(const float* x, float* y) {
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

//@ proxies | proxy | 1, 64 | f32[32], f32[32]=0, i32[1]=0 | a flag tells another warp of the stores, the fence comes after it
extern "C" __global__ void store_fence_after_flag(const float* x, float* y, int* flag) {
    __shared__ __align__(128) float s[32];
    if (WARP == 0) {
        s[T] = x[T];  //!
        fence_async_shared();  //+
        __syncwarp();
        if (T == 0) release(flag);
        fence_async_shared();  //-
    } else if (T == 32) {
        acquire(flag);
        bulk_store(y, s, 128);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[32]=0, i32[2]=0 | a flag for each stage: that of the first is set before a fence, the next stage has its own
extern "C" __global__ void store_fence_of_next_stage(const float* x, float* y, int* flags) {
    __shared__ __align__(128) float s[2][32];
    if (WARP == 0) {
        s[0][T] = x[T];  //!
        fence_async_shared();  //+
        __syncwarp();
        if (T == 0) release(flags);
        s[1][T] = x[32 + T];
        fence_async_shared();
        __syncwarp();
        if (T == 0) release(flags + 1);
    } else if (T == 32) {
        acquire(flags);
        bulk_store(y, s[0], 128);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[32], f32[32]=0 | a lane that stores to the tile has no fence; one that stores elsewhere needs none
extern "C" __global__ void store_fence_of_some_lanes(const float* x, float* y) {
    __shared__ __align__(128) float s[32];
    __shared__ float elsewhere;
    if (T < 31) s[T] = x[T];  //!
    if (T == 0) s[31] = x[31];
    if (T == 31) elsewhere = x[0];
    if (T != 5 && T != 31) fence_async_shared();  //-
    if (T != 31) fence_async_shared();  //+
    __syncthreads();
    if (T == 32) {
        if (elsewhere != x[0]) y[0] = 1;
        bulk_store(y, s, 128);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | advice proxy | 1, 64 | f32[64], f32[64]=0 | the fence stands behind the barrier, in the issuing thread alone
extern "C" __global__ void store_fence_behind_barrier(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        fence_async_shared();  //-
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | race/proxy/asynchronous copy | 1, 64 | f32[64], f32[64]=0 | a fence in each thread, but no barrier: the copy begins before the other warp has stored
extern "C" __global__ void store_fence_no_barrier(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    fence_async_shared();
    __syncthreads();  //+
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | the fence is one for global memory
extern "C" __global__ void store_fence_of_global(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    fence_async_global();  //-
    fence_async();  //+
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | __threadfence is no fence between proxies
extern "C" __global__ void store_threadfence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = x[T];  //!
    __threadfence();  //-
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 32 | u32[32], map u32[8x4]=0 8x4 | an epilogue stores with stmatrix, then TMA reads
extern "C" __global__ void stmatrix_no_proxy_fence(const u32* x, MAP map) {
    __shared__ __align__(128) u32 s[32];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared(s + T % 8 * 4)), "r"(x[T]) : "memory");  //!
    fence_async_shared();  //+
    __syncwarp();
    if (elect()) {
        store_2d(&map, 0, 0, s);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | sums are made with atomics in shared memory, then added to global memory by TMA
extern "C" __global__ void atomics_no_proxy_fence(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    s[T] = 0;
    fence_async_shared();
    __syncthreads();
    atomicAdd(s + T / 2, x[T]);  //!
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) {
        bulk_add(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 128 | f16[1024], f16[128], f32[512]=0 | operands are stored by threads and read by wgmma
extern "C" __global__ void wgmma_no_proxy_fence(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    for (int i = T; i < 1024; i += 128) sa[i] = a[i];  //!
    sb[T] = b[T];  //!
    fence_async_shared();  //+
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ proxies | proxy | 1, 128 | f16[1024], f16[128], f32[512]=0 | operands come by cp.async, which is of the generic proxy
extern "C" __global__ void wgmma_after_cp_async(const __half* a, const __half* b, float* y) {
    __shared__ __align__(128) __half sa[1024], sb[128];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(sa + T * 8)), "l"(a + T * 8) : "memory");  //!
    if (T < 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(sb + T * 8)), "l"(b + T * 8) : "memory");  //!
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_async_shared();  //+
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(sa), plain(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ proxies | proxy | 1, 128 | map f16[64x64] 64x64 128B, map f16[8x64] 8x64 128B, f32[512]=0 | a tile of TMA is scaled in place and multiplied
extern "C" __global__ void wgmma_after_scaling(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half sa[4096], sb[512];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) arrive_expect(bar, 9216), load_2d(sa, &ma, 0, 0, bar), load_2d(sb, &mb, 0, 0, bar);
    wait(bar, 0);
    for (int i = T; i < 512; i += 128) sb[i] = __hmul(sb[i], __float2half(0.5f));  //!
    fence_async_shared();  //+
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, swizzled(sa), swizzled(sb));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ proxies | advice proxy/race/asynchronous copy | 1, 64 | map f32[6x32] 8x32, f32[256]=0 | zeros are stored by threads, and TMA copies over them with no fence
extern "C" __global__ void zeros_then_tile(MAP map, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    for (int i = T; i < 256; i += 64) s[i] = 0;  //!
    if (T == 0) init(bar, 1), fence_init();
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 1024), load_2d(s, &map, 0, 0, bar);  //!
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ proxies | proxy | 1, 64 | f32[64]=0, f32[64]=0 | global memory is stored to by threads and copied in by TMA
extern "C" __global__ void global_then_bulk_load(float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    x[T] = T;  //!
    fence_async_global();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[63 - T];
}

//@ proxies | proxy | 1, 64 | f32[64]=0, f32[64]=0 | the fence is one for shared memory, the data is global
extern "C" __global__ void global_then_shared_fence(float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    MAKE(bar)
    x[T] = T;  //!
    fence_async_shared();  //-
    fence_async_global();  //+
    __syncthreads();
    if (T == 0) arrive_expect(bar, 256), bulk_load(s, x, 256, bar);  //!
    wait(bar, 0);
    y[T] = s[63 - T];
}

//@ proxies | proxy | 2, 64 | @map_of_output, f32[256]=0, i32[1]=0 | one block stores, another copies the tile in by TMA behind a flag
extern "C" __global__ void global_then_tile(MAP map, float* x, float* y, int* flag) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (blockIdx.x == 0) {
        for (int i = T; i < 256; i += 64) x[i] = i;  //!
        fence_async_global();  //+
        __syncthreads();
        if (T == 0) release(flag);
    } else {
        if (T == 0) {
            acquire(flag);
            fence_async_global();  //+
            arrive_expect(bar, 1024);
            load_2d(s, &map, 0, 0, bar);  //!
        }
        wait(bar, 0);
        for (int i = T; i < 256; i += 64) y[i] = s[i];
    }
}

//@ proxies | proxy/tensor map/race | 1, 64 | @map_to_copy, f32[256]=0 | a tensor map is copied to global memory by threads and used with no fence
extern "C" __global__ void map_copied(const u32* host, u32* device, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T < 32) device[T] = host[T];  //!
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");  //+
    __syncthreads();
    if (T == 0) {
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(device) : "memory");  //+
        arrive_expect(bar, 1024);
        load_2d(s, reinterpret_cast<const CUtensorMap*>(device), 0, 0, bar);  //!
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ proxies | proxy/tensor map/race | 1, 64 | @map_to_change, f32[256]=0 | the address in a map is replaced and the map used with no fence
extern "C" __global__ void map_replaced(u32* map, const float* x, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(x) : "memory");  //!
        asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");  //+
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");  //+
        arrive_expect(bar, 1024);
        load_2d(s, reinterpret_cast<const CUtensorMap*>(map), 0, 0, bar);  //!
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ proxies | proxy/tensor map/race | 2, 64 | @map_to_change, f32[256]=0, i32[1]=0 | one block changes a map, another uses it behind a flag but with no acquire fence of the tensor map's proxy
extern "C" __global__ void map_replaced_elsewhere(u32* map, const float* x, float* y, int* flag) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (blockIdx.x == 0) {
        if (T == 0) {
            asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(x) : "memory");  //!
            asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
            release(flag);
        }
    } else {
        if (T == 0) {
            acquire(flag);
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");  //+
            arrive_expect(bar, 1024);
            load_2d(s, reinterpret_cast<const CUtensorMap*>(map), 0, 0, bar);  //!
        }
        wait(bar, 0);
        for (int i = T; i < 256; i += 64) y[i] = s[i];
    }
}

//@ proxies | proxy/tensor map/race | 1, 64 | @map_to_copy, f32[256]=0, f32[256] | a map is changed in shared memory and copied out by plain stores in place of tensormap.cp_fenceproxy
extern "C" __global__ void map_changed_in_shared(const u32* host, u32* device, float* y, const float* x) {
    __shared__ __align__(128) u32 map[32];
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (WARP == 0) {
        map[LANE] = host[LANE];
        __syncwarp();
        if (LANE == 0) asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared(map)), "l"(x) : "memory");
        __syncwarp();
        device[LANE] = map[LANE];  //-!
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(device), "r"(shared(map)) : "memory");  //+
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(device) : "memory");  //+
        __syncwarp();
        if (LANE == 0) {
            arrive_expect(bar, 1024);
            load_2d(s, reinterpret_cast<const CUtensorMap*>(device), 0, 0, bar);  //!
        }
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ proxies | proxy | 1, 64 | @map_to_change, f32[256]=0 | a map is changed, a barrier orders the two warps, and the one that uses it acquires it: nothing has released it
extern "C" __global__ void map_replaced_unreleased(u32* map, const float* x, float* y) {
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (T == 0) {
        asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");  //-
        asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(x) : "memory");  //!
        __threadfence();
        asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");  //+
    }
    __syncthreads();
    if (T == 32) {
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
        arrive_expect(bar, 1024);
        load_2d(s, reinterpret_cast<const CUtensorMap*>(map), 0, 0, bar);  //!
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}

//@ proxies | proxy | 1, 64 | @map_to_copy, f32[256]=0, f32[256] | tensormap.cp_fenceproxy releases the map, and nobody acquires it for the warp that uses it
extern "C" __global__ void map_copied_unacquired(const u32* host, u32* device, float* y, const float* x) {
    __shared__ __align__(128) u32 map[32];
    __shared__ __align__(128) float s[ROWS * COLS];
    __shared__ u64 bar;
    MAKE(bar)
    if (WARP == 0) {
        map[LANE] = host[LANE];
        __syncwarp();
        if (LANE == 0) asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared(map)), "l"(x) : "memory");
        __syncwarp();
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(device), "r"(shared(map)) : "memory");  //!
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(device) : "memory");  //+
    }
    __syncthreads();
    if (T == 32) {
        arrive_expect(bar, 1024);
        load_2d(s, reinterpret_cast<const CUtensorMap*>(device), 0, 0, bar);  //!
    }
    wait(bar, 0);
    for (int i = T; i < 256; i += 64) y[i] = s[i];
}
