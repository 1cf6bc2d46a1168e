// Attention of 128 queries and one head: scores and weights stay in tensor memory, weights are the A of the second product.
#include "tcgen05.cuh"
constexpr int STAGES = 2, THREADS = 192, QUERIES = 128, KEYS = 64, DEPTH = 64, TILE = KEYS * DEPTH * 2;

struct alignas(1024) Attention {
    char q[QUERIES * DEPTH * 2], k[STAGES][TILE], v[STAGES][TILE];
    u64 queries, full[STAGES], empty[STAGES], scored, weighed, summed;
    u32 columns;
};
DEVICE u32 two_halves(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<u32*>(&both);
}

// Q, K and V are (heads × length, 64) of f16; `scale` includes log2(e).
template <bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1) attention(MAP q, MAP k, MAP v, float* out, int length, float scale) {
    extern __shared__ __align__(1024) char memory[];
    Attention& s = *reinterpret_cast<Attention*>(memory);
    const int first = blockIdx.x * QUERIES, head = blockIdx.y * length;
    const int tiles = (CAUSAL ? first + QUERIES : length) / KEYS;
    if (threadIdx.x == 0) {
        init(s.queries, 1), init(s.scored, 1), init(s.weighed, 128), init(s.summed, 1);
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        fence_init();
    }
    if (WARP == 1) allocate<1>(s.columns, 256);
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    const u32 scores = s.columns, sums = scores + KEYS, weights = sums + DEPTH;
    Place<STAGES> place;
    if (WARP == 0) {
        if (elect()) {
            arrive_expect(s.queries, sizeof(s.q));
            load_2d(s.q, &q, 0, head + first, s.queries);
            for (int tile = 0; tile < tiles; tile++, place.count++) {
                int stage = place.stage();
                wait(s.empty[stage], place.empty());
                arrive_expect(s.full[stage], 2 * TILE);
                load_2d(s.k[stage], &k, 0, head + tile * KEYS, s.full[stage]);
                load_2d(s.v[stage], &v, 0, head + tile * KEYS, s.full[stage]);
            }
        }
        __syncwarp();
    } else if (WARP == 1) {
        if (elect()) {
            constexpr u32 to_scores = instruction(QUERIES, KEYS, 1, 0, 0), to_sums = instruction(QUERIES, DEPTH, 1, 0, 0, 0, 1);
            wait(s.queries, 0);
            for (int tile = 0; tile < tiles; tile++, place.count++) {
                int stage = place.stage();
                wait(s.full[stage], place.full());
                fence_after_sync();
                for (int i = 0; i < DEPTH / 16; i++)
                    f16::multiply<1>(scores, matrix(s.q + 32 * i, 16, 1024, OF_128_BYTES), matrix(s.k[stage] + 32 * i, 16, 1024, OF_128_BYTES), to_scores, i);
                commit(s.scored);
                wait(s.weighed, tile & 1);
                fence_after_sync();
                for (int i = 0; i < KEYS / 16; i++)  // V by columns: 16 rows of 128 bytes
                    multiply_from_lanes(sums, weights + 8 * i, matrix(s.v[stage] + 2048 * i, TILE, 1024, OF_128_BYTES), to_sums, tile || i);
                commit(s.empty[stage]);
                commit(s.summed);
            }
        }
        __syncwarp();
    } else {
        const int row = WARP % 4 * 32 + LANE;
        float top = -INFINITY, total = 0;
        u32 words[32], halves[16];
        for (int tile = 0; tile < tiles; tile++) {
            wait(s.scored, tile & 1);
            fence_after_sync();
            float highest = top, shrink, x[KEYS];
            for (int column = 0; column < KEYS; column += 32) {
                load_lanes(words, lanes_of_warp(scores) + column);
                wait_loads();
                for (int i = 0; i < 32; i++) {
                    bool seen = !CAUSAL || tile * KEYS + column + i <= first + row;
                    x[column + i] = seen ? __uint_as_float(words[i]) * scale : -INFINITY;
                    highest = fmaxf(highest, x[column + i]);
                }
            }
            shrink = exp2f(top - highest), top = highest, total *= shrink;
            for (int column = 0; column < KEYS; column += 32) {
                for (int i = 0; i < 16; i++) {
                    float low = exp2f(x[column + 2 * i] - top), high = exp2f(x[column + 2 * i + 1] - top);
                    total += low + high;
                    halves[i] = two_halves(low, high);
                }
                store_lanes(lanes_of_warp(weights) + column / 2, halves);
            }
            if (tile) {
                wait(s.summed, tile - 1 & 1);
                fence_after_sync();
                for (int column = 0; column < DEPTH; column += 32) {
                    load_lanes(words, lanes_of_warp(sums) + column);
                    wait_loads();
                    for (int i = 0; i < 32; i++) words[i] = __float_as_uint(__uint_as_float(words[i]) * shrink);
                    store_lanes(lanes_of_warp(sums) + column, words);
                }
            }
            wait_stores();
            fence_before_sync();
            arrive(s.weighed);
        }
        wait(s.summed, tiles - 1 & 1);
        fence_after_sync();
        for (int column = 0; column < DEPTH; column += 32) {
            load_lanes(words, lanes_of_warp(sums) + column);
            wait_loads();
            for (int i = 0; i < 32; i++) out[static_cast<size_t>(head + first + row) * DEPTH + column + i] = __uint_as_float(words[i]) / total;
        }
        fence_before_sync();
    }
    __syncthreads();
    fence_after_sync();
    if (WARP == 1) free_columns<1>(scores, 256);
}
template __global__ void attention<false>(MAP, MAP, MAP, float*, int, float);
template __global__ void attention<true>(MAP, MAP, MAP, float*, int, float);
