//@arch sm_90a
// Right kernels: pipelines of TMA and wgmma in the styles of public Hopper code. Nothing is to be found in them.
#include "instructions.cuh"
#define STORE(y, d) \
    for (int i = 0; i < 4; i++) y[T % 128 * 4 + i] = d[i];
#define TILE_A 8192
#define TILE_B 1024
DEVICE void products(float (&d)[4], const __half* a, const __half* b) {
    for (int k = 0; k < 4; k++) wgmma(d, swizzled(a + 16 * k), swizzled(b + 16 * k));
}

//@ wgmma | - | 1, 160 | map f16[64x256] 64x64 128B, map f16[8x256] 8x64 128B, f32[512]=0 | a producer lane, and thread 0 of the warpgroup releases a stage for its four warps
extern "C" __global__ void gemm_one_releases(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 1);
        fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (elect())
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], TILE_A + TILE_B);
                load_2d(a[t % 2], &ma, 64 * t, 0, full[t % 2]);
                load_2d(b[t % 2], &mb, 64 * t, 0, full[t % 2]);
            }
        return;
    }
    float d[4] = {};
    REPEAT(t, 4) {
        wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        products(d, a[t % 2], b[t % 2]);
        wgmma_commit();
        wgmma_wait<0>();
        if (T == 0) arrive(empty[t % 2]);
    }
    STORE(y, d)
}

//@ wgmma | - | 1, 160 | map f16[64x256] 64x64 128B, map f16[8x256] 8x64 128B, f32[512]=0 | one group stays in flight; the stage before is released by each warp's lane 0
extern "C" __global__ void gemm_one_group_in_flight(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[3][4096], b[3][512];
    __shared__ u64 full[3], empty[3];
    if (T == 0) {
        for (int i = 0; i < 3; i++) init(full[i], 1), init(empty[i], 4);
        fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0) {
            int stage = 0, phase = 1;
            REPEAT(t, 4) {
                wait(empty[stage], phase);
                arrive_expect(full[stage], TILE_A + TILE_B);
                load_2d(a[stage], &ma, 64 * t, 0, full[stage]);
                load_2d(b[stage], &mb, 64 * t, 0, full[stage]);
                if (++stage == 3) stage = 0, phase ^= 1;
            }
        }
        return;
    }
    float d[4] = {};
    int stage = 0, phase = 0, before = -1;
    REPEAT(t, 4) {
        wait(full[stage], phase);
        wgmma_fence();
        products(d, a[stage], b[stage]);
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0 && LANE == 0) arrive(empty[before]);
        before = stage;
        if (++stage == 3) stage = 0, phase ^= 1;
    }
    wgmma_wait<0>();
    STORE(y, d)
}

//@ wgmma | - | 1, 160 | map f16[64x256] 64x64 128B, map f16[8x256] 8x64 128B, f32[512]=0 | all 128 consumers arrive at the empty barrier; the first product of a tile does not add
extern "C" __global__ void gemm_all_release(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2], empty[2];
    if (T == 128) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 128);
        fence_init();
    }
    __syncthreads();
    if (T == 128) {
        REPEAT(t, 4) {
            if (t >= 2) wait(empty[t % 2], t / 2 - 1 & 1);
            arrive_expect(full[t % 2], TILE_A + TILE_B);
            load_2d(a[t % 2], &ma, 64 * t, 0, full[t % 2]);
            load_2d(b[t % 2], &mb, 64 * t, 0, full[t % 2]);
        }
    } else if (WARP < 4) {
        float d[4];
        REPEAT(t, 4) {
            wait(full[t % 2], t / 2 & 1);
            wgmma_fence();
            for (int k = 0; k < 4; k++) {
                if (t == 0 && k == 0) wgmma_first(d, swizzled(a[0]), swizzled(b[0]));
                else wgmma(d, swizzled(a[t % 2] + 16 * k), swizzled(b[t % 2] + 16 * k));
            }
            wgmma_commit();
            wgmma_wait<0>();
            arrive(empty[t % 2]);
        }
        STORE(y, d)
    }
}

//@ wgmma | - | 1, 384 | map f16[128x128] 64x64 128B, map f16[8x128] 8x64 128B, f32[1024]=0 | two cooperative consumers with their registers moved; each releases once
extern "C" __global__ void __launch_bounds__(384, 1) gemm_cooperative(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[512];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 2), fence_init();
    __syncthreads();
    if (WARP < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
        if (WARP == 0 && elect())
            REPEAT(t, 2) {
                wait(empty, t + 1 & 1);
                arrive_expect(full, 2 * TILE_A + TILE_B);
                load_2d(a[0], &ma, 64 * t, 0, full);
                load_2d(a[1], &ma, 64 * t, 64, full);
                load_2d(b, &mb, 64 * t, 0, full);
            }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
    int group = WARP / 4 - 1;
    float d[4] = {};
    REPEAT(t, 2) {
        wait(full, t & 1);
        wgmma_fence();
        products(d, a[group], b);
        wgmma_commit();
        wgmma_wait<0>();
        if (T % 128 == 0) arrive(empty);
    }
    STORE((y + 512 * group), d)
}

//@ wgmma | - | 1, 384 | map f16[128x128] 64x64 128B, map f16[8x128] 8x64 128B, f32[1024]=0 | ping-pong: two consumers take turns through an order barrier, each with a tile of its own
extern "C" __global__ void __launch_bounds__(384, 1) gemm_pingpong(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2], empty[2], order[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 1), init(order[i], 128);
        fence_init();
    }
    __syncthreads();
    if (WARP < 4) {
        if (T == 0)
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], TILE_A + TILE_B);
                load_2d(a[t % 2], &ma, t % 2 * 64, t / 2 * 64, full[t % 2]);
                load_2d(b[t % 2], &mb, t % 2 * 64, 0, full[t % 2]);
            }
        return;
    }
    int group = WARP / 4 - 1;
    float d[4] = {};
    if (group == 1) wait(order[1], 0);
    for (int t = 2 * group; t < 2 * group + 2; t++) {
        wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        products(d, a[t % 2], b[t % 2]);
        wgmma_commit();
        wgmma_wait<0>();
        if (T % 128 == 0) arrive(empty[t % 2]);
    }
    if (group == 0) arrive(order[1]);
    STORE((y + 512 * group), d)
}

//@ wgmma | - | 1, 128 | map f16[64x256] 64x64 128B, map f16[8x256] 8x64 128B, f32[512]=0 | no specialised warps: thread 0 refills a stage behind __syncthreads
extern "C" __global__ void gemm_unspecialised(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2];
    if (T == 0) init(full[0], 1), init(full[1], 1), fence_init();
    __syncthreads();
    if (T == 0)
        REPEAT(t, 2) arrive_expect(full[t], TILE_A + TILE_B), load_2d(a[t], &ma, 64 * t, 0, full[t]), load_2d(b[t], &mb, 64 * t, 0, full[t]);
    float d[4] = {};
    REPEAT(t, 4) {
        wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        products(d, a[t % 2], b[t % 2]);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
        if (T == 0 && t < 2) {
            arrive_expect(full[t % 2], TILE_A + TILE_B);
            load_2d(a[t % 2], &ma, 64 * (t + 2), 0, full[t % 2]);
            load_2d(b[t % 2], &mb, 64 * (t + 2), 0, full[t % 2]);
        }
    }
    STORE(y, d)
}

//@ wgmma | - | 1, 160 | map f16[64x128] 64x64, map f16[8x128] 8x64 128B, f32[512]=0 | A in registers: read from the tile by its threads, then multiplied
extern "C" __global__ void gemm_a_in_registers(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[4096], b[512];
    __shared__ u64 full, empty;
    if (T == 0) init(full, 1), init(empty, 4), fence_init();
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0)
            REPEAT(t, 2) {
                wait(empty, t + 1 & 1);
                arrive_expect(full, TILE_A + TILE_B);
                load_2d(a, &ma, 64 * t, 0, full);
                load_2d(b, &mb, 64 * t, 0, full);
            }
        return;
    }
    float d[4] = {};
    REPEAT(t, 2) {
        wait(full, t & 1);
        u32 r[4][4];
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 4; i++) r[k][i] = *reinterpret_cast<u32*>(a + 64 * (16 * WARP + LANE / 4 + i % 2 * 8) + 16 * k + LANE % 4 * 2 + i / 2 * 8);
        wgmma_fence();
        for (int k = 0; k < 4; k++) wgmma(d, r[k], swizzled(b + 16 * k));
        wgmma_commit();
        wgmma_wait<0>();
        __syncwarp();
        if (LANE == 0) arrive(empty);
    }
    STORE(y, d)
}

//@ wgmma | - | 1, 128 | f16[1024], f16[256], f32[512]=0 | as in attention: the sums of one product, made to halves, are the A registers of the next
extern "C" __global__ void attention_chain(const __half* q, const __half* k, float* y) {
    __shared__ __align__(128) __half sq[1024], sk[256];
    for (int i = T; i < 1024; i += 128) sq[i] = __hmul(q[i], __float2half(0.01f));
    for (int i = T; i < 256; i += 128) sk[i] = __hmul(k[i], __float2half(0.01f));
    fence_async_shared();
    __syncthreads();
    float s[2][4] = {}, o[4] = {};
    REPEAT(t, 2) {
        wgmma_fence();
        for (int i = 0; i < 2; i++) wgmma_first(s[i], plain(sq), plain(sk + 128 * i));
        wgmma_commit();
        wgmma_wait<0>();
        u32 p[4];
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) {
                __half2 pair = __floats2half2_rn(s[i][2 * j], s[i][2 * j + 1]);
                p[2 * i + j] = *reinterpret_cast<u32*>(&pair);
            }
        wgmma_fence();
        wgmma(o, p, plain(sk));
        wgmma_commit();
        wgmma_wait<0>();
        for (int i = 0; i < 4; i++) o[i] *= 0.5f;
    }
    STORE(y, o)
}

//@ wgmma | - | 2, 160 | map f16[128x128] 64x64 128B, map f16[8x128] 8x64 128B, map f32[256x8]=0 64x8 | persistent: the ring goes on from tile to tile; the epilogue waits before it writes its buffer again
extern "C" __global__ void gemm_persistent(MAP ma, MAP mb, MAP mc) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ __align__(128) float c[64 * 8];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 1);
        fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (LANE == 0) {
            int n = 0;
            for (int tile = blockIdx.x; tile < 4; tile += gridDim.x)
                for (int t = 0; t < 2; t++, n++) {
                    wait(empty[n % 2], n / 2 + 1 & 1);
                    arrive_expect(full[n % 2], TILE_A + TILE_B);
                    load_2d(a[n % 2], &ma, 64 * t, tile % 2 * 64, full[n % 2]);
                    load_2d(b[n % 2], &mb, 64 * t, 0, full[n % 2]);
                }
        }
        return;
    }
    int n = 0;
    for (int tile = blockIdx.x; tile < 4; tile += gridDim.x) {
        float d[4] = {};
        for (int t = 0; t < 2; t++, n++) {
            wait(full[n % 2], n / 2 & 1);
            wgmma_fence();
            products(d, a[n % 2], b[n % 2]);
            wgmma_commit();
            wgmma_wait<0>();
            if (T == 0) arrive(empty[n % 2]);
        }
        if (T == 0) bulk_wait_read<0>();
        barrier(1, 128);
        for (int i = 0; i < 4; i++) c[8 * (16 * WARP + LANE / 4 + i / 2 * 8) + LANE % 4 * 2 + i % 2] = d[i];
        fence_async_shared();
        barrier(1, 128);
        if (T == 0) store_2d(&mc, 0, 64 * tile, c), bulk_commit();
    }
    if (T == 0) bulk_wait_read<0>();
}

//@ wgmma | - | 1, 160 | map f16[64x256] 64x64 128B, map f16[8x256] 8x64 128B, f32[512]=0 | the consumer looks ahead with try_wait and waits only where it has to; full barriers count two arrivals
extern "C" __global__ void gemm_try_ahead(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[2][4096], b[2][512];
    __shared__ u64 full[2], empty[2];
    if (T == 0) {
        for (int i = 0; i < 2; i++) init(full[i], 2), init(empty[i], 1);
        fence_init();
    }
    __syncthreads();
    if (WARP == 4) {
        if (LANE < 2)
            REPEAT(t, 4) {
                wait(empty[t % 2], t / 2 + 1 & 1);
                arrive_expect(full[t % 2], LANE == 0 ? TILE_A : TILE_B);
                if (LANE == 0) load_2d(a[t % 2], &ma, 64 * t, 0, full[t % 2]);
                else load_2d(b[t % 2], &mb, 64 * t, 0, full[t % 2]);
            }
        return;
    }
    float d[4] = {};
    u32 ready = try_wait(full[0], 0);
    REPEAT(t, 4) {
        if (!ready) wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        products(d, a[t % 2], b[t % 2]);
        wgmma_commit();
        if (t < 3) ready = try_wait(full[(t + 1) % 2], (t + 1) / 2 & 1);
        wgmma_wait<0>();
        barrier(1, 128);
        if (T == 0) arrive(empty[t % 2]);
    }
    STORE(y, d)
}

//@ wgmma | - | 1, 256 | map f16[64x64] 64x64 128B, map f16[8x256] 8x64 128B, f32[1024]=0 | A is loaded once and read by two warpgroups; B goes through a ring; nobody releases the last stages
extern "C" __global__ void gemm_resident_a(MAP ma, MAP mb, float* y) {
    __shared__ __align__(1024) __half a[4096], b[2][512];
    __shared__ u64 loaded, full[2], empty[2];
    if (T == 0) {
        init(loaded, 1);
        for (int i = 0; i < 2; i++) init(full[i], 1), init(empty[i], 2);
        fence_init();
    }
    __syncthreads();
    if (T == 0) arrive_expect(loaded, TILE_A), load_2d(a, &ma, 0, 0, loaded);
    float d[4] = {};
    wait(loaded, 0);
    REPEAT(t, 4) {
        if (T == 0) {
            if (t >= 2) wait(empty[t % 2], t / 2 - 1 & 1);
            arrive_expect(full[t % 2], TILE_B);
            load_2d(b[t % 2], &mb, 64 * t, 0, full[t % 2]);
        }
        __syncwarp();
        wait(full[t % 2], t / 2 & 1);
        wgmma_fence();
        products(d, a, b[t % 2]);
        wgmma_commit();
        wgmma_wait<0>();
        if (T % 128 == 0 && t < 2) arrive(empty[t % 2]);
    }
    STORE((y + 512 * (T / 128)), d)
}
