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

//@ proxies | advice proxy | 1, 64 | f32[256], f32[64]=0 | a stage is read by plain loads, and TMA fills it again behind a barrier (TransformerEngine pull 2695)
extern "C" __global__ void stage_read_then_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncthreads();
    float most = 0;
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, t & 1);
        most = fmaxf(most, s[63 - T]);  //!
        fence_async_shared();  //+
        __syncthreads();
    }
    y[T] = most;
}

//@ proxies | advice proxy | 1, 32 | f32[256], f32[32]=0 | the same in a warp: its lanes read, synchronise, and one of them loads the next tokens (DeepEP pull 642)
extern "C" __global__ void tokens_read_then_refilled(const float* x, float* y) {
    __shared__ __align__(128) float s[64];
    __shared__ u64 bar;
    if (T == 0) init(bar, 1), fence_init();
    __syncwarp();
    float sum = 0;
    REPEAT(t, 4) {
        if (T == 0) arrive_expect(bar, 256), bulk_load(s, x + 64 * t, 256, bar);  //!
        wait(bar, t & 1);
        sum += s[31 - T] + s[63 - T];  //!
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
