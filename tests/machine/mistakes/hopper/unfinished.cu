//@arch sm_90a
// Copies that are not complete where a fence, an arrival or a counter tells of them.
#include "instructions.cuh"
DEVICE void copy(float* target, const float* source) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(target)), "l"(source) : "memory"); }
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

//@ proxies | asynchronous copy | 1, 64 | f32[64], f32[64]=0 | the wait leaves the group pending; a fence and a barrier follow, then TMA reads
extern "C" __global__ void store_of_pending_copy(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    copy(s + T, x + T);  //!
    copy_commit();
    copy_wait<1>();  //-
    copy_wait<0>();  //+
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | asynchronous copy | 1, 64 | f32[64], f32[64]=0 | one lane waits for its copies alone: the copies of the others are pending
extern "C" __global__ void store_of_copies_one_waited(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    copy(s + T, x + T);  //!
    copy_commit();
    if (T % 32 == 0)  //-
    copy_wait<0>();
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | the fence stands before the wait: it does not hold for what is copied after it
extern "C" __global__ void store_fence_before_copy_wait(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    copy(s + T, x + T);  //!
    fence_async_shared();  //-
    copy_commit();
    copy_wait<0>();
    fence_async_shared();  //+
    __syncthreads();
    if (T == 32) {
        bulk_store(y, s, 256);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}

//@ proxies | asynchronous copy | 1, 128 | f32[256], f32[512]=0 | wgmma reads the stage of which the copies are pending: one group too few is waited for
extern "C" __global__ void wgmma_of_pending_copy(const float* x, float* y) {
    __shared__ __align__(1024) float a[2][64 * 8], b[2][8 * 8];
    float d[4] = {};
    for (int stage = 0; stage < 2; stage++) {
        for (int i = T; i < 512; i += 128) copy(a[stage] + i, x + i % 256);  //!
        if (T < 64) copy(b[stage] + T, x + T);  //!
        copy_commit();
    }
    for (int stage = 0; stage < 2; stage++) {
        if (stage == 0) copy_wait<1>();
        if (stage == 1) copy_wait<1>();  //-
        if (stage == 1) copy_wait<0>();  //+
        fence_async_shared();
        __syncthreads();
        wgmma_fence();
        wgmma(d, plain(a[stage]), plain(b[stage]));  //!
        wgmma_commit();
        wgmma_wait<0>();
    }
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ transactions | asynchronous copy | 1, 160 | f32[128], f32[128]=0 | the wait for the copies stands behind the arrival
extern "C" __global__ void arrival_before_copy_wait(const float* x, float* y) {
    __shared__ float s[128];
    __shared__ u64 bar;
    if (T == 0) init(bar, 128), fence_init();
    __syncthreads();
    if (T < 128) {
        copy(s + T, x + T);  //!
        copy_commit();
        copy_wait<0>();  //+
        arrive(bar);
        copy_wait<0>();  //-
    } else {
        wait(bar, 0);
        for (int i = T - 128; i < 128; i += 32) y[i] = s[i];  //!
    }
}

//@ transactions | asynchronous copy | 1, 64 | f32[512], f32[512]=0 | each round the copies of the next stage are issued before the wait, which waits for one group too few
extern "C" __global__ void ring_of_copies_waited_late(const float* x, float* y) {
    __shared__ float s[4][32];
    __shared__ u64 full[4], empty[4];
    if (T == 0) {
        for (int i = 0; i < 4; i++) init(full[i], 32), init(empty[i], 32);
        fence_init();
    }
    __syncthreads();
    if (T < 32) {
        for (int i = 0; i < 17; i++) {
            if (i < 16) {
                if (i >= 4) wait(empty[i % 4], i / 4 + 1 & 1);
                copy(s[i % 4] + T, x + i * 32 + T);  //!
            }
            copy_commit();
            copy_wait<2>();  //-
            copy_wait<1>();  //+
            if (i > 0) arrive(full[(i - 1) % 4]);
        }
    } else {
        for (int i = 0; i < 16; i++) {
            wait(full[i % 4], i / 4 & 1);
            y[i * 32 + T - 32] = s[i % 4][T - 32];  //!
            arrive(empty[i % 4]);
        }
    }
}

//@ TMA | asynchronous copy | 4, 64 | f32[256], f32[64]=0, f32[64]=0, u32[1]=0 | each block counts itself before its sums are written: it waits only until they are read
extern "C" __global__ void counted_before_sums(const float* x, float* y, float* z, u32* count) {
    __shared__ __align__(128) float s[64];
    __shared__ u32 before;
    s[T] = x[blockIdx.x * 64 + T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_add(y, s, 256);  //!
        bulk_commit();
        bulk_wait_read<0>();  //-
        bulk_wait<0>();  //+
        __threadfence();
        before = atomicAdd(count, 1);
        __threadfence();
        bulk_wait<0>();
    }
    __syncthreads();
    if (before == 3) z[T] = y[T];  //!
}

//@ TMA | asynchronous copy | 4, 64 | f32[256], f32[64]=0, f32[64]=0, u32[1]=0 | the thread that adds waits behind the counter, where another thread has counted the block
extern "C" __global__ void counted_by_another_thread(const float* x, float* y, float* z, u32* count) {
    __shared__ __align__(128) float s[64];
    __shared__ u32 before;
    s[T] = x[blockIdx.x * 64 + T];
    fence_async_shared();
    __syncthreads();
    if (T == 0) {
        bulk_add(y, s, 256);  //!
        bulk_commit();
    }
    if (T == 0) bulk_wait<0>();  //+
    __syncthreads();
    if (T == 32) {
        __threadfence();
        before = atomicAdd(count, 1);
        __threadfence();
    }
    __syncthreads();
    if (T == 0) bulk_wait<0>();  //-
    if (before == 3) z[T] = y[T];  //!
}

//@ proxies | asynchronous copy/proxy/race/uninitialised | 1, 256 | f32[512], f32[512]=0 | an mbarrier tracks the copies, and the warpgroup that multiplies does not wait for it
extern "C" __global__ void wgmma_of_tracked_copies(const float* x, float* y) {
    __shared__ __align__(1024) float a[64 * 8], b[8 * 8];
    __shared__ u64 full;
    if (T == 0) init(full, 128), fence_init();
    __syncthreads();
    if (T >= 128) {
        for (int i = T - 128; i < 512; i += 128) copy(a + i, x + i);  //!
        if (T < 192) copy(b + T - 128, x + T - 128);  //!
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&full)) : "memory");
    }
    __syncthreads();
    if (T < 128) {
        float d[4] = {};
        wait(full, 0);  //+
        fence_async_shared();
        wgmma_fence();
        wgmma(d, plain(a), plain(b));  //!
        wgmma_commit();
        wgmma_wait<0>();
        for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
        wait(full, 0);
    }
}

//@ proxies | asynchronous copy/proxy | 1, 64 | f32[32], f32[32]=0 | the arrival that tracks copies stands before them, and another thread stores what they write
extern "C" __global__ void tracked_before_copies(const float* x, float* y) {
    __shared__ __align__(128) float s[32];
    __shared__ u64 full;
    if (T == 0) init(full, 32), fence_init();
    __syncthreads();
    if (T < 32) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&full)) : "memory");  //-
        copy(s + T, x + T);  //!
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&full)) : "memory");  //+
    }
    __syncthreads();
    if (T == 32) {
        wait(full, 0);
        fence_async_shared();
        bulk_store(y, s, 128);  //!
        bulk_commit();
        bulk_wait<0>();
    }
}
