// D = A·Bᵀ by tcgen05.mma, warp-specialised: one warp loads by TMA, one multiplies into tensor memory, four store.
#include "tcgen05.cuh"
constexpr int STAGES = 3, THREADS = 192;

template <class Sum>
DEVICE Sum sum_of(u32 word);
template <>
DEVICE float sum_of(u32 word) { return __uint_as_float(word); }
template <>
DEVICE int sum_of(u32 word) { return word; }
template <>
DEVICE __half sum_of(u32 word) { return __ushort_as_half(word); }

constexpr Swizzle swizzle_of(int row) { return row == 128 ? OF_128_BYTES : row == 64 ? OF_64_BYTES : OF_32_BYTES; }
constexpr u32 columns_for(int n) { return n <= 32 ? 32 : n <= 64 ? 64 : n <= 128 ? 128 : n <= 256 ? 256 : 512; }

// An operand's tile: rows of K that are ROW bytes long, or, by columns, boxes of 128 bytes of M or N for each of the
// elements of K that such a row would have. Step by step, 32 bytes of K are multiplied.
template <class Kind, int ROW, bool BY_COLUMNS>
DEVICE u64 operand(const char* tile, int step) {
    if (BY_COLUMNS) return matrix(tile + step * Kind::ELEMENTS / 4 * 128, Kind::ELEMENTS * 128, 1024, OF_128_BYTES);
    return matrix(tile + step * 32, 16, 8 * ROW, swizzle_of(ROW));
}
template <class Kind, int GROUP, int M, int N, int ROW, bool COLUMNS_A = false, bool COLUMNS_B = false>
DEVICE void multiply_stage(u32 d, const char* a, const char* b, bool first) {
    constexpr u32 described = instruction(M, N, Kind::sums, Kind::format, Kind::format, COLUMNS_A, COLUMNS_B);
    for (int step = 0; step < ROW / 32; step++)
        Kind::template multiply<GROUP>(d, operand<Kind, ROW, COLUMNS_A>(a, step), operand<Kind, ROW, COLUMNS_B>(b, step), described, !first || step);
}

// Results of 128 rows lie in 128 lanes; those of 64 rows in the first 16 lanes of each warp.
template <int M, int N, class Sum>
DEVICE void store_tile(Sum* d, int stride, u32 sums) {
    if (M == 128) {
        u32 words[32];
        for (int column = 0; column < N; column += 32) {
            load_lanes(words, lanes_of_warp(sums) + column);
            wait_loads();
            for (int i = 0; i < 32; i++) d[(WARP % 4 * 32 + LANE) * stride + column + i] = sum_of<Sum>(words[i]);
        }
    } else {
        u32 words[16];
        for (int column = 0; column < N; column += 32) {
            load_16_lanes(words, lanes_of_warp(sums) + column);
            wait_loads();
            for (int i = 0; i < 16; i++) d[(WARP % 4 * 16 + LANE / 4 + i / 2 % 2 * 8) * stride + column + i / 4 * 8 + LANE % 4 * 2 + i % 2] = sum_of<Sum>(words[i]);
        }
    }
}

// One block for each tile.
template <int M, int N, int ROW>
struct alignas(1024) Single {
    char a[STAGES][M * ROW], b[STAGES][N * ROW];
    u64 full[STAGES], empty[STAGES], done;
    u32 sums;
};
template <class Kind, int M, int N, int ROW, bool COLUMNS_A, bool COLUMNS_B>
__global__ void __launch_bounds__(THREADS, 1) single(MAP a, MAP b, typename Kind::Sum* d, int n, int steps) {
    extern __shared__ __align__(1024) char memory[];
    Single<M, N, ROW>& s = *reinterpret_cast<Single<M, N, ROW>*>(memory);
    const int row = blockIdx.y * M, column = blockIdx.x * N;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        init(s.done, 1);
        fence_init();
    }
    if (WARP == 1) allocate<1>(s.sums, columns_for(N));
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    const u32 sums = s.sums;
    Place<STAGES> place;
    if (WARP == 0) {
        if (elect())
            for (int step = 0; step < steps; step++, place.count++) {
                constexpr int E = Kind::ELEMENTS, DEPTH = E * ROW / 128;
                int stage = place.stage(), k = step * DEPTH;
                wait(s.empty[stage], place.empty());
                arrive_expect(s.full[stage], (M + N) * ROW);
                if (COLUMNS_A)
                    for (int i = 0; i < M; i += E) load_2d(s.a[stage] + i * ROW, &a, row + i, k, s.full[stage]);
                else load_2d(s.a[stage], &a, k, row, s.full[stage]);
                if (COLUMNS_B)
                    for (int i = 0; i < N; i += E) load_2d(s.b[stage] + i * ROW, &b, column + i, k, s.full[stage]);
                else load_2d(s.b[stage], &b, k, column, s.full[stage]);
            }
        __syncwarp();
    } else if (WARP == 1) {
        if (elect()) {
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage();
                wait(s.full[stage], place.full());
                fence_after_sync();
                multiply_stage<Kind, 1, M, N, ROW, COLUMNS_A, COLUMNS_B>(sums, s.a[stage], s.b[stage], step == 0);
                commit(s.empty[stage]);
            }
            commit(s.done);
        }
        __syncwarp();
    } else {
        wait(s.done, 0);
        fence_after_sync();
        store_tile<M, N>(d + static_cast<size_t>(row) * n + column, n, sums);
        fence_before_sync();
    }
    __syncthreads();
    fence_after_sync();
    if (WARP == 1) free_columns<1>(sums, columns_for(N));
}

// A pair of blocks for each tile: both hold half of A's rows, half of B's and half of the results; the even one multiplies.
template <int M, int N>
struct alignas(1024) Pair {
    char a[STAGES][M / 2 * 128], b[STAGES][N / 2 * 128];
    u64 full[STAGES], empty[STAGES], done;
    u32 sums;
};
template <class Kind, int M, int N>
__global__ void __launch_bounds__(THREADS, 1) pair(MAP a, MAP b, typename Kind::Sum* d, int n, int steps) {
    extern __shared__ __align__(1024) char memory[];
    Pair<M, N>& s = *reinterpret_cast<Pair<M, N>*>(memory);
    const u32 rank = cluster_rank();
    const int row = blockIdx.x * M / 2, column = blockIdx.y * N;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        init(s.done, 1);
        fence_init();
    }
    if (WARP == 1) allocate<2>(s.sums, columns_for(N));
    fence_before_sync();
    cluster_sync();
    fence_after_sync();
    const u32 sums = s.sums;
    Place<STAGES> place;
    if (WARP == 0) {
        if (elect())
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage(), k = step * Kind::ELEMENTS;
                wait_cluster(s.empty[stage], place.empty());
                if (rank == 0) arrive_expect(s.full[stage], (M + N) * 128);
                load_2d_of_pair(s.a[stage], &a, k, row, s.full[stage]);
                load_2d_of_pair(s.b[stage], &b, k, column + rank * N / 2, s.full[stage]);
            }
        __syncwarp();
    } else if (WARP == 1 && rank == 0) {
        if (elect()) {
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage();
                wait_cluster(s.full[stage], place.full());
                fence_after_sync();
                multiply_stage<Kind, 2, M, N, 128>(sums, s.a[stage], s.b[stage], step == 0);
                commit_to_pair(s.empty[stage]);
            }
            commit_to_pair(s.done);
        }
        __syncwarp();
    } else if (WARP > 1) {
        wait_cluster(s.done, 0);
        fence_after_sync();
        typename Kind::Sum* tile = d + static_cast<size_t>(row) * n + column;
        if (M == 256) store_tile<128, N>(tile, n, sums);
        else  // 64 rows in 128 lanes: the upper 64 have the second half of the columns
            store_tile<128, N / 2>(WARP % 4 < 2 ? tile : tile + N / 2 - 64 * n, n, sums);
        fence_before_sync();
    }
    cluster_sync();  // the other block's operands and barriers were in use until now
    fence_after_sync();
    if (WARP == 1) free_columns<2>(sums, columns_for(N));
}

// Persistent: a block that has multiplied its tile asks for another block's by cluster launch control. While one
// accumulator is stored, the other is in use.
template <int N>
struct alignas(1024) Persistent {
    char a[STAGES][128 * 128], b[STAGES][N * 128];
    uint4 answer[2];
    u64 full[STAGES], empty[STAGES], summed[2], stored[2], answered[2], read[2];
    u32 sums;
};
struct Tile {
    int row, column, count;
    bool there;
};
// Wait for the answer to the question that was asked while the tile before was in work.
template <int N>
DEVICE void next(Persistent<N>& s, Tile& tile) {
    int i = tile.count % 2;
    wait(s.answered[i], tile.count / 2 & 1);
    tile.there = canceled(s.answer[i], tile.column, tile.row);
    fence_async_shared();  // the answer was read before the next one is written there
    arrive(s.read[i]);
    tile.count++;
}
template <class Kind, int N>
__global__ void __launch_bounds__(THREADS, 1) persistent(MAP a, MAP b, typename Kind::Sum* d, int n, int steps, int* tiles) {
    extern __shared__ __align__(1024) char memory[];
    Persistent<N>& s = *reinterpret_cast<Persistent<N>*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        for (int i = 0; i < 2; i++) init(s.summed[i], 1), init(s.stored[i], 128), init(s.answered[i], 1), init(s.read[i], 130);
        fence_init();
    }
    if (WARP == 1) allocate<1>(s.sums, columns_for(2 * N));
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    const u32 sums = s.sums;
    Place<STAGES> place;
    Tile tile = {static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x), 0, true};
    if (WARP == 0) {
        if (elect())
            while (tile.there) {
                int i = tile.count % 2;
                wait(s.read[i], tile.count / 2 & 1 ^ 1);
                arrive_expect(s.answered[i], 16);
                try_cancel(s.answer[i], s.answered[i]);
                for (int step = 0; step < steps; step++, place.count++) {
                    int stage = place.stage(), k = step * Kind::ELEMENTS;
                    wait(s.empty[stage], place.empty());
                    arrive_expect(s.full[stage], (128 + N) * 128);
                    load_2d(s.a[stage], &a, k, tile.row * 128, s.full[stage]);
                    load_2d(s.b[stage], &b, k, tile.column * N, s.full[stage]);
                }
                next(s, tile);
            }
        __syncwarp();
    } else if (WARP == 1) {
        if (elect())
            while (tile.there) {
                int i = tile.count % 2;
                wait(s.stored[i], tile.count / 2 & 1 ^ 1);
                fence_after_sync();
                for (int step = 0; step < steps; step++, place.count++) {
                    int stage = place.stage();
                    wait(s.full[stage], place.full());
                    fence_after_sync();
                    multiply_stage<Kind, 1, 128, N, 128>(sums + i * N, s.a[stage], s.b[stage], step == 0);
                    commit(s.empty[stage]);
                }
                commit(s.summed[i]);
                next(s, tile);
            }
        __syncwarp();
    } else {
        while (tile.there) {
            int i = tile.count % 2;
            wait(s.summed[i], tile.count / 2 & 1);
            fence_after_sync();
            store_tile<128, N>(d + static_cast<size_t>(tile.row) * 128 * n + tile.column * N, n, sums + i * N);
            fence_before_sync();
            arrive(s.stored[i]);
            if (threadIdx.x == 64) atomicAdd(tiles + tile.row * gridDim.x + tile.column, 1);
            next(s, tile);
        }
    }
    __syncthreads();
    fence_after_sync();
    if (WARP == 1) free_columns<1>(sums, columns_for(2 * N));
}

#define SINGLE(KIND, M, N, ROW, A, B) template __global__ void single<KIND, M, N, ROW, A, B>(MAP, MAP, KIND::Sum*, int, int);
SINGLE(bf16, 128, 64, 128, false, false)
SINGLE(f16, 128, 64, 128, false, false)
SINGLE(f16_to_f16, 128, 64, 128, false, false)
SINGLE(tf32, 128, 64, 128, false, false)
SINGLE(e4m3, 128, 64, 128, false, false)
SINGLE(e5m2, 128, 64, 128, false, false)
SINGLE(u8, 128, 64, 128, false, false)
SINGLE(s8, 128, 64, 128, false, false)
SINGLE(bf16, 64, 96, 128, false, false)
SINGLE(bf16, 128, 256, 64, false, false)
SINGLE(s8, 64, 32, 32, false, false)
SINGLE(f16, 128, 64, 128, true, false)
SINGLE(f16, 64, 128, 128, false, true)
SINGLE(e4m3, 128, 128, 128, true, true)
#define PAIR(KIND, M, N) template __global__ void pair<KIND, M, N>(MAP, MAP, KIND::Sum*, int, int);
PAIR(bf16, 256, 128)
PAIR(e4m3, 256, 64)
PAIR(tf32, 256, 64)
PAIR(s8, 256, 64)
PAIR(bf16, 128, 128)
template __global__ void persistent<bf16, 64>(MAP, MAP, float*, int, int, int*);
