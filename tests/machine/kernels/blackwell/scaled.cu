// D = A·Bᵀ of blocks that share a scale factor (mxfp8, mxfp4, nvfp4): factors go from shared to tensor memory by tcgen05.cp.
#include "tcgen05.cuh"
constexpr int STAGES = 2, THREADS = 192, M = 128, N = 128;
// Four factors each of 128 rows: in global, shared and tensor memory, 32 rows of 16 bytes with the factors of rows
// r, r + 32, r + 64 and r + 96.
constexpr int FACTORS = 512;

template <class Kind>
struct alignas(1024) Scaled {
    static constexpr int CHUNKS = Kind::ELEMENTS / Kind::BLOCK / 4;  // of factors for a stage of A or of B
    char a[STAGES][M * 128], b[STAGES][N * 128];
    char scales_a[STAGES][CHUNKS * FACTORS], scales_b[STAGES][CHUNKS * FACTORS];
    u64 full[STAGES], empty[STAGES], done;
    u32 columns;
};

// Factors lie in chunks of four along K, all chunks of 128 rows after another.
template <class Kind>
__global__ void __launch_bounds__(THREADS, 1) scaled(MAP a, MAP b, const char* scales_a, const char* scales_b, float* d, int n, int steps) {
    extern __shared__ __align__(1024) char memory[];
    typedef Scaled<Kind> Shared;
    Shared& s = *reinterpret_cast<Shared*>(memory);
    constexpr int CHUNKS = Shared::CHUNKS, BYTES = CHUNKS * FACTORS;
    const int row = blockIdx.y * M, column = blockIdx.x * N;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        init(s.done, 1);
        fence_init();
    }
    if (WARP == 1) allocate<1>(s.columns, 256);
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    const u32 sums = s.columns, factors_a = sums + N, factors_b = factors_a + 4 * CHUNKS;
    Place<STAGES> place;
    if (WARP == 0) {
        if (elect())
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage(), k = step * Kind::ELEMENTS;
                u64& full = s.full[stage];
                wait(s.empty[stage], place.empty());
                arrive_expect(full, (M + N) * 128 + 2 * BYTES);
                // Elements of 4 bits are pairs to TMA.
                load_2d(s.a[stage], &a, k * 128 / Kind::ELEMENTS, row, full);
                load_2d(s.b[stage], &b, k * 128 / Kind::ELEMENTS, column, full);
                bulk_load(s.scales_a[stage], scales_a + (static_cast<size_t>(blockIdx.y) * steps + step) * BYTES, BYTES, full);
                bulk_load(s.scales_b[stage], scales_b + (static_cast<size_t>(blockIdx.x) * steps + step) * BYTES, BYTES, full);
            }
        __syncwarp();
    } else if (WARP == 1) {
        if (elect()) {
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage();
                wait(s.full[stage], place.full());
                fence_after_sync();
                for (int i = 0; i < CHUNKS; i++) {  // in order with the products before and after
                    copy_scales(factors_a + 4 * i, matrix(s.scales_a[stage] + i * FACTORS, 16, 128, NONE));
                    copy_scales(factors_b + 4 * i, matrix(s.scales_b[stage] + i * FACTORS, 16, 128, NONE));
                }
#pragma unroll
                for (int i = 0; i < Kind::ELEMENTS / Kind::AT_ONCE; i++) {
                    // The first factor of an instruction: which chunk it is in, and which byte of the four.
                    constexpr int ONE = Kind::AT_ONCE / Kind::BLOCK;
                    int factor = i * ONE, chunk = factor / 4;
                    Kind::multiply(sums, matrix(s.a[stage] + 32 * i, 16, 1024, OF_128_BYTES), matrix(s.b[stage] + 32 * i, 16, 1024, OF_128_BYTES),
                                   scaled_instruction(M, N, Kind::format, Kind::is_e8m0, factor % 4), factors_a + 4 * chunk, factors_b + 4 * chunk, step || i);
                }
                commit(s.empty[stage]);
            }
            commit(s.done);
        }
        __syncwarp();
    } else {
        wait(s.done, 0);
        fence_after_sync();
        u32 words[32];
        for (int first = 0; first < N; first += 32) {
            load_lanes(words, lanes_of_warp(sums) + first);
            wait_loads();
            for (int i = 0; i < 32; i++) d[static_cast<size_t>(row + WARP % 4 * 32 + LANE) * n + column + first + i] = __uint_as_float(words[i]);
        }
        fence_before_sync();
    }
    __syncthreads();
    fence_after_sync();
    if (WARP == 1) free_columns<1>(sums, 256);
}
#define INSTANCE(KIND) template __global__ void scaled<KIND>(MAP, MAP, const char*, const char*, float*, int, int);
INSTANCE(mxf8)
INSTANCE(mxf4)
INSTANCE(nvf4)
