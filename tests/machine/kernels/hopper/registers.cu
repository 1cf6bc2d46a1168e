// Products whose A lies in registers. Each has one warp that loads by TMA, and warpgroups that multiply.
#include <cuda_bf16.h>
#include "products.cuh"

// A's four registers for 16 of K: rows r and r + 8, pairs of columns, then the same 8 columns further on.
DEVICE void multiply_registers(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SUMS
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                 : SIXTEEN(FLOATS, 0), SIXTEEN(FLOATS, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// The same with B as N-major: rows of 64 elements of N, one for each of K.
DEVICE void multiply_registers_by_rows(float (&d)[32], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SUMS
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : SIXTEEN(FLOATS, 0), SIXTEEN(FLOATS, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// The compiler may move arithmetic across wgmma.fence, which names no register: this ties a register to its place.
DEVICE void written_here(float& value) { asm volatile("" : "+f"(value)::"memory"); }
DEVICE u32 two(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<u32*>(&pair);
}

// D = A·Bᵀ with weights A (M, K) of 8 bits, which become bf16 on their way, and B (N, K) of bf16.
struct alignas(1024) Weights {
    char b[2][TILE];
    u64 full[2], empty[2];
};
extern "C" __global__ void __launch_bounds__(160) mixed(const signed char* a, MAP b, float* d, int n, int k) {
    extern __shared__ __align__(1024) char memory[];
    Weights& s = *reinterpret_cast<Weights*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) init(s.full[i], 1), init(s.empty[i], 1);
        fence_init();
    }
    __syncthreads();
    const int row = blockIdx.y * 64, column = blockIdx.x * 64;
    Place<2> place;
    if (WARP == 4) {
        if (elect())
            for (int at = 0; at < k; at += 64, place.count++) {
                int stage = place.stage();
                wait(s.empty[stage], place.empty());
                arrive_expect(s.full[stage], TILE);
                load_2d(s.b[stage], &b, at, column, s.full[stage]);
            }
        return;
    }
    float sums[32];
    for (int at = 0; at < k; at += 64, place.count++) {
        u32 fragment[4][4];
        for (int step = 0; step < 4; step++)
            for (int i = 0; i < 4; i++) {
                const signed char* pair = a + (row + row_of(2 * i)) * k + at + 16 * step + LANE % 4 * 2 + i / 2 * 8;
                fragment[step][i] = two(pair[0], pair[1]);
            }
        int stage = place.stage();
        wait(s.full[stage], place.full());
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++)
            multiply_registers(sums, fragment[step], swizzled(s.b[stage] + 32 * step), at || step);
        wgmma_commit();
        wgmma_wait<0>();
        if (threadIdx.x == 0) arrive(s.empty[stage]);
    }
    for (int i = 0; i < 32; i++) d[(row + row_of(i)) * n + column + column_of(i)] = sums[i];
}

// Attention, forward: q, k, v (heads, length, 64) of bf16. Two warpgroups have 64 queries each and share the tiles of
// keys and values; scores become the A of the second product in the registers where the first has left them.
struct alignas(1024) Attention {
    char q[2][TILE], k[2][TILE], v[2][TILE];
    u64 queries, k_full[2], v_full[2], empty[2];
};
template <bool CAUSAL>
__global__ void __launch_bounds__(288) attention(MAP q, MAP k, MAP v, float* out, int length, float scale) {
    extern __shared__ __align__(1024) char memory[];
    Attention& s = *reinterpret_cast<Attention*>(memory);
    const int group = threadIdx.x / 128, head = blockIdx.y, first = blockIdx.x * 128;
    const int tiles = CAUSAL ? (first + 128) / 64 : length / 64;
    if (threadIdx.x == 0) {
        init(s.queries, 1);
        for (int i = 0; i < 2; i++) init(s.k_full[i], 1), init(s.v_full[i], 1), init(s.empty[i], 2);
        fence_init();
    }
    __syncthreads();
    Place<2> place;
    if (group == 2) {
        if (elect()) {
            arrive_expect(s.queries, 2 * TILE);
            for (int i = 0; i < 2; i++) load_3d(s.q[i], &q, 0, first + 64 * i, head, s.queries);
            for (int tile = 0; tile < tiles; tile++, place.count++) {
                int stage = place.stage();
                wait(s.empty[stage], place.empty());
                arrive_expect(s.k_full[stage], TILE);
                load_3d(s.k[stage], &k, 0, 64 * tile, head, s.k_full[stage]);
                arrive_expect(s.v_full[stage], TILE);
                load_3d(s.v[stage], &v, 0, 64 * tile, head, s.v_full[stage]);
            }
        }
        return;
    }
    const int row = first + 64 * group;
    float sums[32] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {};
    wait(s.queries, 0);
    for (int tile = 0; tile < tiles; tile++, place.count++) {
        int stage = place.stage();
        float scores[32];
        wait(s.k_full[stage], place.full());
        multiply_tile<bf16>(scores, s.q[group], s.k[stage], true);
        wgmma_wait<0>();
        float larger[2] = {most[0], most[1]}, factor[2];
#pragma unroll
        for (int i = 0; i < 32; i++) {
            if (CAUSAL && tile * 64 + column_of(i) > row + row_of(i)) scores[i] = -INFINITY;
            larger[i / 2 % 2] = fmaxf(larger[i / 2 % 2], scores[i]);
        }
        for (int half = 0; half < 2; half++) {  // four lanes share a row
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(~0u, larger[half], 1));
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(~0u, larger[half], 2));
            factor[half] = most[half] == -INFINITY ? 0 : exp2f((most[half] - larger[half]) * scale);
            most[half] = larger[half];
            total[half] *= factor[half];
        }
        u32 weights[4][4];
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            int half = i / 2 % 2;
            float at = larger[half] == -INFINITY ? 0 : larger[half];
            float low = exp2f((scores[i] - at) * scale), high = exp2f((scores[i + 1] - at) * scale);
            total[half] += low + high;
            weights[i / 8][i / 2 % 4] = two(low, high);
            sums[i] *= factor[half], sums[i + 1] *= factor[half];
        }
        wait(s.v_full[stage], place.full());
        for (int i = 0; i < 32; i++) written_here(sums[i]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++)  // 16 keys are 16 rows of 128 bytes
            multiply_registers_by_rows(sums, weights[step], descriptor(s.v[stage] + 16 * ROW * step, 1024, 1024, SWIZZLE_128B));
        wgmma_commit();
        wgmma_wait<0>();
        if (threadIdx.x % 128 == 0) arrive(s.empty[stage]);
    }
    for (int half = 0; half < 2; half++) {
        total[half] += __shfl_xor_sync(~0u, total[half], 1);
        total[half] += __shfl_xor_sync(~0u, total[half], 2);
    }
    for (int i = 0; i < 32; i++)
        out[(head * length + row + row_of(i)) * 64 + column_of(i)] = sums[i] / total[i / 2 % 2];
}
template __global__ void attention<false>(MAP, MAP, MAP, float*, int, float);
template __global__ void attention<true>(MAP, MAP, MAP, float*, int, float);
