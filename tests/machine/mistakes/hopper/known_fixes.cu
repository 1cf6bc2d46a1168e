//@arch sm_90a
// Mistakes that public projects have made and mended, each reduced to a few lines: proxies without a fence.
#include "instructions.cuh"

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0 | a state converted by plain stores and stored by TMA: only a barrier lies between (FlashKDA issue 24)
extern "C" __global__ void converted_state_stored(const float* x, float* y) {
    __shared__ __align__(128) float state[64];
    float v = x[T];
    state[T] = v * 2;  //!
    fence_async_shared();  //+
    __syncthreads();
    if (T == 0) bulk_store(y, state, 256), bulk_commit(), bulk_wait<0>();  //!
}

//@ proxies | proxy | 1, 64 | f32[64], f32[64]=0, i32:0 | the only fence is in a loop that an empty sequence never enters (FlashKDA issue 24)
extern "C" __global__ void empty_sequence_stored(const float* x, float* y, int tiles) {
    __shared__ __align__(128) float state[64];
    state[T] = 0;  //!
    fence_async_shared();  //+
    __syncthreads();
    REPEAT(t, tiles) {
        state[T] += x[T] * t;
        fence_async_shared();
        __syncthreads();
    }
    if (T == 0) bulk_store(y, state, 256), bulk_commit(), bulk_wait<0>();  //!
}

//@ proxies | advice proxy | 1, 64 | f32[256], f32[64]=0 | two stages: one is read by plain loads, and TMA fills it again behind a barrier (TransformerEngine pull 2695)
extern "C" __global__ void stage_read_then_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 bar[4];
    if (T == 0) {
        REPEAT(t, 4) init(bar[t], 64);
        fence_init();
    }
    __syncthreads();
    auto load = [&](int t) {
        if (T == 0) bulk_load(s[t % 2], x + 64 * t, 256, bar[t]), arrive_expect(bar[t], 256);  //!
        else arrive(bar[t]);
    };
    load(0);
    float most = 0;
    REPEAT(t, 4) {
        if (t < 3) load(t + 1);  //!
        fence_async_shared();  //-
        wait(bar[t], 0);
        most = fmaxf(most, s[t % 2][63 - T]);  //!
        __syncthreads();
        fence_async_shared();  //+
    }
    y[T] = most;
}

//@ proxies | race | 1, 96 | f32[256], f32[64]=0 | the lanes of a warp read a stage, and one of them gives it back to the warp that loads, with nothing that makes it wait for the others (DeepEP pull 642)
extern "C" __global__ void tokens_read_then_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[2][64];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        REPEAT(i, 2) init(full[i], 1), init(empty[i], 2);
        fence_init();
    }
    __syncthreads();
    if (T >= 64) {
        REPEAT(t, 4) {
            wait(empty[t % 2], (t / 2 & 1) ^ 1);
            if (elect()) arrive_expect(full[t % 2], 256), bulk_load(s[t % 2], x + 64 * t, 256, full[t % 2]);  //!
            __syncwarp();
        }
        return;
    }
    float sum = 0;
    REPEAT(t, 4) {
        wait(full[t % 2], t / 2 & 1);
        sum += s[t % 2][T];  //!
        fence_async_shared();  //+
        if (elect()) arrive(empty[t % 2]);
    }
    y[T] = sum;
}

//@ proxies | advice proxy | 1, 32 | f32[256], f32[32]=0 | a warp alone: its lanes read, synchronise, and one of them loads the next tokens
extern "C" __global__ void read_and_refilled_by_warp(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncwarp();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, t & 1);
        sum += s[31 - T] + s[63 - T];  //!
        if (T == 0) fence_async_shared();  //-
        fence_async_shared();  //+
        __syncwarp();
    }
    y[T] = sum;
}

//@ proxies | proxy | 1, 128 | f16[4096], f16[512], f32[512]=0 | a tile that plain stores have changed is multiplied by wgmma (TileLang issue 2634)
extern "C" __global__ void changed_tile_multiplied(const __half* x, const __half* w, float* y) {
    __shared__ __align__(1024) __half a[4096], b[512];
    for (int i = T; i < 4096; i += 128) a[i] = x[i];
    for (int i = T; i < 512; i += 128) b[i] = __hadd(w[i], __float2half(3));  //!
    fence_async_shared();  //+
    __syncthreads();
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(a), plain(b));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ proxies | proxy | 1, 128 | f16[4096], f16[512], f32[512]=0 | the same; in the right twin all threads fence behind the barrier, as TileLang has it since
extern "C" __global__ void changed_tile_fenced_late(const __half* x, const __half* w, float* y) {
    __shared__ __align__(1024) __half a[4096], b[512];
    for (int i = T; i < 4096; i += 128) a[i] = x[i];
    for (int i = T; i < 512; i += 128) b[i] = __hadd(w[i], __float2half(3));  //!
    __syncthreads();
    fence_async_shared();  //+
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(a), plain(b));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}

//@ proxies | proxy | 1, 128 | f16[4096], f16[512], f32[512]=0 | the same; a fence for global memory behind the barrier is none for shared memory
extern "C" __global__ void changed_tile_fenced_for_global(const __half* x, const __half* w, float* y) {
    __shared__ __align__(1024) __half a[4096], b[512];
    for (int i = T; i < 4096; i += 128) a[i] = x[i];
    for (int i = T; i < 512; i += 128) b[i] = __hadd(w[i], __float2half(3));  //!
    __syncthreads();
    fence_async_global();  //-
    fence_async_shared();  //+
    float d[4] = {};
    wgmma_fence();
    wgmma(d, plain(a), plain(b));  //!
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) y[T * 4 + i] = d[i];
}
